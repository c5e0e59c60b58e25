"""The optimisation part of a PPO step, ours against TRL 1.12's experimental PPO (the last TRL that has one).

Each side runs in a process of its own on the same randomly initialised model, prompts and replies: trainers/rl/mappo.py
in this environment, TRL in one with trl==1.12 (its python is an argument). Generation is no part: TRL's is replaced by
a function that hands out the given replies. What is timed on both sides is everything after it: old and reference
log-probs, values, advantages, then all epochs over all minibatches with diagnostics and entropy. In TRL's favour: its
reward model costs nothing here. What stays is how it is made: a value model with a backbone of its own, trained whole,
and the language-model head on prompts too.

Memory is the peak of resident memory above what the process needs once its libraries are imported; on a GPU, which
both sides use where torch finds one, the peak of what torch allocated there. Both sides make a step on the smallest
model first, so that what a library imports late counts as imported.

    python benchmarks/ppo.py ours|trl SPEC.json OUT.json      one side alone, as the benchmark starts it
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

LEAST_ID = 8  # ids below are left to padding and the end of text, so that no reply ends early
RANK, ALPHA = 8, 16
SMALLEST = {
    "hidden": 8,
    "layers": 1,
    "heads": 1,
    "vocab": 16,
    "prompts": 4,
    "prompt": 2,
    "reply": 2,
    "repeats": 0,
    "turns": 1,
    "record": 0,
    "wide": None,
    "kv_heads": None,
}
RATIOS = {
    "tokens per second": "times TRL's tokens per second",
    "tokens per processor second": "times TRL's tokens per processor second",
    "MB above imports": "share of TRL's memory",
}
KL, CLIP, VALUE_CLIP, LAM, VALUE_COEF, LR = 0.05, 0.2, 0.2, 0.95, 0.1, 3e-6  # TRL's defaults

MICRO_TOKENS = 16_384  # as trainer.rl.micro_tokens
LONG = {"turns": 8, "record": 2048, "prompt": 2176, "reply": 32, "epochs": 2, "repeats": 2}  # as full prompts are
# two episodes; both sides take about ten minutes of a core together
SMOLLM2 = {
    "hidden": 576,
    "layers": 30,
    "heads": 9,
    "vocab": 49_152,
    "wide": 1536,
    "kv_heads": 3,
    "turns": 8,
    "record": 512,
    "prompt": 640,
    "reply": 32,
    "epochs": 1,
    "repeats": 1,
}
SPECS: dict[str, dict[str, Any]] = {"short": {}, "long": LONG, "smollm2": SMOLLM2}
DEFAULT = ("short", "long")

Clocks = tuple[float, float]  # seconds by the clock, and of all processors


@dataclass(frozen=True)
class Spec:
    """Prompts and replies of fixed lengths in tokens, the model's shape, and how often the step is repeated. turns: so
    many prompts, one after the other, begin with the same `record` tokens. wide: of the feed-forward layers, and
    kv_heads: as `qwen2` takes them."""

    hidden: int
    layers: int
    heads: int
    vocab: int
    finetune: str
    threads: int
    prompts: int = 16
    prompt: int = 128
    reply: int = 64
    epochs: int = 4
    minibatches: int = 2
    repeats: int = 5
    turns: int = 1
    record: int = 0
    wide: int | None = None
    kv_heads: int | None = None
    device: str = "cpu"

    @property
    def tokens(self) -> int:
        """Tokens a step optimises on: every prompt and reply once an epoch."""
        return self.prompts * (self.prompt + self.reply) * self.epochs


def step(
    folder: Path, rounds: int, overrides: Sequence[str], trl: Path | None, timeout: float, names: Sequence[str] = ()
) -> dict[str, Any]:
    """Both sides in turn, `rounds` times (TRL's only where its python is given): on short prompts, and on episodes of
    eight turns over one long record. names: of `SPECS`, those of `DEFAULT` where none is given. BadInput for an
    unknown one."""
    from benchmarks.choice import choose
    from ghar.device import this_device
    from ghar.launch.entry import load
    from ghar.llm.demo_model import HEADS

    config = load(["model.lora_rank=8", *overrides])
    model = config.model
    shape = model.hidden or 0, model.layers or 0, HEADS, model.vocab or 0
    spec = Spec(*shape, finetune=model.finetune, threads=config.threads or 1, device=this_device().kind)
    specs = choose(SPECS, names or DEFAULT)
    return {name: sides(folder, replace(spec, **how), trl, rounds, timeout) for name, how in specs.items()}


def sides(folder: Path, spec: Spec, trl: Path | None, rounds: int, timeout: float) -> dict[str, Any]:
    """Medians over rounds of both sides, and of the ratios round by round: machines change from minute to minute."""
    pythons = {"ours": Path(sys.executable)} | ({} if trl is None else {"trl": trl})
    measurements: dict[str, list[dict[str, Any]]] = {name: [] for name in pythons}
    for number in range(rounds):
        for name in sorted(pythons, reverse=number % 2 == 1):  # who comes first changes
            measurements[name].append(_side(folder, name, pythons[name], spec, timeout))
    result: dict[str, Any] = {"spec": asdict(spec), "rounds": rounds}
    for name, measured in measurements.items():
        numbers = {key: median(one[key] for one in measured) for key in ("seconds", *RATIOS)}
        result[name] = numbers | {"versions": measured[0]["versions"], "every round": measured}
    if trl is None:
        print("TRL's side is left out: give --trl the python of an environment that holds trl==1.12.")
        return result
    for key, title in RATIOS.items():
        ratios = [a[key] / b[key] for a, b in zip(measurements["ours"], measurements["trl"], strict=True)]
        result |= {title: median(ratios), f"{title}, least": min(ratios), f"{title}, most": max(ratios)}
    return result


def _side(folder: Path, name: str, python: Path, spec: Spec, timeout: float) -> dict[str, Any]:
    given, out = folder / f"ppo-{name}-spec.json", folder / f"ppo-{name}.json"
    given.write_text(json.dumps(asdict(spec)))
    command = [str(python), str(Path(__file__).resolve()), name, str(given), str(out)]
    print(" ".join(command), flush=True)
    subprocess.run(command, check=True, timeout=timeout)
    measured = json.loads(out.read_text())
    seconds, processor = zip(*measured["seconds"][1:], strict=True)  # the first step allocates
    return {
        "seconds": median(seconds),
        "tokens per second": spec.tokens / median(seconds),
        "tokens per processor second": spec.tokens / median(processor),
        "MB above imports": measured["MB above imports"],
        "versions": measured["versions"],
        "every step": seconds,
    }


# ---------------------------------------------------------------- inside a side's process


def _work(name: str, spec: Spec) -> dict[str, Any]:
    """Seconds of every step (one more than `repeats`) by the clock and of all processors, and memory."""
    import numpy as np
    import peft
    import torch
    import transformers

    torch.set_num_threads(spec.threads)
    torch.set_flush_denormal(True)
    measure = _ours if name == "ours" else _trl
    run = measure()  # imports what it needs

    def steps(spec: Spec) -> list[Clocks]:
        rng = np.random.default_rng(0)
        prompts = rng.integers(LEAST_ID, spec.vocab, (spec.prompts, spec.prompt))
        prompts[:, : spec.record] = np.repeat(prompts[:: spec.turns, : spec.record], spec.turns, 0)
        replies = rng.integers(LEAST_ID, spec.vocab, (spec.prompts, spec.reply))
        shape = spec.hidden, spec.layers, spec.heads, spec.vocab, spec.wide, spec.kv_heads
        return run(spec, qwen2(*shape), prompts, replies)

    steps(replace(spec, **SMALLEST))
    before = start_of_memory(spec.device)
    seconds = steps(spec)
    return {
        "seconds": seconds,
        "MB above imports": peak_memory(spec.device) - before,
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, peft)},
    }


def clocks() -> Clocks:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter(), time.process_time()


def since(start: Clocks) -> Clocks:
    now = clocks()
    return now[0] - start[0], now[1] - start[1]


def start_of_memory(device: str = "cpu") -> float:
    """Memory of this process on its device in MB, whose peak is counted from here on."""
    import torch

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 1e6
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def peak_memory(device: str) -> float:
    """The peak since `start_of_memory`, in MB."""
    import torch

    return torch.cuda.max_memory_allocated() / 1e6 if device == "cuda" else memory("VmHWM")


def memory(line: str) -> float:
    """A line of this process's status, in MB: VmRSS, or VmHWM for the peak."""
    status = Path("/proc/self/status").read_text()
    return next(int(row.split()[1]) / 1e3 for row in status.splitlines() if row.startswith(line))


def qwen2(
    hidden: int, layers: int, heads: int, vocab: int, wide: int | None = None, kv_heads: int | None = None
) -> Any:
    """A shape of transformers' Qwen2 without dropout; the seed of its weights is set too. wide: of the feed-forward
    layers, 3 * hidden if None; kv_heads: heads of keys and values, as many as `heads` if None."""
    import torch
    from transformers import Qwen2Config

    torch.manual_seed(0)
    return Qwen2Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=wide or 3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads or heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )


def one_turn_each(prompts: Any, replies: Any, vocab: int) -> Any:
    """Trajectories of the given prompts and replies (arrays of ids); every second one is right."""
    import numpy as np

    from ghar.episode import Completion, Episode, Prediction, Turn
    from ghar.rewards.compose import EpisodeReward
    from ghar.trainers.rl.trajectory import build

    level = (-float(np.log(vocab)),) * len(replies[0])
    pairs = zip(prompts.tolist(), replies.tolist(), strict=True)
    completions = [Completion("", tuple(p), tuple(r), level) for p, r in pairs]
    turns = [Turn("top", "predict", 0, 0, done, format_ok=True) for done in completions]
    episodes = [Episode(str(i), 0, Prediction(0), (turn,)) for i, turn in enumerate(turns)]
    rewards = [EpisodeReward({}, float(i % 2), ({"orm": float(i % 2)},), "shared") for i in range(len(turns))]
    return build(episodes, rewards, ("top",), ("predict",))


def trl_settings(epochs: int, minibatches: int, micro_tokens: int) -> Any:
    """Our settings of an update, as TRL's defaults are."""
    from ghar.trainers.rl.settings import MappoConfig

    return MappoConfig(
        epochs=epochs, minibatches=minibatches, micro_tokens=micro_tokens, clip=CLIP, value_clip=VALUE_CLIP, gamma=1.0,
        lam=LAM, credit="token", per_agent=False, kl=KL, ratio="behaviour", critic_target="returns",
        value_coef=VALUE_COEF, entropy=0.0, max_grad_norm=1.0, importance_cap=None, mismatch_limit=None,
    )  # fmt: skip


def _ours() -> Callable[..., list[Clocks]]:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import numpy as np
    import torch
    from transformers import Qwen2ForCausalLM

    from ghar.trainers.rl.actor_critic import ActorCritic, ActorCriticConfig
    from ghar.trainers.rl.mappo import update

    def run(spec: Spec, config: Any, prompts: Any, replies: Any) -> list[Clocks]:
        how = ActorCriticConfig(spec.finetune, RANK, ALPHA, detach=True, agents=("top",))  # type: ignore[arg-type]
        device: Any = spec.device
        actor = ActorCritic(Qwen2ForCausalLM(config).eval().to(device), how)
        micro_tokens = min(MICRO_TOKENS, -(-spec.prompts // spec.minibatches) * (spec.prompt + spec.reply))
        settings = trl_settings(spec.epochs, spec.minibatches, micro_tokens)
        optimizer = torch.optim.AdamW(actor.parameter_groups(LR, LR))
        traj, rng, seconds = one_turn_each(prompts, replies, spec.vocab), np.random.default_rng(0), []
        for _ in range(spec.repeats + 1):
            start = clocks()
            update(actor, optimizer, traj, settings, rng)
            seconds.append(since(start))
        return seconds

    return run


def _trl() -> Callable[..., list[Clocks]]:
    from types import SimpleNamespace

    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import Qwen2ForCausalLM, Qwen2ForSequenceClassification, TrainerCallback
    from trl.experimental.ppo import PPOConfig, PPOTrainer, ppo_trainer  # pyright: ignore[reportMissingImports]

    value_of = ppo_trainer.get_reward

    def run(spec: Spec, config: Any, prompts: Any, replies: Any) -> list[Clocks]:
        seconds: list[Clocks] = []
        reply_ids = torch.as_tensor(replies)
        start = [(0.0, 0.0)]

        def handed_out(model: Any, queries: Any, *_: object) -> tuple[Any, Any]:
            own = reply_ids.to(queries.device)
            whole = torch.cat([queries, own], 1), torch.zeros(*own.shape, spec.vocab, device=own.device)
            start[0] = clocks()
            return whole

        class Clock(TrainerCallback):
            def on_step_end(self, *_: object, **__: object) -> None:
                seconds.append(since(start[0]))

        reward = torch.nn.Identity()

        def get_reward(model: Any, ids: Any, pad: int, context: int) -> Any:
            if model is reward:  # half of the replies are right; no forward pass
                return None, (torch.arange(len(ids), device=ids.device) % 2).float(), None
            return value_of(model, ids, pad, context)

        ppo_trainer.batch_generation, ppo_trainer.get_reward = handed_out, get_reward
        config.num_labels = 1
        trainer = PPOTrainer(
            args=_trl_settings(PPOConfig, spec),
            processing_class=SimpleNamespace(pad_token_id=0, eos_token_id=1),  # type: ignore[arg-type]
            model=Qwen2ForCausalLM(config),
            ref_model=None,
            reward_model=reward,
            train_dataset=Dataset.from_dict({"input_ids": prompts.tolist()}),
            value_model=Qwen2ForSequenceClassification(config),
            data_collator=lambda rows: {"input_ids": torch.tensor([row["input_ids"] for row in rows])},
            callbacks=[Clock()],
            peft_config=LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
            if spec.finetune == "lora"
            else None,
        )
        trainer.train()
        return seconds

    return run


def _trl_settings(config: Any, spec: Spec) -> Any:
    """The same step as ours; minibatches are one forward pass each on both sides."""
    return config(
        output_dir="/tmp/ghar-bench-ppo", use_cpu=spec.device == "cpu", bf16=False, gradient_checkpointing=False,
        report_to="none", save_strategy="no", logging_strategy="no", num_sample_generations=0, disable_tqdm=True,
        seed=0, per_device_train_batch_size=spec.prompts, gradient_accumulation_steps=1,
        local_rollout_forward_batch_size=-(-spec.prompts // spec.minibatches), num_mini_batches=spec.minibatches,
        num_ppo_epochs=spec.epochs, total_episodes=spec.prompts * (spec.repeats + 1), response_length=spec.reply,
        temperature=1.0, kl_coef=KL, cliprange=CLIP, cliprange_value=VALUE_CLIP, vf_coef=VALUE_COEF, lam=LAM,
        learning_rate=LR,
    )  # fmt: skip


if __name__ == "__main__":
    side, given, out = sys.argv[1:]
    sys.path.pop(0)  # launch/, whose files are no modules of a side
    Path(out).write_text(json.dumps(_work(side, Spec(**json.loads(Path(given).read_text())))))
