"""A wrong name in eval.variants is refused before any table is read, a right one is not (rooms: test_contract.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from ghar.config import Config
from ghar.envs.kare.methods import TUNED_RAG
from ghar.envs.records import Records
from ghar.envs.system import build, check_variants, variant_names
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.trainers.evaluation.evaluate import evaluate, table_of
from ghar.trainers.plan import show
from ghar.trainers.recipe import train
from tests.envs.exams import exam_keys
from tests.envs.test_summaries import config_of as config_of_summaries

pytestmark = pytest.mark.slow

ROUTED = "system.sources=[graph,past]"
GENERATED = (
    ("system=ghar", "task=read", "data=demo_four", ROUTED, "system.decision=everyone"),
    ("system=ghar", "task=los", "system.decision=always"), ("system=exprag", "task=dischargeqa_diagnosis"),
    ("system=comparators", "task=read", "system.method=medrag"),
)  # fmt: skip


@pytest.mark.parametrize("overrides", GENERATED, ids=" ".join)
def test_what_the_configuration_changes(overrides: Sequence[str], small_config: Callable[..., Config]) -> None:
    _is_whole(small_config(*overrides))


@pytest.mark.parametrize("name", ["ghar", "comparators", "exprag", "graphwalker"])
def test_of_questions(name: str, tmp_path: Path) -> None:
    _is_whole(load([*exam_keys(tmp_path), f"data.cache={tmp_path}", f"system={name}"]))


@pytest.mark.parametrize("name", ["ghar", "comparators"])
def test_of_summaries(name: str, tmp_path: Path) -> None:
    _is_whole(config_of_summaries(tmp_path, f"system={name}"))


def test_of_time_series(small_config: Callable[..., Config]) -> None:
    _is_whole(small_config("system=graphwalker", "task=series_mortality", "system.encoder=text", "task.max_test=4"))


def test_of_orders(shared_data: Path, tmp_path: Path) -> None:
    tables, graph = shared_data / "mimic-iv-demo-2.2", shared_data / "kg/primekg-subset/merged_kg_12col.csv.gz"
    own = ("task=order_check", "data=mimic4", f"data.root={tables}", f"kg.path={graph}", f"data.cache={tmp_path}")
    _is_whole(load(["system=ghar", *own]))


def test_data_may_lack_some(small_config: Callable[..., Config], tmp_path: Path) -> None:
    """A world without further sources knows not which of them a visit needs; without a folder of abstracts KARE looks
    none up; a graph of one's own states no grades."""
    _is_whole(small_config("system=ghar", "task=los", ROUTED), {"router_truth", "scripted_router_truth"})
    config = load(["system=kare", "task=read", "data=mimic4", f"data.root={tmp_path}", "kg.path=own.csv"])
    names = variant_names(config) or ()
    assert TUNED_RAG in names and "boosting" in names and "boosting_evidence" not in names
    check_variants(load(["system=kare", "task=read", "eval.variants=[rag_tuned]"]))


def _is_whole(config: Config, lacking: Collection[str] = ()) -> None:
    """The names known early are those of the table of an evaluation, and those that its data lack."""
    records = Records(config)
    names, table = variant_names(config) or (), table_of(build(records), records)
    assert set(names) == {*table.variants, *lacking} and len(set(names)) == len(names)
    assert not table.variants.keys() & set(lacking)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("system=graphwalker", "eval.variants=[grahpwalker]"), r"grahpwalker: choose .*Did you mean graphwalker\?"),
        (("system=graphwalker", "eval.variants=[encoder]"), "no variant encoder: "),  # of time series alone
        (("system=ghar", "eval.variants=[ghar_rl,everyone]"), "no variant everyone: "),  # of several sources
        (("system=ghar", "eval.variants=[ghar_r_with_graphwalker.ids]"), r"ghar_r_with_graphwalker\.ids: .*ghar_rl"),
        (("system=kare", "eval.variants=[boostin]"), r"no variant boostin: .*Did you mean boosting\?"),
        (("system=exprag", "eval.variants=[rllib]"), "no variant rllib: "),
    ],
)
def test_a_wrong_name_is_refused_before_tables_are_read(
    overrides: Sequence[str], sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in ("recipe", "plan", "evaluation.evaluate"):
        monkeypatch.setattr(f"ghar.trainers.{module}.Records", lambda *_: pytest.fail("tables are read"))
    config = load([*overrides, "task=read", f"run_dir={tmp_path / 'run'}"])
    for start in (train, evaluate, show):
        with pytest.raises(BadInput, match=sentence):
            start(config)
    assert not (tmp_path / "run").exists()


def test_right_names_pass() -> None:
    for names in ("ghar_rl,usual,severities_evidence", "ghar_rl_with_graphwalker.semantic_emb", "scripted_nt,fixed_2"):
        check_variants(load(["system=ghar", "task=read", f"eval.variants=[{names}]"]))
    check_variants(load(["system=ghar", "task=read", "rllib=ppo", "rllib.checkpoint=there", "eval.variants=[rllib]"]))
    check_variants(load(["system=graphwalker", "task=series_los", "eval.variants=[encoder,time_series]"]))
