"""GraphWalker's own cases: tables of measurements (task=series_...), encoded by a patient encoder or as text, with age
at the prediction and sex as static numbers (system.demographics)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from ghar.config import Config
from ghar.data.audit import as_plain, exposure
from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.tasks.eligible import eligible
from ghar.data.tasks.samples import TimeSeries
from ghar.data.tasks.series import SeriesTask, series_samples
from ghar.data.tasks.splits import Splits, draw, split_stratified
from ghar.data.tasks.stays import Leakage
from ghar.data.tasks.visits import drawn
from ghar.envs.graphwalker.encoders.embeddings import Embeddings, embed
from ghar.envs.graphwalker.encoders.embeddings import Name as EncoderName
from ghar.envs.graphwalker.pool import EncodedCases, dense
from ghar.envs.graphwalker.selectors.prompt import Prompt, head_text, name_of, table
from ghar.envs.graphwalker.selectors.protocol import EVERY, Patient
from ghar.envs.graphwalker.series_text import UNITS, USUAL, number
from ghar.envs.graphwalker.settings import Settings
from ghar.envs.records import AUDITED, LEAKAGES, Records
from ghar.envs.system import Reader

if TYPE_CHECKING:
    from ghar.envs.graphwalker.encoders.train import EncoderTraining

PREFIX = "series_"
FEMALE = {"GENDER/F": 1.0, "GENDER/M": 0.0}
UNKNOWN = float("nan")  # age or sex that no one recorded


def encoder_of(settings: Settings) -> EncoderName:
    """The encoder of the patient graph; the text encoder where EHR embeddings are ablated."""
    return "text" if settings.variant == "no_ehr_emb" else settings.encoder or "smart"


def series_material(
    records: Records, settings: Settings, training: EncoderTraining | None = None
) -> EncodedCases[Sample[TimeSeries]]:
    """Read, split within each class, and encode. BadInput names what is missing.

    training: of the encoder, as published by default.
    """
    config, cohort = records.config, records.charted
    task, splits, left_out = series_splits(records, settings)
    read = partial(_reader(settings), task=_name(config))
    model, encoder = dense(config.retriever.kind), encoder_of(settings)
    cache = Path(config.data.cache)
    encode = partial(embed, task=task, splits=splits, cache=cache, seed=config.seed, text_model=model)
    words = encode("text")
    embeddings = words if encoder == "text" else encode(encoder, training=training)
    piece = partial(_piece, embeddings if settings.variant == "show_encoder" else None, task)
    is_icu = cohort.stay == "ICU" or settings.stay != "visit"
    head = head_text(task, splits.train[0].history.features, "ICU" if is_icu else "hospital")
    audited = draw(splits.test, AUDITED, config.task.split_seed)
    return EncodedCases(
        settings, config.seed, task, head, splits, embeddings, words, model, piece, table, looks,
        selectors=EVERY, generated=cohort.generated, credentialed=records.credentialed(cohort),
        left_out=left_out, audit=_audit(cohort, audited, config.data.leakage, read),
    )  # fmt: skip


def series_splits(
    records: Records, settings: Settings
) -> tuple[Task, Splits[Sample[TimeSeries]], Mapping[str, int]]:
    """The task, its samples split within each class, and how many a rule left out."""
    config, cohort = records.config, records.charted
    task, samples = _reader(settings)(cohort, _name(config), leakage=config.data.leakage)
    samples, left_out = eligible(samples, cohort, config.task.stays, config.data.root)
    samples = drawn(samples, cohort, config.task)
    samples = with_demographics(samples, cohort) if settings.demographics else samples
    return task, records.limited(split_stratified(samples, config.task.split, config.task.split_seed)), left_out


def _name(config: Config) -> SeriesTask:
    return cast(SeriesTask, config.task.name.removeprefix(PREFIX))


def _reader(settings: Settings) -> Callable[..., tuple[Task, list[Sample[TimeSeries]]]]:
    return partial(series_samples, step_hours=settings.step_hours, stay=settings.stay, los=settings.los)


def _audit(
    cohort: Cohort,
    samples: Sequence[Sample[TimeSeries]],
    used: Leakage,
    read: Callable[..., tuple[Task, list[Sample[TimeSeries]]]],
) -> dict[str, Any]:
    """What the test samples show under paper and under strict, the other mode read of their patients alone."""
    people, names = {sample.subject_id for sample in samples}, {sample.sample_id for sample in samples}
    theirs = pl.col("subject_id").is_in(people)
    some = replace(cohort, table=cohort.scan().filter(theirs).collect(), visits=cohort.visits.filter(theirs))
    exposures = {}
    for mode in LEAKAGES:
        cases = samples
        if mode != used:
            cases = [sample for sample in read(some, leakage=mode)[1] if sample.sample_id in names]
        exposures[mode] = exposure(cohort if mode == used else some, cases)
    return as_plain(used, exposures)


def _piece(
    embeddings: Embeddings | None, task: Task, prompt: Prompt, reader: Reader, sample: Sample[TimeSeries]
) -> Patient:
    return prompt.patient(sample, None if embeddings is None else _estimate(embeddings, task, sample.sample_id))


def _estimate(embeddings: Embeddings, task: Task, sample_id: str) -> str:
    """What the encoder predicts, for variant show_encoder: the probability of "yes", or the likeliest class."""
    shares = embeddings.probabilities[embeddings.row_of[sample_id]]
    return f"{shares[1]:.2f}" if len(shares) == 2 else task.labels[int(shares.argmax())]


def looks(sample: Sample[TimeSeries]) -> Mapping[str, str]:
    """What ReAct sees of each measurement that was taken: its values as the record has them, which are the last ones of
    their steps, and unit and usual range, which the prompt says nowhere else."""
    summaries = {}
    for i, code in enumerate(sample.history.features):
        values = sample.history.values[:, i][~np.isnan(sample.history.values[:, i])]
        if len(values):
            first, last, low, high = (number(v) for v in (values[0], values[-1], values.min(), values.max()))
            seen = f"of the record's values: first {first}, last {last}, lowest {low}, highest {high}"
            usual = f"usual in adults at rest: {USUAL[code]}" if code in USUAL else None
            about = "; ".join(part for part in (UNITS.get(code), usual) if part)
            summaries[name_of(code)] = f"{seen} ({about})" if about else seen
    return summaries


def with_demographics(samples: Sequence[Sample[TimeSeries]], cohort: Cohort) -> list[Sample[TimeSeries]]:
    """The samples with `TimeSeries.static` = (years, 1 for female and 0 for male), each NaN where no one knows it."""
    sexes = _sexes(cohort)
    people = zip(samples, _ages(samples, cohort), strict=True)
    return [
        replace(one, history=replace(one.history, static=(years, sexes.get(one.subject_id, UNKNOWN))))
        for one, years in people
    ]


def _ages(samples: Sequence[Sample[TimeSeries]], cohort: Cohort) -> list[float]:
    """Years at the patient's last age event up to the prediction, of each sample."""
    asked = {"subject_id": pl.Int64, "time": pl.Datetime("us")}
    rows = pl.DataFrame([(s.subject_id, s.prediction_time) for s in samples], schema=asked, orient="row")
    ages = (
        cohort.scan()
        .filter(pl.col("code") == "AGE")
        .select(pl.col("subject_id").cast(pl.Int64), pl.col("time").cast(pl.Datetime("us")), years="numeric_value")
        .drop_nulls()
        .collect(engine="streaming")
        .sort("time", "years")
    )
    table = rows.with_row_index("row").sort("time").join_asof(ages, on="time", by="subject_id", check_sortedness=False)
    return [UNKNOWN if years is None else float(years) for years in table.sort("row")["years"]]


def _sexes(cohort: Cohort) -> Mapping[int, float]:
    rows = cohort.scan().filter(pl.col("code").is_in(list(FEMALE))).select("subject_id", "code").collect()
    return {subject: FEMALE[code] for subject, code in rows.iter_rows()}
