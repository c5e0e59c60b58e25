"""What GraphWalker's greedy rule leaves to gain on the generated walks of ghar/GraphWalker-v0.

Information gain in nats, means over the walks of each seed: of random picks, of the candidate most like the patient, of
the greedy rule, and of the best walk there is, found by trying all. And steps per second of one core's time. With half
of greedy's prompts to spend (envs/graphwalker/frugal.py): Appendix J's rule, a selector that has learned to imitate it,
and the same after PPO (walk_learner.py), paired with greedy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ghar.envs.graphwalker.selectors.protocol import Shots

Seen = dict[str, np.ndarray]


STEPS = 60_000  # of PPO


def walks(seeds: int, steps: int = STEPS) -> dict[str, Any]:
    """Mean gain of each rule over the walks of seeds 0..seeds-1. steps: that the selector learns for."""
    from ghar.envs.graphwalker.selection_game import demo_walks

    runs = [_gains(demo_walks(seed=seed), seed) for seed in range(seeds)]
    names = ("random", "likeness", "greedy", "best")
    result: dict[str, Any] = {name: float(np.mean([run[name] for run in runs])) for name in names}
    result["greedy against best"] = result["greedy"] / result["best"]
    for name in ("walks", "walks where greedy is beaten"):
        result[name] = sum(run[name] for run in runs)
    result["steps per second and core"] = float(np.median([run["steps"] for run in runs]))
    return result | _with_half(seeds, steps)


def _with_half(seeds: int, steps: int) -> dict[str, Any]:
    """Nats and prompts of those who may have half of greedy's prompts scored, and what that is above greedy, paired."""
    from benchmarks.walk_learner import learner
    from ghar.envs.graphwalker.frugal import PROMPTS, FrugalGame, demo_frugal, frugal
    from ghar.envs.graphwalker.selection_game import SPEC, demo_walks
    from ghar.envs.graphwalker.selection_game import play as searched
    from ghar.envs.graphwalker.selectors.search import greedy
    from ghar.envs.views.gym_view import GymView
    from ghar.metrics.bootstrap import mean_interval, paired_difference

    scenes: list[Any] = [demo_walks(seed=seed) for seed in range(seeds)]
    plain = [(case, scene.corpus.entropies[case.sample_id]) for scene in scenes for case in scene.cases]
    selections = [searched(greedy(case.anchors, case.near, SPEC.budget), entropy) for case, entropy in plain]
    whole = [sum(walk.gains) for walk in selections]
    result: dict[str, Any] = {"prompts, greedy": float(np.mean([walk.scored for walk in selections]))}
    envs: list[Any] = [GymView(FrugalGame(demo_frugal(prompts=PROMPTS, seed=seed))) for seed in range(seeds)]

    def judge(name: str, decide: Callable[[Seen], int]) -> None:
        gains, spent = [], []
        for env in envs:
            for number in range(len(env.game.scene.cases)):
                gains.append(play(env, number, decide)[0])
                spent.append(env.play.paused.episode.prediction.scored)
        result[f"{name} with half"] = mean_interval(gains, patients=None).as_list()
        result[f"{name} with half, less greedy"] = paired_difference(gains, whole, patients=None).as_list()
        result[f"prompts, {name} with half"] = float(np.mean(spent))

    judge("lazy", frugal)
    for name, decide in learner(PROMPTS, steps, seed=0):
        judge(name, decide)
    return result


def _gains(scene: Any, seed: int) -> dict[str, float]:
    from ghar.envs.graphwalker.selection_game import CANDIDATE, SPEC, WALK, WalkGame, greedy_action
    from ghar.envs.views.gym_view import GymView

    env, rng = GymView(WalkGame(scene, SPEC.budget)), np.random.default_rng(seed)

    def likeness(seen: Seen) -> int:
        column = seen["observation"][len(WALK) :].reshape(-1, len(CANDIDATE))[:, CANDIDATE.index("likeness")]
        return 1 + int(np.where(seen["action_mask"][1:] == 1, column, -np.inf).argmax())

    def random(seen: Seen) -> int:
        return int(rng.choice(np.flatnonzero(seen["action_mask"])))

    began, steps = time.process_time(), 0
    rules: dict[str, Callable[[Seen], int]] = {"random": random, "likeness": likeness, "greedy": greedy_action}
    by_rule: dict[str, list[float]] = {name: [] for name in rules}
    for name, decide in rules.items():
        for number in range(len(scene.cases)):
            gain, taken = play(env, number, decide)
            by_rule[name].append(gain)
            steps += taken
    speed = steps / (time.process_time() - began)
    best = np.array([best_gain(c, scene.corpus.entropies[c.sample_id], SPEC.budget) for c in scene.cases])
    means = {name: float(np.mean(gains)) for name, gains in by_rule.items()}
    beaten = int((best > np.array(by_rule["greedy"]) + 1e-4).sum())
    return {
        **means,
        "best": float(best.mean()),
        "walks": len(best),
        "walks where greedy is beaten": beaten,
        "steps": speed,
    }


def play(env: Any, case: int, decide: Callable[[Seen], int]) -> tuple[float, int]:
    """(information gain, steps) of one walk."""
    seen, _ = env.reset(seed=0, options={"case": case})
    gain, steps, ended = 0.0, 0, False
    while not ended:
        seen, reward, terminated, truncated, _ = env.step(decide(seen))
        gain, steps, ended = gain + float(reward), steps + 1, terminated or truncated
    return gain, steps


def best_gain(case: Any, entropy: Callable[[Shots], float], budget: int) -> float:
    """The highest gain of all walks of at most `budget` picks, by trying each."""

    def lowest(shots: Shots, frontier: Iterable[int]) -> float:
        values = [entropy(shots)]
        if len(shots) < budget:
            for row in frontier:
                values.append(lowest((*shots, row), (set(frontier) | set(case.near(row))) - {*shots, row}))
        return min(values)

    return entropy(()) - lowest((), set(case.anchors))
