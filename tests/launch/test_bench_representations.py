"""Distances between representations of replies (GHAR, Fig. 10c) against a slow computation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.representations import by_steps, distances, draw, representations, vectors_of
from ghar.errors import BadInput
from ghar.llm.tokens import encode_prompt, encode_reply
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


def test_a_run_that_is_not_exported_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="finished and exported"):
        representations([f"run_dir={tmp_path}"], tmp_path)
