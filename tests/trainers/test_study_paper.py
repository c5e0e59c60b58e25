"""At scale=full a study composes what its paper did, and a published number stands beside nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from ghar.config import Config
from ghar.envs.graphwalker.corpus import NEEDS
from ghar.envs.kare.methods import method_of, variants_of
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.launch.study import studies, workshop
from ghar.llm.prompts import load_prompts
from ghar.sections import leaves
from ghar.trainers.runs.resume import plain
from ghar.trainers.study.folder import StudyFolder
from ghar.trainers.study.jobs import StudyJobs
from ghar.trainers.study.jobs import labels_alone as unexplained
from ghar.trainers.study.paper import (
    PLACE_KEYS,
    PLACES,
    PLAYED_BY,
    differences,
    key_differences,
    paper_keys,
    published_rows,
)
from ghar.trainers.study.render import comparable, labels_alone
from ghar.trainers.study.schema import Cell, Study, cells_of, read_study, rows_of

pytestmark = pytest.mark.slow

COHORTS = {"ehr_rag": "[meds:/data/meds]", "exprag": "[mimic4:/data/iv]", "kare": "[mimic3:/data/iii,mimic4:/data/iv]",
           "graphwalker": "[mimic3:/data/iii,mimic4:/data/iv]", "ghar_questions": "[medqa:/data/questions]",
           "ghar_summaries": "[summary:/data/texts]"}  # fmt: skip
WEIGHTS = re.compile(r"supervised|label_sft|_sft$")  # variants of weights that a training makes
ALL = "[mimic3:/data/iii,mimic4:/data/iv,eicu:/data/eicu]"
AXES = {  # tables whose figure has lines -> the key that its axis is; x: 0 is a row that the key does not concern
    ("exprag", "similar"): "system.top_k", ("graphwalker", "shots"): "system.k",
    ("graphwalker", "motivation"): "system.k", ("graphwalker", "aggregation"): "system.k",
    ("ghar_settings", "paths"): "system.max_paths", ("ghar_settings", "passages"): "retriever.top_n",
    ("ghar_settings", "eta"): "reward.eta", ("graphwalker", "neighbours"): "system.k_g",
    ("graphwalker", "cohorts"): "system.k_c", ("graphwalker", "anchors"): "system.k_a",
}  # fmt: skip
PAPERS = ["ehr_rag", "exprag", "ghar", "ghar_questions", "ghar_settings", "ghar_summaries", "graphwalker", "kare"]
GIVEN = ["kg.path=/data/kg.csv", "data.codes=/data/codes"]  # what every user of scale=full names


@cache
def full(name: str) -> StudyJobs:
    words = [f"study={name}", "scale=full", f"cohorts={COHORTS.get(name, ALL)}", "seeds=[0]", *GIVEN]
    return workshop(words)[0]


def printed(study: Study, cell: Cell) -> list[str]:
    """The rows of a cell beside which a published number could stand."""
    published = full(study.name).published
    found = []
    for table in study.tables:
        theirs = published_rows(published.get(table.published.get(cell.cohort, ""), {}))
        here = {row for row, columns in theirs.items() if any(c.split("/")[0] == cell.task for c in columns)}
        found += [row.name for row in rows_of(study, cell.run.name) if row.name in here & set(table.rows or theirs)]
    return sorted(set(found))


def test_the_axis_of_every_line_is_named_here() -> None:
    lines = {(name, table.name) for name in studies() for table in study_of(name).tables if table.draw == "lines"}
    assert lines == AXES.keys()


def study_of(name: str) -> Study:
    return workshop([f"study={name}", "seeds=[0]"])[0].study


@pytest.mark.parametrize("scale", ["demo", "full"])
@pytest.mark.parametrize(("name", "table"), AXES)
def test_a_row_stands_at_the_value_of_its_key(name: str, table: str, scale: str) -> None:
    shop = full(name) if scale == "full" else workshop([f"study={name}", "seeds=[0]"])[0]
    [drawn] = [one for one in shop.study.tables if one.name == table]
    section, key = AXES[name, table].split(".")
    rows, values = [shop.study.row(row) for row in drawn.rows], {}
    for cell in cells_of(shop.study):
        if cell.run.name not in values and cell.run.name in {row.run for row in rows}:
            values[cell.run.name] = getattr(getattr(load(shop.overrides(cell)), section), key)
    assert not [(row.name, values[row.run]) for row in rows if row.x not in (0, values[row.run])]


@cache
def composed(name: str, cell_id: str) -> Config:
    shop = full(name)
    [cell] = [cell for cell in cells_of(shop.study) if cell.id == cell_id]
    return load([*replace(shop, study=shop.study).overrides(replace_weights(cell)), "eval.checkpoint=null"])


def replace_weights(cell: Cell) -> Cell:
    """Another run's weights are not there to be played."""
    return replace(cell, run=replace(cell.run, weights=None))


def test_every_study_of_a_paper_is_here() -> None:
    assert sorted(name for name in studies() if full(name).study.paper is not None) == sorted(PAPERS)


@pytest.mark.parametrize("name", PAPERS)
def test_every_cell_of_the_full_scale_is_the_papers(name: str) -> None:
    study, asked = full(name).study, 0
    for cell in cells_of(study):
        config = composed(name, cell.id)
        assert study.paper is not None
        closed = {key for part in study.paper.where if part.holds(cell) for key in part.closed}
        for row in [study.row(row) for row in printed(study, cell)]:
            open_to_us = closed | row.paper.keys() | cell.run.paper.keys()
            found = key_differences(study, cell, row, config)
            wrong = [told for told in found if told.split(" is ")[0] not in open_to_us]
            assert not wrong, (cell.id, row.name)
            asked += 1
    assert asked or not any(table.published for table in study.tables)


@pytest.mark.parametrize("name", PAPERS)
def test_cells_without_published_numbers_are_the_papers_but_for_what_their_run_is_about(name: str) -> None:
    """Those of sweeps and ablations, whose numbers the papers draw and do not print."""
    study = full(name).study
    assert study.paper is not None
    for cell in cells_of(study):
        asked = {text.partition("=")[0] for text in (*cell.run.overrides, *cell.run.full)}
        closed = {key for part in study.paper.where if part.holds(cell) for key in part.closed}
        config = composed(name, cell.id)
        for row in rows_of(study, cell.run.name):
            named = asked | closed | row.paper.keys() | cell.run.paper.keys()
            found = [told.split(" is ")[0] for told in key_differences(study, cell, row, config)]
            assert not [key for key in found if key not in named and key.partition(".")[0] not in named], cell.id


BUDGETS = [("ghar", {"summarise": 192, "predict": 256}), ("kare", {"reason": 1024})]  # tokens of a reply by its role


@pytest.mark.parametrize(("name", "replies"), BUDGETS)
def test_budgets_that_a_paper_leaves_open_are_those_that_the_page_names(name: str, replies: dict[str, int]) -> None:
    study = full(name).study
    config = composed(name, next(cell.id for cell in cells_of(study) if cell.run.name == name))
    prompts = load_prompts(f"ghar.envs.{name}", config.env.prompts, tuple(replies))
    assert {role: template.max_tokens for role, template in prompts.items()} == replies
    numbers = [config.env.history_tokens, config.model.max_length, *replies.values()]
    assert study.paper is not None
    [sentence] = (text for text in study.paper.differs if "the length of prompts" in text)
    assert [int(text.replace(",", "")) for text in re.findall(r"[0-9][0-9,]*[0-9]", sentence)] == numbers


@pytest.mark.parametrize("name", ["ghar_questions", "ghar_summaries"])
def test_of_questions_and_texts_graphwalkers_model_alone_is_frozen(name: str) -> None:
    shop = full(name)
    trained = {cell.run.name: shop.trains(cell) for cell in cells_of(shop.study)}
    assert trained == {run.name: run.system not in ("graphwalker", "baselines") for run in shop.study.runs}


@pytest.mark.parametrize("name", ["graphwalker", "ehr_rag", "exprag"])
def test_what_a_paper_leaves_frozen_is_not_trained_at_the_full_scale(name: str) -> None:
    shop = full(name)
    trained_runs = {cell.run.name for cell in cells_of(shop.study) if shop.trains(cell)}
    assert trained_runs == ({"sft"} if name == "graphwalker" else set())
    trained = replace(shop, scale=replace(shop.scale, full=False))
    assert any(trained.trains(cell) for cell in cells_of(shop.study))


def test_kares_classic_rag_adds_abstracts_to_the_backbone_of_table_2_and_nothing_else() -> None:
    """Table 3 has Table 2's backbone without similar patients."""
    study = full("kare").study
    own: Any = composed("kare", "classic_rag-mimic3-kare_mortality-seed0").system
    assert own == composed("kare", "plain-mimic3-kare_mortality-seed0").system
    variants = variants_of(own, "", abstracts=True)
    plain, rag = (method_of(variants[study.row(name).variant]) for name in ("backbone", "tuned_rag"))
    assert (plain.looks_up, rag.looks_up) == ("nothing", "abstracts")
    assert replace(plain, looks_up="abstracts") == rag and not rag.similar


@pytest.mark.parametrize("name", PAPERS)
def test_a_row_of_trained_weights_is_trained_at_the_full_scale(name: str) -> None:
    """Else the model as it was loaded would answer in the name of weights that no one trained."""
    shop = full(name)
    trained = {cell.run.name for cell in cells_of(shop.study) if shop.trains(cell)}
    frozen = {run.name for run in shop.study.runs if run.weights is None and run.train} - trained
    wanted = [row.name for row in shop.study.rows if row.run in frozen and WEIGHTS.search(row.variant)]
    assert not wanted


@pytest.mark.parametrize("name", ["graphwalker", "ghar_questions", "ghar_summaries"])
def test_selectors_inside_a_model_have_an_engine_that_shows_it(name: str) -> None:
    """One such variant among others would refuse the whole cell."""
    asked: set[tuple[str, str]] = set()
    for cell in cells_of(full(name).study):
        inside = [v for v in full(name).rows(cell).values() if NEEDS.get(v) == "hidden states"]  # type: ignore[call-overload]
        asked |= {(v, composed(name, cell.id).engine.kind) for v in inside}
    assert asked == {("lms3", "hf"), ("gradsel", "hf")}


def test_kare_is_distilled_and_not_trained_by_reward_at_the_full_scale() -> None:
    shop = full("kare")
    for cell in cells_of(shop.study):
        config = composed("kare", cell.id)
        assert config.trainer.rl.updates == 0 and config.protocol.name == "kare"
        assert config.task.patients == (10_000 if cell.cohort == "mimic4" else None)


@pytest.mark.parametrize("name", ["ghar", "ghar_settings", "ghar_questions", "ghar_summaries"])
def test_ghar_and_search_r1_alone_are_trained_by_reward_at_the_full_scale(name: str) -> None:
    """Section IV of GHAR: PPO is for Search-R1 and GHAR; the others learn by SFT or not at all."""
    seen: set[str] = set()  # a run has the same trainer on each cohort and task
    for cell in cells_of(full(name).study):
        if cell.run.system == "baselines" or cell.run.weights is not None or cell.run.name in seen:
            continue
        seen.add(cell.run.name)
        config = composed(name, cell.id)
        own: Any = config.system
        by_reward = cell.run.system == "ghar" or getattr(own, "method", "") == "search_r1"
        assert (config.trainer.rl.updates > 0) == by_reward, cell.id


def test_rows_that_differ_in_training_alone_are_played_by_no_rule() -> None:
    """Where nothing is trained they would be the same row under two names."""
    trained = ("trainer.", "reward.", "model.", "system.composition=", "system.prices=")
    for name in studies():
        study = study_of(name)
        for table in study.tables:
            played: dict[Any, str] = {}
            for row in (study.row(r) for r in table.rows or [row.name for row in study.rows]):
                run = study.run(row.run)
                if row.rule is None or not run.train:
                    continue
                kept = sorted(text for text in (*run.overrides, *run.demo) if not text.startswith(trained))
                first = played.setdefault((run.system, row.rule, *kept), row.name)
                assert first == row.name, f"{name}, {table.name}: {row.name} would be {first}"


def test_the_reward_of_ghar_is_the_papers_at_the_full_scale() -> None:
    [cell] = [c for c in cells_of(full("ghar").study) if c.id == "ghar-mimic3-los-seed0"]
    own: Any = composed("ghar", cell.id).system
    assert (own.grounding, own.repeats) == (0, 0)


def test_the_preset_leaves_two_terms_out_and_nothing_else() -> None:
    usual, paper = load(["system=ghar"]), load(["system=ghar_paper"])
    own: Any = usual.system
    assert paper == replace(usual, system=replace(own, grounding=0, repeats=0), run_dir=paper.run_dir)
    own = load(["system=ghar_paper", "system.normalise=none", "reward.eta=5"]).system  # the literal sum of Eq. 14
    assert (own.normalise, own.grounding, own.repeats) == ("none", 0, 0)


def test_fixed_retrievals_of_a_comparator_are_not_the_papers_figure() -> None:
    study = full("ghar").study
    systems = {run.name: run.system for run in study.runs}
    for table in study.tables:
        fixed = [row for row in table.rows if "fixed_" in row]
        other = any(systems[study.row(row).run] != "ghar" for row in fixed)
        assert not other or "Not Figure 9(b)" in table.note, table.name
    page = (Path(__file__).resolve().parents[2] / "envs/comparators/README.md").read_text()
    assert not [line for line in page.splitlines() if "`fixed_1`" in line and line.endswith("GHAR, Fig. 9(b) |")]


def samples(patients: int, positive: float, tested: float | None = None) -> pl.DataFrame:
    """A fifth of the patients to test, of whom the share `tested` is positive, by default as many as of the others."""
    test = patients // 5
    shares = {"test": (test, positive if tested is None else tested), "train": (patients - test, positive)}
    split = [name for name, (n, _) in shares.items() for _ in range(n)]
    labels = ["yes" if i < share * n else "no" for n, share in shares.values() for i in range(n)]
    return pl.DataFrame({"subject_id": [str(i) for i in range(patients)], "split": split, "label": labels})


@pytest.mark.parametrize(("patients", "positive", "told"), [
    (100, 0.55, "100 patients, the paper has 9,717"),
    (9000, 0.25, "25.00%; the paper's tables allow 54.00% to 55.60%"),
    (9000, 0.548, None),
])  # fmt: skip
def test_another_cohort_or_prevalence_is_named(patients: int, positive: float, told: str | None) -> None:
    study = full("kare").study
    [cell] = [c for c in cells_of(study) if c.id == "baselines-mimic3-kare_readmission-seed0"]
    config, frame = composed("kare", cell.id), samples(patients, positive)
    found = differences(study, cell, study.row("gru"), config, frame, ["no", "yes"])
    assert found == ([] if told is None else [told])


def test_the_share_of_positives_is_that_of_the_test_samples() -> None:
    """KARE draws 2,152 positive patients of 10,000 and prints 19.16% among those it tests."""
    study, frame = full("kare").study, samples(10_000, 0.22, 0.1916)
    [cell] = [c for c in cells_of(study) if c.id == "baselines-mimic4-kare_mortality-seed0"]
    config = composed("kare", cell.id)
    assert frame.filter(pl.col("label") == "yes").height > 2_100
    assert differences(study, cell, study.row("gru"), config, frame, ["no", "yes"]) == []
    [told] = differences(study, cell, study.row("gru"), config, samples(10_000, 0.1916, 0.3), ["no", "yes"])
    assert told.startswith("30.00%; ")


@pytest.mark.parametrize(("task", "told"), [("los", ["100 patients, the paper has 46,178"]), ("read", [])])
def test_ghar_counts_the_patients_of_length_of_stay_alone(task: str, told: list[str]) -> None:
    """Table III: a readmission needs a second visit, which few patients of MIMIC-III have."""
    study = full("ghar").study
    [cell] = [c for c in cells_of(study) if c.id == f"baselines-mimic4-{task}-seed0"]
    config, labels = composed("ghar", cell.id), ["no", "yes"] if task == "read" else [str(i) for i in range(10)]
    assert differences(study, cell, study.row("gru"), config, samples(100, 0.5), labels) == told


@pytest.mark.parametrize(("cell_id", "row", "more", "told"), [
    ("ghar-mimic4-los-seed0", "ghar", "retriever.top_n=3", ["retriever.top_n is 3, the paper's 1"]),
    ("ghar-mimic3-los-seed0", "ghar", "trainer.rl.updates=0", ["trainer.rl.updates is 0, the study's 300"]),
    ("ghar-mimic3-los-seed0", "ghar", "system.ablation=ni", ["system.ablation is ni, the study's none"]),
    ("ghar-mimic3-los-seed0", "ghar", "task.max_train=100", ["task.max_train is 100, the study's not set"]),
    ("ghar-mimic3-los-seed0", "ghar", "task.max_test=20", ["task.max_test is 20, the study's not set"]),
    ("ghar-mimic3-los-seed0", "ghar", "env.prompts=compact", ["env.prompts is compact, the study's full"]),
    ("ghar-mimic3-los-seed0", "ghar", "engine.temperature=0.5", ["engine.temperature is 0.5, the study's 1.0"]),
    ("search_r1-mimic3-los-seed0", "search_r1", "system.words=5", ["system.words is 5, the study's not set"]),
    ("ghar-mimic3-los-seed0", "ghar", "engine.max_batch=3", []),
    ("ghar-mimic3-los-seed0", "ghar", "trainer.rl.micro_tokens=512", []),
    ("ghar-mimic3-los-seed0", "ghar", "deepspeed=zero2", []),
])  # fmt: skip
def test_what_the_command_line_changes_of_a_cell_withholds_the_published_number(
    cell_id: str, row: str, more: str, told: list[str]
) -> None:
    """Any key but those of places: that the paper does not name it does not make it the paper's."""
    shop = replace(full("ghar"), more=(*GIVEN, more))
    [cell] = [c for c in cells_of(shop.study) if c.id == cell_id]
    config, shipped = load(shop.overrides(cell)), shop.shipped(cell)
    assert key_differences(shop.study, cell, shop.study.row(row), config, shipped) == told


def test_every_key_of_a_place_is_a_key() -> None:
    systems = [load([f"system={name}"]) for name in ("ghar", "kare", "exprag")] + [load(["ray=cluster"])]
    keys = {key for config in systems for key in leaves(plain(config))}  # "ray" itself where there is none
    assert keys >= PLACE_KEYS | PLAYED_BY and all(any(key.startswith(section) for key in keys) for section in PLACES)


@pytest.mark.parametrize("name", ["ghar", "kare"])
def test_a_key_of_one_system_goes_to_its_cells(name: str) -> None:
    """So that KARE's expert can be named in a study whose other systems have none."""
    given = ["system.expert=Qwen/Qwen2.5-7B-Instruct@http://localhost:8000/v1", *GIVEN]
    shop = workshop([f"study={name}", "scale=full", "cohorts=[mimic3:/data/iii]", "seeds=[0]", *given])[0]
    asked = {cell.run.system: shop.overrides(cell) for cell in cells_of(shop.study) if cell.run.weights is None}
    assert [system for system, own in asked.items() if given[0] in own] == ["kare"]
    assert all(GIVEN[0] in own for own in asked.values()) and len(asked) > 1
    for own in asked.values():
        load(own)


def test_a_key_of_no_system_of_the_study_is_refused() -> None:
    with pytest.raises(BadInput, match=r"study=kare has a key system\.exprt: did you mean system\.expert"):
        workshop(["study=kare", "system.exprt=engine"])


def test_a_closed_model_may_be_served_from_any_address() -> None:
    study = full("ehr_rag").study
    [cell] = [c for c in cells_of(study) if c.id == "ehr_rag-meds-guo_los-seed0"]
    row = study.row("ehr_rag")
    config = composed("ehr_rag", cell.id)
    assert "model.path is meta-llama/Llama-3.1-8B-Instruct, the paper's gpt-5-2025-08-07" in key_differences(
        study, cell, row, config
    )
    served = replace(config, model=replace(config.model, path="gpt-5-2025-08-07@https://models.example/v1"))
    assert not [told for told in key_differences(study, cell, row, served) if told.startswith("model.path")]
    assert paper_keys(study, cell, row)["data.name"] == "meds"


def study_with(differs: str = "") -> Study:
    return read_study("own", {
        "title": "t", "about": "a", "tasks": ["los"], "main": "a", "seeds": [0, 1], "cohorts": {"mimic4": []},
        "paper": {"source": "s", "keys": {"scale.name": "full"}},
        "runs": [{"name": "r", "system": "ghar"}],
        "rows": [{"name": "a", "title": "A", "run": "r", "variant": "v", "differs": differs}],
        "tables": [{"name": "t", "title": "t", "metrics": ["accuracy"], "published": {"mimic4": "p"}}],
    })  # fmt: skip


@pytest.mark.parametrize(("second", "differs", "reason"), [
    ([], "", None),
    (["scale.name is demo, the paper's full"], "", "los: scale.name is demo, the paper's full"),
    (None, "", "los: not played"),
    ([], "another quantity", "los: another quantity"),
])  # fmt: skip
def test_one_seed_that_differs_withholds_the_number(
    tmp_path: Path, second: list[str] | None, differs: str, reason: str | None
) -> None:
    study, folder = study_with(differs), StudyFolder(tmp_path)
    for cell, told in zip(cells_of(study), ([], second), strict=True):
        if told is not None:
            folder.run(cell).mkdir(parents=True)
            folder.finish(cell, {"rows": {"a": "x"}, "predictions": {}, "differs": {"a": told}})
    found = {"cells": {"a": {"los/accuracy": {}}}, "columns": ["los/accuracy"], "cohort": "mimic4"}
    shown, withheld = comparable(folder, study, found, {"cells": {"a": {"los/accuracy": 0.5}}})
    assert shown == ({"a": {"los/accuracy": 0.5}} if reason is None else {})
    assert withheld == ({} if reason is None else {reason: ["A"]})


@pytest.mark.parametrize(("lessons", "who", "alone"), [
    ({"lessons": "labels alone: no rule knows real patients", "pairs": 9}, "sft", ["a"]),
    ({"lessons": "labels alone: no rule knows real patients", "pairs": 9}, "base", []),
    ({"pairs": 9}, "sft", []),
    (None, "sft", []),
])  # fmt: skip
def test_the_page_names_rows_that_learned_labels_in_place_of_explained_answers(
    tmp_path: Path, lessons: Any, who: str, alone: list[str]
) -> None:
    study, folder = study_with(), StudyFolder(tmp_path)
    rows = unexplained({"lessons": lessons}, {"a": who})
    assert rows == alone
    for cell in cells_of(study):
        folder.run(cell).mkdir(parents=True)
        folder.finish(cell, {"rows": {"a": "x"}, "predictions": {}, "differs": {"a": []}, "labels_alone": rows})
    found = {"cells": {"a": {"los/accuracy": {}}}, "columns": ["los/accuracy"], "cohort": "mimic4"}
    assert labels_alone(folder, study, found) == ["A"] * len(alone)


def test_a_published_number_of_something_else_than_its_row_is_withheld(tmp_path: Path) -> None:
    study, folder = study_with(), StudyFolder(tmp_path)
    for cell in cells_of(study):
        folder.run(cell).mkdir(parents=True)
        folder.finish(cell, {"rows": {"a": "x"}, "predictions": {}, "differs": {"a": []}})
    columns = ["los/accuracy", "los/macro_f1"]
    found = {"cells": {"a": {column: {} for column in columns}}, "columns": columns, "cohort": "mimic4"}
    table = {"cells": {"a": {"los/accuracy": 0.5, "los/macro_f1": 0.4}}, "differs": {"a": {"los/accuracy": "other"}}}
    shown, withheld = comparable(folder, study, found, table)
    assert (shown, withheld) == ({"a": {"los/macro_f1": 0.4}}, {"los: other": ["A"]})


def test_what_a_printed_number_is_of_is_said_of_numbers_that_are_stored() -> None:
    published = yaml.safe_load((Path(__file__).resolve().parents[2] / "conf/study/_published.yaml").read_text())
    tables = [table for table in published.values() if "differs" in table]
    assert tables
    for table in tables:
        assert not [c for row, own in table["differs"].items() for c in own if c not in table["cells"][row]]


def test_the_row_of_kares_table_2_that_table_3_has_of_another_model() -> None:
    """Its mortality on MIMIC-III is, to the digit, that of the row without similar patients and reasoning."""
    published = full("kare").published
    two, three = published["kare.2.mimic3"], published["kare.3.mimic3"]["cells"]
    own = {column: value for column, value in two["cells"]["kare"].items() if column in two["differs"]["kare"]}
    assert own.keys() == {column for column in three["kare"] if column.startswith("kare_mortality/")}
    assert all(three["knows"][column] == value != three["kare"][column] for column, value in own.items())


OF_TWO = {"cells": {"a": {"los/accuracy": 0.5}}, "models": {"big": {"a": {"los/accuracy": 0.7}}}}
OF_BIG = {"cells": {}, "models": OF_TWO["models"]}
OTHER = "model.path is other, the paper's small"


@pytest.mark.parametrize(("entry", "model", "differs", "value", "reason"), [
    (OF_TWO, "small", [], 0.5, None),
    (OF_TWO, "big", ["model.path is big, the paper's small"], 0.7, None),
    (OF_TWO, "big", ["model.path is big, the paper's small", "system.k is 2, the paper's 3"], None,
     "los: system.k is 2, the paper's 3"),
    (OF_TWO, "other", [OTHER], None, f"los: {OTHER}"),
    (OF_BIG, "big", [], 0.7, None),
    (OF_BIG, "small", [], None, "los: model.path is small, the paper's big"),
    (OF_BIG, "other", [OTHER], None, "los: model.path is other, the paper's big"),
    (OF_BIG, None, [], None, "los: model.path is not set, the paper's big"),
    (OF_BIG | {"models_differ": {"big": "it thinks"}}, "big", [], None, "los: it thinks"),
    (OF_TWO | {"models_differ": {"big": "it thinks"}}, "small", [], 0.5, None),
])  # fmt: skip
def test_a_number_stands_beside_the_model_that_the_paper_asked(
    tmp_path: Path, entry: dict[str, Any], model: str | None, differs: list[str], value: float | None,
    reason: str | None,
) -> None:  # fmt: skip
    study, folder = study_with(), StudyFolder(tmp_path)
    for cell in cells_of(study):
        folder.run(cell).mkdir(parents=True)
        folder.finish(cell, {"rows": {"a": "x"}, "predictions": {}, "differs": {"a": differs}, "model_path": model})
    found = {"cells": {"a": {"los/accuracy": {}}}, "columns": ["los/accuracy"], "cohort": "mimic4"}
    shown, withheld = comparable(folder, study, found, entry)
    assert shown == ({} if value is None else {"a": {"los/accuracy": value}})
    assert withheld == ({} if reason is None else {reason: ["A"]})


def test_a_column_of_two_models_is_not_printed(tmp_path: Path) -> None:
    study, folder = study_with(), StudyFolder(tmp_path)
    for cell, model in zip(cells_of(study), ("small", "big"), strict=True):
        folder.run(cell).mkdir(parents=True)
        folder.finish(cell, {"rows": {"a": "x"}, "predictions": {}, "differs": {"a": []}, "model_path": model})
    found = {"cells": {"a": {"los/accuracy": {}}}, "columns": ["los/accuracy"], "cohort": "mimic4"}
    assert comparable(folder, study, found, OF_TWO) == ({}, {"los: seeds of several models": ["A"]})


def test_published_numbers_without_a_setting_are_refused() -> None:
    with pytest.raises(BadInput, match="table t has published numbers, and the study no paper"):
        read_study("own", {
            "title": "t", "about": "a", "tasks": ["los"], "main": "a",
            "runs": [{"name": "r", "system": "ghar"}],
            "rows": [{"name": "a", "title": "A", "run": "r", "variant": "v"}],
            "tables": [{"name": "t", "title": "t", "published": {"mimic4": "p"}}],
        })  # fmt: skip
