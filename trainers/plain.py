"""Train a system the slow and direct way, in one file to be read from top to bottom (section IV, Eqs. 14-18, GHAR).

raw tables -> samples -> base model -> SFT -> (rollout -> reward -> credit -> loss -> step) x updates -> evaluation

Replies are read and sampled one by one, one episode is played after the other, nothing is shared, sharded or resumed.
What trainers/recipe.py makes of the same lines for speed is named beside them, and tests/trainers/test_plain.py holds
both to the same replies and gradients. trainer.method=plain starts it, in a run folder that every other command reads
as the fast trainer's. It covers the settings in `SUPPORTED`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ghar.config import Config, RlConfig
from ghar.envs import system as systems
from ghar.envs.play import teacher_cases, validation_cases
from ghar.envs.records import Records
from ghar.envs.rollout import derive_seed
from ghar.envs.system import System
from ghar.episode import Act, AuditRecord, Completion, Episode, read_reply
from ghar.errors import BadInput
from ghar.llm.decisions import Decisions, joined, next_request
from ghar.llm.engine import Request
from ghar.llm.model_facts import facts_of
from ghar.llm.partial_reply import PartialReply
from ghar.llm.policy import Policy
from ghar.llm.tokens import encode_after, encode_prompt, encode_restriction
from ghar.metrics.runfolder import RunFolder
from ghar.privacy import ask_gate
from ghar.rewards.compose import EpisodeReward
from ghar.trainers.base import reader_of, start_model
from ghar.trainers.evaluation.evaluate import evaluate_system, table_of
from ghar.trainers.evaluation.leakage import audited, by_rarity, keep_groups
from ghar.trainers.evaluation.report import conclude
from ghar.trainers.evaluation.weights import identity, make_actor
from ghar.trainers.rl.schedule import scaled, shares
from ghar.trainers.rl.settings import VALUE_CLIP, has_critic
from ghar.trainers.runs import checkpoint
from ghar.trainers.runs.code import commit
from ghar.trainers.runs.distributed import world_asked
from ghar.trainers.runs.models import SFT, save_model
from ghar.trainers.runs.resume import given_back
from ghar.trainers.runs.samples import data_print, hold_data
from ghar.trainers.sft.pairs import TokenExample, tokenised
from ghar.trainers.sft.warmup import sample_references
from ghar.trainers.teacher import teaching

# section.key -> the values that this file implements; trainer.method=mappo implements all. Of trainer.rl it also leaves
# out what is about a critic of its own (refused), speed (micro_tokens) and resuming (save_every).
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "trainer.rl.estimator": ("gae", "rloo"), "trainer.rl.credit": ("turn",),
    "trainer.rl.per_agent": (False,), "trainer.rl.aggregate": ("token",), "trainer.rl.as_printed": ((),),
    "trainer.rl.kl_estimator": ("k3",), "trainer.rl.kl_target": (None,), "trainer.rl.dynamic": (False,),
    "model.lora_rank": (None,), "engine.importance_cap": (None,), "engine.kind": ("hf",), "deepspeed.zero": ("none",),
    "system.composition": ("shared",), "system.normalise": ("range", "none"), "logger.wandb": ("disabled",),
    "trainer.rl.select": ("reward", "accuracy"),
}  # fmt: skip


def train(config: Config, folder: RunFolder) -> None:
    """All phases, in their order, into a new run folder, which trainers/recipe.py has opened."""
    start = time.monotonic()

    # 1. raw tables -> patients, visits, codes -> samples by split, each with its record as prompts show it
    records = Records(config)  # ghar/data/: readers, tasks, splits; ghar/kg/: the graph that codes are linked to
    with given_back(folder, resumed=False):
        system = systems.build(records)  # envs/NAME/system.py
        table = table_of(system, records)  # the system with what else stands in the final table
        config = playable(system, table, config)
        ask_gate(config, lambda: system.origin.credentialed)  # once more, of what has been read
        hold_data(folder, data_print(system, records))

    # 2. base model: a pretrained one, or the demo's; records are cut to what its context holds
    model, tokenizer = start_model(system, records, folder, folder.log)
    system = system.read_by(reader_of(tokenizer, model))

    # 3. SFT on a teacher's right episodes (Algorithm 1's starting policy); they are also the references of Eq. 15
    pairs, references = imitate(system, config, model, tokenizer)
    for step, loss in enumerate(fine_tune(model, pairs, config), start=1):
        folder.log({"phase": "sft", "step": step, "train/loss": loss})
    save_model(model, tokenizer, folder.path / "checkpoints" / SFT, system.origin.credentialed)

    # 4. multi-agent PPO from there (lines 15-18 of Algorithm 1)
    policy = Policies(model, system.agents, config.engine.temperature)
    for row in reinforce(system, config, policy, tokenizer, references):
        folder.log(row)
        print("  ".join(f"{key} {row[key]:.4g}" for key in row if key != "phase"), flush=True)
        if "eval/reward" in row:  # updates that were validated; the best of them is evaluated below
            save(system, config, policy, tokenizer, folder.path / "checkpoints", row)

    # 5. evaluation: the most probable replies on test samples, of base, SFT and RL; tables of these, and the page
    summary = evaluate_system(table, config, folder)
    keep_groups(records, folder)
    about = {"commit": commit(), "time": {"all phases": time.monotonic() - start}}
    rarity = by_rarity(records, folder, summary["policies"])
    conclude(folder, summary | audited(records) | rarity | about)


def check(config: Config) -> None:
    """BadInput for a setting that only the fast trainer implements."""
    if config.ray is not None or world_asked() > 1:
        raise BadInput("A plain training is one process: set trainer.method=mappo, or ray=none and no torchrun.")
    for key, values in SUPPORTED.items():
        value: Any = config
        for part in key.split("."):
            value = getattr(value, part, values[0])  # not every system has the last two
        if value not in values:
            raise BadInput(f"A plain training has no {key}={value}, only {values}: set trainer.method=mappo.")
    if has_critic(config):
        raise BadInput("A plain training has no critic of its own: set model.critic=head or trainer.method=mappo.")


def playable(system: System[Any], table: System[Any], config: Config) -> Config:
    """The configuration with the variants to evaluate: by default those that need no further SFT, which is printed.

    BadInput for one that is asked for and needs it, and for a system that writes its own training examples.
    """
    if not system.agents or system.training.examples is not None:
        raise BadInput(f"A plain training has no teacher of system={system.name}: set trainer.method=mappo.")
    names = config.eval.variants or table.listed
    more = [name for name in names if table.variant(name).who in system.training.stages]
    if more and config.eval.variants:
        raise BadInput(f"A plain training does not train {', '.join(more)}: name others in eval.variants.")
    if more:
        print(f"A plain training does not train {', '.join(more)}, so its evaluation leaves them out.", flush=True)
    return replace(config, eval=replace(config.eval, variants=tuple(name for name in names if name not in more)))


def save(
    system: System[Any], config: Config, policy: Policies, tokenizer: Any, folder: Path, row: dict[str, Any]
) -> None:
    """Write the weights after an update as the fast trainer writes its own, folder/step-N, with their score."""
    actor = make_actor(config, policy.model, system.agents, learns=False)
    for agent, head in policy.heads.items():
        actor.heads[agent].load_state_dict(head.state_dict())
    weights, state = actor.trainable_state(), {"running": None}
    made = checkpoint.Checkpoint(weights, {}, {}, state, row["step"], row[f"eval/{config.trainer.rl.select}"])
    made = replace(made, credentialed=system.origin.credentialed)
    fits = identity(config, actor, tokenizer, folder)
    checkpoint.save(folder, made, fits, checkpoint.KeepPolicy(config.keep_last, best=1))


# ------------------------------------------------------------------------------------------------ SFT


def imitate(
    system: System[Any], config: Config, model: Any, tokenizer: Any
) -> tuple[list[TokenExample], dict[str, Any]]:
    """The teacher's right episodes as (prompt ids, reply ids), and references by sample (trainers/sft/warmup.py)."""
    with teaching(config, system, (model, tokenizer)) as teacher:
        right = sample_references(system, config, teacher, teacher_cases(system, config))
    if not right.accepted:
        raise BadInput("trainer.warmup.teacher was right in no sample: raise trainer.warmup.samples or attempts.")
    episodes = [*right.accepted, *(episode for some in right.rehearsed for episode in some)]
    return [pair for _, pair in tokenised(tokenizer, episodes)], right.references


def fine_tune(model: Any, pairs: Sequence[TokenExample], config: Config) -> Iterator[float]:
    """Minimise -log p(reply | prompt), a mean over the reply tokens of a batch; yields each step's loss.

    Fast: trainers/sft/ (TRL; replies that share a prefix are read once).
    """
    warmup, rng = config.trainer.warmup, np.random.default_rng(config.seed)
    steps = max(1, warmup.epochs * len(pairs) // warmup.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=warmup.lr, weight_decay=0.0)
    order = np.concatenate([rng.permutation(len(pairs)) for _ in range(warmup.epochs + 1)])
    model.train()
    for step in range(steps):
        batch = [pairs[i] for i in order[step * warmup.batch : (step + 1) * warmup.batch]]
        tokens = sum(len(pair.completion_ids) for pair in batch)
        loss = 0.0
        for pair in batch:
            logits = next_token_logits(model, pair.prompt_ids, pair.completion_ids)
            target = torch.tensor(pair.completion_ids, device=logits.device)
            part = cross_entropy(logits, target, reduction="sum") / tokens
            part.backward()
            loss += float(part.detach())
        for group in optimizer.param_groups:
            group["lr"] = warmup.lr * (1 - step / steps)
        descend(model.parameters(), optimizer, most=1.0)
        yield loss
    model.eval()


def next_token_logits(model: Any, prompt: Sequence[int], reply: Sequence[int]) -> Tensor:
    """Logits [len(reply), vocabulary] at the states from which the reply's tokens are predicted."""
    ids = torch.tensor([[*prompt, *reply]], device=model.device)
    return model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()


def descend(parameters: Any, optimizer: torch.optim.Optimizer, most: float) -> float:
    """One step along the gradient, clipped to norm `most`; returns the norm before clipping."""
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, most))
    optimizer.step()
    optimizer.zero_grad()
    return norm


# ------------------------------------------------------------------------------------------------ rollout


def play(system: System[Any], case: Any, policy: Policy, seed: int, attempt: int = 0) -> Episode:
    """Play one episode: run the generator, answer what it asks for (fast: envs/rollout.py, thousands in flight)."""
    generator = system.episode(case, system.variants[system.main])
    turns: list[Any] = []
    trace: list[AuditRecord] = []
    answer: Any = None
    while True:
        try:
            asked = generator.send(answer)
        except StopIteration as end:
            return Episode(case.sample_id, attempt, end.value, tuple(turns), tuple(trace))
        effects = asked if isinstance(asked, tuple) else (asked,)
        answers, first = [], len(turns)
        for place, effect in enumerate(effects):
            if isinstance(effect, Act):  # an agent acts
                own = derive_seed(seed, case.sample_id, attempt, first, place)
                turn, reply = read_reply(effect, policy.answer([effect], [own])[0], len(turns))
                turns.append(turn)
                answers.append(reply)
            else:  # the corpus answers; its text is in later prompts and is never trained on
                answers.append(system.corpus.retrieve([effect])[0])
            trace.append(AuditRecord(effect, answers[-1]))
        answer = tuple(answers) if isinstance(asked, tuple) else answers[0]


@dataclass(frozen=True)
class Sampler:
    """The model as the policy of all agents, token by token (fast: ghar/llm/hf.py, in batches that share what they
    have read). temperature: 0 takes the most probable tokens."""

    model: Any
    tokenizer: Any
    temperature: float
    decisions: Decisions

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        """The reply to one act, in as many parts as `ghar.llm.decisions` asks for."""
        [act], [seed], parts = acts, seeds, list[Completion]()
        while (request := next_request(act, seed, self.temperature, parts, self.decisions)) is not None:
            parts.append(self.reply(request))
        return [joined(act, parts)]

    @torch.inference_mode()
    def reply(self, request: Request) -> Completion:
        """One token after the other, among those that the request's choices allow, until the model or they end it."""
        again, ends = request.before, facts_of(self.tokenizer).ends
        prompt = encode_prompt(self.tokenizer, request.prompt) if again is None else encode_after(
            self.tokenizer, again, request.head)  # fmt: skip
        choices, tree = encode_restriction(self.tokenizer, request)
        reply = PartialReply(request, tuple(prompt), choices, tree=tree)
        most = tree.longest if tree else max(map(len, choices), default=request.max_tokens)
        read, cache, finish = prompt, None, "stop" if choices else "length"
        for drawn in np.random.Generator(np.random.Philox(request.seed)).random(most):
            allowed = reply.allowed(reply.token_ids) if choices else ()
            if choices and not allowed:
                break
            ids = torch.tensor([read], device=self.model.device)
            out = self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            token, logp = draw(out.logits[0, -1], allowed, self.temperature, drawn)
            reply.token_ids.append(token)
            reply.logprobs.append(logp)
            read, cache = [token], out.past_key_values
            if not choices and token in ends:
                finish = "stop"
                break
        return reply.completion(self.tokenizer, finish, -1)


def draw(logits: Tensor, allowed: Sequence[int], temperature: float, drawn: float) -> tuple[int, float]:
    """A token and its log-prob: the distribution over the `allowed` ids (all, if none are named) inverted at `drawn`
    from [0, 1); at temperature 0 the most probable one (fast: ghar/llm/sampling.py)."""
    kept = logits[list(allowed)] if allowed else logits
    logp = (kept.double() / (temperature or 1.0)).log_softmax(-1)
    if not bool(logp.isfinite().all()):
        raise BadInput("The model's logits are no numbers: its training has diverged; lower trainer.rl.lr.")
    sums = logp.exp().cumsum(-1)
    place = int(torch.searchsorted(sums, drawn * sums[-1], right=True)) if temperature else int(logp.argmax())
    place = min(place, len(logp) - 1)
    return allowed[place] if allowed else place, float(logp[place])


# ------------------------------------------------------------------------------------------------ credit


@dataclass(frozen=True)
class Reply:
    """A sampled reply: `tokens` after `prompt`, at log-probs `behaviour`, among `choices` or free; `reward` arrives
    at its end. Every token of it shares one advantage and one return (credit=turn)."""

    sample_id: str
    episode: int
    agent: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    behaviour: tuple[float, ...]
    choices: tuple[tuple[int, ...], ...]
    reward: float = 0.0
    advantage: float = 0.0
    target: float = 0.0  # return, which the critic learns


def replies_of(episodes: Sequence[Episode], rewards: Sequence[EpisodeReward]) -> list[Reply]:
    """The policy's own replies in the order they were sampled (fast: trainers/rl/trajectory.py).

    A reward that arrives at a forced reply goes to the policy's own before it. Failed episodes are left out.
    """
    replies: list[Reply] = []
    for number, (episode, reward) in enumerate(zip(episodes, rewards, strict=True)):
        own: list[Reply] = []
        if episode.failure is not None:
            continue
        for turn, arriving in zip(episode.turns, reward.arriving(), strict=True):
            for part in turn.completion.parts if turn.trainable else ():
                ids, sampling = (part.prompt_ids, part.token_ids), (part.logprobs, part.choice_ids)
                own += [Reply(episode.sample_id, number, turn.agent, *ids, *sampling)] if part.token_ids else []
            own[-1:] = [replace(last, reward=last.reward + arriving) for last in own[-1:]]
        replies += own
    return replies


def gae(replies: Sequence[Reply], values: Sequence[float], gamma: float, lam: float) -> list[Reply]:
    """A_k = δ_k + γλ A_{k+1} with δ_k = r_k + γ V_{k+1} - V_k, and the return A_k + V_k (A_t of Eq. 16, GHAR).

    values: of the state before each reply. Fast: trainers/rl/credit.py.
    """
    done: list[Reply] = []
    for reply, value in zip(reversed(replies), reversed(values), strict=True):
        later = done[-1].advantage if done and done[-1].episode == reply.episode else 0.0
        value_after = done[-1].target - later if done and done[-1].episode == reply.episode else 0.0
        advantage = reply.reward + gamma * value_after - value + gamma * lam * later
        done.append(replace(reply, advantage=advantage, target=advantage + value))
    return whiten(done[::-1])


def whiten(replies: list[Reply]) -> list[Reply]:
    """Advantages of each agent with mean 0 and variance 1 over its tokens."""
    for agent in {reply.agent for reply in replies}:
        mine = [(reply.advantage, len(reply.tokens)) for reply in replies if reply.agent == agent]
        advantages, tokens = np.array(mine).T
        mean = np.average(advantages, weights=tokens)
        deviation = np.sqrt(np.average((advantages - mean) ** 2, weights=tokens) + 1e-8)
        replies = [
            replace(reply, advantage=(reply.advantage - mean) / deviation) if reply.agent == agent else reply
            for reply in replies
        ]
    return replies


def leave_one_out(replies: Sequence[Reply], rewards: Sequence[EpisodeReward]) -> list[Reply]:
    """The episode's reward less the mean of the other attempts at its sample (RLOO, trainers/rl/estimators.py)."""
    total = {reply.episode: sum(rewards[reply.episode].arriving()) for reply in replies}
    sample = {reply.episode: reply.sample_id for reply in replies}
    done = []
    for reply in replies:
        others = [total[e] for e in total if sample[e] == reply.sample_id and e != reply.episode]
        advantage = total[reply.episode] - sum(others) / len(others) if others else 0.0
        done.append(replace(reply, advantage=advantage, target=total[reply.episode]))
    return done


# ------------------------------------------------------------------------------------------------ loss and update


class Policies:
    """One model as all agents (they share parameters), a frozen copy as the reference, and a value head an agent.

    Fast: trainers/rl/actor_critic.py, where LoRA's reference is the base with its adapters switched off.
    """

    def __init__(self, model: Any, agents: Sequence[str], temperature: float) -> None:
        self.model, self.temperature = model.eval(), temperature
        self.reference = copy.deepcopy(model).requires_grad_(False)
        self.heads = {agent: torch.nn.Linear(model.config.hidden_size, 1, device=model.device) for agent in agents}
        for weight in self.head_weights():
            torch.nn.init.zeros_(weight)

    def head_weights(self) -> list[nn.Parameter]:
        return [weight for head in self.heads.values() for weight in head.parameters()]

    def log_probs(self, model: Any, reply: Reply) -> tuple[Tensor, Tensor]:
        """log π of each token, and the entropy there, under the distribution that it was sampled from."""
        logits = next_token_logits(model, reply.prompt, reply.tokens) / self.temperature
        for place in range(len(reply.tokens)) if reply.choices else ():
            same = [choice for choice in reply.choices if choice[:place] == reply.tokens[:place]]
            forbidden = torch.ones(logits.shape[1], dtype=torch.bool, device=logits.device)
            forbidden[sorted({choice[place] for choice in same if len(choice) > place})] = False
            logits[place] = logits[place].masked_fill(forbidden, -1e30)
        logp = logits.log_softmax(-1)
        entropy = -(logp.exp() * logp).sum(-1)
        return logp.gather(1, torch.tensor(reply.tokens, device=logp.device)[:, None])[:, 0], entropy

    def values(self, reply: Reply) -> Tensor:
        """V of the state before each token, by the head of the reply's agent; its loss does not reach the trunk."""
        ids = torch.tensor([[*reply.prompt, *reply.tokens]], device=self.model.device)
        with torch.no_grad():
            states = self.model(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states[-1][0]
        return self.heads[reply.agent](states[len(reply.prompt) - 1 : -1].float())[:, 0]


@dataclass(frozen=True)
class Before:
    """Of a reply, under the weights before the update: values and the reference's log-probs, a tensor a token."""

    values: Tensor
    reference: Tensor


def prepare(
    policy: Policies, replies: Sequence[Reply], rewards: Sequence[EpisodeReward], rl: RlConfig
) -> tuple[list[Reply], list[Before]]:
    """Credit every reply, and note what the losses are measured against (fast: trainers/rl/targets.py)."""
    with torch.no_grad():
        if rl.estimator == "gae" and not any(bool(weight.any()) for weight in policy.head_weights()):
            start_critic(policy, gae(replies, [0.0] * len(replies), rl.gamma, 1.0))
        before = [Before(policy.values(r), policy.log_probs(policy.reference, r)[0]) for r in replies]
    if rl.estimator == "rloo":
        return leave_one_out(replies, rewards), before
    return gae(replies, [float(own.values[0]) for own in before], rl.gamma, rl.lam), before


def start_critic(policy: Policies, replies: Sequence[Reply]) -> None:
    """A critic that has learned nothing begins at the mean return of the tokens, and not at zero."""
    tokens = sum(len(reply.tokens) for reply in replies)
    for head in policy.heads.values():
        head.bias.data.fill_(sum(reply.target * len(reply.tokens) for reply in replies) / tokens)


def loss_of(policy: Policies, reply: Reply, before: Before, rl: RlConfig, spread: float) -> dict[str, Tensor]:
    """The terms of Eq. 18 for one reply, sums over its tokens (fast: trainers/rl/losses.py).

    spread: variance of all returns, at least 1, the unit of the value loss.
    """
    logp, entropy = policy.log_probs(policy.model, reply)
    ratio = (logp - torch.tensor(reply.behaviour, device=logp.device)).exp()
    clipped = ratio.clamp(1 - rl.clip, 1 + rl.clip)
    terms = {"policy": -torch.min(ratio * reply.advantage, clipped * reply.advantage).sum()}  # Eq. 16
    if rl.estimator == "gae":  # Eq. 17
        value = policy.values(reply)
        near = before.values + (value - before.values).clamp(-VALUE_CLIP, VALUE_CLIP)
        terms["value"] = torch.max((value - reply.target) ** 2, (near - reply.target) ** 2).sum() / spread
    apart = before.reference - logp  # KL(π || π_ref) by the k3 estimator
    terms["kl"] = (apart.exp() - apart - 1).sum()
    terms["entropy"] = entropy.sum()
    weights = {"policy": 1.0, "value": rl.value_coef, "kl": rl.kl, "entropy": -rl.entropy}
    return terms | {"total": cast("Tensor", sum(weights[name] * term for name, term in terms.items()))}


def accumulate(
    policy: Policies, part: Sequence[tuple[Reply, Before]], rl: RlConfig, spread: float
) -> dict[str, float]:
    """Add up the gradient of a minibatch, a mean over its tokens. Returns the mean of each term."""
    tokens = sum(len(reply.tokens) for reply, _ in part)
    means: dict[str, float] = {}
    for reply, before in part:
        for name, term in (terms := loss_of(policy, reply, before, rl, spread)).items():
            means[f"loss/{name}"] = means.get(f"loss/{name}", 0.0) + float(term.detach()) / tokens
        (terms["total"] / tokens).backward()
    return means


def update(
    policy: Policies,
    optimizer: torch.optim.Optimizer,
    replies: Sequence[Reply],
    rewards: Sequence[EpisodeReward],
    rl: RlConfig,
    rng: np.random.Generator,
) -> dict[str, float]:
    """One update: `epochs` passes over the batch in `minibatches` steps each (fast: trainers/rl/mappo.py)."""
    credited, before = prepare(policy, replies, rewards, rl)
    returns = np.repeat([reply.target for reply in credited], [len(reply.tokens) for reply in credited])
    spread, batch = max(1.0, float(returns.var())), list(zip(credited, before, strict=True))
    steps = []
    for _ in range(rl.epochs):
        for part in np.array_split(rng.permutation(len(batch)), min(rl.minibatches, len(batch))):
            steps.append(accumulate(policy, [batch[i] for i in part], rl, spread))
            weights = [*policy.model.parameters(), *policy.head_weights()]
            steps[-1]["grad_norm"] = descend(weights, optimizer, rl.max_grad_norm)
    return {f"train/{name}": float(np.mean([step[name] for step in steps])) for name in steps[0]}


# ------------------------------------------------------------------------------------------------ the loop


def reinforce(
    system: System[Any], config: Config, policy: Policies, tokenizer: Any, references: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Play, reward, update; yields a row of metrics an update (fast: trainers/rl/loop.py)."""
    rl, rng = config.trainer.rl, np.random.default_rng(derive_seed(config.seed, "rl"))
    groups: list[dict[str, Any]] = [{"params": list(policy.model.parameters()), "lr": rl.lr},
                                    {"params": policy.head_weights(), "lr": rl.value_lr}]  # fmt: skip
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    shaping = system.training.shaping  # R_all of an episode (Eq. 14, GHAR; rewards/), with its sample's reference
    shaped = None if shaping is None else shaping.reward
    best, waited = -float("inf"), 0  # on validation so far; validations since
    patients = min(max(1, rl.episodes // rl.attempts), len(system.cases.train))
    upcoming: list[int] = []  # training samples, each once a pass
    for step in range(1, rl.updates + 1):
        if waited == rl.patience:
            return
        if len(upcoming) < patients:
            upcoming += [i for i in rng.permutation(len(system.cases.train)).tolist() if i not in upcoming]
        cases, upcoming = [system.cases.train[i] for i in upcoming[:patients]], upcoming[patients:]
        tries = [(case, attempt) for case in cases for attempt in range(rl.attempts)]
        agents = Sampler(policy.model, tokenizer, config.engine.temperature, config.env.decisions)
        seed, episodes, rewards = derive_seed(config.seed, "rollout", step), list[Episode](), list[EpisodeReward]()
        for case, attempt in tries:
            episodes.append(play(system, case, agents, seed, attempt))
            reference = references.get(case.sample_id)
            rewards.append(shaped(episodes[-1], case, reference, None) if shaped else system.reward(episodes[-1], case))
        share = shares(rl.schedule, step, rl.updates)  # of learning rates and loss weights
        for group, peak in zip(optimizer.param_groups, (rl.lr, rl.value_lr), strict=True):
            group["lr"] = peak * share["lr"]
        row = update(policy, optimizer, replies_of(episodes, rewards), rewards, scaled(rl, share), rng)
        row |= {"train/reward": float(np.mean([r.total for r in rewards])), "train/lr": rl.lr * share["lr"]}
        row |= {"train/kl/weight": rl.kl * share["kl"]}
        if step % rl.eval_every == 0 or step == rl.updates:
            valid = validation_cases(system, config.task, rl.eval_samples)
            row |= validate(system, config, policy, tokenizer, valid)
            score = row[f"eval/{rl.select}"]
            best, waited = (score, 0) if score > best else (best, waited + 1)
        yield {"phase": "rl", "step": step, **row}


def validate(
    system: System[Any], config: Config, policy: Policies, tokenizer: Any, cases: Sequence[Any]
) -> dict[str, float]:
    """Accuracy and mean reward of the most probable replies."""
    agents = Sampler(policy.model, tokenizer, 0.0, config.env.decisions)
    episodes = [play(system, case, agents, config.seed) for case in cases]
    right = [episode.prediction.label == case.label for episode, case in zip(episodes, cases, strict=True)]
    rewards = [system.reward(episode, case).total for episode, case in zip(episodes, cases, strict=True)]
    return {"eval/accuracy": sum(right) / len(right), "eval/reward": sum(rewards) / len(rewards)}
