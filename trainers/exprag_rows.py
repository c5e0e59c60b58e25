"""What is kept of an EXPRAG episode: its row in episodes/*.jsonl."""

from __future__ import annotations

from typing import Any

from envs.exprag.rule import listed_share
from ghar.data.tasks.dischargeqa import LETTERS, Question, letters
from ghar.episode import Act, Episode, Evidence
from ghar.metrics.dischargeqa import set_scores
from ghar.retrieval.report_corpus import RankReports
from trainers.play import effort_row, format_errors


def question_row(question: Question, episode: Episode, policy: str) -> dict[str, Any]:
    """One row of episodes/<policy>.jsonl (schema: ghar.metrics.runfolder), with the scores of the set of options, the
    format errors by name, and `experience`: what was ranked, found and chosen (ghar.metrics.experience)."""
    chosen = episode.prediction.label
    return {
        "policy": policy,
        "split": "test",
        "sample_id": question.sample_id,
        "patient": f"{question.background}\n\n{question.text}\n{question.menu}",
        "label": letters(question.answer),
        "prediction": None if chosen is None else letters(chosen),
        "label_probabilities": None,
        "correct": chosen == question.answer,
        "needs_retrieval": None,
        "retrieved": any(step.retrieved for step in episode.prediction.history),
        "iterations": len(episode.prediction.history),
        "rewards": {},
        "reward": None,
        "scores": set_scores(question.answer, chosen),
        "errors": format_errors(episode),
        "experience": _experience(question, episode, chosen),
        **effort_row(episode),
    }


def _experience(question: Question, episode: Episode, chosen: int | None) -> dict[str, Any]:
    ranked: list[dict[str, Any]] = []
    found, queries, last = [], [], Evidence()
    for record in episode.trace:
        if isinstance(record.effect, Act) or not isinstance(record.result, Evidence):
            continue
        if isinstance(record.effect, RankReports):
            ranked = [{"stay": p.ident, "score": p.score, "text": p.text} for p in record.result.passages]
        else:
            last = record.result
            queries.append(record.effect.query)
            found = [{"stay": p.partition, "score": p.score, "text": p.text} for p in last.passages]
    options = [
        {
            "letter": letter,
            "text": option,
            "right": bool(question.answer >> i & 1),
            "chosen": bool((chosen or 0) >> i & 1),
            "listed": listed_share(option, question, last),
        }
        for i, (letter, option) in enumerate(zip(LETTERS, question.options, strict=False))
    ]
    return {"ranked": ranked, "found": found, "queries": queries, "options": options}
