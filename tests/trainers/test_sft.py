"""Warm-up on token ids: what it learns, what it leaves alone, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ghar.disk import full_disk_told
from ghar.errors import BadInput
from tests.trainers.tiny import VOCAB, tiny_model, tiny_tokenizer
from trainers import sft
from trainers.checkpoint import seal
from trainers.sft import IGNORE, Pair, SFTSettings, collate_left, draw_order, run_sft

SETTINGS = SFTSettings(steps=12, batch_size=8, micro_batch=4, lr=1e-2, log_every=4)


def pairs(count: int = 40) -> list[Pair]:
    """The reply is the prompt's first word plus one, then the end token; prompts of many lengths."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(2, VOCAB - 1, rng.integers(1, 12)).tolist() for _ in range(count)]
    return [Pair(prompt, [2 + prompt[0] % 4, 1]) for prompt in prompts]


def test_learns_and_hands_the_model_back_as_it_came(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = tiny_model()
    forward = type(model).forward
    result = run_sft(model, tiny_tokenizer(), pairs(), replace(SETTINGS, steps=42))
    assert result.curve[-1]["loss"] < 0.7 * result.curve[0]["loss"]
    assert [line["step"] for line in result.curve] == [*range(4, 41, 4), 42]
    assert 0 <= result.curve[-1]["accuracy"] <= 1
    assert "forward" not in result.model.__dict__ and type(result.model).forward is forward
    assert not result.model.training and all(p.requires_grad for p in result.model.parameters())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("finetune", ["full", "lora"])
def test_one_step_equals_a_plain_loop(finetune):
    """Loss of the first step is the mean over completion tokens of the whole batch, micro-batches or not."""
    data = pairs(8)
    model = tiny_model()
    logp = []
    with torch.no_grad():
        for pair in data:
            ids = torch.tensor([[*pair.prompt_ids, *pair.completion_ids]])
            lines = model(input_ids=ids).logits[0].log_softmax(-1)
            n = len(pair.prompt_ids)
            logp += [lines[n - 1 + k, token].item() for k, token in enumerate(pair.completion_ids)]
    settings = replace(SETTINGS, steps=1, log_every=1, finetune=finetune, rank=4)
    for micro in (8, 2):
        result = run_sft(tiny_model(), tiny_tokenizer(), data, replace(settings, micro_batch=micro))
        assert result.curve[0]["loss"] == pytest.approx(-np.mean(logp), abs=1e-4)


def test_weights_do_not_depend_on_micro_batches():
    def weights(micro: int) -> torch.Tensor:
        settings = replace(SETTINGS, steps=3, micro_batch=micro, warmup=0.0)
        return (
            run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings).model.model.layers[0].mlp.up_proj.weight.detach()
        )

    assert torch.allclose(weights(8), weights(2), atol=2e-4)


def test_lora_is_merged_into_the_base():
    before = tiny_model()
    result = run_sft(tiny_model(), tiny_tokenizer(), pairs(), replace(SETTINGS, finetune="lora", rank=4))
    assert type(result.model) is type(before)
    assert not any("lora" in name for name, _ in result.model.named_parameters())
    changed = {n for n, p in result.model.named_parameters() if not torch.equal(p, before.state_dict()[n])}
    assert changed and all("proj" in name for name in changed)


def test_same_seed_same_weights_whatever_the_global_generators_did():
    def run(seed: int) -> dict[str, Any]:
        torch.rand(3)
        np.random.rand(2)
        settings = replace(SETTINGS, steps=4, seed=seed, finetune="lora", rank=4)
        return run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings).model.state_dict()

    first, second, other = run(1), run(1), run(2)
    assert all(torch.equal(first[n], second[n]) for n in first)
    assert not all(torch.equal(first[n], other[n]) for n in first)


def test_global_torch_generator_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    run_sft(tiny_model(), tiny_tokenizer(), pairs(), replace(SETTINGS, steps=1))
    assert torch.equal(torch.rand(1), expected)


def test_order_shuffles_epochs_and_sorts_inside_a_step():
    lengths = np.random.default_rng(0).integers(1, 50, 24)
    order = draw_order(lengths.tolist(), replace(SETTINGS, steps=6))
    assert sorted(order[:24]) == sorted(order[24:]) == list(range(24))
    assert order[:24].tolist() != order[24:].tolist()
    for step in order.reshape(6, 8):
        assert (np.diff(lengths[step]) >= 0).all()


def test_padding_is_on_the_left_and_carries_no_loss():
    rows = [{"input_ids": [5, 6, 7], "labels": [IGNORE, 6, 7]}, {"input_ids": [8], "labels": [8]}]
    batch = collate_left(rows, pad_id=0)
    assert batch["input_ids"].tolist() == [[5, 6, 7], [0, 0, 8]]
    assert batch["labels"].tolist() == [[IGNORE, 6, 7], [IGNORE, IGNORE, 8]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]
    assert batch["position_ids"].tolist() == [[0, 1, 2], [0, 0, 0]]


def test_bad_pairs_are_named():
    def refused(data: list[Pair], message: str, **changes: Any) -> None:
        with pytest.raises(BadInput, match=message):
            run_sft(tiny_model(), tiny_tokenizer(), data, replace(SETTINGS, **changes))

    refused([], "no pair")
    refused([Pair([1], [2]), Pair([1], [])], "pair 1 has an empty")
    refused([Pair([1] * 9, [2])], "pair 0 is 10 tokens long", max_length=9)
    refused([Pair([1], [2])], "not a multiple of micro_batch", micro_batch=3)


class Killed(BaseException):
    """Nobody catches it, as nobody catches a SIGKILL."""


@pytest.mark.parametrize("finetune, steps, killed_at", [("lora", 26, 19), ("full", 26, 26), ("full", 26, 3)])
def test_a_killed_training_ends_like_an_undisturbed_one(tmp_path, monkeypatch, capsys, finetune, steps, killed_at):
    """Whether it was killed before, between or after its checkpoints (every 4 steps)."""
    settings = replace(SETTINGS, steps=steps, finetune=finetune, rank=4)
    keep = tmp_path / "kept"
    expected = run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings)
    with monkeypatch.context() as patch:
        patch.setattr(sft, "_callback", killer(sft._callback, killed_at))
        with pytest.raises(Killed):
            run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, keep)
    (keep / "checkpoint-999").mkdir(parents=True)  # a save that was cut short
    result = run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, keep)
    said = capsys.readouterr().out
    assert "checkpoint-999 is no checkpoint" in said
    assert ("Resuming SFT after step" in said) == (killed_at > 4)
    assert result.curve == expected.curve
    theirs = expected.model.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in result.model.state_dict().items())


def killer(make: Any, step: int) -> Any:
    """A maker of callbacks that raise once `step` is done, after whatever is saved there."""

    def make_deadly(*args: Any) -> Any:
        callback = make(*args)
        on_step_begin, on_train_end = callback.on_step_begin, callback.on_train_end

        def begin(args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == step:
                raise Killed
            on_step_begin(args, state, control, **kwargs)

        def end(args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == step:
                raise Killed
            on_train_end(args, state, control, **kwargs)

        callback.on_step_begin, callback.on_train_end = begin, end
        return callback

    return make_deadly


def test_a_full_disk_leaves_the_former_checkpoint(tmp_path, monkeypatch, capsys):
    settings = replace(SETTINGS, steps=8)  # saved after 4 and after 8
    expected = run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings)

    def full(folder: Path) -> None:
        if folder.name != "checkpoint-4":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        seal(folder)

    with monkeypatch.context() as patch:
        patch.setattr(sft, "seal", full)
        with pytest.raises(BadInput, match=r"disk of .* is full"), full_disk_told(tmp_path):
            run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, tmp_path)
    result = run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, tmp_path)
    assert "Resuming SFT after step 4." in capsys.readouterr().out
    assert result.curve == expected.curve


def test_checkpoints_of_another_number_of_processes_are_refused(tmp_path):
    run_sft(tiny_model(), tiny_tokenizer(), pairs(), replace(SETTINGS, steps=4), tmp_path)
    origin = tmp_path / "checkpoint-4" / "origin.json"
    origin.write_text(json.dumps({**json.loads(origin.read_text()), "processes": 2}))
    seal(tmp_path / "checkpoint-4")
    with pytest.raises(BadInput, match="written by 2 processes and this run has 1: start it with --nproc-per-node 2"):
        run_sft(tiny_model(), tiny_tokenizer(), pairs(), replace(SETTINGS, steps=4), tmp_path)


def test_checkpoints_of_another_training_are_refused(tmp_path):
    run_sft(tiny_model(), tiny_tokenizer(), pairs(), replace(SETTINGS, steps=4), tmp_path)
    for changed, data in ((replace(SETTINGS, steps=8), pairs()), (replace(SETTINGS, steps=4), pairs()[1:])):
        with pytest.raises(BadInput, match=r"checkpoint-4 is of another training \((settings|data) differ"):
            run_sft(tiny_model(), tiny_tokenizer(), data, changed, tmp_path)
