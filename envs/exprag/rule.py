"""Fixed rules in place of a language model: choose what the similar patients' reports list, or predict what most of
them had. They see no truth of the case they are asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ghar.data.sections import HEAD, sentences, split_sections
from ghar.envs.exprag.baselines import in_words
from ghar.envs.exprag.discharge_items import essence
from ghar.envs.exprag.dischargeqa import ASKED, DischargeQuestion
from ghar.envs.exprag.episode import own_pieces
from ghar.episode import Act, Evidence
from ghar.retrieval.reports import DECIMALS

HALF = 0.5  # share of the reports that must be exceeded


def majority_of_experiences(act: Act) -> str:
    """Choose the options that most reports list where the question asks (say, under "discharge diagnosis"), of the
    reports that name them and whose list was found; where none is so, all that are listed as often as any. Of a
    question with one right option, the one that is listed most. Where a reply may quote, it quotes the piece of that
    option which most reports list, the first of equals."""

    question, evidence = act.facts["question"], act.facts["evidence"]
    choice = chosen(question, evidence)
    if not act.choices:
        return in_words(choice)
    pieces = [piece for piece in own_pieces(question)[choice.bit_length() - 1] if piece in act.choices]
    return max(pieces, key=lambda piece: listed_share(piece, question, evidence) or 0.0)


@dataclass(frozen=True)
class MajorityOfOutcomes:
    """Predicts the outcome with most of the similar stays' weight, which is their similarity. Among equal ones, and
    where no stay is similar, the outcome that training has most often, then the first.

    usual: training samples of each label.
    """

    usual: tuple[int, ...]

    def __call__(self, act: Act) -> str:
        labels = act.facts["case"].task.labels
        shares = outcome_shares(act.facts["ranked"], len(labels))
        best = max(range(len(labels)), key=lambda label: (shares[label], self.usual[label], -label))
        return f"answer: {labels[best]}"


def outcome_shares(ranked: Evidence, labels: int) -> list[float]:
    """Share of the similar stays' weight that each outcome has, all 0 where no stay is similar."""
    weights = [0.0] * labels
    for stay in ranked.passages:
        weights[stay.partition] += stay.score
    total = sum(weights) or 1.0
    # the same weights added in another order are the same weights
    return [round(weight / total, DECIMALS) for weight in weights]


def chosen(question: DischargeQuestion, evidence: Evidence) -> int:
    """The options this rule chooses."""
    shares = [listed_share(option, question, evidence) or 0.0 for option in question.options]
    best = max(shares)
    if question.single:
        return 1 << shares.index(best)
    majority = sum(1 << i for i, share in enumerate(shares) if share > HALF)
    return majority or sum(1 << i for i, share in enumerate(shares) if share == best)


def listed_share(option: str, question: DischargeQuestion, evidence: Evidence) -> float | None:
    """Of the reports whose list was found and that name the option, the share that list it; None where there is none.

    Of a set of advice, the share of its sentences that a report lists, as the mean over the reports.
    """
    heading, lists, named = ASKED[question.kind][2], dict[int, list[str]](), dict[int, list[str]]()
    for passage in evidence.passages:
        for own, text in _pieces(passage.text):
            named.setdefault(passage.partition, []).extend(text.split("\n"))
            if own == heading:
                lists.setdefault(passage.partition, []).extend(text.split("\n"))
    if question.single:
        points = sentences(option)
        shares = [sum(_among(point, lines) for point in points) / len(points) for lines in lists.values()]
    else:
        shares = [_among(option, lines) for stay, lines in lists.items() if _among(option, named[stay])]
    return sum(shares) / len(shares) if shares else None


def _pieces(text: str) -> list[tuple[str, str]]:
    """(heading, text) of the sections that an excerpt holds; the heading it begins with stands in front of it."""
    own, _, body = text.partition(": ")
    return [(own if section.heading == HEAD else section.heading, section.text) for section in split_sections(body)]


def _among(name: str, lines: Sequence[str]) -> bool:
    """Whether a line holds all telling words of a name."""
    words = essence(name)
    return any(words <= essence(line) for line in lines)
