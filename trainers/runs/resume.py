"""Opening a run folder: new, to be resumed, finished, of another configuration, or in use."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import yaml

from ghar import ledger
from ghar.config import Config, Zero
from ghar.disk import explain_disk_error, make_folder
from ghar.errors import BadInput
from ghar.lock import lock
from ghar.metrics.runfolder import TRAINING, RunFolder
from ghar.privacy import masked
from ghar.sections import leaves
from ghar.trainers.runs.distributed import rank
from ghar.trainers.runs.kept_config import upgraded
from ghar.yaml_text import parse_yaml

# A run may go on under other values of these: they say where things are and what is kept, or trade memory for time,
# which changes its numbers by float rounding at most.
FREE = frozenset({
    "run_dir", "resume", "plan", "keep_last", "threads", "data.cache", "trainer.rl.save_every",
    "retriever.service", "retriever.workers",
    "deepspeed.checkpointing", "engine.kv_cache_gb", "engine.memory", "engine.sync",
    "engine.sleep", "engine.gpus", "engine.max_batch",
    "ray.workers", "ray.rollout_actors", "ray.retrieval_actors", "ray.timeout_s",
    "env.in_flight", "model.max_length", "trainer.warmup.micro_batch", "trainer.rl.micro_tokens",
    "logger.wandb", "privacy.allow",
})  # fmt: skip


@contextmanager
def occupied(path: Path) -> Iterator[None]:
    """Hold a run folder for this process; the system lets go of it when the process ends, however it ends."""
    make_folder(path)
    with (path / ".lock").open("w") as file:
        try:
            lock(file, path, wait=False)
        except BlockingIOError:
            raise BadInput(f"Another process is at work in {path}: wait for it, or choose another run_dir.") from None
        yield


def hold(held: ExitStack, path: Path) -> None:
    """`occupied` until `held` is closed."""
    held.enter_context(occupied(path))


def open_run(config: Config) -> tuple[RunFolder, bool] | None:
    """The run folder and whether it holds an unfinished run to go on with; None when it holds this run, finished.

    With resume=never an unfinished run is emptied. BadInput when the folder holds a run of another configuration.
    """
    path = Path(config.run_dir)
    kept, folder = path / "config.yaml", RunFolder.open(path)
    resumed = kept.exists()
    if resumed:
        ledger.check(path, "config.yaml")
        _compare(path, _read(kept), config)
    elif (path / "checkpoints").exists():
        raise BadInput(f"{path} holds checkpoints but no config.yaml to say of what: choose another run_dir.")
    if resumed and "time" in (folder.summary() or {}):  # written at the end of training, never by an evaluation
        _say_finished(path)
        return None
    if resumed and config.resume == "auto" and config.trainer.method == "plain":
        raise BadInput(f"{path} holds an unfinished run, and a plain training does not resume: set resume=never.")
    if resumed and config.resume == "auto":
        print(f"Resuming the unfinished run in {path} (resume=never starts over).")
    elif resumed:
        print(f"Starting over: the unfinished run in {path} is discarded (resume=never).")
        resumed = False
        _empty(folder)
    from ghar.trainers.runs import checkpoint  # torch

    checkpoint.adopt(path / "checkpoints")  # of a killed writer: this process alone holds the folder
    for half in path.rglob(".*.tmp"):
        half.unlink()
    folder.write_config(as_yaml(config))
    return folder, resumed


@contextmanager
def given_back(folder: RunFolder, resumed: bool) -> Iterator[None]:
    """A run that is refused before it has kept anything leaves its folder to the next one, mended."""
    try:
        yield
    except BadInput:
        kept = folder.path / "checkpoints"
        if not resumed and rank() == 0 and not (kept.is_dir() and any(kept.iterdir())):
            folder.remove("config.yaml")
            (folder.path / ledger.LEDGER).unlink(missing_ok=True)
        raise


def finished(config: Config) -> bool:
    """Whether the run folder holds this run, finished, which is then printed; asked before anything heavy is loaded.

    BadInput when it holds a run of another configuration, or cannot be a folder. False under torchrun, and where the
    machine has a say in the configuration: `open_run` looks again.
    """
    path = Path(config.run_dir)
    kept = path / "config.yaml"
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise BadInput(f"run_dir={path}: {there} is a file and no folder: name another run_dir.")
    if not os.access(there, os.W_OK | os.X_OK):
        closed = bool(os.statvfs(there).f_flag & os.ST_RDONLY)
        number = errno.EROFS if closed else errno.EACCES
        raise BadInput(f"run_dir={path}: {explain_disk_error(OSError(number, os.strerror(number), str(there)))}")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or config.deepspeed.zero == "auto" or not kept.is_file():
        return False
    _compare(path, _read(kept), config)
    if "time" not in (RunFolder(path).summary() or {}):
        return False
    _say_finished(path)
    return True


def as_kept(config: Config) -> Config:
    """`config` with the way of sharing out (ZeRO) that its run folder has, where deepspeed=auto leaves it open: it was
    chosen by the processes there were, and a run may go on in another number of them."""
    kept = Path(config.run_dir) / "config.yaml"
    if config.deepspeed.zero != "auto" or not kept.is_file():
        return config
    values = _read(kept)
    zero = leaves(values if isinstance(values, dict) else {}).get("deepspeed.zero")
    return replace(config, deepspeed=replace(config.deepspeed, zero=zero)) if zero in get_args(Zero) else config


def _say_finished(path: Path) -> None:
    print(f"{path} holds this run, finished; delete the folder to train again.")


def _read(path: Path) -> Any:
    try:
        kept = parse_yaml(path.read_text())
        return upgraded(kept, going_on=True) if isinstance(kept, dict) else kept
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError, KeyError, TypeError) as error:
        place = " ".join(str(error).split())
        raise BadInput(f"{path} is damaged ({place}): put it right, or choose another run_dir.") from None


def as_yaml(config: Config) -> str:
    """A configuration as a run folder keeps it."""
    return yaml.safe_dump(plain(config), sort_keys=False)


def plain(config: Config) -> dict[str, Any]:
    """A configuration as JSON has it: tuples as lists, and addresses without the keys in their paths."""
    return _masked(json.loads(json.dumps(asdict(config))))


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _masked(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_masked(item) for item in value]
    return masked(value) if isinstance(value, str) else value


def _compare(path: Path, kept: Any, config: Config) -> None:
    there, here = leaves(kept if isinstance(kept, dict) else {}), leaves(plain(config))
    wrong = [k for k in here | there if k not in FREE and there.get(k) != here.get(k)]
    if "model.path" in wrong and _has_moved(path, config):
        places = there.get("model.path"), here.get("model.path")  # a teacher may have the same
        wrong = [k for k in wrong if (there.get(k), here.get(k)) != places]
    if wrong:
        differences = ", ".join(f"{k} is {there.get(k)} there and {here.get(k)} here" for k in wrong[:3])
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise BadInput(
            f"{path} holds a run of another configuration ({differences}{more}): choose another run_dir, or delete "
            "the folder."
        )


def _has_moved(path: Path, config: Config) -> bool:
    """Whether model.path is the model that a run's adapters belong on, by the sum of its weights."""
    from ghar.llm.adapter import base_of, weights_digest  # torch
    from ghar.llm.models import model_path

    folders = sorted(file.parent for file in (path / "checkpoints").glob("[!.]*/config.json"))
    about = next(filter(None, map(base_of, folders)), None)
    return about is not None and config.model.path is not None and weights_digest(model_path(config)) == about["sha256"]


def _empty(folder: RunFolder) -> None:
    """Remove what an unfinished run has made so far, and nothing else."""
    for made in ("checkpoints", "episodes/.parts", TRAINING):
        shutil.rmtree(folder.path / made, ignore_errors=True)
    for name in ("metrics.jsonl", "summary.json"):
        (folder.path / name).unlink(missing_ok=True)
    for name in folder.episode_names():
        (folder.path / "episodes" / f"{name}.jsonl").unlink()
    (folder.path / ledger.LEDGER).unlink(missing_ok=True)  # another run begins here
