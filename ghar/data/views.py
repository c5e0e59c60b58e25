"""Text views: what a language model reads of a sample. Pure functions of the sample, within a token budget."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ghar.data.cohort import Sample, Visit
from ghar.errors import BadInput

Style = Literal["full", "compact"]
Render = Callable[[Sequence[Visit], int, Callable[[str], str]], str]  # kept visits, visits in all, names


@dataclass(frozen=True)
class TextView:
    """The text, and what did not fit, oldest first: whole visits, codes of the newest visit, events, time steps."""

    text: str
    dropped_visits: int = 0
    dropped_codes: int = 0
    dropped_events: int = 0
    dropped_steps: int = 0


def visit_list(
    sample: Sample, name_of: Callable[[str], str], *, style: Style, budget: int, count: Callable[[str], int]
) -> TextView:
    """GHAR's list of visits, oldest first, in at most `budget` tokens as `count` counts them.

    full: for real models, one line a visit with date, conditions, procedures and medications by name.
    compact: for small models: "disease a; drug b" of the newest visit, below one line of conditions for each older
    visit; no dates and no procedures, which cost tokens and carry no signal for such models.
    The oldest visits are left out first; only a newest visit that is too long alone loses codes, from the end of its
    last list on. `count` must not shrink when a text grows. Raises BadInput when not even an empty visit fits.
    """
    render = {"full": _full, "compact": _compact}[style]
    visits = sample.history
    dropped = bisect_left(
        range(len(visits)), True, key=lambda n: count(render(visits[n:], len(visits), name_of)) <= budget
    )
    if dropped < len(visits) or not visits:
        return TextView(render(visits[dropped:], len(visits), name_of), dropped)
    return cut_newest(visits, lambda kept: render(kept, len(visits), name_of), style, budget, count)


def cut_newest(
    visits: Sequence[Visit],
    text: Callable[[Sequence[Visit]], str],
    style: str,
    budget: int,
    count: Callable[[str], int],
) -> TextView:
    """The newest visit alone, with as many of its codes as fit."""
    newest = replace(visits[-1], procedures=()) if style == "compact" else visits[-1]
    total = len(newest.diagnoses) + len(newest.procedures) + len(newest.medications)
    cut = bisect_left(range(total + 1), True, key=lambda n: count(text([_first(newest, total - n)])) <= budget)
    if cut > total:
        raise BadInput(f"A budget of {budget} tokens is too small for a visit without codes: raise the budget.")
    return TextView(text([_first(newest, total - cut)]), len(visits) - 1, cut)


def _first(visit: Visit, n: int) -> Visit:
    """The visit with its first n codes, over diagnoses, procedures, medications in this order."""
    rest = max(n - len(visit.diagnoses), 0)
    last = max(rest - len(visit.procedures), 0)
    return replace(
        visit,
        diagnoses=visit.diagnoses[:n],
        procedures=visit.procedures[:rest],
        medications=visit.medications[:last],
    )


def _full(visits: Sequence[Visit], total: int, name_of: Callable[[str], str]) -> str:
    lines = []
    for number, visit in enumerate(visits, start=total - len(visits) + 1):
        lists = (("Conditions", visit.diagnoses), ("Procedures", visit.procedures), ("Medications", visit.medications))
        parts = [f"{title}: {_names(codes, name_of)}." for title, codes in lists if codes]
        lines.append(f"Visit {number} of {total} ({visit.start:%Y-%m-%d}): {' '.join(parts) or 'nothing recorded.'}")
    return "\n".join(lines)


def _compact(visits: Sequence[Visit], total: int, name_of: Callable[[str], str]) -> str:
    lines = [f"before: {_names(visit.diagnoses, name_of)}" for visit in visits[:-1]]
    for visit in visits[-1:]:
        # worded as sub-queries are, so that a small model can copy one from here
        topics = [f"disease {name_of(code)}" for code in visit.diagnoses]
        topics += [f"drug {name_of(code)}" for code in visit.medications]
        lines.append(f"now: {'; '.join(topics) or 'none'}")
    return "\n".join(lines)


def _names(codes: Sequence[str], name_of: Callable[[str], str]) -> str:
    return "; ".join(name_of(code) for code in codes) or "none"
