"""Episodes of the systems, the rollout that keeps many of them in flight, and the views of Gymnasium and PettingZoo."""

from envs.check import check

__all__ = ["check"]
