"""Facts of ten public families: ends, begin, frozen template, logits; and the families that are refused."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, GraniteForCausalLM, MambaConfig, MambaForCausalLM

from ghar.errors import BadInput
from ghar.llm.chat_template import freeze, template_of
from ghar.llm.engine import Request
from ghar.llm.hf import HFEngine
from ghar.llm.model_facts import check_facts, facts_of, read_facts
from ghar.llm.models import load_pretrained
from ghar.llm.tokens import encode_choices, encode_many, encode_prompt, encode_reply
from tests.llm.families import FAMILIES, model_of, saved, tokenizer_of
from tests.llm.public_templates import is_installed, read_template


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: Any) -> Any:
    """A function from a family's name to (model, tokenizer) as `load_pretrained` gives them."""
    kept: dict[str, Any] = {}

    def load(name: str) -> Any:
        if name not in kept:
            kept[name] = load_pretrained(saved(name, tmp_path_factory.mktemp(name)), "float32")
        return kept[name]

    return load


@pytest.mark.parametrize(("name", "begin"), [
    ("smollm2", "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"),
    ("mistral", "<s>[INST] Is it so?[/INST]"),
])  # fmt: skip
def test_templates_are_those_that_packages_carry(loaded: Any, name: str, begin: str) -> None:
    package = FAMILIES[name].package
    if package is None or not is_installed(package):
        pytest.skip(f"{package} is not installed: a short template of our own stands for {name}'s public one")
    _, tokenizer = loaded(name)
    assert template_of(tokenizer) == read_template(package)
    assert tokenizer.decode(encode_prompt(tokenizer, "Is it so?")).startswith(begin)


@pytest.mark.parametrize("name", FAMILIES)
def test_ends_are_those_of_template_tokenizer_and_generation_config(loaded: Any, name: str) -> None:
    family, (_, tokenizer) = FAMILIES[name], loaded(name)
    facts, ids = facts_of(tokenizer), tokenizer.convert_tokens_to_ids
    assert facts.end == ids(family.end)
    assert set(facts.ends) == {ids(token) for token in (family.end, family.eos, *family.also)}
    assert facts.chat and facts.begin == ()
    assert encode_reply(tokenizer, "yes")[-1] == facts.end
    assert tokenizer.decode(encode_reply(tokenizer, "yes"), skip_special_tokens=True) == "yes"
    assert encode_choices(tokenizer, ("1", "10"))[0][-1] == facts.end  # one begins the other


@pytest.mark.parametrize("name", FAMILIES)
def test_a_reply_is_what_the_template_writes_behind_the_prompt(loaded: Any, name: str) -> None:
    """So what SFT teaches and RL samples is a conversation as the family knows it."""
    _, tokenizer = loaded(name)
    ids = [*encode_prompt(tokenizer, "Is it so?"), *encode_reply(tokenizer, "yes")]
    turns = [{"role": "user", "content": "Is it so?"}, {"role": "assistant", "content": "yes"}]
    whole = tokenizer.apply_chat_template(turns, tokenize=False)
    said = tokenizer.decode(ids)
    if name == "qwen3":  # puts an empty thought into finished turns, and none into an open one
        whole = whole.replace("<think>\n\n</think>\n\n", "")
    assert whole.replace(" yes", "yes").startswith(said), (said, whole)
    assert ids.count(tokenizer.bos_token_id) <= 1 or name == "smollm2"  # whose bos begins every turn


@pytest.mark.parametrize("name", FAMILIES)
def test_the_engine_stops_at_each_end(loaded: Any, name: str) -> None:
    """Each of the ends in turn is made the certain next token."""
    model, tokenizer = loaded(name)
    for end in facts_of(tokenizer).ends:
        engine = HFEngine(_always(model, end), tokenizer)
        (reply,) = engine.generate([Request("How long?", 6, seed=3)])
        assert (reply.token_ids, reply.finish_reason, reply.text) == ((end,), "stop", "")


def _always(model: Any, token: int) -> Any:
    """The model with logits that leave one token."""

    class Certain(torch.nn.Module):
        config, device = model.config, model.device

        def forward(self, **given: Any) -> Any:
            out = model(**given)
            out.logits[..., token] = 1e4
            return out

    return Certain()


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.bos])
def test_a_base_without_a_template_begins_with_its_own_token(tmp_path: Path, name: str) -> None:
    _, tokenizer = load_pretrained(saved(name, tmp_path, chat=False), "float32")
    begin = tokenizer.convert_tokens_to_ids(FAMILIES[name].bos)
    assert encode_prompt(tokenizer, "Is it so?") == tokenizer.encode("Is it so?")
    assert encode_prompt(tokenizer, "Is it so?")[0] == begin
    (many,), (reply,) = encode_many(tokenizer, ["Is it so?"], ["yes"])
    assert many == encode_prompt(tokenizer, "Is it so?") and begin not in reply[:-1]


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_made_as_the_facts_say(loaded: Any, name: str) -> None:
    family, (model, tokenizer) = FAMILIES[name], loaded(name)
    facts = read_facts(model, tokenizer)
    assert (facts.logits.scale, facts.logits.cap) == (family.scale, family.cap)
    assert facts.tied == model.config.get_text_config().tie_word_embeddings
    row = torch.arange(12)[None]
    with torch.no_grad():
        product = model.get_output_embeddings()(model.base_model(input_ids=row).last_hidden_state)
        assert torch.allclose(facts.logits.apply(product), model(input_ids=row).logits, atol=1e-5)


def _prompt_on(day: datetime.date, folder: str, monkeypatch: Any, **how: Any) -> list[int]:
    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Clock:
            return cls(day.year, day.month, day.day)

    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Clock)
    return encode_prompt(load_pretrained(folder, "float32", **how)[1], "Is it so?")


def test_a_template_with_a_date_gives_the_same_ids_tomorrow(tmp_path: Path, monkeypatch: Any) -> None:
    folder = saved("llama3_2", tmp_path)
    today, later = datetime.date(2026, 11, 25), datetime.date(2027, 1, 3)
    found = _prompt_on(today, folder, monkeypatch)
    assert found == _prompt_on(later, folder, monkeypatch)
    assert "Today Date: 26 Jul 2024\n" in load_pretrained(folder, "float32")[1].decode(found)
    given = {"arguments": {"date_string": "01 Feb 2025"}}
    assert "Today Date: 01 Feb 2025\n" in load_pretrained(folder, "float32", **given)[1].decode(
        _prompt_on(later, folder, monkeypatch, **given)
    )


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d %B %Y", "%A, %b %-d"])
def test_every_form_of_a_date_is_frozen(form: str) -> None:
    tokenizer = tokenizer_of(FAMILIES["qwen2_5"])
    tokenizer.chat_template = "{{ strftime_now('" + form + "') }}{{ messages[0]['content'] }}"
    freeze(tokenizer, None, None, "here")
    assert tokenizer.decode(encode_prompt(tokenizer, "?")) == datetime.date(2024, 7, 26).strftime(form) + "?"


def test_arguments_and_a_system_message_are_frozen_into_what_is_saved(tmp_path: Path) -> None:
    folder = saved("qwen3", tmp_path / "made")
    plain = load_pretrained(folder, "float32")[1]
    arguments, system = {"enable_thinking": False}, 'You say "yes" or no.\nNothing else.'
    model, tokenizer = load_pretrained(folder, "float32", arguments, system)
    shown = tokenizer.decode(encode_prompt(tokenizer, "Is it so?"))
    assert shown.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n") and system in shown
    assert "think" not in plain.decode(encode_prompt(plain, "Is it so?"))
    model.save_pretrained(tmp_path / "again")
    tokenizer.save_pretrained(tmp_path / "again")
    again = load_pretrained(str(tmp_path / "again"), "float32")[1]
    assert encode_prompt(again, "Is it so?") == encode_prompt(tokenizer, "Is it so?")
    assert facts_of(again) == facts_of(tokenizer)


@pytest.mark.parametrize(("name", "arguments", "system", "said"), [
    ("qwen2_5", {"enable_thinking": False}, None, "names enable_thinking, which the chat template of .* does not read"),
    ("gemma2", None, "Be brief.", r"takes no system message: set model.system_message=null"),
    (None, {"a": 1}, None, "model.template_arguments is set, but .* has no chat template"),
    (None, None, "Be brief.", "model.system_message is set, but .* has no chat template"),
])  # fmt: skip
def test_what_a_template_cannot_show_is_refused(name: Any, arguments: Any, system: Any, said: str) -> None:
    tokenizer = tokenizer_of(FAMILIES[name or "qwen2_5"], chat=name is not None)
    with pytest.raises(BadInput, match=said):
        freeze(tokenizer, arguments, system, "here")


@pytest.mark.parametrize("template", ["{{ raise_exception('tools only') }}", "Hello{{ bos_token }}"])
def test_a_template_that_cannot_show_a_prompt_is_refused(template: str) -> None:
    tokenizer = tokenizer_of(FAMILIES["qwen2_5"])
    tokenizer.chat_template = template
    with pytest.raises(BadInput, match="chat template of here"):
        freeze(tokenizer, None, None, "here")


def test_families_that_would_be_read_wrongly_are_refused() -> None:
    tokenizer = tokenizer_of(FAMILIES["qwen2_5"], chat=False)
    size = len(tokenizer)
    mamba = MambaForCausalLM(MambaConfig(vocab_size=size, hidden_size=16, num_hidden_layers=1, state_size=4)).eval()
    with pytest.raises(BadInput, match=r"is a MambaForCausalLM, (which GHAR cannot run|whose padded or cached rows)"):
        check_facts(mamba, tokenizer, read_facts(mamba, tokenizer), "here")
    gpt = GPT2LMHeadModel(GPT2Config(vocab_size=size, n_embd=16, n_layer=1, n_head=2)).eval()
    check_facts(gpt, tokenizer, read_facts(gpt, tokenizer), "here")  # absolute positions are no hindrance

    class Doubled(GraniteForCausalLM):
        def forward(self, *args: Any, **given: Any) -> Any:
            out = super().forward(*args, **given)
            out.logits = out.logits * 2
            return out

    family = FAMILIES["granite"]
    odd = Doubled(model_of(family, tokenizer_of(family)).config).eval()
    with pytest.raises(BadInput, match="is a Doubled, whose logits are made in a way that GHAR does not know"):
        check_facts(odd, tokenizer, read_facts(odd, tokenizer), "here")


def test_a_model_without_an_end_is_refused() -> None:
    tokenizer = tokenizer_of(FAMILIES["qwen2_5"], chat=False)
    model = model_of(FAMILIES["qwen2_5"], tokenizer)
    tokenizer.eos_token = model.config.eos_token_id = model.generation_config.eos_token_id = None
    with pytest.raises(BadInput, match="here names no token that ends a reply"):
        check_facts(model, tokenizer, read_facts(model, tokenizer), "here")
