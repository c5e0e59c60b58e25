"""The generated world: same seed, same bytes; tables, graph and truth tell one story."""

import gzip
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ghar.envs.worlds.severity import World, generate_world, load_world, world
from ghar.envs.worlds.severity.graph import KG_COLUMNS
from ghar.envs.worlds.severity.story import DEATH_FROM_ACUITY, LOS_EXACT
from ghar.envs.worlds.severity.tables import COLUMNS
from ghar.envs.worlds.severity.vocabulary import load_vocabulary, tail_words
from ghar.errors import BadInput


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> World:
    return generate_world(tmp_path_factory.mktemp("world") / "demo", seed=7)


def read(demo: World, name: str) -> pl.DataFrame:
    return pl.read_csv(demo.root / f"{name}.csv.gz", infer_schema_length=1000, try_parse_dates=True)


def entities_by_visit(demo: World) -> pl.DataFrame:
    """(visit_id, code, severity, tier) of every diagnosis and prescription, from the csv files."""
    diagnoses = read(demo, "hosp/diagnoses_icd").select(visit_id="hadm_id", code="ICD10CM/" + pl.col("icd_code"))
    drugs = read(demo, "hosp/prescriptions").select(
        visit_id="hadm_id", code="DRUG/" + pl.col("drug").str.to_lowercase()
    )
    both = pl.concat([diagnoses, drugs])
    return both.with_columns(
        severity=pl.col("code").replace_strict(dict(demo.severity)),
        tier=pl.col("code").replace_strict(dict(demo.tier)),
    )


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_same_seed_gives_same_bytes_and_another_seed_does_not(tmp_path: Path):
    first = files(generate_world(tmp_path / "a", seed=3, patients=60).root)
    assert first == files(generate_world(tmp_path / "b", seed=3, patients=60).root)
    other = files(generate_world(tmp_path / "c", seed=4, patients=60).root)
    assert first["kg/kg.csv.gz"] != other["kg/kg.csv.gz"]
    assert first["hosp/diagnoses_icd.csv.gz"] != other["hosp/diagnoses_icd.csv.gz"]


def test_finished_world_is_reused_and_a_different_one_is_refused(tmp_path: Path):
    root = generate_world(tmp_path / "a", seed=3, patients=20).root
    stamp = (root / "manifest.json").stat().st_mtime_ns
    generate_world(root, seed=3, patients=20)
    assert (root / "manifest.json").stat().st_mtime_ns == stamp
    with pytest.raises(BadInput, match="differs in patients"):
        generate_world(root, seed=3, patients=21)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BadInput, match="already holds something else"):
        generate_world(tmp_path, seed=0, patients=5)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_nothing_half_written_is_left_when_generation_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(world, "chunk_tables", broken)
    with pytest.raises(OSError, match="disk full"):
        generate_world(tmp_path / "a", seed=0, patients=5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [{"patients": 0}, {"labs_per_visit": -1}, {"seed": -1}])
def test_impossible_parameters(tmp_path: Path, wrong: dict[str, int]):
    with pytest.raises(BadInput, match="patients >= 1"):
        generate_world(tmp_path / "a", **({"seed": 0} | wrong))


def test_load_world_needs_a_world(tmp_path: Path):
    with pytest.raises(BadInput, match=r"manifest\.json"):
        load_world(tmp_path)


def test_chunks_are_appended_readably(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(world, "CHUNK", 16)
    demo = generate_world(tmp_path / "a", seed=1, patients=50, labs_per_visit=2)
    admissions = read(demo, "hosp/admissions")
    assert admissions["subject_id"].n_unique() == 50 == read(demo, "hosp/patients").height
    assert admissions.height == demo.truth.height == demo.manifest["sizes"]["hosp/admissions"]
    assert read(demo, "hosp/labevents").height == 2 * demo.truth.height
    assert read(demo, "hosp/labevents")["labevent_id"].n_unique() == 2 * demo.truth.height


def test_no_labs_still_gives_a_header(tmp_path: Path):
    root = generate_world(tmp_path / "a", seed=1, patients=5, labs_per_visit=0).root
    assert gzip.decompress((root / "hosp/labevents.csv.gz").read_bytes()).decode().startswith("labevent_id,")


@pytest.mark.slow
def test_columns_are_those_of_mimic(demo: World, shared_data: Path):
    for name, columns in COLUMNS.items():
        real = gzip.open(shared_data / "mimic-iv-demo-2.2" / f"{name}.csv.gz", "rt").readline().strip()
        ours = gzip.open(demo.root / f"{name}.csv.gz", "rt").readline().strip()
        assert ours == columns == real, name


@pytest.mark.slow
def test_graph_columns_and_relations_are_those_of_primekg(demo: World, shared_data: Path):
    real = pl.read_csv(shared_data / "kg/primekg-subset/merged_kg_12col.csv.gz", infer_schema=False)
    assert real.columns == list(KG_COLUMNS) == read(demo, "kg/kg").columns
    triple = ["x_type", "relation", "display_relation", "y_type"]
    known = set(real.select(triple).unique().rows())
    # The subset has no edges of these four relations of the full PrimeKG.
    absent = ["drug_drug", "anatomy_protein_present", "bioprocess_protein"]
    ours = read(demo, "kg/kg").filter(~pl.col("relation").is_in(absent)).select(triple).unique()
    assert set(ours.rows()) <= known
    references = pl.read_csv(shared_data / "kg/primekg-subset/txgnn_mondo_references.csv.gz", n_rows=1)
    assert read(demo, "kg/mondo_references").columns == references.columns


def test_vocabulary_is_real(shared_data: Path):
    vocabulary = load_vocabulary(0)
    order = pl.read_csv(shared_data / "codes/icd/icd10cm-order-Jan-2021.csv.gz", infer_schema=False)
    billable = dict(order.filter(pl.col("billable") == "1").select("code", "long").rows())
    assert all(billable[code] == name for code, name in vocabulary.conditions.select("code", "name").rows())
    mimic = shared_data / "mimic-iv-demo-2.2/hosp"
    procedures = pl.read_csv(mimic / "d_icd_procedures.csv.gz", infer_schema=False).filter(icd_version="10")
    titles = dict(procedures.select("icd_code", "long_title").rows())
    assert all(titles[code] == name for code, name in vocabulary.procedures.select("code", "name").rows())
    atc = dict(pl.read_csv(shared_data / "codes/atc-ndc-rxnorm/atc_coding.csv.gz", infer_schema=False).rows())
    assert all(atc[code] == name.lower() for code, name in vocabulary.drugs.select("atc", "name").rows())
    labs = pl.read_csv(mimic / "d_labitems.csv.gz", infer_schema=False)
    assert set(vocabulary.labs.select("code", "name").rows()) <= set(labs.select("itemid", "label").rows())


def test_vocabulary_names_are_safe_and_unique():
    vocabulary = load_vocabulary(4_000)
    kinds = [vocabulary.conditions, vocabulary.drugs, vocabulary.targets]
    names = pl.concat(kinds)["name"].str.to_lowercase()
    assert names.n_unique() == names.len() == 95 + 3 * 4_000
    assert vocabulary.conditions["code"].n_unique() == 4_060
    words = tail_words(4_000)
    assert len(set(words)) == len(words) < 400
    assert {word for name in vocabulary.targets["name"] for word in name.split()} <= set(words)
    every = pl.concat([vocabulary.conditions, vocabulary.drugs, vocabulary.procedures, vocabulary.labs])["name"]
    assert not every.str.contains(r"[;|]").any()


def test_truth_follows_from_the_tables(demo: World):
    entities = entities_by_visit(demo)
    assert not entities.select("visit_id", "code").is_duplicated().any()
    recounted = (
        entities.group_by("visit_id")
        .agg(
            acuity=pl.col("severity").max(),
            look_ups=(pl.col("tier") == "rare").sum() + (pl.col("code").is_in(list(demo.target))).sum(),
        )
        .join(demo.truth, on="visit_id", how="full", suffix="_truth")
    )
    assert (recounted["acuity"] == recounted["acuity_truth"]).all()
    assert (recounted["look_ups"] == recounted["look_ups_truth"]).all()
    assert (recounted["needs_retrieval"] == (recounted["look_ups"] > 0)).all()
    rare = entities.filter(tier="rare")
    assert rare["code"].n_unique() > 0.95 * rare.height > 2_000  # thousands, each seen about once


def test_outcomes_in_the_tables_are_the_labels_in_the_truth(demo: World):
    stays = (
        read(demo, "hosp/admissions")
        .sort("subject_id", "admittime")
        .join(demo.truth.rename({"visit_id": "hadm_id"}).drop("subject_id"), on="hadm_id", validate="1:1")
    )
    days = (pl.col("dischtime") - pl.col("admittime")).dt.total_minutes() / 1440
    stays = stays.with_columns(
        days=days,
        gap=(pl.col("admittime").shift(-1) - pl.col("dischtime")).over("subject_id").dt.total_minutes() / 1440,
    ).with_columns(label=pl.when(pl.col("days") > 14).then(9).otherwise(pl.col("days").floor().clip(upper_bound=8)))
    assert (stays["label"] == stays["los"]).all()
    assert (stays["hospital_expire_flag"] == stays["dec"]).all()
    dead = stays.filter(pl.col("dec") == 1)
    assert (dead["deathtime"] == dead["dischtime"]).all() and (dead["discharge_location"] == "DIED").all()
    assert dead["gap"].null_count() == dead.height
    assert stays.filter(pl.col("dec") == 0)["deathtime"].null_count() == stays.height - dead.height
    seen_again = stays.filter(pl.col("gap").is_not_null())
    assert ((seen_again["gap"] <= 15).cast(pl.Int64) == seen_again["read"]).all()
    assert seen_again["gap"].min() >= 1
    assert stays.filter(pl.col("gap").is_null())["read"].null_count() == stays.height - seen_again.height


def test_noise_and_rates_are_the_storys(demo: World):
    truth, rates = demo.truth, demo.manifest["rates"]
    exact = (truth["los"] == truth["acuity"]).mean()
    assert LOS_EXACT - 0.015 < exact < LOS_EXACT + 0.03  # the clipped ends count as exact
    assert ((truth["los"] - truth["acuity"]).abs() <= 1).all()
    by_acuity = truth.group_by(pl.col("acuity") >= DEATH_FROM_ACUITY).agg(pl.col("dec").mean())
    assert dict(by_acuity.rows()) == pytest.approx({True: 0.8, False: 0.01}, abs=0.05)
    assert rates["needs_retrieval"] == pytest.approx(0.6, abs=0.03)
    assert rates["two_steps"] == pytest.approx(1 / 3, abs=0.03)
    assert 0.05 < rates["dec"] < 0.20 and 0.20 < rates["read"] < 0.60
    assert len(rates["los"]) == 10 and max(rates["los"].values()) < 0.30
    per_patient = truth.group_by("subject_id").len()["len"]
    assert 2.0 < per_patient.mean() < 2.5 and per_patient.max() <= 8


def test_admission_ids_are_in_no_time_order(demo: World):
    order = read(demo, "hosp/admissions").sort("subject_id", "admittime")
    step = order.select(pl.col("hadm_id").diff().over("subject_id")).drop_nulls().to_series()
    assert 0.3 < (step > 0).mean() < 0.7


def test_labs_become_known_after_they_are_drawn(demo: World):
    labs = read(demo, "hosp/labevents")
    delay = (labs["storetime"] - labs["charttime"]).dt.total_minutes() / 60
    assert delay.min() > 0 and 0.8 < delay.median() < 1.5
    assert all(labs[blank].null_count() > 0 for blank in ("hadm_id", "storetime", "valuenum"))


def test_common_severities_can_be_learned_from_the_training_patients(demo: World):
    """Maximum likelihood by coordinate ascent on the visits without rare entities of 60% of the patients."""
    truth = demo.truth.filter(~pl.col("needs_retrieval") & (pl.col("subject_id") % 5 < 3))
    rows = entities_by_visit(demo).join(truth.select("visit_id", "los"), on="visit_id")
    codes = [code for code, tier in demo.tier.items() if tier == "common"]
    column = rows["code"].replace_strict({c: i for i, c in enumerate(codes)}).to_numpy()
    visit = rows["visit_id"].rank("dense").to_numpy() - 1
    has = np.zeros((visit.max() + 1, len(codes)), dtype=bool)
    has[visit, column] = True
    los = np.zeros(len(has), dtype=int)
    los[visit] = rows["los"].to_numpy()
    guess = np.zeros(len(codes), dtype=int)
    grades = np.arange(10)
    for _ in range(4):
        for entity in range(len(codes)):
            mine = has[:, entity]
            others = np.where(has[mine] & (np.arange(len(codes)) != entity), guess, 0).max(axis=1)
            off = np.abs(np.maximum(others[:, None], grades) - los[mine][:, None])
            guess[entity] = np.argmax(np.choose(np.minimum(off, 2), np.log([0.93, 0.035, 1e-4])).sum(axis=0))
    assert np.mean(guess == [demo.severity[c] for c in codes]) > 0.85


@pytest.mark.slow
def test_graph_states_the_textbook_grade_once_and_is_closed_under_reversal(demo: World):
    kg = read(demo, "kg/kg")
    ends = [(f"x_{c}", f"y_{c}") for c in ("index", "id", "type", "name", "source")]
    swapped = kg.rename({a: b for x, y in ends for a, b in ((x, y), (y, x))}).select(kg.columns)
    assert set(kg.rows()) == set(swapped.rows()) and len(set(kg.rows())) == kg.height
    grade = kg.filter(
        pl.col("relation").is_in(["disease_phenotype_positive", "drug_effect"])
        & pl.col("y_name").str.ends_with("course")
    )
    stated = dict(grade.select("x_name", pl.col("y_name").str.extract(r"grade (\d) course").cast(pl.Int64)).rows())
    assert len(stated) == grade.height
    names = pl.read_csv(demo.root / "entities.csv").with_columns(pl.col("name").str.to_lowercase())
    rare, drugs = names.filter(tier="rare"), names.filter(pl.col("target").is_not_null())
    at_once = names.filter(pl.col("target").is_null())
    assert all(stated[name] == textbook for name, textbook in at_once.select("name", "textbook").rows())
    behind = kg.filter(display_relation="target").select("x_name", "y_name")
    assert set(drugs.select("name", "target").rows()) <= set(behind.rows())
    course = kg.filter(relation="phenotype_protein").filter(pl.col("y_name").str.ends_with("course"))
    grades = dict(course.select("x_name", pl.col("y_name").str.extract(r"(\d)").cast(pl.Int64)).rows())
    assert all(grades[target] == severity for target, severity in drugs.select("target", "severity").rows())
    assert len(grades) == drugs.height and not set(drugs["target"]) & set(names["name"])
    assert (rare["severity"] == rare["textbook"]).all()
    common = names.filter(tier="common")
    assert (common["severity"] != common["textbook"]).mean() == pytest.approx(0.6)


def test_look_alikes_never_state_the_grade_of_their_original(demo: World):
    kg = read(demo, "kg/kg").filter(relation="disease_phenotype_positive", x_type="disease")
    stated = dict(kg.filter(pl.col("y_name").str.ends_with("course")).select("x_name", "y_name").rows())
    originals = {n.lower() for n in load_vocabulary(demo.tail).conditions["name"]}
    for name in set(stated) - originals:
        original = max((o for o in originals if name.startswith(o)), key=len)
        assert stated[name] != stated[original]


def test_references_lead_from_dotted_icd_codes_to_disease_nodes(demo: World):
    references = read(demo, "kg/mondo_references")
    kg = read(demo, "kg/kg").filter(x_type="disease").select("x_id", "x_name").unique()
    joined = references.with_columns(pl.col("mondo_id").cast(pl.String)).join(
        kg.with_columns(pl.col("x_id").cast(pl.String)), left_on="mondo_id", right_on="x_id"
    )
    found = {code.replace(".", ""): name for code, name in joined.select("ontology_id", "x_name").rows()}
    assert found == {c: n.lower() for c, n in load_vocabulary(demo.tail).conditions.select("code", "name").rows()}


def test_manifest_says_that_the_patients_are_generated(demo: World):
    manifest = json.loads((demo.root / "manifest.json").read_text())
    assert manifest["generated"] is True and "severity" in manifest["story"]
    assert 0.5 < manifest["ceilings"]["los"]["parametric"] < 0.6
    assert 0.92 < manifest["ceilings"]["los"]["retrieval"] < 0.95
