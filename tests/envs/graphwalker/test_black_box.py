"""GraphWalker with a server that tells no log-probabilities: rated examples, and probabilities in the reply."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import ghar.llm.api as api
from ghar.envs.graphwalker.probability import parse_probability
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.trainers.evaluation.evaluate import evaluate
from tests.llm.api_server import Server, chat, listening, prompt_of

ROOT = Path(__file__).resolve().parents[3]
CASES = re.compile(r"now: ([^\n]*)")


def rater(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
    """A server that rates by items shared, and otherwise says what it is asked for."""
    prompt = prompt_of(body)
    shown = [set(line.split("; ")) for line in CASES.findall(prompt)]
    if "whole number from 0 to 10" in prompt:
        return 200, chat(str(min(10, 2 * len(shown[0] & shown[-1])) if shown else len(prompt) % 10 + 1))
    if prompt.endswith("Probability:"):
        return 200, chat(f"0.{10 + 8 * len(shown)}")
    if prompt.endswith("Thought:") or "Action (" in prompt.rsplit("\n", 1)[-1]:
        return 200, chat("answer")
    return 200, chat("lasting" if len(shown) > 1 else "brief")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Server]]:
    monkeypatch.setattr(api, "PAUSE", 0.01)
    with listening(rater) as (url, server):
        yield f"model.path=m@{url}", server


def keys(tmp_path: Path, *more: str) -> list[str]:
    return ["system=graphwalker", "engine=api", "model=pretrained", "trainer.base.steps=0", "system.k_g=4",
            "task.max_test=6", "eval.bootstrap=20", "threads=1", f"data.cache={tmp_path / 'cache'}",
            f"run_dir={tmp_path / 'run'}", *more]  # fmt: skip


@pytest.mark.slow
def test_a_walk_by_ratings(tmp_path: Path, server: tuple[str, Server]) -> None:
    own = ("data=demo_cases", "task=labels", "data.patients=120", "system.utility=self_rated", "system.effort=12")
    named = "eval.variants=[graphwalker,zero_shot,semantic_emb]"
    evaluate(load(keys(tmp_path, *own, server[0], named)))
    rows = [json.loads(line) for line in (tmp_path / "run/episodes/graphwalker.jsonl").read_text().splitlines()]
    assert [row["prediction"] for row in rows] == ["lasting"] * 6 and all(row["shots"] for row in rows)
    assert all(shot["gain"] in range(1, 11) for row in rows for shot in row["shots"])
    assert all(0 < row["cost"]["replies"] < 12 and row["scored"] <= 12 for row in rows)
    with pytest.raises(BadInput, match="cone needs log-probabilities, which this engine does not give"):
        evaluate(load(keys(tmp_path / "b", *own, server[0], "eval.variants=[cone]")))
    with pytest.raises(BadInput, match=r"or system\.utility=self_rated"):
        evaluate(load(keys(tmp_path / "c", *own[:3], server[0], "eval.variants=[graphwalker]")))


@pytest.mark.slow
def test_probabilities_in_the_reply_rank_patients(tmp_path: Path, server: tuple[str, Server]) -> None:
    own = ("task=read", "data.patients=120", "system.reply=probability", "system.utility=self_rated")
    named = "eval.variants=[graphwalker,zero_shot,scripted_zero_shot]"
    summary = evaluate(load(keys(tmp_path, *own, server[0], named)))
    rows = [json.loads(line) for line in (tmp_path / "run/episodes/zero_shot.jsonl").read_text().splitlines()]
    assert [row["label_probabilities"] for row in rows] == [pytest.approx([0.82, 0.18])] * 6
    assert "auroc" in summary["policies"]["zero_shot"]["clinical"]
    asked = [prompt_of(body) for _, body, _ in server[1].came if prompt_of(body).endswith("Probability:")]
    assert asked and all("Answer:\n" not in prompt and 'How probable is the answer "' in prompt for prompt in asked)


@pytest.mark.parametrize("inference", ["direct", "react", "compare"])
def test_a_probability_follows_no_comparison(inference: str) -> None:
    own = ("system=graphwalker", "task=series_mortality", "system.reply=probability", f"system.inference={inference}")
    if inference != "compare":
        assert load(own)
        return
    with pytest.raises(BadInput, match=r"choose system\.inference=direct or react"):
        load(own)


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["direct", "react"])
def test_every_row_of_table_8_needs_replies_alone(
    tmp_path: Path, server: tuple[str, Server], inference: str
) -> None:
    """A model behind an API plays both runs of the study's black box, with probabilities."""
    rows = yaml.safe_load((ROOT / "conf/study/graphwalker.yaml").read_text())["rows"]
    run = {"direct": "self_rated", "react": "react"}[inference]
    variants = [row["variant"] for row in rows if row["run"] == run]
    assert len(variants) == 5
    own = ("task=series_mortality", "data.patients=150", "task.max_test=3", f"system.inference={inference}")
    own += ("system.reply=probability", "system.utility=self_rated", "system.effort=6", "system.encoder=text")
    evaluate(load(keys(tmp_path, *own, server[0], f"eval.variants=[{','.join(variants)}]")))
    for name in variants:
        played = [json.loads(line) for line in (tmp_path / f"run/episodes/{name}.jsonl").read_text().splitlines()]
        assert played and all(row["label_probabilities"] is not None for row in played), name


def test_a_probability_is_of_two_answers(tmp_path: Path) -> None:
    own = ("data=demo_cases", "task=labels", "data.patients=120", "system.reply=probability")
    with pytest.raises(BadInput, match="two answers"):
        evaluate(load(keys(tmp_path, *own, "model.path=m@http://127.0.0.1:9/v1")))


@pytest.mark.parametrize(
    ("reply", "value"),
    [("0.27", 0.27), (" 0.27.\nBecause", 0.27), ("1", 1.0), ("27%", 0.27), ("**.5**", 0.5), ("0.2 or 0.3", None),
     ("", None), ("yes", None), ("2", None), ("-0.3", None), (".", None), ("0.27 (low)", None)],
)  # fmt: skip
def test_a_probability_is_one_number(reply: str, value: float | None) -> None:
    assert parse_probability(reply).value == value
