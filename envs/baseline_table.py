"""Another system's variants in the same table: fitted baselines beside a trained agent, on the very same samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ghar.config import Config
from ghar.envs import system as systems
from ghar.envs.records import Records
from ghar.envs.system import System, Variant
from ghar.episode import Episode, EpisodeGenerator
from ghar.errors import BadInput
from ghar.llm.policy import Policy
from ghar.rewards.compose import EpisodeReward

Row = Mapping[str, Any]


@dataclass(frozen=True)
class _Guest:
    """`Variant.spec` of a borrowed variant: what it is at home."""

    home: Variant


@dataclass(frozen=True, eq=False)
class _Table:
    """A host's functions where the host's variants are meant, a guest's where its own are. cases: the guest's, by
    sample id."""

    host: System[Any]
    guest: System[Any]
    cases: Mapping[str, Any]

    def episode(self, case: Any, variant: Variant) -> EpisodeGenerator:
        if isinstance(variant.spec, _Guest):
            return self.guest.episode(self.cases[case.sample_id], variant.spec.home)
        return self.host.episode(case, variant)

    def reward(self, episode: Episode, case: Any) -> EpisodeReward:
        """The guest's variants ask no one, so an episode without a turn is one of theirs."""
        return (self.host if episode.turns else self.guest).reward(episode, case)

    def row(self, episode: Episode, case: Any, variant: Variant) -> dict[str, Any]:
        return {} if isinstance(variant.spec, _Guest) else self.host.report.row(episode, case, variant)

    def prepare(self, variant: Variant, policy: Policy) -> Variant:
        if not isinstance(variant.spec, _Guest):
            return self.host.prepare(variant, policy)
        return replace(variant, spec=_Guest(self.guest.prepare(variant.spec.home, policy)))

    def summary(self, rows: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
        own = {name: some for name, some in rows.items() if name in self.guest.variants}
        mine = {name: some for name, some in rows.items() if name not in own}
        return {**(self.guest.report.summary(own) if own else {}), **self.host.report.summary(mine)}


def with_baselines(system: System[Any], records: Records) -> System[Any]:
    """`system` with the variants of the system that its `report.baselines` names, listed after its own; as it is
    where that is None.

    BadInput for a variant that both have, and for one that asks a policy: only what answers by itself can be borrowed.
    """
    name = system.report.baselines
    if name is None:
        return system
    own: Any = systems.settings_of(name)(name=name)
    guest = systems.build(type(records)(replace(records.config, system=own)))
    return system.adapt(partial(_joined, guest))


def borrowed_names(name: str, config: Config) -> tuple[str, ...]:
    """List the variants that the system `name` may lend (`with_baselines`), before any table is read."""
    return systems.variant_names(replace(config, system=systems.settings_of(name)(name=name))) or ()


def _joined(guest: System[Any], host: System[Any]) -> System[Any]:
    both = sorted(host.variants.keys() & guest.variants.keys())
    asking = [variant.name for variant in guest.variants.values() if variant.who]
    if asking or both:
        name, why = (asking or both)[0], "it asks a policy" if asking else "both have it"
        raise BadInput(f"variant {name} of {guest.name} cannot stand beside those of {host.name}: {why}.")
    parts = guest.cases
    cases = {case.sample_id: case for part in (parts.train, parts.valid, parts.test) for case in part}
    table = _Table(host, guest, cases)
    borrowed = {name: replace(variant, spec=_Guest(variant)) for name, variant in guest.variants.items()}
    return replace(
        host,
        episode=table.episode,
        reward=table.reward,
        prepare=table.prepare,
        variants={**host.variants, **borrowed},
        training=replace(host.training, shaping=_shaping(host, table)),
        report=replace(host.report, listed=(*host.listed, *guest.listed), row=table.row, summary=table.summary),
    )


def _shaping(host: System[Any], table: _Table) -> Any:
    """The host's, which rewards no episode without a turn."""
    shaping = host.training.shaping
    if shaping is None:
        return None
    plain: Callable[..., EpisodeReward] = shaping.reward

    def reward(episode: Episode, case: Any, reference: Any, running: Any) -> EpisodeReward:
        return plain(episode, case, reference, running) if episode.turns else table.guest.reward(episode, case)

    return replace(shaping, reward=reward)
