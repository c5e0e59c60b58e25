"""Examples before another system's prompts: what a demonstration selector chose, put upstream of any episode."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ghar.envs import system as systems
from ghar.envs.case import R
from ghar.envs.generators import change_acts
from ghar.envs.records import Records
from ghar.envs.system import System, Variant
from ghar.episode import Act, Episode, EpisodeGenerator
from ghar.errors import BadInput
from ghar.llm.policy import Policy

PREDICT = "predict"


def with_examples(episode: EpisodeGenerator, examples: str, roles: Collection[str] = (PREDICT,)) -> EpisodeGenerator:
    """The same episode, with `examples` before the prompt of every act whose role is one of `roles`.

    examples: text, "" for none. Everything else of the episode, its results included, passes through as it is.
    """

    def add_examples(act: Act) -> Act:
        return replace(act, prompt=f"{examples}\n\n{act.prompt}") if act.role in roles and examples else act

    return change_acts(episode, add_examples)


@dataclass(frozen=True)
class _FewShotSpec:
    """`Variant.spec` of a variant with examples: the one it is without them, and their name."""

    plain: Variant
    name: str


@dataclass(frozen=True, eq=False)
class _Upstream:
    """Episodes of a system with examples by sample id before the prompts of `roles`; plain: those without."""

    plain: Callable[[Any, Variant], EpisodeGenerator]
    name: str
    examples: Mapping[str, str]
    roles: tuple[str, ...]

    def episode(self, case: Any, variant: Variant) -> EpisodeGenerator:
        """BadInput for a case that no one chose examples for."""
        if not self.mine(variant):
            return self.plain(case, variant)
        if case.sample_id not in self.examples:
            raise BadInput(
                f"There are no examples by {self.name} for sample {case.sample_id}: choose them for this task and "
                "these splits."
            )
        return with_examples(self.plain(case, variant.spec.plain), self.examples[case.sample_id], self.roles)

    def mine(self, variant: Variant) -> bool:
        return isinstance(variant.spec, _FewShotSpec) and variant.spec.name == self.name


def with_demonstrations(
    system: System[R],
    examples: Mapping[str, str],
    name: str,
    *,
    of: Collection[str] | None = None,
    roles: Collection[str] = (PREDICT,),
) -> System[R]:
    """`system` with further variants, VARIANT_with_NAME, that show each case its examples before prompts of `roles`.

    examples: sample id -> text. name: of the selector that chose them. of: the variants to double, by default the main
    one. It may be applied again, for another selector. BadInput for a name that is taken, or roles it has not.
    """
    missing = sorted(set(roles) - set(system.roles))
    if missing:
        raise BadInput(f"system {system.name} has no role {missing[0]}: choose among {', '.join(system.roles)}.")
    return system.adapt(lambda own: _doubled(own, name, examples, of or (own.main,), tuple(roles)))


def _doubled(
    system: System[Any], name: str, examples: Mapping[str, str], of: Collection[str], roles: tuple[str, ...]
) -> System[Any]:
    """`system` with its variants `of` a second time, with examples."""
    upstream = _Upstream(system.episode, name, examples, roles)

    def row(episode: Episode, case: Any, variant: Variant) -> dict[str, Any]:
        return system.report.row(episode, case, variant.spec.plain if upstream.mine(variant) else variant)

    def prepare(variant: Variant, policy: Policy) -> Variant:
        """What the variant without examples learns, the one with them knows too."""
        if not upstream.mine(variant):
            return system.prepare(variant, policy)
        return replace(variant, spec=_FewShotSpec(system.prepare(variant.spec.plain, policy), name))

    plain = [system.variant(one) for one in of]
    more = {f"{one.name}_with_{name}": one for one in plain}
    if taken := sorted(more.keys() & system.variants.keys()):
        raise BadInput(f"system {system.name} has a variant {taken[0]} already: choose another name than {name}.")
    variants = {
        new: replace(one, name=new, title=f"{one.title or one.name}, examples by {name}", spec=_FewShotSpec(one, name))
        for new, one in more.items()
    }
    return replace(
        system,
        episode=upstream.episode,
        prepare=prepare,
        variants={**system.variants, **variants},
        report=replace(
            system.report,
            listed=(*system.listed, *more),
            row=row,
            comparisons=(*system.report.comparisons, *((new, one.name) for new, one in more.items())),
        ),
    )


def with_selected(system: System[Any], records: Records, names: Collection[str]) -> System[Any]:
    """`system` with the variants among `names` that are written VARIANT_with_ROOM.SELECTOR, such as
    ghar_rl_with_graphwalker.semantic_emb: the room's `examples` chooses them on the same records, without a model.

    BadInput for a room that chooses no examples, and for a selector that needs a language model.
    """
    for name in names:
        plain, joint, source = name.partition("_with_")
        provider, dot, selector = source.partition(".")
        if not (joint and dot) or name in system.variants:
            continue
        own: Any = systems.settings_of(provider)(name=provider)
        choose = getattr(systems.room(provider, "build"), "examples", None)
        if choose is None:
            raise BadInput(f"{name}: system {provider} chooses no examples for others, as graphwalker does.")
        chosen = choose(systems.build(type(records)(replace(records.config, system=own))), selector, ("test",))
        system = with_demonstrations(system, chosen, source, of=(plain,), roles=system.decides)
    return system
