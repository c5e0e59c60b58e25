"""What ghar/GraphWalker-v0 pays policies that take no thought (benchmarks/run.py trivial): the walk as numbers.

Beside them Algorithm 1's greedy rule, which reads the measured gains, and sb3-contrib's MaskablePPO, unmodified,
trained on the walks of another graph. Rewards are nats of information gain; intervals are over generated patients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

SCENES = 3  # graphs of 64 walks that all are played on
OTHER = 100  # seed of the graph that is trained on
STEPS = 40_000
Decide = Callable[[dict[str, np.ndarray]], int]


def walks(steps: int = STEPS, scenes: int = SCENES) -> dict[str, dict[str, list[float]]]:
    """policy -> its "reward" in nats and "picks" an episode, with intervals; of all but the trained agent also what it
    earns less than that one, "less_trained". The agent is left out where sb3-contrib is not installed."""
    from ghar.envs.graphwalker.selection_game import demo_walks, greedy_action
    from ghar.metrics.bootstrap import mean_interval, paired_difference

    decide: dict[str, Decide] = {**_thoughtless(), "its own rule (greedy)": greedy_action}
    learned = _trained(steps)
    if learned is not None:
        decide["the trained agent"] = learned
    played = {who: _play([demo_walks(seed=seed) for seed in range(scenes)], one) for who, one in decide.items()}
    policies: dict[str, dict[str, list[float]]] = {}
    for who, (gains, picks) in played.items():
        reward, most = mean_interval(gains, patients=None), mean_interval(picks, patients=None)
        policies[who] = {"reward": reward.as_list(), "picks": most.as_list()}
        if learned is not None and who != "the trained agent":
            apart = paired_difference(gains, played["the trained agent"][0], patients=None)
            policies[who]["less_trained"] = apart.as_list()
    return policies


def table(policies: dict[str, dict[str, list[float]]]) -> str:
    """`walks` in Markdown."""
    lines = ["| policy | reward, nats | picks | less the trained agent's |", "|---|---|---|---|"]
    for who, numbers in policies.items():
        cells = [numbers.get("reward"), numbers.get("picks"), numbers.get("less_trained")]
        texts = ["" if cell is None else "{:.3f} [{:.3f}, {:.3f}]".format(*cell) for cell in cells]
        lines.append(f"| {who} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _thoughtless() -> dict[str, Decide]:
    from ghar.envs.trivial import trivial_decisions

    names = {"always retrieving": "always the first candidate"}
    return {
        names.get(name, name): lambda seen, rule=rule: rule(seen["observation"][None], seen["action_mask"][None], ())[0]
        for name, rule in trivial_decisions().items()
    }


def _trained(steps: int) -> Decide | None:
    from ghar.envs.graphwalker.selection_game import SPEC, WalkGame, demo_walks
    from ghar.envs.views.gym_view import GymView

    try:
        from sb3_contrib import MaskablePPO  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    env = GymView(WalkGame(demo_walks(seed=OTHER), SPEC.budget))
    agent = MaskablePPO("MultiInputPolicy", env, seed=0, verbose=0, device="cpu")
    agent.learn(steps)
    return lambda seen: int(agent.predict(seen, action_masks=seen["action_mask"].astype(bool), deterministic=True)[0])


def _play(scenes: list[Any], decide: Decide) -> tuple[list[float], list[float]]:
    """Gain and picks of every walk."""
    from benchmarks.walks import play
    from ghar.envs.graphwalker.selection_game import SPEC, WalkGame
    from ghar.envs.views.gym_view import GymView

    gains, picks = [], []
    for scene in scenes:
        env = GymView(WalkGame(scene, SPEC.budget))
        for number in range(len(scene.cases)):
            taken = 0

            def counted(seen: dict[str, np.ndarray]) -> int:
                nonlocal taken
                action = decide(seen)
                taken += action > 0
                return action

            gains.append(play(env, number, counted)[0])
            picks.append(float(taken))
    return gains, picks
