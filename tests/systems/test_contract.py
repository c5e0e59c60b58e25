"""One contract for every system that can be found, and for a user's own: what DESIGN.md promises of `System`."""

from __future__ import annotations

import functools
import json
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ghar.config import Config
from ghar.data.tasks.splits import Splits
from ghar.envs import check
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.stepper import scene_of
from ghar.envs.system import System, build, role_names, variant_names
from ghar.envs.views.games import TextGame, TokenGame, codec_of
from ghar.envs.views.gym_view import GymView
from ghar.episode import Act
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.llm.hf import HFEngine
from ghar.llm.models import untrained
from ghar.trainers.base import reader_of
from ghar.trainers.evaluation.evaluate import NoPolicy, table_of
from ghar.trainers.rows import lookup_rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "docs" / "examples"))
ROOMS = sorted(p.parent.name for p in (ROOT / "envs").glob("*/system.py"))
PUBLISHED = ["ehr_rag", "exprag", "ghar", "graphwalker", "kare"]
WITHOUT_AGENTS = ["baselines"]  # no one acts in them, so there is nothing to view and nothing to train
SYSTEMS = [*ROOMS, "mine.searcher"]
ACTING = [name for name in SYSTEMS if name not in WITHOUT_AGENTS]
SMALL = [
    "threads=1", "data.patients=120", "model.hidden=32", "model.layers=2", "model.vocab=1600",
    "trainer.base.steps=1", "trainer.base.batch=16", "trainer.warmup.samples=24", "trainer.warmup.epochs=1",
    "trainer.rl.updates=1", "trainer.rl.episodes=8", "trainer.rl.eval_every=1", "trainer.rl.eval_samples=6",
    "task.max_train=60", "task.max_valid=8", "task.max_test=8", "eval.bootstrap=20", "task=read",
]  # fmt: skip
OWN = {"kare": ["system.leiden_runs=2", "system.concepts=4", "system.path_count=4", "system.chains=1"]}
ROW = {
    "policy", "split", "sample_id", "subject_id", "patient", "label", "prediction", "label_probabilities", "correct",
    "needs_retrieval", "retrieved", "iterations", "rewards", "weighted", "reward", "errors", "prompt_tokens",
    "completion_tokens", "neutralised", "retrievals", "seconds", "failure", "turns", "credentialed", "lookups",
}  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def config_of(name: str, cache: Path, run: Path, *more: str) -> Config:
    own = [f"system={name}", f"data.cache={cache}", f"run_dir={run}", *SMALL, *OWN.get(name, []), *more]
    return load(own)


@pytest.fixture(scope="module", params=SYSTEMS)
def built(request: pytest.FixtureRequest, cache: Path) -> tuple[System[Any], Config]:
    config = config_of(request.param, cache, cache / "unused")
    return build(Records(config)), config


def test_the_rooms_are_the_five_published_systems_and_what_they_are_compared_with():
    assert sorted(ROOMS) == sorted([*PUBLISHED, *WITHOUT_AGENTS, "comparators"])


def test_a_system_says_what_others_need_to_know(built: tuple[System[Any], Config]):
    system, config = built
    assert bool(system.agents) == bool(system.roles) == (config.system.name not in WITHOUT_AGENTS)
    assert system.main in system.variants and set(system.listed) <= set(system.variants)
    assert system.training.teacher is None or system.training.teacher in system.fixed
    for name, variant in system.variants.items():
        assert variant.name == name and (system.asks_model(variant) or variant.who in ("", *system.fixed)), name
    parts = system.cases.train, system.cases.valid, system.cases.test
    subjects = [{case.subject_id for case in part} for part in parts]
    assert all(parts) and not subjects[0] & subjects[2] and not subjects[1] & subjects[2]
    for case in (case for part in parts for case in part):
        assert isinstance(case.sample_id, str) and isinstance(case.text, str)
        assert system.in_words(case, case.label) is not None


def test_names_of_variants_are_known_before_tables_are_read(built: tuple[System[Any], Config]):
    """Of every room; a system of one's own may leave them to `build`."""
    system, config = built
    names = variant_names(config)
    assert (names is None) == (config.system.name not in ROOMS)
    table = table_of(system, Records(config))
    assert names is None or (set(names) == set(table.variants) and len(set(names)) == len(names))


def test_roles_are_known_before_tables_are_read(built: tuple[System[Any], Config]):
    """Of every room; of a system of one's own `build` refuses a wrong one."""
    system, config = built
    names = role_names(config)
    assert (names is None) == (config.system.name not in ROOMS)
    assert names is None or names == system.roles
    if names is None:
        with pytest.raises(BadInput, match=f"env.reply_tokens names nothing, .* for {', '.join(system.roles)}"):
            build(Records(_with_budgets(config, {"nothing": 7})))


def test_every_reply_and_the_plan_obey_the_budget_of_the_configuration(built: tuple[System[Any], Config]):
    from ghar.trainers.memory import shape_of
    from ghar.trainers.probe import probe

    system, config = built
    if not system.agents:
        pytest.skip("no one replies in this system")
    shape, longest = shape_of(config), {}
    assert shape is not None
    for tokens in (7, 700):
        own = _with_budgets(config, dict.fromkeys(system.roles, tokens))
        limited = build(Records(own))
        rules = [v for v in limited.variants.values() if v.who in limited.fixed]
        for variant in rules[:4]:
            policy = limited.fixed[variant.who]()
            episodes = play(stage_of(limited, variant, own), limited.cases.test, policy, seed=3, title=variant.name)
            acts = [record.effect for e in episodes for record in e.trace if isinstance(record.effect, Act)]
            assert {act.max_tokens for act in acts} == {tokens}, variant.name
        longest[tokens] = probe(limited, own, shape).longest or 0
    by_rule = config.trainer.warmup.teacher == "scripted" and system.training.teacher is not None
    grown = longest[700] - longest[7]  # a word is one and a half tokens, and halves are rounded to even numbers
    assert abs(grown - 693) <= 1 or (not by_rule and grown > 0)


def _with_budgets(config: Config, budgets: dict[str, int]) -> Config:
    return replace(config, env=replace(config.env, reply_tokens=budgets))


def test_every_system_has_the_same_samples_of_a_task_of_visits(built: tuple[System[Any], Config]):
    system, config = built
    wanted = Records(config).splits
    assert [case.sample_id for case in system.cases.test] == [sample.sample_id for sample in wanted.test]
    assert [case.label for case in system.cases.test] == [sample.label for sample in wanted.test]


def test_a_row_knows_which_passages_its_prompts_showed(built: tuple[System[Any], Config]):
    """In the words of its prompts, which need not be those of the passage: an evaluation warns where none is shown."""
    system, config = built
    for variant in (v for v in system.variants.values() if v.who in system.fixed):
        stage = stage_of(system, variant, config)
        episodes = play(stage, system.cases.test, system.fixed[variant.who](), seed=3, title=variant.name)
        passages = [one for e in episodes for look_up in lookup_rows(system, e) for one in look_up["found"]]
        assert not passages or any(one["shown"] for one in passages), variant.name


def test_rules_play_the_same_episodes_whatever_the_schedule(built: tuple[System[Any], Config]):
    system, config = built
    rules = [v for v in system.variants.values() if v.who in system.fixed or not (v.who or system.agents)]
    assert rules, "a system needs at least one variant that can be played without a language model"
    for variant in rules[:4]:
        policy = system.fixed[variant.who]() if variant.who else NoPolicy()
        told = []
        for in_flight in (1, 16):
            own = replace(config, env=replace(config.env, in_flight=in_flight))
            episodes = play(stage_of(system, variant, own), system.cases.test, policy, seed=3, title=variant.name)
            told.append([(e.prediction.label, [t.completion.text for t in e.turns]) for e in episodes])
            assert not any(e.failure for e in episodes), [e.failure for e in episodes]
            for episode in episodes:
                assert {t.agent for t in episode.turns} <= set(system.agents)
                assert {t.role for t in episode.turns} <= set(system.roles)
        assert told[0] == told[1], variant.name


def test_views_keep_their_promises(built: tuple[System[Any], Config]):
    system, config = built
    if not system.agents:
        pytest.skip("no one acts in this system, so there is nothing to view")
    texts = list(system.training.texts()) or [case.text for case in system.cases.train]
    model, tokenizer = untrained(config, texts, (), 0)
    system = system.read_by(reader_of(tokenizer, model, HFEngine(model, tokenizer, 16)))  # for a corpus that asks it
    few = replace(system, cases=Splits(system.cases.train[:3], system.cases.valid, system.cases.test))
    scene = scene_of(few)
    check(GymView(TextGame(scene)), episodes=1)
    check(GymView(TokenGame(scene, codec_of(tokenizer), 1 << 15)), episodes=1)


def test_a_stage_can_be_sent_to_another_process(built: tuple[System[Any], Config]):
    system, config = built
    stage = stage_of(system, system.variants[system.main], config)
    sent = pickle.loads(pickle.dumps((stage.episode, stage.variant, system.cases.test[0])))
    assert sent[2].sample_id == system.cases.test[0].sample_id


TWICE = ("trainer.rl.updates=2", "trainer.rl.save_every=1")


@pytest.fixture(scope="module")
def trained(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Config]:
    """The configuration of a system's whole run of two updates, which is trained once."""

    @functools.cache
    def of(name: str) -> Config:
        from ghar.trainers.recipe import train

        config = config_of(name, cache, tmp_path_factory.mktemp(name) / "run", *TWICE)
        train(config)
        return config

    return of


def test_the_plan_plays_every_variant_with_weights_of_its_own(built: tuple[System[Any], Config]):
    from ghar.trainers.memory import shape_of
    from ghar.trainers.probe import probe_variants

    system, config = built
    own = [name for name, variant in system.variants.items() if variant.who in system.training.stages]
    shape = shape_of(config)
    assert shape is not None
    counts = probe_variants(system, replace(config, eval=replace(config.eval, variants=tuple(own) or None)), shape)
    assert set(counts) == set(own) and all(counted.calls >= 1 and counted.prompt > 0 for counted in counts.values())


@pytest.mark.parametrize("name", ACTING)
def test_the_recipe_trains_it_from_tables_to_report(name: str, trained: Callable[[str], Config]):
    from ghar.trainers.evaluation.evaluate import evaluate

    config = trained(name)
    run = Path(config.run_dir)
    summary = json.loads((run / "summary.json").read_text())
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    updates = [row for row in rows if row["phase"] == "rl" and row["step"] == 1]
    assert {"base", "sft", "rl"} >= {row["phase"] for row in rows} and len(updates) == 1
    assert abs(updates[0]["train/ratio/first"] - 1) < 1e-5, "the trainer scores replies as the engine sampled them"
    assert updates[0]["train/grad_norm"] > 0
    assert set(summary["policies"]) >= {summary["main"]}
    for variant in summary["policies"]:
        lines = (run / "episodes" / f"{variant}.jsonl").read_text().splitlines()
        assert len(lines) == 8 and set(json.loads(lines[0])) >= ROW
    assert (run / "report.html").is_file()
    again = evaluate(config)
    main = summary["main"]
    assert again["policies"][main]["accuracy"] == summary["policies"][main]["accuracy"]


@pytest.mark.parametrize("name", ACTING)
def test_a_killed_training_goes_on_with_the_same_numbers(
    name: str, cache: Path, tmp_path: Path, trained: Callable[[str], Config]
):
    from ghar.trainers.recipe import train

    whole, config = Path(trained(name).run_dir), config_of(name, cache, tmp_path / "cut", *TWICE)
    with pytest.MonkeyPatch.context() as patch:
        from ghar.trainers import recipe

        before = recipe.TrainingRun.log

        def log(self: Any, row: dict[str, Any]) -> None:
            if row["phase"] == "rl" and row["step"] == 2:
                raise KeyboardInterrupt
            before(self, row)

        patch.setattr(recipe.TrainingRun, "log", log)
        with pytest.raises(KeyboardInterrupt):
            train(config)
    train(config)
    assert learned(whole) == learned(tmp_path / "cut")


def learned(run: Path) -> list[dict[str, Any]]:
    """Metrics without those of the base model, which the second of two runs finds in the cache."""
    return [row for row in numbers(run) if row["phase"] != "base"]


def numbers(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what depends on the clock."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    clock = ("time/", "train/tokens_per_second", "eval/seconds")
    return [{k: v for k, v in row.items() if not k.startswith(clock)} for row in rows]


@pytest.mark.parametrize("name", WITHOUT_AGENTS)
def test_a_system_without_agents_is_evaluated_but_not_trained(name: str, cache: Path, tmp_path: Path):
    from ghar.trainers.evaluation.evaluate import evaluate
    from ghar.trainers.recipe import train

    with pytest.raises(BadInput, match=f"system {name} has no agents that learn, so there is nothing to train"):
        train(config_of(name, cache, tmp_path / "trained"))
    summary = evaluate(config_of(name, cache, tmp_path / "run", "eval.variants=[usual,severities,memory]"))
    assert set(summary["policies"]) == {"usual", "severities", "memory"}
    for variant in summary["policies"]:
        lines = (tmp_path / "run" / "episodes" / f"{variant}.jsonl").read_text().splitlines()
        assert len(lines) == 8 and set(json.loads(lines[0])) == ROW | {"threshold"}
    assert (tmp_path / "run" / "report.html").is_file()


def test_compare_leaves_out_a_system_without_any_of_the_variants_named(cache: Path, tmp_path: Path):
    from ghar.trainers.evaluation.compare import ComparedSystem, compare

    entries = [
        ComparedSystem(name, config_of(name, cache, tmp_path / name), "") for name in ("mine.searcher", "baselines")
    ]
    found = compare(entries, [], ["usual"], tmp_path / "compared")
    assert list(found["policies"]) == ["baselines.usual"]
    assert "none of the variants named" in found["left_out"]["mine.searcher"]
    with pytest.raises(BadInput, match=r"scripte, which no system here has.* Did you mean scripted\?"):
        compare(entries, [], ["usual", "scripte"], tmp_path / "nothing")  # before anything is played


def test_compare_puts_all_systems_into_one_table(cache: Path, tmp_path: Path):
    from ghar.trainers.evaluation.compare import ComparedSystem, compare

    entries = [ComparedSystem(name, config_of(name, cache, tmp_path / name), "") for name in SYSTEMS]
    named = ["scripted", "scripted_semantic_emb", "severities", "rule_search_r1"]
    found = compare(entries, [], named, tmp_path / "compared")
    assert set(found["systems"]) == set(SYSTEMS) and not found["left_out"]
    assert found["samples"] == 8 and found["patients"] <= 8
    for numbers in found["policies"].values():
        assert {"accuracy", "calls", "tokens", "lookups", "seconds"} <= set(numbers)
    assert np.isfinite([value for pair in found["differences"].values() for value in pair["accuracy"]]).all()
    page = (tmp_path / "compared" / "report.html").read_text()
    assert "One patient through all systems" in page and "generated" in page
    assert not os.listdir(tmp_path / "compared" / "episodes") == []
