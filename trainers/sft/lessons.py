"""What the warm-up teaches, and the file that keeps it: a resumed run asks its teacher nothing twice."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ghar.errors import BadInput
from rewards.compose import Reference
from trainers.play import tokenised
from trainers.sft.run import Pair
from trainers.sft.warmup import Warmup


@dataclass(frozen=True)
class Lessons:
    """pairs: replies of the accepted episodes, to imitate; references: by sample id (Eq. 15); rate: share accepted."""

    pairs: Sequence[Pair]
    references: Mapping[str, Reference]
    rate: float


def lessons_of(found: Warmup, tokenizer: Any) -> Lessons:
    """The accepted episodes as token ids."""
    pairs = [pair for _, pair in tokenised(tokenizer, found.accepted)]
    return Lessons(pairs, found.references, found.rate)


def write_lessons(path: Path, lessons: Lessons) -> None:
    """One npz: all token ids in a row (int32), the lengths that part them (int64 [pairs, 2]), the rest as JSON bytes.

    Written whole or not at all.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = {"rate": lessons.rate, "references": {key: asdict(r) for key, r in lessons.references.items()}}
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        np.savez_compressed(
            file,
            ids=np.concatenate([np.array([*p.prompt_ids, *p.completion_ids], np.int32) for p in lessons.pairs]),
            lengths=np.array([[len(p.prompt_ids), len(p.completion_ids)] for p in lessons.pairs], np.int64),
            texts=np.frombuffer(json.dumps(texts).encode(), np.uint8),
        )
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def read_lessons(path: Path) -> Lessons:
    """What `write_lessons` wrote. BadInput when the file is damaged (its checksums tell)."""
    try:
        with np.load(path) as file:
            ids, lengths, texts = file["ids"], file["lengths"], json.loads(file["texts"].tobytes())
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput(f"{path} is damaged ({error}): start with resume=never to train anew.") from None
    parts = np.split(ids, np.cumsum(lengths.reshape(-1))[:-1])
    pairs = [Pair(p.tolist(), c.tolist()) for p, c in zip(parts[::2], parts[1::2], strict=True)]
    references = {key: Reference(**value) for key, value in texts["references"].items()}
    return Lessons(pairs, references, texts["rate"])
