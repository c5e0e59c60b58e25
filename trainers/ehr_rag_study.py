"""EHR-RAG from a cohort to what its methods need: cases, splits, event stores, the corpus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, cast

from envs.ehr_rag import AGENTS, EhrRagEpisodes, EhrRagSpec, EventCase, Method
from envs.ehr_rag_rules import RuleReader, fit_rules
from envs.rollout import Job, rollout
from ghar.config import Config, EhrRag
from ghar.data.cohort import Cohort, Task
from ghar.data.source import read_source
from ghar.data.splits import Splits, split_by_patient
from ghar.data.task_cards import CARDS
from ghar.data.tasks_ehrshot import TASKS, EhrshotTask, ehrshot_labels
from ghar.episode import Episode
from ghar.errors import BadInput
from ghar.llm.policy import Policy
from ghar.progress import progress
from ghar.retrieval.encoders import Encoder, load_encoder
from ghar.retrieval.ether import EtherSpec, EventCorpus, View
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
    own: EhrRag
    cohort: Cohort
    task: Task
    splits: Splits[EventCase]
    corpus: EventCorpus
    counts: dict[str, int]

    def episodes(self, method: Method, count: Callable[[str], int], tokens: int) -> EhrRagEpisodes:
        """Episodes of a method. tokens: the budget of evidence in a prompt, as `count` counts it."""
        own, env = self.own, self.config.env
        coarse, keep, _ = own.indicators
        whole = -(-own.budget[0] // own.chunking[0])
        spec = EhrRagSpec(
            env.prompts, method, env.max_iterations, own.chunks[1], coarse, keep, whole, own.budget[0], tokens
        )
        return EhrRagEpisodes(spec, count)

    def records(self, cases: Sequence[EventCase], view: View) -> list[Record]:
        """The records of some cases, in the store that the view reads."""
        return [self.corpus.record(case.place, view) for case in cases]

    def rule(self) -> RuleReader:
        """The fixed rule, fitted to the training patients."""
        train = self.splits.train
        labels = [case.label for case in train]
        records = self.records(train, "chunks")
        return RuleReader(fit_rules(records, labels, len(self.task.labels), self.cohort.names()))


def section(config: Config) -> EhrRag:
    """The section `ehr_rag`, which policy=ehr_rag sets."""
    if config.ehr_rag is None:
        raise BadInput("The section ehr_rag is null: choose policy=ehr_rag.")
    return config.ehr_rag


def prepare(config: Config) -> EventStudy:
    """Read the events, count the labels, split by patient, build the stores. BadInput names what does not fit."""
    own, cohort = section(config), read_source(config.data)
    name = cast(EhrshotTask, config.task.name)
    labels, left_out = ehrshot_labels(cohort, name)
    if labels.is_empty():
        raise BadInput(f"Task {name} has no sample in the {cohort.name}: it needs more or longer-followed patients.")
    encoder = load_encoder(config.retriever.kind, ENCODED)
    needed = set(own.methods)
    apart = whole = None
    if needed & APART or own.answers == "scripted":
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
    splits = split_by_patient(cases, config.task.split, config.task.split_seed)
    task = config.task
    splits = Splits(splits.train[: task.max_train], splits.valid[: task.max_valid], splits.test[: task.max_test])
    recent, early = own.window_days
    spec = EtherSpec(own.alpha, recent, early, own.chunks[0], own.indicators[2])
    corpus = EventCorpus(keys, spec, encoder, apart, whole, config.seed)
    counts = {"patients": labels["subject_id"].n_unique(), "samples": len(cases), "test samples": len(splits.test)}
    counts |= {f"left out, {rule}": n for rule, n in left_out.items()}
    if facts is not None:
        view: View = "chunks" if apart is not None else "newest"
        empty = sum(not record.rows and not record.indicators for record in map(partial(_record, corpus, view), cases))
        counts["samples without an earlier event"] = empty
    return EventStudy(config, own, cohort, TASKS[name], splits, corpus, counts)


def _record(corpus: EventCorpus, view: View, case: EventCase) -> Record:
    return corpus.record(case.place, view)


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
