"""What fixed rules know of severities: grades 0 to 9 of conditions and drugs, how texts state them, which label they
lead to.

In the demo world outcomes follow from the highest grade of a visit (severity/story.py). Rules of any system read
and word grades alike, so these few lines stand beside the rooms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ghar.envs.worlds.severity import story
from ghar.envs.worlds.severity.graph import DISPLAY, QUALIFIERS, TARGET
from ghar.envs.worlds.severity.sources import ASKS, FAILING, PAST
from ghar.envs.worlds.severity.world import World
from ghar.kg.names import plain
from ghar.retrieval import patient_history, similar_stays

OTHER_FORM = "|".join(re.escape(plain(words)) for words in QUALIFIERS)  # after a name: another, look-alike disease
# highest grade from which a task's positive label is the more probable; the next visit's death does not follow from it
POSITIVE_FROM = {
    "dec": story.DEATH_FROM_ACUITY,
    "read": story.READ_FROM_ACUITY,
    "kare_readmission": story.READ_FROM_ACUITY,
    "kare_mortality": story.GRADES,
}
RELATIONS = {
    "disease": "disease_phenotype_positive",
    "drug": "drug_protein",
    "gene": "phenotype_protein",
    "known drug": "drug_effect",
}
FURTHER = {  # pointer of a further source -> the partition that answers
    PAST: patient_history.EARLY,
    ASKS: similar_stays.PARTS[0],
    FAILING: patient_history.NUMBERS,
}
ICD = "ICD10CM"
ABSENT = plain(DISPLAY["disease_phenotype_negative"])
NAMED_TARGET = re.compile(rf"\b{TARGET} (?:- )?([a-z]+ [a-z]+)")


@dataclass(frozen=True)
class Knowledge:
    """What a rule believes.

    grades: topic -> grade of the topics it knows. doubted: known topics it looks up all the same.
    relations: kind of topic ("disease", "drug", "gene"), or one topic, -> the relation whose partition answers it;
        "known drug": the one that states a grade of a drug that it knows.
    label_of: highest grade -> label index.
    """

    grades: Mapping[str, int]
    relations: Mapping[str, str]
    label_of: Callable[[int], int]
    doubted: frozenset[str] = frozenset()

    def about(self, subject: int) -> Knowledge:
        """What it believes when asked about a patient; knowledge from labels leaves his own out."""
        return self


def finding(topic: str, grade: int | None) -> str:
    """How an intermediate answer is worded."""
    return f"{topic} unknown" if grade is None else f"{topic} grade {grade} course"


def hop(topic: str, target: str) -> str:
    """How an intermediate answer says that the grade stands behind something else."""
    return f"{topic} {TARGET} {target}"


def targets_in(text: str) -> list[str]:
    """What findings, or raw rows of the graph, name as targets: "gene <name>", as a sub-query asks for it."""
    return [f"gene {name}" for name in NAMED_TARGET.findall(text)]


def grades_in(text: str) -> list[int]:
    """Grades stated in a text."""
    return [int(g) for g in re.findall(r"grade (\d) course", text)]


@dataclass(frozen=True)
class StatedGrade:
    """What a text states of a name: its grade, and the target behind which it stands; None where it states none."""

    grade: int | None
    target: str | None = None


def grade_in(name: str, context: str) -> int | None:
    """The grade of `reading`."""
    return reading(name, context).grade


def reading_of(topic: str, context: str) -> StatedGrade:
    """`reading` of "disease <name>" or "drug <name>"; a drug's grade stands behind its target alone (`RELATIONS`)."""
    kind, name = topic.split(" ", 1)
    stated_grade = reading(name, context)
    return stated_grade if kind != "drug" or stated_grade.target is not None else StatedGrade(None)


def reading(name: str, context: str) -> StatedGrade:
    """The highest grade that a clause of `context` states of `name`, or of what it names as its target. Clauses end at
    . ; or a line; those of what is absent count for nothing."""
    clauses = [plain(clause) for clause in re.split(r"[.;\n]", context)]
    own = _about(name, clauses)
    behind = list(dict.fromkeys(target for clause in own for target in _targets(name, clause)))
    grades = {target: _highest(_about(target, clauses)) for target in behind}
    graded = [(grade, target) for target, grade in grades.items() if grade is not None]
    if behind:
        return StatedGrade(*max(graded)) if graded else StatedGrade(None, behind[0])
    return StatedGrade(_highest(own))


def _targets(name: str, clause: str) -> list[str]:
    """What a clause about `name` says to be its target, from either side: "x target y", "y is a target of x"."""
    before, stands, after = clause.partition(f" is a {TARGET} of ")
    if stands:
        return [before] if after == plain(name) else []
    return NAMED_TARGET.findall(clause)


def _highest(clauses: Sequence[str]) -> int | None:
    return max((grade for clause in clauses for grade in grades_in(clause)), default=None)


def _about(name: str, clauses: Sequence[str]) -> list[str]:
    own = _alone(plain(name))
    return [clause for clause in clauses if own.search(clause) and ABSENT not in clause]


@lru_cache(maxsize=16384)  # the same names are looked for in text after text
def _alone(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z0-9]){re.escape(name)}(?! (?:{OTHER_FORM}))(?![a-z0-9])")


def topic_of(code: str, name: str) -> str:
    """How a sub-query names a code."""
    return f"{'drug' if code.startswith('DRUG/') else 'disease'} {name}"


def pointers(world: World, names: Mapping[str, str]) -> dict[str, str]:
    """Topic of each pointer of the world's further sources -> the partition that answers it, "" where nothing is to be
    asked. Empty for a world without."""
    parts = pointer_codes(world)
    return {topic_of(code, names[code]): part for code, part in parts.items() if code in names}


def pointer_codes(world: World) -> dict[str, str]:
    """The same by code."""
    return {f"{ICD}/{code}": FURTHER.get(code, "") for code in world.further.pointers} if world.further.any else {}


def with_pointers(knowledge: Knowledge, world: World | None, names: Mapping[str, str]) -> Knowledge:
    """The same, and where to ask about the pointers of further sources; those that ask nothing are harmless."""
    relations = {} if world is None else pointers(world, names)
    harmless = {topic: 0 for topic, part in relations.items() if not part}
    asked = {topic: part for topic, part in relations.items() if part}
    return replace(knowledge, grades={**knowledge.grades, **harmless}, relations={**knowledge.relations, **asked})


def follows(task: str) -> bool:
    """Whether the demo world's law says a task's label by the highest grade (`task`: as in conf/task)."""
    return task == "los" or task in POSITIVE_FROM


def label_rule(task: str) -> Callable[[int], int]:
    """The label index that the highest grade of a visit makes most probable in the demo world."""
    return LabelRule(POSITIVE_FROM.get(task))


@dataclass(frozen=True)
class LabelRule:
    """The grade itself, or whether it is high enough."""

    threshold: int | None

    def __call__(self, grade: int) -> int:
        return grade if self.threshold is None else int(grade >= self.threshold)


@dataclass(frozen=True)
class SpreadRule:
    """Grades spread evenly over the labels 0 to `top`, where no law says which grade leads to which."""

    top: int

    def __call__(self, grade: int) -> int:
        return round(grade * self.top / (story.GRADES - 1))


def exact_knowledge(world: World, names: Mapping[str, str], task: str) -> Knowledge:
    """The true grade of every common entity and of no rare one."""
    grades = {
        topic_of(code, names[code]): world.severity[code]
        for code, tier in world.tier.items()
        if tier == "common" and code in names
    }
    return with_pointers(Knowledge(grades, RELATIONS, label_rule(task)), world, names)


@dataclass(frozen=True)
class MeanLabels(Knowledge):
    """Grades that are mean labels of training patients, of generated ones whose labels do not follow from grades.

    labels: topic -> (subject_id, label) of its samples. top: the last label. least: samples a topic needs.
    """

    labels: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    top: int = 1
    least: int = 1

    def about(self, subject: int) -> Knowledge:
        """The same without the labels of one patient: nobody is graded by his own outcome."""
        others = {
            topic: [pair for pair in pairs if pair[0] != subject] if any(s == subject for s, _ in pairs) else pairs
            for topic, pairs in self.labels.items()
        }
        return replace(self, grades=_means(others, self.top, self.least), labels=others)


def mean_labels(seen: Sequence[tuple[int, Sequence[str], int]], top: int, least: int) -> MeanLabels:
    """From (subject_id, topics, label) of training samples, of topics that at least `least` of them have."""
    labels: dict[str, list[tuple[int, int]]] = {}
    for subject, topics, label in seen:
        for topic in topics:
            labels.setdefault(topic, []).append((subject, label))
    often = {topic: pairs for topic, pairs in labels.items() if len(pairs) >= least}
    return MeanLabels(_means(often, top, least), RELATIONS, SpreadRule(top), labels=often, top=top, least=least)


def _means(labels: Mapping[str, Sequence[tuple[int, int]]], top: int, least: int) -> dict[str, int]:
    return {
        topic: round(sum(label for _, label in pairs) / len(pairs) * (story.GRADES - 1) / top)
        for topic, pairs in labels.items()
        if len(pairs) >= least
    }
