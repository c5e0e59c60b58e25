"""Import transformers without scikit-learn and scipy.optimize, which it takes one function each of.

Those two, with pandas and scipy.stats, are a third of the processor time of importing it, for assisted generation and
object detection. Both functions stay callable: they are imported when they are called. Whatever may be the first to
import a model class imports this module before. What plays no model imports neither.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

DELAYED = {"sklearn.metrics": "roc_curve", "scipy.optimize": "linear_sum_assignment"}
USERS = ("transformers.generation.candidate_generator", "transformers.loss.loss_utils")  # of these functions


def _delayed(module: str, function: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: getattr(importlib.import_module(module), function)(*args, **kwargs)


def _import_users() -> None:
    """Import transformers' modules that want the functions, with stand-ins for the modules that have them."""
    placed = []
    for module, function in DELAYED.items():
        if module not in sys.modules:
            stand_in = ModuleType(module)
            setattr(stand_in, function, _delayed(module, function))
            sys.modules[module] = stand_in
            placed.append(module)
    try:
        for user in USERS:
            importlib.import_module(user)
    finally:
        for module in placed:
            del sys.modules[module]


_import_users()
