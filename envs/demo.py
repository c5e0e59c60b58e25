"""Generated patients for the environments: what `gymnasium.make("ghar/GHAR-v0")` and the other ids play on.

Runs take theirs from a configuration instead (envs/records.py). Nothing that is learned on these patients says anything
about real ones.
"""

from __future__ import annotations

from functools import cache

from ghar.data.cohort import Cohort
from ghar.data.readers.mimic4 import read_mimic4
from ghar.disk import cache_of
from ghar.envs.worlds.severity.world import World, generate_world, world_folder

PATIENTS, SEED, WORDS = 300, 0, 48  # of the generated world; of a patient's text
ETA = 5.0  # weight of the outcome, as in conf/reward


@cache
def demo_cohort(folder: str | None = None, patients: int = PATIENTS) -> tuple[World, Cohort]:
    """The generated world and its patients, kept under `folder` (None: the user's cache folder)."""
    kept = cache_of(folder)
    root = world_folder(kept, SEED, patients)
    world = generate_world(root, seed=SEED, patients=patients)
    return world, read_mimic4(root, kept / "cohorts", charts=False)
