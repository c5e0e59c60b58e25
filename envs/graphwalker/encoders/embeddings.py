"""Samples as vectors by the name of an encoder, computed once and kept.

smart, concare, adacare   trained on the training samples, chosen on the validation samples (their own files here)
text                      the sample as text, through a sentence encoder (`ghar.retrieval.encoders`), never trained

Each is a predictor too (Table 3, GraphWalker): `probabilities` are its label probabilities for the same samples.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from ghar.arrays import load_arrays, save_arrays
from ghar.data.cohort import Sample, Task
from ghar.data.tasks.samples import TimeSeries
from ghar.data.tasks.splits import Splits
from ghar.envs.graphwalker.encoders.labels import check_labels
from ghar.envs.graphwalker.series_text import time_series
from ghar.errors import BadInput
from ghar.metrics.bootstrap import RESAMPLES, BootstrapSpread
from ghar.metrics.clinical import best_threshold, length_of_stay, risk

if TYPE_CHECKING:
    from ghar.envs.graphwalker.encoders.train import EncoderTraining

Name = Literal["smart", "concare", "adacare", "text"]
VERSION = 2  # raise it when the same samples would get other vectors
TEXT_BATCH = 32


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
        save_arrays(path, sample_ids=np.array(self.sample_ids), vectors=self.vectors, probabilities=self.probabilities)

    @classmethod
    def load(cls, path: Path) -> Embeddings:
        """Read what `save` wrote. Raises BadInput for a damaged file."""
        arrays = load_arrays(path, ("sample_ids", "vectors", "probabilities"))
        return cls(tuple(arrays["sample_ids"].tolist()), arrays["vectors"], arrays["probabilities"])


def embed(
    name: Name,
    task: Task,
    splits: Splits[Sample[TimeSeries]],
    *,
    cache: Path,
    seed: int = 0,
    text_model: str = "hashing",
    training: EncoderTraining | None = None,
) -> Embeddings:
    """Vectors and predictions of all samples of the three splits, train first.

    Trains the encoder where `cache` holds no result for just these samples, this task, encoder, settings and seed; a
    trained one is kept beside its result (`ghar.envs.graphwalker.encoders.train.TrainedEncoder.load`). training: of a
    neural encoder, by default as published. text_model: what `ghar.retrieval.encoders.load_encoder` takes; only text
    reads it. Raises BadInput for training samples of one label, for values that no encoder can take, and for an unknown
    name.
    """
    if name not in get_args(Name):
        raise BadInput(f"There is no encoder {name!r}: choose {', '.join(get_args(Name))}.")
    samples = (*splits.train, *splits.valid, *splits.test)
    sizes = [len(part) for part in (splits.train, splits.valid, splits.test)]
    key = digest(samples, [VERSION, name, task, sizes, seed, text_model if name == "text" else training])
    path = cache / "embeddings" / f"{name}-{task.name}-seed{seed}-{key}.npz"
    if path.exists():
        return Embeddings.load(path)
    if name == "text":
        texts = [_text(sample, task) for sample in samples]
        vectors = embed_texts(texts, text_model)
        labels = [sample.label for sample in splits.train]
        shares = _logistic(vectors[: len(labels)], labels, vectors, len(task.labels))
    else:
        from ghar.envs.graphwalker.encoders.train import train_encoder  # torch, which a cached result does not need

        encoder = train_encoder(name, splits.train, splits.valid, len(task.labels), seed=seed, training=training)
        encoder.save(path.with_suffix(".pt"))
        vectors, shares = encoder.encode(samples)
    embeddings = Embeddings(tuple(sample.sample_id for sample in samples), vectors, shares)
    embeddings.save(path)
    return embeddings


def embed_texts(texts: Sequence[str], model: str = "hashing") -> np.ndarray:
    """float32 [n, d] of any texts, equal ones encoded once. model: as `text_model` of `embed`."""
    from ghar.retrieval.encoders import load_encoder

    different = list(dict.fromkeys(texts))
    vectors = np.asarray(load_encoder(model, TEXT_BATCH).passages(different), dtype=np.float32)
    row = {text: i for i, text in enumerate(different)}
    return vectors[[row[text] for text in texts]]


def digest(samples: Sequence[Sample[TimeSeries]], about: Sequence[object]) -> str:
    """16 hex digits that change with anything an encoder could see of the samples, and with `about`."""
    hasher = hashlib.sha256(repr(about).encode())
    for sample in samples:
        series = sample.history
        hasher.update(repr((sample.sample_id, sample.label, series.features, series.values.shape)).encode())
        for array in (series.hours, series.values, series.observed):
            hasher.update(np.ascontiguousarray(array).tobytes())
        hasher.update(repr(series.static).encode() if series.static else b"")
    return hasher.hexdigest()[:16]


def _text(sample: Sample[TimeSeries], task: Task) -> str:
    """The whole series as the prompt shows it; the names of codes end with what they measure."""
    return time_series(sample, task, lambda code: code.rpartition("/")[2], budget=sys.maxsize, count=len).text


def _logistic(train: np.ndarray, labels: Sequence[int], vectors: np.ndarray, classes: int) -> np.ndarray:
    """Label probabilities float32 [n, classes] by logistic regression on vectors; 0 for a class it never saw."""
    from sklearn.linear_model import LogisticRegression

    check_labels(labels)
    model = LogisticRegression(max_iter=1000).fit(train, labels)
    shares = np.zeros((len(vectors), classes), np.float32)
    shares[:, model.classes_] = model.predict_proba(vectors)
    return shares


def predictor_scores(
    embeddings: Embeddings, task: Task, splits: Splits[Sample[TimeSeries]], *, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, BootstrapSpread]:
    """Numbers on the test samples: as `ghar.metrics.clinical.risk` for two labels, with the threshold that is best on
    the validation samples, as `length_of_stay` for more."""
    row = embeddings.row_of
    valid, test = (
        embeddings.probabilities[[row[sample.sample_id] for sample in part]] for part in (splits.valid, splits.test)
    )
    labels, patients = [s.label for s in splits.test], [s.subject_id for s in splits.test]
    if len(task.labels) > 2:
        draw = {"seed": seed, "resamples": resamples}
        return length_of_stay(labels, test.tolist(), len(task.labels), patients=patients, **draw)
    threshold = best_threshold([sample.label for sample in splits.valid], valid[:, 1].tolist())
    return risk(labels, test[:, 1].tolist(), threshold, patients=patients, seed=seed, resamples=resamples)
