"""launch/convert_graph.py: graphs of every shape become one table in PrimeKG's format, with the same facts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import polars as pl
import pytest

from ghar.errors import BadInput
from ghar.kg.convert import FORMS, convert
from ghar.kg.primekg import COLUMNS, read_primekg
from tests.kg import test_umls
from tests.kg.test_edges import NODES, SIF, facts
from tests.running import run_python

ROOT = Path(__file__).resolve().parents[2]
TYPES = "".join(f"{cui}|{tui}|A1.2|{kind}|AT1||\n" for cui, tui, kind in [
    ("C0001", "T033", "Finding"), ("C0001", "T047", "Disease or Syndrome"), ("C0002", "T184", "Sign or Symptom"),
    ("C0003", "T109", "Organic Chemical"), ("C0003", "T121", "Pharmacologic Substance"),
])  # fmt: skip


@pytest.fixture
def hetionet(tmp_path: Path) -> Path:
    (tmp_path / "nodes.tsv").write_text(NODES)
    (tmp_path / "edges.sif").write_text(SIF)
    return tmp_path / "edges.sif"


@pytest.mark.parametrize("form", FORMS)
def test_the_facts_are_those_of_the_source(hetionet: Path, tmp_path: Path, form: str) -> None:
    target = tmp_path / "out" / f"kg{form}"
    rows = convert(hetionet, target)
    assert rows.columns == list(COLUMNS) and rows.height == 3
    assert facts(read_primekg(target)) == facts(read_primekg(hetionet))
    again = convert(target, tmp_path / "again.parquet")
    assert again.equals(rows) and [path.name for path in target.parent.iterdir()] == [f"kg{form}"]


def test_umls_with_its_types(tmp_path: Path) -> None:
    folder = test_umls.write(tmp_path)
    with pytest.raises(BadInput, match=r"MRSTY\.RRF: no such file"):
        convert(folder, tmp_path / "kg.csv")
    (folder / "MRSTY.RRF").write_text(TYPES)
    convert(folder, tmp_path / "kg.csv")
    assert facts(read_primekg(tmp_path / "kg.csv")) == {
        ("disease", 'Failure, "heart"', "has_finding", "effect/phenotype", "Oedema"),
        ("effect/phenotype", "Oedema", "is_child_of", "disease", 'Failure, "heart"'),
        ("drug", "Furosemide", "may_treat", "disease", 'Failure, "heart"'),
    }
    assert set(pl.read_csv(tmp_path / "kg.csv", infer_schema=False)["x_id"]) == {"C0001", "C0002", "C0003"}
    (folder / "MRSTY.RRF").write_text(TYPES.replace("C0002", "C0009"))
    with pytest.raises(BadInput, match="has no type of 1 concepts, as C0002"):
        convert(folder, tmp_path / "kg.csv")


@pytest.mark.parametrize("target, said", [("kg.txt", r"let it end with \.csv"), ("edges.sif", "let it end"),
                                          ("edges.csv", "is the graph that is read")])  # fmt: skip
def test_where_it_cannot_be_written(hetionet: Path, tmp_path: Path, target: str, said: str) -> None:
    source = hetionet if target != "edges.csv" else hetionet.rename(tmp_path / target)
    with pytest.raises(BadInput, match=said):
        convert(source, tmp_path / target)


@pytest.mark.slow
def test_the_command(hetionet: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_python(ROOT / "launch/convert_graph.py", *arguments, cwd=tmp_path)

    done = run("edges.sif", "kg.csv.gz")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("kg.csv.gz: 4 nodes of 4 types (disease, drug, gene/protein, pharmacologic class), "
                           "3 edges of 3 meta-paths\n")  # fmt: skip
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    for words, said in ((["other.csv", "kg.csv"], "has the columns a, b: a graph is"), (["other.csv"], "are wanted")):
        done = run(*words)
        assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
