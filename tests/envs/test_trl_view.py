"""TRL's GRPOTrainer, unmodified, takes a step on GHAR's episodes through the adapter."""

from __future__ import annotations

from pathlib import Path

import pytest
import trl
from datasets import Dataset

from ghar.envs.register import GAMES
from ghar.envs.views.games import TextGame
from ghar.envs.views.trl_view import TrlEnvironment, rows
from ghar.llm.demo_model import build_model, build_tokenizer

TEMPLATE = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"  # one whose replies TRL can read tools from


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> TextGame:
    made = GAMES["GHAR"](folder=str(tmp_path_factory.mktemp("trl")))
    assert isinstance(made, TextGame)
    return made


@pytest.mark.slow
def test_an_episode_through_the_tool_ends_with_its_reward(game: TextGame) -> None:
    env = TrlEnvironment(game)
    question, asked = env.reset(case=3), 0
    while question != "No question is left." and asked < 200:
        choices = question.rpartition("Choices: ")[2].split(", ") if "\nChoices: " in question else ["3"]
        question, asked = env.reply(choices[-1]), asked + 1
    assert 1 < asked < 200 and env.reply("again") == "No question is left."
    assert env.get_reward() != 0 and TrlEnvironment(game).get_reward() == 0
    assert isinstance(rows(game, 5), Dataset) and rows(game, 5)["case"] == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_grpo_takes_one_step(game: TextGame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    if not TEMPLATE.is_file():
        pytest.skip(f"this TRL has no {TEMPLATE.name}")
    template = TEMPLATE.read_text()
    tokenizer = build_tokenizer([template, *(case.text for case in game.scene.cases[:50])], [], 600)
    tokenizer.chat_template = template
    model = build_model(tokenizer, hidden=16, layers=1, heads=2, seed=0)
    before = model.model.embed_tokens.weight.detach().clone()
    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=2, num_generations=2,
        max_completion_length=8, report_to=[], use_cpu=True, disable_tqdm=True, learning_rate=1e-2, save_strategy="no",
    )  # fmt: skip

    def long(completions: list[object], **_: object) -> list[float]:
        return [float(i) for i, _ in enumerate(completions)]  # a reward that differs, so that there is a gradient

    trainer = trl.GRPOTrainer(
        model, reward_funcs=[long], args=arguments, processing_class=tokenizer, train_dataset=rows(game, 4),
        environment_factory=lambda: TrlEnvironment(game),
    )  # fmt: skip
    trainer.train()
    assert trainer.state.global_step == 1
    assert any("TrlEnvironment" in key for line in trainer.state.log_history for key in line)
    assert (trainer.model.model.embed_tokens.weight.detach() != before).any()
