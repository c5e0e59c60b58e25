"""A pool of Ray actors that play episodes for a training process. Needs the extra `ray`.

Every actor has an engine of its own, which takes over the trainer's weights from Ray's object store whenever an order
asks for others than it has. An order is cut into one share an actor; a share comes back whole or, when its actor is
lost, is played again by the actor's successor, with the weights of the first try and so (engine hf) with the same
result. Orders are played one after the other, in the order in which they were given.
"""

# pyright: reportMissingImports=false
# ray is an extra that the linters' environment need not have

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
import torch
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

from ghar.config import Config
from ghar.envs.play import PlayContext, PolicyCorpus, play
from ghar.envs.system import mark_of
from ghar.episode import Act, Episode, as_text
from ghar.errors import BadInput
from ghar.llm import canary
from ghar.llm.engines import AnyEngine, make_engine, sends_adapters
from ghar.llm.hf import HFEngine
from ghar.llm.policy import EnginePolicy
from ghar.llm.weight_update import WeightUpdate, pack
from ghar.privacy import LOG, check_destination
from ghar.trainers.ray.retrieval import RayRetriever, librarians
from ghar.trainers.ray.start import on_ray
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.learner import Learner
from ghar.trainers.rl.serving import plain
from ghar.trainers.rl.workers import RolloutRequest, Workers
from ghar.trainers.runs.models import load_sft, use_cores

RESTARTS = 3  # of the actor of one share, before the run stops
START = 600.0  # seconds until all actors must have started


@dataclass(frozen=True)
class OfferedWeights:
    """Weights on offer. parcels: references to `WeightUpdate`s; expected: what the canary compares the engine with."""

    version: int
    parcels: list[Any]
    expected: canary.TrainerScores


@ray.remote(num_cpus=1)
class RolloutActor:
    """Plays orders with an engine of its own."""

    def __init__(self, stage: PlayContext, checkpoints: Path, threads: int) -> None:
        self.stage, self.checkpoints, self.threads = stage, checkpoints, threads
        self.engine: AnyEngine | None = None
        self.version: int | None = None
        self.watch = canary.Canary()

    def ready(self) -> None:
        """Returns when the process has started."""

    def play(self, order: RolloutRequest, weights: OfferedWeights) -> list[Episode]:
        """One episode per case. WrongWeights when the engine does not answer with `weights`."""
        config = self.stage.config
        if self.engine is None:  # built here and not at the start: what is wrong with it reaches the trainer as it is
            use_cores(self.threads)
            self.engine = make_engine(config, *load_sft(config, self.checkpoints))
        if self.version != weights.version:
            parcels = ray.get(weights.parcels, timeout=on_ray(config).timeout_s)
            self.version = None
            take_over(self.engine, parcels, weights, self.watch)
            self.version = weights.version
        policy = EnginePolicy(self.engine, order.temperature, config.env.decisions)
        episodes = play(self.stage, order.cases, policy, seed=order.seed, title=order.title, attempts=order.attempts)
        return [without_parsers(episode) for episode in episodes]


def without_parsers(episode: Episode) -> Episode:
    """The same episode without the functions that read its replies: they are slow to send and have done their work."""
    trace = [
        replace(record, effect=replace(record.effect, parse=as_text)) if isinstance(record.effect, Act) else record
        for record in episode.trace
    ]
    return replace(episode, trace=tuple(trace))


def take_over(
    engine: AnyEngine, parcels: Sequence[WeightUpdate], weights: OfferedWeights, watch: canary.Canary
) -> None:
    """Make `engine` answer with `weights`, whose parcels have arrived, and ask its canary."""
    for parcel in parcels:
        parcel.check()
    if isinstance(engine, HFEngine):
        engine.model.load_state_dict(dict(parcels[0].weights), strict=False)  # tied weights come under one name only
        engine.sync(engine.model, weights.version)
    else:
        engine.receive(parcels, weights.version)
    watch.judge(weights.expected, engine.probe(weights.expected.ids))


@dataclass
class _Share:
    """A part of an order. actor: its place in the pool; holder: the actor that has it; reply: a reference."""

    order: RolloutRequest
    weights: OfferedWeights
    actor: int
    holder: Any = None
    reply: Any = None

    def hand_to(self, holder: Any) -> None:
        self.holder, self.reply = holder, holder.play.remote(self.order, self.weights)


class ActorPool:
    """`Workers` that are Ray actors: `ray.rollout_actors` of them with `ray.retrieval_actors` to ask."""

    def __init__(self, stage: PlayContext, credentialed: bool, tokenizer: Any) -> None:
        self.config, self.own, self.tokenizer = stage.config, on_ray(stage.config), tokenizer
        check_nodes(self.config, credentialed)
        self.ahead = self.own.max_staleness
        self.retrieval = librarians(self.config, self.own.retrieval_actors)
        # a corpus that asks the model goes where the model is
        corpus = stage.corpus if isinstance(stage.corpus, PolicyCorpus) else RayRetriever(self.retrieval)
        self._stage = ray.put(replace(stage, corpus=corpus))
        self.actors = [self._hire() for _ in range(self.own.rollout_actors)]
        self._weights: OfferedWeights | None = None
        self._await_start()

    def begin(self, order: RolloutRequest, learner: Learner, version: int) -> Callable[[], list[Episode]]:
        """See `Workers`."""
        if self._weights is None or self._weights.version != version:
            self._weights = self._offer(learner, version)
        count, cases = len(self.actors), order.cases
        check_nodes(self.config, any(map(mark_of, cases)))  # the machines may be others by now
        LOG.add("ray", "episodes to play", sum(len(case.text) for case in cases), len(cases))
        shares = []
        for i, actor in enumerate(self.actors):
            own = slice(len(cases) * i // count, len(cases) * (i + 1) // count)
            part = replace(order, cases=cases[own], attempts=order.attempts[own])
            shares.append(_Share(part, self._weights, i))
            shares[-1].hand_to(actor)
        return lambda: [episode for share in shares for episode in self._wait(share)]

    def close(self) -> None:
        """See `Workers`."""
        for actor in (*self.actors, *self.retrieval):
            ray.kill(actor)

    def _hire(self) -> Any:
        checkpoints = Path(self.config.run_dir).resolve() / "checkpoints"
        options = RolloutActor.options(num_gpus=self.config.engine.gpus or 0)  # type: ignore[attr-defined]
        return options.remote(self._stage, checkpoints, torch.get_num_threads())

    def _await_start(self) -> None:
        started = [actor.ready.remote() for actor in (*self.actors, *self.retrieval)]
        try:
            ray.get(started, timeout=START)
        except GetTimeoutError:
            raise BadInput(
                f"{len(started)} rollout and retrieval actors were not all started within {START:g} s: other jobs may "
                "hold the cluster, so wait for them, or lower ray.rollout_actors; or one of them dies again and again, "
                "which its log says."
            ) from None
        except RayTaskError as error:
            raise error.cause from error
        except RayActorError as error:  # no worker of Ray Train is lost, and starting again would not help
            raise RuntimeError(f"a rollout or retrieval actor could not start: {error}") from None

    def _offer(self, learner: Learner, version: int) -> OfferedWeights:
        """The learner's weights, into the object store; of an adapter's base once."""
        adapters = sends_adapters(self.config)
        with learner.whole(), plain(learner.module, merge=not adapters) as model:
            whole, *rest = pack(model, adapters)
            about = model.config.get_text_config()
            longest = min(about.max_position_embeddings, self.config.model.max_length or about.max_position_embeddings)
            expected = canary.expect(model, canary.prompt(self.tokenizer, about.vocab_size, longest))
            if rest and self._weights is not None:
                sent = self._weights.parcels[:1]
            else:
                sent = [ray.put(whole.sealed())]
        return OfferedWeights(version, [*sent, *(ray.put(parcel.sealed()) for parcel in rest)], expected)

    def _wait(self, share: _Share) -> list[Episode]:
        """The episodes of a share; a lost actor is replaced and the share played again."""
        timeout = self.own.timeout_s * (1 + self.ahead)  # it may wait behind batches that were ordered before
        reason = ""
        for lost in range(RESTARTS + 1):
            try:
                return ray.get(share.reply, timeout=timeout)
            except RayTaskError as error:
                raise error.cause from error
            except RayError as error:
                reason = f"no answer in {timeout:g} s" if isinstance(error, GetTimeoutError) else type(error).__name__
            if lost < RESTARTS:
                if share.holder is self.actors[share.actor]:  # no one has replaced it yet
                    print(f"Rollout actor {share.actor} is lost ({reason}): another one plays its episodes again.")
                    ray.kill(share.holder)
                    self.actors[share.actor] = self._hire()
                share.hand_to(self.actors[share.actor])
        raise RuntimeError(
            f"rollout actor {share.actor} was lost {RESTARTS + 1} times over the same episodes ({reason}): look at its "
            "log, or raise ray.timeout_s, then start the run again; it goes on from its newest checkpoint."
        )


def check_nodes(config: Config, credentialed: bool) -> None:
    """BadInput when prompts of credentialed patients would go to another machine that privacy.allow does not name."""
    own = ray.util.get_node_ip_address()
    for host in {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]} - {own}:
        check_destination(credentialed, host, config.privacy.allow)


def pool(stage: PlayContext, credentialed: bool, actor: ActorCritic, tokenizer: Any) -> Workers:
    """`MakeWorkers` with Ray actors instead of this process."""
    return ActorPool(stage, credentialed, tokenizer)
