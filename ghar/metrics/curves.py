"""Rows of metrics.jsonl as curves.

Keys that are understood: eval/<metric> with optional eval/<metric>_low and _high (its interval);
train/reward/<term>; and any train/... key that has one of DIAGNOSTICS as a part, its other parts naming the agent
("train/approx_kl", "train/approx_kl/top", "train/top/approx_kl").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ghar.metrics.charts import INK, PALETTE, Line

Row = Mapping[str, Any]
DIAGNOSTICS = {
    "approx_kl": "Approximate KL to the behaviour policy",
    "clipfrac": "Share of clipped tokens",
    "explained_variance": "Explained variance of the critic",
    "entropy": "Entropy",
}
LATELY = 5  # updates that a verdict is about
REWARD_PREFIX = "train/reward/"
WHOLE = INK  # of all agents together: no colour of the palette, so none of an agent


def evaluation(rows: Sequence[Row], metrics: Mapping[str, str]) -> list[Line]:
    """One curve per metric of {metric: label} over PPO updates, starting with the warmed-up policy at update 0."""
    points = [row for row in rows if row["phase"] == "rl"]
    if not any(row["step"] == 0 and _is_evaluation(row) for row in points):
        warmed_up = [row for row in rows if row["phase"] == "sft" and _is_evaluation(row)]
        points = [{**row, "step": 0} for row in warmed_up[-1:]] + points
    lines = [_line(points, f"eval/{name}", label, PALETTE[i]) for i, (name, label) in enumerate(metrics.items())]
    return [line for line in lines if line.x]


def reward_terms(rows: Sequence[Row]) -> list[Line]:
    """One curve per reward term over PPO updates."""
    points = [row for row in rows if row["phase"] == "rl"]
    keys = sorted({key for row in points for key in row if key.startswith(REWARD_PREFIX)})
    return [
        _line(points, key, key.removeprefix(REWARD_PREFIX), PALETTE[i % len(PALETTE)]) for i, key in enumerate(keys)
    ]


def agents(rows: Sequence[Row]) -> list[str]:
    """Names of the agents that have a PPO diagnostic of their own."""
    keys = {key for row in rows for key in row}
    return sorted({agent for name in DIAGNOSTICS for key in keys if (agent := _agent(key, name))})


def diagnostic(rows: Sequence[Row], name: str, colors: Mapping[str, str]) -> list[Line]:
    """One curve per agent of a PPO diagnostic, and one of all agents. colors: of the names in `agents`."""
    points = [row for row in rows if row["phase"] == "rl"]
    keys = sorted({key for row in points for key in row})
    curves = [(key, agent) for key in keys if (agent := _agent(key, name)) is not None]
    lines = [
        _line(points, key, agent or "all agents", colors[agent] if agent else WHOLE) for key, agent in curves
    ]  # fmt: skip
    return [line for line in lines if line.x]


def critic(rows: Sequence[Row]) -> str | None:
    """What the critic was worth over the last updates, in words; None for a run without one."""
    points = [row for row in rows if row["phase"] == "rl" and row.get("train/explained_variance") is not None][-LATELY:]
    if not points:
        return None
    own = _mean(points, "train/explained_variance")
    text = f"Over the last {len(points)} updates the critic explains {own:.0%} of the variance of what episodes earned"
    boosting = [row for row in points if row.get("train/explained_variance/boosting") is not None]
    if boosting:
        share = _mean(boosting, "train/explained_variance/boosting")
        text += f", gradient boosting on plain numbers of the episode so far {share:.0%}"
    if points[-1].get("train/critic/worthless"):
        text += ". That is no more than a constant would: the advantages are returns with a constant baseline"
    return text + "."


def _mean(rows: Sequence[Row], key: str) -> float:
    return sum(row[key] for row in rows) / len(rows)


def _agent(key: str, name: str) -> str | None:
    """The agent whose diagnostic `name` a key holds, "" for that of all; None for other keys."""
    kind, *parts = key.split("/")
    if kind != "train" or name not in parts:
        return None
    return "/".join(part for part in parts if part != name)


def warm_up(rows: Sequence[Row]) -> list[Line]:
    """Training loss of the phases before RL."""
    names = {"base": "base facts", "sft": "SFT"}
    lines = []
    for i, (phase, label) in enumerate(names.items()):
        lines.append(_line([row for row in rows if row["phase"] == phase], "train/loss", label, PALETTE[i]))
    return [line for line in lines if line.x]


def _is_evaluation(row: Row) -> bool:
    return any(key.startswith("eval/") for key in row)


def _line(rows: Sequence[Row], key: str, label: str, color: str) -> Line:
    """The points of one key; rows where it is absent or null are left out."""
    points = [row for row in rows if row.get(key) is not None]
    has_interval = all(row.get(key + side) is not None for row in points for side in ("_low", "_high"))
    low, high = ([row[key + side] for row in points] if has_interval else [] for side in ("_low", "_high"))
    return Line(label, [row["step"] for row in points], [row[key] for row in points], color, low, high)
