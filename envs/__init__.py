"""Episodes of the systems, the rollout that keeps many of them in flight, and the views of Gymnasium and PettingZoo."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ghar.envs.env_checker import check

__all__ = ["check"]


def __getattr__(name: str) -> object:
    """`ghar.envs.check`, and NumPy with it, once it is asked for: a command line that is read needs neither."""
    if name == "check":
        from ghar.envs.env_checker import check

        return check
    raise AttributeError(f"module envs has no {name}")
