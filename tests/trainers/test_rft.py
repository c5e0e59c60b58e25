"""Rejection-sampling fine-tuning: it keeps the best attempts, imitates them, and spends RL's budget of episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.kills import TINY, kept, metrics
from ghar.episode import Episode, Prediction
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.rewards.compose import EpisodeReward
from ghar.trainers.evaluation import weights
from ghar.trainers.evaluation.evaluate import evaluate
from ghar.trainers.recipe import train
from ghar.trainers.rl.learner import PlainLearner
from ghar.trainers.rl.rft import best_attempts, imitate, kept_report
from ghar.trainers.rl.workers import RolloutRequest, Workers, local
from tests.trainers.minibatch import select
from tests.trainers.test_mappo import WANTED, adam, bandit, make_actor
from tests.trainers.test_resume import Starts

ROUND = replace(load([]).trainer.rl, epochs=1, minibatches=2, micro_tokens=64)
OWN = (
    "trainer.method=rft", "trainer.rl.attempts=2", "trainer.rl.episodes=4", "trainer.rft.keep=1",
    "trainer.rft.min_reward=null",
)  # fmt: skip


def attempts(totals: list[list[float]]) -> tuple[list[Episode], list[EpisodeReward]]:
    """Episodes of patients p0, p1, ..., one for each total."""
    episodes = [Episode(f"p{i}", k, Prediction(0)) for i, own in enumerate(totals) for k in range(len(own))]
    return episodes, [EpisodeReward({}, total, (), "shared") for own in totals for total in own]


def test_kept_attempts_are_the_best_of_their_patient():
    rng = np.random.default_rng(0)
    totals = rng.integers(0, 5, (20, 6)).astype(float).tolist()
    episodes, rewards = attempts(totals)
    for keep in (1, 2, 5):
        best = best_attempts(episodes, rewards, keep, None)
        assert len(best) == 20 * keep and best == sorted(best)
        for i in range(20):
            own = [k for k in range(6 * i, 6 * i + 6)]
            chosen = [rewards[k].total for k in own if k in best]
            assert min(chosen) >= max(rewards[k].total for k in own if k not in best)
    report = kept_report([r.total for r in rewards], best_attempts(episodes, rewards, 1, None))
    assert report["kept"] == 20 and report["episodes"] == 120
    assert report["reward/kept"] > report["reward/rejected"]


def test_ties_go_to_the_earlier_attempt_and_bad_or_failed_ones_are_never_kept():
    episodes, rewards = attempts([[1.0, 3.0, 3.0], [0.5, 0.0, 0.2], [2.0, 9.0, 1.0]])
    episodes[7] = replace(episodes[7], failure="agent: it crashed")
    assert best_attempts(episodes, rewards, 1, None) == [1, 3, 6]
    assert best_attempts(episodes, rewards, 1, 1.0) == [1, 6]
    assert best_attempts(episodes, rewards, 3, 1.0) == [0, 1, 2, 6, 8]
    assert best_attempts(episodes, rewards, 1, 10.0) == []


@pytest.mark.slow
@pytest.mark.parametrize(("finetune", "lr"), [("full", 1e-2), ("lora", 3e-2)])
def test_rounds_raise_the_probability_of_what_is_rewarded(finetune: str, lr: float):
    actor, rng = make_actor(finetune), np.random.default_rng(0)
    learner, seen, losses = PlainLearner(actor, adam(actor, lr), 1.0), [], []
    for _ in range(12):
        traj, probability = bandit(actor, 64, rng)
        wanted = [row.index for row in traj.rows() if int(row.tokens[-1]) in WANTED]
        losses.append(imitate(learner, select(traj, wanted), ROUND, rng)["loss"])
        seen.append(probability)
    assert seen[-1] > 0.9 > 0.5 > seen[0] and losses[-1] < losses[0]


def test_a_round_in_which_nothing_is_kept_changes_nothing():
    actor, rng = make_actor(), np.random.default_rng(0)
    before = {name: weight.clone() for name, weight in actor.trainable_state().items()}
    traj, _ = bandit(actor, 8, rng)
    assert imitate(PlainLearner(actor, adam(actor), 1.0), select(traj, []), ROUND, rng) == {"tokens": 0.0}
    assert all(torch.equal(before[name], weight) for name, weight in actor.trainable_state().items())


def test_imitation_has_the_loss_of_sft_whatever_the_temperature_of_sampling(tmp_path: Path):
    own = [f"run_dir={tmp_path}", "engine.temperature=0.5", *OWN]
    for method, temperature in (("trainer.method=rft", 1.0), ("trainer.method=mappo", 0.5)):
        config = load([method, *own[:2]] if method.endswith("mappo") else own)
        actor = weights.make_actor(config, make_actor().policy, ("top",))
        assert actor.cfg.temperature == temperature
        rows = [row for row in bandit(make_actor(), 4, np.random.default_rng(0))[0].rows() if row.trainable]
        rows = [replace(row, choice_ids=()) for row in rows]
        ids = torch.tensor(np.stack([row.tokens for row in rows]))
        with torch.no_grad():
            logp = (actor.policy(ids).logits[:, :-1] / temperature).log_softmax(-1)
        expected = logp.gather(2, ids[:, 1:, None]).squeeze(2)[:, rows[0].prompt - 1 :].flatten()
        assert torch.allclose(actor.evaluate(rows, 64).logp, expected, atol=1e-5)


def test_keeping_every_attempt_is_refused(tmp_path: Path):
    own = [f"run_dir={tmp_path}", "trainer.method=rft", "trainer.rl.attempts=1"]
    with pytest.raises(BadInput, match="would imitate every episode"):
        load([*own, "trainer.rft.min_reward=null"])
    assert load([*own, "trainer.rft.min_reward=0.5"])


@dataclass
class Counting:
    """Workers that note how many episodes they are asked to play."""

    workers: Workers
    orders: list[int]
    ahead: int = 0

    def begin(self, order: RolloutRequest, learner: Any, version: int) -> Callable[[], list[Episode]]:
        self.orders.append(len(order.cases))
        return self.workers.begin(order, learner, version)

    def close(self) -> None:
        self.workers.close()


@pytest.mark.slow
def test_it_plays_as_many_episodes_as_rl_and_is_named_in_the_report(tmp_path: Path):
    budget: dict[str, list[int]] = {}
    for method in ("mappo", "rft"):
        budget[method] = []
        run, cache = tmp_path / method, tmp_path / "cache"
        config = load([*TINY, *OWN, f"trainer.method={method}", f"run_dir={run}", f"data.cache={cache}"])
        train(config, lambda *args, own=budget[method]: Counting(local(*args), own))
    assert budget["rft"] == budget["mappo"] and budget["rft"].count(4) == 3  # three updates of four episodes
    rows = [row for row in metrics(tmp_path / "rft") if row["phase"] == "rl"]
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert all(row["train/kept"] == 2 and row["train/episodes"] == 4 and "train/loss" in row for row in rows[1:])
    epochs = config.trainer.rl.epochs
    assert all(row["train/tokens/reply"] == epochs * row["train/tokens"] for row in rows[1:]), "kept episodes alone"
    summary = evaluate(config)
    assert summary["method"] == "rft" and summary["titles"]["ghar_rl"] == "GHAR after RFT"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_and_resumed_it_ends_as_if_left_alone(tmp_path: Path):
    starts = Starts()
    took = starts.context.Array("d", 3)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    code, screen = starts.start(whole, tmp_path / "cache", *OWN, note=took)
    assert code == 0, screen
    starts.start(broken, tmp_path / "cache-broken", *OWN, write=int(0.6 * took[0]))
    starts.start(broken, tmp_path / "cache-broken", *OWN, write=12)  # a save of the resumed start
    code, screen = starts.start(broken, tmp_path / "cache-broken", *OWN)
    assert code == 0 and "Resuming reinforcement learning after update" in screen, screen
    assert metrics(broken) == metrics(whole) and kept(broken) == kept(whole)
