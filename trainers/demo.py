"""What the demo needs and a real run does not: a teacher's knowledge, and a base model made on the spot.

A large language model brings reading, recall of common facts and the habit of combining them. The demo model gets
them here, before anything of the paper starts: it imitates a teacher on made-up patients, over a graph whose grades are
redrawn again and again. So it learns to read and to combine, and to recall the grades of common entities, but no
grade of a rare one, and its decisions (look up? which meta-paths? go on?) are those of an undecided teacher.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np

from envs.case import Case
from envs.ghar.knowledge import RELATIONS, label_rule, topic_of
from envs.ghar.teacher import Habits, Knowledge, ScriptedTeacher
from envs.rollout import derive_seed
from ghar.data.cohort import Sample, Visit
from ghar.data.demo import story
from ghar.episode import Act, Episode, Evidence, Retrieve
from ghar.llm.demo_model import build_model, build_tokenizer
from ghar.progress import track
from trainers.play import play, tokenised
from trainers.sft.run import Pair, SFTSettings, run_sft
from trainers.study import Study

TEACHER = Habits(flip=0.08, stray_path=0.45, missed_path=0.08, go_on=0.65, disorder=0.3, guess=0.03)
UNDECIDED = Habits(flip=0.3, stray_path=0.5, missed_path=0.2, go_on=0.5, disorder=0.1, guess=0.0)
WRONG, DOUBTED = 0.03, 0.3  # shares of common topics: the teacher has the grade wrong; looked up needlessly
SHARES = {  # of the base exercises, by decision: combining and copying names need the most practice
    "predict": 0.36, "rewrite": 0.24, "summarise": 0.13, "answer": 0.08, "retrieve": 0.05, "metapaths": 0.04,
    "continue": 0.04, "followup": 0.06,
}  # fmt: skip
PASSES = 4  # times the rarest kind of exercise, one a patient, is seen
REDRAWN_AFTER = 1000  # made-up patients: other grades for the next ones, or the model would learn false facts
BASE_FORMAT = 4  # raise it when the exercises or their training change
SEEN_OFTEN = 8  # times a topic must occur among real training patients for the teacher to know it
GRADE = re.compile(r"grade \d course")


def teacher_knowledge(study: Study, train: Sequence[Case]) -> Knowledge:
    """In the demo world: the true severities of common entities, a few of them wrong. For real patients, where no
    truth is at hand: the mean label of the training patients with a topic, for topics seen often."""
    return _knowledge(study, train, WRONG)


def base_knowledge(study: Study, train: Sequence[Case]) -> Knowledge:
    """What the base model is given: the same without errors, as far as it is known."""
    return _knowledge(study, train, 0.0)


def _knowledge(study: Study, train: Sequence[Case], wrong: float) -> Knowledge:
    rng = np.random.default_rng(derive_seed(study.config.data.world_seed, "teacher"))
    top = len(study.task.labels) - 1
    if study.world is None:
        grades = _mean_labels(train, top)
        return Knowledge(grades, RELATIONS, lambda grade: round(grade * top / 9))
    world = study.world
    grades = {}
    for code, tier in world.tier.items():
        if tier == "common" and code in study.names:
            grade = int(rng.integers(10)) if rng.random() < wrong else world.severity[code]
            grades[topic_of(code, study.names[code])] = grade
    doubted = frozenset(topic for topic in grades if rng.random() < DOUBTED)
    return Knowledge(grades, RELATIONS, label_rule(study.config.task.name), doubted)


def _mean_labels(train: Sequence[Case], top: int) -> dict[str, int]:
    labels = defaultdict(list)
    for case in train:
        for topic in case.topics:
            labels[topic].append(case.label)
    return {t: round(float(np.mean(v)) * 9 / top) for t, v in labels.items() if len(v) >= SEEN_OFTEN}


@dataclass(frozen=True)
class RedrawnGrades:
    """The corpus with every stated grade replaced by a random one, a function of `seed`, the query and the rest of
    the passage alone: whatever grades the graph states, the same ones are shown."""

    inner: Any
    seed: int

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        found = self.inner.retrieve(requests)
        return [
            Evidence(tuple(replace(p, text=self._redraw(p.text, request.query)) for p in evidence.passages))
            for request, evidence in zip(requests, found, strict=True)
        ]

    def _redraw(self, text: str, query: str) -> str:
        without = GRADE.sub("", text)
        return GRADE.sub(f"grade {derive_seed(self.seed, query, without) % story.GRADES} course", text)


def made_up_samples(study: Study, knowledge: Knowledge, count: int, seed: int) -> tuple[list[Sample], dict[str, str]]:
    """Patients of random conditions and drugs, known topics and others of the graph; and their codes' names."""
    rng = np.random.default_rng(seed)
    known: dict[str, list[str]] = {"disease": [], "drug": []}
    other: dict[str, list[str]] = {"disease": [], "drug": []}
    met = set(study.names.values())
    for topic in knowledge.grades:
        kind, name = topic.split(" ", 1)
        known[kind].append(name)
    for kind in known:
        skip = set(known[kind])
        nodes = [n.replace(";", ",") for n in _nodes_of_type(study, kind) if n not in skip]
        # names that the cohort's patients have need the practice; where there are none, any node's will do
        other[kind] = [n for n in nodes if n in met] or nodes
    names: dict[str, str] = {}

    def draw(kind: str, pool: Sequence[str], n: int) -> tuple[str, ...]:
        picked: list[str] = [pool[int(i)] for i in rng.permutation(len(pool))[:n]]
        codes = tuple(f"{'DRUG' if kind == 'drug' else 'NODE'}/{name}" for name in picked)
        names.update(dict(zip(codes, picked, strict=True)))
        return codes

    samples = []
    for i in range(count):
        rare = rng.choice(["disease", "disease", "drug"], size=rng.choice(3, p=[0.4, 0.4, 0.2]))
        lists = {}
        for kind, most in (("disease", 4), ("drug", 3)):
            codes = draw(kind, known[kind] or other[kind], int(rng.integers(1, most)))
            codes += draw(kind, other[kind], int((rare == kind).sum())) if other[kind] else ()
            lists[kind] = tuple(codes[j] for j in rng.permutation(len(codes)))
        when = datetime(2100, 1, 1)
        earlier = Visit(-1, when, draw("disease", known["disease"] + other["disease"], int(rng.integers(2, 5))))
        newest = Visit(i, when, lists["disease"], (), lists["drug"])
        history = (earlier, newest) if rng.random() < 0.5 else (newest,)
        samples.append(Sample(f"made-up-{i}", -1, i, when, history, 0))
    return samples, names


def _nodes_of_type(study: Study, kind: str) -> list[str]:
    graph = study.graph
    if kind not in graph.types:
        return []
    return [graph.names[int(node)] for node in np.flatnonzero(graph.type == graph.types.index(kind))]


def base_key(study: Study, knowledge: Knowledge) -> str:
    """A name for the base model that changes with everything it is made from."""
    c = study.config
    made_from = (
        BASE_FORMAT,
        study.graph.fingerprint,
        sorted(study.names.items()),
        sorted(knowledge.grades.items()),
        [study.task.name, study.task.labels, c.data.world_seed],
        [c.model.hidden, c.model.layers, c.model.heads, c.model.vocab],
        asdict(c.trainer.base),
        asdict(c.env),
        c.retriever.kind,
        *([] if c.kare is None else [asdict(c.kare)]),  # communities in place of meta-paths
    )
    return f"{derive_seed(made_from):016x}"


def build_base(study: Study, knowledge: Knowledge, log: Any) -> tuple[Any, Any]:
    """Tokenizer and base model, trained for `trainer.base.steps` steps. Returns (model, tokenizer).

    Its randomness is the world's: runs of different seeds start from one base, as they would from a downloaded one.
    """
    config, base, seed = study.config, study.config.trainer.base, study.config.data.world_seed
    count = max(64, int(base.steps * base.batch * SHARES["predict"] / PASSES))
    samples, names = made_up_samples(study, knowledge, count, derive_seed(seed, "made-up"))
    world = replace(study, names=names | dict(study.names))
    teacher = ScriptedTeacher(knowledge, UNDECIDED)
    cases, episodes = world.cases(samples, None), []
    for start in range(0, count, REDRAWN_AFTER):
        corpus = RedrawnGrades(study.retriever, derive_seed(seed, "grades", start))
        part = cases[start : start + REDRAWN_AFTER]
        episodes += play(world, part, teacher, seed=seed, corpus=corpus, title="Base exercises")
    texts = [text for episode in episodes[:500] for text in _texts(episode.trace)]
    tokenizer = build_tokenizer(texts, _token_names(study, knowledge), config.model.vocab or 0)
    size = {"hidden": config.model.hidden, "layers": config.model.layers, "heads": config.model.heads}
    model = build_model(tokenizer, seed=seed, **{k: v or 0 for k, v in size.items()})
    if base.steps == 0:
        return model, tokenizer
    pairs = _exercises(tokenizer, episodes, base.steps * base.batch, seed)
    settings = SFTSettings(base.steps, base.batch, base.lr, config.trainer.warmup.micro_batch, seed=seed)
    return _logged(run_sft(model, tokenizer, pairs, settings), "base", log), tokenizer


def _exercises(tokenizer: Any, episodes: Sequence[Episode], total: int, seed: int) -> list[Pair]:
    """`total` replies in the proportions of `SHARES`, each decision's repeated as often as it takes."""
    by_role: dict[str, list[Pair]] = {role: [] for role in SHARES}
    for start in track(range(0, len(episodes), REDRAWN_AFTER), "Tokenising"):
        for role, pair in tokenised(tokenizer, episodes[start : start + REDRAWN_AFTER]):
            by_role[role].append(pair)
    rng = np.random.default_rng(derive_seed(seed, "exercises"))
    chosen: list[Pair] = []
    for role, share in SHARES.items():
        pool, wanted = by_role[role], round(share * total)
        if not pool:
            continue
        rounds = [rng.permutation(len(pool)) for _ in range(-(-wanted // len(pool)))]
        chosen += [pool[i] for i in np.concatenate(rounds)[:wanted]]
    return chosen


def _logged(result: Any, phase: str, log: Any) -> Any:
    for row in result.curve:
        log({"phase": phase, "step": int(row["step"]), "train/loss": row["loss"], "train/accuracy": row["accuracy"]})
    return result.model


def _texts(trace: Iterable[Any]) -> Iterable[str]:
    for record in trace:
        if isinstance(record.effect, Act):
            yield f"{record.effect.prompt} {record.result.text}"


def _token_names(study: Study, knowledge: Knowledge) -> list[str]:
    """Names worth a token of their own: the topics', the cohort's, the menu's, the grades, then the graph's."""
    grades = [f"grade {g} course" for g in range(story.GRADES)]
    topics = [topic.split(" ", 1)[1] for topic in knowledge.grades]
    menu = [part for path in study.episodes.metapaths for part in (path.text, path.label)]
    cohort = [study.names[code] for code in study.cohort.codes["code"] if not code.startswith(("LAB/", "ICU"))]
    return [*grades, *topics, *menu, *cohort, *study.graph.names]
