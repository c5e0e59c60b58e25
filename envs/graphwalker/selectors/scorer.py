"""Answers what selectors ask, with one language model; all that is asked at once becomes one batch.

`drive` plays many selectors at once against one scorer. `entropy_drops` measures by how much a selector's examples
lower the entropy of a patient's text (GraphWalker, Appendix F, Eqs. 13 and 14).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from scipy.special import log_softmax

from ghar.envs.generators import Returned, resume
from ghar.envs.graphwalker.selectors.prompt import Prompt
from ghar.envs.graphwalker.selectors.protocol import (
    Ask,
    Entropy,
    Generate,
    HiddenStates,
    InfluenceGradients,
    Labels,
    Patient,
    Perplexity,
    Play,
    Shots,
)
from ghar.envs.graphwalker.selectors.search import gain_of
from ghar.errors import BadInput
from ghar.llm.engine import CachingEngine, Engine, Request, can_score, mark_of

if TYPE_CHECKING:
    from ghar.envs.graphwalker.prefix import CachedScorer, Path, PlainScorer, PrefixScorer

KEEP = 40_000  # tokens of beginnings whose keys and values engine hf keeps


class EngineScorer:
    """An engine, the prompt, and the pool that rows of `Shots` mean.

    scores: with shared beginnings where the engine can. replies, reply_tokens: how many were generated, and what they
    and their prompts have. read, read_tokens: prompts that were looked into, whole, and their tokens.
    """

    def __init__(self, engine: Engine, prompt: Prompt, pool: Sequence[Patient], keep: int = KEEP):
        self.engine = engine
        self.prompt = prompt
        self.pool = pool
        self.scores = best_scorer(engine, keep)
        self.replies = self.reply_tokens = self.read = self.read_tokens = 0

    def answer(self, asks: Sequence[Ask]) -> list[Any]:
        """Answers in order. BadInput when the engine cannot do what is asked, naming what can."""
        scored = [i for i, ask in enumerate(asks) if isinstance(ask, Entropy | Labels | Perplexity)]
        spoken = [i for i, ask in enumerate(asks) if isinstance(ask, Generate)]
        inside = [i for i, ask in enumerate(asks) if isinstance(ask, HiddenStates | InfluenceGradients)]
        answers = dict(zip(scored, self._scored([asks[i] for i in scored]), strict=True))
        answers |= zip(spoken, self._spoken([asks[i] for i in spoken]), strict=True)
        answers |= {i: self._inside(asks[i]) for i in inside}
        return [answers[i] for i in range(len(asks))]

    def path(self, shots: Shots) -> Path:
        """The pieces before the patient."""
        return (self.prompt.head, *(self.pool[row].example for row in shots))

    def _scored(self, asks: Sequence[Any]) -> list[Any]:
        parts = [self._paths(ask) for ask in asks]
        flat = [path for part in parts for path in part]
        if flat and self.scores is None:
            raise BadInput(
                "This engine gives no log-probabilities, which entropy, perplexity and label probabilities are made "
                "of: set system.utility=self_rated (GraphWalker's black-box variant), or choose engine=hf or "
                "engine=vllm."
            )
        scores = iter(self.scores.score(flat) if self.scores is not None else [])
        return [self._read(ask, [next(scores) for _ in part]) for ask, part in zip(asks, parts, strict=True)]

    def _paths(self, ask: Entropy | Labels | Perplexity) -> list[Path]:
        if isinstance(ask, Entropy):
            return [(*self.path(shots), ask.patient.asked) for shots in ask.sets]
        if isinstance(ask, Perplexity):
            return [self.path((row,)) for row in ask.shots]
        before = [(*self.path(shots), ask.patient.asked) for shots in ask.sets]
        close = (self.prompt.close,) if self.prompt.close else ()
        answers = (ask.patient.answer_ids,) if ask.patient.answer_ids else self.prompt.answers
        return [(*path, *close, answer) for path in before for answer in answers]

    def _read(self, ask: Entropy | Labels | Perplexity, scores: Sequence[tuple[float, ...]]) -> Any:
        if isinstance(ask, Labels) and ask.patient.answer_ids:
            return np.array([[np.mean(row)] for row in scores])
        if isinstance(ask, Labels):
            sums = np.array([sum(row) for row in scores]).reshape(len(ask.sets), len(self.prompt.answers))
            return log_softmax(sums, axis=1)
        return [-float(np.mean(row)) for row in scores]

    def _spoken(self, asks: Sequence[Any]) -> list[list[str]]:
        requests = [
            Request(text, ask.max_tokens, ask.choices, seed=0, temperature=0, credentialed=mark_of(self.engine))
            for ask in asks
            for text in ask.prompts
        ]
        self.replies += len(requests)
        completions = self.engine.generate(requests) if requests else []
        self.reply_tokens += sum(sum(one.tokens) for one in completions)
        replies = iter(completions)
        return [[next(replies).text for _ in ask.prompts] for ask in asks]

    def _inside(self, ask: Any) -> Any:
        from ghar.envs.graphwalker.selectors import model_internals  # torch

        model = model_internals.model_of(self.engine)
        if isinstance(ask, HiddenStates):
            head, close = self.prompt.head, self.prompt.close
            prompts = [(*head, *patient.asked, *close) for patient in ask.patients]
            self._count_inside(prompts)
            return model_internals.states(model, prompts)
        asked = (*ask.patient.asked, *self.prompt.close)
        pieces = [self.prompt.head, *(self.pool[row].example for row in ask.anchor), asked]
        own, shots = ask.patient.answer_ids, [self.pool[row].example for row in ask.shots]
        answer = own or self.prompt.answers[ask.patient.label]
        self._count_inside([[token for piece in (*pieces, answer) for token in piece]])
        value, change = model_internals.slopes(model, pieces, answer, shots)
        return (value / len(own), change / len(own)) if own else (value, change)

    def _count_inside(self, prompts: Sequence[Sequence[int]]) -> None:
        self.read += len(prompts)
        self.read_tokens += sum(map(len, prompts))


def best_scorer(engine: Engine, keep: int) -> PrefixScorer | CachedScorer | PlainScorer | None:
    """Shared beginnings once where the engine can, plain scores otherwise, None without log-probabilities."""
    if not can_score(engine):
        return None
    from ghar.envs.graphwalker.prefix import CachedScorer, PlainScorer, PrefixScorer
    from ghar.llm.hf import HFEngine

    if isinstance(engine, HFEngine):
        return PrefixScorer(engine, keep)
    return CachedScorer(engine) if isinstance(engine, CachingEngine) else PlainScorer(engine)


class Scorer(Protocol):
    """Answers asks in order; an answer depends on its ask alone."""

    def answer(self, asks: Sequence[Ask]) -> list[Any]: ...


def drive(
    starts: Sequence[Callable[[], Play]], scorer: Scorer, in_flight: int, on_done: Callable[[], None] = lambda: None
) -> list[Any]:
    """What each generator returns, in order; at most `in_flight` of them are under way at once."""
    results: dict[int, Any] = {}
    live: dict[int, tuple[Play, Ask]] = {}
    waiting = list(enumerate(starts))[::-1]

    def go_on(number: int, play: Play, answer: Any) -> None:
        asked = resume(play, answer)
        if not isinstance(asked, Returned):
            live[number] = play, asked
            return
        live.pop(number, None)
        results[number] = asked.value
        on_done()

    while waiting or live:
        while waiting and len(live) < in_flight:
            number, start = waiting.pop()
            go_on(number, start(), None)
        if not live:
            continue
        asked = list(live.items())
        for (number, (play, _)), answer in zip(asked, scorer.answer([ask for _, (_, ask) in asked]), strict=True):
            go_on(number, play, answer)
    return [results[number] for number in range(len(starts))]


def entropy_drops(chosen: Sequence[tuple[Patient, Shots]], scorer: Scorer, in_flight: int) -> list[float]:
    """Compute H(x | no example) - H(x | S) of each patient x and its examples S, in nats a token.

    Both are cross-entropies of the patient's own text, as the walk measures them. At most `in_flight` patients at once.
    """
    return drive([partial(_drop, patient, shots) for patient, shots in chosen], scorer, in_flight)


def _drop(patient: Patient, shots: Shots) -> Generator[Ask, Any, float]:
    without, with_examples = yield Entropy(patient, ((), shots))
    return gain_of(without, with_examples)
