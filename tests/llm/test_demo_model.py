"""The tokenizer and the model that are built on the spot."""

import unicodedata

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from ghar.llm.demo_model import build_model, build_tokenizer
from ghar.llm.tokens import encode_prompt, encode_reply
from ghar.sanitize import plain
from tests.llm.conftest import NAMES, TEXTS

TEXT = st.text(max_size=40) | st.lists(
    st.sampled_from([*NAMES, " ", "  ", "\n", "; ", "-", "é", "heart", "no", "now", "7"]), max_size=12
).map("".join)
SPECIAL = ("<|pad|>", "<|endoftext|>")


@settings(max_examples=150)
@given(TEXT)
def test_tokens_decode_to_their_text(tokenizer, text):
    """Byte-level: every plain text has ids, none is unknown; only Unicode composition (NFC, as in Qwen2) is
    normalised."""
    ids = encode_prompt(tokenizer, text)
    assert tokenizer.decode(ids) == unicodedata.normalize("NFC", plain(text, tokenizer))
    assert encode_reply(tokenizer, text)[-1] == tokenizer.eos_token_id


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_token_with_its_space(tokenizer, name):
    assert len(encode_reply(tokenizer, name)) == 2  # and the end


def test_of_two_names_the_longer_is_taken(tokenizer):
    (whole,) = encode_prompt(tokenizer, " heart failure, late onset")
    assert tokenizer.decode([whole]) == " heart failure, late onset"


def test_special_tokens_are_distinct(tokenizer):
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert tokenizer.decode([tokenizer.pad_token_id, tokenizer.eos_token_id], skip_special_tokens=True) == ""


def test_names_that_do_not_fit_are_left_out():
    size = len(build_tokenizer(TEXTS, [], 400)) + 30
    small = build_tokenizer(TEXTS, [f"entity {i:03d}" for i in range(100)], size)
    assert len(small) == size
    names = [len(encode_reply(small, f"entity {i:03d}")) == 2 for i in range(100)]
    assert names == [True] * 30 + [False] * 70  # the first ones stay


def test_same_texts_same_tokenizer(tokenizer):
    assert build_tokenizer(TEXTS, NAMES, 400).get_vocab() == tokenizer.get_vocab()


def test_saved_and_loaded_again_by_transformers_they_are_the_same(tokenizer, model, tmp_path):
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert len(again) == len(tokenizer)
    assert (again.pad_token_id, again.eos_token_id) == (tokenizer.pad_token_id, tokenizer.eos_token_id)
    samples = [*TEXTS, *(f"a {name}, b" for name in NAMES), "heart failure\n\n  é 12345 x" * 3]
    for text in samples:
        assert encode_prompt(again, text) == encode_prompt(tokenizer, text)
        assert encode_reply(again, text) == encode_reply(tokenizer, text)
        assert again.decode(encode_reply(again, text)) == tokenizer.decode(encode_reply(tokenizer, text))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    ids = torch.tensor([encode_prompt(tokenizer, TEXTS[0])])
    with torch.inference_mode():
        assert torch.equal(loaded(input_ids=ids).logits, model(input_ids=ids).logits)


def test_weights_follow_the_seed_alone(tokenizer):
    torch.manual_seed(1)
    expected = torch.rand(2)

    def weights(seed: int) -> torch.Tensor:
        return build_model(tokenizer, hidden=32, layers=2, heads=4, seed=seed).model.layers[1].mlp.up_proj.weight

    first = weights(3)
    torch.manual_seed(1)
    assert torch.equal(weights(3), first) and not torch.equal(weights(4), first)
    assert torch.equal(torch.rand(2), expected)  # the global generator is left alone


def test_copying_heads_look_for_tokens_like_their_own(tokenizer):
    """Before any training: of a text with one token twice, the second looks at the first more than at any other."""
    ids = [20, 21, 22, 23, 24, 25, 22]
    share = {}
    for copying in (False, True):
        made = build_model(tokenizer, hidden=32, layers=2, heads=2, seed=0, copying=copying)
        made.set_attn_implementation("eager")
        with torch.inference_mode():
            looked = made(input_ids=torch.tensor([ids]), output_attentions=True).attentions[0][0, :, -1]
        share[copying] = looked.mean(0)
    assert int(share[True][:-1].argmax()) == 2 and share[True][2] > 1.5 * share[False][2]
    assert share[False].max() < 1.2 / len(ids)  # from Qwen2's own scale all tokens look alike to so narrow a model
