"""The episode of an order: search the graph or answer, with which query, in which partition, and when to stop.

Agent-Top decides and writes the queries, Agent-Low reads the facts found. Both share the model. The steps are those of
Algorithm 1 with one query at a time; every decision but the query is a choice among given replies. The reward is a
right answer that names a contraindicating condition, less the price of every search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ghar.data.cohort import Task
from ghar.data.tasks.order_check import OrderQuestion
from ghar.envs.case import Case
from ghar.envs.system import Variant
from ghar.episode import Act, Episode, EpisodeGenerator, Evidence, Parsed, Prediction, ReasoningStep, Reply, Retrieve
from ghar.kg.contraindications import CONTRAINDICATION
from ghar.kg.metapaths import MetaPath
from ghar.llm.parsing import parse_choice, parse_query
from ghar.llm.prompts import load_prompts
from ghar.rewards.compose import EpisodeReward

ROLES = ("retrieve", "followup", "metapaths", "summarise", "continue", "predict")
NAME, LABELS = "order_check", ("no", "yes")
ORDERS = Task(NAME, "Is the order contraindicated by a recorded condition?", LABELS)
SEARCH, ANSWER = "search", "answer"
SEPARATOR = " - "  # between the parts of a fact
HIERARCHY = f"{SEPARATOR}parent-child{SEPARATOR}"  # of two diseases
NONE = "none"  # no fact found names the drug with a recorded condition
NOTHING, NOTHING_FOUND = "(nothing yet)", "nothing"
UNNAMED = 0.5  # of a yes that is right and names another condition


@dataclass(frozen=True)
class OrderSpec:
    """max_iterations: searches at most. top_n: facts of a search. decision: whether to search is Agent-Top's, or
    fixed: never, or always, one search for each recorded condition. reads: the search is fixed too, for one condition
    after the other until Agent-Low names one, so that reading and answering alone are the model's."""

    max_iterations: int
    top_n: int
    decision: Literal["learned", "always", "never"] = "learned"
    reads: bool = False


@dataclass(frozen=True)
class ReadReply:
    """Parse a reply that is one of `choices`, as the whole number `value` gives; a chart's words stand as they are."""

    choices: tuple[str, ...]
    value: Callable[[str], int]

    def __call__(self, reply: str) -> Parsed:
        if reply.strip() in self.choices:
            return Parsed(self.value(reply.strip()))
        parsed = parse_choice(reply, self.choices)
        return parsed if parsed.error else Parsed(self.value(parsed.value))


class OrderEpisodes:
    """Makes episodes over the partitions that hold a drug, and the hierarchy of diseases."""

    def __init__(self, spec: OrderSpec, partitions: Sequence[MetaPath]):
        self.spec = spec
        self.partitions = tuple(part for part in partitions if _concerns_drugs(part))
        self.templates = load_prompts("ghar.envs.ghar", "orders", ROLES)
        self.menu = "\n".join(f"{number}. {part.text}" for number, part in enumerate(self.partitions, 1))

    def episode(self, case: Case[OrderQuestion]) -> EpisodeGenerator:
        """Returns whether the order is contraindicated; the last reply names the condition too."""
        question, spec, history = case.reads, self.spec, ()
        limit = len(question.conditions) if spec.decision == "always" else spec.max_iterations
        while len(history) < limit and (yield from self._searches(question, history)):
            history = (*history, (yield from self._search(question, history)))
        final = yield self._predict(question, history)
        label = None if final.value is None else int(final.value > 0)
        return Prediction(label, history, truncated=len(history) == limit)

    def direct(self, case: Case[OrderQuestion]) -> EpisodeGenerator:
        """The answer from the order and the conditions alone."""
        final = yield self._predict(case.reads, ())
        return Prediction(None if final.value is None else int(final.value > 0))

    def _searches(self, question: OrderQuestion, history: tuple[ReasoningStep, ...]):
        if self.spec.reads and history and history[-1].answer != NOTHING_FOUND:
            return False
        if self.spec.decision != "learned":
            return self.spec.decision == "always"
        if not history:
            reply = yield self._act(question, "retrieve", history, choices=("yes", "no"))
            return reply.value == "yes"
        reply = yield self._act(question, "continue", history, choices=(SEARCH, ANSWER))
        return reply.value == SEARCH

    def _search(self, question: OrderQuestion, history: tuple[ReasoningStep, ...]):
        if self.spec.reads:
            query, path = self._fixed(question, history)
        else:
            query, path = yield from self._asked(question, history)
        evidence = Evidence()
        if path is not None:
            evidence = facts_of((yield Retrieve(query, (path,), self.spec.top_n)), question.drug)
        choices = reading_choices(question)
        low: Reply = yield self._act(
            question, "summarise", history, query=query, evidence=evidence, choices=choices,
            parse=ReadReply(choices, choices.index),
        )  # fmt: skip
        answer = f"condition {low.value}" if low.value else NOTHING_FOUND
        return ReasoningStep(query, answer, True, () if path is None else (path,), int(path is None), 0, evidence.text)

    def _asked(self, question: OrderQuestion, history: tuple[ReasoningStep, ...]):
        """Agent-Top's query, and its partition: None where it could not be read."""
        written = yield self._act(question, "followup", history, parse=parse_query)
        query = written.value or question.drug
        numbers = _numbers(1, len(self.partitions))
        named = yield self._act(question, "metapaths", history, query=query, choices=numbers)
        return query, None if named.value is None else self.partitions[int(named.value) - 1].index

    def _fixed(self, question: OrderQuestion, history: tuple[ReasoningStep, ...]) -> tuple[str, int]:
        relations = [part.relation for part in self.partitions]
        path = self.partitions[relations.index(CONTRAINDICATION)].index
        return fixed_query(question, len(history)), path

    def _predict(self, question: OrderQuestion, history: tuple[ReasoningStep, ...]) -> Act:
        verdict = ReadReply(("no", *(f"yes {i}" for i in _numbers(1, len(question.conditions)))), condition_of)
        return self._act(question, "predict", history, choices=verdict.choices, parse=verdict)

    def _act(
        self,
        question: OrderQuestion,
        role: str,
        history: tuple[ReasoningStep, ...],
        *,
        query: str = "",
        evidence: Evidence | None = None,
        choices: tuple[str, ...] = (),
        parse: Callable[[str], Parsed] | None = None,
    ) -> Act:
        template = self.templates[role]
        prompt = template.render(
            drug=question.drug,
            conditions=question.menu,
            history="\n".join(f"- {step.query}: {step.answer}" for step in history) or NOTHING,
            query=query,
            metapaths=self.menu,
            evidence=(evidence.text if evidence else "") or "(none)",
        )
        if parse is None:
            parse = _OneOf(choices)
        facts: dict[str, Any] = {
            "question": question, "query": query, "history": history, "evidence": evidence,
            "partitions": self.partitions,
        }  # fmt: skip
        agent = "low" if role == "summarise" else "top"
        return Act(agent, role, prompt, choices, template.max_tokens, len(history), parse, facts)


@dataclass(frozen=True)
class _OneOf:
    choices: tuple[str, ...]

    def __call__(self, reply: str) -> Parsed:
        return parse_choice(reply, self.choices)


def order_case(question: OrderQuestion) -> Case[OrderQuestion]:
    """A question as an episode reads it."""
    about = question.sample_id, question.subject_id, question.visit_id
    return Case(*about, question.text, (), ORDERS, question.label, question, credentialed=question.credentialed)


def play_order(case: Case[OrderQuestion], variant: Variant) -> EpisodeGenerator:
    """A question as a variant plays it, whose spec has an `episode`."""
    return variant.spec.episode(case)


def facts_of(evidence: Evidence, drug: str) -> Evidence:
    """The edges found, of those that lead to drugs the ones of this drug: a node's name alone tells nothing of a
    contraindication, nor does another drug's."""
    edges = (passage for passage in evidence.passages if passage.kind == "edge")
    return Evidence(tuple(edge for edge in edges if drug in fact_ends(edge.text) or HIERARCHY in edge.text))


def fact_ends(text: str) -> tuple[str, str]:
    """The two nodes of a fact."""
    parts = text.split(SEPARATOR)
    return parts[0], parts[-1]


def fixed_query(question: OrderQuestion, number: int) -> str:
    """The query about one recorded condition, counted from 0."""
    return f"{question.drug} {question.conditions[number]}"


def confirmed(history: Sequence[ReasoningStep]) -> int:
    """The number of the first condition that a search confirmed, 0 for none."""
    numbers = [int(step.answer.removeprefix("condition ")) for step in history if step.answer != NOTHING_FOUND]
    return numbers[0] if numbers else 0


def reading_choices(question: OrderQuestion) -> tuple[str, ...]:
    """Replies to facts found: none, or a recorded condition in the chart's words, at the place of its number."""
    return (NONE, *question.conditions)


def condition_of(reply: str) -> int:
    """The number of the condition that an answer names, 0 for a no."""
    return 0 if reply == "no" else int(reply.removeprefix("yes "))


def named_condition(episode: Episode) -> int | None:
    """The number of the condition that an episode's answer names: 0 for a no, None where it could not be read."""
    replies = [record.result for record in episode.trace if isinstance(record.result, Reply)]
    return replies[-1].value if replies and episode.failure is None else None


def _numbers(first: int, last: int) -> tuple[str, ...]:
    return tuple(map(str, range(first, last + 1)))


def _concerns_drugs(part: MetaPath) -> bool:
    return "drug" in (part.head_type, part.tail_type) or part.relation == "disease_disease"


def score_order(episode: Episode, question: OrderQuestion, eta: float, price: float) -> EpisodeReward:
    """Score an episode: eta x outcome at the last turn, -price where a search names its partition.

    The outcome is 1 for a right no and for a yes that names a condition against the drug, 0.5 for a right yes that
    names another one, else 0: without knowledge neither answer earns more. A failed episode is worth 0, and one that
    was cut short (`Episode.cut`) has paid and earned nothing yet.
    """
    if episode.failure is not None:
        return EpisodeReward({"orm": 0.0, "price": 0.0}, 0.0, tuple({} for _ in episode.turns), "shared")
    per_turn: list[dict[str, float]] = [
        {"price": -price} if turn.role == "metapaths" else {} for turn in episode.turns
    ]
    outcome = 0.0
    if not episode.cut and episode.prediction.label == question.label:
        named = named_condition(episode) or 0
        outcome = 1.0 if not question.against or named - 1 in question.against else UNNAMED
    if not episode.cut:
        per_turn[-1] |= {"orm": eta * outcome}
    paid = sum(turn.get("price", 0.0) for turn in per_turn)
    earned = eta * outcome
    return EpisodeReward({"orm": outcome, "price": paid}, earned + paid, tuple(per_turn), "shared")
