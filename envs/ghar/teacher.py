"""A scripted teacher: a policy with a rule for every decision and imperfect knowledge.

It stands where the paper has a larger language model (rejection sampling by Qwen2.5-7B, section IV). What it knows
is a grade 0..9 for some topics; how it errs is written down, so that what reinforcement learning adds can be told
from what was imitated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ghar.envs.case import Case
from ghar.envs.worlds.severity.graph import DISPLAY, TARGET
from ghar.envs.worlds.severity_grades import Knowledge, finding, grade_in, grades_in, hop, targets_in
from ghar.episode import Act, Completion, Evidence, ReasoningStep
from ghar.kg.names import plain
from ghar.retrieval import patient_history


@dataclass(frozen=True)
class TeacherErrors:
    """How often (probabilities) the teacher errs: flips a retrieval, names stray or repeated meta-paths, misses the
    right one, goes on although it knows enough, puts known topics first, guesses. pain: hands on of a protein the grade
    of a pain, of which Agent-Top can make nothing, although that of the course stands beside it. misplaced: asks the
    rows of years ago where only the numbers over time tell."""

    flip: float
    stray_path: float
    missed_path: float
    go_on: float
    disorder: float
    guess: float
    pain: float = 0.0
    misplaced: float = 0.0


NO_ERROR = TeacherErrors(flip=0.0, stray_path=0.0, missed_path=0.0, go_on=0.0, disorder=0.0, guess=0.0)
TEXT_KINDS = ("row", "report")  # passages that are no facts of a graph
PAIN = re.compile(r"grade \d pain")
STATEMENT = re.compile(rf"grade \d course|{TARGET} [a-z]+ [a-z]+")
FALLING = re.compile(r"falling (\d) a year")  # the grade of what numbers tell


class ScriptedTeacher:
    """Policy that follows the rules below."""

    def __init__(self, knowledge: Knowledge, habits: TeacherErrors):
        self.knowledge = knowledge
        self.habits = habits
        self._about: dict[int, ScriptedTeacher] = {}
        self._rules = {
            "rewrite": self._rewrite,
            "retrieve": self._retrieve,
            "metapaths": self._metapaths,
            "summarise": self._summarise,
            "answer": self._answer,
            "continue": self._continue,
            "followup": self._followup,
            "predict": self._predict,
        }

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [
            Completion(self._of(act.facts["case"])._rules[act.role](act, np.random.default_rng(seed)))
            for act, seed in zip(acts, seeds, strict=True)
        ]

    def _of(self, case: Case) -> ScriptedTeacher:
        """The teacher as it knows this patient (`Knowledge.about`)."""
        knowledge = self.knowledge.about(case.subject_id)
        if knowledge is self.knowledge:
            return self
        if case.subject_id not in self._about:
            self._about[case.subject_id] = ScriptedTeacher(knowledge, self.habits)
        return self._about[case.subject_id]

    def _unknown(self, topic: str) -> bool:
        return topic not in self.knowledge.grades

    def _rewrite(self, act: Act, rng: np.random.Generator) -> str:
        """The unknown topics, in the record's order; where all are known, the gravest one."""
        case: Case = act.facts["case"]
        topics = list(case.topics)
        if rng.random() < self.habits.disorder:
            topics = [topics[i] for i in rng.permutation(len(topics))]
        else:
            gravest = sorted(topics, key=lambda t: -self.knowledge.grades.get(t, 0))[:1]
            topics = [t for t in topics if self._unknown(t)] or gravest
        return "; ".join(topics[:3]) or case.text

    def _retrieve(self, act: Act, rng: np.random.Generator) -> str:
        topic = act.facts["query"]
        wanted = self._unknown(topic) or topic in self.knowledge.doubted
        if rng.random() < self.habits.flip:
            wanted = not wanted
        return "yes" if wanted else "no"

    def _metapaths(self, act: Act, rng: np.random.Generator) -> str:
        topic, relations = act.facts["query"], self.knowledge.relations
        kind = topic.split(" ", 1)[0]
        relation = relations.get(topic, relations.get(kind, ""))
        if not self._unknown(topic):
            relation = relations.get(f"known {kind}", relation)
        if relation == patient_history.NUMBERS and rng.random() < self.habits.misplaced:
            relation = patient_history.EARLY
        # communities go by the relations' names as texts show them
        wanted, menu = (relation, plain(DISPLAY.get(relation, ""))), act.facts["metapaths"]
        ids = [path.index for path in menu if path.relation in wanted]
        if act.choices:  # one line of a source that is asked anyhow
            own = [str(i) for i in ids if str(i) in act.choices]
            return own[0] if own else act.choices[int(rng.integers(len(act.choices)))]
        if rng.random() < self.habits.missed_path:
            ids = []
        while not ids or (len(ids) < 4 and rng.random() < self.habits.stray_path):
            ids.append(int(rng.integers(len(menu) + 1)))  # one number too many: an id that does not exist
        return " ".join(str(ids[i]) for i in rng.permutation(len(ids)))

    def _summarise(self, act: Act, rng: np.random.Generator) -> str:
        topic, evidence = act.facts["query"], act.facts["evidence"] or Evidence()
        name = topic.split(" ", 1)[-1]
        statement = _find_statement(name, [p.text for p in evidence.passages if p.kind in TEXT_KINDS])
        if statement is not None:
            return f"{topic} {statement}"
        edges = [p.text for p in evidence.passages if p.kind == "edge"]
        own = [text for text in edges if text.startswith(f"{name} - ") or text.endswith(f" - {name}")]
        pains = PAIN.findall("\n".join(own))
        if pains and topic.startswith("gene ") and rng.random() < self.habits.pain:
            return f"{topic} {max(pains)}"
        stated = grades_in("\n".join(own))
        of_community = grade_in(name, "\n".join(p.text for p in evidence.passages if p.kind == "community"))
        stated += [] if of_community is None else [of_community]
        if stated or not own:
            return finding(topic, max(stated, default=None))
        behind = [text.rsplit(" - ", 1)[-1] for text in own if f" - {TARGET} - " in text]
        if behind:
            return hop(topic, behind[0])
        return f"{topic} {[part for part in own[0].split(' - ') if part != name][-1]}"

    def _answer(self, act: Act, rng: np.random.Generator) -> str:
        topic = act.facts["query"]
        return finding(topic, self.knowledge.grades.get(topic))

    def _continue(self, act: Act, rng: np.random.Generator) -> str:
        enough = not open_topics(self.knowledge, act.facts["case"], act.facts["history"])
        return "terminate" if enough and rng.random() >= self.habits.go_on else "continue"

    def _followup(self, act: Act, rng: np.random.Generator) -> str:
        case: Case = act.facts["case"]
        return (open_topics(self.knowledge, case, act.facts["history"]) or list(case.topics) or [case.text])[0]

    def _predict(self, act: Act, rng: np.random.Generator) -> str:
        case: Case = act.facts["case"]
        if rng.random() < self.habits.guess:
            return case.task.labels[int(rng.integers(len(case.task.labels)))]
        grades = believed(self.knowledge, case, act.facts["history"])
        return case.task.labels[self.knowledge.label_of(max(grades, default=0))]


def _find_statement(name: str, texts: Sequence[str]) -> str | None:
    """Find the first statement about a name in rows or sentences: a grade of a course, or a target; numbers that fall
    by so much a year state as high a grade."""
    for text in texts:
        if name in text.lower():
            if match := STATEMENT.search(text):
                return match[0]
            if falls := FALLING.search(text):
                return f"grade {falls[1]} course"
    return None


def open_topics(knowledge: Knowledge, case: Case, history: Sequence[ReasoningStep]) -> list[str]:
    """What findings name in place of a grade, and unknown topics, that have not been asked about."""
    asked = {step.query for step in history}
    unknown = [topic for topic in case.topics if topic not in knowledge.grades]
    named = [target for step in history if step.query in unknown for target in targets_in(step.answer)]
    return [topic for topic in dict.fromkeys((*named, *unknown)) if topic not in asked]


def believed(knowledge: Knowledge, case: Case, history: Sequence[ReasoningStep]) -> list[int]:
    """A grade of each topic, and of each protein that was asked about: the one found, else the one known, else 0."""
    settled = {step.query: grades_in(step.answer) for step in history}
    proteins = [query for query in settled if query.startswith("gene ")]
    return [
        max(settled[topic]) if settled.get(topic) else knowledge.grades.get(topic, 0)
        for topic in (*case.topics, *proteins)
    ]
