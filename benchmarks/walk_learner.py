"""A selector that learns what to look at: sb3-contrib's MaskablePPO on GraphWalker's walk with prompts to spend.

It begins by imitating Appendix J's rule within the same prompts, as all systems here imitate a rule before RL, and goes
on with PPO on the walks of other graphs than it is judged on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Seen = dict[str, np.ndarray]
Decide = Callable[[Seen], int]
GRAPHS, FIRST = 8, 100  # generated graphs that are learned on, and the seed of the first
EPOCHS, BATCH, RATE = 20, 256, 1e-3  # of imitation


def learner(prompts: int, steps: int, seed: int) -> Iterator[tuple[str, Decide]]:
    """The selector after imitation, then the same one after `steps` of PPO; judge one before asking for the next.
    Nothing where sb3-contrib is not installed."""
    try:
        from sb3_contrib import MaskablePPO  # pyright: ignore[reportMissingImports]
        from stable_baselines3.common.vec_env import DummyVecEnv  # pyright: ignore[reportMissingImports]
    except ImportError:
        return
    from ghar.envs.graphwalker.frugal import FrugalGame, demo_frugal
    from ghar.envs.views.gym_view import GymView

    games = [FrugalGame(demo_frugal(prompts=prompts, seed=FIRST + number)) for number in range(GRAPHS)]
    agent = MaskablePPO(
        "MultiInputPolicy", DummyVecEnv([lambda game=game: GymView(game) for game in games]), seed=seed, device="cpu",
        n_steps=256, batch_size=512, n_epochs=6, gamma=1.0, gae_lambda=0.97, learning_rate=2e-4, ent_coef=0.0,
        target_kl=0.02, policy_kwargs={"net_arch": [128, 128]},
    )  # fmt: skip
    _imitate(agent, [GymView(game) for game in games], seed)
    yield "imitated", _decide(agent.policy)
    agent.learn(steps)
    yield "learned", _decide(agent.policy)


def _decide(policy: Any) -> Decide:
    return lambda seen: int(policy.predict(seen, action_masks=seen["action_mask"].astype(bool), deterministic=True)[0])


def _followed(env: Any, number: int) -> list[tuple[Seen, int]]:
    """A walk by the rule: what was seen, what was done."""
    from ghar.envs.graphwalker.frugal import frugal

    seen, _ = env.reset(seed=0, options={"case": number})
    steps, ended = [], False
    while not ended:
        action = frugal(seen)
        steps.append((seen, action))
        seen, _, terminated, truncated, _ = env.step(action)
        ended = terminated or truncated
    return steps


def _imitate(agent: Any, envs: Sequence[Any], seed: int) -> None:
    """Fit the policy to the rule's actions on all walks of the environments."""
    import torch

    steps = [pair for env in envs for number in range(len(env.game.scene.cases)) for pair in _followed(env, number)]
    seen = {name: torch.as_tensor(np.stack([s[name] for s, _ in steps])) for name in steps[0][0]}
    actions, rng = torch.tensor([action for _, action in steps]), np.random.default_rng(seed)
    optimiser = torch.optim.Adam(agent.policy.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        for rows in np.array_split(rng.permutation(len(steps)), max(1, len(steps) // BATCH)):
            some = {name: column[rows] for name, column in seen.items()}
            _, likely, _ = agent.policy.evaluate_actions(some, actions[rows], some["action_mask"].bool())
            optimiser.zero_grad()
            (-likely.mean()).backward()
            optimiser.step()
