"""SFT on pruned data: samples for which GHAR did not retrieve are answered from the record alone, with their label."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from ghar.config import Config
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.episode import Act, Retrieve
from ghar.errors import BadInput


@pytest.mark.parametrize("method", ["lightrag", "medrag"])
def test_samples_without_a_retrieval_become_records_and_labels(
    method: str, small_config: Callable[..., Config], tmp_path: Path
) -> None:
    keys = ("system=comparators", "task=los", f"system.method={method}")
    whole = build(Records(small_config(*keys)))
    ids = [case.sample_id for case in whole.cases.train]
    retrievals = [i % 2 for i in range(len(ids))]
    pl.DataFrame({"sample_id": ids, "retrievals": retrievals}).write_parquet(tmp_path / "retrievals.parquet")
    config = small_config(*keys, f"system.pruned_by={tmp_path / 'retrievals.parquet'}")
    system = build(Records(config))
    assert whole.teacher_variant() == whole.variants[method] == system.variants[method], "at the test nothing changes"
    rule = system.fixed[system.training.teacher or ""]()
    cases = system.cases.train[:40]
    episodes = play(stage_of(system, system.teacher_variant(), config), cases, rule, seed=0, title="")
    for case, episode, count in zip(cases, episodes, retrievals, strict=False):
        effects = [record.effect for record in episode.trace]
        if count == 0:
            assert [type(effect) for effect in effects] == [Act] and episode.prediction.label == case.label
        else:
            assert any(isinstance(effect, Retrieve) for effect in effects)


def test_a_file_that_holds_no_retrievals_is_named(small_config: Callable[..., Config], tmp_path: Path) -> None:
    pl.DataFrame({"sample_id": ["a"]}).write_parquet(tmp_path / "other.parquet")
    for name, said in (("none.parquet", "cannot be read"), ("other.parquet", "has no column retrievals")):
        config = small_config("system=comparators", "task=los", f"system.pruned_by={tmp_path / name}")
        with pytest.raises(BadInput, match=rf"system\.pruned_by=.*{said}.*launch/record_retrievals\.py"):
            build(Records(config))
