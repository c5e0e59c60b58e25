"""Demonstration selectors as a corpus: asked for one patient's examples, it plays the selector of that name.

Selectors that ask a language model ask the one that predicts (`ExamplesCorpus.beside`), or the reader's. A selection is
made once for each selector and patient and kept for as long as that model's weights stay the same; so is what the
selector prepares for all patients. Patients who are played together are chosen for together, so that their prompts
share beginnings, and nothing else is asked of the engine meanwhile: every episode in flight waits for the same answer.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, Literal, cast
from weakref import ref

import numpy as np

from ghar.envs.graphwalker.pool import SelectionPool
from ghar.envs.graphwalker.selectors.ids import ROUNDS
from ghar.envs.graphwalker.selectors.prompt import END, example_text
from ghar.envs.graphwalker.selectors.protocol import ExamplePool, Name, Selection, SelectionQuery, different
from ghar.envs.graphwalker.selectors.scorer import EngineScorer, Scorer, drive, entropy_drops
from ghar.envs.graphwalker.settings import Settings
from ghar.envs.system import Variant
from ghar.episode import Evidence, Passage, Retrieve
from ghar.errors import BadInput
from ghar.llm.engine import Engine, can_score
from ghar.llm.policy import Policy
from ghar.progress import progress

Need = Literal["log-probabilities", "generation", "hidden states"]
NEEDS: Mapping[Name, Need] = {  # all others ask nothing of a model
    "graphwalker": "log-probabilities", "cone": "log-probabilities", "spell": "log-probabilities",
    "influence": "log-probabilities", "delta_knn": "log-probabilities", "ids": "generation",
    "lms3": "hidden states", "gradsel": "hidden states",
}  # fmt: skip


def prompts_before(settings: Settings, variant: Variant) -> float:
    """Count the prompts that a model reads at most to choose a patient's examples, shared ones included."""
    selector: Name = getattr(variant.spec, "selector", "zero_shot")
    measured = 2 if settings.entropy_drop and selector != "zero_shot" else 0
    if selector not in NEEDS:
        return measured
    return measured + (ROUNDS if NEEDS[selector] == "generation" else settings.effort or settings.usual_effort)


@dataclass(frozen=True, kw_only=True)
class SelectExamples(Retrieve):
    """Ask for at most `top_n` earlier cases to show before the one with this sample id."""

    sample_id: str
    selector: Name


@dataclass(frozen=True)
class SelectionCost:
    """A patient's share of what its selection took: prompts scored or looked into, generated replies, and the tokens of
    both, as read (shared beginnings once) and each prompt from scratch."""

    prompts: float = 0.0
    tokens: float = 0.0
    scratch: float = 0.0
    replies: float = 0.0


@dataclass(frozen=True)
class Demonstration:
    """One example. text: as prompts show it, without its outcome. gain: in nats, None where the selector has none.
    answer: its outcome or summary in words, as prompts show it."""

    sample_id: str
    text: str
    label: int
    gain: float | None
    answer: str


@dataclass(frozen=True)
class Examples(Evidence):
    """The answer to `SelectExamples`: passages in the order of the prompt, each with its information gain as score (0
    where the selector has none) and its row of the pool as ident; and what they were made from. entropy_drop: of all
    examples together, in nats a token; None where it was not measured."""

    demonstrations: tuple[Demonstration, ...] = ()
    selection: Selection = field(default_factory=lambda: Selection(()))
    cost: SelectionCost = field(default_factory=SelectionCost)
    entropy_drop: float | None = None


@dataclass(frozen=True)
class Preparation:
    """What a selector prepares for all patients. cost: one test patient's share, as the four numbers of
    `SelectionCost`: the effort that a selector may spend on it is given per test patient."""

    shared: Any
    cost: np.ndarray


class SelectionCache:
    """Examples by selector and sample id, and preparations by selector. weights: of the model they were made with.
    measured: all examples have numbers of that model, also those of selectors that ask nothing."""

    def __init__(self, measured: bool) -> None:
        self.measured = measured
        self.weights: object = None
        self.examples: dict[tuple[Name, str], Examples] = {}
        self.prepared: dict[Name, Preparation] = {}
        self.lock = Lock()  # a look-up that took too long is still at work when it is asked for again

    def forget(self, engine: Engine | None) -> None:
        """What was chosen with other weights than the engine's, which numbers those it has."""
        model = getattr(engine, "model", engine)
        weights = None if engine is None else (ref(engine), engine.version, ref(model))
        if weights != self.weights:
            self.weights = weights
            independent = {key: kept for key, kept in self.examples.items() if key[0] not in NEEDS}
            self.examples = {} if self.measured else independent
            self.prepared = {name: kept for name, kept in self.prepared.items() if name not in NEEDS}


class ExamplesCorpus:
    """Answers `SelectExamples`. in_flight: patients under way at once. played: sample ids that are played together.

    scorer: in place of an engine, for tests. It can be sent to another process, without its engine and what is kept.
    """

    def __init__(
        self,
        walkers: SelectionPool,
        engine: Engine | None,
        in_flight: int,
        scorer: Scorer | None = None,
        played: tuple[str, ...] = (),
    ):
        self.walkers = walkers
        self.engine = engine
        self.in_flight = in_flight
        self.given = scorer
        self.played = played
        self.kept = self._empty()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"engine": None, "kept": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self.kept = self._empty()

    def _empty(self) -> SelectionCache:
        return SelectionCache(self.walkers.material.settings.entropy_drop)

    def beside(self, policy: Policy, variant: Variant, sample_ids: Sequence[str]) -> ExamplesCorpus:
        """The same, asking the policy's engine where it has one. BadInput where that cannot tell what is needed."""
        engine = getattr(policy, "engine", None) or self.engine
        corpus = ExamplesCorpus(self.walkers, engine, self.in_flight, self.given, tuple(sample_ids))
        corpus.kept = self.kept
        selector = getattr(variant.spec, "selector", None)
        if selector is not None and (refused := corpus.refused(selector)):
            raise BadInput(refused)
        return corpus

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """The examples of each patient. TypeError for what is no `SelectExamples`."""
        asked = [request for request in requests if isinstance(request, SelectExamples)]
        if len(asked) < len(requests):
            raise TypeError(f"a corpus of examples answers SelectExamples, not {requests!r}")
        with self.kept.lock:
            self.kept.forget(self.engine)
            selectors: list[Name] = list(dict.fromkeys(request.selector for request in asked))
            for selector in selectors:
                self._choose(selector, [request.sample_id for request in asked if request.selector == selector])
            return [self.kept.examples[request.selector, request.sample_id] for request in asked]

    def refused(self, selector: Name) -> str | None:
        """Why this selector cannot be played with this reader, None where it can."""
        need, measured = NEEDS.get(selector), self.walkers.material.settings.entropy_drop
        if self.given is not None:
            return None
        if measured and self.engine is not None and not can_score(self.engine):
            return (
                "system.entropy_drop=true needs log-probabilities, which this engine does not give: choose engine=hf "
                "or engine=vllm, or leave it out."
            )
        if need is None:
            return None
        if selector == "graphwalker" and self.walkers.material.settings.utility == "self_rated":
            need = "generation"
        if self.engine is None:
            return f"{selector} needs {need} of a language model and only rules play: choose scripted variants."
        if need == "hidden states":
            return _without_insides(selector, self.engine)
        if need == "log-probabilities" and not can_score(self.engine):
            walk = ", or system.utility=self_rated" if selector == "graphwalker" else ", or another selector"
            return (
                f"{selector} needs log-probabilities, which this engine does not give: choose engine=hf or "
                f"engine=vllm{walk}."
            )
        return None

    def _choose(self, selector: Name, ids: Sequence[str]) -> None:
        """Choose for those of `ids` that nothing was chosen for yet, and then for all others that are played."""
        walkers, kept = self.walkers, self.kept
        if all((selector, name) in kept.examples for name in ids):
            return
        asked = [name for name in dict.fromkeys((*ids, *self.played)) if (selector, name) not in kept.examples]
        if walkers.material.times is not None:
            few = {name for name in asked if not walkers.enough(walkers.patients[name])}
            kept.examples |= {(selector, name): Examples() for name in few}
            asked = [name for name in asked if name not in few]
        queries = [walkers.query(name) for name in asked]
        if not queries:
            return
        if refused := self.refused(selector):
            raise BadInput(refused)
        pool = walkers.pool(selector)
        if selector not in kept.prepared:
            scorer = self._scorer(selector)
            shared = prepare(pool, scorer)
            kept.prepared[selector] = Preparation(shared, _spent(scorer) / max(1, len(walkers.by_split["test"])))
        preparation, scorer = kept.prepared[selector], self._scorer(selector)
        selections = choose(pool, preparation.shared, queries, scorer, self.in_flight)
        cost = SelectionCost(*(preparation.cost + _spent(scorer) / len(queries)).tolist())
        drops = self._entropy_drops(queries, selections)
        for query, selection, drop in zip(queries, selections, drops, strict=True):
            kept.examples[selector, query.patient.sample_id] = examples(pool, selection, cost, drop)

    def _entropy_drops(
        self, queries: Sequence[SelectionQuery], selections: Sequence[Selection]
    ) -> Sequence[float | None]:
        """By how much each patient's examples lower H(x | S), None where no model measures it."""
        scorer = self.given or (None if self.engine is None else self._engine_scorer(self.engine))
        if scorer is None or not self.walkers.material.settings.entropy_drop:
            return [None] * len(queries)
        chosen = [(query.patient, selection.shots) for query, selection in zip(queries, selections, strict=True)]
        return entropy_drops(chosen, scorer, self.in_flight)

    def _scorer(self, selector: Name) -> Scorer:
        if self.given is not None:
            return self.given
        if selector not in NEEDS:
            return NoScorer()
        assert self.engine is not None  # `refused` looked
        return self._engine_scorer(self.engine)

    def _engine_scorer(self, engine: Engine) -> EngineScorer:
        return EngineScorer(engine, self.walkers.prompt, self.walkers.candidates)


class NoScorer:
    """The scorer of selectors that ask nothing."""

    def answer(self, asks: Sequence[Any]) -> list[Any]:
        """RuntimeError when asked after all."""
        if asks:
            raise RuntimeError(f"a selector without a model asked {asks[0]!r}")
        return []


def prepare(pool: ExamplePool, scorer: Scorer) -> Any:
    """What the selector that the pool names measures once for all patients."""
    [shared] = drive([partial(_selector(pool).prepare, pool)], scorer, 1)
    return shared


def choose(
    pool: ExamplePool, shared: Any, queries: Sequence[SelectionQuery], scorer: Scorer, in_flight: int
) -> list[Selection]:
    """Play the selector that the pool names for all queries, at most `in_flight` at once. shared: what it prepared."""
    module = _selector(pool)
    with progress(len(queries), f"Select by {pool.selector.name}", "patients") as advance:
        starts = [partial(module.select, pool, shared, query) for query in queries]
        selections = cast(list[Selection], drive(starts, scorer, in_flight, advance))
    for query, selection in zip(queries, selections, strict=True):
        _check(pool, query, selection)
    return selections


def _selector(pool: ExamplePool) -> Any:
    return importlib.import_module(f"ghar.envs.graphwalker.selectors.{pool.selector.name}")


def examples(pool: ExamplePool, selection: Selection, cost: SelectionCost, drop: float | None = None) -> Examples:
    """A selection as evidence."""
    gains = selection.gains or (None,) * len(selection.shots)
    patients = [pool.patients[row] for row in selection.shots]
    passages = tuple(
        Passage(example_text(patient.text, patient.answer).removesuffix(END), "example", -1, gain or 0.0, row)
        for patient, gain, row in zip(patients, gains, selection.shots, strict=True)
    )
    demonstrations = tuple(
        Demonstration(p.sample_id, p.text, p.label, gain, p.answer) for p, gain in zip(patients, gains, strict=True)
    )
    return Examples(passages, demonstrations, selection, cost, drop)


def earlier(demonstrations: Iterable[Demonstration], texts: bool = False) -> str:
    """Examples as text with their outcomes, "" for none, for any other system's prompts. texts: with summaries."""
    case_head, answer_head = ("Another text:", "Its summary:") if texts else ("Earlier patient:", "Outcome:")
    return "\n\n".join(f"{case_head}\n{case.text}\n{answer_head} {case.answer}" for case in demonstrations)


def _check(pool: ExamplePool, query: SelectionQuery, selection: Selection) -> None:
    shots = selection.shots
    is_repeated = len(different(shots, pool.subjects)) < len(shots)
    if is_repeated or len(shots) > pool.selector.k or not query.allowed[list(shots)].all():
        raise RuntimeError(f"selector {pool.selector.name} broke its contract for {query.patient.sample_id}: {shots}")


def _without_insides(selector: Name, engine: Engine) -> str | None:
    from ghar.envs.graphwalker.selectors import model_internals  # torch

    try:
        model_internals.model_of(engine)
    except BadInput as error:
        return f"{selector}: {error}"
    return None


def _spent(scorer: Scorer) -> np.ndarray:
    """What a scorer has done so far, as the four numbers of `SelectionCost`."""
    if not isinstance(scorer, EngineScorer):
        return np.zeros(4)
    tally = scorer.scores.tally if scorer.scores is not None else None
    scored = np.array([tally.prompts, tally.tokens, tally.scratch] if tally else [0, 0, 0])
    tokens = scorer.read_tokens + scorer.reply_tokens
    inside = np.array([scorer.read, tokens, tokens])
    return np.array([*(scored + inside), scorer.replies], dtype=float)
