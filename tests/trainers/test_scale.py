"""A real model at scale=demo is announced, and nothing else is."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import pytest
import yaml
from transformers import LlamaConfig

from ghar.errors import BadInput
from ghar.launch.compare import main as compare
from ghar.launch.entry import load
from ghar.launch.evaluate import run as evaluate
from ghar.launch.train import run as train
from ghar.trainers.plan import show
from ghar.trainers.scale import DEMO as DEMO_VALUES
from ghar.trainers.scale import DEMO_TRAINING, scale_notice

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DEMO = next(folder.parent for folder in (ROOT / "envs/ghar/base_models").glob("*/config.json"))


@pytest.fixture
def real(tmp_path: Path) -> str:
    """The configuration of a model of 15 million weights, without the weights."""
    config = LlamaConfig(
        vocab_size=4096, hidden_size=512, intermediate_size=1536, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, tie_word_embeddings=True,
    )  # fmt: skip
    config.save_pretrained(tmp_path / "real")
    return str(tmp_path / "real")


def test_a_real_model_with_the_demos_settings_is_announced(real: str) -> None:
    named = ["model=pretrained", f"model.path={real}"]
    assert scale_notice(load(named)) == (
        f"scale=demo is made for the demo's small model, and model.path={real} gets its settings (env.prompts=compact, "
        "env.history_tokens=48, trainer.warmup.teacher=scripted, trainer.warmup.lr=0.001): for a real model add "
        "scale=laptop."
    )
    full = scale_notice(load([*named, "data=mimic4", "data.root=x", "kg.path=x"]))
    assert full is not None and full.endswith("add scale=laptop, or scale=full for GPUs.")
    env = ["env.prompts=full", "env.history_tokens=800"]
    own = scale_notice(load([*named, *env]))
    assert own is not None and "(trainer.warmup.teacher=scripted, trainer.warmup.lr=0.001)" in own  # the user's are not
    assert scale_notice(load([*named, *env]), training=False) is None  # and no key of trainer
    one = scale_notice(load([*named, env[0]]), training=False)
    assert one is not None and "(env.history_tokens=48)" in one
    assert scale_notice(load(["engine=api", "model=pretrained", "model.path=m@http://127.0.0.1:9/v1"])) is not None


def test_its_values_are_those_of_the_demo() -> None:
    keys = yaml.safe_load((ROOT / "conf/scale/demo.yaml").read_text())
    for key, value in (DEMO_VALUES | DEMO_TRAINING).items():
        assert reduce(lambda part, name: part[name], key.split("."), keys) == value, key


def test_a_comparison_of_rules_reads_no_model(real: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*given: object) -> None:
        raise AssertionError("a model was read")

    monkeypatch.setattr("ghar.trainers.scale.shape_of", read)
    words = ["task=read", "data.patients=60", "model=pretrained", f"model.path={real}", f"data.cache={tmp_path}/cache"]
    compare(["systems=[ghar]", "variants=[scripted]", *words, f"run_dir={tmp_path}/run"])


def test_other_runs_are_not(real: str) -> None:
    named = ["model=pretrained", f"model.path={real}"]
    for words in (
        [],
        [*named, "scale=laptop"],
        [*named, "scale=full", "data=mimic4", "data.root=x", "kg.path=x"],
        ["model=pretrained", f"model.path={DEMO}"],  # what a run of the demo has left
        ["+experiment=order_check", *named, "data=eicu", "data.root=x", "kg.path=x"],
    ):
        assert scale_notice(load(words)) is None, words


@pytest.mark.parametrize("machine", ["true", "8xh100"])
def test_the_plan_begins_with_it(
    machine: str, real: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_plan(*given: object) -> None:
        raise BadInput("no plan")

    monkeypatch.setattr("ghar.trainers.plan.make_plan", make_plan)
    config = load(["model=pretrained", f"model.path={real}", f"plan={machine}", "data.patients=60", "threads=1"])
    with pytest.raises(BadInput, match="no plan"):
        show(config)
    assert capsys.readouterr().out == f"{scale_notice(config)}\n"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the demo's cohort, which all commands read."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("command", ["train", "evaluate", "compare"])
def test_a_run_begins_with_it(
    command: str, real: str, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder has no weights, so that a run ends where it would load them."""
    words = ["task=read", "data.patients=60", "model=pretrained", f"model.path={real}", "model.dtype=float32",
             f"run_dir={tmp_path}/run", f"data.cache={cache}"]  # fmt: skip
    with pytest.raises(BadInput, match="cannot be loaded"):
        if command == "compare":
            compare(["systems=[ghar]", "variants=[ghar_base]", *words])
        else:
            run = {"train": train, "evaluate": evaluate}[command]
            run(load([*words, "eval.variants=[ghar_base]"]))
    if command == "train":  # nothing was kept: the corrected command goes on there
        assert not (tmp_path / "run" / "config.yaml").exists() and not (tmp_path / "run" / "ledger.jsonl").exists()
    out = capsys.readouterr().out
    assert out.count("scale=demo is made for the demo's small model") == 1
    assert ("trainer.warmup.lr" in out) == (command == "train")
