"""Checkpoints: whole or not at all, verified on reading, never loaded into another model.

<run>/checkpoints/
    step-N/  weights.safetensors   trainable weights: with LoRA the adapter and the value heads alone
             optimizer.pt          optimiser state of process 0, or of all where they have the same
             optimizer-R.pt        where ZeRO shares it out, the part of process R, written by itself; another number
                                   of processes copies its own parts together from all of them (`parts_of`)
             random.pt             states of the random generators
             state.json            step, score, number of processes, and whatever the training loop counts
             model.json            identity of the model the weights belong to, with the sum of the weights in sft/,
                                   the base of every adapter, which is stored once; where that lies may change
             provenance.json       whose patients the weights have learned from
             manifest.json         sha256 of the files above
    latest, best                   one line each: the name of a step folder, for people to read

Which step is the best is decided by the scores in the run's ledger (ghar.ledger) alone, which no damage changes unseen.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ghar import ledger
from ghar.disk import explain_disk_error
from ghar.errors import BadInput
from ghar.provenance import learned_from_credentialed, write_mark
from ghar.trainers.runs.distributed import gather, on_main, rank
from ghar.trainers.runs.manifest import MANIFEST, fault, go_on, sync, write_sums, written_sum

CHECKPOINTS = "checkpoints"  # in a run folder
SFT_SUM = "sft"  # in model.json: the sum of the weights that a step's adapter belongs on
FILES = ("weights.safetensors", "optimizer.pt", "random.pt", "state.json", "model.json", "provenance.json")


@dataclass(frozen=True)
class Checkpoint:
    """What was saved: state, the loop's own JSON; optimizer, its states, "own" that of this process (in others than
    process 0 nothing else, and not even that where process 0 has the same); random, generator states by name. What
    `ghar.trainers.runs.checkpoint_writer` writes while training goes on shares no memory with it.

    score: of the weights, higher is better; None where they were not evaluated. processes: that the run trained in.
    credentialed: whether the weights have learned from credentialed patients; weights without a mark have.
    """

    weights: dict[str, Tensor]
    optimizer: dict[str, Any]
    random: dict[str, Any]
    state: dict[str, Any]
    step: int
    score: float | None = None
    processes: int = 1
    credentialed: bool = True


@dataclass(frozen=True)
class KeepPolicy:
    """How many step folders stay: the `last` newest and the `best` with the highest scores (`ghar.config.Config`)."""

    last: int
    best: int


def identity(model: Any, tokenizer: Any, base: str, trained: Mapping[str, Any], sft: str) -> dict[str, str]:
    """What must be equal for weights to fit: architecture and tokenizer (hashed), base model, how it is trained, and
    the weights after the warm-up that adapters belong on.

    model: a transformers model; trained: settings that shape the trainable weights (finetune, rank, critic, ...);
    sft: `manifest.weights_sum` of the warmed-up policy.
    """
    # Where it was loaded from and by which version does not change what the weights mean.
    config = {k: v for k, v in model.config.to_dict().items() if not k.startswith("_") and k != "transformers_version"}
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return {
        "architecture": _digest(json.dumps(config, sort_keys=True, default=str).encode()),
        "tokenizer": _digest(json.dumps(vocabulary).encode()),
        "base": base,
        "trained": json.dumps(dict(trained), sort_keys=True),
        SFT_SUM: sft,
    }


def random_state(**generators: np.random.Generator) -> dict[str, Any]:
    """States of torch's global generators and of the named numpy generators."""
    state: dict[str, Any] = {name: generator.bit_generator.state for name, generator in generators.items()}
    state["torch"] = torch.get_rng_state()
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_random(state: Mapping[str, Any], **generators: np.random.Generator) -> None:
    """Undo `random_state` in place."""
    for name, generator in generators.items():
        generator.bit_generator.state = state[name]
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])  # it may see fewer GPUs than it did


def save(folder: Path, checkpoint: Checkpoint, model: Mapping[str, str], keep: KeepPolicy) -> Path:
    """Write `folder`/step-N, point `latest` (and `best`) to the right steps and remove all but those to keep.

    A kill at any moment leaves the former `latest` whole; an error (a full disk) also leaves no partial folder.
    Every process calls it: each writes its own part, process 0 the rest. model: from `identity`. Returns the step's
    folder. BadInput where processes do not see the same folder. `ghar.trainers.runs.checkpoint_writer` does the same
    beside the training.
    """
    scratch = make_scratch(folder, checkpoint.step)
    part = write(scratch, checkpoint, model, rank())
    return publish(folder, checkpoint.step, checkpoint.score, part, keep)


@dataclass(frozen=True)
class WrittenPart:
    """What a process has written of a checkpoint: sha256 of its files, by name, and the error that ended it."""

    sums: dict[str, str]
    error: Exception | None = None


def make_scratch(folder: Path, step: int) -> Path:
    """Make the empty folder that a step is written into. Every process calls it."""
    scratch = folder / f".step-{step}.partial"

    def make() -> None:
        _discard(folder, step)
        scratch.mkdir(parents=True)

    on_main(make)
    return scratch


def write(
    scratch: Path, checkpoint: Checkpoint, model: Mapping[str, str], process: int, check: Callable[[], None] = go_on
) -> WrittenPart:
    """Write the files of `process`, this one, into `scratch`; they are on disk when this returns. Asks no other
    process. check: asked before every piece that is written or read; where it raises, the writing is given up."""
    try:
        if process == 0:
            files = _write_files(scratch, checkpoint, model, check)
        else:
            files = _write_part(scratch, checkpoint, process, check)
        return WrittenPart({file.name: written_sum(file, check) for file in files})
    except Exception as error:
        return WrittenPart({}, error)


def publish(folder: Path, step: int, score: float | None, part: WrittenPart, keep: KeepPolicy) -> Path:
    """Give a step its name, once all processes have written their part, and remove what need not stay.

    Every process calls it. The error of a part is raised in all: its own where it happened, else BadInput.
    """
    parts = gather((part.sums, None if part.error is None else sentence(part.error)))
    errors = [(process, error) for process, (_, error) in enumerate(parts) if error is not None]
    try:
        if part.error is not None:
            raise part.error
        for process, error in errors:
            raise BadInput(f"Process {process} could not write the checkpoint of update {step}: {error}")
        on_main(lambda: _publish(folder, step, score, {k: v for sums, _ in parts for k, v in sums.items()}, keep))
    except Exception:
        _discard(folder, step)
        raise
    return folder / f"step-{step}"


def mark_written(folder: Path, step: int, process: int, sums: Mapping[str, str]) -> None:
    """Note that `process` has written its part of a step, for `adopt`. A step without such notes is no worse."""
    with suppress(OSError):  # a full disk; a machine that does not see the folder
        (folder / f".step-{step}.written-{process}").write_text(json.dumps(dict(sums)))


def adopt(folder: Path) -> None:
    """Publish the step that all processes had written when the run ended before they could, and remove other halves.

    For a process that has the folder to itself. `newest` points `latest` to it and removes what need not stay.
    """
    for scratch in folder.glob(".step-[0-9]*.partial"):
        step = int(scratch.name.removeprefix(".step-").removesuffix(".partial"))
        entry = _unpublished(folder, scratch, step)
        if entry is not None:
            print(f"The checkpoint of update {step} was whole when the run ended: it counts.")
            sums, score = entry
            _name(folder, step, score, sums)
        _discard(folder, step)
    for half in (*folder.glob(".*.partial"), *folder.glob(".step-*.written-*")):
        shutil.rmtree(half) if half.is_dir() else half.unlink()


def _unpublished(folder: Path, scratch: Path, step: int) -> tuple[dict[str, str], float | None] | None:
    """The sums of all files that the processes noted of a step, where they are there, and its score; else None."""
    sums: dict[str, str] = {}
    try:
        state = json.loads((scratch / "state.json").read_text())
        for process in range(state["processes"]):
            sums |= json.loads((folder / f".step-{step}.written-{process}").read_text())
        whole = bool(sums) and all(written_sum(scratch / name) == digest for name, digest in sums.items())
    except (OSError, ValueError, KeyError):  # a process had not ended its part, or an earlier version wrote it
        return None
    return (sums, state["score"]) if whole else None


def _discard(folder: Path, step: int) -> None:
    """Remove what is left of a step that was written and has no name."""
    shutil.rmtree(folder / f".step-{step}.partial", ignore_errors=True)
    for mark in folder.glob(f".step-{step}.written-*"):
        mark.unlink(missing_ok=True)


def sentence(error: Exception) -> str:
    """What is said of an error of a write: never nothing."""
    return str(error) if isinstance(error, BadInput) else explain_disk_error(error) or repr(error)


def _publish(folder: Path, step: int, score: float | None, sums: Mapping[str, str], keep: KeepPolicy) -> None:
    _name(folder, step, score, sums)
    _discard(folder, step)
    _settle(folder, _steps(folder), keep)


def _name(folder: Path, step: int, score: float | None, sums: Mapping[str, str]) -> None:
    """Give a step its manifest, its line of the ledger, and its name."""
    scratch, final = folder / f".step-{step}.partial", folder / f"step-{step}"
    write_sums(scratch, sums)
    _tell(folder, *_unknown(folder), _line(scratch, step, score))
    if final.exists():  # the same step again: `_steps` takes the former folder back should we die between the renames
        former = _former(final)
        shutil.rmtree(former, ignore_errors=True)
        os.rename(final, former)
    os.rename(scratch, final)
    sync(folder)


def _part(step: Path, process: int) -> Path:
    return step / f"optimizer-{process}.pt"


def _write_part(scratch: Path, checkpoint: Checkpoint, process: int, check: Callable[[], None]) -> list[Path]:
    """Write what process 0 does not have. BadInput where this process does not see the folder."""
    if not checkpoint.optimizer:
        return []
    if not scratch.is_dir():
        raise BadInput(f"{scratch.parent} is not the same folder on all machines: set run_dir to one that they share.")
    own = _part(scratch, process)
    _save(checkpoint.optimizer, own, check)
    return [own]


def _write_files(
    scratch: Path, checkpoint: Checkpoint, model: Mapping[str, str], check: Callable[[], None]
) -> list[Path]:
    from safetensors.torch import save_file

    # safetensors refuses tensors with gaps
    weights = {name: value.detach().cpu().contiguous() for name, value in checkpoint.weights.items()}
    save_file(weights, scratch / "weights.safetensors")
    _save(checkpoint.optimizer, scratch / "optimizer.pt", check)
    _save(checkpoint.random, scratch / "random.pt", check)
    own = {"step": checkpoint.step, "score": checkpoint.score, "processes": checkpoint.processes}
    (scratch / "state.json").write_text(json.dumps({**own, **checkpoint.state}, indent=1) + "\n")
    write_mark(scratch, checkpoint.credentialed)
    (scratch / "model.json").write_text(json.dumps(dict(model), indent=1) + "\n")
    return [scratch / name for name in FILES]


class _CheckedFile:
    """A file that asks `check` before every write."""

    def __init__(self, file: IO[bytes], check: Callable[[], None]) -> None:
        self.file, self.check = file, check

    def write(self, data: bytes | memoryview) -> int:
        self.check()
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()


def _save(value: object, path: Path, check: Callable[[], None]) -> None:
    with path.open("wb") as file:  # given a path, torch.save hides why a write failed
        torch.save(value, _CheckedFile(file, check))  # pyright: ignore[reportArgumentType]


def find(folder: Path, which: str = "latest") -> Path | None:
    """The "latest" step folder, or the "best" by the scores in the run's ledger; None when nothing was saved.

    BadInput when that folder is gone.
    """
    steps = _steps(folder)
    if which == "latest":
        pointer = folder / which
        if not steps and pointer.is_file():
            raise BadInput(
                f"{pointer} names {pointer.read_text(errors='replace').strip()}, which does not exist; restore it or "
                f"delete {pointer} to start over"
            )
        return steps[-1] if steps else None
    scores = _scores(folder)
    best = _ranked(scores)[:1]
    if best and _step(folder, best[0]) not in steps:
        raise BadInput(
            f"{_step(folder, best[0])}, the best by {ledger.LEDGER}, does not exist; restore it, or name another one "
            "as eval.checkpoint"
        )
    return _step(folder, best[0]) if best else None


def newest(folder: Path, model: Mapping[str, str], keep: KeepPolicy) -> Checkpoint | None:
    """The newest undamaged checkpoint, to go on from; None when nothing was saved.

    Newer ones, whose damage is named on the screen, are removed: they are about to be written again. BadInput when
    all are damaged, or when they are of another model.
    """
    steps = _steps(folder)
    for step in reversed(steps):
        damage = fault(step)
        if damage is not None:
            print(f"{damage}: going back to the checkpoint before it.")
            continue
        checkpoint = _read(step, model)
        left = steps[: steps.index(step) + 1]
        rows = [row for row in _read_ledger(folder) if row["what"] == "step"]
        gone = sorted({row["step"] for row in rows if row["step"] > _number(step)})
        if gone:
            _tell(folder, {"what": "dropped", "steps": gone})
        _settle(folder, left, keep)
        return checkpoint
    if steps:
        raise BadInput(f"every checkpoint in {folder} is damaged: start with resume=never to train anew")
    return None


def load(step: Path, model: Mapping[str, str]) -> Checkpoint:
    """Read a step folder after checking every file's hash and that it belongs to `model` (from `identity`).

    BadInput naming the damaged or missing file, or what differs between the two models.
    """
    damage = fault(step)
    if damage is not None:
        raise BadInput(f"{damage}; take another checkpoint or delete this one")
    return _read(step, model)


def agents_of(step: Path) -> tuple[str, ...]:
    """The agents that a step folder's weights have value heads for."""
    return tuple(trained_of(step)["agents"].split(","))


def trained_of(step: Path) -> dict[str, str]:
    """How a step folder's weights were trained: `trained` of `identity`."""
    return json.loads(json.loads((step / "model.json").read_text())["trained"])


def state_of(step: Path) -> dict[str, Any]:
    """What the training loop counted up to a step folder. BadInput for a damaged one."""
    damage = fault(step)
    if damage is not None:
        raise BadInput(f"{damage}; take another checkpoint or delete this one")
    return json.loads((step / "state.json").read_text())


def _read(step: Path, model: Mapping[str, str]) -> Checkpoint:
    """`load` of a step folder whose files are known to be whole."""
    from safetensors.torch import load_file

    _compare(step, model)
    state = json.loads((step / "state.json").read_text())
    optimizer = torch.load(step / "optimizer.pt", map_location="cpu", weights_only=True)
    if _part(step, rank()).is_file():
        optimizer |= torch.load(_part(step, rank()), map_location="cpu", weights_only=True)
    return Checkpoint(
        weights=load_file(step / "weights.safetensors"),
        optimizer=optimizer,
        random=torch.load(step / "random.pt", map_location="cpu", weights_only=True),
        step=state.pop("step"),
        score=state.pop("score", None),
        processes=state.pop("processes", 1),
        credentialed=learned_from_credentialed(step),
        state=state,
    )


def parts_of(folder: Path, checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """The optimiser states that all processes saved in a checkpoint of `folder`; [] where they were as many as now.

    They stay on disk until they are read, and process 0's are alone where it has all. BadInput where one is missing.
    """
    if checkpoint.processes == processes():
        return []
    step = _step(folder, checkpoint.step)
    others = [_part(step, number) for number in range(1, checkpoint.processes)]
    missing = [file for file in others if not file.is_file()]
    if missing and len(missing) < len(others):
        raise BadInput(f"{missing[0]} is missing, a part of the optimiser's state: restore it, or delete {step}.")
    files = [step / "optimizer.pt", *(() if missing else others)]
    return [torch.load(file, map_location="cpu", weights_only=True, mmap=True) for file in files]


def processes() -> int:
    """Processes this run trains in."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _compare(step: Path, model: Mapping[str, str]) -> None:
    saved = json.loads((step / "model.json").read_text())
    # Where the base lies says nothing beside the sum of what was made of it, which steps of earlier versions have not.
    free = {"base"} if SFT_SUM in saved else {SFT_SUM}
    for key in sorted({*saved, *model} - free):
        if saved.get(key) != model.get(key):
            raise BadInput(
                f"{step} is of another model: its {key} is {saved.get(key)}, this run's is {model.get(key)}; "
                "use the configuration it was trained with or another run folder"
            )


def _settle(folder: Path, steps: Sequence[Path], keep: KeepPolicy) -> None:
    """Point `latest` to the last of `steps` and `best` to the one with the highest score; remove what need not stay."""
    scores, there = _scores(folder), {_number(step) for step in steps}
    ranked = [_step(folder, number) for number in _ranked(scores) if number in there]
    for name, targets in (("latest", steps[-1:]), ("best", ranked[:1])):
        for target in targets:
            _point(folder, name, target.name)
    unknown = {step for step in steps if _number(step) not in scores}  # damaged: it may be the best
    kept = {*steps[-keep.last :], *ranked[: keep.best], *unknown}
    for path in folder.iterdir():
        if path.is_dir() and path not in kept and path.name.lstrip(".").startswith("step-"):
            shutil.rmtree(path)


def _point(folder: Path, name: str, target: str) -> None:
    scratch = folder / f".{name}.partial"
    scratch.write_text(target + "\n")
    sync(scratch)
    os.replace(scratch, folder / name)
    sync(folder)


def _steps(folder: Path) -> list[Path]:
    """Step folders, oldest first. One that a kill left renamed takes its name back."""
    for former in folder.glob(".step-*.old"):
        step = folder / former.name.removeprefix(".").removesuffix(".old")
        if not step.exists():
            os.rename(former, step)
    return sorted((path for path in folder.glob("step-*") if path.is_dir()), key=_number)


def step_number(step: Path) -> int | None:
    """The update that a folder step-N, or a link to one, was saved after; None for a folder of another name."""
    number = step.resolve().name.removeprefix("step-")
    return int(number) if number.isdigit() else None


def _number(step: Path) -> int:
    return int(step.name.removeprefix("step-"))


def _ranked(scores: Mapping[int, float | None]) -> list[int]:
    """Steps that have a score, best first; of equals the earlier one."""
    pairs = [(-score, number) for number, score in scores.items() if score is not None and math.isfinite(score)]
    return [number for _, number in sorted(pairs)]


def _scores(folder: Path) -> dict[int, float | None]:
    """Step -> score, as the run's ledger tells; None where it has none. Steps of an earlier version, which stand in no
    ledger, are asked themselves where their manifest finds them whole."""
    scores: dict[int, float | None] = {}
    rows = _read_ledger(folder)
    for row in (*rows, *_unknown(folder)):
        if row["what"] == "step":
            scores[row["step"]] = row["score"]
        elif row["what"] == "dropped":
            scores = {step: score for step, score in scores.items() if step not in row["steps"]}
    last = rows[-1] if rows else {}
    if last.get("what") == "step" and not _step(folder, last["step"]).is_dir():  # killed before it was published
        scores.pop(last["step"], None)
    return scores


def _unknown(folder: Path) -> list[ledger.Row]:
    """Lines for whole steps that the run's ledger does not have."""
    ledger_steps = {row["step"] for row in _read_ledger(folder) if row["what"] == "step"}
    lines = []
    for step in (step for step in _steps(folder) if _number(step) not in ledger_steps):
        if damage := fault(step):
            print(f"{damage}: its score is not known.")
            continue
        lines.append(_line(step, _number(step), json.loads((step / "state.json").read_text()).get("score")))
    return lines


def _line(step: Path, number: int, score: float | None) -> ledger.Row:
    """A step's line of the ledger. JSON knows no infinity and no NaN: such a score cannot be compared."""
    comparable = score if score is not None and math.isfinite(score) else None
    with (step / MANIFEST).open("rb") as file:
        return {"what": "step", "step": number, "score": comparable, "sha256": ledger.sha256(file)}


def _read_ledger(folder: Path) -> list[ledger.Row]:
    """What the ledger of the run tells; nothing for a folder of checkpoints that is in no run folder."""
    return ledger.read(folder.parent) or [] if folder.name == CHECKPOINTS else []


def _tell(folder: Path, *rows: ledger.Row) -> None:
    if folder.name == CHECKPOINTS:
        ledger.append(folder.parent, *rows)


def _step(folder: Path, number: int) -> Path:
    return folder / f"step-{number}"


def _former(step: Path) -> Path:
    return step.with_name(f".{step.name}.old")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
