"""The pictures of docs/gallery.md, from generated patients alone.

A short training (TRAINED) gives the report's first page, a learning curve and an episode; a study of fixed rules gives
a figure; a search over a generated patient graph gives a walk. Chromium draws the pages.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ghar.errors import BadInput

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "gallery"
TRAINED = ("+experiment=quick", "trainer.rl.updates=8", "trainer.rl.eval_every=1", "trainer.rl.eval_samples=40",
           "threads=1")  # fmt: skip
STUDY = """
title: What each source is worth
about: Fixed rules on generated patients.
main: all
tasks: [los]
cohorts: {mixed: [data=demo_four]}
overrides: [task.split_of=cohort, "data.more=[omr]", system.max_iterations=6]
runs:
  - {name: all, system: ghar, overrides: ["system.sources=[graph,past,reports]"]}
  - {name: graph, system: ghar, overrides: ["system.sources=[graph]"]}
  - {name: past, system: ghar, overrides: ["system.sources=[past]"]}
  - {name: reports, system: ghar, overrides: ["system.sources=[reports]"]}
rows:
  - {name: all, title: All sources, run: all, variant: ghar_rl, rule: scripted}
  - {name: graph, title: Graph, run: graph, variant: ghar_rl, rule: scripted}
  - {name: past, title: Own past, run: past, variant: ghar_rl, rule: scripted}
  - {name: reports, title: Reports, run: reports, variant: ghar_rl, rule: scripted}
tables:
  - {name: costs, title: Accuracy against look-ups, metrics: [accuracy, lookups], draw: scatter}
"""
COLORS = 48  # of a picture of a page
WALK = 3  # which of the generated patients is walked for


def gallery(folder: Path, pictures: Path = PICTURES) -> dict[str, int]:
    """Draw all pictures into `pictures`; what they are made from stays in `folder`. Returns bytes by name."""
    if shutil.which("chromium") is None:
        raise BadInput("The gallery's pages are drawn by Chromium, which is not installed: apt-get install chromium.")
    pictures.mkdir(exist_ok=True)
    run = folder / "trained"
    _launch("train.py", *TRAINED, f"run_dir={run}")
    _photograph(run / "report.html", pictures / "report.png", 1000, 1250)
    (pictures / "learning.svg").write_text(_learning(run))
    trace = folder / "trace.html"
    trace.write_text(_trace(run))
    _photograph(trace, pictures / "episode.png", 900, 630)
    (folder / "study.yaml").write_text(STUDY)
    _launch("study.py", f"study={folder / 'study.yaml'}", "scale=rules", f"folder={folder / 'study'}")
    [figure] = (folder / "study").rglob("costs*.png")
    (pictures / "study.png").write_bytes(_few_colors(figure.read_bytes()))
    (pictures / "walk.svg").write_text(_walk())
    return {path.name: path.stat().st_size for path in sorted(pictures.iterdir())}


def _launch(script: str, *overrides: str) -> None:
    subprocess.run([sys.executable, str(ROOT / "launch" / script), *overrides], check=True, cwd=ROOT)


def _photograph(page: Path, picture: Path, width: int, height: int) -> None:
    """The first screen of a page."""
    shot = (f"--window-size={width},{height}", f"--screenshot={picture.resolve()}", page.resolve().as_uri())
    command = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *shot)
    subprocess.run(command, check=True, capture_output=True)
    picture.write_bytes(_few_colors(picture.read_bytes()))


def _few_colors(png: bytes) -> bytes:
    from PIL import Image  # comes with matplotlib

    small = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(COLORS).save(small, "png", optimize=True)
    return small.getvalue()


def _learning(run: Path) -> str:
    from ghar.metrics import curves
    from ghar.metrics.charts import line_chart
    from ghar.metrics.runfolder import RunFolder

    lines = curves.evaluation(list(RunFolder(run).metrics()), {"reward": "validation reward"})
    return _alone(line_chart("Validation reward", lines, x_label="PPO update", y_label="reward"))


def _alone(svg: str) -> str:
    """An inline SVG as a file of its own, on white paper."""
    head, end, rest = svg.partition(">")
    white = '<rect width="100%" height="100%" fill="white"/>'
    return f'{head} xmlns="http://www.w3.org/2000/svg" font-family="sans-serif"{end}{white}{rest}'


def _trace(run: Path) -> str:
    """A test episode with a retrieval, turn by turn."""
    from ghar.metrics.runfolder import RunFolder

    rows: Iterator[Mapping[str, Any]] = RunFolder(run).episodes("scripted")
    row = next(row for row in rows if any(turn["evidence"] for turn in row["turns"]))
    parts = [f"<h1>One episode</h1><pre>{escape(row['turns'][0]['prompt'])}</pre>"]
    for turn in row["turns"]:
        evidence = f"<pre>{escape(turn['evidence'])}</pre>" if turn["evidence"] else ""
        parts.append(
            f"<div class={turn['agent']}><b>Agent-{turn['agent'].capitalize()}, {turn['role']}</b>"
            f"<p>{escape(turn['reply'])}</p>{evidence}</div>"
        )
    style = (
        "body{font:15px sans-serif;margin:24px;color:#1f2933}div{border-left:5px solid #0b5cad;padding:4px 14px;"
        "margin:10px 0}div.low{border-color:#b45309;margin-left:40px}p{margin:4px 0}"
        "pre{background:#f1f4f8;padding:8px;white-space:pre-wrap;margin:6px 0}h1{font-size:20px}"
    )
    return f"<!doctype html><meta charset=utf-8><style>{style}</style>{''.join(parts)}"


def _walk() -> str:
    """The patient graph seen from its two widest directions, and what the greedy search picked for one patient."""
    from ghar.envs.graphwalker.selection_game import K_G, PATIENTS, SPEC, demo_walks, play, random_graph
    from ghar.envs.graphwalker.selectors.search import greedy
    from ghar.metrics.charts import CLEAR, INK, PALETTE, drawing

    scene = demo_walks(seed=0)
    case, graph = scene.cases[WALK], random_graph(np.random.default_rng(0), PATIENTS, K_G)  # the scene's own
    corpus: Any = scene.corpus
    walk = play(greedy(case.anchors, case.near, SPEC.budget), corpus.entropies[case.sample_id])
    centred = graph.vectors - graph.vectors.mean(0)
    x, y = (centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T).T
    with drawing("A walk over the patient graph", height=4.2) as (_, axes, svg):
        axes.set_axis_off()
        ends = np.array([(row, other) for row in range(PATIENTS) for other in graph.neighbours_of(row) if row < other])
        gap = np.full(len(ends), np.nan)  # between two edges: all are one line, which keeps the file small
        lines = [np.column_stack([side[ends[:, 0]], side[ends[:, 1]], gap]).ravel() for side in (x, y)]
        axes.plot(*lines, color="#d9dee4", linewidth=0.5, zorder=1)
        axes.scatter(x, y, s=22, c=[PALETTE[cohort % len(PALETTE)] for cohort in graph.cohorts], zorder=2)
        start = list(case.anchors)
        axes.scatter(x[start], y[start], s=80, facecolors="none", edgecolors=INK, linewidths=1.3, zorder=3)
        for number, (row, gain) in enumerate(zip(walk.shots, walk.gains, strict=True), start=1):
            axes.scatter(x[row], y[row], s=130, marker="*", color=INK, zorder=5)
            axes.annotate(f"{number}", (x[row], y[row]), xytext=(7, 5), textcoords="offset points", fontsize=11,
                          fontweight="bold", bbox=CLEAR, zorder=6)  # fmt: skip
            axes.text(0, 1 - 0.05 * number, f"{number} gains {gain:.2f} nats", transform=axes.transAxes)
    return _alone(svg[0])
