"""What EXPRAG adds to a row of episodes/*.jsonl."""

from __future__ import annotations

from typing import Any

from ghar.envs.case import Case
from ghar.envs.exprag.dischargeqa import DischargeQuestion
from ghar.envs.exprag.options import LETTERS
from ghar.envs.exprag.report_corpus import RankReports
from ghar.envs.exprag.rule import listed_share, outcome_shares
from ghar.envs.system import Variant
from ghar.episode import Act, Episode, Evidence
from ghar.metrics.scores import set_scores


def question_row(episode: Episode, case: Case[DischargeQuestion], variant: Variant) -> dict[str, Any]:
    """The scores of the set of options, and `experience`: what was ranked, found and chosen.

    An option's `listed` is the share of the reports that name it which list it where the question asks.
    """
    question, chosen, looked = case.reads, episode.prediction.label, _looked_up(episode)
    options = [
        {
            "letter": letter,
            "text": option,
            "right": bool(question.answer >> i & 1),
            "chosen": bool((chosen or 0) >> i & 1),
            "listed": listed_share(option, question, looked.last),
        }
        for i, (letter, option) in enumerate(zip(LETTERS, question.options, strict=False))
    ]
    return {"scores": set_scores(question.answer, chosen), "experience": {**looked.as_dict(), "options": options}}


def label_row(episode: Episode, case: Case[None], variant: Variant) -> dict[str, Any]:
    """`experience`: what was ranked, with each stay's own outcome, found and predicted. An option is a label; its
    `listed` is the share of the similar stays' weight that has it."""
    labels, looked = case.task.labels, _looked_up(episode)
    shares = outcome_shares(looked.ranked, len(labels))
    options = [
        {
            "letter": LETTERS[i],
            "text": label,
            "right": i == case.label,
            "chosen": i == episode.prediction.label,
            "listed": shares[i] if looked.ranked.passages else None,
        }
        for i, label in enumerate(labels)
    ]
    experience = looked.as_dict()
    for stay, passage in zip(experience["ranked"], looked.ranked.passages, strict=True):
        stay["outcome"] = labels[passage.partition]
    return {"experience": {**experience, "options": options}}


def text_row(episode: Episode, case: Case[Any], variant: Variant) -> dict[str, Any]:
    """`experience` of a text that was written: nothing was chosen."""
    return {"experience": {**_looked_up(episode).as_dict(), "options": []}}


class _LookedUp:
    """What an episode looked up: the ranked stays, the queries, and the pieces that its answer rests on; and what of
    them the last prompt said."""

    def __init__(self) -> None:
        self.ranked, self.last = Evidence(), Evidence()
        self.queries: list[str] = []
        self.prompt_text = ""

    def as_dict(self) -> dict[str, Any]:
        ranked = [{"stay": p.ident, "score": p.score, "text": p.text} for p in self.ranked.passages]
        passages = [{"stay": p.partition, "score": p.score, "text": p.text} for p in self.last.passages]
        return {"ranked": ranked, "found": passages, "queries": self.queries, "said": self.prompt_text}


def _looked_up(episode: Episode) -> _LookedUp:
    looked = _LookedUp()
    for record in episode.trace:
        if isinstance(record.effect, Act):
            looked.prompt_text = record.effect.facts["experience"]
        if isinstance(record.effect, Act) or not isinstance(record.result, Evidence):
            continue
        if isinstance(record.effect, RankReports):
            looked.ranked = record.result
        else:
            looked.last = record.result
            looked.queries.append(record.effect.query)
    return looked
