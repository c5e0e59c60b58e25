"""kill -9 at any moment, the same command again, and the run ends as one that was left alone (benchmarks/run.py
kills).

One small training after each of `WAYS`: alone, as two processes of torchrun, and on Ray. It is killed again and again,
before a file takes its name or up to `LATER` seconds after, now one process of it, now all at once; where none strikes
it ends, is compared with the run of the same way that was left alone, and another one begins. Compared are
metrics.jsonl without the clock's keys, every weight, the pointers, all episodes and summary.json. All that has happened
stands in <folder>/kills/state.json: a campaign that was stopped goes on.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from ghar.metrics.runfolder import write_whole
from ghar.progress import track

ROOT = Path(__file__).resolve().parents[1]
DYING = Path(__file__).with_name("dying")  # on PYTHONPATH of what is killed
TINY = (
    "+experiment=mimic4_los", "data.patients=60", "threads=1", "model.hidden=16", "model.layers=1",
    "model.vocab=1600", "trainer.base.steps=2", "trainer.base.batch=16", "trainer.warmup.samples=24",
    "trainer.warmup.epochs=2", "trainer.warmup.batch=16", "trainer.rl.updates=3", "trainer.rl.episodes=2",
    "trainer.rl.estimator=gae", "trainer.rl.attempts=1", "trainer.rl.minibatches=2", "trainer.rl.eval_every=2",
    "trainer.rl.save_every=1", "trainer.rl.eval_samples=2", "system.normalise=running", "task.max_test=2",
    "eval.variants=[scripted,ghar_rl]", "eval.bootstrap=50",
)  # fmt: skip
RAY = ("ray=cluster", "ray.workers=1", "ray.rollout_actors=1", "ray.retrieval_actors=1", "ray.timeout_s=200")
WAYS: dict[str, list[str]] = {
    "alone": ["launch/train.py"],
    "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "launch/train.py"],
    "ray": ["launch/train_ray.py", *RAY],
}
KILLS, LATER, LIMIT = 50, 3.0, 1800.0  # LIMIT: seconds a start may take
ENOUGH = 5  # starts that failed without a kill
CLOCK = ("time/", "train/tokens_per_second", "eval/seconds")
TIMED = {"seconds", "seconds_low", "seconds_high", "time", "resumed", "memory_gb", "commit"}


def kills(folder: Path, *, count: int = KILLS, seed: int = 0, ways: Sequence[str] = tuple(WAYS)) -> dict[str, Any]:
    """Numbers after `count` kills, those of earlier starts of the campaign among them; `ways` take turns."""
    campaign = Campaign(folder / "kills", seed)
    for way in ways:
        campaign.left_alone(way)
    for done in track(range(count), "Kill trainings", count):
        while len(campaign.state["kills"]) <= done:
            campaign.struck(ways[len(campaign.state["chains"]) % len(ways)])
    for way in [way for way in ways if (campaign.folder / way / "broken").exists()]:
        campaign.finished(way)
    return campaign.summarise()


class Campaign:
    """Runs, kills and comparisons below a folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.kept = folder / "state.json"
        self.phase = ""  # in which the last start was struck
        self.state: dict[str, Any] = {"writes": {}, "kills": [], "chains": [], "untold": []}
        if self.kept.exists():
            self.state = json.loads(self.kept.read_text())
        folder.mkdir(parents=True, exist_ok=True)

    def left_alone(self, way: str) -> None:
        """The run that others are compared with, and how many files take their names in its busiest process."""
        if way in self.state["writes"]:
            return
        shutil.rmtree(self.folder / way, ignore_errors=True)
        code, screen = self._start(way, "whole", at=0)
        if code:
            raise RuntimeError(f"{way}: a training that no one disturbs ends with {code}:\n{screen[-3000:]}")
        self.state["writes"][way] = max(Counter(self._notes(way).read_text().split()).values())
        self._keep()

    def struck(self, way: str) -> None:
        """One start that is killed; or ends, if the blow comes too late."""
        number = len(self.state["kills"]) + len(self.state["chains"])
        rng = random.Random(f"{self.seed} {number}")
        at = rng.randint(1, max(2, self.state["writes"][way] // 3))
        seconds, whole = rng.choice((0.0, rng.uniform(0, LATER))), rng.random() < 0.5
        self.phase = ""
        code, screen = self._start(way, "broken", at=at, seconds=seconds, whole=whole)
        if self._mark(way).exists():
            where = {"way": way, "write": at, "seconds": round(seconds, 2), "all at once": whole}
            self.state["kills"].append(where | {"phase": self.phase or phase(self.folder / way / "broken")})
        if code == 0:
            self._compare(way)
        elif not self._mark(way).exists():
            self._complain(way, code, screen)
        self._keep()

    def finished(self, way: str) -> None:
        """The last chain of a way goes on to its end."""
        code, screen = self._start(way, "broken", at=0)
        if code == 0:
            self._compare(way)
        else:
            self._complain(way, code, screen)
        self._keep()

    def summarise(self) -> dict[str, Any]:
        """What has happened so far."""
        kills, chains = self.state["kills"], self.state["chains"]
        return {
            "kills": len(kills),
            "by way": dict(Counter(kill["way"] for kill in kills)),
            "by phase": dict(Counter(kill["phase"] for kill in kills)),
            "all processes at once": sum(kill["all at once"] for kill in kills),
            "runs that ended and were compared": len(chains),
            "differences": sum(len(chain["differences"]) for chain in chains),
            "starts that failed without a kill": len(self.state["untold"]),
            "chains": chains,
            "failures": self.state["untold"],
        }

    def _compare(self, way: str) -> None:
        mismatches = list(differences(self.folder / way / "whole", self.folder / way / "broken"))
        self.state["chains"].append({"way": way, "differences": mismatches})
        self._clear(way, bool(mismatches))

    def _complain(self, way: str, code: int, screen: str) -> None:
        self.state["untold"].append({"way": way, "code": code, "said": screen[-2000:]})
        self._clear(way, True)
        if len(self.state["untold"]) >= ENOUGH:
            self._keep()
            raise RuntimeError(f"{ENOUGH} starts have failed without a kill, the last with {code}:\n{screen[-2000:]}")

    def _clear(self, way: str, keep: bool) -> None:
        """Make room for the next chain; what differs is kept to be looked at."""
        for name in ("broken", "broken-cache"):
            place = self.folder / way / name
            if keep and place.exists():
                place.rename(place.with_name(f"{name}-{len(self.state['chains'])}-{len(self.state['untold'])}"))
            shutil.rmtree(place, ignore_errors=True)

    def _start(self, way: str, name: str, *, at: int, seconds: float = 0.0, whole: bool = False) -> tuple[int, str]:
        """Exit code and screen of one start. whole: all its processes are killed with the one that dies."""
        place = self.folder / way
        place.mkdir(exist_ok=True)
        for path in (self._mark(way), self._notes(way)):
            path.unlink(missing_ok=True)
        run, cache = place / name, place / f"{name}-cache"
        about = {"roots": [f"{run.resolve()}/", f"{cache.resolve()}/"], "at": at, "seconds": seconds,
                 "mark": str(self._mark(way)), "notes": str(self._notes(way))}  # fmt: skip
        (place / "die.json").write_text(json.dumps(about))
        path = os.pathsep.join([str(DYING), str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"GHAR_DIE": str((place / "die.json").resolve()), "PYTHONPATH": path}
        environment |= {"OMP_NUM_THREADS": "1"}
        command = [sys.executable, *WAYS[way], *TINY, f"run_dir={run.resolve()}", f"data.cache={cache.resolve()}"]
        with (place / "screen.txt").open("w") as screen:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=screen, stderr=subprocess.STDOUT)
            end = time.monotonic() + LIMIT
            while process.poll() is None and time.monotonic() < end:
                if self._mark(way).exists():
                    self.phase = self.phase or phase(run)
                    if whole:
                        _kill(process.pid)
                time.sleep(0.05)
            late = process.poll() is None
            if late:
                _kill(process.pid)
            code = process.wait()
        return code, (place / "screen.txt").read_text() + (f"\nno end after {LIMIT:.0f} s" if late else "")

    def _mark(self, way: str) -> Path:
        return self.folder.resolve() / way / "died"

    def _notes(self, way: str) -> Path:
        return self.folder.resolve() / way / "writes.txt"

    def _keep(self) -> None:
        write_whole(self.kept, json.dumps(self.state, indent=1) + "\n")


def _kill(number: int) -> None:
    """A process and all that it has started, at once."""
    try:
        process = psutil.Process(number)
        everyone = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for one in everyone:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            pass


def phase(run: Path) -> str:
    """How far a run has come, by what it has left."""
    checkpoints = run / "checkpoints"
    if (run / "summary.json").exists():
        return "report"
    if (run / "episodes").is_dir() and any((run / "episodes").glob("*.jsonl")):
        return "evaluation"
    for name, pattern in (("updates", "step-*"), ("first update", "sft"), ("SFT", "lessons.npz"), ("teacher", "base")):
        if any(checkpoints.glob(pattern)):
            return name
    return "data and base model"


def differences(whole: Path, broken: Path) -> Iterator[str]:
    """What two finished runs do not share."""
    one, other = kept(whole), kept(broken)
    yield from (f"{name} differs" for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name))
    if metrics(whole) != metrics(broken):
        yield "metrics.jsonl differs"
    runs = [{str(p.relative_to(run)): p for p in (run / "episodes").rglob("*.jsonl")} for run in (whole, broken)]
    for name in sorted(runs[0].keys() | runs[1].keys()):
        rows = [untimed(run[name].read_text().splitlines()) if name in run else None for run in runs]
        if rows[0] != rows[1]:
            yield f"{name} differs"
    summaries = [untimed([(run / "summary.json").read_text()]) for run in (whole, broken)]
    if summaries[0] != summaries[1]:
        yield "summary.json differs"
    yield from (f"{path.relative_to(broken)} is left over" for path in broken.rglob(".*.tmp"))
    yield from (f"{path.relative_to(broken)} is left over" for path in broken.rglob("*.partial"))


def metrics(run: Path) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl without what the clock says."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(CLOCK)} for row in rows]


def kept(run: Path) -> dict[str, bytes]:
    """All weights of a run, and where the pointers point."""
    files = [*run.glob("checkpoints/*/*.safetensors"), run / "checkpoints" / "latest", run / "checkpoints" / "best"]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def untimed(lines: Sequence[str]) -> list[Any]:
    """JSON lines without what the clock or the machine says."""

    def without(value: object) -> object:
        if isinstance(value, dict):
            return {k: without(v) for k, v in value.items() if k not in TIMED}
        return [without(v) for v in value] if isinstance(value, list) else value

    return [without(json.loads(line)) for line in lines]
