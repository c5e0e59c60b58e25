"""Distances between representations of replies (GHAR, Fig. 10c) against a slow computation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.representations import by_steps, distances, draw, representations, vectors_of
from ghar.errors import BadInput
from ghar.llm.models import load_pretrained
from ghar.llm.tokens import encode_prompt, encode_reply
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.agent import config_of
from ghar.trainers.export import export
from ghar.trainers.runs.resume import as_yaml
from tests.trainers.test_export import SUMMARY, finished_run
from tests.trainers.tiny import tiny_model, tiny_tokenizer


def test_a_replys_vector_is_the_mean_state_of_its_own_tokens() -> None:
    model, tokenizer = tiny_model(), tiny_tokenizer()
    turn = {"prompt": "w2 w3 w4", "reply": "w5 w6"}
    [found] = vectors_of(model, tokenizer, [turn])
    prompt, reply = encode_prompt(tokenizer, turn["prompt"]), encode_reply(tokenizer, turn["reply"])
    with torch.no_grad():
        states = model.model(input_ids=torch.tensor([[*prompt, *reply]])).last_hidden_state[0].double().numpy()
    own = states[len(prompt) :].mean(axis=0)
    assert found == pytest.approx(own / np.linalg.norm(own), abs=1e-6)


def test_labels_of_one_reply_are_left_out_and_the_matrix_is_symmetric() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(7, 5))
    labels, apart = distances(["0", "1", "2"], ["2", "0", "0", "2", "1", "0", "2"], vectors)
    assert labels == ["0", "2"] and apart[0, 0] == 0
    expected = np.linalg.norm(vectors[[1, 2, 5]].mean(axis=0) - vectors[[0, 3, 6]].mean(axis=0))
    assert apart[0, 1] == apart[1, 0] == pytest.approx(expected)
    assert by_steps(apart) == {"1": pytest.approx(expected)}
    drawn = draw(labels, apart)
    assert drawn["svg"].startswith(b"<svg") and drawn["png"][:4] == b"\x89PNG"


def test_a_run_that_is_not_finished_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Name a finished run"):
        representations([f"run_dir={tmp_path}"], tmp_path)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run whose best weights are of update 7, which answered ghar_rl; ghar_sft and label_sft had others."""
    config, _ = finished_run(tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    folder.write_config(as_yaml(config))
    answered = {"ghar_rl": "trained", "ghar_sft": "sft", "label_sft": "label_sft"}
    folder.write_summary({**SUMMARY, "answered_by": answered, "weights_step": 7})
    for name in answered:
        rows = [{"prediction": label, "turns": [{"prompt": "w2 w3", "reply": reply}]} for label, reply in REPLIES]
        folder.write_episodes(name, rows)
    return folder


REPLIES = [("0", "w4 w5"), ("0", "w5 w4"), ("1-3", "w6 w7"), ("1-3", "w7 w6")]


@pytest.mark.slow
def test_replies_are_read_with_the_weights_that_wrote_them(run: RunFolder, tmp_path: Path) -> None:
    found = representations([f"run_dir={run.path}"], tmp_path)
    exported = export(config_of(run.path)) / "merged"
    model, tokenizer = load_pretrained(str(exported), "float32")
    turns = [{"prompt": "w2 w3", "reply": reply} for _, reply in REPLIES]
    _, apart = distances(["0", "1-3"], [label for label, _ in REPLIES], vectors_of(model.eval(), tokenizer, turns))
    assert found["replies"] == 4 and np.allclose(found["distances"], apart, atol=1e-4)


@pytest.mark.parametrize("variant", ["ghar_sft", "label_sft", "scripted"])
def test_a_variant_that_other_weights_answered_is_refused(run: RunFolder, tmp_path: Path, variant: str) -> None:
    with pytest.raises(BadInput, match=f"{variant} was answered by .*not by the weights after RL"):
        representations([f"run_dir={run.path}", f"eval.variants=[{variant}]"], tmp_path)


def test_weights_that_are_better_since_are_refused(run: RunFolder, tmp_path: Path) -> None:
    run.write_summary({**(run.summary() or {}), "weights_step": 3})
    with pytest.raises(BadInput, match="evaluated at update 3, its best weights are of 7"):
        representations([f"run_dir={run.path}"], tmp_path)
