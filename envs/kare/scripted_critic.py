"""The demo's critic for EHR-CoAgent: a fixed rule that stands where the paper has Claude 3.5 Sonnet.

It sees nothing but its prompt: from wrong predictions it takes what most patients with the same outcome share, and of
several lists it keeps the points that most of them make.
"""

from __future__ import annotations

import re
from collections import Counter

from ghar.envs.kare.scripted_expert import topics_in

CASE = re.compile(r"^Record:\n(.*?)\nReasoning: .*?\nWhat happened: (.*)$", re.MULTILINE | re.DOTALL)
POINT = re.compile(r"^\d+\. (.+)$", re.MULTILINE)
SPEAKS = re.compile(r"(.+) speaks for (.+)\.")
NEW = 6  # points a batch of wrong predictions adds


def reply(prompt: str) -> str:
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
