"""What eval.checkpoint may name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ghar.config import Config
from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.trainers.evaluation.evaluate import answered_by, evaluate, print_untrained, title_of
from ghar.trainers.evaluation.weights import RunStages, check_trained, find, lacking_variants, without_variants
from ghar.trainers.runs.resume import as_yaml


def test_a_runs_own_sft_is_a_saved_model_and_no_step(tmp_path: Path) -> None:
    sft = tmp_path / "run" / "checkpoints" / "sft"
    sft.mkdir(parents=True)
    for name in ("config.json", "manifest.json"):  # the manifest seals the folder, as it seals a step's
        (sft / name).write_text("{}")
    config = load(["task=read", f"eval.checkpoint={sft}", f"run_dir={tmp_path / 'other'}"])
    assert find(config) == RunStages(tmp_path / "other" / "checkpoints", None)
    step = sft.with_name("step-3")
    step.mkdir()
    (step / "model.json").write_text("{}")
    assert find(load(["task=read", f"eval.checkpoint={step}"])) == RunStages(sft.parent, step)
    with pytest.raises(BadInput, match="is no checkpoint"):
        find(load(["task=read", f"eval.checkpoint={tmp_path}"]))


def test_a_variant_whose_stage_a_trained_run_lacks_is_not_played_by_the_base(
    small_config: Callable[..., Config], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An EXPRAG run from before label-only SFT has no folder of it; a run that was never trained has no folders."""
    system, found = build(Records(small_config("system=exprag", "task=los"))), RunStages(tmp_path, None)
    assert lacking_variants(system, found) == [] and capsys.readouterr().out == ""
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft" / "config.json").write_text("{}")
    assert lacking_variants(system, found) == ["label_sft"]
    assert capsys.readouterr().out.count("label_sft is left out") == 1
    listed = without_variants(system, ["label_sft"]).listed
    assert listed == tuple(name for name in system.listed if name != "label_sft") != system.listed
    assert lacking_variants(system, found, ["direct", "exprag"]) == []
    with pytest.raises(BadInput, match=r"label_sft does not exist.*leave this variant out"):
        lacking_variants(system, found, ["direct", "label_sft"])
    (tmp_path / "label_sft").mkdir()
    (tmp_path / "label_sft" / "config.json").write_text("{}")
    assert lacking_variants(system, found, ["label_sft"]) == lacking_variants(system, found) == []


@pytest.mark.slow
def test_weights_of_another_system_are_refused_before_a_variant_is_played(
    small_config: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = tmp_path / "run/checkpoints/step-1"
    (step.parent / "sft").mkdir(parents=True)
    step.mkdir()
    named = f"eval.checkpoint={step}", f"run_dir={tmp_path / 'out'}"
    config = small_config("system=ehr_rag", "task=los", *named, "eval.variants=[scripted,ehr_rag]")
    trained = {"finetune": config.model.finetune, "critic": config.model.critic, "agents": "high,low"}
    (step / "model.json").write_text(json.dumps({"trained": json.dumps(trained)}))
    (tmp_path / "run/config.yaml").write_text(as_yaml(small_config("system=ghar", "task=los")))
    monkeypatch.setattr("ghar.trainers.evaluation.evaluate.evaluate_system", lambda *_: pytest.fail("it plays"))
    monkeypatch.setattr("ghar.trainers.evaluation.evaluate.check_overlap", lambda *_: None)
    with pytest.raises(BadInput, match=r"step-1 was trained for system=ghar, and this is system=ehr_rag: name a check"):
        evaluate(config)
    system = build(Records(config))
    check_trained(config, system, [system.variant("scripted")])  # a rule asks for no weights
    (tmp_path / "run/config.yaml").write_text(as_yaml(config))
    with pytest.raises(BadInput, match=r"step-1 was trained another way .*agents is high,low there and"):
        check_trained(config, system, [system.variant("ehr_rag")])


def test_an_untrained_model_is_not_named_after_a_training(
    small_config: Callable[..., Config], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped run_dir would else be reported as the trained policy."""
    config = small_config("system=exprag", "task=los", f"run_dir={tmp_path / 'mistyped'}")
    system, names = build(Records(config)), ("exprag", "exprag_base", "scripted")
    variants = [system.variant(name) for name in names]
    print_untrained(system, config, variants)
    printed = capsys.readouterr().out
    assert printed.startswith(f"{config.run_dir} holds no trained weights: the model as it was loaded answers exprag. ")
    for stages, marked in (({}, ["exprag"]), ({"exprag": "trained"}, [])):
        answered = answered_by(system, RunStages(tmp_path, None), variants) | stages
        titles = {variant.name: title_of(variant, answered[variant.name]) for variant in variants}
        assert [name for name, title in titles.items() if title.endswith(" (model as loaded)")] == marked
