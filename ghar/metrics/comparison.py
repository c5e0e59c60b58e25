"""Several systems side by side: a table as text, and one self-contained page that shows one patient through all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ghar.metrics.answers import UNREADABLE, unreadable_share
from ghar.metrics.explorer import as_script
from ghar.metrics.style import ACCURACY, KINDS, metric_of, metric_title, part_of, samples_of, subjects_of
from ghar.metrics.upper_bounds import in_words

Row = Mapping[str, Any]
SCORES = {ACCURACY: "accuracy", "balanced_accuracy": "balanced accuracy", "macro_f1": "macro-F1", "auroc": "AUROC"}
COSTS = {"calls": "calls", "tokens": "tokens", "lookups": "retrievals", "seconds": "seconds"}
LEFT_OUT = ("balanced_accuracy", "auroc", "seconds")  # of the printed table
PRINTED = 5  # columns that stand beside each other in it
MAX_SAMPLES = 300  # patients' samples in the trace browser; the rows of all are in episodes/
CUT = 6000  # characters of a prompt on the page


def cell(value: Any, digits: int = 3) -> str:
    """A number with its interval, "too few" where too few patients give it none, "-" where it is not there."""
    if not isinstance(value, list | tuple) or value[0] is None:
        return "-"
    if None in value:
        return "too few"
    return f"{value[0]:.{digits}f} [{value[1]:.{digits}f}, {value[2]:.{digits}f}]"


def table(summary: Row) -> str:
    """The main numbers, the paired differences in the main metric, and who could not be compared, as text."""
    numbers = summary["policies"]
    first = max(len(name) for name in numbers) + 2
    lines = [f"{summary['experiment']}: {counted(summary)}; intervals by resampling {subjects_of(samples_of(summary))}"]
    columns = {key: title for key, title in columns_of(summary).items() if key not in LEFT_OUT}
    for start in range(0, len(columns), PRINTED):
        some, last = list(columns)[start : start + PRINTED], start + PRINTED >= len(columns)
        head = "".join(f"{columns[c]:>24}" for c in some)
        lines.append(f"{'system.variant':{first}}{head}" + ("  answered by" if last else ""))
        for name, values in numbers.items():
            cells = "".join(f"{cell(values.get(c), 1 if c in COSTS else 3):>24}" for c in some)
            lines.append(f"{name:{first}}{cells}" + (f"  {summary['answered_by'][name]}" if last else ""))
    metric = metric_of(summary)
    for pair, values in summary["differences"].items():
        lines.append(f"{pair}: {metric_title(metric)} {cell(values.get(metric))}{no_rival(summary, pair)}")
    lines += [f"ceiling on accuracy: {ceiling}" for ceiling in in_words(summary)]
    lines += [f"left out: {name}: {reason}" for name, reason in summary["left_out"].items()]
    if part_of(summary) != "test":
        subjects = subjects_of(samples_of(summary))
        lines.append(
            f"These are validation {subjects}: settings may have been chosen on them, so this is no test result."
        )
    if summary["generated"]:
        lines.append("These patients are generated; the numbers say nothing about real ones.")
    return "\n".join(lines)


def columns_of(summary: Row) -> dict[str, str]:
    """{number: title} of the table: scores of classes and the systems' own metrics, then costs. With another main
    metric than accuracy this one and the own metrics stand first, and accuracy is all that is left of classes."""
    own = [name for numbers in summary["policies"].values() for name in numbers.get("own_metrics") or ()]
    metric = metric_of(summary)
    names = (*SCORES, *own) if metric == ACCURACY else (metric, *own, ACCURACY)
    return {name: SCORES.get(name) or metric_title(name) for name in names} | COSTS


def counted(summary: Row) -> str:
    """ "40 samples of 20 patients"; questions are of no patients."""
    samples = samples_of(summary)
    subjects, noun = subjects_of(samples), samples if samples in KINDS else "samples"
    of_subjects = "" if subjects == samples else f" of {summary['patients']} {subjects}"
    return f"{summary['samples']} {noun}{of_subjects}"


def no_rival(summary: Row, pair: str) -> str:
    """ "; not compared: ..." for a pair of which one has too few readable answers, else ""."""
    shares = {name: unreadable_share(summary["policies"].get(name) or {}) for name in pair.split(" - ")}
    unreadable = {name: share for name, share in shares.items() if share >= UNREADABLE}
    words = [f"{share:.0%} of the answers of {name} could not be read" for name, share in unreadable.items()]
    return f"; not compared: {', '.join(words)}" if words else ""


def page(summary: Row, rows: Mapping[str, Sequence[Row]]) -> str:
    """The page, whose patients are those of the first variant."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(
        loader=PackageLoader("ghar.metrics"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    pages.filters |= {"cell": cell, "no_rival": no_rival}
    metric = metric_of(summary)
    html = pages.get_template("comparison.html").render(
        summary=summary, part=part_of(summary), columns=columns_of(summary), costs=COSTS, counted=counted(summary),
        subjects=subjects_of(samples_of(summary)), metric=metric, metric_title=metric_title(metric),
        ceilings=in_words(summary), traces=as_script(_traces(rows)),
    )  # fmt: skip
    return html.encode("utf-8", "replace").decode()


def _traces(rows: Mapping[str, Sequence[Row]]) -> list[dict[str, Any]]:
    """What the browser of the page shows: one sample after the other, with every variant's episode."""
    by_name = {name: {row["sample_id"]: row for row in some} for name, some in rows.items()}
    samples = [row["sample_id"] for row in next(iter(rows.values()))][:MAX_SAMPLES]
    return [
        {
            "sample": sample,
            "patient": next(iter(by_name.values()))[sample]["patient"],
            "label": next(iter(by_name.values()))[sample]["label"],
            "episodes": {name: _episode(by_sample[sample]) for name, by_sample in by_name.items()},
        }
        for sample in samples
    ]


def _episode(row: Row) -> dict[str, Any]:
    turns = [
        {
            "who": f"{turn['agent']}: {turn['role']}",
            "prompt": turn["prompt"][-CUT:],
            "reply": turn["reply"],
            "evidence": turn["evidence"],
        }
        for turn in row["turns"]
    ]
    return {"prediction": row["prediction"], "correct": row["correct"], "failure": row["failure"], "turns": turns}
