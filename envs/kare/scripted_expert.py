"""The demo's expert for KARE's chains and its critic for EHR-CoAgent: fixed rules that stand where the paper has Claude
3.5 Sonnet.

The expert knows the grades of the common conditions and drugs, as a large model would, reads those of the others in the
retrieved knowledge, and reasons by the demo world's own law (worlds/severity/story.py): the highest grade decides. So
the five parts of a chain (prompts/expert/chain.txt) are: what of the record it knows; what the knowledge states of the
rest, name by name, and over which target; the similar patients' outcomes; the highest grade; the answer. Its confidence
falls where the context does not state a grade that it needs, and where its law and the label disagree.

The critic sees nothing but its prompt: from wrong predictions it takes what most patients with the same outcome share,
and of several lists it keeps the points that most of them make.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ghar.envs.worlds.severity_grades import Knowledge, StatedGrade, finding, hop, reading_of

SECTION = re.compile(r"(?m)^# (.+)$")
CASE = re.compile(r"^Record:\n(.*?)\nReasoning: .*?\nWhat happened: (.*)$", re.MULTILINE | re.DOTALL)
POINT = re.compile(r"^\d+\. (.+)$", re.MULTILINE)
SPEAKS = re.compile(r"(.+) speaks for (.+)\.")
NEW = 6  # points a batch of wrong predictions adds


def scripted_expert(knowledge: Knowledge, threshold: int | None) -> Callable[[str], str]:
    """Replies to `ghar.envs.kare.expert_chains.expert_prompt`.

    threshold: highest grade from which the second of two labels is the more probable; None where labels are grades.
    """

    def reply(prompt: str) -> str:
        parts = SECTION.split(prompt)
        given = dict(zip(parts[1::2], (text.strip() for text in parts[2::2]), strict=True))
        labels = re.findall(r"one of: (.+)\.", given["Task"])[0].split(", ")
        topics, context = topics_in(given["Patient"]), given["Medical knowledge"]
        own_grades = {topic: knowledge.grades[topic] for topic in topics if topic in knowledge.grades}
        read = {topic: reading_of(topic, context) for topic in topics if topic not in own_grades}
        truth = labels.index(given["Real ending"].split("\n")[0])
        outcomes = re.findall(rf"(?m)^outcome: ({'|'.join(map(re.escape, labels))})$", given["Similar patients"])
        return _written(own_grades, read, outcomes, truth, labels, knowledge, threshold)

    return reply


def topics_in(record: str) -> tuple[str, ...]:
    """The newest visit's topics, "disease <name>" and "drug <name>", from either style of `ghar.data.views.visits`."""
    newest = record.splitlines()[-1] if record else ""
    if newest.startswith("now: "):
        return tuple(topic for topic in newest.removeprefix("now: ").split("; ") if " " in topic)
    topics: list[str] = []
    for kind, title in (("disease", "Conditions"), ("drug", "Medications")):
        for names in re.findall(rf"{title}: (.+?)\.(?: [A-Z]|$)", newest):
            topics += [f"{kind} {name}" for name in names.split("; ")]
    return tuple(topics)


def _state_grade(topic: str, read: StatedGrade) -> str:
    """What the context states of a topic; a grade that stands behind a target is the target's."""
    if read.target is None:
        return finding(topic, read.grade)
    return f"{hop(topic, read.target)}; {finding(f'gene {read.target}', read.grade)}"


def _written(
    own_grades: Mapping[str, int],
    read: Mapping[str, StatedGrade],
    outcomes: Sequence[str],
    truth: int,
    labels: Sequence[str],
    knowledge: Knowledge,
    threshold: int | None,
) -> str:
    """Chain and confidence. It is given the label, so what it concludes is the label, whatever its law says."""
    grades = [*own_grades.values(), *(one.grade for one in read.values())]
    highest = max((grade for grade in grades if grade is not None), default=None)
    agrees = highest is not None and knowledge.label_of(highest) == truth
    complete = bool(grades) and None not in grades
    law = "" if threshold is None else f", {labels[1]} from {threshold} on"
    reasoning = "no grade is stated" if highest is None else f"highest grade {highest} course{law}"
    if highest is not None and not agrees:
        reasoning += ", an exception"
    lines = (
        f"1. {'; '.join(finding(topic, grade) for topic, grade in own_grades.items()) or 'nothing known'}",
        f"2. {'; '.join(_state_grade(topic, one) for topic, one in read.items()) or 'nothing needed'}",
        f"3. {', '.join(outcomes) or 'none'}",
        f"4. {reasoning}",
        f"5. {labels[truth]}",
    )
    sure = {(True, True): "very confident", (False, True): "confident", (True, False): "not confident"}
    confidence = sure.get((complete, agrees), "very not confident")
    return "# Chain\n" + "\n".join(lines) + f"\n\n# Confidence\n{confidence}"


def scripted_critic(prompt: str) -> str:
    """A numbered list for a prompt of envs/kare/coagent.py; ValueError for another prompt."""
    if "\n# Their lists\n" in prompt:
        section = prompt.partition("\n# Their lists\n")[2].partition("\n# How to work\n")[0]
        most = re.findall(r"below (\d+) guidelines", prompt)
        points = POINT.findall(section)
        return _list(_agreed(points)[: int(most[-1]) - 1])
    if "\n# Wrong predictions\n" in prompt:
        old, cases = prompt.split("\n# Wrong predictions\n")
        return _list(_agreed(_learned(cases) + POINT.findall(old)))
    raise ValueError("the scripted critic was asked something else than guidelines")


def _learned(cases: str) -> list[str]:
    """What speaks for an outcome: topics by how many more of these patients had it than not, then by name."""
    seen: Counter[tuple[str, str]] = Counter()
    for record, outcome in (match.groups() for match in CASE.finditer(cases)):
        seen.update((topic, outcome.split("\n")[0]) for topic in set(topics_in(record)))
    others = {key: sum(n for other, n in seen.items() if other[0] == key[0] and other != key) for key in seen}
    ranked = sorted((key for key in seen if seen[key] > others[key]), key=lambda key: (others[key] - seen[key], key))
    return [f"{topic} speaks for {outcome}." for topic, outcome in ranked[:NEW]]


def _agreed(points: list[str]) -> list[str]:
    """Points by how often they are made, then by place; of two that contradict each other the first of these."""
    times = Counter(points)
    kept: dict[str, str] = {}
    for point in sorted(times, key=lambda point: (-times[point], points.index(point))):
        match = SPEAKS.fullmatch(point)
        kept.setdefault(match[1] if match else point, point)
    return list(kept.values())


def _list(points: list[str]) -> str:
    return "\n".join(f"{number}. {point}" for number, point in enumerate(points, 1)) or "nothing to add"
