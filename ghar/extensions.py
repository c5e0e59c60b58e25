"""Modules of the user's own, which a key names as PACKAGE.MODULE where it names a choice otherwise."""

from __future__ import annotations

import importlib
import re
from types import ModuleType

from ghar.errors import BadInput

MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def is_module(name: object) -> bool:
    """Whether a key's value is the path of a module: words with dots between them ("org/model-1.5" is none)."""
    return isinstance(name, str) and MODULE.fullmatch(name) is not None


def import_module(key: str, name: str, *parts: str) -> ModuleType:
    """Import the module that a key names. BadInput for one that is not there, or lacks one of the `parts`."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise  # the module is there, and something that it imports is not
        raise BadInput(f"{key}={name} leads to no module: start the command in the folder that holds it.") from None
    if lacking := [part for part in parts if not hasattr(module, part)]:
        raise BadInput(f"{key}={name} has no {', no '.join(lacking)}: docs/extending.md says what a module needs.")
    return module
