"""Rows of a table of tokens, renumbered: what order-invariance is tested with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ghar.trainers.rl.trajectory import Trajectories, spans


def token_index(traj: Trajectories, rows: Sequence[int]) -> np.ndarray:
    """int64: flat positions of the tokens of `rows`, in that order; cuts any [T] array to match `select`."""
    at = np.asarray(rows, dtype=np.int64)
    return spans(traj.segments.start[2 * at], traj.segments.end[2 * at + 1])


def select(traj: Trajectories, rows: Sequence[int]) -> Trajectories:
    """Only `rows`, renumbered in that order."""
    at = np.asarray(rows, dtype=np.int64)
    table = traj.segments.take(np.stack([2 * at, 2 * at + 1], axis=1).ravel())
    ends = np.cumsum(table.end - table.start)
    table = replace(table, row=np.repeat(np.arange(len(at)), 2), start=ends - (table.end - table.start), end=ends)
    index, choices = token_index(traj, rows), tuple(traj.choice_ids[r] for r in at)
    return replace(traj, tokens=traj.tokens[index], logprobs=traj.logprobs[index], segments=table, choice_ids=choices)
