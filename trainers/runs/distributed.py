"""Several processes as one run: their group, whose turn it is, and what they tell each other.

Every process plays and trains on its own share of a batch; process 0 alone writes files. In one process every function
here does nothing, or returns what it was given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from ghar.device import name_accelerator
from ghar.errors import BadInput
from ghar.trainers.runs.values import from_bytes, to_bytes

T = TypeVar("T")

# A process that dies is noticed by torchrun, which ends the others. These end a wait for one that hangs.
STEP = timedelta(minutes=30)  # for the others' part of a batch
PHASE = timedelta(hours=24)  # for what process 0 does alone: a base model, a teacher's episodes, an evaluation
TORCHRUN = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

_phase: dist.ProcessGroup | None = None  # the processes once more, with the patience of PHASE


@contextmanager
def together(stage: int | None) -> Iterator[None]:
    """The process group of a run that torchrun started in several processes, or that DeepSpeed shards (ZeRO `stage`);
    where Ray Train has made one already, that. It ends here.

    A run in one process without DeepSpeed needs none: torchrun's variables would make libraries build one, and wrap
    the model; Ray Train's of a single worker would have vLLM look for these variables. Nor does process 0 when all
    have left. BadInput where DeepSpeed is asked for without torchrun or is not installed.
    """
    name_accelerator()
    if stage is not None:
        _check_deepspeed()
    elif world_asked() == 1:
        if "RANK" in os.environ and dist.is_initialized():  # Ray Train's; one of vLLM in this process stays
            dist.destroy_process_group()
        _forget_torchrun()
        yield
        return
    global _phase
    cuda = torch.cuda.is_available()
    if cuda:
        _check_gpus()
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=STEP)
    _phase = cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=PHASE))
    try:
        yield
    finally:
        _phase = None
        dist.destroy_process_group()
        _forget_torchrun()


def _forget_torchrun() -> None:
    for name in TORCHRUN:
        os.environ.pop(name, None)


def world_asked() -> int:
    """Processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _check_gpus() -> None:
    here, gpus = int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
    if here > gpus:
        raise BadInput(f"torchrun started {here} processes on a machine with {gpus} GPUs: use --nproc-per-node {gpus}.")


def _check_deepspeed() -> None:
    if "LOCAL_RANK" not in os.environ:
        raise BadInput("deepspeed needs torchrun: start with torchrun --nproc-per-node N, or choose deepspeed=none.")
    load_deepspeed()


def load_deepspeed() -> Any:
    """The module; BadInput when it cannot be loaded."""
    try:
        import deepspeed  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise BadInput(f"deepspeed cannot be loaded ({error}): install .[deepspeed] or use deepspeed=none.") from None
    # sums through shared memory are for inference, and it would need a compiler to build them at the first start
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def world() -> int:
    """Processes of this run; vLLM in this one starts a group of one, which has no one to talk to."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if world() > 1 else 0


def share(items: Sequence[T]) -> Sequence[T]:
    """The part of `items` that is this process's: contiguous, so that the parts in order of rank are the whole."""
    size, more = divmod(len(items), world())
    first = rank() * size + min(rank(), more)
    return items[first : first + size + (rank() < more)]


def gather(value: T) -> list[T]:
    """What every process gave, in order of rank; in every process. Data alone can cross (`values`), never a pickle."""
    if world() == 1:
        return [value]
    own = torch.frombuffer(bytearray(to_bytes(value)), dtype=torch.uint8)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(world())]
    dist.all_gather(sizes, torch.tensor([len(own)]))
    longest = max(int(size) for size in sizes)
    parts = [torch.zeros(longest, dtype=torch.uint8) for _ in sizes]
    dist.all_gather(parts, torch.nn.functional.pad(own, (0, longest - len(own))))
    return [from_bytes(part[: int(size)].numpy().tobytes()) for part, size in zip(parts, sizes, strict=True)]


def gather_rows(rows: Sequence[T]) -> list[T]:
    """The rows of all processes, in order of rank."""
    return [row for part in gather(list(rows)) for row in part]


def on_main(work: Callable[[], T]) -> T:
    """What `work` returns in process 0, in every process; the others wait. BadInput of process 0 is raised in all."""
    if world() == 1:
        return work()
    result: Any
    if rank() == 0:
        try:
            result = work()
            data = to_bytes((result, None))
        except BadInput as error:
            result, data = error, to_bytes((None, error))
        _broadcast(data)
    else:
        value, wrong = from_bytes(_broadcast(b""))
        result = value if wrong is None else wrong
    if isinstance(result, BadInput):
        raise result
    return result


def _broadcast(data: bytes) -> bytes:
    """What process 0 gives, in every process."""
    size = torch.tensor([len(data)])
    dist.broadcast(size, src=0, group=_phase)
    own = torch.zeros(int(size), dtype=torch.uint8)
    if rank() == 0:
        own = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    dist.broadcast(own, src=0, group=_phase)
    return own.numpy().tobytes()


def main_first(work: Callable[[], T]) -> T:
    """`work` in every process, in the others after process 0: they find what it leaves in a cache."""
    if world() == 1:
        return work()
    result = work() if rank() == 0 else None
    on_main(lambda: None)
    return work() if rank() > 0 else result  # type: ignore[return-value]
