"""R_all of an episode (Eq. 14, GHAR): which term arrives at which turn, and which agent it concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ghar.episode import Act, Episode, Reply
from ghar.rewards import terms
from ghar.rewards.normalise import EVERY_STEP, RunningNormaliser, bounds, to_range

TERMS = ("reason", "path", "relevance", "grounding", "repeats", "price", "orm", "rank")
# Who is answerable for a term when the agents are optimised apart (ablation NS): Eq. 12 is Agent-Low's, the rest is
# Agent-Top's, whose decisions the outcome follows from.
OWNER = {**dict.fromkeys(TERMS, "top"), "relevance": "low"}
WRITING = ("rewrite", "followup")  # roles whose replies are sub-queries


@dataclass(frozen=True)
class RewardSpec:
    """How rewards are put together. The paper sets eta=5 and length=3 and leaves the rest open.

    eta: weight η of orm (Eq. 14); alpha: margin α of rank (Eq. 15); length: L of Eq. 8.
    normalise: see rewards/normalise.py; rank: the form of Eq. 15, see rewards/terms.py.
    composition: "shared", every agent is rewarded with all terms; "separate" (ablation NS), each with its own.
    max_iterations, max_paths: the episode's limits, which bound reason and path.
    grounding, repeats: weights of these terms, which normalise leaves alone. ungrounded: of a reply that is
        sub-queries, how many name what the patient does not have, and how many it is.
    classes: weight of each label in orm, () for 1.
    prices: of asking each partition once, in units of the reward, () for nothing.
    """

    eta: float
    alpha: float
    length: int
    normalise: Literal["range", "running", "none"]
    rank: Literal["sound", "literal"]
    composition: Literal["shared", "separate"]
    max_iterations: int
    max_paths: int
    grounding: float = 0.0
    repeats: float = 0.0
    ungrounded: Callable[[Act, Reply], tuple[int, int]] | None = None
    classes: tuple[float, ...] = ()
    prices: tuple[float, ...] = ()


@dataclass(frozen=True)
class Reference:
    """Reasoning histories of one sample from the warm-up, as joined text: a correct one and its opposite (Eq. 15)."""

    positive: str
    negative: str


@dataclass(frozen=True)
class EpisodeReward:
    """The reward of one episode.

    terms: every term's episode total, normalised, before weights. total: R_all over the episode.
    per_turn: aligned with `episode.turns`: weighted term values that arrive at the end of that turn; they add up to
        `total`.
    composition: as in RewardSpec.
    """

    terms: Mapping[str, float]
    total: float
    per_turn: tuple[Mapping[str, float], ...]
    composition: str

    def arriving(self, agent: str | None = None) -> tuple[float, ...]:
        """Reward at the end of each turn as `agent` is concerned; None: all of it, whoever owns it."""
        owned = agent is not None and self.composition == "separate"
        return tuple(
            sum(v for term, v in turn.items() if not owned or OWNER.get(term, "top") == agent) for turn in self.per_turn
        )


def costs(episode: Episode, spec: RewardSpec) -> Iterator[tuple[int, str, float]]:
    """(turn index, term, raw value) of every cost: path at its step's first "metapaths" turn, relevance at its
    "summarise" turn, reason at the closing turn. A turn that did not happen (no retrieval, ablations NM and NL) costs
    nothing, nor does what a cut episode had not finished."""
    history, naming = episode.prediction.history, _naming(episode)
    for index, turn in enumerate(episode.turns):
        if episode.cut and turn.step >= len(history):
            continue
        if index in naming:
            yield index, "path", terms.path(history[turn.step])
        elif turn.role == "summarise":
            step = history[turn.step]
            yield index, "relevance", terms.relevance(step.answer, step.query, step.evidence)
    if not episode.cut:
        yield closing_turn(episode, spec), "reason", terms.reason(history, spec.length)


def charges(episode: Episode, spec: RewardSpec) -> Iterator[tuple[int, str, float]]:
    """(turn index, term, value) of what is charged besides the paper's costs: grounding at the turn that wrote the
    sub-queries, repeats and price at its step's first "metapaths" turn. The first two lie in [-1, 0] as they are."""
    history, asked = episode.prediction.history, (r for r in episode.trace if isinstance(r.effect, Act))
    # a failed episode has answered acts whose effects were never completed: they have no record
    for index, (turn, record) in enumerate(zip(episode.turns, asked, strict=False)):
        assert isinstance(record.effect, Act) and isinstance(record.result, Reply)
        if turn.role in WRITING and spec.ungrounded is not None:
            yield index, "grounding", terms.grounding(*spec.ungrounded(record.effect, record.result))
    for index in _naming(episode):
        turn = episode.turns[index]
        if turn.step < len(history):
            yield index, "repeats", terms.repeats(history[turn.step])
            if spec.prices:
                yield index, "price", -sum(spec.prices[partition] for partition in history[turn.step].paths)


def _naming(episode: Episode) -> list[int]:
    """Of each step that retrieves the first turn that names partitions: a step may name them one by one."""
    first: dict[int, int] = {}
    for index, turn in enumerate(episode.turns):
        if turn.role == "metapaths":
            first.setdefault(turn.step, index)
    return list(first.values())


def closing_turn(episode: Episode, spec: RewardSpec) -> int:
    """Where reason, orm and rank arrive: the last turn, or Agent-Top's last one in the separate composition."""
    for index in range(len(episode.turns) - 1, -1, -1):
        if spec.composition == "shared" or episode.turns[index].agent == "top":
            return index
    raise ValueError(f"episode {episode.sample_id!r} has no turn that its outcome could be attributed to")


def score_episode(
    episode: Episode,
    label: int,
    spec: RewardSpec,
    reference: Reference | None = None,
    normaliser: RunningNormaliser | None = None,
) -> EpisodeReward:
    """R_all = R_cost + η R_orm + R_rank (Eqs. 14, 15, GHAR) and `charges`, given out to the turns that earned it.

    reference: None where there is none (validation, or a sample the teacher never got right): rank is 0.
    normaliser: needed by normalise="running" and only read.
    A failed episode is worth 0 in every term and is left out of training (trainers/rl/trajectory.py): what broke was
    the engine or the retriever, not the policy. A cut one (`Episode.cut`) has earned its costs so far but no outcome:
    the critic's value of where it was cut stands for the rest, and would count on top of it.
    """
    totals: dict[str, float] = dict.fromkeys(TERMS, 0.0)
    if episode.failure is not None:
        return EpisodeReward(totals, 0.0, tuple({} for _ in episode.turns), spec.composition)
    per_turn: list[dict[str, float]] = [{} for _ in episode.turns]
    for index, term, raw in costs(episode, spec):
        value = _normalised(term, raw, spec, normaliser)
        totals[term] += value
        per_turn[index][term] = value
    weights = {"grounding": spec.grounding, "repeats": spec.repeats, "price": 1.0}
    for index, term, value in charges(episode, spec):
        totals[term] += value
        per_turn[index][term] = weights[term] * value
    if not episode.cut:
        closing = per_turn[closing_turn(episode, spec)]
        totals |= _outcome(episode, label, spec, reference)
        closing["orm"], closing["rank"] = spec.eta * totals["orm"], totals["rank"]
    total = sum(sum(turn.values()) for turn in per_turn)
    return EpisodeReward(totals, total, tuple(per_turn), spec.composition)


def _outcome(episode: Episode, label: int, spec: RewardSpec, reference: Reference | None) -> dict[str, float]:
    """The terms that only an episode that ended has, before weights."""
    orm = terms.orm(episode, label, spec.classes[label] if spec.classes else 1.0)
    if reference is None:
        return {"orm": orm, "rank": 0.0}
    history = episode.prediction.history
    rank = terms.rank(history, reference.positive, reference.negative, spec.alpha, spec.rank)
    return {"orm": orm, "rank": rank}


def _normalised(term: str, raw: float, spec: RewardSpec, running: RunningNormaliser | None) -> float:
    if spec.normalise == "none":
        return raw
    if spec.normalise == "range":
        value = to_range(raw, *bounds(spec.length, spec.max_iterations, spec.max_paths)[term])
        return value / spec.max_iterations if term in EVERY_STEP else value
    if running is None:
        raise ValueError('normalise="running" needs a `RunningNormaliser`')
    return running(term, raw)
