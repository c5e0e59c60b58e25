"""A system of fitted baselines: its variants ask no one, and look nothing up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ghar.data.tasks.splits import Splits
from ghar.envs.baselines.fitted import FittedBaseline
from ghar.envs.case import Case
from ghar.envs.records import Records
from ghar.envs.system import Reporting, System, Variant
from ghar.episode import Episode, EpisodeGenerator, Evidence, Retrieve
from ghar.llm.policy import Policy
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import score_outcome

NAME = "baselines"


class NoCorpus:
    """Nothing is looked up."""

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        raise RuntimeError(f"system {NAME} looks nothing up")


def fitted_system(
    records: Records,
    cases: Splits[Case[Any]],
    fitted: FittedBaseline,
    titles: Mapping[str, str],
    main: str,
    listed: Sequence[str] | None = None,
) -> System[Any]:
    """Make a system of `fitted`. cases: each reads the sample that is predicted. titles: of all variants, by name.
    listed: `Reporting.listed`."""
    made: System[Any] = System(
        name=NAME,
        task=records.task,
        agents=(),
        roles=(),
        cases=cases,
        episode=partial(_episode, fitted),
        corpus=NoCorpus(),
        reward=partial(outcome_alone, records.config.reward.eta),
        variants={name: Variant(name, title, name, "") for name, title in titles.items()},
        main=main,
        read_by=lambda reader: made,
        prepare=partial(_prepare, fitted),
        origin=records.provenance(),
        report=Reporting(listed=listed, summary=partial(_chosen, fitted), counts=records.counts()),
    )
    return made


def outcome_alone(eta: float, episode: Episode, case: Case[Any]) -> EpisodeReward:
    """The outcome alone, weighted by `eta`."""
    return score_outcome(episode, case.label, eta)


def _episode(fitted: FittedBaseline, case: Case[Any], variant: Variant) -> EpisodeGenerator:
    yield from ()
    return fitted.predict(case.reads, variant.spec)


def _prepare(fitted: FittedBaseline, variant: Variant, policy: Policy) -> Variant:
    """Fit before the first episode, so that no episode's seconds hold the fit."""
    fitted.model(variant.spec)
    return variant


def _chosen(fitted: FittedBaseline, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """What validation chose, for summary.json."""
    return {"chosen": {name: dict(fitted.model(name).about) for name in rows}}
