"""RLlib's multi-agent PPO on navigation, shortened: it learns, its checkpoint plays, evaluation takes it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="RLlib needs the extra ray")

import torch

from ghar.envs.records import Records
from ghar.envs.system import GroundTruth, build
from ghar.envs.views.gym_view import GymView
from ghar.errors import BadInput
from ghar.trainers.evaluation.evaluate import evaluate
from ghar.trainers.rllib.module import MaskedModule
from ghar.trainers.rllib.ppo import (
    FOLDER,
    SIDE_BY_SIDE,
    algorithm,
    best_rule,
    decisions_of,
    load_policy,
    returns_at_random,
    reward,
    train,
)

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("cluster")]
SHORT = ("trainer.rl.updates=2", "trainer.rl.episodes=32", "trainer.rl.epochs=2", "trainer.rl.minibatches=2")
SHORTER = ("trainer.rl.eval_samples=20", "trainer.rl.eval_every=2", "task.max_test=30", "eval.bootstrap=50")


@pytest.mark.parametrize("policies", ["shared", "separate"])
def test_it_trains_and_evaluation_takes_its_checkpoint(small_config, tmp_path: Path, policies: str) -> None:
    where = f"run_dir={tmp_path}/run"
    config = small_config("+experiment=navigation", *SHORT, *SHORTER, where, f"rllib.policies={policies}")
    train(config)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2] and "eval/reward" in rows[1] and "eval/reward" not in rows[0]
    modules = {key.split("/")[1] for key in rows[0] if key.endswith("/entropy")}
    assert modules == ({"shared"} if policies == "shared" else {"top_0", "low_0"})
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    checkpoint = tmp_path / "run" / "checkpoints" / FOLDER
    system = build(Records(config))
    again = reward(system, config, system.cases.test, load_policy(checkpoint, decisions_of(system)))
    assert again == pytest.approx(summary["rllib"]) and summary["optimum"] > summary["rllib"] - 1
    names = ("eval.variants=[scripted,rllib]", f"rllib.checkpoint={checkpoint}", f"run_dir={tmp_path}/evaluated")
    found = evaluate(small_config("+experiment=navigation", *SHORT, *SHORTER, *names))
    assert found["policies"]["rllib"]["reward"][0] == pytest.approx(summary["rllib"])
    assert (tmp_path / "evaluated" / "episodes" / "rllib.jsonl").exists()


def test_every_batch_is_of_other_patients(small_config, small_system) -> None:
    """RLlib can be set so that it seeds its environments anew before each batch: then it learns from few patients."""
    game = decisions_of(small_system).game(small_system.cases.train)
    with algorithm(small_config("+experiment=navigation", *SHORT, *SHORTER), game) as algo:
        batches = [
            {
                alone.infos[-1]["sample_id"]
                for _ in range(3)
                for episode in algo.env_runner.sample()
                for alone in episode.agent_episodes.values()
                if "sample_id" in alone.infos[-1]
            }
            for _ in range(2)
        ]
    assert all(len(batch) > SIDE_BY_SIDE / 2 for batch in batches)
    assert len(batches[0] & batches[1]) < 0.7 * min(map(len, batches))


def test_values_are_learned_in_units_of_random_play(small_system) -> None:
    """Before any update they lie where random episodes do, whatever a reward's size."""
    game = decisions_of(small_system).game(small_system.cases.train)
    mean, spread = returns_at_random(game, 0)
    assert (mean, spread) == returns_at_random(game, 0) and spread > 0
    seen, acted = game.spaces()
    module = MaskedModule(
        observation_space=seen, action_space=acted, model_config={"hidden": 8, "mean": mean, "spread": spread}
    )
    observed = GymView(game).reset(seed=0)[0]
    batch = {"obs": {name: torch.from_numpy(value[None]) for name, value in observed.items()}}
    assert abs(module.compute_values(batch)[0].item() - mean) < 2 * spread
    logits = module.forward_inference(batch)["action_dist_inputs"][0]
    assert (logits.softmax(-1).detach().numpy() > 0).tolist() == (observed["action_mask"] == 1).tolist()


def test_a_folder_that_is_no_checkpoint_is_named(small_system, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is no checkpoint of launch/train_rllib"):
        load_policy(tmp_path, decisions_of(small_system))


def test_a_policy_without_its_checkpoint_is_refused_before_anything_is_played(small_config, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no variant rllib"):
        evaluate(small_config("eval.variants=[rllib]", f"run_dir={tmp_path}/run"))


def test_a_system_without_decisions_as_numbers_is_named(small_system) -> None:
    with pytest.raises(BadInput, match="shows its decisions as text alone"):
        decisions_of(replace(small_system, truth=GroundTruth()))


def test_training_on_real_patients_ends_before_a_folder_is_made(small_config, tmp_path: Path) -> None:
    (tmp_path / "hospital").mkdir()
    real = "+experiment=navigation", "data=mimic4", f"data.root={tmp_path}/hospital", "kg.path=own.csv"
    with pytest.raises(BadInput, match="which these patients lack"):
        train(small_config(*real, f"run_dir={tmp_path}/run"))
    with pytest.raises(BadInput, match="shows its decisions as text alone"):
        train(small_config("+experiment=navigation", "system=exprag", f"run_dir={tmp_path}/run"))
    with pytest.raises(BadInput, match="section rllib is null"):
        train(small_config(f"run_dir={tmp_path}/run"))
    assert not (tmp_path / "run").exists()


def test_the_rules_answer_a_task_of_two_labels(small_config) -> None:
    """A task is named otherwise in prompts than in the configuration; a grade stood for a label where they differ."""
    config = small_config("+experiment=navigation", "task=kare_mortality", "task.max_valid=20")
    system = build(Records(config))
    assert best_rule(system, decisions_of(system), config, system.cases.valid)[1] > 0


def test_the_best_rule_beats_the_others(small_system, small_records) -> None:
    own, cases = decisions_of(small_system), small_system.cases.valid
    rule, best = best_rule(small_system, own, small_records.config, cases)
    found = [reward(small_system, small_records.config, cases, own.policy(other)) for other in own.rules]
    assert reward(small_system, small_records.config, cases, own.policy(rule)) == best == max(found) > min(found)
