"""What is kept of a KARE episode: its row in episodes/*.jsonl, with why each community was chosen, and the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from envs.kare.episode import KareCase, KarePrediction
from ghar.config import Config
from ghar.episode import Episode, Passage
from ghar.metrics.policy import policy_summary
from ghar.retrieval.community_corpus import ChosenCommunity
from ghar.retrieval.community_index import CommunityIndex
from rewards.outcome import score_outcome
from trainers.play import effort_row, format_errors

NAMED = 12  # concepts of a community that are listed


def kare_row(case: KareCase, episode: Episode, method: str, eta: float, index: CommunityIndex) -> dict[str, Any]:
    """One row of episodes/<method>.jsonl (schema: ghar.metrics.runfolder), with the format errors by name, the
    reasoning chain and `found`: what was looked up (ghar.metrics.communities)."""
    labels, predicted = case.task.labels, episode.prediction.label
    reward = score_outcome(episode, case.label, eta)
    rests_on = episode.prediction if isinstance(episode.prediction, KarePrediction) else KarePrediction(None)
    found = [_found(passage, index, i < rests_on.shown) for i, passage in enumerate(rests_on.evidence.passages)]
    return {
        "policy": method,
        "split": "test",
        "sample_id": case.sample_id,
        "patient": case.text,
        "similar": case.similar,
        "dropped": case.dropped,
        "label": labels[case.label],
        "prediction": None if predicted is None else labels[predicted],
        "label_probabilities": None,
        "correct": predicted == case.label,
        "needs_retrieval": None,
        "retrieved": bool(found),
        "iterations": len(episode.prediction.history),
        "rewards": dict(reward.terms),
        "reward": reward.total,
        "errors": format_errors(episode),
        "chain": rests_on.chain,
        "found": found,
        **effort_row(episode),
    }


def _found(passage: Passage, index: CommunityIndex, shown: bool) -> dict[str, Any]:
    """A passage, and whether the prompt had room for it; of a community also its concepts and the factors of Eq. 3."""
    told: dict[str, Any] = {
        "kind": passage.kind, "ident": passage.ident, "score": passage.score, "text": passage.text, "shown": shown
    }  # fmt: skip
    if isinstance(passage, ChosenCommunity):
        names = index.names(passage.ident)
        told |= {"names": names[:NAMED], "size": len(names), "factors": asdict(passage.factors)}
    return told


def method_summary(rows: Sequence[Mapping[str, Any]], labels: Sequence[str], config: Config) -> dict[str, Any]:
    """`policy_summary`, "errors" {format error: count}, how many passages were "found" and had no room ("cut"), and of
    how many patients the record had none ("shortened")."""
    numbers = policy_summary(rows, labels, seed=config.seed, resamples=config.eval.bootstrap)
    passages = [passage["shown"] for row in rows for passage in row["found"]]
    return numbers | {
        "errors": dict(Counter(error for row in rows for error in row["errors"]).most_common()),
        "found": len(passages),
        "cut": passages.count(False),
        "shortened": sum(row["dropped"] > 0 for row in rows),
    }
