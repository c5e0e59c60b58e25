"""From a configuration to the examples that a selector chooses for every test patient.

`prepare` reads, splits, encodes and builds the graph; `choose` plays the selector; `examples_of` gives its choices as
text, which may stand before the prompts of any other system (`envs.upstream.with_examples`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ghar.config import Config, Selector
from ghar.data.cohort import Cohort, Task
from ghar.data.readers.source import read_source
from ghar.data.tasks.samples import TimeSeriesSample
from ghar.data.tasks.series import SeriesTask, series_samples
from ghar.data.tasks.splits import Splits, split_stratified
from ghar.encoders.embeddings import Embeddings, embed, embed_texts
from ghar.encoders.embeddings import Name as EncoderName
from ghar.progress import progress
from ghar.selectors.drive import Scorer, drive
from ghar.selectors.graph import PatientGraph, build_graph
from ghar.selectors.prompt import Prompt, head_text, make_prompt, name_of, table
from ghar.selectors.protocol import Effort, Patient, Pool, Query, Selection, allowed_for, check_pool

if TYPE_CHECKING:
    from ghar.encoders.train import Training

METHODS = {"louvain": "louvain", "released": "released"}  # variant -> clustering; Leiden otherwise


@dataclass(frozen=True, eq=False)
class Cases:
    """Time series of one task, split, and encoded.

    found: vectors and predictions by the graph's encoder; words: by the text encoder. text_model: the latter's name.
    """

    config: Config
    selector: Selector
    cohort: Cohort
    task: Task
    splits: Splits[TimeSeriesSample]
    found: Embeddings
    words: Embeddings
    text_model: str

    @property
    def features(self) -> tuple[str, ...]:
        return self.splits.train[0].features


@dataclass(frozen=True, eq=False)
class Chosen:
    """What a selector chose for each query, in order; `pool` is what rows of `Selection.shots` mean."""

    pool: Pool
    queries: tuple[Query, ...]
    selections: tuple[Selection, ...]


def prepare(config: Config, training: Training | None = None) -> Cases:
    """Read, split and encode. BadInput names what is missing. training: of the encoder, as published by default."""
    selector = config.selector
    assert selector is not None  # ghar.configure asks for it
    cohort, task, samples = read_samples(config)
    cut = config.task
    splits = split_stratified(samples, cut.split, cut.split_seed)
    splits = Splits(splits.train[: cut.max_train], splits.valid[: cut.max_valid], splits.test[: cut.max_test])
    kind = config.retriever.kind
    text_model = "hashing" if kind in ("tfidf", "bm25") else kind  # those two make no vectors
    cache, encoder = Path(config.data.cache), selector.encoder
    if selector.variant == "no_ehr_emb":
        encoder = "text"
    encode = partial(embed, task=task, splits=splits, cache=cache, seed=config.seed, text_model=text_model)
    words = encode("text")
    found = words if encoder == "text" else encode(cast(EncoderName, encoder), training=training)
    return Cases(config, selector, cohort, task, splits, found, words, text_model)


def read_samples(config: Config) -> tuple[Cohort, Task, list[TimeSeriesSample]]:
    """Cohort and samples of task=series_...; the demo world gets charts."""
    cohort = read_source(config.data)
    name = cast(SeriesTask, config.task.name.removeprefix("series_"))
    return cohort, *series_samples(cohort, name, leakage=config.data.leakage)


def texts(cases: Cases) -> list[str]:
    """What prompts are made of, of the training patients alone: to train a tokenizer on."""
    return [head_text(cases.task, cases.features), *(table(sample) for sample in cases.splits.train)]


def tokenizer_names(cases: Cases) -> list[str]:
    """Words that prompts repeat: names of measurements and answers."""
    return [*(name_of(code) for code in cases.features), *cases.task.labels]


def make_pool(cases: Cases, tokenizer: Any, context: int, effort: Effort) -> tuple[Prompt, Pool, list[Query]]:
    """The prompt, the training patients and the test patients. BadInput for a context, or a pool, too small for k."""
    selector, splits = cases.selector, cases.splits
    prompt = make_prompt(cases.task, head_text(cases.task, cases.features), tokenizer, context, selector.k)

    def patients(samples: Sequence[TimeSeriesSample]) -> tuple[Patient, ...]:
        return tuple(prompt.patient(sample, _estimate(cases, sample)) for sample in samples)

    train = patients(splits.train)
    ids = [patient.sample_id for patient in train]
    vectors = cases.found.of(ids)
    pool = Pool(
        train,
        patients(splits.valid),
        cases.task.labels,
        cases.task.question,
        vectors,
        cases.words.of(ids),
        partial(embed_texts, model=cases.text_model),
        _graph(cases, vectors, ids) if selector.name == "graphwalker" else None,
        selector,
        effort,
        cases.config.seed,
    )
    return prompt, pool, [make_query(cases, pool, patient) for patient in patients(splits.test)]


def make_query(cases: Cases, pool: Pool, patient: Patient) -> Query:
    """A patient to choose for. BadInput where too few may be shown to it."""
    allowed = allowed_for(patient, pool.patients)
    if pool.selector.name != "zero_shot":
        check_pool(allowed, pool.selector.k, patient)
    [vector], [words] = cases.found.of([patient.sample_id]), cases.words.of([patient.sample_id])
    return Query(patient, vector, words, allowed)


def _graph(cases: Cases, vectors: np.ndarray, ids: Sequence[str]) -> PatientGraph:
    selector = cases.selector
    method: Any = METHODS.get(selector.variant, "leiden")
    return build_graph(vectors, ids, k=selector.k_g, method=method, seed=cases.config.seed)


def _estimate(cases: Cases, sample: TimeSeriesSample) -> str | None:
    """What the encoder predicts, for variant show_encoder: the probability of "yes", or the likeliest class."""
    if cases.selector.variant != "show_encoder":
        return None
    shares = cases.found.probabilities[cases.found.row_of[sample.sample_id]]
    return f"{shares[1]:.2f}" if len(shares) == 2 else cases.task.labels[int(shares.argmax())]


def choose(pool: Pool, queries: Sequence[Query], scorer: Scorer, in_flight: int) -> Chosen:
    """Play the selector that `selector.name` means for all queries, at most `in_flight` at once."""
    module = importlib.import_module(f"ghar.selectors.{pool.selector.name}")
    [shared] = drive([partial(module.prepare, pool)], scorer, 1)
    with progress(len(queries), f"Select by {pool.selector.name}") as advance:
        starts = [partial(module.select, pool, shared, query) for query in queries]
        selections = drive(starts, scorer, in_flight, advance)
    for query, selection in zip(queries, selections, strict=True):
        _check(pool, query, selection)
    return Chosen(pool, tuple(queries), tuple(selections))


def _check(pool: Pool, query: Query, selection: Selection) -> None:
    shots = selection.shots
    if len(set(shots)) < len(shots) or len(shots) > pool.selector.k or not query.allowed[list(shots)].all():
        raise RuntimeError(f"selector {pool.selector.name} broke its contract for {query.patient.sample_id}: {shots}")


def examples_of(chosen: Chosen) -> Mapping[str, str]:
    """Sample id -> its examples as text with their outcomes, "" for none, for other systems' prompts."""
    found = {}
    for query, selection in zip(chosen.queries, chosen.selections, strict=True):
        cases = [chosen.pool.patients[row] for row in selection.shots]
        parts = [f"Earlier patient:\n{case.text}\nOutcome: {chosen.pool.labels[case.label]}" for case in cases]
        found[query.patient.sample_id] = "\n\n".join(parts)
    return found

