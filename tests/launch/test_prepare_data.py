"""prepare_data from outside: what it prints and leaves behind."""

import json
import subprocess
from pathlib import Path

import polars as pl
import pytest

from tests.running import run_python

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def prepare(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python(ROOT / "launch" / "prepare_data.py", f"data.cache={folder / 'cache'}", *arguments, cwd=folder)


def test_the_demo_tables(shared_data: Path, tmp_path: Path) -> None:
    tables, codes = f"data.root={shared_data / 'mimic-iv-demo-2.2'}", f"data.codes={shared_data / 'codes'}"
    done = prepare(tmp_path, "data=mimic4", tables, codes, "run_dir=out")
    assert done.returncode == 0, done.stderr
    assert "patients 100   visits 275" in done.stdout and "no: 137 (78.3%)" in done.stdout
    assert (tmp_path / "out" / "dataset.txt").read_text() == done.stdout
    table = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert table["tasks"]["dec"]["labels"] == {"no": 260, "yes": 15}
    assert table["tasks"]["kare_readmission"]["labels"] == {"no": 80, "yes": 28}
    assert table["tasks"]["guo_los"]["labels"] == {"no": 170, "yes": 92}
    assert table["tasks"]["series_mortality"]["labels"] == {"no": 207, "yes": 13}
    drugs = {row["rule"]: row["events"] for row in table["mapping"]["by_rule"] if row["vocabulary"] == "DRUG"}
    assert drugs == {"name": 13657, "ndc": 564, "part": 5, None: 184}
    assert table["mapped"]["as in GHAR"]["medications"]["different"] == 151
    assert sorted(f.name for f in (tmp_path / "out").iterdir()) == ["dataset.json", "dataset.txt"]


def test_subjects_without_visits_are_told_and_not_counted_as_nobody(tmp_path: Path) -> None:
    """200 subjects with a diagnosis each and no stay: refused, because no task of visits could ask about them."""
    (tmp_path / "meds/data").mkdir(parents=True)
    day = pl.datetime(2150, 1, 1)
    rows = pl.select(subject_id=pl.int_range(1, 201), time=day, code=pl.lit("ICD10CM/I509"))
    rows.write_parquet(tmp_path / "meds/data/0.parquet")
    done = prepare(tmp_path, "data=meds", "data.root=meds", "run_dir=out")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "The 200 patients of" in done.stderr and "no event begins a stay" in done.stderr


@pytest.mark.parametrize("arguments", [("data=mimic4",), ("data=meds", "data.root=nowhere")])
def test_what_is_missing_is_said_in_a_sentence(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = prepare(tmp_path, *arguments)
    assert done.returncode == 2 and "data.root" in done.stderr and "Traceback" not in done.stderr
