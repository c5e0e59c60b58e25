"""How much of our code one update runs: files, functions and depth of calls, of the plain and of the fast trainer.

Counted by Python's profile hook over a training with `trainer.rl.updates=1`, from its rollout to the optimiser's steps,
evaluation left out. Depth counts our own frames alone, the loop's being 1; a generator counts where it runs.
Functions of the system's own room (prompts, episode, reward) are counted too: both trainers run the same. What runs on
another thread is not counted: the fast rollout retrieves on one.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OURS = tuple(f"{ROOT / name}/" for name in ("ghar", "envs", "rewards", "trainers", "launch"))
SMALL = ("+experiment=quick", "trainer.rl.updates=1", "trainer.rl.eval_every=10", "trainer.rl.eval_samples=1",
         "trainer.warmup.samples=30", "task.max_test=1", "trainer.base.steps=0")  # fmt: skip


class Road:
    """Counts what runs below functions named `begin` of file `file`, without what runs below those in `without`."""

    def __init__(self, file: str, begin: str, without: Sequence[str]) -> None:
        self.file, self.begin, self.without = file, begin, without
        self.functions: set[tuple[str, int]] = set()
        self.depth = 0
        self.paths: dict[str, str] = {}  # of our files, by the name their code has; "" for all others

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or not (own := self._path(frame)):
            return
        depth, above = 0, frame
        while above is not None:
            if path := self._path(above):
                depth += 1
                if above.f_code.co_name in self.without:
                    return
                if above.f_code.co_name == self.begin and path.endswith(self.file):
                    self.functions.add((own, frame.f_code.co_firstlineno))
                    self.depth = max(self.depth, depth)
                    return
            above = above.f_back

    def _path(self, frame: FrameType) -> str:
        name = frame.f_code.co_filename
        if name not in self.paths:
            path = str(Path(name).resolve())
            self.paths[name] = path if path.startswith(OURS) else ""
        return self.paths[name]

    def numbers(self) -> dict[str, int]:
        files = {file for file, _ in self.functions}
        return {"files": len(files), "functions": len(self.functions), "depth": self.depth}


def road() -> dict[str, Any]:
    """Both trainers on the quick experiment."""
    from ghar.launch.entry import load
    from ghar.trainers.recipe import train

    def counted(counter: Road, *overrides: str) -> dict[str, int]:
        with tempfile.TemporaryDirectory() as folder:
            config = load([*SMALL, *overrides, f"run_dir={folder}/run"])
            sys.setprofile(counter)
            try:
                train(config)
            finally:
                sys.setprofile(None)
        return counter.numbers()

    slow = Road("trainers/plain.py", "reinforce", ("validate",))
    fast = Road("trainers/rl/loop.py", "_update", ())
    usual = "eval.variants=[usual]"
    return {"plain": counted(slow, "trainer.method=plain", usual), "fast": counted(fast, usual)}
