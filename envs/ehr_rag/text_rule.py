"""A fixed rule that answers EHR-RAG's acts about texts by shared words: it reads what prompts show, and no truth.

Of a question it searches for one option after the other, argues for the option that most words of the case name and
for the next one, and answers with the first. Of a text to be summarised it searches for the parts that summaries have,
notes the longest sentences that were found, and copies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ghar.data.tasks.cards import TaskCard
from ghar.data.tasks.summary_files import SummarisedText
from ghar.envs.ehr_rag.event_replies import MOST_WORDS, parse_search
from ghar.episode import Act, Completion
from ghar.kg.names import FILLERS, plain

PARTS = (
    "reason for the visit and complaints", "history and known diseases", "medications and doses",
    "examination and measurements", "results of laboratory and imaging", "assessment and diagnosis",
    "plan, treatment and follow-up",
)  # fmt: skip
NOTED = 5  # sentences of an argument
WEAK = "The evidence for this side is weak."


class TextRule:
    """The policy. A path searches in the order of the options, the other one in the opposite order."""

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        """One reply an act; the seeds are not used."""
        return [Completion(getattr(self, f"_{act.role}")(act)) for act in acts]

    def _refine(self, act: Act) -> str:
        wanted = [_query(text) for text in (PARTS if _summarises(act) else _card(act).meanings)]
        order = wanted[::-1] if act.facts["path"] == "oppose" else wanted
        asked = act.facts["asked"]
        return next((query for query in order if not parse_search(query, asked).error), "ENOUGH")

    def _support(self, act: Act) -> str:
        return self._argue(act, 0)

    def _oppose(self, act: Act) -> str:
        return self._argue(act, 1)

    def _argue(self, act: Act, rank: int) -> str:
        """Sentences for the option that is number `rank` by shared words, or the longest that were found of a text."""
        rows = _rows(act)
        if _summarises(act):
            return "\n".join(_longest(rows, NOTED)) or WEAK
        ranked = sorted(range(len(_card(act).meanings)), key=lambda i: -_scores(act)[i])
        option = _words(_card(act).meanings[ranked[min(rank, len(ranked) - 1)]])
        return "\n".join(row for row in rows if option & _words(row)) or WEAK

    def _weigh(self, act: Act) -> str:
        if _summarises(act):
            noted = {line for argument in act.facts["arguments"] for line in argument.split("\n")}
            rows = _rows(act)
            copied = [row for row in rows if row in noted] or _longest(rows, 2 * NOTED)
            return "\n".join(row.partition("] ")[2] for row in copied)
        scores = _scores(act)
        chosen = max(range(len(scores)), key=lambda i: (scores[i], -i))
        return f"Reasoning: the case shares {scores[chosen]:.2f} of its words.\nAnswer: {_card(act).answers[chosen]}"

    _predict = _weigh

    def _react(self, act: Act) -> str:
        query = self._refine(act)
        return self._weigh(act) if query == "ENOUGH" else f"Thought: more may be found.\nSearch: {query}"


def _summarises(act: Act) -> bool:
    return isinstance(act.facts["case"].reads, SummarisedText)


def _card(act: Act) -> TaskCard:
    return act.facts["case"].reads.card


def _rows(act: Act) -> list[str]:
    """The sentences that a prompt shows, in their order."""
    return [row for _, row in act.facts["shown"].rows.values()]


def _longest(rows: list[str], most: int) -> list[str]:
    """So many of the longest rows, in their order."""
    chosen = sorted(range(len(rows)), key=lambda i: (-len(rows[i].split()), i))[:most]
    return [rows[i] for i in sorted(chosen)]


def _scores(act: Act) -> list[float]:
    """Of each option, the share of its words that stand in the sentences that are shown."""
    case_words = _words(" ".join(_rows(act)))
    options = [_words(meaning) for meaning in _card(act).meanings]
    return [len(option & case_words) / max(len(option), 1) for option in options]


def _query(text: str) -> str:
    return " ".join(text.split()[:MOST_WORDS])


def _words(text: Any) -> frozenset[str]:
    return frozenset(plain(text).split()) - FILLERS
