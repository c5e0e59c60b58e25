"""The classical baselines of Fig. 2 (EHR-RAG): logistic regression on counts of codes, or on patient embeddings.

As in EHRSHOT (Wornow et al. 2023): features scaled by their largest value, an L2 penalty whose strength is chosen on
validation samples, so many training and validation samples of each class (shots), or all. Counts are of the events
strictly before the prediction time, and a code counts for every code above it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from envs.ehr_rag.episode import EventCase
from ghar.arrays import load_arrays
from ghar.data.tasks.splits import Splits
from ghar.data.tasks.subsets import SHOTS, few_shot
from ghar.errors import BadInput
from ghar.progress import track
from ghar.retrieval.event_store import Record, to_micros

STRENGTHS = tuple(10.0**power for power in range(-6, 7))  # C of scikit-learn
STEPS = 1_000  # of the solver at most
Features = np.ndarray | csr_array


def count_features(records: Iterable[Record], parents: pl.DataFrame) -> csr_array:
    """f64[records, codes] of a store in which every event is a row. parents: `Cohort.codes`."""
    above, n = _ancestors(parents), 0
    place: dict[str, int] = {}
    rows, columns, values = [], [], []
    for i, record in enumerate(records):
        n = i + 1
        codes, counts = np.unique(record.row_codes(), return_counts=True)
        names = [record.store.codes[int(code)] for code in codes] + list(record.facts)
        for name, count in zip(names, [*counts.tolist(), *([1] * len(record.facts))], strict=True):
            for each in (name, *above.get(name, ())):
                rows.append(i)
                columns.append(place.setdefault(each, len(place)))
                values.append(float(count))
    return csr_array((values, (rows, columns)), shape=(n, max(len(place), 1)))


def _ancestors(codes: pl.DataFrame) -> dict[str, tuple[str, ...]]:
    """Code -> all codes above it, each once."""
    above = dict(codes.select("code", "parents").iter_rows())
    found: dict[str, tuple[str, ...]] = {}
    for code in above:
        seen: dict[str, None] = {}
        waiting = list(above[code] or ())
        while waiting:
            parent = waiting.pop()
            if parent not in seen and parent != code:
                seen[parent] = None
                waiting += above.get(parent) or ()
        found[code] = tuple(seen)
    return found


def read_embeddings(path: Path, cases: Sequence[EventCase]) -> np.ndarray:
    """f32[cases, d] from a parquet or npz file with subject_id, prediction_time and vector (CLMBR's, say).

    prediction_time: datetime64 or microseconds since 1970. BadInput for another file, or one without one of the cases.
    """
    if not path.is_file():
        raise BadInput(f"ehr_rag.embeddings={path} does not exist: name a parquet or npz file.")
    if path.suffix == ".npz":
        found = load_arrays(path, ("subject_id", "prediction_time", "vector"))
        subjects, times, vectors = found["subject_id"], found["prediction_time"], found["vector"]
    else:
        try:
            frame = pl.read_parquet(path, columns=["subject_id", "prediction_time", "vector"])
            vectors = np.array(frame["vector"].to_list(), dtype=np.float32)
        except (pl.exceptions.PolarsError, ValueError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise BadInput(f"{path} has no columns subject_id, prediction_time and vector ({reason}).") from None
        subjects, times = frame["subject_id"].to_numpy(), frame["prediction_time"].to_numpy()
    if vectors.ndim != 2 or not np.isfinite(vectors).all():
        raise BadInput(f"{path}: the vectors must be finite and of one length: write them again.")
    if times.dtype.kind == "M":
        times = times.astype("datetime64[us]").astype(np.int64)
    row = {key: i for i, key in enumerate(zip(subjects.tolist(), times.tolist(), strict=True))}
    for case in cases:
        if (case.subject_id, to_micros(case.prediction_time)) not in row:
            raise BadInput(f"{path} has no vector of patient {case.subject_id} at {case.prediction_time}: add it.")
    return vectors[[row[case.subject_id, to_micros(case.prediction_time)] for case in cases]].astype(np.float32)


def fit_shots(
    features: Features, row_of: Mapping[int, int], splits: Splits[EventCase], classes: int, seed: int, title: str
) -> dict[str, np.ndarray]:
    """Label probabilities [test, classes] for 1, 2, ..., 256 shots a class and "all".

    row_of: place of a case -> its row of `features`. Numbers of shots that a class of the
    training set does not have are left out.
    """
    found: dict[str, np.ndarray] = {}
    for shots in track((*SHOTS, None), title):
        train = _draw(splits.train, shots, seed)
        valid = _draw(splits.valid, shots, seed) or splits.valid
        if train:
            name = "all" if shots is None else str(shots)
            parts = [(_take(features, row_of, some), _labels(some)) for some in (train, valid, splits.test)]
            found[name] = _fit(parts[0], parts[1], parts[2][0], classes)
    return found


def _draw(cases: Sequence[EventCase], shots: int | None, seed: int) -> Sequence[EventCase]:
    """So many of each class; none where one has fewer."""
    if shots is None:
        return cases
    sizes = np.bincount([case.label for case in cases])
    return few_shot(cases, shots, seed) if sizes[sizes > 0].min() >= shots else ()


def _take(features: Features, row_of: Mapping[int, int], cases: Sequence[EventCase]) -> Any:
    return features[[row_of[case.place] for case in cases]]  # type: ignore[index]


def _labels(cases: Sequence[EventCase]) -> np.ndarray:
    return np.array([case.label for case in cases])


def _fit(train: tuple[Any, np.ndarray], valid: tuple[Any, np.ndarray], test: Any, classes: int) -> np.ndarray:
    """Shares of the labels, by the model whose penalty gives the validation samples the highest likelihood."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import MaxAbsScaler

    if len(set(train[1].tolist())) == 1:  # nothing to tell apart
        return np.tile(np.eye(classes)[train[1][0]], (test.shape[0], 1))
    scaler = MaxAbsScaler().fit(train[0])
    inputs, judged = scaler.transform(train[0]), scaler.transform(valid[0])
    best, model = -np.inf, None
    for strength in STRENGTHS:
        tried = LogisticRegression(C=strength, max_iter=STEPS).fit(inputs, train[1])
        shares = _shares(tried, judged, classes)
        likelihood = np.log(shares[np.arange(len(valid[1])), valid[1]].clip(1e-12)).mean()
        if likelihood > best:
            best, model = likelihood, tried
    return _shares(model, scaler.transform(test), classes)


def _shares(model: Any, inputs: Any, classes: int) -> np.ndarray:
    """Probabilities of all classes, 0 for one that was never seen."""
    shares = np.zeros((inputs.shape[0], classes))
    shares[:, model.classes_] = model.predict_proba(inputs)
    return shares
