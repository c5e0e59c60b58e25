"""Text views fit their budget, drop the oldest first, and say what they dropped."""

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.data.cohort import Sample, Visit
from ghar.data.views.visits import visit_list, visit_lists
from ghar.errors import BadInput

VISITS = (
    Visit(1, datetime(2180, 1, 2), ("ICD/a",), (), ("DRUG/x",)),
    Visit(2, datetime(2180, 5, 1), ("ICD/b", "ICD/c"), ("PROC/p",), ("DRUG/y", "DRUG/z")),
)


def sample_of(visits):
    return Sample("s", 1, visits[-1].visit_id, visits[-1].start, tuple(visits), 0)


def words(text):
    return len(text.split())


def name_of(code):
    return code.split("/")[1]


def view(visits, style, budget):
    return visit_list(sample_of(visits), name_of, style=style, budget=budget, count=words)


def test_full_view():
    got = view(VISITS, "full", 99)
    assert got.text == (
        "Visit 1 of 2 (2180-01-02): Conditions: a. Medications: x.\n"
        "Visit 2 of 2 (2180-05-01): Conditions: b; c. Procedures: p. Medications: y; z."
    )
    assert (got.dropped_visits, got.dropped_codes) == (0, 0)


def test_the_last_value_may_end_with_a_stop():
    """Records of MIMIC-IV ended with "Specimen Type VEN..", "Protein (urine) NEG.." and the like."""
    for last in ("Protein (urine) NEG.", "Protein (urine) NEG"):
        text = view((replace(VISITS[0], values=("Creatinine 2.4 mg/dL (high)", last)),), "full", 99).text
        assert text.endswith("Newest values: Creatinine 2.4 mg/dL (high); Protein (urine) NEG.")


def test_compact_view_has_no_dates_and_no_procedures():
    assert view(VISITS, "compact", 99).text == "before: a\nnow: disease b; disease c; drug y; drug z"


def test_codes_of_one_name_are_named_once():
    """eICU writes a diagnosis as a pair, "584.9, N17.9": two codes, one name."""
    pair = ("ICD9CM/5849", "ICD10CM/N179", "ICD10CM/I10")
    visits = [Visit(i, datetime(2180, 1, i), pair, (), ("DRUG/x", "ATC/x")) for i in (1, 2)]
    names = {"ICD9CM/5849": "kidney failure", "ICD10CM/N179": "kidney failure", "DRUG/x": "x", "ATC/x": "x"}
    for style, text in (
        ("full", "Visit 2 of 2 (2180-01-02): Conditions: kidney failure; pressure. Medications: x."),
        ("compact", "before: kidney failure; pressure\nnow: disease kidney failure; disease pressure; drug x"),
    ):
        got = visit_list(sample_of(visits), lambda c: names.get(c, "pressure"), style=style, budget=99, count=words)
        assert got.text.endswith(text) and got.dropped_codes == 0


def test_a_name_is_asked_for_once_and_shared_ones_are_noticed_late():
    """The first visit has no codes of one name, the second has: each text is that of its visit alone."""
    shared = Visit(3, datetime(2180, 7, 1), ("ICD/a", "ICD10/a", "ICD/b"), (), ("DRUG/x", "DRUG/y"))
    asked = []

    def counted(code):
        asked.append(code)
        return name_of(code)

    samples = [sample_of([visit]) for visit in (*VISITS, shared, VISITS[0])]
    got = list(visit_lists(samples, counted, style="full", budget=99, count=words))
    assert got == [view(sample.history, "full", 99) for sample in samples]
    assert "Conditions: a; b. Medications: x; y." in got[2].text
    assert len(asked) == len(set(asked)) == 8


def test_oldest_visit_goes_first():
    got = view(VISITS, "full", 15)
    assert got.text.startswith("Visit 2 of 2") and (got.dropped_visits, got.dropped_codes) == (1, 0)


def test_newest_visit_is_cut_from_its_end_only_when_alone_too_long():
    got = view(VISITS, "full", 10)
    assert got.text == "Visit 2 of 2 (2180-05-01): Conditions: b; c. Procedures: p."
    assert (got.dropped_visits, got.dropped_codes) == (1, 2)
    compact = view(VISITS, "compact", 7)  # procedures are not part of this style and do not count as dropped
    assert compact.text == "now: disease b; disease c; drug y" and compact.dropped_codes == 1


def test_visit_without_codes():
    empty = [Visit(1, datetime(2180, 1, 2))]
    assert view(empty, "full", 99).text == "Visit 1 of 1 (2180-01-02): nothing recorded."
    assert view(empty, "compact", 99).text == "now: none"
    for style in ("full", "compact"):
        with pytest.raises(BadInput, match="budget of 1 tokens"):
            view(empty, style, 1)


CODES = st.lists(st.sampled_from([f"C/{c}" for c in "abcdefgh"]), max_size=6, unique=True).map(tuple)
VISIT = st.builds(lambda d, p, m: Visit(1, datetime(2180, 1, 1), d, p, m), CODES, CODES, CODES)


@given(st.lists(VISIT, min_size=1, max_size=6), st.sampled_from(["full", "compact"]), st.integers(9, 80))
def test_view_is_the_longest_that_fits(visits, style, budget):
    """Against a direct search: the fewest visits, then the fewest codes dropped, that fit and show anything."""
    got = view(visits, style, budget)
    assert words(got.text) <= budget
    last = len(visits) - 1
    shown = [shown_codes(visit, style, n == last) for n, visit in enumerate(visits)]
    place = max((n for n in range(len(visits)) if shown[n]), default=last)

    def lines(first, codes):
        """From visit `first` on, of which the first codes alone are shown."""
        one = visits[first]
        kept = {kind: tuple(c for k, c in codes if k == kind) for kind in ("diagnoses", "procedures", "medications")}
        cut = [*visits[:first], replace(one, **kept), *visits[first + 1 :]]
        return "\n".join(view(cut, style, 10_000).text.splitlines()[first:])

    places = [(n, 0, lines(n, shown[n])) for n in range(place + 1)]
    places += [
        (place, cut, lines(place, shown[place][: len(shown[place]) - cut])) for cut in range(1, len(shown[place]))
    ]
    empty = lines(last, ())
    if place == last and shown[place]:  # that nothing was recorded would be untrue
        count = f"{len(shown[place])} left out"
        empty = empty.replace("nothing recorded", count).replace("none", count)
    places += [(last, len(shown[place]) if place == last else 0, empty)]
    fitting = [found for found in places if words(found[2]) <= budget]
    if places[-1] == fitting[0] and place < last:  # nothing fits above the empty ones: as many of those as fit
        assert got.text in [lines(n, shown[n]) for n in range(place + 1, last + 1)]
    else:
        assert (got.dropped_visits, got.dropped_codes, got.text) == fitting[0]


def test_a_visit_of_which_no_code_fits_says_how_many_were_left_out():
    long = [Visit(1, datetime(2180, 1, 2), diagnoses=("C/a b c d e f", "C/g"), medications=("C/x",))]
    assert view(long, "full", 8).text == "Visit 1 of 1 (2180-01-02): 3 left out."
    assert view(long, "compact", 6).text == "now: 3 left out"
    assert view(long, "full", 8).dropped_codes == view(long, "compact", 6).dropped_codes == 3


def shown_codes(visit, style, newest):
    """(kind, code) of what a style shows of a visit, in its order."""
    kinds = ["diagnoses", "procedures", "medications"]
    if style == "compact":
        kinds = ["diagnoses", "medications"] if newest else ["diagnoses"]
    return [(kind, code) for kind in kinds for code in getattr(visit, kind)]


@pytest.mark.parametrize(("budget", "text", "dropped"), [
    # the older visit fits as a whole, or its diagnoses alone, or as many of them as have half of the budget
    (99, "Visit 1 of 3 (2180-01-02): Conditions: a b; c. Medications: x.\nVisit 2 of 3 (2180-05-01): Medications: y.\n"
         "Visit 3 of 3 (2180-09-01): Newest values: k 5; na 140; cl 99.", (0, 0)),
    (27, "Visit 1 of 3 (2180-01-02): Conditions: a b; c.\nVisit 2 of 3 (2180-05-01): 1 left out.\n"
         "Visit 3 of 3 (2180-09-01): Newest values: k 5.", (0, 4)),
    (18, "Visit 3 of 3 (2180-09-01): Newest values: k 5; na 140; cl 99.", (2, 0)),
])  # fmt: skip
def test_measurements_of_a_first_day_do_not_push_out_all_diagnoses(
    budget: int, text: str, dropped: tuple[int, int]
) -> None:
    """Of 69 records of MIMIC-IV's open demo with earlier diagnoses 42 showed none, at 800 tokens on the first day."""
    visits = (
        Visit(1, datetime(2180, 1, 2), ("C/a b", "C/c"), (), ("C/x",)),
        Visit(2, datetime(2180, 5, 1), medications=("C/y",)),
        Visit(3, datetime(2180, 9, 1), values=("k 5", "na 140", "cl 99")),
    )
    got = view(visits, "full", budget)
    assert got.text == text and (got.dropped_visits, got.dropped_codes) == dropped


@given(st.lists(VISIT, min_size=1, max_size=5), st.integers(9, 80))
def test_diagnoses_and_measurements_keep_to_the_budget(visits: list[Visit], budget: int) -> None:
    newest = Visit(9, datetime(2180, 9, 1), values=("k 5", "na 140 mmol", "cl 99"))
    got = view([*visits, newest], "full", budget)
    assert words(got.text) <= budget


def test_a_newest_visit_without_codes_leaves_room_for_the_one_before():
    """As on a real chart before the first diagnosis of a stay: what is known of the patient stands in older visits."""
    visits = (*VISITS, Visit(3, datetime(2180, 9, 1)))
    for style, budget, text in (
        ("full", 15, "Visit 2 of 3 (2180-05-01): Conditions: b; c.\nVisit 3 of 3 (2180-09-01): nothing recorded."),
        ("compact", 4, "before: b\nnow: none"),
    ):
        got = view(visits, style, budget)
        assert got.text == text and got.dropped_visits == 1 and got.dropped_codes > 0
    assert view(visits, "full", 9).text == "Visit 3 of 3 (2180-09-01): nothing recorded."
