"""MIMIC_IV_MEDS itself, run as it is on the open MIMIC-IV demo: what is equal to the tables, and what differs, counted.

It runs in an environment of its own, whose folder bin/ is named by GHAR_MIMIC_IV_MEDS:

    uv venv ../mimic-iv-meds && uv pip install --python ../mimic-iv-meds/bin/python MIMIC_IV_MEDS
    GHAR_MIMIC_IV_MEDS=../mimic-iv-meds/bin .venv/bin/python -m pytest -n 0 tests/data/test_mimic_iv_meds.py

The shared demo lacks chartevents, which it cannot do without: an empty table stands there. Of its maps to concepts of
OMOP (names and parents of codes only) the one of laboratory items is real, and stands in the place of the others.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest

from ghar.data.cohort import Cohort, Sample
from ghar.data.findings import with_findings
from ghar.data.readers.meds import read_meds
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.tasks.ehrshot import EhrshotTask, ehrshot_labels
from ghar.data.tasks.next_visit import NextVisitTask, next_visit_samples
from ghar.data.tasks.stays import Leakage, TaskName, make_samples
from ghar.data.visit_codes import KIND_NAMES

pytestmark = pytest.mark.slow
MAPS = (
    *("meas_chartevents_main", "proc_datetimeevents", "proc_itemid"),
    *("inputevents_to_rxnorm", "outputevents_to_loinc"),
)
LEAKAGES: tuple[Leakage, ...] = ("paper", "strict")
CHARTEVENTS = {
    **dict.fromkeys(("subject_id", "hadm_id", "stay_id", "caregiver_id"), pl.Int64),
    **dict.fromkeys(("charttime", "storetime"), pl.String),
    **{"itemid": pl.Int64, "value": pl.String, "valuenum": pl.Float64, "valueuom": pl.String, "warning": pl.Int64},
}


@pytest.fixture(scope="module")
def written(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that MIMIC_IV_MEDS writes of the demo; skips, and says so, where it is not installed."""
    place = os.environ.get("GHAR_MIMIC_IV_MEDS")
    if not place or not (Path(place) / "meds-extract-run").is_file():
        pytest.skip("MIMIC_IV_MEDS is not installed (name its bin/ by GHAR_MIMIC_IV_MEDS)")
    work = tmp_path_factory.mktemp("mimic-iv-meds")
    tables, out = work / "tables", work / "out"
    for part in ("hosp", "icu"):
        shutil.copytree(shared_data / "mimic-iv-demo-2.2" / part, tables / part)
    pl.DataFrame(schema=CHARTEVENTS).write_parquet(tables / "icu" / "chartevents.parquet")
    known = gzip.decompress((shared_data / "codes/loinc/d_labitems_to_loinc.csv.gz").read_bytes())
    for name in ("d_labitems_to_loinc", *MAPS):
        (tables / f"{name}.csv").write_bytes(known)
    command = ["meds-extract-run", "spec=MIMIC-IV", f"output_dir={out}", "do_download=false", f"input_dir={tables}"]
    environment = {**os.environ, "PATH": f"{Path(place).resolve()}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    ran = subprocess.run([*command, "dataset_key=demo"], env=environment, cwd=work, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    for part in ("data", "metadata"):  # beside them lie the tables of its stages
        shutil.move(out / part, work / "meds" / part)
    return work / "meds"


@pytest.fixture(scope="module")
def pair(written: Path, shared_data: Path) -> tuple[Cohort, Cohort]:
    """The cohort of the tables, and the one of the MEDS folder."""
    return read_mimic4(shared_data / "mimic-iv-demo-2.2"), read_meds(written)


def samples_of(cohort: Cohort) -> dict[str, dict[int, Sample]]:
    """Task and leakage -> visit -> sample."""
    tasks: tuple[TaskName, ...] = ("los", "read", "dec")
    kinds: tuple[NextVisitTask, ...] = ("mortality", "readmission")
    found = {f"{t} {mode}": make_samples(cohort, t, leakage=mode)[1] for t in tasks for mode in LEAKAGES}
    found |= {f"{k} {mode}": next_visit_samples(cohort, k, leakage=mode)[1] for k in kinds for mode in LEAKAGES}
    return {name: {sample.visit_id: sample for sample in samples} for name, samples in found.items()}


def test_labels_and_prediction_times_of_visits_are_equal(pair: tuple[Cohort, Cohort]) -> None:
    tables, meds = map(samples_of, pair)
    for name in tables:
        assert tables[name].keys() == meds[name].keys()
        for visit, sample in tables[name].items():
            other = meds[name][visit]
            assert (sample.label, sample.prediction_time) == (other.label, other.prediction_time), (name, visit)


def test_codes_of_visits_are_equal_but_for_their_order_and_the_drugs(pair: tuple[Cohort, Cohort], demo: Path) -> None:
    """It writes neither seq_num nor the date of a procedure, and drugs as the pharmacy names them. Drugs have the
    number of their order in both; in two visits one name has two orders of one start, and the first is named otherwise.

    Its rows of diagnoses and procedures stand as the table's rows do. Where these are sorted by seq_num, the ranks are
    not lost; those of the open demo are not.
    """
    tables, meds = (cohort.shown.visits for cohort in pair)
    assert tables.keys() == meds.keys() and len(tables) == 275
    sets, orders = dict.fromkeys(KIND_NAMES, 0), dict.fromkeys(KIND_NAMES, 0)
    for visit in tables:
        for kind in KIND_NAMES:
            one, other = getattr(tables[visit], kind), getattr(meds[visit], kind)
            sets[kind] += set(one) == set(other)
            orders[kind] += one == other
    assert sets == {"diagnoses": 275, "procedures": 275, "medications": 134}
    assert orders == {"diagnoses": 2, "procedures": 200, "medications": 132}
    for name, kind, rows in (("diagnoses_icd", "diagnoses", 275), ("procedures_icd", "procedures", 187)):
        table = pl.read_csv(demo / "hosp" / f"{name}.csv.gz", infer_schema=False).with_columns(
            pl.col("hadm_id").cast(pl.Int64), code=pl.col("icd_code").str.strip_chars()
        )
        by_row = table.unique(["hadm_id", "icd_version", "code"], keep="first", maintain_order=True)
        by_row = dict(by_row.group_by("hadm_id", maintain_order=True).agg("code").iter_rows())
        found = {visit: [code.partition("/")[2] for code in getattr(meds[visit], kind)] for visit in by_row}
        assert found == by_row and len(found) == rows


def test_labels_of_events_differ_by_counted_rules(pair: tuple[Cohort, Cohort]) -> None:
    """guo_readmission and lab_anemia look at a patient's first and last event, and MEDS has more tables (pharmacy, omr,
    transfers). Of haemoglobins at one minute the first counts, and it orders them otherwise."""
    tasks: tuple[EhrshotTask, ...] = ("guo_los", "guo_readmission", "new_acutemi", "lab_anemia")
    found = {}
    for task in tasks:
        one, other = (ehrshot_labels(cohort, task)[0] for cohort in pair)
        both = one.join(other, on=["subject_id", "prediction_time"])
        equal = both.filter(pl.col("label") == pl.col("label_right")).height
        found[task] = (one.height, other.height, both.height, equal)
    assert found == {
        "guo_los": (262, 262, 262, 262),
        "guo_readmission": (192, 213, 192, 192),
        "new_acutemi": (225, 225, 225, 225),
        "lab_anemia": (2875, 2909, 2873, 2872),
    }


def test_what_records_say_beside_codes_is_equal(pair: tuple[Cohort, Cohort], shared_data: Path) -> None:
    """Who lies where, of all. Of values MEDS lacks those in comments, and it gives 99.8% of results their own
    drawing; it names items by LOINC and has no reference ranges."""
    roots = (shared_data / "mimic-iv-demo-2.2", None)
    told = [
        {s.visit_id: s for s in with_findings(make_samples(cohort, "dec", leakage="strict")[1], cohort, root)}
        for cohort, root in zip(pair, roots, strict=True)
    ]
    about = sum(told[0][visit].history[-1].about == told[1][visit].history[-1].about for visit in told[0])
    assert (len(told[0]), about) == (275, 275)
    assert [sum(len(sample.history[-1].values) for sample in each.values()) for each in told] == [14041, 11741]
