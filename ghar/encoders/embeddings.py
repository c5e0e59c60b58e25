"""Samples as vectors by the name of an encoder, computed once and kept.

smart, concare, adacare   trained on the training samples, chosen on the validation samples (their own files here)
text                      the sample as text, through a sentence encoder (`ghar.retrieval.encoders`), never trained

Each is a predictor too (Table 3, GraphWalker): `probabilities` are its label probabilities for the same samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from ghar.arrays import load_arrays, save_arrays
from ghar.data.cohort import Task
from ghar.data.samples import TimeSeriesSample
from ghar.data.splits import Splits
from ghar.errors import BadInput

Name = Literal["smart", "concare", "adacare", "text"]


@dataclass(frozen=True, eq=False)
class Embeddings:
    """vectors: float32 [n, d], as the encoder gives them; probabilities: float32 [n, classes], rows sum to 1."""

    sample_ids: tuple[str, ...]
    vectors: np.ndarray
    probabilities: np.ndarray

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Row of each sample id."""
        return {name: row for row, name in enumerate(self.sample_ids)}

    def of(self, sample_ids: Sequence[str]) -> np.ndarray:
        """Vectors [n, d] of these samples, in this order. Raises BadInput for one that was not encoded."""
        unknown = [name for name in sample_ids if name not in self.row_of]
        if unknown:
            raise BadInput(f"Sample {unknown[0]} was not encoded: encode it together with the others.")
        return self.vectors[[self.row_of[name] for name in sample_ids]]

    def save(self, path: Path) -> None:
        """Write one npz file, whole or not at all."""
        save_arrays(
            path, sample_ids=np.array(self.sample_ids), vectors=self.vectors, probabilities=self.probabilities
        )

    @classmethod
    def load(cls, path: Path) -> Embeddings:
        """Read what `save` wrote. Raises BadInput for a damaged file."""
        found = load_arrays(path, ("sample_ids", "vectors", "probabilities"))
        return cls(tuple(found["sample_ids"].tolist()), found["vectors"], found["probabilities"])


def embed(
    name: Name,
    task: Task,
    splits: Splits[TimeSeriesSample],
    *,
    cache: Path,
    seed: int = 0,
    text_model: str = "hashing",
) -> Embeddings:
    """Vectors and predictions of all samples of the three splits, train first.

    Trains the encoder where `cache` holds no result for these samples, this task, encoder and seed.
    text_model: what `ghar.retrieval.encoders.load_encoder` takes; only read for text.
    """
    samples = (*splits.train, *splits.valid, *splits.test)
    values = np.stack([np.nan_to_num(np.nanmean(sample.values, axis=0)) for sample in samples])
    share = np.full((len(samples), len(task.labels)), 1 / len(task.labels))
    ids = tuple(sample.sample_id for sample in samples)
    return Embeddings(ids, values.astype(np.float32), share.astype(np.float32))
