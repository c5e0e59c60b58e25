"""A fixed rule that answers EHR-RAG's acts, so that its episodes mean something without a language model.

What it knows is fitted to the training patients (rule_fit.py). It sees of a patient what the prompts show and nothing
else, so its answers are as good as what was retrieved. It searches by the names of events, which rows have in words:
the most telling event of its side that is neither shown nor asked for, a linked one first, whose partner is shown.

An answer weighs everything that is shown or that one of the two arguments names, also a row that the budget left out
of the prompt's record. What was searched for by name and is not there counts as absent; what no one looked for counts
as in the average training patient.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ghar.envs.ehr_rag.context import APART, VALUES, PromptContext, brief_row
from ghar.envs.ehr_rag.event_replies import MOST_WORDS
from ghar.envs.ehr_rag.rule_fit import EventRules, links_of
from ghar.episode import Act, Completion

ARGUED, BRIEFLY = 5, 2  # features an argument names, and those of a brief one
WEAK = "weak"  # the brief argument of a side without evidence
NUMBER = r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
VALUE = re.compile(rf"\(value: {NUMBER}(?: |\)$)")  # of a row; "0-2" is none
FeatureLines = dict[str, str]  # feature -> where it stands in the prompt


@dataclass(frozen=True)
class Piece:
    """A row or a trajectory that a prompt shows. name: of its code or indicator. values: its numbers, oldest first."""

    name: str
    line: str
    values: tuple[float, ...]
    row: bool


@dataclass(frozen=True, eq=False)
class RuleReader:
    """The policy. A side's evidence is what is commoner with its labels: 0 for "oppose", any other for "support"."""

    rules: EventRules

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(getattr(self, f"_{act.role}")(act)) for act in acts]

    def _indicators(self, act: Act) -> str:
        """Those whose numbers tell most; of equals the ones most like the question."""
        spreads = {name: self.rules.spread(name) for name in act.facts["names"]}
        order = sorted(spreads, key=lambda name: -spreads[name])  # stable
        chosen = order[: act.facts["keep"]]
        return APART.join(chosen) if act.facts["shown"].brief else json.dumps(chosen)

    def _refine(self, act: Act) -> str:
        """The next search of a side; ENOUGH where nothing is left that could tell."""
        sign = -1.0 if act.facts["path"] == "oppose" else 1.0
        row_names = {piece.name for piece in self.pieces(act.facts["shown"]) if piece.row}
        asked = {query.casefold() for query in act.facts["asked"]}
        wanted = [(self.rules.worth(f, sign), i, name) for i, (f, name) in enumerate(self.searches(row_names))]
        for worth, _, name in sorted(wanted, key=lambda item: (-item[0], item[1])):
            query = query_of(name)
            if worth > 0 and query.casefold() not in asked and name not in row_names:
                return query
        return "ENOUGH"

    def searches(self, row_names: set[str]) -> Iterator[tuple[str, str]]:
        """(feature, the name of a row that would show it); links that what is shown leads to come first."""
        for feature, (one, other) in self.rules.links.items():
            for given, led in ((one, other), (other, one)):
                for name in sorted(row_names):
                    if (term := filled(given, name)) is not None:
                        yield feature, led.replace("*", term)
        yield from ((feature, feature) for feature in self._events)

    @cached_property
    def _events(self) -> tuple[str, ...]:
        """The features that a row has in words."""
        return tuple(sorted(feature for feature in self.rules.weights if feature in self.rules.events))

    def _support(self, act: Act) -> str:
        return self._argue(act.facts["shown"], 1.0)

    def _oppose(self, act: Act) -> str:
        return self._argue(act.facts["shown"], -1.0)

    def _argue(self, context: PromptContext, sign: float) -> str:
        """The most telling lines of one side. A link is two rows: both are named."""
        pieces = self.pieces(context)
        features, leaning = self._features(pieces), self.rules.leaning
        best = [f for f in sorted(features, key=lambda f: (-sign * leaning(f), f)) if sign * leaning(f) > 0][:ARGUED]
        if context.brief:
            names = [name for f in best[:BRIEFLY] for name in self._briefly(f, features[f])]
            return APART.join(dict.fromkeys(names)) or WEAK
        lines = [f"{line} ({leaning(f):+.2f})" for f in best for line in features[f].split("\n")]
        return "\n".join(dict.fromkeys(lines)) or "The evidence for this side is weak."

    def _briefly(self, feature: str, line: str) -> list[str]:
        """The names of the rows that show a feature; of an indicator what its numbers do."""
        if feature in self.rules.events or feature in self.rules.links:
            return [brief_row(row) for row in line.split("\n")]
        return [feature]

    def _weigh(self, act: Act) -> str:
        context, arguments = act.facts["shown"], act.facts["arguments"]
        lines = [line for argument in arguments for line in argument.split(APART if context.brief else "\n")]
        argued = [Piece(line, line, (), True) if context.brief else _piece(line) for line in lines]
        pieces = [*argued, *self.pieces(context)]
        features = self._features(pieces)
        if context.brief:
            features |= {line: line for line in lines if line in self.rules.weights}
        absent = self._absent(act.facts["asked"], {piece.name for piece in pieces if piece.row})
        absent |= {other for feature in features for other in self.rules.instead(feature)}
        scores = self.rules.score(features, absent - features.keys())
        if context.brief:
            return f"{int(scores.argmax())}"
        text = ", ".join(f"{score:.2f}" for score in scores)
        return f"Reasoning: {len(features)} pieces of evidence give the labels {text}.\nAnswer: {int(scores.argmax())}"

    _predict = _weigh

    def _react(self, act: Act) -> str:
        query = self._refine(act)
        more = query != "ENOUGH"
        if act.facts["shown"].brief:
            return f"search: {query}" if more else f"answer: {self._weigh(act)}"
        return f"Thought: more evidence may exist.\nSearch: {query}" if more else self._weigh(act)

    def _absent(self, searched: Iterable[str], row_names: set[str]) -> set[str]:
        """The features that were searched for by the name of a row."""
        asked = set(searched)
        return {feature for feature, name in self.searches(row_names) if query_of(name) in asked}

    def pieces(self, context: PromptContext) -> list[Piece]:
        """Rows and trajectories, oldest first."""
        rows = []
        for code, row in context.rows.values():
            number = VALUE.search(row)
            rows.append(Piece(self.rules.names.get(code, code), row, (float(number[1]),) if number else (), True))
        return rows + [_trajectory(name, line) for name, line in context.indicators]

    def _features(self, pieces: Sequence[Piece]) -> FeatureLines:
        """The features that are shown, each with the last line that has it."""
        features: FeatureLines = {}
        values: dict[str, tuple[str, tuple[float, ...]]] = {}
        names: dict[str, str] = {}
        for piece in pieces:
            if piece.name in self.rules.cuts and piece.values:
                earlier = values.get(piece.name, ("", ()))[1] if piece.row else ()
                values[piece.name] = piece.line, (*earlier, *piece.values)[-self.rules.values :]
            elif piece.row:
                names[piece.name] = piece.line
        features |= {name: line for name, line in names.items() if name in self.rules.weights}
        for name, (line, numbers) in values.items():
            features |= {f: line for f in self.rules.measured(name, numbers) if f in self.rules.weights}
        for feature, pair in links_of(names, self.rules.shared).items():
            if feature in self.rules.weights:
                features[feature] = "\n".join(names[name] for name in pair)
        return features


def query_of(name: str) -> str:
    """A search for a row of this name, as long as a search may be."""
    return " ".join(name.split()[:MOST_WORDS])


def filled(pattern: str, name: str) -> str | None:
    """What stands for the "*" of a pattern in a name; None where the name is not of that pattern."""
    begin, _, end = pattern.partition("*")
    inside = len(name) > len(begin) + len(end) and name.startswith(begin) and name.endswith(end)
    term = name[len(begin) : len(name) - len(end)] if inside else ""
    return term if term.isalnum() else None


def _trajectory(name: str, line: str) -> Piece:
    return Piece(name, line, tuple(float(value) for value in VALUES.findall(line)), False)


def _piece(line: str) -> Piece:
    """A line of an argument, as `RuleReader._argue` writes it: a row or a trajectory, and its leaning."""
    text = line.rpartition(" (")[0]
    if not text.startswith("["):
        return _trajectory(text.partition(": [")[0], text)
    label, number = text.partition(" - ")[2], VALUE.search(text)
    name = label.rpartition(" (value: ")[0] or label
    return Piece(name, text, (float(number[1]),) if number else (), True)
