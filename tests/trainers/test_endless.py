"""A policy that starts with endless replies loses them, by the project's own rewards and the demo's settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ghar.episode import Completion, Episode, Prediction, Turn
from ghar.launch.entry import load
from ghar.rewards.compose import RewardSpec, score_episode
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.critic import Critic, CriticConfig
from ghar.trainers.rl.mappo import update
from ghar.trainers.rl.settings import settings_of
from ghar.trainers.rl.state import width
from tests.trainers.tiny import AGENTS, ROLES, build, for_two, tiny_model

pytestmark = pytest.mark.slow

END, GOES_ON, LIMIT = 1, 40, 8
# a prompt, and its right answer in one word
QUESTIONS: dict[tuple[int, ...], int] = {(2, 10, 3): 5, (2, 11, 3): 6, (2, 12, 3): 7}
SHARE, UPDATES, EPISODES = 0.2, 10, 64
SPEC = RewardSpec(
    eta=5.0, alpha=0.2, length=3, normalise="range", rank="sound",
    composition="shared", max_iterations=5, max_paths=3,
)  # fmt: skip


def taught() -> ActorCritic:
    """A model that answers and stops, three in four times rightly, but goes on for ever in a fifth of all cases."""
    actor = ActorCritic(tiny_model(hidden=64), for_two(finetune="full", critic="own"))
    rng = np.random.default_rng(0)
    optimizer = torch.optim.Adam(actor.trainable_parameters(), lr=3e-3)
    for _ in range(120):
        rows = []
        for prompt, right in QUESTIONS.items():
            for _ in range(16):
                said = right if rng.random() < 0.75 else int(rng.choice([5, 6, 7]))
                endless = rng.random() < SHARE
                rows.append([*prompt, *([GOES_ON] * LIMIT if endless else [said, END] + [-100] * (LIMIT - 2))])
        ids = torch.tensor(rows)
        logits = actor.model(input_ids=ids.clamp(min=0)).logits[:, 2:-1]
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 3:], ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return actor


@torch.no_grad()
def say(actor: ActorCritic, prompts: list[tuple[int, ...]], generator: torch.Generator) -> list[Completion]:
    """One reply to each prompt, all of one length."""
    ids, told = torch.tensor(prompts), torch.zeros(len(prompts), 0)
    for _ in range(LIMIT):
        logp = actor.model(input_ids=ids).logits[:, -1].log_softmax(-1)
        word = torch.multinomial(logp.exp(), 1, generator=generator)
        ids, told = torch.cat([ids, word], 1), torch.cat([told, logp.gather(1, word)], 1)
    found = []
    for prompt, line, logps in zip(prompts, ids.tolist(), told.tolist(), strict=True):
        reply = line[len(prompt) :]
        stop = reply.index(END) + 1 if END in reply else LIMIT
        finish = "stop" if END in reply else "length"
        found.append(Completion("", prompt, tuple(reply[:stop]), tuple(logps[:stop]), finish_reason=finish))
    return found


def episode(number: int, done: Completion) -> tuple[Episode, int]:
    """A final answer, readable where it is one word of the three and the end; and the label that would be right."""
    right = QUESTIONS[done.prompt_ids]
    answer = done.token_ids[0] if len(done.token_ids) == 2 and done.finish_reason == "stop" else None
    label = answer - 5 if answer is not None and answer in QUESTIONS.values() else None
    turn = Turn("top", "predict", 0, 0, done, label is not None)
    return Episode(str(number), 0, Prediction(label), (turn,)), right - 5


@pytest.mark.parametrize("estimator", ["gae", "reinforce_pp"])
def test_a_fifth_of_endless_replies_falls_below_one_in_a_hundred_within_ten_updates(estimator: str) -> None:
    rl = load([]).trainer.rl
    settings = replace(settings_of(load([f"trainer.rl.estimator={estimator}"])), kl=0.0, mismatch_limit=None)
    actor, generator, rng = taught(), torch.Generator().manual_seed(0), np.random.default_rng(0)
    learns = CriticConfig(rl.value_epochs, rl.value_minibatches, rl.micro_tokens, rl.value_lr, rl.max_grad_norm)
    critic = Critic(actor, width(ROLES), learns, seed=0) if estimator == "gae" else None
    optimizer = torch.optim.AdamW(actor.parameter_groups(1e-3, 1e-3), weight_decay=0.0)  # the toy's: it is tiny
    prompts = list(QUESTIONS) * 200
    endless, right = [], []
    for step in range(UPDATES + 1):
        played = [episode(i, done) for i, done in enumerate(say(actor, prompts, generator))]
        endless.append(np.mean([e.turns[0].completion.finish_reason == "length" for e, _ in played]))
        right.append(np.mean([e.prediction.label == label for e, label in played]))
        if step < UPDATES:
            batch = [played[i] for i in rng.choice(len(played), EPISODES, replace=False)]
            traj = build([e for e, _ in batch], [score_episode(e, label, SPEC) for e, label in batch], AGENTS, ROLES)
            update(actor, optimizer, traj, settings, rng, critic=critic)
    assert 0.15 < endless[0] < 0.25
    assert endless[-1] < 0.01
    assert right[-1] > right[0]
