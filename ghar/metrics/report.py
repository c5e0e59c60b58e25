"""report.html: one self-contained page about a run, made from its folder and what a `ReportStyle` says of its system.

summary.json, every key optional so that a run killed early still has a report:
    generated     true when the patients are generated (demo world)
    scale, experiment, seed, commit
    task          {"name", "labels": [...], "samples": texts or questions, where they are no stays}
    metric        the main one, where it is not accuracy
    ceilings      {name: best possible accuracy on the test cases}, as ghar.metrics.upper_bounds words them, or null
    data          {count: number}, shown as it stands
    titles        {policy: what it is shown as}; for whoever makes the Look, and for the sections of a system
    policies      {name: ghar.metrics.policy.policy_summary(...)}
    differences   {"a - b": ghar.metrics.policy.compare(...), ...}
    time          {phase: seconds}
    base_replies  {role that decides: {"right", "usual", "replies"}}: of the base model, beside its teacher
    best_step     {"step", "seconds"}: of SFT's lowest loss on validation samples, and the training until then
    memory_gb     peak
metrics.jsonl and episodes/ as in ghar.metrics.runfolder and ghar.metrics.curves; episodes/<policy>.jsonl is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ghar.errors import BadInput
from ghar.metrics import breakdown, curves, health
from ghar.metrics.charts import PALETTE, Dot, Level, Line, dot_chart, line_chart
from ghar.metrics.explorer import Explorer, as_script, explore
from ghar.metrics.model_size import best_step_in_words, budget_in_words, size_in_words
from ghar.metrics.runfolder import RunFolder, write_whole
from ghar.metrics.style import ReportStyle, in_order, metric_title, pages, part_of
from ghar.metrics.traces import Row
from ghar.metrics.upper_bounds import base_in_words, equal_bounds, in_words

PAPER = re.compile(r"(?m)^\s+leakage: paper\s*$")  # of config.yaml
OTHER = "#475569"
FITS = 40  # letters of a ceiling's names in a chart
TABLE = {  # section: {metric: (shown as, digits)}
    "Prediction": {
        "accuracy": ("Accuracy", 3), "f1": ("F1 of the chosen options", 3), "precision": ("Precision of the chosen", 3),
        "recall": ("Recall of the right ones", 3),
        "balanced_accuracy": ("Balanced accuracy", 3), "macro_f1": ("Macro-F1", 3),
        "sensitivity": ("Sensitivity", 3), "specificity": ("Specificity", 3),
        "ppv": ("Positive predictive value", 3), "npv": ("Negative predictive value", 3), "auroc": ("AUROC", 3),
        "auprc": ("AUPRC", 3), "reward": ("Reward", 3),
    },
    "Calibration": {
        "ece": ("Expected calibration error", 3), "brier": ("Brier score", 3),
        "temperature": ("Temperature fitted on validation cases", 2),
        "ece_calibrated": ("Expected calibration error at it", 3), "brier_calibrated": ("Brier score at it", 3),
        "confidence": ("Mean top probability", 3), "top_accuracy": ("Accuracy of the most probable label", 3),
    },
    "When to retrieve": {
        "retrieval_rate": ("Episodes with retrieval", 3), "when_precision": ("Precision", 3),
        "when_recall": ("Recall", 3), "when_f1": ("F1", 3),
    },
    "Cost per episode": {
        "iterations": ("Iterations", 2), "tokens": ("Tokens", 0), "seconds": ("Seconds", 3),
        "format_errors": ("Unreadable replies, share of turns", 3),
        "completed_decisions": ("Decisions chosen behind words that left them open, share of turns", 3),
        "ungrounded": ("Sub-queries naming what the patient does not have, share", 3),
        "repeated_ids": ("Repeated ids, share of ids named", 3),
    },
}  # fmt: skip


def write_report(folder: Path, about: ReportStyle | None = None) -> Path:
    """Write <folder>/report.html and return its path. about: None shows every variant under its own name.

    Parts the run has not written are named in the report. Raises BadInput for a folder that is no run folder and for
    files that cannot be read.
    """
    run = RunFolder(folder)
    summary, rows = run.summary(), run.metrics()
    if summary is None and not rows and not run.episode_names():
        raise BadInput(f"{folder} holds no summary.json, metrics.jsonl or episodes: name the folder of a run")
    content = _content(run, summary or {}, rows, _style(about or ReportStyle(), summary or {}))
    html = pages("ghar.metrics", "templates").get_template("report.html").render(content)
    path = folder / "report.html"
    # A model may reply with half a surrogate pair, which UTF-8 has no bytes for.
    write_whole(path, html.encode("utf-8", "replace").decode())
    return path


def _style(about: ReportStyle, summary: Mapping[str, Any]) -> ReportStyle:
    """The style with the samples and the metric that a summary names, about the variant that it compares with others,
    where the style's own main one was not played."""
    samples = (summary.get("task") or {}).get("samples", about.samples)
    about = replace(about, samples=samples, metric=summary.get("metric", about.metric))
    return about if about.main in (summary.get("policies") or {}) else replace(about, main=summary.get("main"))


def _content(
    run: RunFolder, summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], about: ReportStyle
) -> dict[str, Any]:
    """What the template shows; a part that is None or empty is shown as missing."""
    entries = summary.get("policies") or {}
    policies = {name: entries[name] for name in in_order(entries, about.titles)}
    # episodes of a variant without numbers are of an earlier evaluation, maybe of other weights
    names = in_order([name for name in run.episode_names() if not policies or name in policies], about.titles)
    every = in_order([*policies, *names], about.titles)
    colors = _colors(every)
    labels = (summary.get("task") or {}).get("labels") or []
    tallies = {name: breakdown.RowCounts() for name in names}
    explorer = _explorer(run, tallies, about, labels)
    training = _training(run, labels)
    acting = [agent for part in (explorer, training) if part for agent in part.agents]
    agents = _colors([*acting, *curves.agents(rows)])
    main = about.main_of(list(policies))
    content = {
        "name": run.path.resolve().name,
        "summary": summary,
        "generated": summary.get("generated"),
        "about": about,
        "part": part_of(summary),
        "main": main,
        "story": story(summary, about, main),
        "outcomes": health.outcome(summary, about, main),
        "health": health.verdicts(summary, rows, main) if policies else [],
        "policies": policies,
        "counted": {name: _counted(policy, about) for name, policy in policies.items()},
        "shown_as": {name: about.title(name) for name in every},
        "colors": colors,
        "agents": agents,
        "other": OTHER,
        "ceilings": in_words(summary),
        "table": _table(policies),
        "differences": _differences(summary.get("differences") or {}, about),
        "comparison": _comparison_charts(policies, summary, about, colors),
        "learning": _learning_charts(rows, ceiling_levels(summary), about),
        "critic": curves.critic(rows),
        "diagnostics": _diagnostic_charts(rows, agents),
        "labels": labels,
        "explorer": explorer,
        "training": training,
        "agent_colors": as_script(agents),
        **_broken_down(tallies, labels, about, colors),
        "provenance": _provenance(summary),
        "config": (written := run.config_text()),
        "paper": about.kind is None and bool(PAPER.search(written or "")),
        "with_matrix": [name for name in policies if len(labels) != 1 and policies[name].get("confusion")],
    }
    return {**content, "missing": _missing(content)}


def _colors(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, by order; after the last of the palette they start again."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(dict.fromkeys(names))}


def _counted(policy: Mapping[str, Any], about: ReportStyle) -> str:
    """ "934 stays of 400 patients; intervals by resampling patients"; what a summary does not say is left out."""
    samples, subjects = about.samples, about.subjects
    if policy.get("n") is None:
        return ""
    if samples == subjects:
        return f"{policy['n']:,} {samples}; intervals by resampling {samples}"
    if policy.get("patients") is None:
        return f"{policy['n']:,} {samples}; intervals by resampling {samples}, patients were not counted"
    return f"{policy['n']:,} {samples} of {policy['patients']:,} {subjects}; intervals by resampling {subjects}"


def _missing(content: Mapping[str, Any]) -> list[str]:
    """The parts this run has not written."""
    learned = content["about"].learns
    parts = {
        "summary.json (final numbers)": content["summary"],
        "policies in summary.json": content["policies"],
        "evaluations during RL (metrics.jsonl)": content["learning"] or not learned,
        "PPO diagnostics (metrics.jsonl)": content["diagnostics"] or not learned,
        "episodes/*.jsonl": content["explorer"],
        "config.yaml": content["config"],
    }
    return [name for name, part in parts.items() if not part]


def ceiling_levels(summary: Mapping[str, Any]) -> list[Level]:
    """The ceilings of a summary as lines of a chart, those of one value as one."""
    bounds = equal_bounds(summary).items()
    return [Level(f"{_few_names(names)} ceiling {value}", float(value)) for value, names in bounds]


def _few_names(names: Sequence[str]) -> str:
    """The names as they are, where a chart has room for them, else the first and how many more."""
    whole = ", ".join(names)
    return whole if len(names) == 1 or len(whole) <= FITS else f"{names[0]} and {len(names) - 1} more"


def _table(policies: Mapping[str, Any]) -> dict[str, list[tuple[str, list[tuple[str, str] | None]]]]:
    """{section: [(metric, one (value, interval) or None per policy)]}, without metrics that no policy has."""
    sections = {}
    for section, metrics in TABLE.items():
        lines = []
        for metric, (title, digits) in metrics.items():
            cells = [_few(policy, metric) or _cell(policy.get(metric), digits) for policy in policies.values()]
            if any(cells):
                lines.append((title, cells))
        sections[section] = lines
    sections |= _named_by_the_system(list(policies.values()))
    return {section: lines for section, lines in sections.items() if lines}


def _named_by_the_system(policies: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[str, list[Any]]]]:
    """Sections of `_table` whose lines no one knows beforehand: reward terms, and metrics that a module added."""
    sections = {
        "Reward by term, weighted": [policy.get("reward_terms") or {} for policy in policies],
        "Further metrics": [{name: p.get(name) for name in p.get("own_metrics") or ()} for p in policies],
    }
    return {
        section: [
            (name, [_cell(values.get(name), 3) for values in columns])
            for name in dict.fromkeys(name for values in columns for name in values)
        ]
        for section, columns in sections.items()
    }


def _few(policy: Mapping[str, Any], metric: str) -> tuple[str, str] | None:
    """ "too few" and the counts, for a metric that rests on too few patients of a label."""
    words = (policy.get("too_few") or {}).get(metric)
    return ("too few", words) if words and metric in policy else None


def _cell(interval: Sequence[float | None] | float | None, digits: int, sign: str = "") -> tuple[str, str] | None:
    """(value, interval); a number alone has none."""
    if isinstance(interval, float | int):
        return f"{interval:{sign},.{digits}f}", ""
    if interval is None or any(value is None for value in interval):
        return None
    value, low, high = (f"{value:{sign},.{digits}f}" for value in interval)
    return value, f"{low} to {high}"


def _differences(differences: Mapping[str, Any], about: ReportStyle) -> list[tuple[str, Any, Any]]:
    """(name, cell of the main metric, reward cell) per pair of policies."""
    lines = []
    for pair, values in differences.items():
        name = " minus ".join(about.title(policy) for policy in pair.split(" - "))
        lines.append((name, _cell(values.get(about.metric), 3, "+"), _cell(values.get("reward"), 3, "+")))
    return lines


def _comparison_charts(
    policies: Mapping[str, Any], summary: Mapping[str, Any], about: ReportStyle, colors: Mapping[str, str]
) -> list[tuple[str, str]]:
    """(caption, SVG): main metric and reward of every policy."""
    charts = []
    for metric, caption, levels in (
        (about.metric, f"{about.metric_title} on the {part_of(summary)} {about.subjects}", ceiling_levels(summary)),
        ("reward", "Reward per episode", ()),
    ):
        dots = [Dot(about.title(name), *policy[metric], color=colors[name]) for name, policy in policies.items()
                if _cell(policy.get(metric), 3)]  # fmt: skip
        if dots:
            charts.append((caption, dot_chart(caption, dots, x_label=metric_title(metric), levels=levels)))
    return charts


def _learning_charts(
    rows: Sequence[Mapping[str, Any]], ceilings: Sequence[Level], about: ReportStyle
) -> list[tuple[str, str]]:
    """(caption, SVG) of what RL changed, each curve starting with the SFT policy at update 0."""
    retrieval = {
        "retrieval_rate": "episodes with retrieval", "when_precision": "precision", "when_recall": "recall",
        "when_f1": "F1",
    }  # fmt: skip
    title = metric_title(about.metric)
    main = _from_sft(curves.evaluation(rows, {about.metric: title}))
    charts = [
        ("Validation reward", _from_sft(curves.evaluation(rows, {"reward": "reward"})), "reward", ()),
        (f"Validation {title}", main, title, ceilings),
        ("When to retrieve, validation", curves.evaluation(rows, retrieval), "share", ()),
        ("Reward terms, training", curves.reward_terms(rows), "mean per episode", ()),
    ]
    return [
        (caption, line_chart(caption, lines, x_label="PPO update", y_label=y_label, levels=levels))
        for caption, lines, y_label, levels in charts
        if lines
    ]


def _from_sft(lines: Sequence[Line]) -> list[Line]:
    return [Line(ln.label, ln.x, ln.y, ln.color, ln.low, ln.high, "SFT" if ln.x[0] == 0 else "") for ln in lines]


def _diagnostic_charts(rows: Sequence[Mapping[str, Any]], colors: Mapping[str, str]) -> list[tuple[str, str]]:
    """(caption, SVG) per PPO diagnostic and of the warm-up's loss."""
    charts = [(caption, curves.diagnostic(rows, name, colors), "PPO update")
              for name, caption in curves.DIAGNOSTICS.items()]  # fmt: skip
    charts.append(("Warm-up loss", curves.warm_up(rows), "step"))
    return [(caption, line_chart(caption, lines, x_label=x_label, y_label=""))
            for caption, lines, x_label in charts if lines]  # fmt: skip


def _explorer(
    run: RunFolder, tallies: Mapping[str, breakdown.RowCounts], about: ReportStyle, labels: Sequence[str]
) -> Explorer | None:
    """All episodes, read once; the tallies count them as they pass."""
    main = about.main_of(list(tallies))
    if main is None:
        return None
    groups = run.groups()

    def rows(name: str) -> Iterator[Row]:
        grouped = ({**row, "groups": groups.get(row["sample_id"], {})} for row in run.episodes(name))
        return iter(tallies[name].through(grouped))

    order = dict.fromkeys(name for name in (main, about.before, *tallies) if name is not None and name in tallies)
    explorer = explore({name: rows(name) for name in order}, main, labels)
    return explorer if explorer.samples else None


def _training(run: RunFolder, labels: Sequence[str]) -> Explorer | None:
    """The kept episodes of training, each under a name of its own: a sample may come again in another update."""

    def named(row: Row) -> Row:
        name = f"{row['sample_id']}, update {row['update']}, attempt {row['attempt'] + 1}"
        return {**row, "sample_id": name, "groups": {"update": row["update"]}}

    explorer = explore({"training": map(named, run.training_episodes())}, "training", labels)
    return explorer if explorer.samples else None


def _broken_down(
    tallies: Mapping[str, breakdown.RowCounts], labels: Sequence[str], about: ReportStyle, colors: Mapping[str, str]
) -> dict[str, Any]:
    """Calibration, subgroups, labels and costs."""
    if not tallies or not any(tally.right for tally in tallies.values()):
        return {"reliability": [], "decision": [], "operating": [], "subgroups": {}, "balance": [], "costs": []}
    curves_of = [(breakdown.reliability, "Reliability", "probability", "share right"),
                 (breakdown.decision_curve, "Decision curve", "threshold", "net benefit"),
                 (breakdown.roc_curve, "ROC curve", "1 - specificity", "sensitivity"),
                 (breakdown.precision_recall, "Precision and recall", "sensitivity",
                  "positive predictive value")]  # fmt: skip
    drawn = []
    for make, caption, x_label, y_label in curves_of:
        lines = [replace(line, label=about.title(line.label)) for line in make(tallies, labels, colors)]
        drawn.append([(caption, line_chart(caption, lines, x_label=x_label, y_label=y_label))] if lines else [])
    return {
        "reliability": drawn[0],
        "decision": drawn[1],
        "operating": [*drawn[2], *drawn[3]],
        "subgroups": breakdown.subgroups(tallies),
        "balance": breakdown.balance(next(iter(tallies.values())), labels) if len(labels) != 1 else [],
        "costs": [(name, round(tally.calls), round(tally.tokens), tally.seconds) for name, tally in tallies.items()],
    }


def story(summary: Mapping[str, Any], about: ReportStyle, main: str | None) -> str:
    """What was trained, on whom, and what stands beside it; "" without any variant."""
    if main is None:
        return ""
    generated = summary.get("generated")
    whose = "patients" if generated is None else "generated patients" if generated else "real patients"
    counts, learns = summary.get("data") or {}, about.learns
    trained, every, some = counts.get("train samples"), about.kind or whose, about.kind or f"{about.samples} of {whose}"
    on = f" on {trained:,} {some}" if isinstance(trained, int) and learns else f" on {every}"
    did = "was trained by reinforcement learning" if learns else "was evaluated"
    asked = (summary.get("task") or {}).get("question") or ""
    others = [about.title(name) for name in summary.get("policies") or {} if name != main]
    against = f" Beside it: {'; '.join(others)}." if others else ""
    question = f" The question: {asked}" if asked else ""
    return f"System {summary.get('system', about.title(main))} {did}{on}.{question}{against}"


def _provenance(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Code, protocol, seed and weights behind the numbers."""
    titles = {"commit": "Commit", "protocol": "Protocol", "seed": "Seed", "experiment": "Experiment", "scale": "Scale"}
    rows = [(title, str(summary[key])) for key, title in titles.items() if summary.get(key) is not None]
    descriptions = {"Model": size_in_words, "Trained on": budget_in_words, "Best validation loss": best_step_in_words,
                    "Base model": base_in_words}  # fmt: skip
    rows += [(title, words) for title, of in descriptions.items() if (words := of(summary))]
    for name, who in (summary.get("answered_by") or {}).items():
        rows.append((f"{name} was answered by", str(who)))
    return rows
