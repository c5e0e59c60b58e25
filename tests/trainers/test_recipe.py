"""The whole recipe, shortened: from tables to an evaluated policy, on generated and on real patients."""

import json
from pathlib import Path

import pytest

from ghar.config import Config
from ghar.envs.baselines.fitted import EVIDENCED, FITS
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.trainers.evaluation.evaluate import evaluate
from ghar.trainers.recipe import EXAMPLES, train
from ghar.trainers.sft.examples import read_examples
from tests.running import TORCHRUN, run_python

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SHORT = [
    "+experiment=mimic4_los",
    "threads=1",
    "model.hidden=32",
    "model.layers=2",
    "model.vocab=1600",
    "trainer.base.steps=2",
    "trainer.base.batch=16",
    "trainer.warmup.samples=40",
    "trainer.warmup.epochs=1",
    "system.label_epochs=1",
    "trainer.rl.updates=2",
    "trainer.rl.episodes=8",
    "trainer.rl.eval_every=1",
    "trainer.rl.eval_samples=8",
    "task.max_test=8",
    "eval.bootstrap=50",
]


def short(tmp_path: Path, cache: Path, *overrides: str) -> Config:
    return load([*SHORT, f"run_dir={tmp_path / 'run'}", f"data.cache={cache}", *overrides])


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def metrics(folder: Path) -> list[dict[str, float]]:
    """metrics.jsonl without what depends on the clock."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    clock = ("time/", "train/tokens_per_second", "eval/seconds")
    return [{k: v for k, v in row.items() if not k.startswith(clock)} for row in rows]


def test_a_rule_is_evaluated_without_a_model_and_with_running_rewards(tmp_path: Path, cache: Path):
    own = ["data.patients=120", "eval.variants=[scripted]", "system.normalise=running"]
    summary = evaluate(short(tmp_path, cache, *own))
    assert list(summary["policies"]) == ["scripted"] and summary["policies"]["scripted"]["accuracy"][0] > 0


def test_demo_from_tables_to_report(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]):
    config = short(tmp_path, cache, "data.patients=120")
    train(config)
    run = tmp_path / "run"
    summary = json.loads((run / "summary.json").read_text())
    assert summary["generated"] and "GENERATED" in capsys.readouterr().out
    own = {"llm_only", "always_rag", "scripted", "ghar_base", "label_sft", "ghar_sft", "ghar_rl"}
    assert set(summary["policies"]) == own | {*FITS, *EVIDENCED}
    assert summary["answered_by"]["label_sft"] == "label_sft" and summary["base"] == "ghar_base"
    config_of = json.loads((run / "checkpoints" / "sft" / "config.json").read_text())
    assert summary["model"]["vocabulary"] == config_of["vocab_size"] <= 1600
    assert 50_000 < summary["model"]["parameters"] < 200_000 and summary["trained_on"]["episodes"] == 2 * 8
    assert f"vocabulary of {config_of['vocab_size']:,} tokens" in (run / "report.html").read_text()
    trained, updates = summary["trained_on"], [row for row in metrics(run) if row["phase"] == "rl" and row["step"]]
    examples = read_examples(run / "checkpoints" / EXAMPLES).train
    assert trained["SFT reply tokens"] == sum(len(one.completion_ids) for one in examples) > len(examples)
    assert trained["SFT prompt tokens"] == sum(len(one.prompt_ids) for one in examples)
    assert trained["episode reply tokens"] == sum(row["train/tokens/reply"] for row in updates) > trained["episodes"]
    assert trained["episode prompt tokens"] > trained["episode reply tokens"]
    assert f"{trained['episode reply tokens']:,} episode reply tokens" in (run / "report.html").read_text()
    assert summary["policies"]["llm_only"]["retrieval_rate"][0] == 0
    assert summary["policies"]["always_rag"]["retrieval_rate"][0] == 1
    assert 0 < summary["ceilings"]["parametric"] < summary["ceilings"]["retrieval"] < 1
    assert [row["step"] for row in metrics(run) if row["phase"] == "rl"] == [0, 1, 2]
    assert "generated" in (run / "report.html").read_text().lower()
    first = [json.loads(line) for line in (run / "episodes" / "ghar_rl.jsonl").read_text().splitlines()]
    assert len(first) == 8 and all(row["turns"] for row in first)
    kept = [json.loads(line) for n in (1, 2) for line in (run / f"episodes/training/{n}.jsonl").open()]
    assert [row["update"] for row in kept] == [1] * 4 + [2] * 4 and all(row["split"] == "train" for row in kept)
    assert "Training episodes" in (run / "report.html").read_text()

    again = evaluate(config)  # from the checkpoint on disk: the numbers of the run itself
    for name, numbers in again["policies"].items():
        assert numbers["accuracy"] == summary["policies"][name]["accuracy"], name
        assert numbers.get("reward") == summary["policies"][name].get("reward"), name

    train(config)
    assert "finished" in capsys.readouterr().out
    with pytest.raises(BadInput, match="another configuration"):
        train(short(tmp_path, cache, "data.patients=120", "seed=7"))


def test_a_refused_run_leaves_its_folder_to_the_next(tmp_path: Path, cache: Path):
    with pytest.raises(BadInput, match="has no variant nothing_like_it"):
        train(short(tmp_path, cache, "data.patients=120", "eval.variants=[nothing_like_it]"))
    assert not (tmp_path / "run" / "config.yaml").exists() and not (tmp_path / "run" / "checkpoints").exists()


def test_same_seed_same_numbers(tmp_path: Path, cache: Path):
    for name in ("a", "b"):
        train(short(tmp_path / name, cache, "data.patients=120", "eval.variants=[ghar_rl]", "trainer.rl.updates=1"))
    assert metrics(tmp_path / "a" / "run") == metrics(tmp_path / "b" / "run")


def test_lora_running_normaliser_and_separate_rewards(tmp_path: Path, cache: Path):
    config = short(
        tmp_path,
        cache,
        "data.patients=120",
        "model.lora_rank=8",
        "system.normalise=running",
        "system.composition=separate",
        "trainer.rl.per_agent=true",
        "trainer.rl.credit=bilevel",
        "trainer.rl.updates=1",
        "task=read",
    )
    train(config)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert evaluate(config)["policies"]["ghar_rl"]["reward"] == summary["policies"]["ghar_rl"]["reward"]


def test_real_tables(tmp_path: Path, cache: Path, shared_data: Path):
    graph = shared_data / "kg" / "primekg-subset"
    config = short(
        tmp_path,
        cache,
        f"data.root={shared_data / 'mimic-iv-demo-2.2'}",
        f"kg.path={graph / 'merged_kg_12col.csv.gz'}",
        f"kg.references={graph / 'txgnn_mondo_references.csv.gz'}",
        "trainer.rl.updates=1",
        "trainer.warmup.attempts=3",
    )
    train(config)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert not summary["generated"] and summary["ceilings"] is None
    assert summary["policies"]["ghar_rl"]["n"] == 8
    assert summary["data"]["patients"] == 100


def test_torchrun_with_one_process(tmp_path: Path, cache: Path):
    quick = ["data.patients=120", "trainer.rl.updates=0", "eval.variants=[ghar_sft]", f"run_dir={tmp_path / 'run'}"]
    command = [*TORCHRUN, "1", ROOT / "launch" / "train.py", *SHORT, *quick, f"data.cache={cache}"]
    done = run_python(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.html").is_file() and "reducer" not in done.stderr


def test_a_run_that_was_never_trained_is_evaluated_with_the_model_as_it_is(tmp_path: Path, cache: Path):
    summary = evaluate(short(tmp_path, cache, "data.patients=120", "eval.variants=[ghar_sft,ghar_rl]"))
    assert summary["answered_by"] == {"ghar_sft": "base", "ghar_rl": "base"}
    assert summary["policies"]["ghar_rl"]["n"] == 8
