"""Rows of episodes/<variant>.jsonl, one schema for every system (see ghar.metrics.runfolder), and their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ghar.envs.system import System, Variant, mark_of
from ghar.episode import Act, Episode, Evidence, Reply, Retrieve, Turn
from ghar.metrics.policy import policy_summary
from ghar.metrics.style import ACCURACY, STAYS
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.normalise import RunningNormaliser

Row = dict[str, Any]
Ranker = Callable[[Sequence[Episode]], Sequence[Sequence[float] | None]]


def rows_of(
    system: System[Any],
    variant: Variant,
    cases: Sequence[Any],
    episodes: Sequence[Episode],
    rewards: Sequence[EpisodeReward],
    split: str,
    ranker: Ranker | None = None,
) -> list[Row]:
    """Rows of episodes that have been played. ranker: gives the label probabilities of those that have none."""
    ranked = ranker(episodes) if ranker is not None else [None] * len(episodes)
    return [
        episode_row(system, variant, case, episode, reward, split, shares)
        for case, episode, reward, shares in zip(cases, episodes, rewards, ranked, strict=True)
    ]


def episode_row(
    system: System[Any],
    variant: Variant,
    case: Any,
    episode: Episode,
    reward: EpisodeReward,
    split: str,
    shares: Sequence[float] | None = None,
) -> Row:
    """One row, with what the system adds to it. shares: label probabilities."""
    prediction, history = episode.prediction, episode.prediction.history
    shares = prediction.probabilities if prediction.probabilities is not None else shares
    weighted: Counter[str] = Counter()
    for turn in reward.per_turn:
        weighted.update(turn)
    return {
        "policy": variant.name,
        "split": split,
        "sample_id": case.sample_id,
        "subject_id": case.subject_id,
        "patient": case.text,
        "credentialed": system.origin.credentialed or mark_of(case),
        "label": system.in_words(case, case.label),
        "prediction": system.in_words(case, prediction.label),
        "label_probabilities": None if shares is None else list(shares),
        "correct": prediction.label == case.label,
        "needs_retrieval": system.truth.needs(case),
        "retrieved": any(step.retrieved for step in history),
        "iterations": len(history),
        "rewards": dict(reward.terms),
        "weighted": dict(weighted),
        "reward": reward.total,
        "errors": format_errors(episode),
        "prompt_tokens": sum(turn.completion.tokens[0] for turn in episode.turns),
        "completion_tokens": sum(turn.completion.tokens[1] for turn in episode.turns),
        "neutralised": sum(turn.completion.neutralised for turn in episode.turns),
        "retrievals": sum(isinstance(record.result, Evidence) for record in episode.trace),
        "seconds": episode.seconds,
        "failure": episode.failure,
        "turns": turn_rows(episode),
        "lookups": lookup_rows(system, episode),
        **system.report.row(episode, case, variant),
    }


def format_errors(episode: Episode) -> list[str]:
    """The names of the format errors of an episode, in order."""
    replies = [record.result for record in episode.trace if isinstance(record.result, Reply)]
    return [reply.error for reply in replies if reply.error is not None]


def lookup_rows(system: System[Any], episode: Episode) -> list[Row]:
    """What was asked of the corpus and what came back, best first: text, score, meta-path, and whether any prompt
    showed it."""
    acts = [record.effect for record in episode.trace if isinstance(record.effect, Act)]
    names = [getattr(part, "text", str(part)) for part in system.partitions]
    rows: list[Row] = []
    for record in episode.trace:
        if not isinstance(record.effect, Retrieve) or not isinstance(record.result, Evidence):
            continue
        passages = [
            {
                "text": passage.text, "kind": passage.kind, "score": passage.score,
                "shown": any(system.report.shows(act, passage) for act in acts),
                "path": names[passage.partition] if 0 <= passage.partition < len(names) else None,
            }
            for passage in record.result.passages
        ]  # fmt: skip
        rows.append({"query": record.effect.query, "found": passages})
    return rows


def turn_rows(episode: Episode) -> list[Row]:
    """Who acted, on what, with which reply; `evidence` is what the prompt showed of what was found."""
    acts: list[Any] = [record for record in episode.trace if isinstance(record.effect, Act)]
    # a failed episode has answered acts whose effects were never completed: they have no record
    return [
        _turn_row(record.effect, record.result, turn)
        for record, turn in zip(acts, episode.turns, strict=False)
    ]


def _turn_row(act: Act, reply: Reply, turn: Turn) -> Row:
    evidence: Evidence | None = act.facts.get("evidence")
    return {
        "agent": act.agent,
        "role": act.role,
        "step": act.step,
        "prompt": act.prompt,
        "reply": reply.text,
        "format_ok": turn.format_ok,
        **({"completed": True} if turn.completed else {}),
        "evidence": evidence.text if evidence is not None else None,
    }


def running_of(system: System[Any]) -> RunningNormaliser | None:
    """The normaliser that the system's reward asks for."""
    return RunningNormaliser() if system.training.shaping is not None and system.training.shaping.running else None


def reward_of(system: System[Any], episode: Any, case: Any, running: RunningNormaliser | None) -> Any:
    """The reward of an episode outside training: without references, costs as `running` has them."""
    if system.training.shaping is None or running is None:
        return system.reward(episode, case)
    return system.training.shaping.reward(episode, case, None, running)


def description(system: System[Any]) -> dict[str, Any]:
    """The parts of summary.json that say what was asked: the task, its samples where they are no stays, and the main
    metric where it is not accuracy."""
    task, metric = system.task, system.report.metric
    samples = {} if task.samples == STAYS else {"samples": task.samples}
    return {
        "task": {"name": task.name, "question": task.question, "labels": list(task.labels), **samples},
        **({} if metric == ACCURACY else {"metric": metric}),
    }


def summarise(system: System[Any], rows: Sequence[Row], seed: int, resamples: int) -> dict[str, Any]:
    """The numbers of one variant."""
    if system.report.numbers is not None:
        return system.report.numbers(rows, {"seed": seed, "resamples": resamples})
    return policy_summary(rows, system.task.labels, seed=seed, resamples=resamples)
