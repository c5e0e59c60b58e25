"""Write any cohort as a MEDS folder: python launch/export_meds.py data=mimic4 data.root=/path/to/mimic-iv run_dir=OUT

Leaves OUT/meds: data, metadata and, of the task that task=... names, labels/TASK.parquet and the split of its patients
(metadata/subject_splits.parquet). Other tools read it as MEDS 0.4, and data=meds data.root=OUT/meds without any loss.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from ghar.config import Config
    from ghar.data.cohort import Sample


def run(config: Config) -> None:
    import polars as pl

    from ghar.data.findings import record_facts
    from ghar.data.readers.meds_export import write_meds
    from ghar.envs.records import Records
    from ghar.errors import BadInput

    records, place = Records(config), Path(config.run_dir) / "meds"
    labels, splits = {}, None
    try:
        # task.max_test=0 has the validation samples in both places
        parts = {"train": records.splits.train, "held_out": records.splits.test, "tuning": records.splits.valid}
        samples = {s.sample_id: s for part in ("train", "tuning", "held_out") for s in parts[part]}
        labels[config.task.name] = _labels(list(samples.values()), len(records.task.labels))
        splits = {sample.subject_id: part for part, own in parts.items() for sample in own}
    except BadInput as error:
        print(f"No labels of task={config.task.name}: {error}")
    cohort = records.charted_source
    facts = None if records.facts is None else record_facts(records.facts)
    charted = cohort.codes.join(records.source.codes, on="code", how="anti")["code"]
    write_meds(cohort, place, labels=labels, splits=splits, facts=facts, charted=charted)
    rows = sum(frame.height for frame in labels.values())
    people = cohort.visits["subject_id"].n_unique()
    events = cohort.scan().select(pl.len()).collect(engine="streaming").item()
    print(f"{place}: {people:,} patients, {cohort.visits.height:,} visits, {events:,} events, "
          f"{rows:,} labels of {config.task.name}")  # fmt: skip


def _labels(samples: list[Sample], answers: int) -> pl.DataFrame:
    """Samples in MEDS's columns: boolean_value of two answers, else integer_value."""
    import polars as pl

    rows = [(s.subject_id, s.prediction_time, s.label) for s in samples]
    types = {"subject_id": pl.Int64, "prediction_time": pl.Datetime("us"), "integer_value": pl.Int64}
    frame = pl.DataFrame(rows, types, orient="row").sort("subject_id", "prediction_time", maintain_order=True)
    if answers != 2:
        return frame
    return frame.select("subject_id", "prediction_time", boolean_value=pl.col("integer_value") == 1)


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and no launcher hides a library of its name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import launch

    launch(run)
