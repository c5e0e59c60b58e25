"""Label probabilities against one forward pass a label, written out."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ghar.episode import Act, AuditRecord, Completion, Episode, Prediction, Reply, Turn
from ghar.llm.demo_model import build_model, build_tokenizer
from ghar.llm.hf import HFEngine
from ghar.llm.tokens import encode_prompt, encode_reply
from ghar.trainers.evaluation.label_scores import label_probabilities

PROMPT = "predict length of stay\nconditions: gout; asthma\nanswer:"
TEXTS = [f"{PROMPT} {i} because of 2 findings, answer: {i}0" for i in range(10)]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer(TEXTS, ("gout", "asthma"), 300)


@pytest.fixture(scope="module")
def engine(tokenizer: Any) -> HFEngine:
    model = build_model(tokenizer, hidden=32, layers=2, heads=4, seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return HFEngine(model, tokenizer, max_batch=4)


def episode_of(said: Completion, value: Any, label: int | None) -> Episode:
    turn = Turn("top", "predict", 0, 0, said, value is not None)
    return Episode(
        "s", 0, Prediction(label), (turn,), (AuditRecord(Act("top", "predict", PROMPT), Reply(said, value)),)
    )


def answered(tokenizer: Any, reply: str, label: int | None) -> Episode:
    said = Completion(reply, tuple(encode_prompt(tokenizer, PROMPT)), tuple(encode_reply(tokenizer, reply)))
    return episode_of(said, label, label)


def directly(engine: HFEngine, tokenizer: Any, before: str, labels: tuple[str, ...], end: bool) -> list[float]:
    """exp(log p) of each label after the text before it, normalised; one label at a time."""
    weights = []
    for label in labels:
        context = encode_prompt(tokenizer, PROMPT) + tokenizer.encode(before, add_special_tokens=False)
        ids = context + tokenizer.encode(f" {label}", add_special_tokens=False) + [tokenizer.eos_token_id] * end
        with torch.no_grad():
            logp = engine.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        weights.append(math.exp(sum(float(logp[t - 1, ids[t]]) for t in range(len(context), len(ids)))))
    return [w / sum(weights) for w in weights]


@pytest.mark.parametrize(
    ("before", "label", "labels", "end"),
    [
        ("", 1, ("2", "3", "4"), False),
        (" because of 2 findings, answer:", 0, ("2", "3"), False),
        (" 2 findings, answer:", 1, ("1", "10"), True),  # one label begins the other
    ],
)
def test_probabilities_are_those_of_each_label_in_the_same_place(
    engine: HFEngine, tokenizer: Any, before: str, label: int, labels: tuple[str, ...], end: bool
) -> None:
    episode = answered(tokenizer, f"{before} {labels[label]}".strip(), label)
    (found,) = label_probabilities(engine, tokenizer, [episode], labels)
    assert found == pytest.approx(directly(engine, tokenizer, before, labels, end), abs=1e-6)


@pytest.mark.parametrize(
    ("before", "after", "labels"),
    [
        (" because of 2 findings, answer:", "", ("no", "yes")), ("", "", ("no", "yes")),
        (" gout; yes 2 answer:", " findings", ("no", "yes")),
    ],
)  # fmt: skip
def test_a_number_stands_for_its_label(
    engine: HFEngine, tokenizer: Any, before: str, after: str, labels: tuple[str, ...]
) -> None:
    """EHR-RAG answers with numbers; words before the answer that are a label's name do not count."""
    episode = answered(tokenizer, f"{before} 1{after}".strip(), 1)
    (found,) = label_probabilities(engine, tokenizer, [episode], labels)
    assert found == pytest.approx(directly(engine, tokenizer, before, ("0", "1"), False), abs=1e-6)


@pytest.mark.parametrize(
    ("before", "after", "label", "labels", "numbered"),
    [
        ("Answer:", " 1 (yes)", 1, ("no", "yes"), True),
        ("Answer:", " 0, no.", 0, ("no", "yes"), True),
        ("Answer:", " yes, because yes", 1, ("no", "yes"), False),
        ("answer:", " 3 (2 drugs, 3 diagnoses)", 1, ("2", "3"), False),
        ("3 findings. The answer is:", " 3", 1, ("2", "3"), False),
        ("2 findings, 1 drug.\nAnswer (final):", " 1", 1, ("no", "yes"), True),
        ("yes? 1 <answer>", " 1</answer>", 1, ("no", "yes"), True),
        ("1 drug. answer：", " 1", 1, ("no", "yes"), True),
        ("2 drugs. The answer is", " 1.", 1, ("no", "yes"), True),
        ("", "1\nbecause of 1 drug", 1, ("no", "yes"), True),
        ("1 drug, no doubt", " yes", 1, ("no", "yes"), False),  # no answer line: another parser read it
        ("answer:", " 1 day or so", 1, ("0 days", "1 day"), False),
    ],
)  # fmt: skip
def test_the_label_stands_where_the_parser_reads_it(
    engine: HFEngine, tokenizer: Any, before: str, after: str, label: int, labels: tuple[str, ...], numbered: bool
) -> None:
    episode = answered(tokenizer, before + after, label)
    (found,) = label_probabilities(engine, tokenizer, [episode], labels)
    said = episode.turns[0].completion
    text = tokenizer.decode(said.token_ids, skip_special_tokens=True)
    names = ("0", "1") if numbered else labels
    start = text.index(names[label], text.index(before) + len(before))
    assert found is not None
    assert found == pytest.approx(directly(engine, tokenizer, text[:start].rstrip(" "), names, False), abs=1e-6)


def test_a_number_without_an_answer_line_is_no_label(engine: HFEngine, tokenizer: Any) -> None:
    episode = answered(tokenizer, "gout and 1 drug", 1)
    assert label_probabilities(engine, tokenizer, [episode], ("no", "yes")) == [None]


def test_numbers_and_names_behind_the_same_words_are_told_apart(engine: HFEngine, tokenizer: Any) -> None:
    before, labels = " 2 findings, answer:", ("2", "3")
    named, numbered = (answered(tokenizer, f"{before} {name}".strip(), 1) for name in ("3", "1"))
    found = label_probabilities(engine, tokenizer, [named, numbered], labels)
    for own, names in zip(found, (labels, ("0", "1")), strict=True):
        assert own == pytest.approx(directly(engine, tokenizer, before, names, False), abs=1e-6)


def test_no_probabilities_without_a_label_or_a_language_model(engine: HFEngine, tokenizer: Any) -> None:
    unread = answered(tokenizer, "cannot say", None)
    scripted = episode_of(Completion("2"), 0, 0)
    read = answered(tokenizer, "2", 0)
    found = label_probabilities(engine, tokenizer, [unread, read, scripted], ("2", "3"))
    assert found[0] is None and found[2] is None and found[1] is not None
    assert label_probabilities(engine, tokenizer, [scripted], ("2", "3")) == [None]


def test_only_a_reply_that_was_read_as_the_prediction_counts(engine: HFEngine, tokenizer: Any) -> None:
    """Not one that speaks of a label but was read as something else, nor one that was outvoted."""
    read = answered(tokenizer, "2", 0)
    text = episode_of(read.turns[0].completion, "2", 0)
    outvoted = episode_of(read.turns[0].completion, 0, 1)
    assert label_probabilities(engine, tokenizer, [text, outvoted], ("2", "3")) == [None, None]
