"""Every study that is shipped runs to its tables with fixed rules, and its command line says what is wrong with it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.launch.study import ROOT, main, studies, workshop
from ghar.trainers.evaluation.evaluate import evaluate
from ghar.trainers.evaluation.retrievals import record_retrievals
from ghar.trainers.study.jobs import StudyJobs
from ghar.trainers.study.run import run_study
from ghar.trainers.study.schema import Cell, cells_of
from ghar.trainers.study.verify import verify
from tests.envs.exams import write_exam
from tests.envs.test_summaries import write_texts

ONE = {  # a task of each, for the smoke
    "ghar": "los", "ghar_settings": "los", "five_systems": "read", "four_sources": "los", "kare": "kare_readmission",
    "graphwalker": "series_mortality", "ehr_rag": "guo_los", "exprag": "dischargeqa_diagnosis",
    "ghar_questions": "medqa", "ghar_summaries": "summary",
}  # fmt: skip
SMALL = [
    "threads=1", "data.patients=120", "task.max_train=80", "task.max_valid=12", "task.max_test=16", "eval.bootstrap=20",
]  # fmt: skip
TIGHT = ["system.leiden_runs=2", "system.concepts=4", "system.path_count=4", "system.chains=1"]  # kare
OWN = ("ghar_questions", "ghar_summaries")  # read what no world generates
SECONDS = 240.0  # of processor time, for the smoke of all studies together
spent: dict[str, float] = {}
TRAINED = {  # the cell of each that is trained through every stage at scale=tiny, and the rows that it plays
    "ghar": ("ghar", ["ghar", "label_sft"]), "ghar_settings": ("paths1", ["paths1"]),
    "five_systems": ("ghar_rft", ["ghar_rft"]), "four_sources": ("past", ["past"]),
    "kare": ("label_only", ["no_reasoning"]),
    "graphwalker": ("k1", ["k1"]), "ehr_rag": ("ehr_rag", ["ehr_rag"]), "exprag": ("k5", ["k5"]),
    "ghar_questions": ("exprag", ["exprag"]), "ghar_summaries": ("lightrag", ["lightrag"]),
}  # fmt: skip
LONGEST = 180.0  # of processor time, for these trainings together; 94 where they were written
trained: dict[str, float] = {}


def where(name: str, folder: Path) -> list[str]:
    """What a study reads that no world generates: questions or texts, and their graph."""
    if name not in OWN:
        return []
    folder.mkdir(exist_ok=True)
    questions, graph = write_exam(folder)
    cohort = f"medqa:{questions}" if name == "ghar_questions" else f"summary:{write_texts(folder / 'bhc.csv')}"
    return [f"cohorts=[{cohort}]", f"kg.path={graph}"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def here(script: str, overrides: Sequence[str], run: Path) -> str | None:
    """A job in this process: nothing is trained at scale=rules."""
    assert script == "evaluate.py"
    try:
        evaluate(load(list(overrides)))
    except BadInput as error:
        return " ".join(str(error).split())
    return None


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ONE))
def test_a_shipped_study_comes_to_its_tables(name: str, cache: Path, tmp_path: Path) -> None:
    began = time.process_time()
    words = [f"study={name}", "scale=rules", f"tasks=[{ONE[name]}]", f"folder={tmp_path / 'study'}", *SMALL]
    words += where(name, tmp_path / "exam")
    shop, _ = workshop([*words, f"data.cache={cache}"])
    tight = tuple(replace(r, overrides=(*r.overrides, *(TIGHT if r.system == "kare" else ()))) for r in shop.study.runs)
    first = dict(list(shop.study.cohorts.items())[:1])  # one world of several: they differ in shares alone
    shop = replace(shop, study=replace(shop.study, runs=tight, cohorts=first), start=here)
    said: list[str] = []
    numbers = run_study(shop, said.append)
    left_out = {cell.id: shop.folder.reason(cell) for cell in cells_of(shop.study) if shop.folder.done(cell) is None}
    assert all("trains none" in str(reason) for reason in left_out.values()), left_out
    played = any("value" in part for found in numbers.values() for row in found["cells"].values()
                 for column in row.values() for part in column.values())  # fmt: skip
    assert played
    if name == "ghar":  # what a visit needs is the world's to say, whoever answers
        [needed] = (found["cells"] for key, found in numbers.items() if key.startswith("look_ups-"))
        at_none = [needed[row]["los/accuracy_look_ups@0"]["all"] for row in ("severities", "lightrag", "ghar")]
        assert all("value" in part for part in at_none)
    assert verify(shop.folder.path).wrong == ()
    page = (shop.folder.path / "report.html").read_text()
    assert "trains nothing" in page and ("patients are generated" in page or name in OWN)
    spent[name] = time.process_time() - began


@pytest.mark.slow
def test_a_study_is_of_validation_samples_where_its_test_stays_unopened(cache: Path, tmp_path: Path) -> None:
    """GraphWalker takes the samples of validation for its Figures 4 and 7."""
    words = ["study=exprag", "scale=rules", "tasks=[dischargeqa_medication]", f"folder={tmp_path / 'study'}", *SMALL]
    shop, _ = workshop([*words, f"data.cache={cache}", "task.max_test=0"])
    rows = tuple(row for row in shop.study.rows if row.name in ("exprag", "direct", "usual"))
    table = replace(shop.study.tables[0], rows=tuple(row.name for row in rows), main=rows[0].name, published={})
    named = {row.run for row in rows}
    runs = tuple(run for run in shop.study.runs if run.name in named)
    shop = replace(shop, study=replace(shop.study, runs=runs, rows=rows, tables=(table,)), start=here)
    run_study(shop, print)
    [samples] = map(pl.read_parquet, (shop.folder.path / "samples").glob("*.parquet"))
    assert set(samples["split"]) == {"train", "test"} and (samples["split"] == "test").sum() == 12  # of validation
    assert verify(shop.folder.path).wrong == ()
    assert "numbers of validation samples" in (shop.folder.path / "report.html").read_text()


@pytest.mark.slow
def test_the_smoke_of_all_studies_is_short() -> None:
    if set(spent) < set(ONE):
        pytest.skip("not all studies were played in this process")
    assert sum(spent.values()) < SECONDS, spent


def test_every_shipped_study_has_a_smoke() -> None:
    assert studies() == sorted(ONE) == sorted(TRAINED)


def train_here(script: str, overrides: Sequence[str], run: Path) -> str | None:
    """A job in this process, trained where the study trains."""
    from ghar.trainers.recipe import train  # brings TRL

    jobs = {"train.py": train, "evaluate.py": evaluate, "record_retrievals.py": record_retrievals}
    try:
        jobs[script](load(list(overrides)))
    except BadInput as error:
        return " ".join(str(error).split())
    return None


@dataclass(frozen=True)
class TrainedStudy:
    """A study whose cells were trained at scale=tiny: its jobs, its numbers, and what was printed."""

    shop: StudyJobs
    numbers: dict[str, Any]
    said: list[str]

    @property
    def cells(self) -> dict[str, Cell]:
        """By the name of their run."""
        return {cell.run.name: cell for cell in cells_of(self.shop.study)}


def train_study(
    name: str, folder: Path, cache: Path, runs: Sequence[str] = (), tables: Sequence[str] = ()
) -> TrainedStudy:
    """Train the run of `TRAINED` after the one it starts from, and other runs, each with the row of its name."""
    began = time.process_time()
    run, rows = TRAINED[name]
    shop, _ = workshop([f"study={name}", "scale=tiny", f"tasks=[{ONE[name]}]", f"folder={folder / 'study'}",
                        "eval.bootstrap=20", "task.max_test=8", f"data.cache={cache}",
                        *where(name, folder / "exam")])  # fmt: skip
    study = shop.study
    source = study.run(run).start
    tight = TIGHT if name == "kare" else []
    named = (one for one in study.runs if one.name in (run, source, *runs))
    played = tuple(row for row in study.rows
                   if row.name in (*rows, *runs) or (row.run == source and row.variant == "ghar_sft"))  # fmt: skip
    names = tuple(row.name for row in played if row.name not in runs)
    metrics = ("rouge_l", "sari") if name == "ghar_summaries" else ("accuracy", "macro_f1")
    table = replace(study.tables[0], rows=names, metrics=metrics, tasks=(), main=rows[0], published={})
    others = tuple(other for other in study.tables if other.name in tables)
    small = replace(study, runs=tuple(replace(one, overrides=(*one.overrides, *tight)) for one in named), rows=played,
                    tables=(table, *others), cohorts=dict(list(study.cohorts.items())[:1]), main=rows[0])  # fmt: skip
    shop, said = replace(shop, study=small, start=train_here), list[str]()
    made = TrainedStudy(shop, run_study(shop, said.append), said)
    trained[name] = time.process_time() - began
    return made


@pytest.fixture(scope="module")
def ghar_study(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainedStudy:
    """Study ghar with the runs whose SFT data trained GHAR prunes."""
    runs = ("lightrag", "lightrag_sft", "lightrag_pairs")
    return train_study("ghar", tmp_path_factory.mktemp("ghar"), cache, runs, tables=["sft_pruning_lightrag"])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TRAINED))
def test_a_cell_of_every_study_is_trained_at_scale_tiny(
    name: str, cache: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run, rows = TRAINED[name]
    made = request.getfixturevalue("ghar_study") if name == "ghar" else train_study(name, tmp_path, cache)
    shop, small = made.shop, made.shop.study
    cells = [made.cells[one] for one in (run, small.run(run).start) if one is not None]
    assert all(shop.folder.done(cell) is not None for cell in cells), made.said
    [cohort] = small.cohorts
    found = made.numbers[f"{small.tables[0].name}-{cohort}"]
    for row in found["cells"].values():
        shares = [part["all"]["value"] for part in row.values() if "value" in part["all"]]
        assert shares and all(0 <= share <= 1 for share in shares)
    for cell in cells:
        lines = (shop.folder.run(cell) / "metrics.jsonl").read_text().splitlines()
        phases = {json.loads(line)["phase"] for line in lines}
        assert phases >= ({"sft"} if "trainer.rl.updates=0" in shop.overrides(cell) else {"sft", "rl"})
    if name == "graphwalker":  # measured with the weights that predict
        frames = [pl.read_parquet(shop.folder.predictions(cell, rows[0])) for cell in cells]
        assert not any(frame["entropy_drop"].null_count() for frame in frames)
    assert verify(shop.folder.path).wrong == ()


@pytest.mark.slow
def test_the_retrievals_of_trained_ghar_prune_the_sft_data_of_others(ghar_study: TrainedStudy) -> None:
    shop, cells = ghar_study.shop, ghar_study.cells
    assert all(shop.folder.done(cell) is not None for cell in cells.values()), ghar_study.said
    source, pruned = cells["ghar"], cells["lightrag_pairs"]
    path = shop.folder.run(source) / "retrievals.parquet"
    found, samples = pl.read_parquet(path), pl.read_parquet(next((shop.folder.path / "samples").glob("*.parquet")))
    train = set(samples.filter(pl.col("split") == "train")["sample_id"])
    assert set(found["sample_id"]) <= train and len(found) == min(len(train), 40)  # trainer.warmup.samples
    assert f"system.pruned_by={path}" in shop.overrides(pruned)
    assert not any("pruned_by" in text for text in shop.overrides(source))
    before = cells["lightrag_sft"]
    config = [text for text in shop.overrides(pruned) if not text.startswith(("system.pruned_by", "run_dir"))]
    assert config == [text for text in shop.overrides(before) if not text.startswith("run_dir")]


def test_pruned_sft_data_are_compared_with_sft_of_the_same_method() -> None:
    shop, _ = workshop(["study=ghar", "scale=tiny"])
    run_of = {row.name: shop.study.run(row.run) for row in shop.study.rows}
    tables = {table.name: table for table in shop.study.tables}
    for method in ("lightrag", "medrag"):
        table = tables[f"sft_pruning_{method}"]
        whole, pruned = (run_of[name] for name in table.rows)
        assert table.main == table.rows[0] and (whole.start, pruned.pruned_by) == (method, "ghar")
        only_sft = (f"system.method={method}", "trainer.rl.updates=0")  # at every scale
        assert whole.overrides == pruned.overrides == only_sft and not whole.full and not pruned.full


@pytest.mark.slow
def test_the_trainings_of_all_studies_are_short() -> None:
    if set(trained) < set(TRAINED):
        pytest.skip("not all studies were trained in this process")
    assert sum(trained.values()) < LONGEST, trained


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ONE))
def test_every_run_has_a_sound_command(name: str, tmp_path: Path) -> None:
    """One cell of each run, as a trained study starts it: every key and value exists."""
    shop, _ = workshop([f"study={name}", f"folder={tmp_path}", *where(name, tmp_path / "exam")])
    seen = set()
    for cell in cells_of(shop.study):
        if cell.run.name not in seen and cell.run.weights is None:
            seen.add(cell.run.name)
            config = shop.load(shop.overrides(cell))
            assert config.task.name == cell.task and config.eval.variants


def test_published_numbers_name_their_source_and_are_shares() -> None:
    found = yaml.safe_load((ROOT / "conf" / "study" / "_published.yaml").read_text())
    assert {"ghar.IV", "ghar.V", "ghar.VI", "ghar.VII", "ghar.VIII", "kare.2.mimic3", "ehr_rag.1"} <= set(found)
    for key, table in found.items():
        assert "Table" in table["source"] or "Figure" in table["source"], key
        for cells in (table["cells"], *table.get("models", {}).values()):
            numbers = [(column, value) for row in cells.values() for column, value in row.items()]
            assert all(0 <= value <= 1 for column, value in numbers if column != "los/log_retrievals"), key
    bars = [row["los/log_retrievals"] for row in found["ghar.9a"]["cells"].values()]
    assert bars == [9.8, 9.6, 9.8, 9.1, 5.3]  # the only numbers that are no shares
    assert found["ghar.IV"]["cells"]["ghar"]["los/macro_f1"] == 0.4124
    assert found["kare.2.mimic4"]["cells"]["kare"]["kare_mortality/macro_f1"] == 0.904


@pytest.mark.parametrize("words, sentence", [
    ([], "study is missing: write study=NAME"),
    (["study=gharr"], "There is no study=gharr. Choices: .* Did you mean ghar"),
    (["study=ghar", "scale=huge"], "There is no scale=huge. Choices: rules, tiny, demo, full"),
    (["study=ghar", "seeds=[a]"], "seeds=.* are no seeds"),
    (["study=ghar", "on=cloud"], "on=cloud is no place to run"),
    (["study=ghar", "processes=0"], "processes=0 is no number of processes"),
    (["study=ghar", "cohorts=[mimic4:]"], "cohorts has 'mimic4:'"),
    (["study=ghar", "sclae=rules", "plan=true"], r"There is no group sclae: did you mean scale\?"),
    (["study=ghar", "scale=rules", "data.rot=3"], r"There is no key data\.rot: did you mean data\.root\?"),
    (["study=ghar", "retriever=tfdif", "plan=true"], "There is no retriever=tfdif. Choices: .*tfidf"),
    (["study=ghar", "tasks=[foo]", "plan=true"], "There is no task=foo. Choices: .*los"),
    (["study=ghar", "cohorts=[mimic9:/x]", "plan=true"], "There is no data=mimic9. Choices: .*mimic4"),
    (["study=ghar", "scale=rules", "tasks=[los]", "cohorts=[mimic4:/nowhere]", "plan=true"],
     "^No cell of study=ghar can be played.*data.root=/nowhere does not exist"),
    (["study=ghar", "tasks=[los]", "data.patients=many", "plan=true"],
     "^No cell of study=ghar can be played.*data.patients"),
    (["study=ghar", "verify"], "verify is neither key=value nor verify|neither key=value"),
    (["verify"], "verify what"),
    (["verify", "/nowhere"], "is no study's folder"),
])  # fmt: skip
def test_a_wrong_command_is_a_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        main(words)


def test_a_study_without_a_cell_that_was_played_ends_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ghar.trainers.study.run.play", lambda shop, cell: "The disk is full.")
    words = ["study=graphwalker", "scale=rules", "seeds=[0]", "tasks=[series_mortality]", f"folder={tmp_path}"]
    with pytest.raises(BadInput, match=r"^No cell of study=graphwalker was played\..*: The disk is full\.$"):
        main(words)
    assert (tmp_path / "report.html").is_file() and "left out: The disk is full." in capsys.readouterr().out


def test_real_folders_take_the_place_of_generated_cohorts(tmp_path: Path) -> None:
    cohorts = "cohorts=[mimic3:/data/iii,mimic4:/data/iv]"
    shop, planned = workshop(["study=ghar", "scale=rules", cohorts, f"folder={tmp_path}", "kg.path=a.csv", "plan=true"])
    assert planned and dict(shop.study.cohorts) == {
        "mimic3": ("data=mimic3", "data.root=/data/iii"), "mimic4": ("data=mimic4", "data.root=/data/iv"),
    }  # fmt: skip
    assert set(shop.published) >= {"ghar.IV", "ghar.V"}
    assert json.dumps(shop.published["ghar.IV"])


def test_a_cohort_of_the_study_is_played_by_its_name(tmp_path: Path) -> None:
    words = ["study=four_sources", "scale=rules", "cohorts=[graph,demo]", f"folder={tmp_path}", "plan=true"]
    shop, _ = workshop(words)
    graph = ("data=demo_four", "data.mix=four_mostly_graph")
    assert dict(shop.study.cohorts) == {"graph": graph, "demo": ("data=demo",)}


def test_a_study_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "title: Mine\nabout: One rule.\nmain: a\ntasks: [read]\nruns: [{name: one, system: ghar}]\n"
        "rows: [{name: a, title: A, run: one, variant: ghar_rl, rule: scripted}]\n"
        "tables: [{name: t, title: T, metrics: [acuracy]}]\n"
    )
    with pytest.raises(BadInput, match="There is no metric acuracy"):
        workshop([f"study={file}"])
    file.write_text(file.read_text().replace("acuracy", "accuracy"))
    shop, _ = workshop([f"study={file}", "scale=rules"])
    assert shop.study.name == "mine" and shop.folder.path == Path("runs/study_mine_rules")
