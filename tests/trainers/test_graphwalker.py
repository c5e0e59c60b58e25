"""GraphWalker and every baseline from tables to numbers, on the demo world and on real tables, with a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from envs.graphwalker.react import ROLES
from envs.upstream import with_examples
from ghar.config import Config, Selector
from ghar.encoders.train import Training
from ghar.episode import Act, Prediction
from ghar.selectors.protocol import Effort, Pool, Query
from ghar.selectors.scorer import EngineScorer
from launch.entry import check, load
from trainers.demonstrations import Cases, choose, examples_of, make_pool, prepare
from trainers.graphwalker import evaluate, language_model

Walkers = tuple[Pool, list[Query], Callable[[], EngineScorer]]
NAMES = get_args(get_type_hints(Selector)["name"])
QUICK = Training(hidden=8, epochs=1, pretrain=1, batch=64, lr=1e-3, patience=1)
EFFORT = Effort(subsets=8, measured=3)
TINY = ("model.hidden=16", "model.layers=1", "model.heads=2", "model.vocab=1100", "threads=1", "eval.bootstrap=20")
SMALL = (*TINY, "policy=graphwalker", "selector.k=2", "selector.k_g=3", "task.max_test=4", "task.max_valid=4")
SOURCES = {
    "demo": ("task=series_los", "data.patients=120"),
    "mimic3": ("task=mimic3_mortality",),
}


@pytest.fixture(scope="module", params=list(SOURCES))
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Overrides that read the demo world, or the open demo of MIMIC-III."""
    cache = tmp_path_factory.mktemp(request.param)
    own = (*SMALL, *SOURCES[request.param], f"data.cache={cache}")
    if request.param == "demo":
        return own
    return (*own, f"data.root={request.getfixturevalue('shared_data') / 'mimic-iii-demo-1.4'}")


def config(source: tuple[str, ...], folder: Path, *overrides: str) -> Config:
    return load([*source, f"run_dir={folder}", *overrides])


@pytest.fixture(scope="module")
def walkers(source: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cases, Walkers]]:
    """Cases, and what `choose` takes; made once, the selector is exchanged by the tests."""
    cases = prepare(config(source, tmp_path_factory.mktemp("run")), QUICK)
    with language_model(cases) as (engine, tokenizer, context):
        prompt, pool, queries = make_pool(cases, tokenizer, context, EFFORT)
        yield cases, (pool, queries, lambda: EngineScorer(engine, prompt, pool.patients))


@pytest.mark.parametrize("name", NAMES)
def test_every_selector_chooses_within_the_rules(walkers: tuple[Cases, Walkers], name: str) -> None:
    """`choose` checks its rules; here: everyone gets something, the same alone and together."""
    pool, queries, scorer = walkers[1]
    pool = replace(pool, selector=replace(pool.selector, name=name))
    alone, together = (choose(pool, queries, scorer(), in_flight) for in_flight in (1, 9))
    assert [s.shots for s in alone.selections] == [s.shots for s in together.selections]
    shown = [len(selection.shots) for selection in alone.selections]
    assert len(shown) == len(queries) and max(shown) <= 2
    if name not in ("zero_shot", "graphwalker", "lms3"):
        assert shown == [2] * len(queries)


def test_an_evaluation_writes_numbers_choices_and_a_picture(source: tuple[str, ...], tmp_path: Path) -> None:
    summary = evaluate(config(source, tmp_path / "run", "selector.variant=no_early_stop"), EFFORT, QUICK)
    found = json.loads((tmp_path / "run" / "selection.json").read_text())
    names = {"ma_roc", "mi_roc"} if "series-los" in summary["task"]["name"] else {"auroc", "auprc", "f1", "best_f1"}
    assert set(summary["clinical"]) <= names and summary["policies"]["graphwalker"]["n"] == len(found["rows"])
    assert all(len(row["shots"]) == 2 and row["shots"][0]["gain"] is not None for row in found["rows"])
    page = (tmp_path / "run" / "report.html").read_text()
    assert found["walk"]["sample_id"] in page and found["rows"][0]["shots"][0]["sample_id"] in page
    assert "<svg" in found["walk"]["svg"] and "not complete" not in page
    tokens = "prompt tokens a patient"
    assert 0 < found["cost"][tokens] < found["cost"][f"{tokens}, each prompt from scratch"]


def test_react_and_self_rating_need_no_logprobs_of_prompts(source: tuple[str, ...], tmp_path: Path) -> None:
    own = ("selector.utility=self_rated", "selector.inference=react", "selector.k_a=1", "task.max_test=2")
    summary = evaluate(config(source, tmp_path / "run", *own, "task.max_valid=1"), EFFORT, QUICK)
    assert summary["cost"]["scored prompts a patient"] == 0 < summary["cost"]["generated replies a patient"]


def test_choices_stand_before_any_other_systems_prompt(walkers: tuple[Cases, Walkers]) -> None:
    cases, (pool, queries, scorer) = walkers
    pool = replace(pool, selector=replace(pool.selector, name="random_choice"))
    chosen = choose(pool, queries, scorer(), 4)
    examples = examples_of(chosen)[queries[0].patient.sample_id]
    first = pool.patients[chosen.selections[0].shots[0]]
    assert examples.startswith(f"Earlier patient:\n{first.text}\nOutcome: {cases.task.labels[first.label]}")

    def other_system():
        yield Act("top", "predict", "What will happen?")
        return Prediction(0)

    assert next(with_examples(other_system(), examples, ROLES)).prompt == f"{examples}\n\nWhat will happen?"


def test_a_sweep_over_shots_neighbours_cohorts_and_anchors_is_one_command_line() -> None:
    sweep = ["policy=graphwalker", "task=mimic3_mortality", "data.root=tables", "selector.k=1,2,3,4"]
    sweep += ["selector.k_g=4,8", "selector.k_c=1,3", "selector.k_a=1,3"]
    found = check(sweep, sweep=True)
    assert len({(c.selector.k, c.selector.k_g, c.selector.k_c, c.selector.k_a) for c in found if c.selector}) == 32
    assert {(c.task.name, c.data.name) for c in found} == {("series_mortality", "mimic3")}


def test_the_encoders_prediction_is_printed_where_it_is_asked_for(walkers: tuple[Cases, Walkers]) -> None:
    cases, (plain, _, scorer) = walkers
    told = replace(cases, selector=replace(cases.selector, variant="show_encoder"))
    _, pool, queries = make_pool(told, scorer().prompt.tokenizer, 4096, EFFORT)
    for patient in (*pool.patients, queries[0].patient):
        assert patient.text.splitlines()[-1].startswith("estimate of a trained model: ")
    assert not any("estimate" in patient.text for patient in plain.patients)
