"""Warm-up on token ids: what it learns, what it leaves alone, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector

from ghar.disk import report_full_disk
from ghar.errors import BadInput
from ghar.trainers.runs.manifest import seal
from ghar.trainers.sft import run as sft
from ghar.trainers.sft.packing import groups_of
from ghar.trainers.sft.pairs import IGNORE, collate
from ghar.trainers.sft.run import SFTSettings, TokenExample, best_step, draw_order, metrics_row, run_sft
from tests.trainers.tiny import VOCAB, tiny_model, tiny_tokenizer

pytestmark = pytest.mark.slow

SETTINGS = SFTSettings(steps=12, batch_size=8, micro_batch=4, lr=1e-2, log_every=4)


def pairs(count: int = 40) -> list[TokenExample]:
    """The reply is the prompt's first word plus one, then the end token; prompts of many lengths."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(2, VOCAB - 1, rng.integers(1, 12)).tolist() for _ in range(count)]
    return [TokenExample(prompt, [2 + prompt[0] % 4, 1]) for prompt in prompts]


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


def test_steps_too_small_for_bfloat16_add_up_in_float32():
    """Each step at this rate moves a weight by less than its last bit; twelve of them move it."""
    settings, data = replace(SETTINGS, lr=2e-5, dtype="bfloat16"), pairs(8)
    before = tiny_model().to(torch.bfloat16)
    after = run_sft(tiny_model().to(torch.bfloat16), tiny_tokenizer(), data, replace(settings, steps=60)).model
    exact = run_sft(tiny_model().to(torch.bfloat16).float(), tiny_tokenizer(), data,
                    replace(settings, steps=60, dtype="float32")).model  # fmt: skip
    start = parameters_to_vector(before.parameters()).float()
    moved = parameters_to_vector(after.parameters()).float() - start
    should = parameters_to_vector(exact.parameters()) - start
    assert {p.dtype for p in after.parameters()} == {torch.bfloat16}
    assert torch.corrcoef(torch.stack([moved, should]))[0, 1] > 0.8


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


def families(weights: bool = False) -> list[TokenExample]:
    """Twelve pairs of three patients, whose prompts begin with 70 tokens of a record."""
    rng = np.random.default_rng(3)
    records = rng.integers(2, 60, (3, 70)).tolist()
    return [
        TokenExample([*records[i % 3], *rng.integers(2, 60, 1 + i).tolist()], rng.integers(2, 60, 2 + i % 4).tolist(),
                0.5 + i if weights else None)
        for i in range(12)
    ]  # fmt: skip


def test_pairs_of_one_record_stay_in_one_step():
    groups = groups_of(families(), 8)
    assert sorted(i for group in groups for i in group) == list(range(12)) and max(map(len, groups)) == 2
    assert all(len({i % 3 for i in group}) == 1 for group in groups)
    order = draw_order([1] * 12, replace(SETTINGS, steps=3), groups)
    assert sorted(order[:12]) == sorted(order[12:]) == list(range(12))


def test_equal_pairs_are_in_different_groups():
    """Exercises of a base model stand in its pairs three times: together they were a third of a step's exercises."""
    pairs = families() * 3
    groups = groups_of(pairs, 8)
    assert sorted(i for group in groups for i in group) == list(range(36))
    assert all(len({i % 12 for i in group}) == len(group) for group in groups)
    assert max(map(len, groups)) == 2 and groups[: len(groups) // 3] == groups_of(families(), 8)


def test_a_model_made_from_nothing_draws_its_pairs_one_by_one(monkeypatch):
    from ghar.trainers.sft import packing

    def drawn(grouped: bool) -> int:
        asked = []
        with monkeypatch.context() as patch:
            patch.setattr(packing, "groups_of", lambda *given: asked.append(given) or ())
            run_sft(tiny_model(), tiny_tokenizer(), pairs(), replace(SETTINGS, steps=1, grouped=grouped))
        return len(asked)

    assert (drawn(False), drawn(True)) == (0, 1)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("finetune", ["full", "lora"])
def test_what_pairs_share_is_read_once_and_changes_no_gradient(monkeypatch, finetune, weights):
    from ghar.trainers.sft import trainer as module

    def trained(share: bool) -> tuple[torch.Tensor, float, int]:
        read = []
        model = tiny_model()
        model.model.embed_tokens.register_forward_pre_hook(lambda _, given: read.append(given[0].numel()))
        with monkeypatch.context() as patch:
            if not share:
                patch.setattr(module, "can_share", lambda model: False)
            settings = replace(SETTINGS, steps=1, log_every=1, batch_size=12, micro_batch=3, warmup=0.0, max_length=200,
                               finetune=finetune, rank=4, max_grad_norm=1e9)  # fmt: skip
            torch.manual_seed(0)
            result = run_sft(model, tiny_tokenizer(), families(weights), settings)
        moved = torch.cat([p.detach().flatten() for p in result.model.parameters()])
        return moved, result.curve[0]["loss"], sum(read)

    (one, loss, once), (other, expected, apart) = trained(True), trained(False)
    assert loss == pytest.approx(expected, rel=1e-5) and once < 0.6 * apart
    # Adam's first step is the sign of the gradient: where it is almost zero, rounding decides
    assert ((one - other).abs() > 1e-6).float().mean() < 0.01


def test_padding_is_on_the_right_and_carries_no_loss():
    rows = [{"input_ids": [5, 6, 7], "labels": [IGNORE, 6, 7]}, {"input_ids": [8], "labels": [8]}]
    batch = collate(rows, pad_id=0)
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch["labels"].tolist() == [[IGNORE, 6, 7], [8, IGNORE, IGNORE]]
    assert set(batch) == {"input_ids", "labels"}  # no mask, which would keep attention from its fast kernels


def test_bad_pairs_are_named():
    def refused(data: list[TokenExample], message: str, **changes: Any) -> None:
        with pytest.raises(BadInput, match=message):
            run_sft(tiny_model(), tiny_tokenizer(), data, replace(SETTINGS, **changes))

    refused([], "no pair")
    refused([TokenExample([1], [2]), TokenExample([1], [])], "pair 1 has an empty")
    refused([TokenExample([1] * 9, [2])], "pair 0 is 10 tokens long", max_length=9)
    refused([TokenExample([1], [2])], "not a multiple of micro_batch", micro_batch=3)
    refused([TokenExample([1], [2]), TokenExample([1], [2], 1.0)], "some SFT pairs have a weight and others none")


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


def test_the_curve_is_told_as_it_is_made_and_counts_tokens(tmp_path):
    """Each row before the next step begins; a training that goes on tells those before it again. The accuracy is over
    tokens, not a mean of micro-batches' means: replies are of several lengths here."""
    data = [replace(pair, completion_ids=pair.completion_ids * (1 + i % 3)) for i, pair in enumerate(pairs())]
    told, times = [], []
    make = sft._callback

    def timed(*args: Any) -> Any:
        callback = make(*args)
        callback.on_log = lambda args, state, control, **kwargs: times.append((state.global_step, len(told)))
        return callback

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sft, "_callback", timed)
        result = run_sft(tiny_model(), tiny_tokenizer(), data, SETTINGS, tmp_path / "kept", pairs(8),
                         lambda row, seconds: told.append(row))  # fmt: skip
    assert tuple(told) == result.curve and [row["step"] for row in told] == [4, 8, 12]
    assert [(step, rows) for step, rows in times if step == 8] == [(8, 1), (8, 1)]  # loss and validation loss
    for micro in (1, 8):
        other = run_sft(tiny_model(), tiny_tokenizer(), data, replace(SETTINGS, micro_batch=micro), None, pairs(8))
        assert [row["accuracy"] for row in other.curve] == pytest.approx([row["accuracy"] for row in told], abs=1e-3)


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
        with pytest.raises(BadInput, match=r"disk of .* is full"), report_full_disk(tmp_path):
            run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, tmp_path)
    result = run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, tmp_path)
    assert "Resuming SFT after step 4." in capsys.readouterr().out
    assert result.curve == expected.curve


def test_checkpoints_of_another_number_of_processes_are_gone_on_from(tmp_path, capsys):
    settings = replace(SETTINGS, steps=8)  # saved after 4 and after 8
    expected = run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint-8")
    origin = tmp_path / "checkpoint-4" / "origin.json"
    own = origin.read_text()
    origin.write_text(json.dumps({**json.loads(own), "processes": 2}))
    seal(tmp_path / "checkpoint-4")
    result = run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, tmp_path)
    assert "checkpoint-4 was written by 2 processes" in capsys.readouterr().out
    assert result.curve == expected.curve


def test_checkpoints_of_another_training_are_refused(tmp_path):
    run_sft(tiny_model(), tiny_tokenizer(), pairs(), replace(SETTINGS, steps=4), tmp_path)
    for changed, data in ((replace(SETTINGS, steps=8), pairs()), (replace(SETTINGS, steps=4), pairs()[1:])):
        with pytest.raises(BadInput, match=r"checkpoint-4 is of another training \((settings|data) differ"):
            run_sft(tiny_model(), tiny_tokenizer(), data, changed, tmp_path)


def loss_of(model: Any, pair: TokenExample) -> torch.Tensor:
    """-log p of each completion token, one pair at a time."""
    ids = torch.tensor([[*pair.prompt_ids, *pair.completion_ids]])
    lines = model(input_ids=ids).logits[0].log_softmax(-1)
    first = len(pair.prompt_ids) - 1
    return -torch.stack([lines[first + k, token] for k, token in enumerate(pair.completion_ids)])


def test_a_weight_changes_the_direction_of_the_gradient_and_not_its_scale_alone():
    """One step of plain descent (Adam would hide the scale) goes along the gradient of the weighted sum."""
    data = [replace(pair, weight=weight) for pair, weight in zip(pairs(8), [0.25, 3.0] * 4, strict=True)]
    model = tiny_model()
    sum((pair.weight or 0) * loss_of(model, pair).sum() / 8 for pair in data).backward()  # type: ignore[union-attr]
    expected = model.model.layers[0].mlp.up_proj.weight.grad.flatten()
    unweighted = gradient_of_a_step(pairs(8), micro=2)
    for micro in (8, 2):
        found = gradient_of_a_step(data, micro)
        assert torch.allclose(found, expected, atol=1e-6)
    assert torch.cosine_similarity(unweighted, expected, dim=0) < 0.95


def gradient_of_a_step(data: list[TokenExample], micro: int) -> torch.Tensor:
    """The gradient that the first step of a training has in its batch of eight."""
    from ghar.trainers.sft.trainer import CompletionTrainer

    seen: list[torch.Tensor] = []

    class Watching(CompletionTrainer):
        def create_optimizer(self, model: Any = None) -> Any:
            weight = self.model.model.layers[0].mlp.up_proj.weight  # type: ignore[union-attr]
            self.optimizer = torch.optim.SGD([weight], lr=0.0)
            self.optimizer.register_step_pre_hook(lambda *_: seen.append(weight.grad.flatten().clone()))
            return self.optimizer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ghar.trainers.sft.trainer.CompletionTrainer", Watching)
        settings = replace(SETTINGS, steps=1, micro_batch=micro, max_grad_norm=1e9)
        run_sft(tiny_model(), tiny_tokenizer(), data, settings)
    return seen[0]


def test_a_schedule_is_followed():
    settings = replace(SETTINGS, steps=10, warmup=0.2, log_every=1)
    rates = {
        schedule: [row["lr"] for row in run_sft(tiny_model(), tiny_tokenizer(), pairs(), changed).curve]
        for schedule, changed in (("linear", settings), ("cosine", replace(settings, schedule="cosine")))
    }
    assert rates["linear"][2] == rates["cosine"][2] == SETTINGS.lr
    assert rates["linear"][6] == pytest.approx(SETTINGS.lr / 2) == pytest.approx(rates["cosine"][6])
    assert rates["cosine"][4] > rates["linear"][4] and rates["cosine"][8] < rates["linear"][8]


@pytest.mark.parametrize("finetune", ["full", "lora"])
@pytest.mark.parametrize("kept", [False, True])
def test_the_weights_with_the_lowest_validation_loss_are_kept(tmp_path, monkeypatch, finetune, kept):
    """Validation pairs of another rule: what is learned makes them worse, so an early point is the best one."""
    monkeypatch.chdir(tmp_path)
    valid = [
        TokenExample(pair.prompt_ids, [30 + pair.prompt_ids[0] % 4, 1, 1][: 2 + i % 2])
        for i, pair in enumerate(pairs(7))
    ]
    settings = replace(SETTINGS, steps=14, finetune=finetune, rank=4, micro_batch=2, batch_size=4, lr=3e-2)
    keep = tmp_path / "kept" if kept else None
    result = run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, keep, valid)
    losses = {row["step"]: row["valid_loss"] for row in result.curve}
    assert list(losses) == [4, 8, 12, 14]
    assert result.step == min(losses, key=losses.__getitem__) < 14
    with torch.no_grad():
        found = torch.cat([loss_of(result.model, pair) for pair in valid]).mean()
    assert float(found) == pytest.approx(losses[result.step], abs=1e-4)
    assert [path.name for path in tmp_path.iterdir()] == (["kept"] if kept else [])


def test_seconds_to_the_best_step_are_of_training_alone(tmp_path, monkeypatch):
    """Neither an hour between two starts nor steps that are done again count."""
    hours, starts = 0, ([], [])

    def train(told: list[dict[str, Any]]) -> Any:
        settings = replace(SETTINGS, steps=14)
        return run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, tmp_path, pairs(60)[40:],
                       lambda row, seconds: told.append(metrics_row("sft", row, seconds)))  # fmt: skip

    clock = type("Clock", (), {"monotonic": staticmethod(lambda: time.monotonic() + 3600 * hours)})
    monkeypatch.setattr("ghar.trainers.sft.trainer.time", clock)
    with monkeypatch.context() as patch:
        patch.setattr(sft, "_callback", killer(sft._callback, 9))
        with pytest.raises(Killed):
            train(starts[0])
    hours = 1
    result = train(starts[1])
    before, after = ([row["time/trained"] for row in told] for told in starts)
    assert after[: len(before)] == before and after == sorted(after) and 0 < after[0] and after[-1] < 3600
    assert (best := best_step(starts[1])) is not None and best["step"] == result.step
    assert best["seconds"] == next(row["time/trained"] for row in starts[1] if row["step"] == result.step)
    assert best_step([{**row, "time/trained": None} for row in starts[1]]) is None and best_step([]) is None


def test_a_killed_training_with_validation_ends_like_an_undisturbed_one(tmp_path, monkeypatch):
    settings = replace(SETTINGS, steps=14)
    valid = pairs(60)[40:]
    expected = run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, valid=valid)
    with monkeypatch.context() as patch:
        patch.setattr(sft, "_callback", killer(sft._callback, 9))
        with pytest.raises(Killed):
            run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, tmp_path / "kept", valid)
    result = run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, tmp_path / "kept", valid)
    assert result.curve == expected.curve and result.step == expected.step
    theirs = expected.model.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in result.model.state_dict().items())
    with pytest.raises(BadInput, match="of another training"):
        run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, tmp_path / "kept", valid[1:])
