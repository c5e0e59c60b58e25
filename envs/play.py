"""One variant of a system put to many cases at once: the rollout, as a configuration wants it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

from ghar.config import Config, RetrieverConfig, TaskConfig
from ghar.data.tasks.splits import draw
from ghar.envs.rollout import Corpus, EpisodeJob, derive_seed, rollout
from ghar.envs.system import System, Variant, mark_of
from ghar.episode import Episode, EpisodeGenerator
from ghar.llm.policy import ForcedPolicy, Policy
from ghar.progress import progress

LONGEST = 3600.0  # seconds for the look-ups of all episodes in flight: a model may have thousands of pieces to encode


def teacher_cases(system: System[Any], config: Config) -> list[Any]:
    """The training cases that the teacher tries: `trainer.warmup.samples` of them, in their order."""
    return draw(system.cases.train, config.trainer.warmup.samples, derive_seed(config.seed, "warmup"))


def validation_cases(system: System[Any], task: TaskConfig, most: int) -> list[Any]:
    """The validation cases that choose the best weights and that a temperature is fitted on:
    `most` of them (`trainer.rl.eval_samples`), in their order.

    They are drawn, since patients may be in an order that means something: the first ones of eICU are of few hospitals.
    Runs that differ in their seed alone are validated on the same ones.
    """
    seed = derive_seed(task.split_seed, "validation")
    return draw(system.cases.valid, most, seed, system.block)


@dataclass(frozen=True)
class PlayContext:
    """All that playing needs, small enough to send to another process. credentialed: the mark of its system."""

    config: Config
    agents: tuple[str, ...]
    episode: Callable[[Any, Variant], EpisodeGenerator]
    variant: Variant
    corpus: Corpus
    credentialed: bool = True


@runtime_checkable
class PolicyCorpus(Protocol):
    """A corpus that asks a language model itself: the one that answers, with the weights it has at the time."""

    def beside(self, policy: Policy, variant: Variant, sample_ids: Sequence[str]) -> Corpus:
        """The same corpus beside that policy, for cases of these ids. BadInput where the variant asks what this
        policy's engine cannot tell."""
        ...


def stage_of(system: System[Any], variant: Variant, config: Config) -> PlayContext:
    """A system as one of its variants plays it."""
    return PlayContext(config, system.agents, system.episode, variant, system.corpus, system.origin.credentialed)


def play(
    stage: PlayContext,
    cases: Sequence[Any],
    policy: Policy,
    *,
    seed: int,
    title: str,
    attempt: int = 0,
    attempts: Sequence[int] = (),
    corpus: Corpus | None = None,
) -> list[Episode]:
    """One episode a case, in their order; every agent is answered by `policy` (they share parameters, Section IV of
    GHAR's paper). attempt: which one this is of every case, or of each of them (`attempts`). corpus: in place of the
    stage's own."""
    which = attempts or [attempt] * len(cases)
    jobs = [
        EpisodeJob(
            case.sample_id, number, partial(stage.episode, case, stage.variant), stage.credentialed or mark_of(case)
        )
        for case, number in zip(cases, which, strict=True)
    ]
    config, forced = stage.config, stage.variant.forced
    answering = ForcedPolicy(policy, forced) if forced else policy
    asked = corpus or stage.corpus
    if isinstance(asked, PolicyCorpus):
        asked = asked.beside(policy, stage.variant, [case.sample_id for case in cases])
    with progress(len(jobs), title, "episodes") as advance:
        return rollout(
            jobs,
            dict.fromkeys(stage.agents, answering),
            asked,
            seed=seed,
            in_flight=config.env.in_flight,
            on_done=advance,
            timeout=LONGEST,
            # in this process look-ups are short, and a resumed run must repeat the bits of one that was left alone
            steady=config.engine.kind == "hf" and config.retriever.service is None,
            lookups=lookups(config.retriever),
        )


def lookups(retriever: RetrieverConfig) -> int:
    """Calls of the retriever worth having under way at once: one to each process of a service, one in this process."""
    return 1 if retriever.service is None else retriever.workers
