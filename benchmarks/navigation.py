"""What is claimed of the navigation environment: steps per second and core, how soon RLlib's PPO nears the optimum.

Reads processor time for the first (other programs on the machine do not count) and wall-clock time for the second.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ghar.config import Config
from ghar.envs.system import Decisions, System

SHARE = 0.95  # of the scripted optimum
SECONDS = 300.0  # within which it is to be reached
STEPS = 20_000


def navigation(seeds: int, overrides: Sequence[str]) -> dict[str, Any]:
    """Steps a second, and what each seed reached."""
    from ghar.envs import system as systems
    from ghar.envs.play import validation_cases
    from ghar.envs.records import Records
    from ghar.launch.entry import load
    from ghar.trainers.rllib.ppo import best_rule, decisions_of
    from ghar.trainers.runs.models import use_cores

    config = load(["+experiment=navigation", *overrides])
    use_cores(config.threads)
    system = systems.build(Records(config))
    own, valid = decisions_of(system), validation_cases(system, config.task, config.trainer.rl.eval_samples)
    game = own.game(system.cases.train)
    _, optimum = best_rule(system, own, config, valid)
    runs = []
    for seed in range(seeds):
        runs.append(_reach(replace(config, seed=seed), system, own, game, valid, optimum))
        print(f"seed {seed}: {json.dumps(runs[-1])}", flush=True)
    result = {
        "steps per second and core": {"gymnasium": _speed(_gym(game)), "pettingzoo": _speed(_aec(game))},
        "scripted optimum": optimum,
        "never retrieving": _never(system, own, config, valid),
        "runs": runs,
    }
    return result


def _reach(
    config: Config, system: System[Any], own: Decisions, game: Any, valid: Sequence[Any], optimum: float
) -> dict[str, Any]:
    """Train until SHARE of the optimum is reached or SECONDS have passed; evaluations count."""
    from ghar.trainers.rllib.ppo import algorithm, learn, policy_of, reward

    curve: list[tuple[float, float]] = []
    row: dict[str, Any] = {}
    with algorithm(config, game) as algo:
        began = time.monotonic()
        for row in learn(algo, config, lambda: reward(system, config, valid, policy_of(algo, own, config))):
            spent = time.monotonic() - began
            if "eval/reward" in row:
                curve.append((round(spent, 1), row["eval/reward"]))
            if spent > SECONDS or (curve and curve[-1][1] >= SHARE * optimum):
                break
    best = max((r for _, r in curve), default=float("nan"))
    return {
        "reached": best >= SHARE * optimum,
        "seconds": curve[-1][0] if curve else None,
        "reward": best,
        "share": best / optimum,
        "steps": row.get("train/steps"),
        "curve": curve,
    }


def _never(system: System[Any], own: Decisions, config: Config, cases: Sequence[Any]) -> float:
    """What the rules reach that look nothing up: the floor below the share."""
    from ghar.llm.policy import ForcedPolicy
    from ghar.trainers.rllib.ppo import reward

    inner = own.policy(own.rules[0])
    return reward(system, config, cases, ForcedPolicy(inner, {"retrieve": "no", "continue": "terminate"}))


def _speed(steps: Iterator[Callable[[], None]]) -> float:
    """Steps a second of one core's time, over STEPS steps after a warm-up of a tenth of them."""
    for _, step in zip(range(STEPS // 10), steps, strict=False):
        step()
    spent = 0.0
    for _, step in zip(range(STEPS), steps, strict=False):
        began = time.process_time()
        step()
        spent += time.process_time() - began
    return STEPS / spent


def _gym(game: Any) -> Iterator[Callable[[], None]]:
    """Steps of random play, resets included; choosing the action is not part of a step."""
    from ghar.envs.views.gym_view import GymView

    env, rng = GymView(game), np.random.default_rng(0)
    state: dict[str, Any] = {"seen": env.reset(seed=0)[0], "ended": False}

    def step(action: int) -> None:
        if state["ended"]:
            state["seen"] = env.reset()[0]
            action = 0
        state["seen"], _, terminated, truncated, _ = env.step(action)
        state["ended"] = terminated or truncated

    while True:
        action = _random(state["seen"]["action_mask"], rng)
        yield lambda action=action: step(action)


def _aec(game: Any) -> Iterator[Callable[[], None]]:
    """The same through PettingZoo; the agents' closing steps are part of the last decision."""
    from ghar.envs.views.pettingzoo_view import aec

    env, rng = aec(game), np.random.default_rng(0)
    env.reset(seed=0)
    state: dict[str, Any] = {"seen": env.last()[0]}

    def step(action: int) -> None:
        env.step(action)
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
        if not env.agents:
            env.reset()
        state["seen"] = env.last()[0]

    while True:
        action = _random(state["seen"]["action_mask"], rng)
        yield lambda action=action: step(action)


def _random(mask: np.ndarray, rng: np.random.Generator) -> int:
    allowed = mask.nonzero()[0]
    return int(allowed[int(rng.random() * len(allowed))])
