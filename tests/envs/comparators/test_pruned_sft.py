"""SFT on pruned data: samples for which GHAR did not retrieve are answered from the record alone, with their label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ghar.config import Config
from ghar.envs.play import play, stage_of, teacher_cases
from ghar.envs.records import Records
from ghar.envs.system import WORDS, System, build
from ghar.episode import Act, Episode, Retrieve
from ghar.errors import BadInput
from ghar.inputs import missing
from ghar.trainers.sft.warmup import sample_references

pytestmark = pytest.mark.slow

Make = Callable[..., Config]


def write_decisions(path: Path, ids: Sequence[str], retrieved: Sequence[bool | None]) -> Path:
    """A file as launch/record_retrievals.py writes it."""
    schema = {"sample_id": pl.String, "retrieved": pl.Boolean}
    pl.DataFrame({"sample_id": ids, "retrieved": retrieved}, schema).write_parquet(path)
    return path


def lessons(system: System[Any], config: Config) -> dict[str, Episode]:
    """The episodes that SFT imitates, by sample."""
    own = system.read_by(WORDS)
    teacher = own.fixed[own.training.teacher or ""]()
    found = sample_references(own, config, teacher, teacher_cases(own, config))
    return {episode.sample_id: episode for episode in found.accepted}


def replies(episode: Episode) -> list[tuple[str, str]]:
    acts: list[Any] = [record for record in episode.trace if isinstance(record.effect, Act)]
    return [(record.effect.prompt, record.result.text) for record in acts]


@pytest.mark.parametrize("method", ["lightrag", "medrag"])
def test_samples_without_a_retrieval_become_records_and_labels(
    method: str, small_config: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ("system=comparators", "task=los", f"system.method={method}")
    plain = small_config(*keys)
    whole = build(Records(plain))
    ids = [case.sample_id for case in whole.cases.train]
    decided: list[bool | None] = [[False, True, None][i % 3] for i in range(len(ids))]  # None: the episode failed
    path = write_decisions(tmp_path / "retrievals.parquet", ids, decided)
    config = small_config(*keys, f"system.pruned_by={path}")
    system = build(Records(config))
    assert whole.teacher_variant() == whole.variants[method] == system.variants[method], "at the test nothing changes"
    before, after = lessons(whole, plain), lessons(system, config)
    direct = {ident for ident, one in zip(ids, decided, strict=True) if one is False}
    asked = {case.sample_id: case for case in teacher_cases(system, config)}
    line = f"{len(direct & set(asked))} of {len(asked)} training samples that the teacher tries are answered from"
    assert line in capsys.readouterr().out
    assert direct & set(asked) <= set(after), "the rule gives their labels, so all of them are lessons"
    for ident, episode in after.items():
        effects = [record.effect for record in episode.trace]
        if ident in direct:
            assert [type(effect) for effect in effects] == [Act] and episode.prediction.label == asked[ident].label
            assert ident not in before or replies(episode) != replies(before[ident])
        else:
            assert any(isinstance(effect, Retrieve) for effect in effects)
            assert replies(episode) == replies(before[ident])
    assert set(after) - direct == set(before) - direct


def test_the_file_does_not_touch_what_the_rule_answers_at_the_test(small_config: Make, tmp_path: Path) -> None:
    keys = ("system=comparators", "task=los", "system.method=lightrag")
    plain = build(Records(small_config(*keys)))
    ids = [case.sample_id for case in plain.cases.train]
    path = write_decisions(tmp_path / "retrievals.parquet", ids, [False] * len(ids))
    config = small_config(*keys, f"system.pruned_by={path}")
    pruned = build(Records(config))
    for split in ("train", "test"):
        found = []
        for system in (plain, pruned):
            stage = stage_of(system, system.variants["rule_lightrag"], config)
            cases = getattr(system.cases, split)[:40]
            found.append(list(map(replies, play(stage, cases, system.fixed["rule"](), seed=0, title=""))))
        assert found[0] == found[1]


def test_a_file_of_other_samples_is_refused(small_config: Make, tmp_path: Path) -> None:
    keys = ("system=comparators", "task=los")
    system = build(Records(small_config(*keys)))
    ids, tested = ([case.sample_id for case in part] for part in (system.cases.train, system.cases.test))
    tried = [case.sample_id for case in teacher_cases(system, small_config(*keys))]
    n, path = len(tried), tmp_path / "other.parquet"
    for there, strange, lacking in ((tested, len(tested), n), (tried[2:], 0, 2), ([*ids, tested[0]], 1, 0),
                                    ([*tried, tried[0]], 1, 0)):  # fmt: skip
        write_decisions(path, there, [False] * len(there))
        config = small_config(*keys, f"system.pruned_by={path}")
        said = rf"other\.parquet is of other data: of its {len(there)} samples {strange} .* {lacking} of the {n} that "
        with pytest.raises(BadInput, match=rf"{said}.*launch/record_retrievals\.py"):
            lessons(build(Records(config)), config)


def test_a_file_need_have_no_sample_that_the_teacher_does_not_try(small_config: Make, tmp_path: Path) -> None:
    keys = ("system=comparators", "task=los", "system.method=lightrag")
    system = build(Records(small_config(*keys)))
    tried = [case.sample_id for case in teacher_cases(system, small_config(*keys))]
    assert len(tried) < len(system.cases.train)
    path = write_decisions(tmp_path / "retrievals.parquet", tried, [False] * len(tried))
    config = small_config(*keys, f"system.pruned_by={path}")
    assert set(lessons(build(Records(config)), config)) == set(tried), "the rule gives their labels"


def test_a_file_that_holds_no_retrievals_is_named(small_config: Make, tmp_path: Path) -> None:
    pl.DataFrame({"sample_id": ["a"]}).write_parquet(tmp_path / "other.parquet")
    pl.DataFrame({"sample_id": ["a"], "retrieved": ["no"]}).write_parquet(tmp_path / "texts.parquet")
    pl.DataFrame({"sample_id": [1], "retrieved": [True]}).write_parquet(tmp_path / "numbers.parquet")
    (tmp_path / "text.parquet").write_text("sample_id,retrieved\n")
    (tmp_path / "folder").mkdir()
    for name, said in (
        ("none.parquet", "cannot be read: it does not exist"), ("other.parquet", "has no column retrieved"),
        ("texts.parquet", "has a column retrieved of String in place of Boolean"),
        ("numbers.parquet", "has a column sample_id of Int64 in place of String"),
        ("text.parquet", "cannot be read as Parquet"), ("folder", "is a folder"),
    ):  # fmt: skip
        config = small_config("system=comparators", "task=los", f"system.pruned_by={tmp_path / name}")
        told = rf"^system\.pruned_by=\S*{name} {said}: write it by launch/record_retrievals\.py\.$"
        with pytest.raises(BadInput, match=told):
            lessons(build(Records(config)), config)


def test_training_alone_asks_for_the_file(small_config: Make, tmp_path: Path) -> None:
    config = small_config("system=comparators", "task=los", f"system.pruned_by={tmp_path / 'gone.parquet'}")
    assert build(Records(config)).variants["search_r1"].spec.direct == frozenset()
    assert [text for text in missing(config) if text.startswith("system.pruned_by=") and "does not exist" in text]
    assert not [text for text in missing(config, training=False) if "pruned_by" in text]
