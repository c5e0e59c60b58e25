"""A scripted reader of the graph that teaches orders, and what searching is worth at most.

It reads by the links between charts and nodes, so what it says of a fact is exact. It does not know the answer before
it searches: it asks about conditions in the chart's order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ghar.data.tasks.order_check import OrderQuestion
from ghar.envs.ghar.orders.episode import ANSWER, SEARCH, confirmed, fact_ends, reading_choices
from ghar.envs.rollout import derive_seed
from ghar.episode import Act, Evidence, ReasoningStep
from ghar.kg.contraindications import CONTRAINDICATION

MOST = 3  # conditions that a drawn habit puts into one search


@dataclass(frozen=True)
class OrderTeacher:
    """Rule that searches for `at_once` conditions together and stops at the first that a fact confirms.

    at_once: None draws 1, 2 or 3 for each question, so that its examples show all three habits. name_of: of a node;
    parents: disease node -> its parents. exact: reads by the links; else it takes any fact that names the drug.
    stops: False asks about every condition.
    """

    name_of: Callable[[int], str]
    parents: Mapping[int, frozenset[int]]
    at_once: int | None = None
    exact: bool = True
    stops: bool = True

    def __call__(self, act: Act) -> str:
        question: OrderQuestion = act.facts["question"]
        history: tuple[ReasoningStep, ...] = act.facts["history"]
        condition = confirmed(history)
        asked = len(history) * self._size(question)
        if act.role == "retrieve":
            return "yes"
        if act.role == "followup":
            left = question.conditions[asked:] or question.conditions
            return f"{question.drug} {', '.join(left[: self._size(question)])}"
        if act.role == "metapaths":
            relations = [part.relation for part in act.facts["partitions"]]
            return str(relations.index(CONTRAINDICATION) + 1)
        if act.role == "summarise":
            return reading_choices(question)[self._read(question, act.facts["evidence"], asked)]
        if act.role == "continue":
            return ANSWER if (condition and self.stops) or asked >= len(question.conditions) else SEARCH
        return f"yes {condition}" if condition else "no"

    def _size(self, question: OrderQuestion) -> int:
        return self.at_once or 1 + derive_seed("habit", question.sample_id) % MOST

    def _read(self, question: OrderQuestion, evidence: Evidence, asked: int) -> int:
        """The number of the first condition that a fact about the drug is of, 0 for none."""
        for passage in evidence.passages:
            ends = fact_ends(passage.text)
            if question.drug not in ends:
                continue
            if not self.exact:
                return min(asked + 1, len(question.conditions))
            for number, nodes in enumerate(question.nodes, 1):
                near = {other for node in nodes for other in (node, *self.parents.get(node, ()))}
                if {self.name_of(node) for node in near} & set(ends):
                    return number
        return 0
