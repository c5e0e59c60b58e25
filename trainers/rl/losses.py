"""PPO's losses as tensor functions (Eqs. 16-18, GHAR): sums over tokens divided by one global denominator.

Every function takes per-token tensors of one shape [N] (or [B, L]) and `weights` of the same shape. An update gives
them the tokens that a policy sampled and no others (`targets.sampled`), weighed by `token_weights`; a padded batch has
weight 0 at all others, whose entries may be anything. `denominator` is the sum of
the weights of the whole update, over all micro-batches and all ranks: adding up the results of the parts then gives the
result of the whole.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Aggregate = Literal["token", "turn", "sequence"]
Kl = Literal["k1", "k2", "k3"]


def token_weights(turn: Tensor, sequence: Tensor, aggregate: Aggregate, open_to: Tensor | None = None) -> Tensor:
    """What each trainable token of a batch counts, float32 [N]; turn, sequence: int [N], the reply and episode of each.

    token: all alike, so that a reply counts by its length, and a decision of one word next to nothing beside a summary.
    turn: every reply as much as every other, shared out among its tokens. sequence: every episode as much.
    A weighted mean over all tokens is then the mean over tokens, over turns' means or over episodes' means.
    open_to: bool [N], tokens among which a turn or an episode is shared out, None for all. The others count nothing:
    the rest of an option, once it is the only one left, has log-prob 0 and no gradient, and would take most of what a
    long option counts.
    """
    if aggregate == "token":
        return torch.ones(turn.shape, device=turn.device)
    own = torch.ones(turn.shape, device=turn.device) if open_to is None else open_to.float()
    _, group = (turn if aggregate == "turn" else sequence).unique(return_inverse=True)
    size = own.new_zeros(int(group.max()) + 1 if len(group) else 0).index_add_(0, group, own)
    return own / size[group].clamp(min=1.0)


def weighted(x: Tensor, weights: Tensor, denominator: float) -> Tensor:
    """Sum of weights * x over `denominator`, a scalar; x is not read where the weight is 0. Used for entropy, too."""
    return torch.where(weights != 0, x, 0.0).mul(weights).sum() / denominator


def policy_loss(
    logp_new: Tensor, logp_old: Tensor, advantages: Tensor, weights: Tensor, denominator: float, clip: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Clipped surrogate to minimise, -min(r A, clip(r, 1-ε, 1+ε) A) (Eq. 16, GHAR, which maximises), and diagnostics.

    r = exp(logp_new - logp_old). logp_old: behaviour log-probs, so that the clip bounds the step of this update. Eq. 16
    is written against the reference policy; pass the reference's log-probs for that literal form. Its clip then
    bounds the distance to where training started: once past it, gradients vanish, hence not the default.
    Diagnostics (named as CleanRL names them, detached, additive like the loss): old_approx_kl, approx_kl, clipfrac.
    """
    # Untrainable entries may hold anything, infinities included: neutralised before exp, so gradients stay finite.
    log_ratio = torch.where(weights != 0, logp_new - logp_old, 0.0)
    ratio = log_ratio.exp()
    surrogate = torch.min(ratio * advantages, ratio.clamp(1.0 - clip, 1.0 + clip) * advantages)
    with torch.no_grad():
        diagnostics = {
            "old_approx_kl": weighted(-log_ratio, weights, denominator),
            "approx_kl": weighted(ratio - 1.0 - log_ratio, weights, denominator),
            "clipfrac": weighted(((ratio - 1.0).abs() > clip).to(ratio.dtype), weights, denominator),
        }
    return weighted(-surrogate, weights, denominator), diagnostics


def truncated_importance(logp_trainer: Tensor, logp_behaviour: Tensor, cap: float) -> Tensor:
    """Weights min(π_old / μ, C) [N] that correct for an engine whose numbers are not quite the trainer's, detached.

    μ is what the engine sampled from, π_old the same weights as the trainer computes them. Multiplied onto Eq. 16's
    surrogate, whose ratio is then π / π_old, they make its gradient that of samples of π_old; the cap C bounds their
    variance (truncated importance sampling, Ionides 2008; for engines of RL: Yao et al. 2025, "Your efficient RL
    framework secretly brings you off-policy RL training").
    """
    return (logp_trainer - logp_behaviour).exp().clamp(max=cap).detach()


def value_loss(
    values: Tensor, old_values: Tensor, targets: Tensor, weights: Tensor, denominator: float, clip: float | None
) -> Tensor:
    """Squared error (Eq. 17, GHAR), the larger of plain and clipped, (V - R)² and (V_old + clip(V - V_old, ±ε) - R)².

    targets: returns (`credit`), the sound form; or the shared reward (`episode_rewards`), Eq. 17's literal form, which
    has no clip (None). No factor 1/2: that belongs to the caller's coefficient.
    """
    used = weights != 0
    error = torch.where(used, values - targets, 0.0) ** 2
    if clip is not None:
        near = old_values + (values - old_values).clamp(-clip, clip)
        error = torch.max(error, torch.where(used, near - targets, 0.0) ** 2)
    return weighted(error, weights, denominator)


def reference_kl(
    logp_new: Tensor, logp_reference: Tensor, weights: Tensor, denominator: float, estimator: Kl = "k3"
) -> Tensor:
    """KL(π || π_ref) from samples of π, a scalar; d = logp_reference - logp_new (Schulman 2020, "Approximating KL
    divergence"). As a loss, only an estimator's gradient counts, and that need not be its value's.

    k3: exp(d) - d - 1, never negative. Its value is an unbiased estimate of KL(π || π_ref), but its expected gradient
        is that of KL(π_ref || π), which spreads π over all that π_ref does instead of keeping it within.
    k2: d² / 2, never negative. Its expected gradient is that of KL(π || π_ref); its value is biased where they are far
        apart.
    k1: -d, unbiased and of either sign, with the gradient of k2 put in its place: its own is zero in expectation.
    """
    d = torch.where(weights != 0, logp_reference - logp_new, 0.0)
    k2 = d**2 / 2
    terms = {"k1": k2 + (-d - k2).detach(), "k2": k2, "k3": d.exp() - d - 1.0}
    return weighted(terms[estimator], weights, denominator)
