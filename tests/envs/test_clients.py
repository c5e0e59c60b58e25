"""Learners that no one here wrote, unmodified, on our environments: Stable-Baselines3, sb3-contrib, a CleanRL-style
loop, Gymnasium's vector environments in one and in several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import InvalidAction

from benchmarks.clients import CLIENTS
from ghar.envs.register import GAMES

NAVIGATION = "ghar.envs.register:ghar/Navigation-v0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("clients"))


def forbidden(env: Any) -> int:
    return int(np.flatnonzero(~env.get_wrapper_attr("action_masks")())[0])


@pytest.mark.slow
def test_stable_baselines_ppo_learns_on_navigation(folder: str) -> None:
    """PPO knows no masks: what it may not do is drawn anew, and costs."""
    ppo = pytest.importorskip("stable_baselines3", reason="needs the extra test").PPO
    env = gymnasium.make(NAVIGATION, folder=folder, illegal="penalise")
    model = ppo("MultiInputPolicy", env, n_steps=32, batch_size=16, n_epochs=1, seed=0, device="cpu")
    model.learn(32)
    action, _ = model.predict(env.reset(seed=0)[0], deterministic=True)
    env.step(int(action))


def test_maskable_ppo_takes_no_forbidden_action(folder: str) -> None:
    maskable = pytest.importorskip("sb3_contrib", reason="needs the extra test").MaskablePPO
    env = gymnasium.make(NAVIGATION, folder=folder)  # illegal="raise": one forbidden action would end this test
    model = maskable("MultiInputPolicy", env, n_steps=32, batch_size=16, n_epochs=1, seed=0, device="cpu")
    model.learn(32)
    seen, _ = env.reset(seed=0)
    ended = False
    while not ended:
        action, _ = model.predict(seen, action_masks=env.get_wrapper_attr("action_masks")(), deterministic=True)
        seen, _, terminated, truncated, info = env.step(int(action))
        ended = terminated or truncated
        assert "illegal" not in info


@pytest.mark.parametrize("illegal, cost", [("penalise", 1.0), ("resample", 0.0)])
def test_a_forbidden_action_is_exchanged_and_may_cost(folder: str, illegal: str, cost: float) -> None:
    env = gymnasium.make(NAVIGATION, folder=folder, illegal=illegal)
    env.reset(seed=3)
    seen, reward, _, _, info = env.step(forbidden(env))
    assert info["illegal"] and reward == pytest.approx(-cost) and (info["action_mask"] == seen["action_mask"]).all()
    with pytest.raises(InvalidAction):
        env.step("yes")
    strict = gymnasium.make(NAVIGATION, folder=folder)
    strict.reset(seed=3)
    with pytest.raises(InvalidAction):
        strict.step(forbidden(strict))
    with pytest.raises(ValueError, match="choose among raise, penalise, resample"):
        gymnasium.make(NAVIGATION, folder=folder, illegal="ignore")


@pytest.mark.slow
def test_a_cleanrl_style_loop_learns(folder: str) -> None:
    """One file, one loop: REINFORCE with masks over a vector of environments."""
    envs = gymnasium.make_vec(NAVIGATION, num_envs=4, vectorization_mode="sync", folder=folder)
    width, actions = envs.single_observation_space["observation"].shape[0], int(envs.single_action_space.n)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(width, 32), torch.nn.Tanh(), torch.nn.Linear(32, actions))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    before = [parameter.clone() for parameter in network.parameters()]
    seen, _ = envs.reset(seed=1)
    for _ in range(2):
        logs, rewards = [], []
        for _ in range(16):
            logits = network(torch.from_numpy(seen["observation"]))
            logits = logits.masked_fill(torch.from_numpy(seen["action_mask"]) == 0, -1e9)
            drawn = torch.distributions.Categorical(logits=logits)
            action = drawn.sample()
            logs.append(drawn.log_prob(action))
            seen, reward, *_ = envs.step(action.numpy())
            rewards.append(torch.from_numpy(reward))
        returns = torch.stack(rewards).flip(0).cumsum(0).flip(0).float()
        loss = -(torch.stack(logs) * (returns - returns.mean())).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    envs.close()
    assert any((old != new).any() for old, new in zip(before, network.parameters(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(GAMES))
def test_every_environment_in_processes_of_its_own(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    """AsyncVectorEnv; texts are no arrays, so they travel by pipe (shared_memory=False)."""
    monkeypatch.chdir(tmp_path)
    made = gymnasium.make_vec(
        f"ghar.envs.register:ghar/{name}-v0", num_envs=2, vectorization_mode="async",
        vector_kwargs={"shared_memory": False, "context": "spawn"},
    )  # fmt: skip
    try:
        seen, _ = made.reset(seed=1)
        for _ in range(3):
            action: Any = seen["action_mask"].argmax(axis=1) if isinstance(seen, dict) else ("0", "0")
            seen, reward, *_ = made.step(action)
            assert reward.shape == (2,)
    finally:
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("client", ["CleanRL-style loop", "SuperSuit", "Minari"])
@pytest.mark.parametrize("name", sorted(GAMES))
def test_other_projects_play_every_default_view(
    client: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others of benchmarks/clients.py have tests of their own, on one id each: they train models."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    assert CLIENTS[client][1](name, tmp_path).startswith("default view")
