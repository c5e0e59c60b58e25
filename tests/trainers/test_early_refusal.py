"""A rule that knows generated patients alone refuses real ones before a table is read or anything is built."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ghar.config import Config
from ghar.envs.system import Variant, check_numbers, check_variants, refused_variants
from ghar.errors import BadInput
from ghar.launch.entry import load as configuration
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.agent import load
from ghar.trainers.evaluation.compare import ComparedSystem, _build, _chosen, compare
from ghar.trainers.evaluation.evaluate import evaluate
from ghar.trainers.plan import show
from ghar.trainers.recipe import train
from ghar.trainers.runs.resume import as_yaml

REFUSED = r"knows the grades of the demo world and nothing of these patients: evaluate other variants \(\w+"
RULES = {
    "ghar": ("scripted", "scripted_nt", "scripted_fixed_2", "scripted_with_graphwalker.semantic_emb"),
    "kare": ("scripted", "scripted_base"), "comparators": ("rule_search_r1", "rule_rag"),
}  # fmt: skip


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A folder that no generator has signed."""
    folder = tmp_path / "hospital"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("recipe", "plan", "agent", "evaluation.evaluate", "evaluation.compare"):
        monkeypatch.setattr(f"ghar.trainers.{module}.Records", lambda *_: pytest.fail("records are opened"))
    monkeypatch.setattr("ghar.envs.system.build", lambda *_: pytest.fail("a system is built"))


def config_of(real: Path, *overrides: str) -> Config:
    own = f"data.root={real}", f"run_dir={real.parent / 'run'}", f"data.cache={real.parent / 'cache'}"
    return configuration(["task=read", "data=mimic4", "kg.path=own.csv", *own, *overrides])


@pytest.mark.parametrize(("system", "name"), [(system, name) for system, names in RULES.items() for name in names])
def test_no_phase_begins(system: str, name: str, real: Path) -> None:
    config = config_of(real, f"system={system}", f"eval.variants=[{name}]")
    for start in (train, evaluate, show):
        with pytest.raises(BadInput, match=REFUSED):
            start(config)
    assert not (real.parent / "run").exists() and not (real.parent / "cache").exists()


def test_patients_who_are_not_there_are_not_spoken_of(real: Path) -> None:
    for system in RULES:
        assert refused_variants(config_of(real, f"system={system}", f"data.root={real / 'absent'}")) == {}
        assert refused_variants(config_of(real, f"system={system}", "data=omop", "data.root=null")) == {}
        assert refused_variants(config_of(real, f"system={system}", "data.root=null")) == {}  # generated ones


def test_a_module_may_refuse_without_a_list_of_its_variants(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("ghar.envs.ghar.system.variant_names")
    with pytest.raises(BadInput, match=REFUSED):
        check_variants(config_of(real, "system=ghar", "eval.variants=[scripted]"))
    check_variants(config_of(real, "system=ghar", "eval.variants=[ghar_base]"))


def test_a_preset_that_lists_the_rule_is_refused_as_early(real: Path) -> None:
    with pytest.raises(BadInput, match=REFUSED):
        train(config_of(real, "+experiment=quick", "system=ghar"))


def test_an_agent_of_a_run_is_not_opened(real: Path) -> None:
    config = config_of(real, "system=ghar")
    RunFolder.open(Path(config.run_dir)).write_config(as_yaml(config))
    with pytest.raises(BadInput, match=REFUSED):
        load(config.run_dir, variant="scripted")
    with pytest.raises(BadInput, match=r"no variant scriptd: .*Did you mean scripted\?"):
        load(config.run_dir, variant="scriptd")


def test_a_comparison_of_nothing_else(real: Path) -> None:
    entries = [ComparedSystem(name, config_of(real, f"system={name}"), "") for name in ("ghar", "kare")]
    with pytest.raises(BadInput, match=f"rule-based teacher of system=ghar {REFUSED}"):
        compare(entries, [], ["scripted"], None)


def test_a_comparison_leaves_out_what_the_patients_refuse(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One refused variant leaves the others to be compared; a system with no other one is not built."""
    opened: list[str] = []
    records = SimpleNamespace(config=config_of(real, "system=exprag"), splits=None)
    monkeypatch.setattr("ghar.trainers.evaluation.compare.Records", lambda config: records)

    def build(_: object) -> SimpleNamespace:
        opened.append("exprag")
        return SimpleNamespace(variants=dict.fromkeys(("scripted", "usual", "ghar_base")), refused={})

    monkeypatch.setattr("ghar.envs.system.build", build)
    entries = [ComparedSystem(name, config_of(real, f"system={name}"), "") for name in ("kare", "exprag", "ghar")]
    built, left_out, _ = _build(entries, ["scripted"])
    assert list(built) == ["exprag"] == opened and set(left_out) == {"kare", "ghar"}
    assert left_out["ghar"].startswith("The rule-based teacher of system=ghar knows")
    built, left_out, _ = _build(entries, ["scripted", "usual"])
    assert list(built) == ["exprag"] and set(left_out) == {"kare", "ghar"}  # evaluations lend them usual, no comparison
    built, left_out, _ = _build(entries, ["scripted", "ghar_base"])
    assert list(built) == ["exprag", "ghar"] and set(left_out) == {"kare", "ghar.scripted"}


def test_a_comparison_of_no_variants_named_plays_no_refused_rule() -> None:
    """Without a run: the rules that are not refused, and the main variant by an untrained model."""
    variants = {name: Variant(name, who=who) for name, who in {"a": "teacher", "b": "rule", "main": "trained"}.items()}
    system: Any = SimpleNamespace(
        variants=variants, listed=("main",), main="main", fixed={"teacher": None, "rule": None}, refused={"a": "no"},
        asks_model=lambda variant: variant.who == "trained",
    )  # fmt: skip
    assert [variant.name for variant in _chosen(system, (), None)] == ["b", "main"]
    system.refused = {"a": "no", "b": "no"}
    assert [variant.name for variant in _chosen(system, (), None)] == ["main"]


def test_others_are_not_refused(real: Path) -> None:
    """What knows no grades plays real patients, and every rule plays generated ones."""
    check_variants(config_of(real, "system=ghar", "eval.variants=[ghar_rl,llm_only,usual]"))
    check_variants(config_of(real, "system=exprag", "eval.variants=[scripted]"))
    check_variants(config_of(real, "system=graphwalker", "eval.variants=[scripted_alike]"))
    check_variants(config_of(real, "system=ghar", "task=order_check", "eval.variants=[scripted]"))
    check_variants(config_of(real, "+experiment=order_check", "task=order_check"))
    for system, names in RULES.items():
        config = configuration([f"system={system}", "task=read", f"eval.variants=[{','.join(names)}]"])
        check_variants(config)
        assert not refused_variants(config)


NO_GRADES = r"as numbers are made from grades of the demo world, which these patients lack"
TEXT_ALONE = r"system \w+ shows its decisions as text alone"


def test_no_numbers_are_made_of_real_patients(real: Path) -> None:
    """RLlib learns from grades: training and evaluation refuse real patients, and systems without such decisions."""
    with pytest.raises(BadInput, match=NO_GRADES):
        check_numbers(config_of(real, "system=ghar"))
    for overrides in (["system=kare"], ["system=exprag"], ["system=ghar", "task=order_check"]):
        with pytest.raises(BadInput, match=TEXT_ALONE):
            check_numbers(config_of(real, *overrides))
    several = ["system=ghar", "system.decision=everyone", "system.sources=[graph,past]"]
    with pytest.raises(BadInput, match=TEXT_ALONE):
        check_numbers(configuration(["task=los", "data=demo_four", *several]))
    with pytest.raises(BadInput, match="tells no label of task=labels"):
        check_numbers(configuration(["system=ghar", "task=labels", "task.labels=own.csv"]))
    for task in ("los", "read", "dec", "kare_mortality", "kare_readmission"):
        check_numbers(configuration(["system=ghar", f"task={task}"]))


def test_the_policy_of_rllib_plays_no_real_patients(real: Path) -> None:
    config = config_of(real, "system=ghar", "rllib=ppo", f"rllib.checkpoint={real}")
    for start in (train, evaluate, show):
        with pytest.raises(BadInput, match=NO_GRADES):
            start(config)
    assert not (real.parent / "run").exists()
