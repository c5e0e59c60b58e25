"""Supervised warm-up on token ids, with TRL (Algorithm 1's starting policy, GHAR).

The ids an engine will see are the ids trained on: prompts and completions come tokenised and stay so. Only the
completion carries a loss.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ghar.errors import BadInput
from ghar.interrupt import finishing
from ghar.progress import progress
from ghar.trainers.runs.distributed import gather, on_main, rank, world
from ghar.trainers.runs.manifest import fault, seal
from ghar.trainers.sft.arguments import SFTSettings, arguments_of, has_masters
from ghar.trainers.sft.pairs import TokenExample, collate, dataset
from ghar.trainers.sft.zero_checkpoint import any_processes

if TYPE_CHECKING:
    from peft import PeftConfig
    from transformers import (
        PreTrainedModel,
        PreTrainedTokenizerBase,
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )

    from ghar.llm.adapter import Adapter


ORIGIN = "origin.json"  # in each: what the training was of

Log = Callable[[Mapping[str, float], float], None]  # takes a row of SFTResult.curve, and seconds of training until then


@dataclass(frozen=True)
class SFTResult:
    """The trained model (LoRA merged) and its curve: rows with step, loss, accuracy, lr, and with validation pairs
    valid_loss; seconds of training; step: whose weights these are; adapter: with LoRA, what was merged."""

    model: PreTrainedModel
    curve: tuple[dict[str, float], ...]
    seconds: float
    step: int
    adapter: Adapter | None = None


def run_sft(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[TokenExample],
    cfg: SFTSettings,
    keep: Path | None = None,
    valid: Sequence[TokenExample] = (),
    log: Log = lambda row, seconds: None,
    title: str = "SFT",
) -> SFTResult:
    """Train `model` on the completions of `pairs` and return it in eval mode.

    Pairs are drawn in a shuffled order that depends on the seed alone, epoch after epoch, for `cfg.steps` steps. Under
    torchrun every process calls it with the same arguments, and they share each step's pairs.
    keep: a folder for checkpoints; a killed training goes on from the newest one there, to the same result. The caller
    removes it once the model is safe. Without it no file is left behind.
    valid: pairs whose loss is computed every `cfg.log_every` steps and at the end; of those weights the ones with the
    lowest are returned.
    log: told each row of the curve as soon as it is known; a training that goes on tells those before it again.
    title: what the progress is shown under.
    BadInput when there is no pair, a completion is empty, a pair is longer than max_length, or `keep` is of another
    training.
    """
    import torch
    from transformers import PrinterCallback

    from ghar.trainers.rl.fast.gated import keep_less
    from ghar.trainers.rl.fast.lora import fuse
    from ghar.trainers.sft.packing import can_share, groups_of
    from ghar.trainers.sft.trainer import CompletionTrainer

    for some in (pairs, valid) if valid else (pairs,):  # weights are no business of the validation loss
        _check(some, cfg)
    lengths = [len(p.prompt_ids) + len(p.completion_ids) for p in pairs]
    groups = groups_of(pairs, cfg.batch_size) if cfg.grouped and can_share(model) else ()
    origin = "" if keep is None else _origin(pairs, valid, cfg)
    start_from = None if keep is None else on_main(lambda: _newest(keep, origin))
    if has_masters(cfg):
        model.float()  # steps would be rounded away in 8 bits of precision; passes run in bfloat16 all the same
    with _folder(keep) as folder, _quiet(), torch.random.fork_rng(), progress(cfg.steps, title, "steps") as advance:
        trainer: Any = CompletionTrainer(
            model=model,
            args=arguments_of(cfg, folder, model.device.type == "cpu", keep is not None, bool(valid)),
            data_collator=partial(collate, pad_id=cast(int, tokenizer.pad_token_id)),
            train_dataset=dataset(pairs).select(draw_order(lengths, cfg, groups)),
            eval_dataset=dataset(valid) if valid else None,
            processing_class=tokenizer,
            peft_config=_lora(cfg),
            callbacks=[_callback(advance, origin, keep is not None, stopping := StopRequest(), log)],
        )
        fuse(trainer.model)
        keep_less(trainer.model, not cfg.deepspeed.checkpointing)
        trainer.remove_callback(PrinterCallback)
        start = time.monotonic()
        with nullcontext() if keep is None else finishing("what leads to the next checkpoint") as asked:
            stopping.asked = asked
            with any_processes():
                trainer.train(resume_from_checkpoint=start_from)
        if stopping.stopped or (stopping.asked is not None and any(gather(stopping.asked()))):
            raise KeyboardInterrupt
        seconds = time.monotonic() - start
        gather(None)  # every process has the best weights before the folder goes
    step = (trainer.state.best_global_step if valid else None) or cfg.steps
    trained, adapter = _handed_back(trainer, cfg)
    return SFTResult(trained, _curve(trainer.state.log_history), seconds, step, adapter)


def _handed_back(trainer: Any, cfg: SFTSettings) -> tuple[PreTrainedModel, Adapter | None]:
    """The trained model as `run_sft` was given it, LoRA merged, and with LoRA the adapter."""
    from ghar.llm.adapter import merge_and_unload, take_adapter

    trained: Any = trainer.model if cfg.deepspeed.stage is None else _released(trainer, cfg)
    adapter = take_adapter(trained) if cfg.finetune == "lora" else None
    if adapter is not None:
        trained = merge_and_unload(trained)
    trained.__dict__.pop("forward", None)  # TRL gave the model a forward of its own
    trained.zero_grad(set_to_none=True)
    if has_masters(cfg):
        trained.bfloat16()
    return trained.requires_grad_(True).eval(), adapter


@contextmanager
def _folder(keep: Path | None) -> Iterator[str]:
    """Where checkpoints go: `keep`, else a folder of all processes that the first one removes."""
    if keep is not None:
        yield str(keep)
        return
    scratch = on_main(mkdtemp)
    try:
        yield scratch
    finally:
        if rank() == 0:
            shutil.rmtree(scratch, ignore_errors=True)


def draw_order(lengths: Sequence[int], cfg: SFTSettings, groups: Sequence[Sequence[int]] = ()) -> np.ndarray:
    """Indices of the pairs in the order they are trained on, [steps * batch_size].

    Epoch after epoch is shuffled; inside one optimiser step pairs are sorted by length, so that its micro-batches
    pad little. The step's gradient does not change by that, only its cost. groups: pairs that stay together, so that
    one pass reads what they share; () for none.
    """
    rng = np.random.default_rng(cfg.seed)
    total = cfg.steps * cfg.batch_size
    epochs = -(-total // len(lengths))
    groups = groups or [[i] for i in range(len(lengths))]
    drawn = (groups[i] for _ in range(epochs) for i in rng.permutation(len(groups)))
    order = np.array([i for group in drawn for i in group])[:total]
    steps = order.reshape(cfg.steps, cfg.batch_size)
    by_length = np.argsort(np.asarray(lengths)[steps], axis=1, kind="stable")
    return np.take_along_axis(steps, by_length, axis=1).reshape(-1)


@dataclass
class StopRequest:
    """asked: whether this process was asked to stop, None where nothing is kept; stopped: whether it has."""

    asked: Callable[[], bool] | None = None
    stopped: bool = False


def _callback(
    advance: Callable[..., None], origin: str, kept: bool, stopping: StopRequest, log: Log
) -> TrainerCallback:
    from transformers import TrainerCallback

    logged_rows = 0  # rows of the curve

    def tell(state: TrainerState) -> None:
        nonlocal logged_rows
        rows = _curve(state.log_history)[logged_rows:]
        logged_rows += len(rows)
        seconds = {line["step"]: line["seconds"] for line in reversed(state.log_history) if "seconds" in line}
        for row in rows:
            log(row, seconds.get(row["step"], math.nan))

    class Callback(TrainerCallback):
        def on_step_begin(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
            if len(state.log_history) > logged_rows:  # a point's loss and its validation loss are two lines
                tell(state)

        def on_train_end(self, args: object, state: TrainerState, control: object, **kwargs: object) -> None:
            tell(state)

        def on_train_begin(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
        ) -> None:
            advance(state.global_step)

        def on_step_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
        ) -> None:
            advance()
            if state.global_step == args.max_steps:  # the last, perhaps shorter, stretch of the curve
                control.should_log = True
                if args.load_best_model_at_end:
                    control.should_evaluate = control.should_save = True
            # where a point of the loss curve ends, as for every checkpoint: the rest goes on to the same numbers
            elif kept and stopping.asked is not None and state.global_step % args.logging_steps == 0:
                if any(gather(stopping.asked())):
                    stopping.stopped = control.should_save = control.should_training_stop = True

        def on_save(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
        ) -> None:
            folder = Path(cast(str, args.output_dir)) / f"checkpoint-{state.global_step}"
            gather(None)  # every process writes its part before the whole is sealed
            if rank() == 0:
                (folder / ORIGIN).write_text(origin)
                seal(folder)

    return Callback()


def _origin(pairs: Sequence[TokenExample], valid: Sequence[TokenExample], cfg: SFTSettings) -> str:
    """What a training is, as JSON: its data, its settings but for those that change memory only, its processes."""
    digest = hashlib.sha256(np.int64(len(pairs)).tobytes())
    for pair in (*pairs, *valid):
        for ids in (pair.prompt_ids, pair.completion_ids):
            digest.update(np.array([len(ids), *ids], np.int64).tobytes())
        digest.update(np.float64(-1 if pair.weight is None else pair.weight).tobytes())
    settings = asdict(replace(cfg, micro_batch=0, deepspeed=replace(cfg.deepspeed, checkpointing=False)))
    return json.dumps({"data": digest.hexdigest(), "settings": settings, "processes": world()})


def _newest(keep: Path, origin: str) -> str | None:
    """The newest whole checkpoint in `keep`, None when there is none. Partial or damaged ones are named and removed."""
    for folder in sorted(keep.glob("checkpoint-*"), key=lambda path: -int(path.name.removeprefix("checkpoint-"))):
        damage = fault(folder)
        if damage is not None:
            print(f"{damage}: going back to what was saved before it.")
            shutil.rmtree(folder)
            continue
        if (saved := (folder / ORIGIN).read_text()) != origin:
            _compare(folder, json.loads(saved), json.loads(origin))
        print(f"Resuming SFT after step {folder.name.removeprefix('checkpoint-')}.")
        return str(folder)
    return None


def _compare(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """BadInput for a checkpoint of another training."""
    before = old.pop("processes")
    del new["processes"]
    if names := ", ".join(name for name in new if old[name] != new[name]):
        raise BadInput(f"{folder} is of another training ({names} differ): restore them or use resume=never.")
    print(f"{folder.name} was written by {before} processes: numbers differ by rounding.")


def _check(pairs: Sequence[TokenExample], cfg: SFTSettings) -> None:
    if not pairs:
        raise BadInput("SFT has no pair to train on; collect warm-up episodes first")
    if len({pair.weight is None for pair in pairs}) > 1:
        raise BadInput("some SFT pairs have a weight and others none; give one to all or to none")
    for i, pair in enumerate(pairs):
        if not len(pair.prompt_ids) or not len(pair.completion_ids):
            raise BadInput(f"SFT pair {i} has an empty prompt or completion; leave such replies out")
        length = len(pair.prompt_ids) + len(pair.completion_ids)
        if length > cfg.max_length:
            raise BadInput(
                f"SFT pair {i} is {length} tokens long, more than model.max_length={cfg.max_length}: raise that, or "
                "lower env.history_tokens."
            )


def _released(trainer: Any, cfg: SFTSettings) -> PreTrainedModel:
    """The trained model outside DeepSpeed: a new one with the weights of all processes, so that nothing of ZeRO's
    partitions and hooks stays behind; on the CPU until somebody moves it."""
    import deepspeed  # pyright: ignore[reportMissingImports]
    import torch
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    weights = {}
    for name, parameter in trainer.model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], enabled=cfg.deepspeed.stage == 3):
            weights[name] = parameter.detach().cpu().clone()
    trainer.model_wrapped.destroy()
    unset_hf_deepspeed_config()  # else transformers would go on building partitioned models
    model: Any = AutoModelForCausalLM.from_config(trainer.model.config, dtype=getattr(torch, cfg.dtype))
    if cfg.finetune == "lora":
        model = get_peft_model(model, cast("PeftConfig", _lora(cfg)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    return model


def _lora(cfg: SFTSettings) -> PeftConfig | None:
    if cfg.finetune == "full":
        return None
    from peft import LoraConfig

    return LoraConfig(r=cfg.rank, lora_alpha=cfg.alpha, target_modules="all-linear", task_type="CAUSAL_LM")


def _curve(history: Sequence[dict[str, Any]]) -> tuple[dict[str, float], ...]:
    valid = {line["step"]: {"valid_loss": float(line["eval_loss"])} for line in history if "eval_loss" in line}
    return tuple(
        {
            "step": float(line["step"]),
            "loss": float(line["loss"]),
            "accuracy": float(line["accuracy"]),
            "lr": float(line["learning_rate"]),
            **valid.get(line["step"], {}),
        }
        for line in history
        if "loss" in line
    )


def metrics_row(phase: str, row: Mapping[str, float], seconds: float) -> dict[str, Any]:
    """A row of the curve as metrics.jsonl has it. seconds: of training until then."""
    loss = {"eval/loss": row["valid_loss"]} if "valid_loss" in row else {}
    step = {"phase": phase, "step": int(row["step"])}
    clock = {"time/trained": seconds}
    return {**step, "train/loss": row["loss"], "train/accuracy": row["accuracy"], **loss, **clock}


def best_step(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The step of SFT with the lowest validation loss, as "step", and the "seconds" of training until then, from rows
    of metrics.jsonl; None without validation losses, and for a run from before seconds were kept."""
    validated = [row for row in rows if row["phase"] == "sft" and row.get("eval/loss") is not None]
    if not validated:
        return None
    best = min(validated, key=lambda row: (row["eval/loss"], row["step"]))
    seconds = best.get("time/trained")
    return None if seconds is None else {"step": best["step"], "seconds": seconds}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the trainer's own log lines and bars off the screen: our progress bar and the curve say the same."""
    from transformers.utils import logging as bars

    bars.disable_progress_bar()  # one for every checkpoint written
    names = ("transformers", "trl", "accelerate")
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
