"""Abstracts: what is kept, what is counted, what is refused; and the demo world's generated ones."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ghar.envs.kare.graph.abstracts import read_abstracts
from ghar.envs.worlds.severity.abstracts import write_abstracts
from ghar.envs.worlds.severity.world import generate_world
from ghar.errors import BadInput

ROWS = [
    {"pmid": 7, "title": "Gout", "abstract": "Uric acid,\n  crystals."},
    {"pmid": 9, "title": "Does it hurt?", "abstract": "Yes."},
    {"pmid": 8, "title": "Nothing more", "abstract": None},
    {"pmid": 7, "title": "Again", "abstract": "Repeated."},
    {"pmid": 3, "title": "", "abstract": "Naïve “text”."},
]
TEXTS = ["Gout. Uric acid, crystals.", "Does it hurt? Yes.", "Naïve “text”."]


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def table(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["title", "PMID", "abstract"])
    writer.writeheader()
    writer.writerows({"title": r["title"], "PMID": r["pmid"], "abstract": r["abstract"]} for r in rows)
    return text.getvalue().encode()


@pytest.mark.parametrize(("name", "data"), [
    ("a.jsonl", jsonl(ROWS)), ("a.jsonl.gz", gzip.compress(jsonl(ROWS))),
    ("a.csv", table(ROWS)), ("a.csv.gz", gzip.compress(table(ROWS))),
])
def test_every_format_tells_the_same(tmp_path: Path, name: str, data: bytes):
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / name).write_bytes(data)
    for _ in range(2):
        found = read_abstracts(folder, tmp_path / "cache")
        assert list(found.ids) == ["7", "9", "3"] and list(found.texts) == TEXTS and not found.generated
        assert found.counts == {"rows": 5, "without_abstract": 1, "repeated": 1}
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_files_are_read_by_name_and_a_new_one_is_noticed(tmp_path: Path):
    (tmp_path / "b.jsonl").write_bytes(jsonl(ROWS[:1]))
    before = read_abstracts(tmp_path, tmp_path / "cache").fingerprint
    (tmp_path / "a.csv").write_bytes(table(ROWS[1:2]))
    (tmp_path / "README.txt").write_text("no data")
    after = read_abstracts(tmp_path, tmp_path / "cache")
    assert list(after.ids) == ["9", "7"] and after.fingerprint != before


@pytest.mark.parametrize(("name", "data", "sentence"), [
    ("a.jsonl", jsonl(ROWS[:2]) + b"{oops\n", r"a\.jsonl, line 3 is no JSON"),
    ("a.jsonl", b'[1]\n', r"a\.jsonl, line 1 has no id \(or pmid\) or no abstract"),
    ("a.jsonl", b'{"title": "x", "abstract": "y"}\n', r"line 1 has no id"),
    ("a.csv", b"pmid,title,abstract\n1,a,b\n2,a,b,c\n", r"a\.csv, line 3 has more cells"),
    ("a.csv", b'pmid,title,text\n1,"a\nb",c\n', r"a\.csv, line 3 has no id \(or pmid\) or no abstract"),
    ("a.csv.gz", b"no gzip", r"a\.csv\.gz cannot be read"),
    ("a.jsonl", b'{"id": "\xff"}\n', r"a\.jsonl cannot be read"),
    ("a.jsonl", jsonl(ROWS[2:3]), r"none of its 1 rows has an abstract"),
    ("a.txt", b"", r"holds no abstracts: give a folder of \.jsonl"),
])
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str, data: bytes, sentence: str):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput, match=sentence):
        read_abstracts(tmp_path, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("worlds") / "world"
    generate_world(root, seed=3, patients=20)
    return root


def test_generated_abstracts_state_the_grades_of_the_graph(world: Path, tmp_path: Path):
    folder = tmp_path / "abstracts"
    write_abstracts(world, folder)
    found = read_abstracts(folder, tmp_path / "cache")
    assert found.generated and all("GENERATED ABSTRACT." in text for text in found.texts)
    entities = pl.read_csv(world / "entities.csv")
    about = pl.coalesce("target", pl.col("name").str.to_lowercase())  # a rare drug's grade is told of its target
    textbook = dict(entities.select(about, "textbook").iter_rows())
    seen = {}
    for text in found.texts:
        name, body = text.removeprefix("On ").split(". GENERATED ABSTRACT. ")
        grades = re.findall(rf"{re.escape(name)} (?:takes|leads to|brings) a grade (\d) course\.", body)
        assert len(grades) <= 1
        seen.update((name, int(grade)) for grade in grades)
    assert {name: seen[name] for name in textbook} == textbook and len(seen) > len(textbook)
    before = (folder / "abstracts.jsonl.gz").read_bytes()
    write_abstracts(world, tmp_path / "again")
    assert (tmp_path / "again" / "abstracts.jsonl.gz").read_bytes() == before


def test_another_folder_is_not_overwritten(world: Path, tmp_path: Path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(BadInput, match="holds something else than generated abstracts"):
        write_abstracts(world, tmp_path)
