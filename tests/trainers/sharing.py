"""Short trainings in one, two and three processes for tests/trainers/test_distributed.py, their numbers into files.

python sharing.py FOLDER: run what FOLDER/plan.json names, in its order: {NAME: [PROCESSES, [JOB, ...]]}, a JOB being
WHAT:STAGE:{full,lora} with WHAT a name of `JOBS` and STAGE one of none, 0, 1, 2, 3 (offload appended: 2offload). The
numbers of NAME go to FOLDER/NAME.json.

The processes are forked from one that has loaded the libraries, which takes longer than most jobs. torchrun starts
those of `python sharing.py die`, in which the second process dies.
"""

from __future__ import annotations

import errno
import gc
import importlib.util
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ghar.config import DeepspeedConfig
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.rewards.compose import EpisodeReward
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.critic import Critic, CriticConfig
from ghar.trainers.rl.estimators import telling
from ghar.trainers.rl.learner import DeepSpeedLearner, Learner, PlainLearner, score
from ghar.trainers.rl.mappo import improve
from ghar.trainers.rl.rft import imitate
from ghar.trainers.rl.state import State, states, width
from ghar.trainers.rl.trajectory import Trajectories
from ghar.trainers.runs import checkpoint, manifest
from ghar.trainers.runs.checkpoint_writer import CheckpointWriter
from ghar.trainers.runs.distributed import gather, load_deepspeed, on_main, rank, share, together, world
from ghar.trainers.sft import run as sft_module
from ghar.trainers.sft import zero_checkpoint
from ghar.trainers.sft.run import run_sft
from tests.trainers.minibatch import select
from tests.trainers.test_critic import episodes
from tests.trainers.test_mappo import CONFIG, make_actor, play
from tests.trainers.test_sft import SETTINGS, Killed, killer, pairs
from tests.trainers.tiny import ROLES, for_two, perturb, tiny_model, tiny_tokenizer


def sft(deepspeed: DeepspeedConfig, finetune: str, keep: Path | None = None) -> dict:
    settings = replace(SETTINGS, deepspeed=deepspeed, finetune=finetune, rank=4, log_every=1, lr=3e-3)
    result = run_sft(tiny_model(), tiny_tokenizer(), pairs(), settings, keep)
    weight = result.model.model.layers[1].mlp.up_proj.weight
    return {"curve": [[row["loss"], row["accuracy"]] for row in result.curve], "weight": weight.flatten()[:50].tolist()}


def best(deepspeed: DeepspeedConfig, finetune: str, keep: Path | None = None, **other: Any) -> dict:
    """`sft` of weighted pairs, whose validation loss is lowest before the end; seven pairs, so that batches are odd."""
    settings = replace(SETTINGS, deepspeed=deepspeed, finetune=finetune, rank=4, log_every=3, lr=1e-2, **other)
    data = [replace(pair, weight=0.5 + i % 2) for i, pair in enumerate(pairs())]
    valid = [replace(pair, completion_ids=[40, 41]) for pair in pairs(7)]
    model = tiny_model().to(getattr(torch, settings.dtype))
    result = run_sft(model, tiny_tokenizer(), data, settings, keep, valid=valid)
    weight = result.model.model.layers[1].mlp.up_proj.weight.float()
    curve = [[row["loss"], row["accuracy"], row["valid_loss"]] for row in result.curve]
    return {"curve": curve, "step": result.step, "weight": weight.flatten()[:50].tolist()}


def killed(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """`sft`, given up after seven steps of twelve and started again: it goes on from its checkpoint."""
    folder = on_main(tempfile.mkdtemp)
    make = sft_module._callback
    sft_module._callback = killer(make, 7)
    try:
        sft(deepspeed, finetune, Path(folder))
        raise AssertionError("it was not killed")
    except Killed:
        pass
    finally:
        sft_module._callback = make
    found = sft(deepspeed, finetune, Path(folder))
    on_main(lambda: shutil.rmtree(folder))
    return found


def six(deepspeed: DeepspeedConfig, finetune: str, keep: Path | None = None, dtype: str = "float32") -> dict:
    """`best` in batches that two and three processes can share."""
    return best(deepspeed, finetune, keep, batch_size=6, micro_batch=3, dtype=dtype)


def sft_begun(deepspeed: DeepspeedConfig, finetune: str, what: str = "sft", dtype: str = "float32") -> dict:
    """`six`, given up behind its best step."""
    make = sft_module._callback
    sft_module._callback = killer(make, 11)
    try:
        six(deepspeed, finetune, kept_in(deepspeed, finetune, what), dtype)
        raise AssertionError("it was not killed")
    except Killed:
        return {}
    finally:
        sft_module._callback = make


def sft_gone_on(deepspeed: DeepspeedConfig, finetune: str, what: str = "sft", dtype: str = "float32") -> dict:
    """`six` to its end, by another number of processes, which read the best weights of the first ones."""
    folder = kept_in(deepspeed, finetune, what)
    kept = [int(found.name.removeprefix("checkpoint-")) for found in folder.glob("checkpoint-*")]
    assert max(kept) == 9
    result = six(deepspeed, finetune, folder, dtype)
    assert result["step"] in kept
    return result


def back_begun(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """`sft_begun` by the larger number of processes."""
    return sft_begun(deepspeed, finetune, "back")


def back_gone_on(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """`sft_gone_on` by the smaller number of processes."""
    return sft_gone_on(deepspeed, finetune, "back")


def narrow_begun(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """`sft_begun` in bfloat16: float32 masters as its newest checkpoint was saved."""
    found: list[dict] = []
    make = sft_module._callback

    def noting(*args: Any) -> Any:
        callback = make(*args)
        save = callback.on_save

        def on_save(*of: Any, model: Any, **more: Any) -> None:
            found.append(masters(model))
            save(*of, model=model, **more)

        callback.on_save = on_save
        return callback

    with patch.object(sft_module, "_callback", noting):
        sft_begun(deepspeed, finetune, "narrow", "bfloat16")
    return found[-1]


def narrow_gone_on(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """Masters of `narrow_begun` as another number of processes has read them, and trains on."""
    found: list[dict] = []
    load = zero_checkpoint.load_checkpoint

    def noting(engine: Any, *of: Any, **more: Any) -> None:
        load(engine, *of, **more)
        found.append(masters(engine.module))

    with patch.object(zero_checkpoint, "load_checkpoint", noting):
        sft_gone_on(deepspeed, finetune, "narrow", "bfloat16")
    return found[0]


def mappo(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """Three updates on the same seven episodes; the last process has fewer rows than the others, with two there is
    also a minibatch in which it has none."""
    actor, learner, traj = for_updates(deepspeed, finetune)
    rng = np.random.default_rng(1)
    reports = [improve(learner, traj, THREE, rng) for _ in range(2)]
    if world() > 1:
        keep_policy(deepspeed, finetune, actor, learner, rng)
    kept = saved(learner)
    with learner.whole():
        weights = {name: w.clone() for name, w in actor.trainable_state().items()}
    learner.change(lambda: fill(actor, {name: torch.ones_like(w) for name, w in weights.items()}))
    learner.change(lambda: fill(actor, weights))
    learner.load_state(kept)
    reports.append(improve(learner, traj, THREE, rng))
    with learner.whole():
        last = {name: w.flatten()[:5].tolist() for name, w in actor.trainable_state().items()}
    for report in reports:
        report.pop("tokens_per_second")
    return {"reports": reports, "weights": last}


THREE = replace(CONFIG, kl=0.1, entropy=0.01, minibatches=3, micro_tokens=16)


def for_updates(deepspeed: DeepspeedConfig, finetune: str) -> tuple[ActorCritic, Learner, Trajectories]:
    """An actor, its learner, and this process's part of seven episodes."""
    actor = perturb(make_actor(finetune, checkpointing=deepspeed.checkpointing))
    whole = play(actor, 7, np.random.default_rng(0), truncated=True)
    for head in actor.heads.values():
        torch.nn.init.zeros_(head.weight)  # type: ignore[arg-type]
        torch.nn.init.zeros_(head.bias)  # type: ignore[arg-type]
    return actor, make_learner(actor, deepspeed), own_part(whole)


def begun(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """The first two updates of `mappo`, and a checkpoint."""
    actor, learner, traj = for_updates(deepspeed, finetune)
    rng = np.random.default_rng(1)
    for _ in range(2):
        improve(learner, traj, THREE, rng)
    keep_policy(deepspeed, finetune, actor, learner, rng)
    return {}


def keep_policy(
    deepspeed: DeepspeedConfig, finetune: str, actor: ActorCritic, learner: Learner, rng: np.random.Generator
) -> None:
    """Write the checkpoint that `gone_on` reads."""
    with learner.whole():
        weights = {name: w.clone() for name, w in actor.trainable_state().items()}
    own = {"own": learner.state()} if rank() == 0 or learner.parted else {}
    made = checkpoint.Checkpoint(weights, own, checkpoint.random_state(rl=rng), {}, 1, processes=world())
    checkpoint.save(kept_in(deepspeed, finetune), made, {}, checkpoint.KeepPolicy(1, 1))


def gone_on(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """The third update of `mappo`, by another number of processes."""
    actor, learner, traj = for_updates(deepspeed, finetune)
    folder, rng = kept_in(deepspeed, finetune), np.random.default_rng(0)
    found = checkpoint.load(folder / "step-1", {})
    parts = checkpoint.parts_of(folder, found)
    assert found.processes != world() and len(parts) == (found.processes if learner.parted else 1)
    learner.change(lambda: fill(actor, found.weights))
    learner.load_state(found.optimizer["own"], [part["own"] for part in parts])
    checkpoint.restore_random(found.random, rl=rng)
    report = improve(learner, traj, THREE, rng)
    report.pop("tokens_per_second")
    with learner.whole():
        last = {name: w.flatten()[:5].tolist() for name, w in actor.trainable_state().items()}
    return {"report": report, "weights": last}


def critic_gone_on(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """The third fit of `critic`, by another number of processes."""
    learner, one, batch, returns = shared_critic(deepspeed, finetune)
    folder, rng = kept_in(deepspeed, finetune, "critic"), np.random.default_rng(0)
    found = checkpoint.load(folder / "step-1", {})
    parts = checkpoint.parts_of(folder, found)
    assert found.processes != world() and len(parts) == (found.processes if learner.parted else 1)
    held = [part["critic_own"] for part in parts if part["critic_own"]]
    one.load_state(found.optimizer["critic"], found.optimizer["critic_own"], held)
    checkpoint.restore_random(found.random, rl=rng)
    loss = one.fit(batch, returns, rng)
    return {"losses": [loss], "values": all_values(one, batch)}


def masters_begun(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """An update of a policy in bfloat16 and a checkpoint; its float32 masters."""
    actor, learner, traj = narrow_actor(deepspeed, finetune)
    improve(learner, traj, replace(CONFIG, mismatch_limit=1.0), np.random.default_rng(1))
    with learner.whole():
        weights = {name: w.clone() for name, w in actor.trainable_state().items()}
    made = checkpoint.Checkpoint(weights, {"own": learner.state()}, {}, {}, 1, processes=world())
    checkpoint.save(kept_in(deepspeed, finetune, "masters"), made, {}, checkpoint.KeepPolicy(1, 1))
    return masters(actor)


def masters_gone_on(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """The masters of `masters_begun` in another number of processes."""
    actor, learner, _ = narrow_actor(deepspeed, finetune)
    folder = kept_in(deepspeed, finetune, "masters")
    found = checkpoint.load(folder / "step-1", {})
    learner.change(lambda: fill(actor, found.weights))
    learner.load_state(found.optimizer["own"], [part["own"] for part in checkpoint.parts_of(folder, found)])
    return masters(actor)


def narrow_actor(deepspeed: DeepspeedConfig, finetune: str) -> tuple[ActorCritic, Learner, Trajectories]:
    """An actor in bfloat16, its learner, and this process's part of seven episodes."""
    actor = ActorCritic(tiny_model().to(torch.bfloat16), for_two(finetune, rank=8))  # type: ignore[arg-type]
    traj = own_part(play(actor, 7, np.random.default_rng(0)))
    return actor, DeepSpeedLearner(actor, adamw(actor), deepspeed, "bfloat16", 0.5), traj


def masters(module: torch.nn.Module) -> dict:
    """Sum and first numbers of each trained weight's float32 master."""
    from deepspeed.utils import safe_get_full_fp32_param  # pyright: ignore[reportMissingImports]

    whole = [safe_get_full_fp32_param(p).double() for p in module.parameters() if p.requires_grad]  # type: ignore
    narrow = [w.to(torch.bfloat16).double() for w in whole]
    lost = sum(float((w - n).abs().sum()) for w, n in zip(whole, narrow, strict=True))
    return {"lost": lost, "masters": [[float(w.sum()), *w.flatten()[:5].tolist()] for w in whole]}


def kept_in(deepspeed: DeepspeedConfig, finetune: str, what: str = "policy") -> Path:
    return Path(sys.argv[1]) / f"{what}-{deepspeed.zero}-{finetune}"


def rft(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """Two rounds on the same seven episodes, the second from a checkpoint; processes hold unequal shares."""
    actor = perturb(make_actor(finetune, checkpointing=deepspeed.checkpointing))
    traj = own_part(play(actor, 7, np.random.default_rng(0)))
    learner, rng = make_learner(actor, deepspeed), np.random.default_rng(1)
    settings = replace(load([]).trainer.rl, epochs=2, minibatches=3, micro_tokens=16)
    reports = [imitate(learner, traj, settings, rng)]
    learner.load_state(saved(learner))
    reports.append(imitate(learner, traj, settings, rng))
    with learner.whole():
        weights = {name: w.flatten()[:5].tolist() for name, w in actor.trainable_state().items()}
    return {"reports": reports, "weights": weights}


def dynamic(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """An update on the patients whose attempts earned different rewards: the first two, which process 0 has."""
    actor = perturb(make_actor(finetune, checkpointing=deepspeed.checkpointing))
    whole, mine = play(actor, 8, np.random.default_rng(0), attempts=2), share(range(8))
    rewards = [EpisodeReward({}, float(i < 4 and i % 2), (), "shared") for i in mine]
    differ = telling([whole.sample_ids[i] for i in mine], rewards)
    kept = {i for i, differs in zip(mine, differ, strict=True) if differs}
    traj = select(whole, [row.index for row in whole.rows() if int(whole.segments.episode[2 * row.index]) in kept])
    report = improve(make_learner(actor, deepspeed), traj, replace(CONFIG, minibatches=2), np.random.default_rng(1))
    report.pop("tokens_per_second")
    return {"report": report, "kept": sum(gather(len(kept)))}


def saved(learner: Learner) -> dict:
    """The learner's state from a checkpoint that every process wrote its part of, and has read again."""
    return written({"own": learner.state()} if rank() == 0 or learner.parted else {}, learner.parted)["own"]


def written(own: dict, parted: bool) -> dict:
    """What a checkpoint gives back of the optimisers' state in `own`."""
    folder = Path(on_main(tempfile.mkdtemp))
    made, step = checkpoint.Checkpoint({}, own, {}, {}, 1, processes=world()), folder / "step-1"
    with CheckpointWriter(folder, {}, checkpoint.KeepPolicy(1, 1)) as writer:
        writer.begin(lambda: made)
        writer.collect()  # it may be on its way
    parts = len(list(step.glob("optimizer*.pt")))
    assert parts == (world() if parted else 1) and manifest.fault(step) is None
    found = checkpoint.load(step, {}).optimizer
    gather(None)
    on_main(lambda: shutil.rmtree(folder))
    return found


def unwritten(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """A checkpoint that the last process cannot write: all hear of it, and nothing is left of it."""
    folder, last = Path(on_main(tempfile.mkdtemp)), rank() == world() - 1
    made = checkpoint.Checkpoint({}, {"own": {}}, {}, {}, 1, processes=world())
    error: Exception | None = None
    with patch.object(torch, "save", side_effect=OSError(errno.ENOSPC, "full")) if last else nullcontext():
        writer = CheckpointWriter(folder, {}, checkpoint.KeepPolicy(1, 1))
        writer.begin(lambda: made)
        try:
            writer.finish()
        except (BadInput, OSError) as raised:
            error = raised
    heard = f"Process {world() - 1} could not write the checkpoint of update 1: A file cannot be written, its disk is"
    assert isinstance(error, OSError) if last else str(error).startswith(heard), error
    gather(None)
    on_main(folder.rmdir)  # it is empty
    return {}


def critic(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """Three fits of a critic to seven episodes, the last from a checkpoint; processes hold unequal shares."""
    learner, one, batch, returns = shared_critic(deepspeed, finetune)
    one.observe(batch, returns)
    rng = np.random.default_rng(1)
    told = [one.fit(batch, returns, rng) for _ in range(2)]
    if world() > 1:  # for critic_gone_on
        own, random = state_of(one, learner), checkpoint.random_state(rl=rng)
        made = checkpoint.Checkpoint({}, own, random, {}, 1, processes=world())
        checkpoint.save(kept_in(deepspeed, finetune, "critic"), made, {}, checkpoint.KeepPolicy(1, 1))
    found = written(state_of(one, learner), learner.parted)
    one.load_state(found["critic"], found["critic_own"])
    told.append(one.fit(batch, returns, rng))
    return {"losses": told, "values": all_values(one, batch)}


def shared_critic(deepspeed: DeepspeedConfig, finetune: str) -> tuple[Learner, Critic, list[State], list[np.ndarray]]:
    """The policy's learner and `own_critic`, shared out as it is."""
    actor, one, batch, returns = own_critic(finetune, torch.float32, 1e-2, deepspeed.checkpointing)
    learner = make_learner(actor, deepspeed)
    if deepspeed.stage is not None:
        one.shard(deepspeed, "float32")
    return learner, one, batch, returns


def state_of(one: Critic, learner: Learner) -> dict:
    """What a checkpoint of this process keeps of a critic."""
    main = rank() == 0
    whole = one.state(main)
    kept = {"critic": whole} if main else {}
    return kept | ({"critic_own": one.own_state()} if main or learner.parted else {})


def all_values(one: Critic, batch: list[State]) -> list[float]:
    """The critic's values of all processes' states."""
    return [value for own in gather([v.tolist() for v in one.values(batch)]) for v in own for value in v]


def fine(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """Steps of a critic in bfloat16 that its weights would round away: how far its float32 masters end from the plain
    float32 critic of the same weights, as a share of the way, and the share of weights that plain bfloat16 moves."""
    from deepspeed.utils import safe_get_full_fp32_param  # pyright: ignore[reportMissingImports]

    rate, fits = 1e-5, 4
    actor, one, batch, returns = own_critic(finetune, torch.bfloat16, rate)
    _, exact, *_ = own_critic(finetune, torch.float32, rate)
    _, plain, *_ = own_critic(finetune, torch.bfloat16, rate)
    own = one.reader.trainable_parameters()
    with torch.no_grad():
        for p, narrow in zip(exact.reader.trainable_parameters(), own, strict=True):
            p.copy_(narrow)
    begun = [p.detach().float().clone() for p in own]
    learner = DeepSpeedLearner(actor, adamw(actor), deepspeed, "bfloat16", 0.5)
    assert learner.stage is not None
    one.shard(deepspeed, "bfloat16")
    for each in (one, exact, plain):
        each.observe(batch, returns)
        rng = np.random.default_rng(1)
        for _ in range(fits):
            each.fit(batch, returns, rng)
    plain_ends = [p.detach() for p in exact.reader.trainable_parameters()]
    ends = [safe_get_full_fp32_param(p) for p in own], plain_ends
    moved, wanted = (torch.cat([(e.float() - b).flatten() for e, b in zip(end, begun, strict=True)]) for end in ends)
    narrow = [p.detach().float() for p in plain.reader.trainable_parameters()]
    stuck = [(p == b).float().mean() for p, b in zip(narrow, begun, strict=True)]
    return {"off": float((moved - wanted).norm() / wanted.norm()), "stuck": float(torch.stack(stuck).mean())}


def own_critic(
    finetune: str, dtype: torch.dtype, rate: float, checkpointing: bool = False
) -> tuple[ActorCritic, Critic, list[State], list[np.ndarray]]:
    """An actor, its critic, this process's episodes as states, and returns to learn."""
    settings = for_two(finetune=finetune, rank=4, critic="own", checkpointing=checkpointing)  # type: ignore[arg-type]
    actor = ActorCritic(tiny_model().to(dtype), settings)
    batch = states(own_part(episodes(7, 0)), every_token=False)
    returns = [np.array([0.0, float(state.tokens.sum() % 3)], np.float32) for state in batch]
    return actor, Critic(actor, width(ROLES), CriticConfig(2, 3, 16, rate, 1e9), seed=0), batch, returns


def changed(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """Biases of the critic that were set in 16 bits before the first step, after it."""
    actor = ActorCritic(tiny_model().to(torch.bfloat16), for_two(finetune, rank=8))  # type: ignore[arg-type]
    traj = own_part(play(actor, 7, np.random.default_rng(0)))
    learner = DeepSpeedLearner(actor, adamw(actor), deepspeed, "bfloat16", 0.5)
    learner.change(lambda: [torch.nn.init.constant_(head.bias, 3.0) for head in actor.heads.values()])  # type: ignore
    improve(learner, traj, replace(CONFIG, mismatch_limit=1.0), np.random.default_rng(1))
    with learner.whole():
        return {name: head.bias.item() for name, head in actor.heads.items()}  # type: ignore[union-attr]


def summed(deepspeed: DeepspeedConfig, finetune: str) -> dict:
    """A gradient whose small parts would be lost in a sum of 16 bits: how far it is from the sum in float32, as a share
    of it, by what the float32 weights move in a plain step of rate 1."""
    from deepspeed.utils import safe_get_full_fp32_param  # pyright: ignore[reportMissingImports]

    actor = ActorCritic(tiny_model().to(torch.bfloat16), for_two(finetune, rank=8)).to(torch.bfloat16)  # type: ignore
    rows = [row for row in play(actor, world(), np.random.default_rng(0)).rows() if row.trainable][: world()]
    shares = [1.0] + [1 / 300] * 60
    exact = [torch.zeros(p.shape) for p in actor.trainable_parameters()]
    for part in rows:
        actor.zero_grad(set_to_none=True)
        (direct := actor.score([part])).logp.sum().add(direct.values.sum()).backward()
        for p, total in zip(actor.trainable_parameters(), exact, strict=True):
            total += 0 if p.grad is None else sum(shares) * p.grad
    actor.zero_grad(set_to_none=True)
    learner = DeepSpeedLearner(actor, torch.optim.SGD(actor.trainable_parameters(), lr=1.0), deepspeed, "bfloat16", 1e9)
    before = [torch.clone(safe_get_full_fp32_param(p)) for p in actor.trainable_parameters()]  # type: ignore
    own = rows[rank() :: world()]
    for i, share_of in enumerate(shares):
        for k, row in enumerate(own):
            found = score(learner, [row])
            last = i == len(shares) - 1 and k == len(own) - 1
            learner.backward(share_of * (found.logp.sum() + found.values.sum()), last)
    learner.step()
    moved = [b - safe_get_full_fp32_param(p) for p, b in zip(actor.trainable_parameters(), before, strict=True)]
    off, size = (
        torch.cat([x.flatten() for x in parts]).norm()
        for parts in ([m - e for m, e in zip(moved, exact, strict=True)], exact)
    )
    return {"off": float(off / size)}


def fill(actor, weights) -> None:
    actor.load_trainable_state(weights)


def make_learner(actor, deepspeed: DeepspeedConfig) -> Learner:
    optimizer = adamw(actor)
    if deepspeed.stage is None:
        return PlainLearner(actor, optimizer, 0.5)
    return DeepSpeedLearner(actor, optimizer, deepspeed, "float32", 0.5)


class Damped(torch.optim.AdamW):
    """AdamW whose eps is far above rounding: where a gradient is nothing else, its sign decides nothing."""

    def __init__(self, params: Any, **settings: Any) -> None:
        super().__init__(params, **(settings | {"eps": 1e-4}))


def adamw(actor) -> torch.optim.Optimizer:
    return Damped(actor.parameter_groups(1e-3, 1e-2), weight_decay=0.0)


def own_part(whole: Trajectories) -> Trajectories:
    mine = set(share(range(len(whole.sample_ids))))
    return select(whole, [row.index for row in whole.rows() if int(whole.segments.episode[2 * row.index]) in mine])


JOBS = {
    "sft": sft, "best": best, "killed": killed, "mappo": mappo, "rft": rft, "changed": changed, "summed": summed,
    "critic": critic, "fine": fine, "dynamic": dynamic, "begun": begun, "gone_on": gone_on,
    "critic_gone_on": critic_gone_on, "masters_begun": masters_begun, "masters_gone_on": masters_gone_on,
    "sft_begun": sft_begun, "sft_gone_on": sft_gone_on, "six": six, "back_begun": back_begun,
    "back_gone_on": back_gone_on, "narrow_begun": narrow_begun, "narrow_gone_on": narrow_gone_on,
    "unwritten": unwritten,
}  # fmt: skip


def main(folder: Path) -> None:
    """Run what the plan in `folder` names, one start after the other; exit where a process fails."""
    plan: dict[str, tuple[int, list[str]]] = json.loads((folder / "plan.json").read_text())
    torch.set_num_threads(1)
    torch.optim.AdamW = Damped  # for SFT, too: transformers' Trainer looks it up when it needs it
    load_libraries()
    for name, (processes, jobs) in plan.items():
        start(processes, folder / f"{name}.json", jobs)


def load_libraries() -> None:
    """Import what jobs import late. The collector leaves it all alone: DeepSpeed and accelerate make it look through
    everything at each start of a training."""
    import trl.models.utils
    import trl.trainer.sft_trainer  # noqa: F401

    if importlib.util.find_spec("deepspeed"):
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        load_deepspeed()
        importlib.import_module("deepspeed.runtime.zero.muon.muon_optimizer")  # every start of ZeRO imports it
    gc.collect()
    gc.freeze()


def start(processes: int, out: Path, jobs: Sequence[str]) -> None:
    """Run jobs in processes that find what torchrun would give them; when one fails, end the others."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    context = get_context("fork")
    started = [
        context.Process(target=run_jobs, args=(number, processes, port, out, jobs)) for number in range(processes)
    ]
    for process in started:
        process.start()
    going = {process.sentinel: process for process in started}
    while going:
        for ended in connection.wait(list(going)):
            process = going.pop(ended)  # type: ignore[call-overload]
            process.join()
            if process.exitcode:
                for other in started:
                    other.kill()
                sys.exit(f"{out.stem}: a process ended with exit code {process.exitcode}")


def run_jobs(number: int, processes: int, port: int, out: Path, jobs: Sequence[str]) -> None:
    """Run the jobs as process `number`; process 0 writes the numbers."""
    os.environ.update(RANK=f"{number}", LOCAL_RANK=f"{number}", GROUP_RANK="0", WORLD_SIZE=f"{processes}",
                      LOCAL_WORLD_SIZE=f"{processes}", MASTER_ADDR="127.0.0.1", MASTER_PORT=f"{port}")  # fmt: skip
    with together(None):
        found = {}
        for job in jobs:
            what, stage, finetune = job.split(":")
            zero: Any = stage if stage == "none" else f"zero{stage}"
            deepspeed = DeepspeedConfig(zero, checkpointing=world() > 1)
            found[job] = JOBS[what](deepspeed, finetune)
        on_main(lambda: out.write_text(json.dumps(found)))


def die() -> None:
    """The second process is killed while the first one waits for it."""
    with together(None):
        if rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        gather(None)


if __name__ == "__main__":
    die() if sys.argv[1] == "die" else main(Path(sys.argv[1]))
