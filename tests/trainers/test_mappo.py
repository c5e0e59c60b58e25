"""The PPO update on a tiny model: it learns, it starts at ratio one, and memory settings do not change its result."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist

from ghar.episode import Completion, Episode, Prediction, Turn
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.llm.canary import WrongWeights
from ghar.rewards.compose import EpisodeReward
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.learner import PlainLearner
from ghar.trainers.rl.loop import check_finite
from ghar.trainers.rl.mappo import improve, update
from ghar.trainers.rl.settings import MappoConfig, settings_of
from ghar.trainers.rl.targets import prepare
from ghar.trainers.rl.trajectory import Trajectories
from ghar.trainers.runs.distributed import share
from tests.running import ends
from tests.trainers.minibatch import select
from tests.trainers.test_resume import Starts
from tests.trainers.tiny import VOCAB, build, for_two, perturb, tiny_model

CONFIG = MappoConfig(
    epochs=2,
    minibatches=2,
    micro_tokens=64,
    clip=0.2,
    value_clip=10.0,
    gamma=1.0,
    lam=0.95,
    credit="turn",
    per_agent=False,
    kl=0.0,
    ratio="behaviour",
    critic_target="returns",
    value_coef=0.5,
    entropy=0.0,
    max_grad_norm=1.0,
    importance_cap=None,
    mismatch_limit=None,
)
GUARDED = replace(CONFIG, mismatch_limit=1e-3)  # what float32 runs have
WANTED = range(16)
CHOICES = ((5, 6), (9, 10))


def make_actor(finetune: str = "full", **kwargs) -> ActorCritic:
    config = for_two(finetune=finetune, rank=8, **kwargs)  # type: ignore[arg-type]
    return ActorCritic(tiny_model(), config)


def adam(actor: ActorCritic, lr: float = 3e-3) -> torch.optim.Optimizer:
    return torch.optim.Adam(actor.trainable_parameters(), lr=lr)


@torch.no_grad()
def sample(actor: ActorCritic, prompt: list[int], choices: tuple, length: int, rng: np.random.Generator) -> Completion:
    """Sample by whole forward passes, as slow and as plain as possible."""
    ids: list[int] = []
    logprobs = []
    while len(ids) < length:
        line = actor.model(input_ids=torch.tensor([prompt + ids])).logits[0, -1].double()
        allowed = sorted({c[len(ids)] for c in choices if list(c[: len(ids)]) == ids}) if choices else range(VOCAB)
        logp = line[list(allowed)].log_softmax(0)
        pick = int(rng.choice(len(logp), p=logp.exp().numpy() / logp.exp().sum().item()))
        ids.append(list(allowed)[pick])
        logprobs.append(float(logp[pick]))
    return Completion("", tuple(prompt), tuple(ids), tuple(logprobs), choices)


def play(
    actor: ActorCritic, episodes: int, rng: np.random.Generator, truncated: bool = False, attempts: int = 1
) -> Trajectories:
    """Two turns: Agent-Top picks a choice, Agent-Low says a word or two.

    Reward for the second choice and for a first word of the first quarter. truncated: the first episode was cut short.
    attempts: how many episodes in a row are of one sample.
    """
    played, rewards = [], []
    for i in range(episodes):
        first = sample(actor, [1, 2, 3 + i % 2], CHOICES, 2, rng)
        second = sample(actor, [4, *first.token_ids, 8][: 2 + i % 3], (), 1 + i % 2, rng)
        cut = truncated and i == 0
        turns = (Turn("top", "retrieve", 0, 0, first, True), Turn("low", "summarise", 1, 0, second, True))
        played.append(Episode(f"s{i // attempts}", i % attempts, Prediction(None if cut else 0), turns, cut=cut))
        orm = 0.3 * (first.token_ids == CHOICES[1]) + 1.0 * (second.token_ids[0] in WANTED)
        rewards.append(EpisodeReward({}, orm, ({}, {"orm": orm}), "shared"))
    return build(played, rewards)


def bandit(actor: ActorCritic, pulls: int, rng: np.random.Generator, group: int = 1) -> tuple[Trajectories, float]:
    """One prompt, one free word, reward 1 for a wanted one; and the probability of a wanted one before the update."""
    with torch.no_grad():
        p = actor.model(input_ids=torch.tensor([[1, 2, 3]])).logits[0, -1].double().softmax(0).numpy()
    words = rng.choice(VOCAB, pulls, p=p / p.sum())
    said = [Completion("", (1, 2, 3), (int(w),), (float(np.log(p[w])),)) for w in words]
    turns = [(Turn("top", "predict", 0, 0, completion, True),) for completion in said]
    played = [Episode(str(i // group), i % group, Prediction(0), turn) for i, turn in enumerate(turns)]
    rewards = [EpisodeReward({}, float(w in WANTED), ({"orm": float(w in WANTED)},), "shared") for w in words]
    return build(played, rewards), float(p[WANTED].sum())


def test_more_minibatches_than_rows_are_as_many_as_rows():
    reports = []
    for minibatches in (4, 9):
        actor = make_actor()
        traj, _ = bandit(actor, 4, np.random.default_rng(0))
        config = replace(CONFIG, minibatches=minibatches)
        reports.append(update(actor, adam(actor, 1e-2), traj, config, np.random.default_rng(1)))
        del reports[-1]["tokens_per_second"]
    assert reports[0] == reports[1]


@pytest.mark.slow
@pytest.mark.parametrize(("finetune", "lr"), [("full", 1e-2), ("lora", 3e-2)])
def test_update_raises_the_probability_of_what_is_rewarded(finetune, lr):
    actor = make_actor(finetune)
    optimizer = adam(actor, lr)
    rng = np.random.default_rng(0)
    seen = []
    for _ in range(8):
        traj, probability = bandit(actor, 64, rng)
        seen.append(probability)
        report = update(actor, optimizer, traj, replace(CONFIG, micro_tokens=999), rng)
    assert seen[0] < 0.4 and seen[-1] > 0.8
    assert "entropy/low" not in report and np.isfinite(list(report.values())).all()


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["grpo", "rloo", "reinforce_pp", "turn_group"])
def test_without_a_critic_it_learns_as_well_and_leaves_the_critic_alone(estimator):
    actor = make_actor()
    optimizer = adam(actor, 1e-2)
    rng = np.random.default_rng(0)
    config = replace(CONFIG, micro_tokens=999, estimator=estimator)
    seen = []
    for _ in range(8):
        traj, probability = bandit(actor, 64, rng, group=8)
        seen.append(probability)
        report = update(actor, optimizer, traj, config, rng)
    assert seen[0] < 0.4 and seen[-1] > 0.8
    assert not any(p.any() for p in actor.heads.parameters())
    assert not report.keys() & {"loss/value", "value/mean", "explained_variance"}
    assert np.isfinite(list(report.values())).all()


@pytest.mark.parametrize("finetune", ["full", "lora"])
def test_first_minibatch_has_ratio_one_and_no_mismatch(finetune):
    actor = perturb(make_actor(finetune))
    report = update(actor, adam(actor), play(actor, 8, np.random.default_rng(0)), CONFIG, np.random.default_rng(1))
    assert report["ratio/first"] == pytest.approx(1.0, abs=1e-5)
    assert report["mismatch/max"] < 1e-5
    assert report["ess"] == pytest.approx(1.0, abs=1e-5)
    assert report["ratio/max"] > 1.0


def own_rows(whole: Trajectories) -> Trajectories:
    """Of this process's episodes."""
    mine = set(share(range(len(whole.sample_ids))))
    return select(whole, [row.index for row in whole.rows() if int(whole.segments.episode[2 * row.index]) in mine])


def run(
    micro_tokens: int, seed: int = 1, part=lambda whole: whole, **changes
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    actor = perturb(make_actor("lora"))
    traj = part(play(actor, 8, np.random.default_rng(0), truncated=True, attempts=3))
    config = replace(CONFIG, micro_tokens=micro_tokens, kl=0.1, entropy=0.01, **changes)
    # SGD: Adam's first step is the sign of the gradient, which would turn rounding of tiny entries into whole steps
    optimizer = torch.optim.SGD(actor.trainable_parameters(), lr=0.1)
    report = update(actor, optimizer, traj, config, np.random.default_rng(seed))
    report.pop("tokens_per_second")
    return actor.trainable_state(), report


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        *({"credit": credit} for credit in ("token", "turn", "bilevel")),
        *({"aggregate": aggregate} for aggregate in ("turn", "sequence")),
        *({"estimator": estimator} for estimator in ("grpo", "rloo", "reinforce_pp", "turn_group")),
    ],
)
def test_micro_batch_budget_changes_nothing(changes):
    small, report_small = run(1, **changes)
    large, report_large = run(10_000, **changes)
    assert all(torch.allclose(small[n], large[n], atol=1e-5) for n in small)
    assert report_small == pytest.approx(report_large, abs=1e-4)


@pytest.mark.parametrize("aggregate", ["token", "turn", "sequence"])
def test_the_loss_is_the_mean_over_what_counts_alike(aggregate):
    """One minibatch at ratio one: the policy loss is minus the mean advantage, taken by a loop over the episodes. Of
    replies and episodes the tokens count that were chosen: the second one of an option follows from the first."""
    actor = perturb(make_actor())
    traj = play(actor, 8, np.random.default_rng(0))
    rows = list(traj.rows())
    config = replace(CONFIG, epochs=1, minibatches=1, aggregate=aggregate)
    advantages = prepare(actor, rows, traj, config)[0].advantages.tolist()
    groups: dict[int, list[float]] = {}
    for i, row in enumerate(rows):
        group = {"token": 0, "turn": i, "sequence": i // 2}[aggregate]
        own = [advantages.pop(0) for _ in row.tokens[row.prompt :]]
        groups.setdefault(group, []).extend(own[:1] if row.choice_ids and aggregate != "token" else own)
    expected = -np.mean([np.mean(members) for members in groups.values()])
    still = torch.optim.SGD(actor.parameters(), 0.0)
    report = update(actor, still, traj, config, np.random.default_rng(0))
    assert report["loss/policy"] == pytest.approx(expected, abs=1e-5)


LONG = ((5, 6, 7, 8, 9, 10, 11), (12, 13), (12, 14, 15))  # several tokens may follow at two places, one elsewhere


@pytest.mark.parametrize("aggregate", ["token", "turn", "sequence"])
def test_the_gradient_is_that_of_a_slow_loop_over_decisions(aggregate):
    """Of the mean advantage of replies (episodes): each the mean over its tokens that were chosen among several, whose
    log-probs are computed one by one. A long option counts as much as a short one; the advantages' mean is 0."""
    actor, rng = perturb(make_actor()), np.random.default_rng(3)
    played, rewards = [], []
    for i in range(6):
        whole = LONG[i % 3]
        first = Completion("", (1, 2, 3 + i), whole, logprobs_of(actor, (1, 2, 3 + i), whole, LONG), LONG)
        second = sample(actor, [4, 8 + i], (), 1 + i % 2, rng)
        turns = (Turn("top", "predict", 0, 0, first, True), Turn("top", "rewrite", 1, 0, second, True))
        played.append(Episode(f"s{i}", 0, Prediction(0), turns))
        rewards.append(EpisodeReward({}, 0.0, ({"orm": float(rng.normal())}, {"orm": float(rng.normal())}), "shared"))
    traj = build(played, rewards)
    rows = list(traj.rows())
    config = replace(CONFIG, epochs=1, minibatches=1, value_coef=0.0, max_grad_norm=1e9, aggregate=aggregate)
    advantages = prepare(actor, rows, traj, config)[0].advantages.tolist()
    groups: dict[int, list[tuple[float, torch.Tensor]]] = {}
    for i, row in enumerate(rows):
        context, reply = row.tokens[: row.prompt].tolist(), tuple(row.tokens[row.prompt :].tolist())
        for n, token in enumerate(reply):
            advantage, allowed = advantages.pop(0), allowed_at(row.choice_ids, reply[:n])
            line = actor.model(input_ids=torch.tensor([[*context, *reply[:n]]])).logits[0, -1]
            logp = line[list(allowed)].log_softmax(0)[list(allowed).index(token)]
            group = {"token": 0, "turn": i, "sequence": i // 2}[aggregate]
            if aggregate == "token" or len(allowed) > 1:
                groups.setdefault(group, []).append((advantage, logp))
    means = [sum(a * logp for a, logp in own) / len(own) for own in groups.values()]
    slow = torch.stack(means).mean()  # type: ignore[arg-type]
    level = np.mean([np.mean([a for a, _ in own]) for own in groups.values()])
    assert level == pytest.approx(0.0, abs=1e-5)
    weights = list(actor.model.parameters())
    gradients = torch.autograd.grad(slow, weights, allow_unused=True)
    before = [weight.detach().clone() for weight in weights]
    update(actor, torch.optim.SGD(actor.trainable_parameters(), 1.0), traj, config, np.random.default_rng(0))
    for weight, old, gradient in zip(weights, before, gradients, strict=True):
        moved = weight.detach() - old
        torch.testing.assert_close(moved, torch.zeros_like(old) if gradient is None else gradient, atol=2e-5, rtol=1e-3)


def allowed_at(choices: tuple, prefix: tuple[int, ...]) -> tuple[int, ...]:
    if not choices:
        return tuple(range(VOCAB))
    return tuple(sorted({c[len(prefix)] for c in choices if c[: len(prefix)] == prefix and len(c) > len(prefix)}))


@torch.no_grad()
def logprobs_of(
    actor: ActorCritic, prompt: tuple[int, ...], reply: tuple[int, ...], choices: tuple
) -> tuple[float, ...]:
    """Of each token of a reply among those that the choices allow."""
    lines = [actor.model(input_ids=torch.tensor([[*prompt, *reply[:n]]])).logits[0, -1] for n in range(len(reply))]
    allowed = [list(allowed_at(choices, reply[:n])) for n in range(len(reply))]
    pairs = zip(lines, allowed, reply, strict=True)
    return tuple(float(line[ids].log_softmax(0)[ids.index(token)]) for line, ids, token in pairs)


@pytest.mark.slow
def test_same_seed_same_numbers():
    first, report = run(64)
    second, again = run(64)
    assert all(torch.equal(first[n], second[n]) for n in first)
    assert report == again
    other, _ = run(64, seed=2)
    assert not all(torch.equal(first[n], other[n]) for n in first)


def alone_and_in_a_group(rendezvous: str) -> None:
    alone, report = run(64)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=0, world_size=1)
    together, again = run(64)
    dist.destroy_process_group()
    assert all(torch.equal(alone[n], together[n]) for n in alone)
    assert again == report


@pytest.mark.slow
def test_one_process_under_torch_distributed_gives_the_same_numbers(tmp_path):
    # in a process of its own: vLLM's engine, which lives as long as the tests, has a group in this one
    process = Starts().context.Process(target=alone_and_in_a_group, args=(str(tmp_path / "rendezvous"),))
    process.start()
    assert process.pid and ends(process.pid, process.is_alive)
    assert process.exitcode == 0


SHARED_OUT = [
    {"aggregate": "token"},
    {"aggregate": "turn"},
    {"aggregate": "sequence", "estimator": "turn_group"},
    {"estimator": "grpo"},
    {"estimator": "rloo", "per_agent": True},
    {"estimator": "reinforce_pp"},
]


def one_of_two(rank: int, rendezvous: str, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    results = [run(64, part=own_rows, **changes) for changes in SHARED_OUT]
    dist.destroy_process_group()
    if rank == 0:
        torch.save(results, out)


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one(tmp_path):
    """Whatever counts alike and whatever advantages are compared with; the second sample's attempts lie in both."""
    context = Starts().context
    given = [(rank, str(tmp_path / "rendezvous"), str(tmp_path / "out")) for rank in range(2)]
    processes = [context.Process(target=one_of_two, args=arguments) for arguments in given]
    for process in processes:
        process.start()
    for process in processes:
        assert process.pid and ends(process.pid, process.is_alive)
    assert [process.exitcode for process in processes] == [0, 0]
    for changes, (weights, report) in zip(SHARED_OUT, torch.load(tmp_path / "out"), strict=True):
        alone, expected = run(64, **changes)
        assert all(torch.allclose(alone[n], weights[n], atol=1e-5) for n in alone), changes
        assert report == pytest.approx(expected, abs=1e-4), changes


@pytest.mark.slow
def test_literal_forms_of_equations_16_and_17_run_and_differ():
    _, sound = run(64)
    _, literal = run(64, ratio="reference", critic_target="reward")
    assert literal["loss/policy"] != pytest.approx(sound["loss/policy"], abs=1e-6)
    assert literal["return/mean"] != pytest.approx(sound["return/mean"], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_term_holds_the_actor_at_the_reference(estimator):
    def drift(kl: float) -> float:
        actor = make_actor("lora")
        rng = np.random.default_rng(0)
        optimizer = adam(actor, 1e-2)
        traj = play(actor, 8, rng)
        for _ in range(4):
            update(actor, optimizer, traj, replace(CONFIG, kl=kl, kl_estimator=estimator, micro_tokens=999), rng)
        rows = [row for row in traj.rows() if row.trainable]
        return float((actor.evaluate(rows, 999).logp - actor.reference_logp(rows, 999)).abs().mean())

    assert drift(20.0) < 0.75 * drift(0.0)


@pytest.mark.slow
def test_critic_learns_the_return():
    actor = make_actor()
    rng = np.random.default_rng(0)
    traj = play(actor, 24, rng)
    optimizer = adam(actor, 1e-2)
    config = replace(CONFIG, epochs=15, value_coef=1.0, clip=1e-6, micro_tokens=999)
    before = update(actor, optimizer, traj, config, rng)["explained_variance"]
    # the state after Agent-Top's choice tells what it earned; other states know nothing of what will be said
    assert update(actor, optimizer, traj, config, rng)["explained_variance"] > before + 0.1


def mean_return(traj: Trajectories) -> float:
    """As an update sees it, of a critic that says 2 everywhere."""
    actor = perturb(make_actor())
    for head in actor.heads.values():
        torch.nn.init.zeros_(head.weight)  # type: ignore[arg-type]
        torch.nn.init.constant_(head.bias, 2.0)  # type: ignore[arg-type]
    config = replace(CONFIG, minibatches=1, epochs=1, lam=1.0)
    still = torch.optim.SGD(actor.parameters(), 0.0)
    return update(actor, still, traj, config, np.random.default_rng(0))["return/mean"]


def test_only_an_episode_that_was_cut_is_bootstrapped_from_the_critic():
    actor = perturb(make_actor())
    cut, whole = (play(actor, 1, np.random.default_rng(0), truncated) for truncated in (True, False))
    assert mean_return(cut) - mean_return(whole) == pytest.approx(2.0, abs=1e-5)


def test_each_agents_stream_of_a_cut_episode_is_closed_by_its_own_head():
    actor = make_actor()
    for head, value in zip(actor.heads.values(), (2.0, 30.0), strict=True):
        torch.nn.init.constant_(head.bias, value)  # type: ignore[arg-type]
    traj = play(actor, 3, np.random.default_rng(0), truncated=True)
    rows = list(traj.rows())
    targets, _ = prepare(actor, rows, traj, replace(CONFIG, per_agent=True, lam=1.0))
    agent = np.repeat([row.agent for row in rows[:2]], [len(row.tokens) - row.prompt for row in rows[:2]])
    cut, whole = targets.returns[: len(agent)].numpy(), traj.segments.reward[:4].sum()
    for i, value in enumerate((2.0, 30.0)):
        assert cut[agent == i] == pytest.approx(whole + value, abs=1e-5)


def test_separately_rewarded_agents_train_otherwise_without_per_agent():
    """Ablation NS: the same episodes, rewarded apart, move the weights elsewhere."""
    actor = make_actor()
    shared = play(actor, 8, np.random.default_rng(0))
    segments, low = shared.segments, shared.agents.index("low")
    own = segments.agent_reward.copy()
    own[:, low] = 0.0  # the outcome is Agent-Top's
    apart = replace(shared, separate=True, segments=replace(segments, agent_reward=own))
    rows = list(shared.rows())
    advantages = [prepare(actor, rows, traj, CONFIG)[0].advantages for traj in (shared, apart)]
    assert not torch.allclose(advantages[0], advantages[1], atol=0.1)
    targets, _ = prepare(actor, rows, apart, CONFIG)
    agent = np.repeat([row.agent for row in rows], [len(row.tokens) - row.prompt for row in rows])
    assert not targets.returns[torch.as_tensor(agent == low)].any()


def test_a_reply_that_ran_into_max_tokens_ends_its_episode():
    """The critic's value comes on top of no reward: an endless answer would be the best one."""
    done = [Completion("", (1, 2), (3, 4), (-1.0, -1.0), finish_reason=finish) for finish in ("stop", "length")]
    turns = [Turn("top", "predict", 0, 0, completion, False) for completion in done]
    reward = EpisodeReward({}, 4.0, ({"orm": 4.0},), "shared")
    stopped, endless = (build([Episode("s", 0, Prediction(None), (turn,))], [reward]) for turn in turns)
    assert mean_return(endless) == mean_return(stopped) == pytest.approx(4.0, abs=1e-5)


def test_nothing_to_train_on_is_an_error():
    with pytest.raises(ValueError, match="without trainable tokens"):
        actor = make_actor()
        update(actor, adam(actor), build([], []), CONFIG, np.random.default_rng(0))


def test_gradient_that_is_not_finite_leaves_the_weights_alone():
    actor = make_actor()
    traj = play(actor, 4, np.random.default_rng(0))
    traj.segments.reward[:] = np.nan
    before = {n: p.clone() for n, p in actor.trainable_state().items()}
    with pytest.raises(FloatingPointError, match="gradient norm"):
        update(actor, adam(actor), traj, CONFIG, np.random.default_rng(0))
    assert all(torch.equal(p, before[n]) for n, p in actor.trainable_state().items())


# ---------------------------------------------------------------- an engine that is not quite the trainer


def shifted(traj: Trajectories, shift: float, every: int = 1) -> Trajectories:
    """As if the engine had reported log-probs that are `shift` higher on every n-th token."""
    logprobs = traj.logprobs.copy()
    at = np.flatnonzero(traj.mask)[::every]
    logprobs[at] += shift
    return replace(traj, logprobs=logprobs)


@pytest.mark.parametrize("shift", [0.02, -0.3])
def test_an_engine_with_other_weights_stops_the_run(shift):
    actor = make_actor()
    traj = shifted(play(actor, 6, np.random.default_rng(0)), shift)
    before = {n: p.clone() for n, p in actor.model.named_parameters()}
    with pytest.raises(WrongWeights, match="sampled with other weights"):
        update(actor, adam(actor), traj, GUARDED, np.random.default_rng(0))
    assert all(torch.equal(p, before[n]) for n, p in actor.model.named_parameters())


def test_weights_one_update_behind_stop_the_run():
    """The smallest mistake there is: the engine missed one update of the usual size."""
    actor = make_actor()
    optimizer = torch.optim.Adam(actor.trainable_parameters(), lr=2e-4)  # the demo's
    rng = np.random.default_rng(0)
    traj, stale = play(actor, 8, rng), play(actor, 8, rng)
    update(actor, optimizer, traj, replace(GUARDED, epochs=1), rng)
    with pytest.raises(WrongWeights):
        update(actor, optimizer, stale, GUARDED, rng)


def test_rows_of_older_weights_are_not_guarded():
    """With asynchronous rollouts they differ by right; the newest ones must still agree."""
    actor = make_actor()
    good = play(actor, 6, np.random.default_rng(0))
    old = good.segments.episode < 3
    logprobs = good.logprobs.copy()
    for segment in np.flatnonzero(old & good.segments.trainable):
        logprobs[good.segments.start[segment] : good.segments.end[segment]] += 0.5
    segments = replace(good.segments, version=np.where(old, 1, 2))
    traj = replace(good, logprobs=logprobs, segments=segments)
    config = replace(GUARDED, importance_cap=2.0)
    report = update(actor, adam(actor), traj, config, np.random.default_rng(0), version=2)
    assert report["mismatch/max"] == pytest.approx(0.5, abs=1e-4)
    with pytest.raises(WrongWeights):
        update(make_actor(), adam(actor), traj, config, np.random.default_rng(0), version=1)


@pytest.mark.slow
@pytest.mark.parametrize("finetune", ["full", "lora"])
def test_rows_of_older_weights_are_guarded_by_those_weights(finetune):
    """Two updates behind: the right log-probs pass, those of one small update later or earlier do not."""
    actor = make_actor(finetune)
    optimizer = adam(actor, 1e-3)
    rng = np.random.default_rng(0)
    traj, batches, earlier = play(actor, 8, rng), [], {}
    for version in range(3):
        earlier[version] = {name: weight.clone() for name, weight in actor.trainable_state().items()}
        batches.append(play(actor, 8, np.random.default_rng(version)))
        update(actor, optimizer, traj, replace(CONFIG, epochs=1), rng)
    before = {name: weight.clone() for name, weight in actor.trainable_state().items()}
    config, learner = replace(GUARDED, importance_cap=2.0), PlainLearner(actor, optimizer, 1.0)
    for sampled_by, told in ((0, 0), (1, 1), (2, 2), (0, 1), (1, 0), (2, 1)):
        table = batches[sampled_by].segments
        traj = replace(batches[sampled_by], segments=replace(table, version=np.full(len(table.version), told)))
        rows = [row for row in traj.rows() if row.trainable]
        if sampled_by == told:
            _, report = prepare(actor, rows, traj, config, 3, earlier=earlier)
            assert report["mismatch/mean"] > 1e-3 and report["mismatch/guarded"] > 0.2
        else:
            with pytest.raises(WrongWeights):
                prepare(actor, rows, traj, config, 3, earlier=earlier)
        # the trainer's own weights are as they were, to the last bit
        assert all(torch.equal(before[name], weight) for name, weight in actor.trainable_state().items())
    assert improve(learner, traj, config, rng, version=3)["mismatch/guarded"] == 0  # nothing is known of them


def test_mismatch_report_is_its_definition():
    actor = make_actor()
    traj = shifted(play(actor, 6, np.random.default_rng(0)), 0.1, every=2)
    report = update(actor, adam(actor), traj, CONFIG, np.random.default_rng(0))
    d = np.zeros(traj.trainable_tokens)
    d[::2] = -0.1
    assert report["mismatch/mean"] == pytest.approx(np.abs(d).mean(), abs=1e-5)
    assert report["mismatch/max"] == pytest.approx(0.1, abs=1e-5)
    assert report["mismatch/kl"] == pytest.approx((np.exp(d) - 1 - d).mean(), abs=1e-5)
    assert report["ess"] == pytest.approx(np.exp(d).sum() ** 2 / len(d) / np.exp(2 * d).sum(), abs=1e-5)


@pytest.mark.slow
def test_the_correction_starts_at_ratio_one_and_changes_nothing_where_nothing_is_to_correct():
    def run_with(cap: float | None, shift: float) -> tuple[dict, dict]:
        actor = make_actor()
        traj = shifted(play(actor, 6, np.random.default_rng(0)), shift, every=3)
        config = replace(CONFIG, importance_cap=cap)
        report = update(actor, torch.optim.SGD(actor.parameters(), 1e-2), traj, config, np.random.default_rng(0))
        return report, actor.trainable_state()

    _, plain = run_with(None, 0.0)
    report, corrected = run_with(2.0, 0.0)
    for name, weight in plain.items():
        torch.testing.assert_close(weight, corrected[name], atol=1e-5, rtol=1e-4)
    report, moved = run_with(2.0, 0.4)
    assert report["ratio/first"] == pytest.approx(1.0, abs=1e-5)  # against the trainer's own log-probs
    assert run_with(None, 0.4)[0]["ratio/first"] < 1.01  # against the engine's: others below one
    assert any(not torch.allclose(weight, moved[name], atol=1e-6) for name, weight in plain.items())


def test_a_reward_that_is_no_number_is_named():
    good = EpisodeReward({"label": 1.0}, 1.0, ({"label": 1.0},), "shared")
    check_finite([good], ["a"])
    for bad, said in (
        (EpisodeReward({"label": 1.0, "fee": math.nan}, math.nan, ({"fee": math.nan},), "shared"), r"\(fee nan\)"),
        (EpisodeReward({"label": math.inf}, math.inf, ({"label": math.inf},), "shared"), "inf"),
    ):
        with pytest.raises(BadInput, match=f"sample b is .*{said}.*must be a finite number"):
            check_finite([good, bad], ["a", "b"])


def test_equations_as_printed_are_a_key():
    found = [settings_of(load([f"trainer.rl.as_printed=[{named}]"])) for named in ("", "eq16", "eq16,eq17")]
    expected = [("behaviour", "returns"), ("reference", "returns"), ("reference", "reward")]
    assert [(how.ratio, how.critic_target) for how in found] == expected


@pytest.mark.parametrize("estimator", ["k1", "k3", "reward"])
def test_the_estimator_of_kl_is_a_key(estimator: str):
    assert settings_of(load([f"trainer.rl.kl_estimator={estimator}"])).kl_estimator == estimator
