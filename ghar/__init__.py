"""GHAR: reinforcement learning for agents that retrieve before they predict on health records.

    ghar.load("runs/mine").predict(patient)           # a trained run, as an object (trainers/agent.py)
    ghar.open("mimic4", "/path").task("los").splits   # a task's samples, split by patient (launch/sources.py)

Importing the package loads neither torch nor vllm; every submodule imports what it needs itself.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

# Threads of OpenMP that wait by spinning take the cores that others need: on a busy machine two of them made training
# 40 times slower. The library reads this once, when torch is imported; every entry point imports this package first.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Where large tensors begin anywhere, glibc's heap has many holes that the next tensor does not fit in, and a training
# pass takes several times what it uses; where they begin at a page, it has fewer (`python benchmarks/run.py heap`: half
# the memory at the same speed). torch reads this before its first tensor. Its name: huge pages are allowed, too.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__version__ = "0.1.0"

# Two doors to upper floors for users: nothing of ghar/ goes through them, and they open when they are asked for.
_DOORS = {"load": ("ghar.trainers.agent", "load"), "open": ("ghar.launch.sources", "open_source")}


def __getattr__(name: str) -> Any:
    if name not in _DOORS:
        raise AttributeError(f"module ghar has no {name}")
    module, function = _DOORS[name]
    return getattr(importlib.import_module(module), function)
