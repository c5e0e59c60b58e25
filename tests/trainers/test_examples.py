"""What the teacher taught comes back from disk as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.system import Example
from ghar.errors import BadInput
from ghar.llm.demo_model import build_tokenizer
from ghar.rewards.compose import Reference
from ghar.trainers.sft.examples import TrainingExamples, read_examples, write_examples
from ghar.trainers.sft.pairs import TokenExample, tokenise_examples

ids = st.lists(st.integers(0, 200_000), min_size=1, max_size=5)
text = st.text(max_size=5)
weights = st.floats(0, 1, allow_subnormal=False)  # torch may have been told to flush them


@settings(max_examples=30)
@given(
    st.lists(st.builds(TokenExample, ids, ids, st.none() | weights), min_size=1, max_size=6),
    st.lists(st.builds(TokenExample, ids, ids, st.none() | weights), max_size=3),
    st.dictionaries(text, st.builds(Reference, text, text), max_size=3),
    st.dictionaries(text, st.none() | weights | st.lists(text), max_size=3),
)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, pairs, valid, references, about):
    path = tmp_path_factory.mktemp("lessons") / "new" / "lessons.npz"
    examples = TrainingExamples(pairs, valid, references, about)
    write_examples(path, examples)
    assert read_examples(path) == examples
    assert [file.name for file in path.parent.iterdir()] == ["lessons.npz"]


def test_damage_is_named(tmp_path: Path):
    path = tmp_path / "lessons.npz"
    write_examples(path, TrainingExamples([TokenExample(list(range(50)), [1])], [], {}, {"rate": 0.5}))
    whole = path.read_bytes()
    for damaged in (whole[:-30], whole[:60] + bytes(8) + whole[68:], b""):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match=r"lessons\.npz is damaged"):
            read_examples(path)


def test_plain_tuples_are_examples():
    """What systems gave before examples had names."""
    tokenizer = build_tokenizer(["is it so yes no"] * 9, [], 300)
    plain = [("is it", "yes", ("yes", "no"), 1.0), ("so", "it is", (), None)]
    named = [Example(*one) for one in plain]
    assert tokenise_examples(tokenizer, plain) == tokenise_examples(tokenizer, named)
