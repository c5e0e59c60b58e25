"""Text to ids: the one way for sampling, training and choices."""

import copy
from itertools import permutations

import pytest

from ghar.llm.constraint import allowed_tokens
from ghar.llm.tokens import encode_choices, encode_many, encode_prompt, encode_reply

CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<me>{% endif %}"


def test_without_a_chat_template_a_reply_begins_with_a_space(tokenizer):
    prompt, reply = encode_prompt(tokenizer, "decide:"), encode_reply(tokenizer, "yes")
    assert tokenizer.decode(prompt + reply) == "decide: yes" + tokenizer.eos_token


def test_with_a_chat_template_a_prompt_is_a_user_message(tokenizer):
    chat = copy.deepcopy(tokenizer)
    chat.chat_template = CHAT
    assert chat.decode(encode_prompt(chat, "decide:")) == "<user>decide:\n<me>"
    assert chat.decode(encode_reply(chat, "yes")) == "yes" + chat.eos_token
    assert [chat.decode(ids) for ids in encode_choices(chat, ("yes", "no"))] == ["yes", "no"]


def test_many_at_a_time_are_the_same_ids(tokenizer):
    chat = copy.deepcopy(tokenizer)
    chat.chat_template = CHAT
    for t in (tokenizer, chat):
        prompts, replies = encode_many(t, ["decide:", "heart failure"], ["yes", "warfarin", ""])
        assert [list(ids) for ids in prompts] == [encode_prompt(t, p) for p in ("decide:", "heart failure")]
        assert replies == [encode_reply(t, r) for r in ("yes", "warfarin", "")]
    assert encode_many(tokenizer, [], []) == ([], [])


@pytest.mark.parametrize("choices", [("yes", "no"), ("terminate", "continue"), ("0", "10", "100")])
def test_choices_decode_to_themselves(tokenizer, choices):
    ids = encode_choices(tokenizer, choices)
    assert [tokenizer.decode(i, skip_special_tokens=True).strip() for i in ids] == list(choices)


def test_the_end_token_is_added_only_where_one_choice_begins_another(tokenizer):
    plain = encode_choices(tokenizer, ("yes", "no"))
    assert all(ids[-1] != tokenizer.eos_token_id for ids in plain)
    for choices in permutations(("heart failure", "heart failure - severe", "gout")):
        clashing = encode_choices(tokenizer, choices)
        assert all(ids[-1] == tokenizer.eos_token_id for ids in clashing)
        assert all(not allowed_tokens(clashing, ids) for ids in clashing)  # each is an end, none is passed through


def test_a_choice_is_encoded_as_the_reply_that_is_trained_on(tokenizer):
    for choice, ids in zip(("yes", "no"), encode_choices(tokenizer, ("yes", "no")), strict=True):
        assert encode_reply(tokenizer, choice)[: len(ids)] == list(ids)
