"""EHR-RAG's episode (Sections 3.2-3.4 of the paper), its ablations and the language-model baselines of its tables.

    ehr_rag     indicators once; then two paths side by side, for and against the outcome, each with adaptive iterative
                retrieval (AIR) and an argument; both are weighed over all that was found (DER)
    no_ether    chunks by similarity alone, numbers in the rows, no indicators
    no_air      one retrieval a path
    no_der      one path, for the factual query, and a plain prediction
    direct      the newest rows                       rag      the chunks most similar to the question
    uniform     random chunks                         rule     the rows of the most frequent codes
    react       up to `iterations` searches, interleaved with thoughts

Agent-Top decides (indicators, searches, the answer), Agent-Low argues. Every prompt shows evidence within the same
budget of rows and tokens (envs/ehr_rag/context.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Literal

from ghar.data.tasks.cards import TaskCard
from ghar.envs.case import Case
from ghar.envs.ehr_rag.context import APART, PromptContext, fit, merge
from ghar.envs.ehr_rag.ether import EventQuery, RowPassage, View
from ghar.envs.ehr_rag.event_replies import MOST_WORDS, parse_items, parse_label_number, parse_move, parse_search
from ghar.envs.generators import together
from ghar.envs.rollout import Corpus
from ghar.envs.stepper import Scene
from ghar.envs.worlds.histories.truth import Gold
from ghar.episode import Act, Episode, EpisodeGenerator, Options, Parsed, Prediction, ReasoningStep, Reply, as_text
from ghar.llm.prompts import load_prompts
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import score_outcome

Method = Literal["ehr_rag", "no_ether", "no_air", "no_der", "direct", "rag", "uniform", "rule", "react"]
AGENTS = ("top", "low")
ROLES = ("indicators", "refine", "support", "oppose", "weigh", "predict", "react")
VIEW_OF: Mapping[str, View] = {"direct": "newest", "rag": "similar", "uniform": "uniform", "rule": "frequent"}
NOTHING = "(nothing)"
Passages = tuple[RowPassage, ...]


@dataclass(frozen=True)
class EventReading:
    """What EHR-RAG reads of a sample; its text holds the static facts.

    place: its number in the corpus. record: whose events it may know, the patient's number or that of a hospital stay
    (`StayRecords`). prediction_time: events after it are not shown. card: what prompts say of the task. gold: the rows
    that tell the label, where a generated world knows them; no policy sees them.
    """

    place: int
    record: int
    prediction_time: datetime
    card: TaskCard
    gold: Gold = field(default_factory=dict, repr=False)

    @property
    def asked_at(self) -> str:
        """The prediction time, as prompts and reports show it."""
        return f"{self.prediction_time:%Y-%m-%d %H:%M:%S}"


@dataclass(frozen=True)
class EhrRagSpec:
    """iterations: retrievals a path. chunks: kept a query. coarse, keep: indicators before and after reranking.
    whole: chunks of a single-pass baseline. rows, tokens: budget of evidence in a prompt."""

    prompts: Literal["full", "compact", "questions", "summaries"]
    method: Method
    iterations: int
    chunks: int
    coarse: int
    keep: int
    whole: int
    rows: int
    tokens: int


@dataclass(frozen=True)
class Lookup:
    """One retrieval. path: "support", "oppose", "numbers", or "" where there is one path only."""

    path: str
    step: int
    query: str
    passages: Passages


@dataclass(frozen=True)
class EventPrediction(Prediction):
    """A prediction with what it rests on. arguments: of each path, as it was argued."""

    lookups: tuple[Lookup, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)


class EhrRagEpisodes:
    """Makes episodes of one method. count: tokens of a text, for the budget.

    What cases read has a `place` in the corpus, a `card`, and `asked_at`, when it is asked: `EventReading`, and of
    texts `ghar.envs.ehr_rag.texts`.
    """

    roles: tuple[str, ...] = ROLES  # that have a prompt

    def __init__(self, spec: EhrRagSpec, count: Callable[[str], int]):
        self.spec = spec
        self.count = count
        self.brief = spec.prompts == "compact"
        self.templates = load_prompts("ghar.envs.ehr_rag", spec.prompts, self.roles)

    def episode(self, case: Case[Any]) -> EpisodeGenerator:
        """The predicted label and everything that was looked up."""
        method = self.spec.method
        if method in VIEW_OF:
            return self._single_pass(case, VIEW_OF[method])
        return self._react(case) if method == "react" else self._ehr_rag(case)

    def _ehr_rag(self, case: Case[Any]) -> EpisodeGenerator:
        card, lookups = case.reads.card, []
        numbers: Passages = () if self.spec.method == "no_ether" else (yield from self._indicators(case, lookups))
        if self.spec.method == "no_der":
            evidence = yield from self._air(case, "", card.factual, lookups)
            label = yield from self._label(case, "predict", evidence, numbers, lookups)
            return _prediction(label, lookups)
        support, oppose = yield from together(
            self._path(case, "support", card.factual, numbers, lookups),
            self._path(case, "oppose", card.counterfactual, numbers, lookups),
        )
        arguments = {"support": support[1], "oppose": oppose[1]}
        fused = merge(support[0], oppose[0])  # Eq. 7
        label = yield from self._label(case, "weigh", fused, numbers, lookups, **arguments)  # Eq. 8
        return _prediction(label, lookups, arguments)

    def _indicators(self, case: Case[Any], lookups: list[Lookup]) -> Generator[Any, Any, Passages]:
        """Coarse selection by name, then the model's choice; all where there are no more than it may keep.

        A reply that names none of them counts as a format error, and the ones most like the question stand in.
        """
        spec = self.spec
        query = case.reads.card.description
        retrieval = yield EventQuery(query, top_n=spec.coarse, place=case.reads.place, view="indicators")
        chosen: Passages = retrieval.passages
        if len(chosen) > spec.keep:
            names = [passage.codes[0] for passage in chosen]
            listed = (APART if self.brief else "\n").join(names)
            reply: Reply = yield self._act(
                case, "top", "indicators", self._fit((), ()), 0, candidates=listed, keep=spec.keep,
                parse=lambda text: parse_items(text, names, spec.keep), names=names,
                options=Options(tuple(dict.fromkeys(names)), spec.keep, "", "\n", alone=True),
            )  # fmt: skip
            places = reply.value or range(spec.keep)
            chosen = tuple(chosen[i] for i in places)
        lookups.append(Lookup("numbers", 0, query, chosen))
        return chosen

    def _path(
        self,
        case: Case[Any],
        side: Literal["support", "oppose"],
        query: str,
        numbers: Passages,
        lookups: list[Lookup],
    ) -> Generator[Any, Any, tuple[Passages, str]]:
        """One of DER's two paths: what it found, and its hypothesis (Eq. 6)."""
        evidence = yield from self._air(case, side, query, lookups)
        reply: Reply = yield self._act(case, "low", side, self._fit(evidence, numbers), self.spec.iterations, path=side)
        return evidence, reply.value

    def _air(
        self, case: Case[Any], path: str, query: str, lookups: list[Lookup]
    ) -> Generator[Any, Any, Passages]:
        """Retrieve, and search on until the model says ENOUGH, repeats itself, or has had its searches (Eqs. 4, 5)."""
        spec, asked = self.spec, [query]
        view: View = "similar" if spec.method == "no_ether" else "chunks"
        evidence: Passages = ()
        for step in range(1 if spec.method == "no_air" else spec.iterations):
            if step:
                aim = case.reads.card.counterfactual if path == "oppose" else case.reads.card.factual
                reply: Reply = yield self._act(
                    case, "top", "refine", self._fit(evidence, ()), step, path=path, aim=aim, asked=tuple(asked),
                    parse=lambda text: parse_search(text, asked),
                )  # fmt: skip
                if not reply.value:
                    break
                asked.append(reply.value)
            retrieval = yield EventQuery(asked[-1], top_n=spec.chunks, place=case.reads.place, view=view)
            evidence = merge(evidence, retrieval.passages)
            lookups.append(Lookup(path, step, asked[-1], retrieval.passages))
        return evidence

    def _single_pass(self, case: Case[Any], view: View) -> EpisodeGenerator:
        spec, query = self.spec, case.reads.card.description
        most = spec.rows if view in ("newest", "frequent") else spec.whole
        retrieval = yield EventQuery(query, top_n=most, place=case.reads.place, view=view)
        lookups = [Lookup("", 0, query, retrieval.passages)]
        label = yield from self._label(case, "predict", retrieval.passages, (), lookups)
        return _prediction(label, lookups)

    def _react(self, case: Case[Any]) -> EpisodeGenerator:
        spec, lookups, asked = self.spec, [], []
        evidence: Passages = ()
        answers = tuple(f"Answer: {answer}" for answer in case.reads.card.answers)
        moves = Options(("Search:", *answers), head="", open=("Search:",), words=MOST_WORDS)
        for step in range(spec.iterations):
            reply: Reply = yield self._act(
                case, "top", "react", self._fit(evidence, ()), step, asked=tuple(asked),
                parse=lambda text: parse_move(text, self.parse_answer(case), asked), options=moves,
            )  # fmt: skip
            if reply.value is None:
                break
            action, content = reply.value
            if action == "answer":
                return _prediction(content, lookups)
            asked.append(content)
            retrieval = yield EventQuery(content, top_n=spec.chunks, place=case.reads.place, view="similar")
            evidence = merge(evidence, retrieval.passages)
            lookups.append(Lookup("", step, content, retrieval.passages))
        label = yield from self._label(case, "predict", evidence, (), lookups)
        return _prediction(label, lookups)

    def _label(
        self,
        case: Case[Any],
        role: str,
        evidence: Passages,
        numbers: Passages,
        lookups: list[Lookup],
        **fields: Any,
    ) -> Generator[Any, Any, int | None]:
        asked = tuple(dict.fromkeys(lookup.query for lookup in lookups if lookup.path != "numbers"))
        reply = yield self._decide(case, role, self._fit(evidence, numbers), asked, **fields)
        return self.label_of(reply)

    def parse_answer(self, case: Case[Any]) -> Callable[[str], Parsed]:
        """Make the parser of a deciding reply."""
        return partial(parse_label_number, n_labels=len(case.reads.card.meanings))

    def label_of(self, reply: Reply) -> int | None:
        """The label that a deciding reply names."""
        return reply.value

    def _decide(self, case: Case[Any], role: str, context: PromptContext, asked: tuple[str, ...], **fields: Any) -> Act:
        return self._act(
            case, "top", role, context, self.spec.iterations, parse=self.parse_answer(case), asked=asked,
            options=Options(case.reads.card.answers, head="Answer:"), **fields,
        )  # fmt: skip

    def _fit(self, evidence: Passages, numbers: Passages) -> PromptContext:
        spec = self.spec
        return fit(evidence, numbers, rows=spec.rows, tokens=spec.tokens, count=self.count, brief=self.brief)

    def _act(
        self, case: Case[Any], agent: str, role: str, context: PromptContext, step: int, *,
        parse: Any = as_text, asked: tuple[str, ...] = (), path: str = "", names: Any = (),
        options: Options | None = None, **fields: Any,
    ) -> Act:  # fmt: skip
        card, template = case.reads.card, self.templates[role]
        unread = NOTHING if self.brief else ""  # what a method does not read has no heading in a full prompt
        no_search = unread if role in ("predict", "weigh") else NOTHING
        argued = {side: fields[side] for side in ("support", "oppose") if side in fields}
        fields |= {side: argument or NOTHING for side, argument in argued.items()}  # a side that says nothing is shown
        prompt = template.render(
            title=card.title, category=card.category, description=card.description, definition=card.definition,
            numbers=card.numbers, positive=card.positive, negative="0", kind=card.kind, advice=card.advice,
            time=case.reads.asked_at, patient=case.text or NOTHING,
            indicators=context.numbers or unread, evidence=context.text or NOTHING,
            queries=(APART if self.brief else "\n").join(asked) or no_search, **fields,
        )  # fmt: skip
        facts = {"case": case, "shown": context, "asked": asked, "path": path, "names": names, "keep": self.spec.keep}
        facts |= {"arguments": tuple(argued.values())}
        return Act(agent, role, prompt, (), template.max_tokens, step, parse, facts, options)


def ehr_rag_scene(episodes: EhrRagEpisodes, corpus: Corpus, cases: Sequence[Case[Any]], eta: float) -> Scene:
    """EHR-RAG on `cases` for the views (Gymnasium, PettingZoo, RLlib); eta: weight of the outcome."""

    def reward(episode: Episode, case: Case[Any]) -> EpisodeReward:
        return score_outcome(episode, case.label, eta)

    return Scene("EHR-RAG", AGENTS, ROLES, cases, episodes.episode, corpus, reward)


def _prediction(
    label: int | None, lookups: list[Lookup], arguments: Mapping[str, str] | None = None
) -> EventPrediction:
    """The lookups as steps of H_rea, too, so that rewards and counts see them."""
    steps = [
        ReasoningStep(lookup.query, "", True, evidence="\n".join(p.text for p in lookup.passages)) for lookup in lookups
    ]
    order = sorted(lookups, key=lambda lookup: (lookup.path != "numbers", lookup.step, lookup.path == "oppose"))
    return EventPrediction(label, tuple(steps), lookups=tuple(order), arguments=arguments or {})
