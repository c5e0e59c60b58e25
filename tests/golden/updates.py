"""Numbers of the first update of every system, from an untrained model and before any step of an optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import Example, build
from ghar.episode import Completion
from ghar.llm.hf import HFEngine
from ghar.llm.models import untrained
from ghar.llm.tokens import encode_choices
from ghar.trainers.base import reader_of
from ghar.trainers.evaluation.weights import make_actor
from ghar.trainers.rl.learner import PlainLearner
from ghar.trainers.rl.mappo import improve
from ghar.trainers.rl.settings import MappoConfig, settings_of
from ghar.trainers.rl.targets import prepare, sampled
from ghar.trainers.rl.trajectory import Trajectories
from ghar.trainers.rl.trajectory import build as trajectories_of
from ghar.trainers.rl.workers import RolloutRequest, local
from ghar.trainers.rows import reward_of, rows_of, running_of, summarise
from ghar.trainers.runs.models import use_cores
from ghar.trainers.sft.pairs import tokenise_examples
from tests.golden.canonical import episode_text
from tests.golden.worlds import SEED, Scene

SAMPLES = 4
SPREAD = 0.05  # of the noise on the weights, so that policy, reference and the policy that played are three
SHOWN = 24  # advantages that are kept one by one
UNDEFINED = 1e6  # the critic's explained variance, where all returns are the same number
CLOCK = ("tokens_per_second", "seconds")
LOSSES: dict[str, dict[str, Any]] = {
    "rloo": {"estimator": "rloo"},
    "gae turn": {"estimator": "gae", "credit": "turn", "lam": 0.95},
    "gae token": {"estimator": "gae", "credit": "token", "gamma": 0.99, "lam": 0.9, "per_agent": True, "entropy": 0.01},
    "gae bilevel": {"estimator": "gae", "credit": "bilevel", "gamma": 0.99, "lam": 0.9, "kl_estimator": "reward"},
    "as printed": {"estimator": "gae", "ratio": "reference", "critic_target": "reward", "aggregate": "turn"},
}


def found(system: str, cache: Path) -> Iterator[tuple[str, Any]]:
    """The sampled episodes as text, their metrics, and advantages, losses and gradient norm of the first update."""
    use_cores(1)
    config = Scene(system, "demo", "read").config(cache)
    built = build(Records(config))
    model, tokenizer = untrained(config, list(built.training.texts()), (), SEED)
    read = built.read_by(reader_of(tokenizer, model, HFEngine(model, tokenizer, 16)))
    actor = make_actor(config, model, read.agents)
    still = torch.optim.SGD([p for p in actor.parameters() if p.requires_grad], lr=0.0)
    learner = PlainLearner(actor, still, config.trainer.rl.max_grad_norm)
    variant = read.variants[read.main]
    cases = list(read.cases.train[:SAMPLES])
    workers = local(stage_of(read, variant, config), read.origin.credentialed, actor, tokenizer)
    episodes = workers.begin(RolloutRequest(cases, SEED, config.engine.temperature, system), learner, 0)()
    workers.close()
    ruled = next(v for v in read.variants.values() if v.who in read.fixed)
    rule = Tokenised(read.fixed[ruled.who](), tokenizer)
    # what a rule says to the same cases, or else few rewards would differ: an untrained model knows no answer
    episodes += play(stage_of(read, ruled, config), cases, rule, seed=SEED, title=system, attempt=1)
    cases = [*cases, *cases]
    running = running_of(read)
    rewards = [reward_of(read, episode, case, running) for episode, case in zip(episodes, cases, strict=True)]
    told = [episode_text(read, variant, *one, row=False) for one in zip(cases, episodes, rewards, strict=True)]
    yield f"sampled/{system}", "".join(told)
    metrics = summarise(read, rows_of(read, variant, cases, episodes, rewards, "train"), SEED, 20)
    yield f"update/{system}/metrics", rounded(metrics)
    trajectories = trajectories_of(episodes, rewards, read.agents, read.roles)
    shake(actor)
    for name, changes in LOSSES.items():
        settings = replace(settings_of(config), epochs=1, minibatches=1, mismatch_limit=None, **changes)
        yield f"update/{system}/{name}", numbers(learner, trajectories, settings)


@dataclass(frozen=True)
class Tokenised:
    """A rule whose replies are trained on: token ids, and the log-probabilities of a policy that guesses."""

    rule: Any
    tokenizer: Any

    def answer(self, acts: Sequence[Any], seeds: Sequence[int]) -> list[Completion]:
        replies = self.rule.answer(acts, seeds)
        return [self._one(act, reply) for act, reply in zip(acts, replies, strict=True)]

    def _one(self, act: Any, reply: Completion) -> Completion:
        (pair,) = tokenise_examples(self.tokenizer, [Example(act.prompt, reply.text, act.choices, None)])
        ids, choices = tuple(pair.completion_ids), ()
        guess = -math.log(len(self.tokenizer))
        if act.choices:
            choices = tuple(encode_choices(self.tokenizer, act.choices))
            guess = -math.log(len(choices)) / len(ids)
        return Completion(reply.text, tuple(pair.prompt_ids), ids, (guess,) * len(ids), choices)


def shake(actor: Any) -> None:
    """Move the trainable weights by seeded noise."""
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for weight in (p for p in actor.parameters() if p.requires_grad):
            weight += SPREAD * torch.randn(weight.shape, generator=generator)


def numbers(learner: Any, trajectories: Trajectories, settings: MappoConfig) -> dict[str, Any]:
    """Advantages and returns over the trainable tokens, and the report of one update whose step changes nothing."""
    rows = [row for row in trajectories.rows() if row.trainable]
    targets, _ = prepare(learner.module, rows, trajectories, settings, 0)
    report = improve(learner, trajectories, settings, np.random.default_rng(SEED), version=0)
    return {
        "tokens": len(sampled(rows)),
        "advantages": moments(targets.advantages.tolist()),
        "returns": moments(targets.returns.tolist()),
        "report": rounded({key: value for key, value in report.items() if key not in CLOCK}),
    }


def moments(values: Sequence[float]) -> dict[str, Any]:
    """Mean, mean square, a mean weighted by place (which tells an exchange of tokens), and values at even distances."""
    count = len(values)
    at = [round(i * (count - 1) / (SHOWN - 1)) for i in range(SHOWN)]
    return rounded(
        {
            "mean": sum(values) / count,
            "mean square": sum(v * v for v in values) / count,
            "by place": sum(v * math.cos(i) for i, v in enumerate(values)) / count,
            "some": [values[i] for i in at],
        }
    )


def rounded(value: Any) -> Any:
    """Floats with six significant digits."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items() if key not in CLOCK}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if abs(value) < UNDEFINED else None
    return value
