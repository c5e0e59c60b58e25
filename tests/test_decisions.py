"""Readable decisions from any model: what free text leaves open is chosen, in one turn, and trained as sampled."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from ghar.envs.ehr_rag.event_replies import MOST_WORDS, parse_label_number, parse_move
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.stepper import Scene, SteppedEpisode
from ghar.episode import Act, Completion, Options, Prediction, read_reply
from ghar.llm.constraint import ListTree, allowed_tokens
from ghar.llm.decisions import joined
from ghar.llm.hf import HFEngine
from ghar.llm.parsing import parse_label, parse_path_ids
from ghar.llm.policy import EnginePolicy
from ghar.llm.tokens import encode_after
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.terms import orm
from ghar.trainers.evaluation.label_scores import label_probabilities
from ghar.trainers.rl.actor_critic import ActorCritic, ActorCriticConfig
from ghar.trainers.rl.trajectory import build
from ghar.trainers.rows import turn_rows
from ghar.trainers.sft.pairs import tokenised
from tests.llm.families import FAMILIES, model_of, tokenizer_of
from tests.trainers.tiny import make_row

LABELS = ("no", "yes")
PREDICT = Act(
    "top", "predict", "Will it happen?", max_tokens=8, parse=partial(parse_label, labels=LABELS),
    options=Options(LABELS),
)  # fmt: skip
CHOOSE = Act(
    "top", "metapaths", "Which ones?", max_tokens=8, parse=partial(parse_path_ids, n_paths=12, max_paths=3),
    options=Options(tuple(map(str, range(12))), 3, "", " ", alone=True),
)  # fmt: skip


def episode() -> Any:
    yield CHOOSE
    final, _ = yield (PREDICT, CHOOSE)
    return Prediction(final.value)


def play(policy: Any) -> Any:
    (done,) = rollout([EpisodeJob("a", 0, episode)], {"top": policy}, None, seed=3, in_flight=1)  # type: ignore[arg-type]
    assert done.failure is None
    return done


@pytest.fixture(scope="module", params=["qwen2_5", "llama3_2", "gemma2", "mistral", "raw"])
def model(request: Any) -> Any:
    family = FAMILIES["llama3_2" if request.param == "raw" else request.param]
    tokenizer = tokenizer_of(family, chat=request.param != "raw")
    return model_of(family, tokenizer), tokenizer


def chosen(model: Any, temperature: float = 1.0) -> EnginePolicy:
    return EnginePolicy(HFEngine(*model), temperature, "chosen")


def test_a_model_that_talks_nonsense_decides_readably_in_one_turn_an_act(model: Any) -> None:
    free, done = play(EnginePolicy(HFEngine(*model))), play(chosen(model))
    assert free.prediction.label is None and free.turns[1].completion.before is None
    assert done.prediction.label in (0, 1)
    assert len(done.turns) == 3 and all(turn.format_ok for turn in done.turns)
    assert [turn.get("completed") for turn in turn_rows(done)] == [turn.completed or None for turn in done.turns]
    assert done.turns[1].completed and not any(turn.completed for turn in free.turns)
    assert orm(done, done.prediction.label) == 3.0


def test_views_decide_as_the_rollout_does(model: Any) -> None:
    scene = Scene("s", ("top",), ("predict", "metapaths"), (), lambda case: episode(), None, lambda e, c: EpisodeReward(
        {}, 0.0, tuple({} for _ in e.turns), "shared"))  # type: ignore[arg-type]  # fmt: skip
    case = type("Case", (), {"sample_id": "a"})()
    paused = SteppedEpisode(scene, case, dict.fromkeys(("predict", "metapaths"), chosen(model)), seed=3)
    assert paused.episode is not None and paused.episode.prediction == play(chosen(model)).prediction


def test_every_part_stands_in_the_context_it_was_sampled_in(model: Any) -> None:
    spoke, chose = play(chosen(model)).turns[1].completion.parts
    assert list(chose.prompt_ids) == encode_after(model[1], spoke, "\nanswer:")
    assert chose.text.endswith(f"answer: {chose.chosen.split()[-1]}") and chose.chosen.split()[-1] in LABELS


def test_the_trainer_finds_the_probabilities_that_were_sampled_from(model: Any) -> None:
    actor = ActorCritic(model[0], ActorCriticConfig(finetune="full", reference=False))
    done = play(chosen(model))
    reward = EpisodeReward({}, 6.0, ({"a": 1.0}, {"a": 2.0}, {"a": 3.0}), "shared")
    traj = build([done], [reward], ("top",), ("predict", "metapaths"))
    assert traj.segments.reward[1::2].tolist() == [1.0, 0.0, 2.0, 3.0]  # a turn's, at its last part
    for row in traj.rows():
        own = make_row(row.tokens.tolist(), row.prompt, choice_ids=row.choice_ids)
        with torch.no_grad():
            assert torch.allclose(actor.score([own]).logp.double(), torch.tensor(row.logprobs[row.prompt :]).double(),
                                  atol=1e-5)  # fmt: skip


def test_labels_have_probabilities_from_the_same_place(model: Any) -> None:
    engine = HFEngine(*model)
    done = play(EnginePolicy(engine, 0, "chosen"))
    (found,) = label_probabilities(engine, model[1], [done], LABELS)
    assert found is not None and max(range(2), key=found.__getitem__) == done.prediction.label
    own = done.turns[1].completion
    said = math.exp(sum(own.logprobs))  # greedy draws report what they would have been drawn with at temperature 1
    assert found[done.prediction.label] == pytest.approx(said, abs=1e-4)


def test_imitated_replies_can_be_read(model: Any) -> None:
    done = play(chosen(model))
    assert [role for role, _ in tokenised(model[1], [done])] == ["metapaths", "predict", "metapaths"]
    assert parse_label(done.turns[1].completion.text.rpartition("\n")[2], LABELS).error is None


def test_a_list_of_options_may_end_behind_each_of_them() -> None:
    tree = ListTree(((1,), (1, 2), (3,)), ((9, 1), (9, 1, 2), (9, 3)), 0, 2)
    assert tree.allowed(()) == (1, 3)
    assert tree.allowed((1,)) == (0, 2, 9) and tree.allowed((3,)) == (0, 9)
    assert tree.allowed((3, 9)) == (1,)  # each once
    assert tree.allowed((3, 9, 1)) == (0, 2) and tree.allowed((3, 0)) == ()  # at most two
    whole = [(3, 9, 1, 2, 0), (1, 0), (1, 2, 9, 3, 0)]
    for reply, n in itertools.product(whole, range(6)):
        assert allowed_tokens(tree.beside(reply), reply[:n]) == tree.allowed(reply[:n])


class Script:
    """An engine that says one prepared text after the other, and remembers what it was asked."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.asked = list(texts), []

    def generate(self, requests: Any) -> list[Completion]:
        self.asked += requests
        return [Completion(self.texts.pop(0), (1,), (2,)) for _ in requests]


TWO = partial(parse_label_number, n_labels=2)
MOVE = Act(
    "top", "react", "Now?", max_tokens=8, parse=partial(parse_move, parse_answer=TWO, asked=("blood count",)),
    options=Options(("Search:", "Answer: 0", "Answer: 1"), head="", open=("Search:",), words=MOST_WORDS),
)  # fmt: skip


def test_a_search_that_cannot_be_read_becomes_an_answer_and_a_long_one_is_cut() -> None:
    engine: Any = Script("Hm.", "Search:", "Blood count", "Answer: 1")
    (reply,) = EnginePolicy(engine, 1.0, "chosen").answer([MOVE], [1])
    assert MOVE.parse(reply.chosen).value == ("answer", 1) and reply.text == "Hm.\nAnswer: 1"
    assert engine.asked[-1].choices == ("Answer: 0", "Answer: 1") and len(reply.parts) == 4
    engine = Script("Hm.", "Search:", " ".join(f"word{i}" for i in range(40)) + "\nAnswer: 0")
    (reply,) = EnginePolicy(engine, 1.0, "chosen").answer([MOVE], [1])
    found = MOVE.parse(reply.chosen)
    assert found.error is None and len(found.value[1].split()) == MOST_WORDS


def test_list_numbers_are_no_ids_and_readable_replies_stay(model: Any) -> None:
    said = "1. 0 disease - contraindication\n2. gene"
    assert read_reply(CHOOSE, Completion(said), 0)[1].value.ids == (0,)
    ids = play(chosen(model)).trace[0].result.value.ids
    assert 1 <= len(ids) <= 3 and len(set(ids)) == len(ids)
    told = Completion("answer: yes", token_ids=(1,))
    assert joined(PREDICT, [told]) is told
    free = replace(PREDICT, parse=lambda reply: parse_label("yes", LABELS))
    (reply,) = chosen(model).answer([free], [1])
    assert reply.before is None
