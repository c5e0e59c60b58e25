"""Playing cases: policies by name, rollouts over a study, and episodes as token pairs and report rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from envs.case import Case
from envs.ghar.episode import GharEpisodes
from envs.rollout import Corpus, Job, rollout
from ghar.config import Config, Retriever
from ghar.episode import Act, Episode, Evidence, Record, Reply
from ghar.llm.policy import Policy
from ghar.llm.tokens import Tokenizer, encode_choices, encode_many
from ghar.progress import progress
from rewards.compose import EpisodeReward
from trainers.sft.run import Pair
from trainers.study import Study


@dataclass(frozen=True)
class Stage:
    """The parts of a study that playing needs, small enough to send to another process."""

    config: Config
    episodes: GharEpisodes
    retriever: Corpus


def play(
    study: Study | Stage,
    cases: Sequence[Case],
    policy: Policy,
    *,
    seed: int,
    title: str,
    attempt: int = 0,
    corpus: Corpus | None = None,
) -> list[Episode]:
    """One episode per case; both agents are answered by `policy` (they share parameters, section IV of the paper)."""
    jobs = [Job(case.sample_id, attempt, partial(study.episodes.episode, case)) for case in cases]
    engine, retriever = study.config.engine, study.config.retriever
    with progress(len(jobs), title) as advance:
        return rollout(
            jobs,
            {"top": policy, "low": policy},
            corpus or study.retriever,
            seed=seed,
            in_flight=study.config.env.in_flight,
            on_done=advance,
            # in this process look-ups are short, and a resumed run shall repeat the bits of one that was left alone
            steady=engine.kind == "hf" and retriever.service is None,
            lookups=lookups(retriever),
        )


def lookups(retriever: Retriever) -> int:
    """Calls of the retriever worth having under way at once: one to each process of a service, one in this process."""
    return 1 if retriever.service is None else retriever.workers


def tokenised(tokenizer: Tokenizer, episodes: Iterable[Episode]) -> list[tuple[str, Pair]]:
    """What was said after what, as (role, token ids), for supervised training on the replies."""
    acts = [r.effect for e in episodes for r in e.trace if isinstance(r.effect, Act)]
    said = [r.result.text.strip() for e in episodes for r in e.trace if isinstance(r.effect, Act)]
    choices = {act.choices: encode_choices(tokenizer, act.choices) for act in acts if act.choices}
    prompts, replies = encode_many(tokenizer, [act.prompt for act in acts], said)
    return [
        (act.role, Pair(prompt, list(choices[act.choices][act.choices.index(word)]) if act.choices else reply))
        for act, word, prompt, reply in zip(acts, said, prompts, replies, strict=True)
    ]


def needs_retrieval(study: Study, cases: Sequence[Case]) -> dict[str, bool | None]:
    """Sample -> whether its newest visit needs a look-up; None for real patients, where nobody knows."""
    if study.world is None:
        return {case.sample_id: None for case in cases}
    truth = dict(study.world.truth.select("visit_id", pl.col("needs_retrieval")).iter_rows())
    return {case.sample_id: bool(truth[case.visit_id]) for case in cases}


def episode_row(
    case: Case,
    episode: Episode,
    reward: EpisodeReward,
    needs: bool | None,
    *,
    policy: str,
    split: str,
    label_probabilities: Sequence[float] | None = None,
) -> dict[str, Any]:
    """One row of episodes/<policy>.jsonl (schema: ghar.metrics.runfolder)."""
    labels, prediction = case.task.labels, episode.prediction.label
    return {
        "policy": policy,
        "split": split,
        "sample_id": case.sample_id,
        "patient": case.text,
        "label": labels[case.label],
        "prediction": None if prediction is None else labels[prediction],
        "label_probabilities": None if label_probabilities is None else list(label_probabilities),
        "correct": prediction == case.label,
        "needs_retrieval": needs,
        "retrieved": any(step.retrieved for step in episode.prediction.history),
        "iterations": len(episode.prediction.history),
        "rewards": dict(reward.terms),
        "reward": reward.total,
        **effort_row(episode),
    }


def effort_row(episode: Episode) -> dict[str, Any]:
    """The part of a row that every system's episodes share: tokens, seconds, failure and the turns."""
    return {
        "prompt_tokens": sum(turn.completion.tokens[0] for turn in episode.turns),
        "completion_tokens": sum(turn.completion.tokens[1] for turn in episode.turns),
        "seconds": episode.seconds,
        "failure": episode.failure,
        "turns": _turn_rows(episode),
    }


def format_errors(episode: Episode) -> list[str]:
    """Names of what was wrong with its unreadable replies."""
    replies = [record.result for record in episode.trace if isinstance(record.result, Reply)]
    return [reply.error for reply in replies if reply.error is not None]


def _turn_rows(episode: Episode) -> list[dict[str, Any]]:
    """The turns of an episode as its row holds them."""
    acts: list[Record] = [record for record in episode.trace if isinstance(record.effect, Act)]
    # a failed episode has answered acts whose effects were never completed: they have no record
    return [
        _turn_row(record.effect, record.result, turn.format_ok)
        for record, turn in zip(acts, episode.turns, strict=False)
    ]


def _turn_row(act: Any, reply: Any, format_ok: bool) -> dict[str, Any]:
    evidence: Evidence | None = act.facts.get("evidence")
    return {
        "agent": act.agent,
        "role": act.role,
        "step": act.step,
        "prompt": act.prompt,
        "reply": reply.text,
        "format_ok": format_ok,
        "evidence": evidence.text if evidence is not None else None,
    }
