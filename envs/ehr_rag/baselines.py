"""The classical baselines of Fig. 2 (EHR-RAG): logistic regression on counts of codes, or on patient embeddings.

As in EHRSHOT (Wornow et al. 2023): features scaled by their largest value, an L2 penalty whose strength is chosen on
validation samples, so many training and validation samples of each class (shots), drawn five times, or all. Counts are
of the events up to and including the prediction time, a code counts for every code above it, too, and the age in years
stands beside them. They ask no one and retrieve nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from scipy.sparse import csr_array, hstack

from ghar.arrays import load_arrays
from ghar.data.cohort import Cohort
from ghar.data.tasks.splits import Splits
from ghar.data.tasks.subsets import SHOTS, few_shot
from ghar.envs.case import Case
from ghar.envs.ehr_rag.cases import EventCases
from ghar.envs.ehr_rag.episode import EventReading
from ghar.envs.ehr_rag.stores import Stores
from ghar.episode import Prediction
from ghar.errors import BadInput
from ghar.metrics.scores import classification
from ghar.progress import track
from ghar.retrieval.event_store import PatientRecord, to_micros

STRENGTHS = tuple(10.0**power for power in range(-6, 7))  # C of scikit-learn
STEPS = 1_000  # of the solver at most
REPLICATES = 5  # draws of a number of shots
YEAR = 365.25 * 86_400_000_000.0  # microseconds
Features = np.ndarray | csr_array
Linear = Literal["counts", "embeddings"]
LINEAR: tuple[Linear, ...] = ("counts", "embeddings")


@dataclass(frozen=True)
class FewShotPredictions:
    """Label probabilities [replicates, cases, classes] of every case, by training samples a class; "all" of them, which
    is drawn once, is the last.

    row_of: sample id -> its row.
    """

    shares: Mapping[str, np.ndarray]
    row_of: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Regressions:
    """Both regressions, fitted when first asked. embeddings: the file of patients' vectors."""

    cases: EventCases
    stores: Stores
    cohort: Cohort
    embeddings: str | None
    seed: int
    _fitted: dict[str, FewShotPredictions] = field(default_factory=dict)

    def predict(self, case: Case[EventReading], name: Linear) -> Prediction:
        """The most probable label after all training samples."""
        predictions = self.fitted(name)
        shares = predictions.shares["all"][0][predictions.row_of[case.sample_id]]
        return Prediction(int(shares.argmax()), probabilities=tuple(shares.tolist()))

    def fitted(self, name: Linear) -> FewShotPredictions:
        """All probabilities of one regression."""
        if name not in self._fitted:
            row_of = {case.sample_id: i for i, case in enumerate(self.cases.all)}
            splits, classes = self.cases.splits, len(self.cases.task.labels)
            shares = fit_shots(self._features(name), row_of, splits, classes, self.seed, f"Fitting {name}")
            self._fitted[name] = FewShotPredictions(shares, row_of)
        return self._fitted[name]

    def numbers(self, name: Linear, resamples: int) -> dict[str, dict[str, list[float]]]:
        """Training samples a class -> {metric: [value, low, high]} of the test samples, means over the draws."""
        predictions, test = self.fitted(name), self.cases.splits.test
        rows = [predictions.row_of[case.sample_id] for case in test]
        truth, patients = [case.label for case in test], [case.subject_id for case in test]
        draw: Any = {"patients": patients, "seed": self.seed, "resamples": resamples}
        classes = len(self.cases.task.labels)
        numbers = {}
        for shots, shares in predictions.shares.items():
            drawn = [
                classification(truth, each[rows].argmax(axis=1).tolist(), classes, each[rows], **draw)
                for each in shares
            ]
            metrics = [metric for metric in drawn[0] if all(metric in scored for scored in drawn)]
            numbers[shots] = {
                metric: np.mean([scored[metric].as_list() for scored in drawn], axis=0).tolist() for metric in metrics
            }
        return numbers

    def _features(self, name: Linear) -> Features:
        if name == "counts":
            counted = count_features(self.stores.records(self.cases.all, apart=False), self.cohort.codes)
            return csr_array(hstack([counted, csr_array(ages(self.cohort, self.cases.all)[:, None])]))
        return read_embeddings(Path(self.embeddings or ""), self.cases.all)


def count_features(records: Iterable[PatientRecord], parents: pl.DataFrame) -> csr_array:
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


def ages(cohort: Cohort, cases: Sequence[Case[EventReading]]) -> np.ndarray:
    """f64[cases], years since the birth; else the last age on record by then and the years since; 0 without either."""
    is_age = pl.col("code").str.split("/").list.first().is_in(["MEDS_BIRTH", "AGE"]) & pl.col("time").is_not_null()
    rows = cohort.scan().filter(is_age).select("subject_id", "time", "code", "numeric_value").collect()
    births: dict[int, int] = {}
    ages_on_record: dict[int, list[tuple[int, float]]] = {}
    for subject, time, code, value in rows.with_columns(pl.col("time").to_physical()).iter_rows():
        if code.startswith("MEDS_BIRTH"):
            births.setdefault(subject, time)
        elif value is not None:
            ages_on_record.setdefault(subject, []).append((time, value))
    years = np.zeros(len(cases))
    for i, case in enumerate(cases):
        now = to_micros(case.reads.prediction_time)
        earlier = [(time, value) for time, value in ages_on_record.get(case.reads.record, ()) if time <= now]
        if case.reads.record in births:
            years[i] = max(0.0, (now - births[case.reads.record]) / YEAR)
        elif earlier:
            time, value = max(earlier)
            years[i] = value + (now - time) / YEAR
    return years


def _ancestors(codes: pl.DataFrame) -> dict[str, tuple[str, ...]]:
    """Code -> all codes above it, each once."""
    above = dict(codes.select("code", "parents").iter_rows())
    ancestors: dict[str, tuple[str, ...]] = {}
    for code in above:
        seen: dict[str, None] = {}
        waiting = list(above[code] or ())
        while waiting:
            parent = waiting.pop()
            if parent not in seen and parent != code:
                seen[parent] = None
                waiting += above.get(parent) or ()
        ancestors[code] = tuple(seen)
    return ancestors


def read_embeddings(path: Path, cases: Sequence[Case[EventReading]]) -> np.ndarray:
    """f32[cases, d] from a parquet or npz file with subject_id, prediction_time and vector (CLMBR's, say).

    prediction_time: datetime64 or microseconds since 1970. BadInput for another file, or one without one of the cases.
    """
    if not path.is_file():
        raise BadInput(f"system.embeddings={path} does not exist: name a parquet or npz file.")
    if path.suffix == ".npz":
        arrays = load_arrays(path, ("subject_id", "prediction_time", "vector"))
        subjects, times, vectors = arrays["subject_id"], arrays["prediction_time"], arrays["vector"]
    else:
        try:
            frame = pl.read_parquet(path, columns=["subject_id", "prediction_time", "vector"], glob=False)
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
        if (case.subject_id, to_micros(case.reads.prediction_time)) not in row:
            raise BadInput(
                f"{path} has no vector of patient {case.subject_id} at {case.reads.prediction_time}: add it."
            )
    return vectors[[row[case.subject_id, to_micros(case.reads.prediction_time)] for case in cases]].astype(np.float32)


def fit_shots(
    features: Features,
    row_of: Mapping[str, int],
    splits: Splits[Case[EventReading]],
    classes: int,
    seed: int,
    title: str,
) -> dict[str, np.ndarray]:
    """Label probabilities [replicates, rows of `features`, classes] for 1, 2, ..., 512 shots a class and "all".

    row_of: sample id -> its row of `features`. Numbers of shots that a class of the training set does not have are left
    out.
    """
    shares: dict[str, np.ndarray] = {}
    for shots in track((*SHOTS, None), title):
        drawn = []
        for replicate in range(1 if shots is None else REPLICATES):
            train = _draw(splits.train, shots, seed + replicate)
            valid = _draw(splits.valid, shots, seed + replicate) or splits.valid
            if train:
                parts = [(_take(features, row_of, some), _labels(some)) for some in (train, valid)]
                drawn.append(_fit(parts[0], parts[1], features, classes))
        if drawn:
            shares["all" if shots is None else str(shots)] = np.stack(drawn)
    return shares


def _draw(cases: Sequence[Case[EventReading]], shots: int | None, seed: int) -> Sequence[Case[EventReading]]:
    """So many of each class; none where one has fewer."""
    if shots is None:
        return cases
    sizes = np.bincount([case.label for case in cases])
    return few_shot(cases, shots, seed) if sizes[sizes > 0].min() >= shots else ()


def _take(features: Features, row_of: Mapping[str, int], cases: Sequence[Case[EventReading]]) -> Any:
    return features[[row_of[case.sample_id] for case in cases]]  # type: ignore[index]


def _labels(cases: Sequence[Case[EventReading]]) -> np.ndarray:
    return np.array([case.label for case in cases])


def _fit(train: tuple[Any, np.ndarray], valid: tuple[Any, np.ndarray], asked: Any, classes: int) -> np.ndarray:
    """Shares of the labels of `asked`, by the model whose penalty makes the validation samples most likely."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import MaxAbsScaler

    if len(set(train[1].tolist())) == 1:  # nothing to tell apart
        return np.tile(np.eye(classes)[train[1][0]], (asked.shape[0], 1))
    scaler = MaxAbsScaler().fit(train[0])
    inputs, judged = scaler.transform(train[0]), scaler.transform(valid[0])
    best, model = -np.inf, None
    for strength in STRENGTHS:
        tried = LogisticRegression(C=strength, max_iter=STEPS).fit(inputs, train[1])
        shares = _shares(tried, judged, classes)
        likelihood = np.log(shares[np.arange(len(valid[1])), valid[1]].clip(1e-12)).mean()
        if likelihood > best:
            best, model = likelihood, tried
    return _shares(model, scaler.transform(asked), classes)


def _shares(model: Any, inputs: Any, classes: int) -> np.ndarray:
    """Probabilities of all classes, 0 for one that was never seen."""
    shares = np.zeros((inputs.shape[0], classes))
    shares[:, model.classes_] = model.predict_proba(inputs)
    return shares
