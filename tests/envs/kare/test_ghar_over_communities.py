"""GHAR over KARE's communities: a run from tables to numbers, with the scripted teacher as its policy."""

from __future__ import annotations

import json
from pathlib import Path

from ghar.retrieval.community_corpus import CommunityCorpus
from launch.entry import load
from trainers.evaluate import evaluate
from trainers.study import prepare

SHORT = (
    "policy=ghar_communities", "data.patients=60", "kare.communities=[5,5,10,12]", "task.max_test=10",
    "eval.policies=[scripted]", "eval.bootstrap=20", "model.hidden=32", "model.layers=1", "model.heads=2",
    "model.vocab=512",
)  # fmt: skip


def test_the_teacher_looks_things_up_in_communities(tmp_path: Path) -> None:
    config = load([*SHORT, f"data.cache={tmp_path / 'cache'}", f"run_dir={tmp_path / 'run'}"])
    study = prepare(config)
    assert isinstance(study.retriever, CommunityCorpus)
    assert "phenotype present" in [part.text for part in study.episodes.metapaths]
    found = evaluate(config)["policies"]["scripted"]
    assert found["failures"] == 0 and found["n"] == 10
    assert found["retrieval_rate"][0] > 0 and found["accuracy"][0] > 0.5
    rows = [json.loads(line) for line in (tmp_path / "run/episodes/scripted.jsonl").read_text().splitlines()]
    told = [turn["evidence"] for row in rows for turn in row["turns"] if turn["evidence"]]
    assert told and set(told[0].split("\n")) <= set(study.retriever.index.summaries)
