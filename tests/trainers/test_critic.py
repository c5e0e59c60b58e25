"""A critic of its own: what it reads, that it learns where a constant cannot, and what it is measured against."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ghar.episode import Completion, Episode, Prediction, Turn
from ghar.rewards.compose import EpisodeReward
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.critic import Critic, CriticConfig, Scaled
from ghar.trainers.rl.critic_baseline import WAIT, CriticBaseline
from ghar.trainers.rl.mappo import update
from ghar.trainers.rl.settings import MappoConfig
from ghar.trainers.rl.state import PASSAGE, states, width
from ghar.trainers.rl.targets import prepare
from ghar.trainers.rl.trajectory import Trajectories
from tests.trainers.tiny import ROLES, VOCAB, build, for_two, tiny_model

LEARNS = CriticConfig(epochs=4, minibatches=2, micro_tokens=256, lr=3e-3, max_grad_norm=1.0)
CONFIG = MappoConfig(
    epochs=1, minibatches=2, micro_tokens=256, clip=0.2, value_clip=5.0, gamma=1.0, lam=1.0, credit="turn",
    per_agent=False, kl=0.0, ratio="behaviour", critic_target="returns", value_coef=0.5, entropy=0.0,
    max_grad_norm=1.0, importance_cap=None, mismatch_limit=None, critic="own",
)  # fmt: skip


def said(prompt: list[int], reply: list[int], choices: tuple = ()) -> Completion:
    return Completion("", tuple(prompt), tuple(reply), (-1.0,) * len(reply), choices)


def episodes(count: int, seed: int, cut: bool = False) -> Trajectories:
    """Agent-Low is shown a word at the first turn (2 or 3); it alone decides what the second turn, which does not show
    it, will earn: 4 or 0, whatever is said."""
    rng = np.random.default_rng(seed)
    played, rewards = [], []
    for i in range(count):
        word = int(rng.integers(2, 4))
        record = rng.integers(10, VOCAB, 4).tolist()
        first = Turn("low", "summarise", 0, 0, said([*record, word, 8], [int(rng.integers(4, 7))]), True)
        last = Turn("top", "predict", 1, 0, said([*record, 9], [int(rng.integers(4, 7)), 1]), True)
        earned = 4.0 * (word == 2)
        played.append(Episode(f"s{i}", 0, Prediction(0), (first, last), cut=cut and i == 0))
        rewards.append(EpisodeReward({}, earned, ({}, {"orm": earned}), "shared"))
    return build(played, rewards)


def make(finetune: str = "full", **kwargs) -> tuple[ActorCritic, Critic]:
    actor = ActorCritic(tiny_model(), for_two(finetune=finetune, rank=4, critic="own"))  # type: ignore[arg-type]
    return actor, Critic(actor, width(ROLES), replace(LEARNS, **kwargs), seed=0)


def optimiser(actor: ActorCritic) -> torch.optim.Optimizer:
    return torch.optim.Adam(actor.trainable_parameters(), lr=1e-3)


# ---------------------------------------------------------------- what it reads


def test_the_state_is_all_that_was_shown_and_said_with_each_passage_once():
    record = list(range(20, 40))
    turns = (
        Turn("top", "rewrite", 0, 0, said([2, *record, 3], [4, 5]), True),
        Turn("low", "summarise", 1, 0, said([6, 7, 8, 9], [10]), False, trainable=False),
        Turn("top", "predict", 2, 0, said([11, *record, 10, 12], [13, 14]), True),
    )
    traj = build([Episode("s", 0, Prediction(0), turns)], [EpisodeReward({}, 1.0, ({}, {}, {"orm": 1.0}), "shared")])
    (state,) = states(traj, every_token=True)
    assert state.tokens.tolist() == [2, *record, 3, 4, 5, 6, 7, 8, 9, 10, 11, 10, 12, 13, 14]
    assert state.tokens[state.position].tolist() == [3, 4, 12, 13]
    assert traj.tokens[state.where].tolist() == [4, 5, 13, 14]
    (state,) = states(traj, every_token=False)
    assert traj.tokens[state.where].tolist() == [4, 13] and state.agent.tolist() == [0, 0]
    assert state.end(2).position.tolist() == [len(state.tokens) - 1] * 2


def test_short_repetitions_stay():
    again = list(range(2, PASSAGE))
    turns = [Turn("top", "rewrite", i, 0, said([*again, 60], [61]), True) for i in range(2)]
    played = Episode("s", 0, Prediction(0), tuple(turns))
    (state,) = states(build([played], [EpisodeReward({}, 1.0, ({}, {"orm": 1.0}), "shared")]), every_token=False)
    assert state.tokens.tolist() == 2 * [*again, 60, 61]


def test_numbers_tell_the_past_and_nothing_of_what_comes():
    """The same episodes with another second reply differ in no state before it."""
    traj = episodes(6, 0)
    logprobs = traj.logprobs.copy()
    later = traj.segments.start[traj.segments.turn == 1].min()
    logprobs[later:] -= 5.0
    for one, other in zip(states(traj, False), states(replace(traj, logprobs=logprobs), False), strict=True):
        if one.episode == 0:
            assert np.array_equal(one.numbers, other.numbers) and not np.array_equal(one.after, other.after)
        assert one.numbers.shape == (2, width(ROLES))


# -------------------------------------------------------------------- its scale


def test_values_stay_when_mean_and_spread_change():
    """PopArt: new statistics, the same values; and targets have mean 0 and spread 1 in the end."""
    rng = np.random.default_rng(0)
    head = Scaled(8, 2)
    head.observe(rng.normal(3.0, 2.0, 200), np.repeat([0, 1], 100))
    torch.nn.init.normal_(head.last.weight.data, generator=torch.Generator().manual_seed(0))
    hidden, agent = torch.randn(20, 8, generator=torch.Generator().manual_seed(1)), torch.arange(20) % 2
    before = head.value(head(hidden, agent), agent)
    returns = rng.normal(40.0, 7.0, 5000)
    for _ in range(60):
        head.observe(returns, np.zeros(5000, np.int64))
    assert torch.allclose(head.value(head(hidden, agent), agent), before, atol=1e-3)
    told = head.target(torch.as_tensor(returns), torch.zeros(5000, dtype=torch.int64))
    assert float(told.mean()) == pytest.approx(0, abs=1e-2) and float(told.std()) == pytest.approx(1, abs=1e-2)
    assert float(head.mean[1]) == pytest.approx(3.0, abs=0.5)  # the other agent's are its own


def test_a_new_critic_says_the_mean_return():
    traj = episodes(32, 0)
    actor, critic = make()
    rows = list(traj.rows())
    targets, report = prepare(actor, rows, traj, CONFIG, critic=critic)
    assert report["value/mean"] == pytest.approx(float(targets.returns.mean()), abs=1e-5)
    assert report["explained_variance"] == pytest.approx(0.0, abs=1e-5)


# ----------------------------------------------------------------- that it learns


@pytest.mark.slow
@pytest.mark.parametrize("finetune", ["full", "lora"])
def test_it_knows_what_the_acting_agent_was_not_shown(finetune):
    """The word that decides is in no prompt but the first agent's: a critic that reads the acting agent's own prompt
    explains half of the variance at most, the first turn's."""
    actor, critic = make(finetune, lr=3e-3 if finetune == "full" else 1e-2)
    rng, step = np.random.default_rng(0), optimiser(actor)
    before = {name: w.clone() for name, w in actor.trainable_state().items()}
    told = [update(actor, step, episodes(48, seed), CONFIG, rng, critic=critic) for seed in range(12)]
    assert told[0]["explained_variance"] < 0.1 and told[-1]["explained_variance"] > 0.8
    assert "loss/value" not in told[0] and np.isfinite(list(told[-1].values())).all()
    assert any(not torch.equal(before[name], w) for name, w in actor.trainable_state().items())


def test_critic_and_policy_leave_each_other_alone():
    actor, critic = make("lora")
    before = {name: w.clone() for name, w in actor.trainable_state().items()}
    own = [p.detach().clone() for p in critic.learned]
    batch = states(traj := episodes(16, 0), False)
    critic.observe(batch, [np.ones(2)] * len(batch))
    critic.fit(batch, [np.array([0.0, 4.0])] * len(batch), np.random.default_rng(0))
    assert all(torch.equal(before[name], w) for name, w in actor.trainable_state().items())
    assert any(not torch.equal(a, b) for a, b in zip(own, critic.learned, strict=True))
    own = [p.detach().clone() for p in critic.learned]
    update(actor, optimiser(actor), traj, replace(CONFIG, estimator="reinforce_pp"), np.random.default_rng(0))
    assert all(torch.equal(a, b) for a, b in zip(own, critic.learned, strict=True))


def test_a_cut_episode_is_closed_by_the_state_it_was_cut_at():
    whole, cut = episodes(8, 0), episodes(8, 0, cut=True)
    actor, critic = make()
    batch = states(whole, False)
    critic.observe(batch, [np.full(2, 7.0)] * len(batch))  # it says 7 everywhere, and goes on saying so
    rows = list(whole.rows())
    told = [prepare(actor, rows, t, CONFIG, critic=frozen(critic))[0].returns for t in (whole, cut)]
    first = len(rows[0].tokens) - rows[0].prompt
    assert float(told[1][0] - told[0][0]) == pytest.approx(7.0, abs=1e-4)
    assert torch.allclose(told[1][first + 2 :], told[0][first + 2 :])


def frozen(critic: Critic) -> Critic:
    critic.observe = lambda states, returns: None  # type: ignore[method-assign]
    return critic


def test_micro_batches_change_nothing():
    traj = episodes(12, 0)
    batch = states(traj, True)
    small, large = (make(micro_tokens=n)[1] for n in (1, 9999))
    for critic in (small, large):
        critic.observe(batch, [np.arange(len(s.position)).astype(float) for s in batch])
        critic.fit(batch, [np.arange(len(s.position)).astype(np.float32) for s in batch], np.random.default_rng(0))
    for one, other in zip(small.values(batch), large.values(batch), strict=True):
        assert one == pytest.approx(other, abs=1e-4)


def test_it_goes_on_from_its_state():
    traj = episodes(16, 0)
    batch = states(traj, False)
    returns = [np.array([0.0, float(i % 3)], np.float32) for i in range(len(batch))]
    one, other = make()[1], make()[1]
    one.observe(batch, returns)
    one.fit(batch, returns, np.random.default_rng(0))
    other.load_state(one.state(), one.own_state())
    for critic in (one, other):
        critic.fit(batch, returns, np.random.default_rng(1))
    for a, b in zip(one.values(batch), other.values(batch), strict=True):
        assert np.array_equal(a, b)


# ----------------------------------------------------------- what it is worth


def measured(values_of, batches: int = 14) -> list[dict[str, float]]:
    """Returns that are a step of the first number, and noise; `values_of` gives the critic's."""
    rng, yardstick, told = np.random.default_rng(0), CriticBaseline(), []
    for _ in range(batches):
        numbers = rng.normal(size=(300, 5))
        returns = 3.0 * (numbers[:, 0] > 0) + rng.normal(size=300)
        told.append(yardstick.measure(numbers, values_of(numbers), returns))
    return told


@pytest.mark.slow
def test_boosting_finds_what_the_numbers_hold_and_a_good_critic_is_no_alarm():
    told = measured(lambda numbers: 3.0 * (numbers[:, 0] > 0))
    truth = 1 - 1 / (1 + 9 / 4)  # share of the variance that is not noise
    assert "explained_variance/boosting" not in told[0]
    assert told[-1]["explained_variance/boosting"] == pytest.approx(truth, abs=0.1)
    assert told[-1]["explained_variance"] == pytest.approx(truth, abs=0.1)
    assert told[-1]["critic/worthless"] == 0.0


@pytest.mark.slow
def test_a_critic_worth_no_more_than_a_constant_is_an_alarm_after_ten_updates():
    told = measured(lambda numbers: np.full(len(numbers), 1.5))
    assert ["critic/worthless" in row for row in told] == [n >= WAIT for n in range(1, len(told) + 1)]
    assert told[WAIT - 1]["critic/worthless"] == told[-1]["critic/worthless"] == 1.0
    judge = CriticBaseline(explained=[0.0] * WAIT)
    said = [judge.alarm(row) for row in told]
    assert [n for n, sentence in enumerate(said) if sentence] == [WAIT - 1]
    assert "trainer.rl.estimator=rloo" in str(said[WAIT - 1])


def test_the_yardstick_goes_on_from_its_state():
    rng, one = np.random.default_rng(0), CriticBaseline()
    batches = [(rng.normal(size=(80, 3)), rng.normal(size=80), rng.normal(size=80)) for _ in range(3)]
    for batch in batches[:2]:
        one.measure(*batch)
    other = CriticBaseline()
    other.load_state(one.state())
    assert one.measure(*batches[2]) == other.measure(*batches[2])
