"""What the demo needs and a real run does not: a teacher's knowledge, and a base model made on the spot.

A large language model brings reading, recall of common facts and the habit of combining them. The demo model gets
them here, before anything of the paper starts: it imitates a teacher on made-up patients, over a graph whose grades are
redrawn again and again. So it learns to read and to combine, and to recall the grades of common entities, but no
grade of a rare one, and its decisions (look up? which meta-paths? go on?) are those of an undecided teacher.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ghar.data.cohort import Sample, Visit
from ghar.envs.case import NOT_SHOWN, build_cases, topics_of
from ghar.envs.ghar.episode import AGENTS, GharEpisodes, play_ghar
from ghar.envs.ghar.teacher import TEXT_KINDS, Knowledge, ScriptedTeacher, TeacherErrors
from ghar.envs.play import PlayContext, play
from ghar.envs.real_patients import is_real, refuse
from ghar.envs.records import Records
from ghar.envs.rollout import Corpus, derive_seed
from ghar.envs.system import DemoPretraining, PretrainingTasks, Variant, words
from ghar.envs.worlds.severity import story
from ghar.envs.worlds.severity.vocabulary import tail_words
from ghar.envs.worlds.severity_grades import (
    RELATIONS,
    follows,
    label_rule,
    mean_labels,
    pointer_codes,
    topic_of,
    with_pointers,
)
from ghar.episode import Episode, Evidence, Passage, Retrieve, RetrieveFor
from ghar.kg.graph import KnowledgeGraph

TEACHER = TeacherErrors(flip=0.08, stray_path=0.45, missed_path=0.08, go_on=0.25, disorder=0.3, guess=0.03)
# The ablation system.planted_errors: two errors that outcome reward can mend and imitation cannot.
MISLED = replace(TEACHER, pain=0.9, misplaced=0.9)
UNDECIDED = TeacherErrors(
    flip=0.3, stray_path=0.5, missed_path=0.2, go_on=0.5, disorder=0.1, guess=0.0, pain=0.5, misplaced=0.5
)
WRONG, DOUBTED = 0.03, 0.3  # shares of common topics: the teacher has the grade wrong; looked up needlessly
SHARES = {  # of the base exercises, by decision: combining and copying names need the most practice
    "predict": 0.36, "rewrite": 0.24, "summarise": 0.13, "answer": 0.08, "retrieve": 0.05, "metapaths": 0.04,
    "continue": 0.04, "followup": 0.06,
}  # fmt: skip
PASSES = 4  # times the rarest kind of exercise, one a patient, is seen
POINTED = 0.3  # of made-up patients with each pointer to a further source
REDRAWN_AFTER = 1000  # made-up patients: other grades for the next ones, or the model would learn false facts
BASE_FORMAT = 6  # raise it when the exercises or their training change
PACKAGED = Path(__file__).parent / "base_models"  # the demo's; `python benchmarks/run.py base_model` makes it again
SEEN_OFTEN = 8  # times a topic must occur among real training patients for the teacher to know it
GRADE = re.compile(r"(grade|falling) \d (course|pain|a year)")


def teacher_knowledge(records: Records) -> Knowledge:
    """In the demo world: the true severities of common entities, a few of them wrong. For labels that do not follow
    from severities: the mean label of the other training patients with a topic, for topics seen often. BadInput for
    real patients, of whom no rule knows anything."""
    if is_real(records):
        refuse("system=ghar's teacher")
    return _knowledge(records, WRONG)


def base_knowledge(records: Records) -> Knowledge:
    """What the base model is given: the same without errors, as far as it is known."""
    return _knowledge(records, 0.0)


def _knowledge(records: Records, wrong: float) -> Knowledge:
    rng = np.random.default_rng(derive_seed(records.config.data.world_seed, "teacher"))
    top, world, names = len(records.task.labels) - 1, records.world, records.names
    if world is None or not follows(records.config.task.name):
        train, name_of = records.splits.train, records.name_of
        seen = [(sample.subject_id, topics_of(sample, name_of), sample.label) for sample in train]
        return mean_labels(seen, top, SEEN_OFTEN)
    grades = {}
    for code, tier in world.tier.items():
        if tier == "common" and code in names:
            grade = int(rng.integers(10)) if rng.random() < wrong else world.severity[code]
            grades[topic_of(code, names[code])] = grade
    doubted = frozenset(topic for topic in grades if rng.random() < DOUBTED)
    knowledge = Knowledge(grades, RELATIONS, label_rule(records.config.task.name), doubted)
    return with_pointers(knowledge, world, names)


@dataclass(frozen=True)
class RedrawnGrades:
    """The corpus with every stated grade replaced by a random one, a function of `seed`, the query and the rest of
    the passage alone: whatever grades the graph states, the same ones are shown. An edge read backwards states the
    same."""

    inner: Any
    seed: int

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        answers = self.inner.retrieve(requests)
        return [
            Evidence(tuple(replace(p, text=self._redraw(p, request.query)) for p in evidence.passages))
            for request, evidence in zip(requests, answers, strict=True)
        ]

    def _redraw(self, passage: Passage, query: str) -> str:
        whose = (passage.ident,) if passage.kind in TEXT_KINDS else ()  # rows and reports word alike what is not alike
        parts = (*sorted(GRADE.sub(r"\2", passage.text).split(" - ")), *whose)
        return GRADE.sub(rf"\1 {derive_seed(self.seed, query, *parts) % story.GRADES} \2", passage.text)


@dataclass(frozen=True)
class StandInCorpus:
    """The corpus for patients who are made up: what depends on the patient is that of a training patient whose record
    has what is asked about, drawn by sample and query; nothing where there is none."""

    inner: Any
    seed: int
    lenders: Mapping[str, Sequence[str]]  # sub-query -> samples

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        asked = [self._of_somebody(request) for request in requests]
        evidence = self.inner.retrieve([request for request in asked if request is not None])
        answers = iter(evidence)
        return [Evidence() if request is None else next(answers) for request in asked]

    def _of_somebody(self, request: Retrieve) -> Retrieve | None:
        if not isinstance(request, RetrieveFor):
            return request
        lenders = self.lenders.get(request.query, self.lenders[""])
        place = derive_seed(self.seed, request.query, request.sample_id) % max(1, len(lenders))
        return replace(request, sample_id=lenders[place]) if lenders else None


def lenders(records: Records) -> dict[str, list[str]]:
    """Training samples by what their newest visit can be asked about; all of them under ""."""
    by_topic: dict[str, list[str]] = defaultdict(list)
    for sample in records.splits.train:
        for topic in ("", *topics_of(sample, records.name_of)):
            by_topic[topic].append(sample.sample_id)
    return by_topic


def made_up_samples(
    records: Records, knowledge: Knowledge, count: int, seed: int
) -> tuple[list[Sample], dict[str, str]]:
    """Patients of random conditions and drugs, known topics and others of the graph; and their codes' names."""
    rng = np.random.default_rng(seed)
    graded_names: dict[str, list[str]] = {"disease": [], "drug": []}
    other: dict[str, list[str]] = {"disease": [], "drug": []}
    practised = _practised(records)
    for topic in knowledge.grades:
        kind, name = topic.split(" ", 1)
        graded_names[kind].append(name)
    for kind in graded_names:
        skip = set(graded_names[kind])
        nodes = [n.replace(";", ",") for n in _nodes_of_type(records.primekg, kind) if n not in skip]
        other[kind] = [n for n in nodes if n in practised] or nodes  # where there are none, any node's will do
    names: dict[str, str] = {}

    def draw(kind: str, pool: Sequence[str], n: int) -> tuple[str, ...]:
        picked: list[str] = [pool[int(i)] for i in rng.permutation(len(pool))[:n]]
        codes = tuple(f"{'DRUG' if kind == 'drug' else 'NODE'}/{name}" for name in picked)
        names.update(dict(zip(codes, picked, strict=True)))
        return codes

    pointed = [] if records.world is None else list(pointer_codes(records.world))
    names.update({code: records.names[code] for code in pointed})
    samples, credentialed = [], records.credentialed(records.cohort)
    for i in range(count):
        rare = rng.choice(["disease", "drug"], size=rng.choice(3, p=[0.3, 0.5, 0.2]))
        lists = {}
        for kind, most in (("disease", 4), ("drug", 3)):
            codes = draw(kind, graded_names[kind] or other[kind], int(rng.integers(1, most)))
            codes += draw(kind, other[kind], int((rare == kind).sum())) if other[kind] else ()
            lists[kind] = tuple(codes[j] for j in rng.permutation(len(codes)))
        when = datetime(2100, 1, 1)
        earlier = Visit(-1, when, draw("disease", graded_names["disease"] + other["disease"], int(rng.integers(2, 5))))
        conditions = lists["disease"] + tuple(code for code in pointed if rng.random() < POINTED)
        if pointed:
            conditions = tuple(conditions[int(j)] for j in rng.permutation(len(conditions)))
        newest = Visit(i, when, conditions, (), lists["drug"])
        history = (earlier, newest) if rng.random() < 0.5 else (newest,)
        samples.append(Sample(f"made-up-{i}", -1, i, when, history, 0, credentialed=credentialed))
    return samples, names


def _practised(records: Records) -> set[str]:
    """Names to practise on: those of the tail that no patient has, so that what the base learns of them is of no use
    for any patient. Of patients without a world their own names, whose spelling needs the practice."""
    world = records.world
    if world is None:
        return set(records.names.values())
    codes = world.rare_codes
    patient_codes = {codes[number] for column in ("rare_1", "rare_2") for number in world.truth[column].drop_nulls()}
    if world.further.any:
        patient_codes |= {codes[world.tail + number] for number in world.truth["chain"].drop_nulls()}
    names = dict(pl.read_csv(world.root / "entities.csv", glob=False).select("code", "name").iter_rows())
    return {names[code].lower() for code in codes if code not in patient_codes}


def _nodes_of_type(graph: KnowledgeGraph, kind: str) -> list[str]:
    if kind not in graph.types:
        return []
    return [graph.names[int(node)] for node in np.flatnonzero(graph.type == graph.types.index(kind))]


def practice(records: Records, episodes: GharEpisodes[Any], corpus: Corpus) -> DemoPretraining:
    """Exercises over the demo world.

    Their randomness is the world's: runs of different seeds start from one base, as they would from a downloaded one.
    """
    knowledge, config = base_knowledge(records), records.config
    key = (
        (BASE_FORMAT, asdict(UNDECIDED)),
        records.primekg.fingerprint,
        sorted(records.names.items()),
        sorted(knowledge.grades.items()),
        (records.task.name, records.task.labels, config.data.world_seed),
        (config.env.prompts, config.env.history_tokens, config.retriever.kind),
        episodes.spec,
        [path.text for path in episodes.metapaths],
    )
    return DemoPretraining(key, partial(_exercises, records, knowledge, episodes, corpus), PACKAGED)


def _exercises(
    records: Records, knowledge: Knowledge, episodes: GharEpisodes[Any], corpus: Corpus, total: int, seed: int
) -> PretrainingTasks:
    count = max(64, int(total * SHARES["predict"] / PASSES))
    samples, names = made_up_samples(records, knowledge, count, derive_seed(seed, "made-up"))
    env = records.config.env
    cases = build_cases(
        samples,
        records.task,
        names | dict(records.names),
        style=env.prompts,
        budget=env.history_tokens,
        count=words,
    )
    teacher = ScriptedTeacher(knowledge, UNDECIDED)
    variant, credentialed = Variant("base", spec=episodes), records.credentialed(records.cohort)
    stage = PlayContext(records.config, AGENTS, play_ghar, variant, corpus, credentialed)
    played: list[Episode] = []
    whose = StandInCorpus(corpus, derive_seed(seed, "lenders"), lenders(records)) if episodes.personal else corpus
    for start in range(0, count, REDRAWN_AFTER):
        redrawn = RedrawnGrades(whose, derive_seed(seed, "grades", start))
        part = cases[start : start + REDRAWN_AFTER]
        played += play(stage, part, teacher, seed=seed, corpus=redrawn, title="Base exercises")
    return PretrainingTasks(played, _token_names(records, knowledge, episodes), SHARES, copying=True)


def _token_names(records: Records, knowledge: Knowledge, episodes: GharEpisodes[Any]) -> list[str]:
    """Names worth a token of their own: the topics', the cohort's, the menu's, the grades, then the graph's."""
    grades = [f"grade {g} {what}" for what in ("course", "pain") for g in range(story.GRADES)]
    topics = [topic.split(" ", 1)[1] for topic in knowledge.grades]
    menu = [part for path in episodes.metapaths for part in (path.text, path.label)]
    codes = records.cohort.codes["code"]
    cohort = [records.names[code] for code in codes if not code.startswith(NOT_SHOWN)]
    names = [*grades, *topics, *menu, *cohort, *records.primekg.names]
    if records.world is None:
        return names
    # Of the tail's names the words: a name that is met once cannot be learned, a pair of words that recur can.
    words = tail_words(records.world.tail)
    return [*words, *(name for name in names if not set(words).intersection(name.split()))]
