"""Learning rates, the KL controller, which patients teach and which are drawn, against direct evaluation."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ghar.config import Config
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.metrics.runfolder import RunFolder
from ghar.rewards.compose import EpisodeReward
from ghar.trainers import recipe
from ghar.trainers.rl import estimators
from ghar.trainers.rl.estimators import telling
from ghar.trainers.rl.learner import PlainLearner
from ghar.trainers.rl.schedule import SCHEDULED, adapted, check_schedule, hold_schedule, rate, scaled, shares, table
from ghar.trainers.rl.targets import kl_in_reward, prepare, sampled
from tests.trainers.test_critic import CONFIG, episodes, make


def test_learning_rates_of_ten_updates():
    of = {s: [rate(s, step, 10) for step in range(1, 11)] for s in ("constant", "linear", "cosine")}  # type: ignore[arg-type]
    assert of["constant"] == [1.0] * 10
    assert of["linear"] == pytest.approx([1 - k / 10 for k in range(10)])
    assert of["cosine"] == pytest.approx([0.5 * (1 + math.cos(math.pi * k / 10)) for k in range(10)])
    assert rate("linear", 1, 1) == rate("cosine", 1, 1) == 1.0


def test_a_schedule_of_our_own_scales_the_learning_rate_alone():
    for name in ("constant", "linear", "cosine"):
        assert shares(name, 4, 10) == dict.fromkeys(SCHEDULED, 1.0) | {"lr": rate(name, 4, 10)}  # type: ignore[arg-type]
    assert scaled(CONFIG, shares("cosine", 4, 10)) == CONFIG


def own_schedule(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """A module of the user's, which no other test has imported."""
    name = f"schedules{abs(hash(folder))}"
    (folder / name).mkdir()
    (folder / name / "own.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    return f"{name}.own"


def test_a_module_of_the_users_own_scales_what_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = "def lr(update, updates):\n    return update / updates\n\n\ndef clip(update, updates):\n    return 0.5\n"
    name = own_schedule(tmp_path, monkeypatch, text)
    assert [shares(name, step, 4) for step in (1, 4)] == [
        {"lr": share, "kl": 1.0, "entropy": 1.0, "clip": 0.5} for share in (0.25, 1.0)
    ]
    assert scaled(CONFIG, shares(name, 1, 4)) == replace(CONFIG, clip=CONFIG.clip / 2)
    check_schedule(load([f"trainer.rl.schedule={name}"]).trainer)


@pytest.mark.parametrize(("text", "overrides", "sentence"), [
    ("def kl(update, updates):\n    return 3 - update\n", (), r"kl\(4, 4\) is -1, which is no share"),
    ("def lr(update, updates):\n    return None\n", (), r"lr\(1, 4\) is None, which is no share"),
    ("def rate(update, updates):\n    return 1.0\n", (), "has none of the functions lr, kl, entropy, clip"),
    ("def lr(update, updates):\n    return True\n", (), r"lr\(1, 4\) is True, which is no share"),
    ("import numpy\n\n\ndef lr(*given):\n    return numpy.float64('nan')\n", (), "nan.*, which is no share"),
    ("def lr(*given):\n    return 10**400\n", (), "which is no share"),
    ("import numpy\n\n\ndef lr(*given):\n    return numpy.float32('inf')\n", (), "inf.*, which is no share"),
    ("def kl(update, updates):\n    return 1.0\n", ("trainer.rl.kl=0",), r"scales trainer\.rl\.kl, which is 0"),
    ("def entropy(*given):\n    return 1.0\n", ("trainer.rl.entropy=0",), r"scales trainer\.rl\.entropy, which is 0"),
    ("def clip(*given):\n    return 1.0\n\n\nkl = lr = clip\n", ("trainer.method=rft", "trainer.rl.kl=0"),
     r"scales kl, clip, which trainer\.method=rft does not use"),
    ("def kl(update, updates):\n    return 1.0\n", ("trainer.rl.kl_target=0.1",), "both set the KL weight"),
])  # fmt: skip
def test_what_is_no_schedule_is_one_sentence_before_the_first_update(
    text: str, overrides: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    name = own_schedule(tmp_path, monkeypatch, text)
    config = load([f"trainer.rl.schedule={name}", "trainer.rl.updates=4", "trainer.rl.kl=0.1", *overrides])
    with pytest.raises(BadInput, match=sentence):
        check_schedule(config.trainer)
    with pytest.raises(BadInput, match="leads to no module"):
        shares("schedules.nowhere", 1, 4)


def test_numbers_of_numpy_and_fractions_are_shares_and_rft_takes_lr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = (
        "from fractions import Fraction\n\nimport numpy as np\n\n\ndef lr(update, updates):\n"
        "    return [np.cos(0.0), np.float32(0.5), np.int64(2), Fraction(1, 4)][update - 1]\n"
    )
    name = own_schedule(tmp_path, monkeypatch, text)
    check_schedule(load([f"trainer.rl.schedule={name}", "trainer.rl.updates=4", "trainer.method=rft"]).trainer)
    assert [shares(name, step, 4)["lr"] for step in range(1, 5)] == [1.0, 0.5, 2.0, 0.25]


def test_a_run_does_not_go_on_with_a_module_that_was_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The module is asked once an update in a process, and what it gave is the run's."""
    name = own_schedule(
        tmp_path, monkeypatch, "asked = []\n\n\ndef lr(*given):\n    asked.append(given)\n    return 0.5\n"
    )
    rl, folder = (
        load([f"trainer.rl.schedule={name}", "trainer.rl.updates=4"]).trainer.rl,
        RunFolder.open(tmp_path / "r"),
    )
    module = importlib.import_module(name)
    for _ in range(2):
        hold_schedule(folder, rl)
        assert [shares(name, step, 4)["lr"] for step in range(1, 5)] == [0.5] * 4
    assert module.asked == [(step, 4) for step in range(1, 5)]
    monkeypatch.setattr(module, "lr", lambda update, updates: 0.5 if update < 4 else 0.25)
    table.cache_clear()  # as in another process
    with pytest.raises(BadInput, match=rf"schedule={name} gave other shares: put the module back"):
        hold_schedule(folder, rl)
    table.cache_clear()


@pytest.mark.slow
def test_a_training_that_was_killed_asks_whether_its_module_is_the_same(
    small_config: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def killed(run: object) -> None:
        raise KeyboardInterrupt

    name = own_schedule(tmp_path, monkeypatch, "def lr(update, updates):\n    return 0.5\n")
    config = small_config(f"trainer.rl.schedule={name}", f"run_dir={tmp_path / 'run'}", "trainer.rl.updates=3")
    monkeypatch.setattr(recipe, "_warm_up", killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            recipe.train(config)
    monkeypatch.setattr(importlib.import_module(name), "lr", lambda update, updates: 0.25)
    table.cache_clear()
    with pytest.raises(BadInput, match="gave other shares"):
        recipe.train(config)
    with pytest.raises(KeyboardInterrupt):
        recipe.train(replace(config, resume="never"))
    table.cache_clear()


def test_a_learner_takes_a_share_of_the_rates_it_was_built_with():
    actor = make()[0]
    optimizer = torch.optim.AdamW(actor.parameter_groups(1e-3, 1e-2))
    learner = PlainLearner(actor, optimizer, 1.0)
    for share in (0.5, 0.25):
        learner.take(share)
        assert [group["lr"] for group in optimizer.param_groups] == [1e-3 * share, 1e-2 * share]


def test_the_kl_weight_follows_its_target_by_two_percent_at_most():
    assert adapted(0.1, kl=0.5, target=0.5) == pytest.approx(0.1)
    assert adapted(0.1, kl=0.55, target=0.5) == pytest.approx(0.1 * 1.01)
    assert adapted(0.1, kl=9.0, target=0.5) == pytest.approx(0.1 * 1.02)
    assert adapted(0.1, kl=-1.0, target=0.5) == pytest.approx(0.1 * 0.98)


def test_kl_in_the_reward_is_what_each_turns_tokens_cost():
    traj = episodes(5, 0)
    rows = list(traj.rows())
    difference = np.random.default_rng(0).normal(size=len(sampled(rows)))
    found = kl_in_reward(traj, rows, difference, 0.3)
    table, at = traj.segments, 0
    for row in rows:
        own = difference[at : at + len(row.tokens) - row.prompt]
        at += len(own)
        reply = 2 * row.index + 1
        assert found.segments.reward[reply] == pytest.approx(table.reward[reply] - 0.3 * own.sum())
        assert found.segments.agent_reward[reply] == pytest.approx(table.agent_reward[reply] - 0.3 * own.sum())
    assert np.array_equal(found.segments.reward[::2], table.reward[::2])


def test_kl_in_the_reward_lowers_returns_and_is_no_loss():
    actor, critic = make("lora")
    traj = episodes(16, 0)
    rows, charging = list(traj.rows()), replace(CONFIG, kl=0.5, kl_estimator="reward")
    assert charging.needs_reference and not charging.has_kl_loss
    same, report = prepare(actor, rows, traj, charging, critic=critic)
    assert report["kl/reference"] == pytest.approx(0.0, abs=1e-6)
    free = prepare(actor, rows, traj, replace(CONFIG, kl=0.0), critic=critic)[0]
    assert torch.allclose(same.returns, free.returns, atol=1e-5)
    with torch.no_grad():
        for parameter in actor.trainable_parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    moved, report = prepare(actor, rows, traj, charging, critic=critic)
    logp, reference = actor.evaluate(rows, 999).logp, actor.reference_logp(rows, 999)
    assert report["kl/reference"] == pytest.approx(float((logp - reference).mean()), abs=1e-6)
    first = len(rows[0].tokens) - rows[0].prompt + len(rows[1].tokens) - rows[1].prompt
    cost = 0.5 * float((logp - reference)[:first].sum())
    assert float(free.returns[0] - moved.returns[0]) == pytest.approx(cost, abs=1e-4)


def rewards(*totals: float) -> list[EpisodeReward]:
    return [EpisodeReward({}, total, ({"orm": total},), "shared") for total in totals]


def test_patients_whose_attempts_all_earned_the_same_teach_nothing():
    ids = ("a", "a", "b", "b", "c", "c")
    assert telling(ids, rewards(1, 1, 0, 1, 2, 2)).tolist() == [False, False, True, True, False, False]
    assert telling(ids, rewards(1, 1, 1, 1, 2, 2)).all()  # nothing to choose from: all stay


def test_a_process_whose_attempts_are_all_alike_keeps_none_where_others_differ(monkeypatch):
    monkeypatch.setattr(estimators, "gather", lambda own: [own, True])
    assert not telling(("a", "a"), rewards(1, 1)).any()
