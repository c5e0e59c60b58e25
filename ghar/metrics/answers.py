"""Verdicts about a policy's answers: collapse, the usual label, AUROC against chance, retrieval, patients, checkpoint.

They read summary.json alone (see ghar.metrics.report): each policy's confusion matrix and "answers" (`answer_counts`),
the paired differences, and which weights answered. Thresholds are rules of thumb, named below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ghar.metrics.rows import Row, patients_of
from ghar.metrics.style import samples_of, subjects_of

State = Literal["good", "doubtful", "bad", "unknown"]
Summary = Mapping[str, Any]
COLLAPSED = 0.9, 0.99  # share of the readable answers that are one label: doubtful, bad
ABOVE_USUAL = 0.1  # how much more often than it is true a label must be answered, to be doubtful
AT_CHANCE = 0.55  # AUROC up to which an interval that includes 0.5 means chance, not few patients
FEW = 100, 30  # patients: doubtful, bad
FEW_OTHERS = 30, 10  # patients whose label is another than the usual one: doubtful, bad
FEWEST = 5  # patients of a label below which a number that rests on this label has no interval
UNREADABLE = 0.05  # share of samples without a readable answer from which a policy is no rival
SAME = 0.99  # share of same answers with and without retrieval from which retrieval changes nothing
IDLE = 0.01  # share of episodes with retrieval up to which a policy does not retrieve


class HealthVerdict(NamedTuple):
    """One part of a run's health: what it is about, how it stands, and a sentence with the number."""

    about: str
    state: State
    sentence: str


def answer_counts(rows: Sequence[Row]) -> dict[str, Any]:
    """Count what verdicts need and a confusion matrix lacks.

    Returns "usual": the most frequent label; "label_patients": {label: distinct patients}; "other_patients": those
    with another label than the usual one; "retrieved": episodes with retrieval; "with_evidence": those of them in which
    a prompt showed a passage; "evidence": distinct sets of shown passages. The last three are left out where no row
    says what was retrieved.
    """
    times = Counter(row["label"] for row in rows)
    who: dict[str, set[Any]] = {label: set() for label in sorted(times)}
    for row, patient in zip(rows, patients_of(rows), strict=True):
        who[row["label"]].add(patient)
    usual = max(who, key=times.__getitem__)
    counts: dict[str, Any] = {
        "usual": usual,
        "label_patients": {label: len(patients) for label, patients in who.items()},
        "other_patients": len(set().union(*(patients for label, patients in who.items() if label != usual))),
    }
    looked_up = [row for row in rows if row.get("lookups") or (row.get("retrieved") and "lookups" in row)]
    if looked_up:
        texts = [_collect_texts(row) for row in looked_up]
        counts |= {"retrieved": len(looked_up), "with_evidence": sum(map(bool, texts)), "evidence": len(set(texts))}
    return counts


def _collect_texts(row: Row) -> tuple[str, ...]:
    """The passages that any prompt of an episode showed."""
    passages = (passage for lookup in row["lookups"] for passage in lookup.get("found") or ())
    return tuple(sorted({str(passage.get("text")) for passage in passages if passage.get("shown", True)}))


def too_few(rows: Sequence[Row], labels: Sequence[str]) -> dict[str, str]:
    """{metric: "1 patient with label yes"} of metrics whose interval would rest on fewer than `FEWEST` patients.

    With two labels each label must have its patients; with more, all labels but the usual one together.
    """
    counts = answer_counts(rows)
    who = counts["label_patients"]
    if len(labels) > 2:
        others = counts["other_patients"]
        words = f"{_patients(others)} without label {counts['usual']}"
        return dict.fromkeys(("auroc", "auprc", "balanced_accuracy", "macro_f1"), words) if others < FEWEST else {}
    reasons: dict[str, str] = {}
    for label, own in zip(labels, (("specificity", "npv"), ("sensitivity", "ppv")), strict=False):
        if (number := who.get(label, 0)) < FEWEST:
            words = f"{_patients(number)} with label {label}"
            reasons |= dict.fromkeys(("auroc", "auprc", "balanced_accuracy", "macro_f1", *own), words)
    return reasons


def _patients(number: int) -> str:
    return f"{number:,} patient{'' if number == 1 else 's'}"


def unreadable_share(numbers: Summary) -> float:
    """The share of samples that a policy gave no readable answer to; 0 where nothing was counted."""
    matrix = numbers.get("confusion")
    whole = sum(map(sum, matrix)) if matrix else 0
    return sum(line[-1] for line in matrix) / whole if matrix and whole else 0.0


def answer_verdicts(summary: Summary, main: str | None) -> Iterator[HealthVerdict]:
    """The verdicts on the answers of one variant; a part that was not counted has none."""
    numbers = (summary.get("policies") or {}).get(main) or {}
    labels = (summary.get("task") or {}).get("labels") or ()
    if numbers.get("confusion") and len(labels) != 1:  # a text has one
        yield _collapse(numbers, labels)
    if numbers.get("over_usual"):
        yield _usual(numbers)
    if numbers.get("auroc"):
        yield _ranking(numbers, subjects_of(samples_of(summary)))
    yield from _retrieval(summary, main, numbers)
    yield from _unreadable(numbers)


def _collapse(numbers: Summary, labels: Sequence[str]) -> HealthVerdict:
    matrix = numbers["confusion"]
    answered = [sum(line[i] for line in matrix) for i in range(len(matrix))]
    whole, samples = sum(answered), sum(map(sum, matrix))
    if not whole:
        return HealthVerdict("answers", "bad", f"None of {samples:,} samples has a readable answer.")
    top = max(range(len(answered)), key=answered.__getitem__)
    share, true = answered[top] / whole, sum(matrix[top]) / samples
    name = labels[top] if top < len(labels) else top
    sentence = f'"{name}" is the answer to {answered[top]:,} of {whole:,} samples and the label of {true:.0%}.'
    if share >= COLLAPSED[1]:
        if _above(numbers.get("auroc"), 0.5):
            return HealthVerdict("answers", "doubtful", f"{sentence} The probabilities tell more than the answers.")
        return HealthVerdict("answers", "bad", f"{sentence} The same answer for everyone tells nothing.")
    state: State = "doubtful" if share >= COLLAPSED[0] and share > true + ABOVE_USUAL else "good"
    return HealthVerdict("answers", state, sentence)


def _usual(numbers: Summary) -> HealthVerdict:
    """Accuracy against the most frequent label as the answer to all."""
    value, low, high = numbers["over_usual"]
    usual = (numbers.get("answers") or {}).get("usual", "")
    sentence = f'Accuracy less that of the answer "{usual}" to all is {value:+.3f} [{low:+.3f}, {high:+.3f}].'
    if low > 0:
        return HealthVerdict("usual label", "good", sentence)
    if _above(numbers.get("auroc"), 0.5):
        return HealthVerdict("usual label", "doubtful", f"{sentence} AUROC is above chance: read it first.")
    state: State = "doubtful" if value > 0 else "bad"
    return HealthVerdict("usual label", state, f"{sentence} That is no better.")


def _ranking(numbers: Summary, subjects: str = "patients") -> HealthVerdict:
    value, low, high = numbers["auroc"]
    if low is None:
        few = (numbers.get("too_few") or {}).get("auroc", "too few patients")
        return HealthVerdict("AUROC", "bad", f"AUROC is not judged: {few}.")
    sentence = f"AUROC {value:.3f} [{low:.3f}, {high:.3f}]; chance is 0.5."
    if low > 0.5:
        return HealthVerdict("AUROC", "good", sentence)
    if value < AT_CHANCE:
        return HealthVerdict("AUROC", "bad", f"{sentence} The probabilities rank {subjects} no better than chance.")
    words = f"{sentence} These {subjects} do not show that it is better than chance."
    return HealthVerdict("AUROC", "doubtful", words)


def at_chance(numbers: Summary) -> bool:
    """Whether AUROC was measured and is no better than chance."""
    return bool(numbers.get("auroc")) and _ranking(numbers).state == "bad"


def _above(interval: Sequence[float | None] | None, limit: float) -> bool:
    return bool(interval) and interval[1] is not None and interval[1] > limit  # type: ignore[index]


def _retrieval(summary: Summary, main: str | None, numbers: Summary) -> Iterator[HealthVerdict]:
    """Whether the policy retrieves, whether its prompts show something, and whether its answers depend on it."""
    policies, rate = summary.get("policies") or {}, numbers.get("retrieval_rate")
    if not rate:
        return
    if rate[0] <= IDLE:
        others = [other for other in policies.values() if (other.get("retrieval_rate") or [0.0])[0] > IDLE]
        if others or numbers.get("when_recall"):
            yield HealthVerdict("retrieval", "bad", f"{rate[0]:.1%} of the episodes retrieve: it is never used.")
        return
    counts = numbers.get("answers") or {}
    with_evidence, retrieved = counts.get("with_evidence"), counts.get("retrieved", 0)
    if with_evidence == 0:
        yield HealthVerdict("retrieval", "bad", f"{retrieved:,} episodes retrieve and no prompt shows a passage.")
    elif with_evidence is not None and retrieved > 1 and counts["evidence"] == 1:
        yield HealthVerdict("retrieval", "bad", f"The same passages are shown in all {retrieved:,} episodes.")
    elif (same := _same_without(summary, main)) is not None and same[0] >= SAME:
        words = f"{same[0]:.1%} of the answers are those of {same[1]}: retrieval changes nothing."
        yield HealthVerdict("retrieval", "bad", words)
    elif rate[0] >= 1 - IDLE and numbers.get("when_precision") and numbers["when_precision"][0] < 1 - IDLE:
        words = f"All episodes retrieve, and {1 - numbers['when_precision'][0]:.0%} of them need nothing."
        yield HealthVerdict("retrieval", "doubtful", words)
    else:
        words = "" if same is None else f" {1 - same[0]:.0%} of the answers are others than those of {same[1]}."
        yield HealthVerdict("retrieval", "good", f"{rate[0]:.0%} of the episodes retrieve.{words}")


def _same_without(summary: Summary, main: str | None) -> tuple[float, str] | None:
    """(share of same answers, title) of the variant that never retrieves and is answered by the same weights."""
    who, policies = summary.get("answered_by") or {}, summary.get("policies") or {}
    for pair, values in (summary.get("differences") or {}).items():
        first, _, second = pair.partition(" - ")
        if first != main or values.get("same") is None or who.get(first) is None or who.get(first) != who.get(second):
            continue
        rate = policies.get(second, {}).get("retrieval_rate")
        if rate and rate[0] <= IDLE:
            return values["same"], (summary.get("titles") or {}).get(second, second)
    return None


def _unreadable(numbers: Summary) -> Iterator[HealthVerdict]:
    share = unreadable_share(numbers)
    if share > 0:
        state: State = "bad" if share >= UNREADABLE else "doubtful"
        words = f"{share:.1%} of the samples have no readable answer and count as wrong."
        yield HealthVerdict("no answer", state, words)


def patients_verdict(numbers: Summary, generated: bool, subjects: str = "patients") -> HealthVerdict:
    """Green only with enough patients, and enough whose label is another than the usual one.

    subjects: what intervals draw, in the plural: patients or questions.
    """
    count = numbers.get("patients")
    if count is None:
        return HealthVerdict(
            subjects, "bad", f"{subjects.capitalize()} were not counted, so intervals are too narrow."
        )
    state, whose = _enough(count, FEW), f"{count:,} test {subjects[:-1] if count == 1 else subjects}"
    sentence = f"{whose}; intervals draw whole {subjects}."
    counts = numbers.get("answers")
    if counts and "other_patients" in counts:
        others = counts["other_patients"]
        both = state, _enough(others, FEW_OTHERS)
        state = "bad" if "bad" in both else "doubtful" if "doubtful" in both else "good"
        whom = f"{others:,} with another label than {counts['usual']}"
        sentence = f"{whose}, {whom}; intervals draw whole {subjects}."
    return HealthVerdict(subjects, state, sentence + (" They are generated." if generated else ""))


def _enough(count: int, limits: tuple[int, int]) -> State:
    return "good" if count >= limits[0] else "doubtful" if count >= limits[1] else "bad"
