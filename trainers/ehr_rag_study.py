"""EHR-RAG from a cohort to what its methods need: cases, splits, event stores, the corpus.

A MEDS folder may bring a benchmark's own labels, as labels/<task>.parquet or a folder labels/<task>; then its
metadata/subject_splits.parquet cuts the patients, where it has one. Otherwise labels are counted and patients drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, cast

import polars as pl

from envs.ehr_rag.episode import AGENTS, EhrRagEpisodes, EhrRagSpec, EventCase, Method
from envs.ehr_rag.rule import RuleReader, fit_rules
from envs.rollout import Job, rollout
from ghar.config import Config, EhrRag
from ghar.data.cohort import Cohort, Task
from ghar.data.readers.meds import read_labels, read_subject_splits
from ghar.data.readers.source import read_source
from ghar.data.tasks.cards import CARDS
from ghar.data.tasks.ehrshot import TASKS, EhrshotTask, ehrshot_labels, label_indices
from ghar.data.tasks.splits import Splits, split_as_given, split_by_patient
from ghar.episode import Episode
from ghar.errors import BadInput
from ghar.llm.policy import Policy
from ghar.progress import progress
from ghar.retrieval.encoders import Encoder, load_encoder
from ghar.retrieval.ether import EtherSpec, EventCorpus
from ghar.retrieval.event_build import build_event_store
from ghar.retrieval.event_store import EventStore, Layout, Record

ENCODED = 256  # chunks a sentence encoder sees at once
LINEAR = ("counts", "embeddings")  # methods that ask nobody
APART = {"ehr_rag", "no_air", "no_der"}  # methods whose numbers are trajectories
SEARCHED = {"no_ether", "rag", "uniform", "react"}  # methods that look for chunks of all events


@dataclass(frozen=True, eq=False)
class EventStudy:
    """One of EHRSHOT's tasks on one cohort. counts: what was read and left out, for the report."""

    config: Config
    ehr_rag: EhrRag
    cohort: Cohort
    task: Task
    splits: Splits[EventCase]
    corpus: EventCorpus
    counts: dict[str, int]

    def episodes(self, method: Method, count: Callable[[str], int], tokens: int) -> EhrRagEpisodes:
        """Episodes of a method. tokens: the budget of evidence in a prompt, as `count` counts it."""
        ehr_rag, env = self.ehr_rag, self.config.env
        coarse, keep, _ = ehr_rag.indicators
        whole = -(-ehr_rag.budget[0] // ehr_rag.chunking[0])
        spec = EhrRagSpec(
            env.prompts, method, env.max_iterations, ehr_rag.chunks[1], coarse, keep, whole, ehr_rag.budget[0], tokens
        )
        return EhrRagEpisodes(spec, count)

    def records(self, cases: Sequence[EventCase], *, apart: bool) -> Iterator[Record]:
        """The records of some cases one by one, with numbers apart or with every event as a row."""
        store = self.corpus.apart if apart else self.corpus.whole
        assert store is not None  # `prepare` builds the stores that the methods need
        return (store.record(case.subject_id, case.prediction_time) for case in cases)

    def rule(self) -> RuleReader:
        """The fixed rule, fitted to the training patients."""
        train = self.splits.train
        labels = [case.label for case in train]
        records = self.records(train, apart=True)
        return RuleReader(fit_rules(records, labels, len(self.task.labels), self.cohort.names()))


def section(config: Config) -> EhrRag:
    """The section `ehr_rag`, which policy=ehr_rag sets."""
    if config.ehr_rag is None:
        raise BadInput("The section ehr_rag is null: choose policy=ehr_rag.")
    return config.ehr_rag


def prepare(config: Config) -> EventStudy:
    """Read the events, count the labels, split by patient, build the stores. BadInput names what does not fit."""
    ehr_rag, cohort = section(config), read_source(config.data)
    name = cast(EhrshotTask, config.task.name)
    given = _given_labels(config, name)
    labels, left_out = ehrshot_labels(cohort, name) if given is None else (given, {})
    if labels.is_empty():
        raise BadInput(f"Task {name} has no sample in the {cohort.name}: it needs more or longer-followed patients.")
    encoder = load_encoder(config.retriever.kind, ENCODED)
    needed = set(ehr_rag.methods)
    apart = whole = None
    if needed & APART or ehr_rag.answers == "scripted":
        apart = _store(config, cohort, encoder, apart=True)
    if needed - APART - {"embeddings"}:
        whole = _store(config, cohort, encoder if needed & SEARCHED else None, apart=False)
    facts = apart or whole
    cases = []
    for place, (subject, at, label) in enumerate(labels.iter_rows()):
        text = "; ".join(facts.record(subject, at).facts) if facts is not None else ""
        sample_id = f"{name}-{subject}-{place}"
        cases.append(EventCase(sample_id, subject, place, text, at, TASKS[name], CARDS[name], label))
    keys = [(case.subject_id, case.prediction_time) for case in cases]
    task = config.task
    if given is not None and _splits_file(config).exists():
        splits = split_as_given(cases, read_subject_splits(Path(config.data.root or "")))
    else:
        splits = split_by_patient(cases, task.split, task.split_seed)
    splits = Splits(splits.train[: task.max_train], splits.valid[: task.max_valid], splits.test[: task.max_test])
    recent, early = ehr_rag.window_days
    spec = EtherSpec(ehr_rag.alpha, recent, early, ehr_rag.chunks[0], ehr_rag.indicators[2])
    corpus = EventCorpus(keys, spec, encoder, apart, whole, config.seed)
    counts = {"patients": labels["subject_id"].n_unique(), "samples": len(cases), "test samples": len(splits.test)}
    counts |= {f"left out, {rule}": n for rule, n in left_out.items()}
    counts |= {"labels that came with the data": labels.height} if given is not None else {}
    if facts is not None:
        records = (facts.record(*key) for key in keys)
        counts["samples without an earlier event"] = sum(not r.rows and not r.indicators for r in records)
    return EventStudy(config, ehr_rag, cohort, TASKS[name], splits, corpus, counts)


def _given_labels(config: Config, name: EhrshotTask) -> pl.DataFrame | None:
    """The labels that lie beside a MEDS folder's data, None where there are none."""
    if config.data.name != "meds" or config.data.root is None:
        return None
    folder = Path(config.data.root) / "labels"
    found = [path for path in (folder / f"{name}.parquet", folder / name) if path.exists()]
    return label_indices(read_labels(found[0]), TASKS[name]) if found else None


def _splits_file(config: Config) -> Path:
    return Path(config.data.root or "") / "metadata" / "subject_splits.parquet"


def _store(config: Config, cohort: Cohort, encoder: Encoder | None, *, apart: bool) -> EventStore:
    size, overlap = section(config).chunking
    clock: Literal["time", "recorded"] = "recorded" if config.data.leakage == "strict" else "time"
    return build_event_store(cohort, Path(config.data.cache) / "stores", encoder, Layout(size, overlap, apart, clock))


def play_cases(
    study: EventStudy, cases: Sequence[EventCase], policy: Policy, episodes: EhrRagEpisodes, *, seed: int, title: str
) -> list[Episode]:
    """One episode a case, in their order."""
    jobs = [Job(case.sample_id, 0, partial(episodes.episode, case)) for case in cases]
    with progress(len(jobs), title) as advance:
        return rollout(
            jobs,
            dict.fromkeys(AGENTS, policy),
            study.corpus,
            seed=seed,
            in_flight=study.config.env.in_flight,
            on_done=advance,
            steady=study.config.engine.kind == "hf",  # look-ups are short here
        )
