"""What every demonstration selector sees, asks for and returns.

A selector is a module of this folder with two generators. `prepare(pool)` is played once and returns what all patients
share (None for most); `select(pool, shared, query)` is played for each patient and returns a `Selection`. Both yield
asks and are resumed with the answers, so they never call a model themselves: `selectors.drive` plays
many at once against one engine, and what a patient is given does not depend on the others.

Rules of all selectors: equal values are decided by the lower row of the pool; a patient is never shown itself, nor
anyone it shares a subject or all its measurements with (`SelectionQuery.allowed`), nor two rows of one other subject
(`ExamplePool.best`): the paper has one record of each patient, a pool may hold several stays, or hours, of one. Sets
that are measured and not shown (`subsets`) may. The order of `Selection.shots` is the order of the prompt, best first,
the patient last.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from ghar.errors import BadInput

if TYPE_CHECKING:
    from ghar.data.tasks.samples import TimeSeries
    from ghar.envs.graphwalker.selectors.graph import PatientGraph

Shots = tuple[int, ...]  # rows of the pool, in the order of the prompt
Name = Literal[
    "graphwalker", "zero_shot", "random_choice", "semantic_emb", "ehr_emb", "time_series",
    "spell", "influence", "ids", "cone", "lms3", "delta_knn", "gradsel", "rare_items",
]  # modules of this folder  # fmt: skip
EVERY: tuple[Name, ...] = get_args(Name)
Search = Literal[
    "paper", "released", "no_ehr_emb", "no_cohorts", "no_search", "no_early_stop", "louvain", "show_encoder"
]  # fmt: skip


@dataclass(frozen=True)
class Selector:
    """How examples are chosen: by which module, at most `k` of them, and the walk's numbers (paper: Appendix G).

    k_g: neighbours in the patient graph. k_c, k_a: cohorts a walk starts from, and anchors in each of them.
    """

    name: Name = "graphwalker"
    k: int = 3
    k_g: int = 8
    k_c: int = 3
    k_a: int = 3
    variant: Search = "paper"
    utility: Literal["entropy", "self_rated"] = "entropy"


@dataclass(frozen=True, eq=False)
class Patient:
    """One case. text: its table of measurements. example, asked: token ids of the table as an example with its answer,
    and as the patient in question, up to the place of the answer. series: None where it is no time series. dropped:
    oldest steps (visits and codes, words of a question or a text) left out to fit. answer: in words, as examples show
    it: the label's, or the summary of a text. answer_ids: token ids of the summary in the place of the answer, () for a
    label, whose ids the prompt has."""

    sample_id: str
    subject_id: int
    label: int
    text: str
    example: tuple[int, ...]
    asked: tuple[int, ...]
    series: TimeSeries | None
    dropped: int = 0
    answer: str = field(kw_only=True)
    answer_ids: tuple[int, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, eq=False)
class SelectionQuery:
    """A patient to choose examples for. vector, words: embeddings by the EHR and the text encoder. allowed: bool [n],
    the patients of the pool that may be shown."""

    patient: Patient
    vector: np.ndarray
    words: np.ndarray
    allowed: np.ndarray


@dataclass(frozen=True)
class Effort:
    """Prompts that a selector may have scored, a prompt with each possible label counted by itself.

    each: for one patient, None where a selector's own numbers decide. shared: once, for what all patients share.
    """

    each: int | None = None
    shared: int = 2000


@dataclass(frozen=True, eq=False)
class ExamplePool:
    """The training patients, and some of validation for selectors that measure on them.

    vectors [n, d], words [n, e]: embeddings, rows as `patients`. embed: the text encoder. graph: None for selectors
    that do not walk. selector: how to select. effort: how much to measure. question: the task as it is put to a model.
    texts: whether cases are texts whose answers are their summaries. fits: whether a prompt and a reply of so many
    tokens fit into the context of the model.
    """

    patients: tuple[Patient, ...]
    valid: tuple[Patient, ...]
    labels: tuple[str, ...]
    question: str
    vectors: np.ndarray
    words: np.ndarray
    embed: Callable[[Sequence[str]], np.ndarray]
    graph: PatientGraph | None
    selector: Selector
    effort: Effort
    seed: int
    texts: bool = False
    fits: Callable[[str, int], bool] = lambda prompt, tokens: True

    @cached_property
    def subjects(self) -> np.ndarray:
        """int64 [n]: the subject of each row, of which a prompt shows one row at most."""
        return np.array([patient.subject_id for patient in self.patients], dtype=np.int64)

    def best(self, values: np.ndarray, allowed: np.ndarray, count: int) -> Shots:
        """Rows of the `count` highest values among the allowed ones, the highest of each subject alone."""
        ranked = best(values, allowed, len(values))
        return different(ranked, self.subjects)[:count]

    def longest(self, prompt: Callable[[Shots], str], shots: Shots, tokens: int) -> str:
        """The prompt with all of `shots`, or with as many of the first ones as fit beside a reply of `tokens`."""
        while shots and not self.fits(prompt(shots), tokens):
            shots = shots[:-1]
        return prompt(shots)


@dataclass(frozen=True, eq=False)
class Entropy:
    """H(x | S) of the patient's text for each set: mean -log p of its tokens in nats. Answer: [sets] floats."""

    patient: Patient
    sets: tuple[Shots, ...]


@dataclass(frozen=True, eq=False)
class Labels:
    """log p(label | S, x) for each set, normalised over the labels. Answer: float64 [sets, labels].

    Of a patient with `answer_ids` the mean log p of a token of its own answer. Answer: float64 [sets, 1].
    """

    patient: Patient
    sets: tuple[Shots, ...]


@dataclass(frozen=True)
class Perplexity:
    """Mean -log p of each example's own tokens, in nats. Answer: [shots] floats."""

    shots: Shots


@dataclass(frozen=True)
class Generate:
    """A free or restricted reply to each prompt. Answer: [prompts] texts."""

    prompts: tuple[str, ...]
    max_tokens: int
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class HiddenStates:
    """Inside the model, for each patient's question: last hidden state h [n, d], W_k'W_q h [n, d], |W_v h| [n]."""

    patients: tuple[Patient, ...]


@dataclass(frozen=True, eq=False)
class InfluenceGradients:
    """First-order effect on log p(label | anchor, x) of exchanging each example of `anchor` for each of `shots`; of a
    patient with `answer_ids` on the mean log p of a token of its own answer.

    Answer: (log p at the anchor, float64 [anchor's places, shots]).
    """

    patient: Patient
    anchor: Shots
    shots: Shots


Ask = Entropy | Labels | Perplexity | Generate | HiddenStates | InfluenceGradients


@dataclass(frozen=True)
class WalkStep:
    """One pick of a walk: the row, its gain in nats, and what the frontier held before it."""

    row: int
    gain: float
    frontier: Shots


@dataclass(frozen=True)
class Selection:
    """The examples for one patient. gains: of each pick where the selector has one. scored: prompts it had scored.
    anchors, steps: of a walk, for its picture."""

    shots: Shots
    gains: tuple[float, ...] = ()
    scored: int = 0
    anchors: Shots = ()
    steps: tuple[WalkStep, ...] = field(default=(), compare=False)


Play = Generator[Ask, Any, Any]
Walk = Generator[Ask, Any, Selection]


def nothing_shared(pool: ExamplePool) -> Generator[Ask, Any, None]:
    """`prepare` of selectors whose patients share nothing."""
    return
    yield  # makes it a generator


def best(values: np.ndarray, allowed: np.ndarray, count: int) -> Shots:
    """Rows of the `count` highest values among the allowed ones; equal ones by the lower row. NaN is never chosen."""
    rows = np.flatnonzero(allowed & ~np.isnan(values))
    order = np.argsort(-values[rows], kind="stable")[:count]
    return tuple(rows[order].tolist())


def different(rows: Sequence[int], subjects: np.ndarray) -> Shots:
    """The first of `rows` of each subject, in their order."""
    ranked = np.asarray(rows, dtype=np.int64)
    _, firsts = np.unique(subjects[ranked], return_index=True)
    return tuple(ranked[np.sort(firsts)].tolist())


def cosines(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """float64 [n]: cosine of each row with `vector`; 0 where one of them is all zero."""
    rows, one = matrix.astype(np.float64), vector.astype(np.float64)
    scale = np.linalg.norm(rows, axis=1) * np.linalg.norm(one)
    return np.divide(rows @ one, scale, out=np.zeros(len(rows)), where=scale > 0)


def allowed_for(patient: Patient, pool: Sequence[Patient]) -> np.ndarray:
    """bool [n]: who of the pool may be shown to `patient`: no one of its subject, no one with the same measurements."""
    own = fingerprint(patient)
    others = (other.subject_id != patient.subject_id and fingerprint(other) != own for other in pool)
    return np.fromiter(others, dtype=bool, count=len(pool))


def check_pool(patients: int, wanted: int, patient: Patient) -> None:
    """BadInput where fewer patients may be shown than are wanted."""
    if patients < wanted:
        raise BadInput(
            f"system.k={wanted}, but only {patients} training patients may be shown to sample "
            f"{patient.sample_id} (left out: its own stays, copies of it, with data.earlier later outcomes too): "
            "lower system.k or use more patients."
        )


def fingerprint(patient: Patient) -> bytes:
    """Equal for patients with the same measurements, or the same text."""
    series = patient.series
    if series is None:
        return patient.text.encode()
    return b"|".join((series.hours.tobytes(), series.values.tobytes()))
