"""Peak memory of one optimisation step: actor, critic and reference on one base, against three models of their own.

Every measurement is a process of its own that imports its libraries, takes the step once with a tiny model (which
imports the rest), builds the models, takes one PPO step (log-probs, reference and values before it, gradients of all
micro-batches, AdamW) and reports its peak above what was there before the models: resident memory on a CPU, what torch
allocated on a GPU. All take the same step from the same weights, on the same rows and micro-batches, with the losses of
trainers/rl/losses.py.

head       ours, value heads on the actor's trunk
own        ours, the critic has a trunk of its own, with LoRA a second adapter on the base, and steps of its own
separate   a policy, a frozen reference and a value model, each with a backbone of its own, trained the same way (LoRA
           or whole). In its favour: backward passes of policy and value model one after the other, not together.

    python -m benchmarks.memory STEP.json OUT.json      one measurement, as the benchmark starts it
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import Qwen2ForCausalLM

from benchmarks import ppo as bench_ppo
from ghar.launch.entry import load
from ghar.trainers.rl import losses
from ghar.trainers.rl.actor_critic import ActorCritic, ActorCriticConfig, Scores
from ghar.trainers.rl.critic import Critic, CriticConfig
from ghar.trainers.rl.fast.last_layer import trunk_of
from ghar.trainers.rl.fast.rows import collate, micro_batches
from ghar.trainers.rl.mappo import update
from ghar.trainers.rl.settings import MappoConfig
from ghar.trainers.rl.state import width
from ghar.trainers.rl.targets import prepare
from ghar.trainers.rl.trajectory import Row, Trajectories

ROOT = Path(__file__).resolve().parents[1]
SIDES = {"lora": ("head", "own", "separate"), "full": ("head", "own", "separate")}
SHAPE = ("model.hidden=512", "model.layers=8", "model.vocab=8192")  # 31 million weights: they matter
KL, CLIP, VALUE_CLIP, VALUE_COEF, LR, MAX_NORM = 0.05, 0.2, 0.2, 0.5, 1e-4, 1.0
RANK, ALPHA, HEADS = 8, 16, 8


@dataclass(frozen=True)
class Step:
    """One measurement: whose models, how they are trained, their shape, and rows of fixed lengths in tokens."""

    side: str
    finetune: str
    hidden: int
    layers: int
    heads: int
    vocab: int
    threads: int
    rows: int = 8
    prompt: int = 128
    reply: int = 64
    together: int = 2  # rows of a micro-batch


def memory(folder: Path, repeats: int, overrides: Sequence[str], timeout: float) -> dict[str, Any]:
    """Medians over `repeats` processes a side and their ratios."""
    config = load([*SHAPE, *overrides])
    model = config.model
    shape = model.hidden or 0, model.layers or 0, HEADS, model.vocab or 0
    result = compare(folder.resolve(), Step("", "", *shape, threads=config.threads or 1), repeats, timeout)
    return result


def compare(folder: Path, step: Step, repeats: int, timeout: float) -> dict[str, Any]:
    """Peaks in MB of every side under LoRA and full fine-tuning, and what ours are as shares of the separate one."""
    result: dict[str, Any] = {"step": asdict(step), "repeats": repeats}
    for finetune, sides in SIDES.items():
        peaks: dict[str, dict[str, Any]] = {}
        for side in sides:
            runs = [_apart(folder, replace(step, side=side, finetune=finetune), timeout) for _ in range(repeats)]
            result["device"] = runs[0]["device"]
            peaks[side] = {"MB": median(run["MB"] for run in runs), "every run": [run["MB"] for run in runs]}
        for side in sides[:-1]:
            peaks[side]["share of separate"] = peaks[side]["MB"] / peaks["separate"]["MB"]
        result[finetune] = peaks
    return result


def _apart(folder: Path, step: Step, timeout: float) -> dict[str, Any]:
    """One measurement in a process of its own."""
    given, out = folder / "memory-step.json", folder / "memory-out.json"
    given.write_text(json.dumps(asdict(step)))
    command = [sys.executable, "-m", "benchmarks.memory", str(given), str(out)]
    print(f"{step.finetune}, {step.side}: {' '.join(command)}", flush=True)
    subprocess.run(command, check=True, timeout=timeout, cwd=ROOT)
    return json.loads(out.read_text())


# ---------------------------------------------------------------- inside a measurement's process


def measure(step: Step) -> dict[str, Any]:
    """MB: the peak above the libraries; device; losses: of the step, before the weights changed."""
    torch.set_num_threads(step.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    take(replace(step, hidden=32, layers=1, heads=2, vocab=64, rows=2), device)  # what is imported when first used
    before = bench_ppo.start_of_memory(device.type)
    step_losses = take(step, device)
    peak = bench_ppo.peak_memory(device.type) - before
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    return {"MB": peak, "device": name, "losses": step_losses}


def take(step: Step, device: torch.device) -> dict[str, float]:
    """Build the models and take the step; its losses."""
    rng = np.random.default_rng(0)
    prompts, replies = (rng.integers(2, step.vocab, (step.rows, length)) for length in (step.prompt, step.reply))
    traj = bench_ppo.one_turn_each(prompts, replies, step.vocab)
    settings = MappoConfig(
        epochs=1, minibatches=1, micro_tokens=step.together * (step.prompt + step.reply), clip=CLIP,
        value_clip=VALUE_CLIP, gamma=1.0, lam=0.95, credit="token", per_agent=False, kl=KL, ratio="behaviour",
        critic_target="returns", value_coef=VALUE_COEF, entropy=0.0, max_grad_norm=MAX_NORM, importance_cap=None,
        mismatch_limit=None, critic="own" if step.side == "own" else "head",
    )  # fmt: skip
    if step.side == "separate":
        return _three_models(step, settings, traj, device)
    how = ActorCriticConfig(step.finetune, RANK, ALPHA, critic=step.side, detach=True, agents=("top",))  # type: ignore[arg-type]
    actor = ActorCritic(_model(step, device), how)
    optimizer = torch.optim.AdamW(actor.parameter_groups(LR, LR), weight_decay=0.0)
    critic = None
    if step.side == "own":
        learns = CriticConfig(1, 1, settings.micro_tokens, LR, MAX_NORM)
        critic = Critic(actor, width(traj.roles), learns, seed=0)
    report = update(actor, optimizer, traj, settings, np.random.default_rng(0), critic=critic)
    return {name: report[name] for name in ("loss/policy", "loss/value", "loss/kl") if name in report}


def _model(step: Step, device: torch.device) -> Any:
    """The same weights at every call."""
    shape = bench_ppo.qwen2(step.hidden, step.layers, step.heads, step.vocab)
    model: Any = Qwen2ForCausalLM(shape)
    return model.to(device).eval()


class Three(nn.Module):
    """Policy, reference and critic as `prepare` asks for them, from three backbones."""

    def __init__(self, step: Step, start: float, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.policy, self.critic = _model(step, device), _model(step, device)
        self.reference = _model(step, device).requires_grad_(False)
        if step.finetune == "lora":
            lora = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
            self.policy, self.critic = get_peft_model(self.policy, lora), get_peft_model(self.critic, lora)
        self.head = nn.Linear(step.hidden, 1, device=device)
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, start)

    def logp(self, model: Any, rows: Sequence[Row]) -> Tensor:
        """Log-probs [N] of the replies' tokens."""
        hidden, target = self._states(model, rows)
        logits = model.get_output_embeddings()(hidden).float()
        return logits.log_softmax(-1).gather(1, target[:, None]).squeeze(1)

    def values(self, rows: Sequence[Row]) -> Tensor:
        """Values [N] of the states before them."""
        return self.head(self._states(self.critic, rows)[0]).squeeze(1)

    def _states(self, model: Any, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        batch = collate(rows, self.device)
        states = trunk_of(model)(input_ids=batch.tokens, use_cache=False).last_hidden_state
        return states[batch.row, batch.position], batch.target

    @torch.no_grad()
    def evaluate(self, rows: Sequence[Row], budget: int) -> Scores:
        """As `ActorCritic.evaluate`; all rows are equally long, so their order stays."""
        logp = self._over(rows, budget, lambda part: self.logp(self.policy, part))
        return Scores(logp, self._over(rows, budget, self.values), torch.zeros_like(logp))

    @torch.no_grad()
    def reference_logp(self, rows: Sequence[Row], budget: int) -> Tensor:
        """As `ActorCritic.reference_logp`."""
        return self._over(rows, budget, lambda part: self.logp(self.reference, part))

    def _over(self, rows: Sequence[Row], budget: int, compute: Any) -> Tensor:
        groups = micro_batches([len(row.tokens) for row in rows], budget)
        return torch.cat([compute([rows[i] for i in group]) for group in groups])


def _three_models(step: Step, settings: MappoConfig, traj: Trajectories, device: torch.device) -> dict[str, float]:
    """The step, plainly; the critic starts at the mean return, as ours does."""
    rows = [row for row in traj.rows() if row.trainable]
    models = Three(step, start=(step.rows // 2) / step.rows, device=device)
    trained = [p for p in models.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, weight_decay=0.0)
    targets, _ = prepare(models, rows, traj, settings)  # type: ignore[arg-type]
    tokens = float(len(targets.values))
    sums: dict[str, float] = {"loss/policy": 0.0, "loss/value": 0.0, "loss/kl": 0.0}
    for group in micro_batches([len(row.tokens) for row in rows], settings.micro_tokens):
        part = targets.take(np.concatenate([np.arange(step.reply) + i * step.reply for i in group]))
        chosen, ones = [rows[i] for i in group], torch.ones_like(part.values)
        assert part.reference is not None
        logp = models.logp(models.policy, chosen)
        policy = losses.policy_loss(logp, part.old, part.advantages, ones, tokens, CLIP)[0]
        kl = losses.reference_kl(logp, part.reference, ones, tokens)
        (policy + KL * kl).backward()
        values = models.values(chosen)
        value = losses.value_loss(values, part.values, part.returns, ones, tokens, VALUE_CLIP) / targets.spread
        (VALUE_COEF * value).backward()
        for name, loss in zip(sums, (policy, value, kl), strict=True):
            sums[name] += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(trained, MAX_NORM)
    optimizer.step()
    return sums


if __name__ == "__main__":
    given, out = map(Path, sys.argv[1:])
    out.write_text(json.dumps(measure(Step(**json.loads(given.read_text())))))
