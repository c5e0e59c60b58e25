"""The base model that comes with the package, made again from its recipe and compared byte by byte.

It takes about 400 s of processor. Rounding differs between CPUs, so equal bytes are a fact of one kind of machine; the
recipe is the same on all (tests/trainers/test_base.py).
"""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

from ghar.envs import system as systems
from ghar.envs.records import Records
from ghar.envs.system import DemoPretraining
from ghar.launch.entry import check
from ghar.trainers.base import base_key, build_base
from ghar.trainers.runs.manifest import sums
from ghar.trainers.runs.models import save_model, use_cores

DEMO = "+experiment=mimic4_los"


def base_model(folder: Path) -> dict[str, Any]:
    """Make it into `folder`; equal: files of the package's that have the same sha256."""
    [config] = check([DEMO, "threads=1", f"run_dir={folder}"])
    use_cores(config.threads)
    practice = systems.build(Records(config)).training.pretraining
    assert isinstance(practice, DemoPretraining) and practice.packaged is not None
    key, begun = base_key(config, practice), process_time()
    save_model(*build_base(config, practice, lambda row: None), folder / key, credentialed=False)
    made, packaged = sums(folder / key), practice.packaged / key
    there = sums(packaged) if packaged.is_dir() else {}
    equal = sorted(name for name in made if made[name] == there.get(name))
    seconds, differ = process_time() - begun, sorted(made.keys() - set(equal))
    return {"recipe": key, "seconds": seconds, "equal": equal, "differ": differ}
