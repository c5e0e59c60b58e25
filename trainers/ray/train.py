"""The trainer of trainers/recipe.py under Ray Train, its episodes played by Ray actors (trainers/ray/pool.py).

Each of `ray.workers` processes trains on its share of a batch, which its own rollout and retrieval actors play. A lost
actor is replaced; where a worker is lost, all of them go on from the newest checkpoint.
"""

# pyright: reportMissingImports=false
# ray is an extra that the linters' environment need not have

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.train import ControllerError, FailureConfig, LoggingConfig, RunConfig, ScalingConfig, WorkerGroupError
from ray.train.torch import TorchConfig, TorchTrainer

from ghar.config import Config
from ghar.envs.records import of_credentialed
from ghar.errors import CUT_OFF, BadInput
from ghar.privacy import destinations
from ghar.trainers.ray.pool import check_nodes
from ghar.trainers.ray.start import check_resources, joins_cluster, on_ray, start_ray
from ghar.trainers.rl.workers import MakeWorkers
from ghar.trainers.runs.distributed import STEP

RESTARTS = 3  # of the workers


Recipe = Callable[[Config, MakeWorkers], None]  # ghar.trainers.recipe.train


def train(config: Config, recipe: Recipe) -> None:
    """A recipe on the cluster that RAY_ADDRESS names, or on this machine. BadInput when it cannot be."""
    own = on_ray(config)
    _check(config)
    start_ray(quiet=False, names=bool(destinations(config)))
    try:
        check_nodes(config, joins_cluster() and of_credentialed(config))  # before any work, and again by each worker
        processes = own.workers * (1 + own.rollout_actors)
        wanted = {"CPU": processes, "GPU": processes * (config.engine.gpus or 0)}
        less = "lower ray.workers or ray.rollout_actors" + (", or set engine.gpus=null" if config.engine.gpus else "")
        check_resources(wanted, f"{less}, or start Ray on more machines")
        _train(config, recipe)
    finally:
        ray.shutdown()


def _check(config: Config) -> None:
    if config.retriever.service is not None:
        raise BadInput("launch/train_ray.py retrieves by actors of its own: set retriever.service=null.")
    if config.engine.shared_by > 1:
        raise BadInput(
            f"launch/train_ray.py gives each process one GPU: set engine.gpus=1, or use launch/train.py with "
            f"engine.gpus={config.engine.gpus}."
        )
    for name, path in (("run_dir", config.run_dir), ("data.cache", config.data.cache)):
        if joins_cluster() and not Path(path).is_absolute():
            raise BadInput(f"{name}={path} means another folder on every machine: give a path that all of them share.")


def _train(config: Config, recipe: Recipe) -> None:
    """Start the workers; start them again when one is lost."""
    for lost in range(RESTARTS + 1):
        try:
            _trainer(config, recipe).fit()
            return
        except ControllerError as error:
            reason = str(error.controller_failure).splitlines()[0]
            raise BadInput(f"Ray could not start ray.workers={on_ray(config).workers} ({reason}).") from error
        except WorkerGroupError as error:
            failures = list(error.worker_failures.values())
            if wrong := [failure for failure in failures if isinstance(failure, BadInput)]:
                raise wrong[0] from None
            if lost == RESTARTS or not _lost(failures):
                raise
        print("A training worker is lost: all of them start again from the newest checkpoint.")
        config = replace(config, resume="auto")


def _lost(failures: Sequence[Exception]) -> bool:
    """Whether a worker's process ended, and not its code by an exception of its own, which cuts the others off too."""
    if any(isinstance(getattr(failure, "health_check_failure", failure), RayActorError) for failure in failures):
        return True
    cut_off = [failure for failure in failures if any(words in str(failure) for words in CUT_OFF)]
    return 0 < len(cut_off) == len(failures)  # Ray has not noticed yet


def _trainer(config: Config, recipe: Recipe) -> TorchTrainer:
    own = on_ray(config)
    # workers stay in this folder, where relative paths lead; what they print is shown as it is; starting again is ours
    for name in ("RAY_CHDIR_TO_TRIAL_DIR", "RAY_TRAIN_ENABLE_PRINT_PATCH", "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"):
        os.environ[name] = "0"
    return TorchTrainer(
        work,
        train_loop_config={"config": config, "recipe": recipe},
        torch_config=TorchConfig(
            backend="cpu:gloo,cuda:nccl" if config.engine.gpus else "gloo", timeout_s=int(STEP.total_seconds())
        ),
        scaling_config=ScalingConfig(num_workers=own.workers, use_gpu=bool(config.engine.gpus)),
        run_config=RunConfig(
            name="ray",
            storage_path=str(Path(config.run_dir).resolve()),
            failure_config=FailureConfig(max_failures=0, max_preemption_failures=0, controller_failure_limit=RESTARTS),
            logging_config=LoggingConfig(log_level="CRITICAL"),  # failures come back as an exception
        ),
    )


def work(given: dict[str, Any]) -> None:
    """What each worker does."""
    from ghar.trainers.ray.pool import pool

    given["recipe"](given["config"], pool)
