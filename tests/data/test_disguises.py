"""62 ways in which credentialed patients, or texts beside open ones, come dressed as open or generated: none passes.

Each is a folder that a user might really have, by mistake or in a hurry. What the open demos and GHAR's own worlds are
stays known beside them, packed as PhysioNet packs them or not.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ghar.config import DataConfig
from ghar.data.readers.meds import read_meds
from ghar.data.readers.meds_export import write_meds
from ghar.data.readers.notes import read_notes
from ghar.data.readers.source import origin
from ghar.envs.worlds.severity.notes import write_notes
from ghar.envs.worlds.severity.world import generate_world
from ghar.errors import BadInput
from ghar.provenance import GENERATED, Provenance, learned_from_credentialed, signed_mark, write_mark
from ghar.seal import SEAL, seal
from tests.data.conftest import write_mimic4

Dress = Callable[[Path], None]
LIST = "subject_id\n1\n2\n"


def said(**values: object) -> Dress:
    """A manifest.json that says something."""
    return lambda root: (root / "manifest.json").write_text(json.dumps(values)) and None


def wrote(name: str, text: str) -> Dress:
    def dress(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    return dress


def sums_of_its_own(root: Path) -> None:
    """A seal whose sums are right, and no signature."""
    seal(root, {"generated": True, "credentialed": False})


def forged(signature: object) -> Dress:
    return lambda root: seal(root, {"generated": True, "credentialed": False, "signature": signature})


def mimic4(root: Path) -> Path:
    return write_mimic4(root)


# Tables of unknown patients in MIMIC-IV's format, with something beside them.
BESIDE: dict[str, Dress] = {
    "nothing": lambda root: None,
    "a list of its ids": wrote("demo_subject_id.csv", LIST),
    "manifest: generated": said(generated=True),
    "manifest: generated, with parameters": said(generated=True, parameters={"seed": 0, "patients": 2}),
    "manifest: credentialed false": said(credentialed=False),
    "manifest: credentialed null": said(credentialed=None),
    "manifest: generated as text": said(generated="true"),
    "manifest: generated 1": said(generated=1),
    "manifest broken": wrote("manifest.json", "{generated"),
    "ghar.json open": wrote("ghar.json", '{"generated": true, "credentialed": false, "counts": {}}'),
    "seal without signature": sums_of_its_own,
    "seal, signature empty": forged(""),
    "seal, signature null": forged(None),
    "seal, signature true": forged(True),
    "seal, signature zeros": forged("0" * 64),
    "seal, signature not ASCII": forged("é" * 32),
    "seal, signature a list": forged(["a"]),
    "seal empty": wrote(SEAL, "{}"),
    "seal broken": wrote(SEAL, "not json"),
    "provenance.json": wrote("provenance.json", '{"generated": true, "credentialed": false}'),
    "README of the demo": wrote("README.txt", "MIMIC-IV Clinical Database Demo 2.2, ODbL"),
    "SHA256SUMS of the demo": wrote("SHA256SUMS.txt", "59dcc6cd hosp/patients.csv.gz"),
    "truth.parquet": wrote("truth.parquet", "PAR1"),
    "entities.csv": wrote("entities.csv", "code,name,tier,severity,textbook\n"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_words_beside_tables_say_nothing(tmp_path: Path, name: str):
    root = mimic4(tmp_path / "in")
    BESIDE[name](root)
    assert origin(data("mimic4", root)) == Provenance() and signed_mark(root) == Provenance()


# A generated world, signed by this machine, and then changed.
CHANGED: dict[str, Dress] = {
    "a table exchanged": lambda root: shutil.copy(
        write_mimic4(root.with_name("real")) / "hosp/patients.csv", root / "hosp/patients.csv"
    )
    and (root / "hosp/patients.csv.gz").unlink(),
    "a table added": wrote("icu/chartevents.csv", "subject_id\n"),
    "a table added in another case": wrote("ICU/chartevents.csv", "subject_id\n"),
    "a table removed": lambda root: (root / "hosp/labevents.csv.gz").unlink(),
    "a row added": lambda root: append(root / "hosp/prescriptions.csv.gz", b"10000000,20000000\n"),
    "rows added and sealed again": lambda root: sealed_again(root),
    "the seal of another world": lambda root: take_seal(root, world(root.with_name("other"), 9)),
    "an old time kept": lambda root: keep_time(root / "hosp/admissions.csv.gz"),
    "a folder of links": lambda root: link_in(root),
    "notes put in": wrote("note/discharge.csv", "note_id,subject_id\n"),
    "links to itself": lambda root: [(root / name).symlink_to(root) for name in "abc"] and None,
    "a seal further down": wrote(f"hosp/{SEAL}", "{}"),
    "a folder in another case": lambda root: (root / "hosp").rename(root / "HOSP") and None,
    "a pipe": lambda root: os.mkfifo(root / "hosp/notes"),
    "a link that leads nowhere": lambda root: (root / "icu/notes.csv").symlink_to(root / "nowhere"),
    "a name that is no text": lambda root: (root / os.fsdecode(b"hosp/\xff.csv")).touch(),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGED)
def test_a_signed_world_is_one_only_as_it_was_signed(tmp_path: Path, name: str):
    root = world(tmp_path / "world")
    assert origin(data("mimic4", root)) == GENERATED
    CHANGED[name](root)
    assert origin(data("mimic4", root)).credentialed


def test_another_machine_s_signature_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root = world(tmp_path / "world")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))
    assert signed_mark(root) == Provenance()
    generate_world(root, seed=3, patients=20)  # made again, and signed here
    assert signed_mark(root) == GENERATED


# The open demo of PhysioNet, and what is nearly it.
NEARLY: dict[str, Dress] = {
    "one cell": lambda root: rewrite(root / "hosp/admissions.csv.gz", lambda text: text.replace("URGENT", "urgent", 1)),
    "one drug": lambda root: rewrite(root / "hosp/prescriptions.csv.gz", lambda t: t + t.splitlines()[1] + "\n"),
    "labs of others": lambda root: rewrite(root / "hosp/labevents.csv.gz", lambda t: "\n".join(t.splitlines()[:9])),
    "a patient left out": lambda root: rewrite(root / "hosp/patients.csv.gz", lambda t: "\n".join(t.splitlines()[:-1])),
    "charts of others": wrote("icu/chartevents.csv", "subject_id,hadm_id,stay_id\n"),
    "rows in a second member": lambda root: exchange(root, lambda whole: whole + gzip.compress(b"10,20,2150-01-01\n")),
    "bytes behind": lambda root: exchange(root, lambda whole: whole + b"subject_id"),
    "a byte order mark": lambda root: rewrite(root / "hosp/patients.csv.gz", lambda t: "\ufeff" + t),
    "line ends of Windows": lambda root: rewrite(root / "hosp/patients.csv.gz", lambda t: t.replace("\n", "\r\n")),
    "a table as parquet": lambda root: to_parquet(root / "hosp/diagnoses_icd.csv.gz"),
    "rows in another order": lambda root: rewrite(
        root / "hosp/procedures_icd.csv.gz", lambda t: "\n".join([t.splitlines()[0], *t.splitlines()[:0:-1]])
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEARLY)
def test_nearly_the_open_demo_is_not_the_open_demo(tmp_path: Path, demo: Path, name: str):
    root = copy_of(demo, tmp_path / "demo")
    assert not origin(data("mimic4", root)).credentialed
    NEARLY[name](root)
    assert origin(data("mimic4", root)).credentialed


@pytest.mark.parametrize("name", ["HOSP/admissions.csv.gz", "hosp/ADMISSIONS.csv.gz"])
def test_a_table_of_others_beside_the_open_demo_s_own(tmp_path: Path, demo: Path, name: str):
    root, others = copy_of(demo, tmp_path / "demo"), write_mimic4(tmp_path / "others")
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_bytes(gzip.compress((others / "hosp/admissions.csv").read_bytes()))
    with pytest.raises(BadInput, match="holds the table hosp/admissions more than once, as "):
        origin(data("mimic4", root))


def test_the_open_demos_are_known_packed_or_not(tmp_path: Path, demo: Path, shared_data: Path, demo_eicu: Path):
    root = copy_of(demo, tmp_path / "demo")
    rewrite(root / "hosp/admissions.csv.gz", lambda text: text, packed=False)
    assert not origin(data("mimic4", root)).credentialed
    assert not origin(data("mimic3", shared_data / "mimic-iii-demo-1.4")).credentialed
    assert not origin(data("eicu", demo_eicu)).credentialed
    assert origin(data("eicu", demo_eicu / "subset_174_stays")).credentialed
    assert origin(data("mimic3", demo)).credentialed


# MEDS folders: what ghar.json says counts only where the folder is signed.
MEDS: dict[str, Dress] = {
    "credentialed false": wrote("ghar.json", '{"credentialed": false}'),
    "credentialed null": wrote("ghar.json", '{"credentialed": null, "generated": null}'),
    "generated": wrote("ghar.json", '{"generated": true, "credentialed": false, "counts": {}, "stay": "hospital"}'),
    "sealed": lambda root: (wrote("ghar.json", '{"credentialed": false}')(root), sums_of_its_own(root)) and None,
    "dataset.json": wrote("metadata/dataset.json", '{"dataset_name": "mimic-iv-demo"}'),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MEDS)
def test_meds_folders_from_elsewhere(tmp_path: Path, name: str):
    root = meds(tmp_path)
    for written in (SEAL, "ghar.json"):
        (root / written).unlink()
    MEDS[name](root)
    assert read_meds(root).credentialed and not read_meds(root).generated


@pytest.mark.slow
@pytest.mark.parametrize("text", [
    "", "{", '{"counts": 7}', '{"counts": {"a": "x"}}', '{"added": 7}', '{"stay": "hotel"}', "[1]", "null", "\ud800",
])  # fmt: skip
def test_a_broken_ghar_json_is_named(tmp_path: Path, text: str):
    root = meds(tmp_path)
    (root / "ghar.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(BadInput, match=r"ghar\.json cannot be read .*: correct it, or delete it"):
        read_meds(root)


@pytest.mark.slow
def test_a_meds_export_carries_its_origin_and_changed_ones_lose_it(tmp_path: Path):
    root = meds(tmp_path)
    assert read_meds(root).generated and not read_meds(root).credentialed
    labels = root / "labels"
    labels.mkdir()
    pl.DataFrame({"subject_id": [1]}).write_parquet(labels / "guo_los.parquet")  # labels of unknown origin
    assert read_meds(root).credentialed
    assert origin(data("meds", root)).credentialed


def test_notes_beside_open_tables(tmp_path: Path):
    root = world(tmp_path / "world")
    write_notes(root, tmp_path / "notes")
    assert not read_notes(tmp_path / "notes", tmp_path / "cache").credentialed
    real = tmp_path / "real" / "note"
    shutil.copytree(tmp_path / "notes" / "note", real)
    (real.parent / "manifest.json").write_text('{"generated": true}')
    found = read_notes(real.parent, tmp_path / "cache")
    assert found.credentialed and not found.generated


def test_models_say_what_they_have_learned_from(tmp_path: Path):
    for text, found in (("{}", True), ("null", True), ("{", True), ('{"credentialed": false}', False)):
        (tmp_path / "provenance.json").write_text(text)
        assert learned_from_credentialed(tmp_path) is found, text
    write_mark(tmp_path, True)
    assert learned_from_credentialed(tmp_path)
    (tmp_path / "provenance.json").unlink()
    assert not learned_from_credentialed(tmp_path)  # a model from elsewhere
    (tmp_path / "manifest.json").write_text("{}")
    assert learned_from_credentialed(tmp_path)  # one of ours that says nothing


def test_how_many() -> None:
    others = 6  # another machine's signature, labels, notes, a model that says nothing, two tables of others
    assert len(BESIDE) + len(CHANGED) + len(NEARLY) + len(MEDS) + others == 62


def data(name: str, root: Path) -> DataConfig:
    nothing: dict[str, Any] = dict.fromkeys(field.name for field in fields(DataConfig))
    return DataConfig(**nothing | {"name": name, "root": str(root)})


def world(root: Path, seed: int = 3) -> Path:
    generate_world(root, seed=seed, patients=20)
    return root


def meds(tmp_path: Path) -> Path:
    from ghar.data.readers.mimic4 import read_mimic4

    write_meds(replace(read_mimic4(world(tmp_path / "world"), charts=False)), tmp_path / "meds")
    return tmp_path / "meds"


def copy_of(demo: Path, root: Path) -> Path:
    for path in files(demo):
        (root / path.relative_to(demo)).parent.mkdir(parents=True, exist_ok=True)
        (root / path.relative_to(demo)).symlink_to(path)
    return root


def files(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*.csv.gz"))


def rewrite(path: Path, change: Callable[[str], str], packed: bool = True) -> None:
    text = change(gzip.decompress(path.read_bytes()).decode()).encode()
    path.unlink()
    (path if packed else path.with_suffix("")).write_bytes(gzip.compress(text) if packed else text)


def exchange(root: Path, change: Callable[[bytes], bytes]) -> None:
    """Other bytes in place of a linked table."""
    path = root / "hosp/admissions.csv.gz"
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(change(whole))


def append(path: Path, row: bytes) -> None:
    with path.open("ab") as file:
        file.write(gzip.compress(row))


def sealed_again(root: Path) -> None:
    append(root / "hosp/patients.csv.gz", b"1,F,50,2150,x,\n")
    seal(root, json.loads((root / SEAL).read_text())["about"])


def take_seal(root: Path, other: Path) -> None:
    shutil.copy(other / SEAL, root / SEAL)


def to_parquet(path: Path) -> None:
    pl.read_csv(path, infer_schema=False).write_parquet(path.with_name(path.name.replace(".csv.gz", ".parquet")))
    path.unlink()


def keep_time(path: Path) -> None:
    """Other content of the same length, under the old times."""
    about, whole = path.stat(), path.read_bytes()
    path.write_bytes(hashlib.sha256(whole).digest() + whole[32:])
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def link_in(root: Path) -> None:
    """Tables of others, by a link to their folder."""
    others = write_mimic4(root.with_name("others"))
    shutil.rmtree(root / "icu")
    (root / "icu").symlink_to(others / "icu")
