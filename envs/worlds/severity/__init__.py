"""The demo world: a generated cohort and graph with a known optimum. story.py tells what is true in it."""

from ghar.envs.worlds.severity.upper_bounds import Ceilings
from ghar.envs.worlds.severity.world import World, ceilings, generate_world, load_world

__all__ = ["Ceilings", "World", "ceilings", "generate_world", "load_world"]
