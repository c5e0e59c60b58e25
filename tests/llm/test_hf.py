"""The engine against plain forward passes of transformers: what it reports is what it sampled from."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.episode import Completion
from ghar.llm.engine import Request
from ghar.llm.hf import HFEngine, passes
from ghar.llm.tokens import encode_prompt
from ghar.trainers.rl.actor_critic import ActorCritic
from tests.trainers.tiny import for_two, make_row

# Single tokens, several tokens, one that begins another, and ones that begin alike and part late.
CHOICES = (
    (),
    ("yes", "no"),
    ("heart failure", "heart failure - severe", "gout"),
    ("nothing known yet", "nothing known at all", "nothing known at last"),
)
PROMPTS = ("retrieve? drug warfarin\ndecide:", "x", "enough?\n" + "conditions: gout; asthma " * 9, "predict 7", "é")
REQUESTS = [
    Request(prompt, 3 + 2 * i, choices, seed=10 * i + j, temperature=temperature)
    for i, prompt in enumerate(PROMPTS)
    for j, (choices, temperature) in enumerate(zip(CHOICES, (1.0, 0.7, 1.6, 1.0), strict=True))
]


def plain_logprobs(model, completion: Completion, temperature: float) -> list[float]:
    """One unpadded pass over prompt and reply; a restriction is applied by looking at every choice."""
    ids = completion.prompt_ids + completion.token_ids
    with torch.inference_mode():
        lines = model(input_ids=torch.tensor([ids])).logits[0].double() / temperature
    found = []
    for n, token in enumerate(completion.token_ids):
        line = lines[len(completion.prompt_ids) + n - 1]
        begun = [c for c in completion.choice_ids if c[:n] == completion.token_ids[:n]]
        kept = line[sorted({c[n] for c in begun})] if completion.choice_ids else line
        found.append(float(line[token] - kept.logsumexp(0)))
    return found


@pytest.fixture(scope="module")
def replies(model, tokenizer) -> list[Completion]:
    return HFEngine(model, tokenizer, max_batch=6).generate(REQUESTS)


def test_behaviour_logprobs_equal_a_direct_pass(model, replies):
    for request, reply in zip(REQUESTS, replies, strict=True):
        assert reply.logprobs == pytest.approx(plain_logprobs(model, reply, request.temperature), abs=1e-5)


def test_behaviour_logprobs_equal_those_of_the_trainer_on_the_same_ids(model, tokenizer):
    """Token ids travel from the sampler to the loss: no text in between."""
    for temperature in (1.0, 0.7):
        requests = [Request(r.prompt, r.max_tokens, r.choices, r.seed, temperature) for r in REQUESTS]
        done = HFEngine(model, tokenizer).generate(requests)
        rows = [make_row(r.prompt_ids + r.token_ids, len(r.prompt_ids), 0, r.choice_ids) for r in done]
        actor = ActorCritic(model, for_two(finetune="full", reference=False, temperature=temperature))
        sampled = torch.tensor([p for r in done for p in r.logprobs])
        assert torch.allclose(actor.evaluate(rows, 256).logp, sampled, atol=1e-5)


def test_prompts_are_encoded_once_and_replies_end_where_they_should(tokenizer, replies):
    for request, reply in zip(REQUESTS, replies, strict=True):
        assert list(reply.prompt_ids) == encode_prompt(tokenizer, request.prompt)
        assert len(reply.token_ids) == len(reply.logprobs) > 0
        if request.choices:
            assert reply.text in request.choices and reply.token_ids in reply.choice_ids
            assert reply.finish_reason == "stop"
        else:
            ended = reply.token_ids[-1] == tokenizer.eos_token_id
            assert reply.finish_reason == ("stop" if ended else "length")
            assert ended or len(reply.token_ids) == request.max_tokens
            assert tokenizer.eos_token_id not in reply.token_ids[:-1]
            assert reply.text == tokenizer.decode(reply.token_ids, skip_special_tokens=True).strip()


@pytest.mark.slow
@settings(max_examples=12)
@given(st.permutations(range(len(REQUESTS))), st.integers(1, len(REQUESTS)), st.integers(1, 20))
def test_a_reply_depends_on_its_request_alone(model, tokenizer, replies, order, kept, max_batch):
    again = HFEngine(model, tokenizer, max_batch).generate([REQUESTS[i] for i in order[:kept]])
    for i, reply in zip(order, again, strict=False):
        assert (reply.text, reply.token_ids) == (replies[i].text, replies[i].token_ids)
        assert reply.logprobs == pytest.approx(replies[i].logprobs, abs=1e-5)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_passes_of_a_batch_are_as_many_as_the_model_is_called_for(model, tokenizer, most):
    """Every call that reads one token of each row that is still held, behind the prompts."""
    called = []
    hook = model.register_forward_pre_hook(
        lambda _, args, how: called.append(tuple(how["input_ids"].shape)), with_kwargs=True
    )
    requests = [Request(f"predict {'gout ' * (i + 1)}", tokens, seed=i) for i, tokens in enumerate(most)]
    replies = HFEngine(model, tokenizer, max_batch=16).generate(requests)
    hook.remove()
    rows = [shape[0] for shape in called if shape[1] == 1]
    assert passes([len(reply.token_ids) for reply in replies], 16) == (len(rows), sum(rows))


def test_seeds_draw_choices_with_their_probabilities(model, tokenizer):
    """Over many seeds a reply is as frequent as its log-probability says, the shorter of two that begin alike too."""
    choices = CHOICES[2]
    replies = HFEngine(model, tokenizer, 128).generate(
        [Request("retrieve? decide:", 1, choices, seed) for seed in range(600)]
    )
    counts = Counter(r.text for r in replies)
    chance = {r.text: math.exp(sum(r.logprobs)) for r in replies}
    assert set(counts) == set(choices) and sum(chance.values()) == pytest.approx(1.0, abs=1e-4)
    for text, p in chance.items():
        assert abs(counts[text] - 600 * p) < 4 * math.sqrt(600 * p * (1 - p))


def test_temperature_zero_takes_the_most_probable_token_whatever_the_seed(model, tokenizer):
    requests = [Request(p, 6, c, seed, temperature=0) for p in PROMPTS[:3] for c in CHOICES[:3] for seed in (0, 1)]
    replies = HFEngine(model, tokenizer).generate(requests)
    assert [r.token_ids for r in replies[::2]] == [r.token_ids for r in replies[1::2]]
    for request, reply in zip(requests, replies, strict=True):
        for n, token in enumerate(reply.token_ids):
            ids = reply.prompt_ids + reply.token_ids[:n]
            with torch.inference_mode():
                line = model(input_ids=torch.tensor([ids])).logits[0, -1]
            begun = [c for c in reply.choice_ids if c[:n] == reply.token_ids[:n]]
            allowed = sorted({c[n] for c in begun}) if request.choices else range(len(line))
            assert line[token] == pytest.approx(float(line[list(allowed)].max()), abs=1e-5)


@pytest.mark.slow
def test_a_choice_may_be_longer_than_the_budget_of_free_text(model, tokenizer):
    long = " ".join("warfarin" for _ in range(90))
    choices = (long, long + " no", long + " yes")
    for seed in range(3):
        (reply,) = HFEngine(model, tokenizer).generate([Request("which?", 2, choices, seed)])
        assert reply.text in choices
        assert reply.logprobs == pytest.approx(plain_logprobs(model, reply, 1.0), abs=1e-5)


def test_left_padding_changes_nothing(model, tokenizer):
    short, long = Request("x", 8, seed=5), Request("gout " * 200, 8, seed=6)
    engine = HFEngine(model, tokenizer, max_batch=2)
    alone, beside = engine.generate([short])[0], engine.generate([short, long])[0]
    assert alone.token_ids == beside.token_ids
    assert np.allclose(alone.logprobs, beside.logprobs, atol=1e-5)


@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 12)), min_size=1, max_size=6), st.integers(1, 6))
def test_scores_are_those_of_plain_passes(model, tokenizer, sizes, max_batch):
    rng = np.random.default_rng(len(sizes))
    pairs = [
        (rng.integers(0, len(tokenizer), a).tolist(), rng.integers(0, len(tokenizer), b).tolist()) for a, b in sizes
    ]
    for (context, target), found in zip(pairs, HFEngine(model, tokenizer, max_batch).score(pairs), strict=True):
        as_sampled = Completion("", tuple(context), tuple(target))
        assert found == pytest.approx(plain_logprobs(model, as_sampled, 1.0), abs=1e-5)


def test_nothing_predicts_the_first_token(model, tokenizer):
    with pytest.raises(ValueError, match="pair 1 has an empty context"):
        HFEngine(model, tokenizer).score([([1], [2]), ([], [3])])
    assert HFEngine(model, tokenizer).score([]) == []


def test_no_request_no_reply_and_the_version_is_noted(model, tokenizer):
    engine = HFEngine(model, tokenizer)
    assert engine.generate([]) == []
    engine.version = 3
    assert engine.generate([REQUESTS[0]])[0].version == 3


def test_the_model_is_left_in_the_mode_it_was_in(model, tokenizer):
    model.train()
    HFEngine(model, tokenizer).generate(REQUESTS[:2])
    assert model.training
    model.eval()
    HFEngine(model, tokenizer).generate(REQUESTS[:2])
    assert not model.training
