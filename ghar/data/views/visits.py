"""Text views: what a language model reads of a sample. Pure functions of the sample, within a token budget."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from ghar.data.cohort import Sample, Visit
from ghar.data.visit_codes import KIND_NAMES, picked
from ghar.errors import BadInput

Style = Literal["full", "compact"]


@dataclass(frozen=True, slots=True)
class TextView:
    """The text, and what did not fit, oldest first: whole visits, codes and values of the newest visit that has any,
    events, time steps."""

    text: str
    dropped_visits: int = 0
    dropped_codes: int = 0
    dropped_steps: int = 0


def visit_list(
    sample: Sample, name_of: Callable[[str], str], *, style: Style, budget: int, count: Callable[[str], int]
) -> TextView:
    """GHAR's list of visits, oldest first, in at most `budget` tokens as `count` counts them.

    full: for real models, one line a visit with date, conditions, procedures and medications by name, and for real
    patients who lies where, and the newest values (`ghar.data.findings`).
    compact: for small models: "disease a; drug b" of the newest visit, below one line of conditions for each older
    visit; no dates and no procedures, which cost tokens and carry no signal for such models.
    The oldest visits are left out first; only the newest visit that shows anything loses values and codes where it is
    too long, from the end of its last list on. Before a first diagnosis of the newest visit is known, the last one that
    has diagnoses keeps them (`_below_diagnoses`). Where none of them fits it says how many were left out, and not that
    nothing was recorded. `count` must not shrink when a text grows. Raises BadInput when not even
    an empty visit fits.
    """
    return next(visit_lists([sample], name_of, style=style, budget=budget, count=count))


def visit_lists(
    samples: Iterable[Sample], name_of: Callable[[str], str], *, style: Style, budget: int, count: Callable[[str], int]
) -> Iterator[TextView]:
    """`visit_list` of each sample; a visit that many samples show is put into words once."""
    words: dict[int, tuple[Visit, str]] = {}  # by id(); the visit is kept, so that its id stays its own
    names = {kind: _CodeNames(name_of) for kind in KIND_NAMES}

    def render(visit: Visit) -> str:
        entry = words.get(id(visit))
        if entry is None:
            entry = words[id(visit)] = visit, _describe_visit(visit, names)
        return entry[1]

    def compact(kept: Sequence[Visit]) -> str:
        return _compact(kept, name_of)

    for sample in samples:
        visits = sample.history
        yield fitted(visits, partial(_full, len(visits), render) if style == "full" else compact, style, budget, count)


def fitted(
    visits: Sequence[Visit],
    text: Callable[[Sequence[Visit]], str],
    style: str,
    budget: int,
    count: Callable[[str], int],
) -> TextView:
    """The text of as many of the newest visits as fit; most often all do, and are rendered once."""
    whole = text(visits)
    if not visits or count(whole) <= budget:
        return TextView(whole)
    dropped = bisect_left(range(1, len(visits)), True, key=lambda n: count(text(visits[n:])) <= budget) + 1
    place = _newest_shown(visits, style)
    if style == "full" and (view := _below_diagnoses(visits, dropped, text, budget, count)) is not None:
        return view
    if dropped <= place:
        return TextView(text(visits[dropped:]), dropped)
    view = _cut(visits, place, text, style, budget, count)
    if view is None and dropped < len(visits):  # nothing of it fits above the empty ones
        return TextView(text(visits[dropped:]), dropped)
    if view is None:
        raise BadInput(f"A budget of {budget} tokens is too small for a visit without codes: raise the budget.")
    return view


def _below_diagnoses(
    visits: Sequence[Visit],
    dropped: int,
    text: Callable[[Sequence[Visit]], str],
    budget: int,
    count: Callable[[str], int],
) -> TextView | None:
    """A newest visit of measurements without a diagnosis, below the diagnoses of the last visit that has any and would
    be among the first `dropped`; None where it is not so, or where nothing fits.

    On its first day no diagnosis of a stay is known: all of the budget for laboratory values would show a patient
    without an illness. The diagnoses have half of it at most, the newest visit the rest.
    """
    *earlier, newest = visits
    place = next((n for n in range(len(earlier) - 1, -1, -1) if earlier[n].diagnoses), None)
    if newest.diagnoses or not newest.values or place is None or place >= dropped:
        return None
    older, between = earlier[place], [_first(visit, 0) for visit in earlier[place + 1 :]]
    diagnoses = _most(len(older.diagnoses), lambda n: count(text([_first(older, n)])) <= budget // 2)

    def below(n: int) -> str:
        return text([_first(older, diagnoses), *between, _first(newest, n)])

    items = _most(_size(newest), lambda n: count(below(n)) <= budget)
    if not diagnoses or not items:
        return None
    left_out = _size(older) - diagnoses + sum(map(_size, earlier[place + 1 :])) + _size(newest) - items
    return TextView(below(items), place, left_out)


def _most(size: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `size` that fits, as all smaller ones do; 0 where none does."""
    return size - bisect_left(range(size), True, key=lambda fewer: fits(size - fewer))


def _newest_shown(visits: Sequence[Visit], style: str) -> int:
    """The place of the newest visit whose words show anything, else of the newest one: before the first diagnosis of a
    stay is known, what is known of the patient stands in older ones."""
    last = len(visits) - 1
    return next((n for n in range(last, -1, -1) if _size(_shown_lists(visits[n], style, n == last))), last)


def _cut(
    visits: Sequence[Visit],
    place: int,
    text: Callable[[Sequence[Visit]], str],
    style: str,
    budget: int,
    count: Callable[[str], int],
) -> TextView | None:
    """The visits from `place` on, with as many codes and values of the first of them as fit; None where none does and
    others follow, or where not even an empty visit fits."""
    later = visits[place + 1 :]
    one = _shown_lists(visits[place], style, not later)
    total = _size(one)

    def cut_by(n: int) -> str:
        return text([_first(one, total - n), *later])

    cut = bisect_left(range(total), True, key=lambda n: count(cut_by(n)) <= budget)
    if cut == total and (later or count(cut_by(total)) > budget):
        return None
    return TextView(cut_by(cut), place, cut)


def _shown_lists(visit: Visit, style: str, newest: bool) -> Visit:
    """The visit with the lists alone that its words show."""
    if style == "full":
        return visit
    if style == "kare":
        return replace(visit, values=())
    return replace(visit, procedures=(), values=(), medications=visit.medications if newest else ())


def _size(visit: Visit) -> int:
    return len(visit.diagnoses) + len(visit.procedures) + len(visit.medications) + len(visit.values)


def _first(visit: Visit, n: int) -> Visit:
    """The visit with its first n codes and values, over diagnoses, procedures, medications, values in this order."""
    rest = max(n - len(visit.diagnoses), 0)
    last = max(rest - len(visit.procedures), 0)
    values = max(last - len(visit.medications), 0)
    lists = visit.diagnoses, visit.procedures, visit.medications, visit.values
    diagnoses, procedures, medications, newest = (
        items[:kept] for items, kept in zip(lists, (n, rest, last, values), strict=True)
    )
    return replace(
        visit,
        diagnoses=diagnoses,
        procedures=procedures,
        medications=medications,
        values=newest,
        omitted=(
            len(visit.diagnoses) - len(diagnoses),
            len(visit.procedures) - len(procedures),
            len(visit.medications) - len(medications),
            len(visit.values) - len(newest),
        ),
    )


def _full(total: int, render: Callable[[Visit], str], visits: Sequence[Visit]) -> str:
    parts = []  # joined once: these are most of what a reader of visits makes
    for n, visit in enumerate(visits, start=total - len(visits) + 1):
        parts += (f"\nVisit {n} of {total} " if parts else f"Visit {n} of {total} "), render(visit)
    return "".join(parts)


def _describe_visit(visit: Visit, names: Mapping[str, _CodeNames]) -> str:
    lists = zip(("Conditions", "Procedures", "Medications"), KIND_NAMES, strict=True)
    parts = [f"{title}: {names[kind].listed(codes)}." for title, kind in lists if (codes := getattr(visit, kind))]
    if visit.values:
        parts.append(f"Newest values: {'; '.join(visit.values).removesuffix('.')}.")
    head = ", ".join(part for part in (str(visit.start.date()) if visit.dated else "", visit.about) if part)
    sentences = " ".join(parts) or f"{_nothing(visit, 'nothing recorded')}."
    return f"{f'({head})' if head else ''}: {sentences}"


def _nothing(visit: Visit, empty: str) -> str:
    """What a visit says that shows nothing: `empty`, or how many items a budget left out."""
    return f"{sum(visit.omitted)} left out" if any(visit.omitted) else empty


def _compact(visits: Sequence[Visit], name_of: Callable[[str], str]) -> str:
    lines = [f"before: {_names(visit.diagnoses, name_of) or _nothing(visit, 'none')}" for visit in visits[:-1]]
    for visit in visits[-1:]:
        # worded as sub-queries are, so that a small model can copy one from here
        topics = [f"disease {name_of(code)}" for code in visit.diagnoses]
        topics += [f"drug {name_of(code)}" for code in visit.medications]
        lines.append(f"now: {'; '.join(dict.fromkeys(topics)) or _nothing(visit, 'none')}")
    return "\n".join(lines)


def _names(codes: Sequence[str], name_of: Callable[[str], str]) -> str:
    # Several codes may share a name, as the ICD-9 and ICD-10 code of one diagnosis do in eICU.
    return "; ".join(dict.fromkeys(map(name_of, codes)))


class _CodeNames(dict[str, str]):
    """Name by code, each asked for once: most codes stand in many visits."""

    def __init__(self, name_of: Callable[[str], str]):
        super().__init__()
        self._name_of, self._seen, self._shared = name_of, set[str](), False

    def __missing__(self, code: str) -> str:
        name = self[code] = self._name_of(code)
        self._shared |= name in self._seen
        self._seen.add(name)
        return name

    def listed(self, codes: Sequence[str]) -> str:
        """The different names of different codes. Looking for equal ones takes half of the time, and most cohorts'
        drugs have none."""
        names = picked(self, codes)
        return "; ".join(dict.fromkeys(names) if self._shared else names)
