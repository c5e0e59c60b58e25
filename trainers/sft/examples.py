"""What the warm-up teaches, and the file that keeps it: a resumed run asks its teacher nothing twice."""

from __future__ import annotations

import json
import os
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ghar.errors import BadInput
from ghar.rewards.compose import Reference
from ghar.trainers.sft.pairs import TokenExample


@dataclass(frozen=True)
class TrainingExamples:
    """train: replies to imitate; valid: those whose loss decides which weights are kept, none for the last ones;
    references: by sample id (Eq. 15 of GHAR); about: numbers for the summary."""

    train: Sequence[TokenExample]
    valid: Sequence[TokenExample]
    references: Mapping[str, Reference]
    about: Mapping[str, Any]


def write_examples(path: Path, examples: TrainingExamples) -> None:
    """One npz: all token ids in a row (int32), the lengths that part them (int64 [pairs, 2]), weights (NaN: none), how
    many pairs train, the rest as JSON bytes.

    Written whole or not at all.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    pairs = [*examples.train, *examples.valid]
    references = {key: asdict(reference) for key, reference in examples.references.items()}
    texts = {"train": len(examples.train), "about": dict(examples.about), "references": references}
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        np.savez_compressed(
            file,
            ids=np.concatenate([np.array([*p.prompt_ids, *p.completion_ids], np.int32) for p in pairs]),
            lengths=np.array([[len(p.prompt_ids), len(p.completion_ids)] for p in pairs], np.int64),
            weights=np.array([np.nan if p.weight is None else p.weight for p in pairs]),
            texts=np.frombuffer(json.dumps(texts).encode(), np.uint8),
        )
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


# RuntimeError: a flipped bit asks for a password, or for a method of packing that there is not; TokenError and
# SyntaxError: NumPy reads an array's header as Python's words
DAMAGES = (OSError, EOFError, ValueError, KeyError, RuntimeError, SyntaxError, tokenize.TokenError)


def read_examples(path: Path) -> TrainingExamples:
    """What `write_examples` wrote. BadInput when the file is damaged (its checksums tell)."""
    try:
        with np.load(path) as file:
            ids, lengths, weights = file["ids"], file["lengths"], file["weights"].tolist()
            texts = json.loads(file["texts"].tobytes())
    except (*DAMAGES, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput(f"{path} is damaged ({error}): start with resume=never to train anew.") from None
    parts = np.split(ids, np.cumsum(lengths.reshape(-1))[:-1])
    pairs = [
        TokenExample(prompt.tolist(), reply.tolist(), None if np.isnan(weight) else weight)
        for prompt, reply, weight in zip(parts[::2], parts[1::2], weights, strict=True)
    ]
    references = {key: Reference(**value) for key, value in texts["references"].items()}
    return TrainingExamples(pairs[: texts["train"]], pairs[texts["train"] :], references, texts["about"])
