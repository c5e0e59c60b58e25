"""Whom to ask, decided by something other than the agent: every source each time, or a router that labels taught.

Both leave the agent which line of a source it asks, what it asks and when it stops. They are what an agent that learned
whom to ask must beat: the first pays for everyone, the second needs no reinforcement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ghar.config import Config
from ghar.envs.case import Case
from ghar.envs.ghar.episode import GharEpisodes, Groups, Partition
from ghar.envs.ghar.source_usage import source_of
from ghar.envs.play import play, stage_of
from ghar.envs.system import System, Variant
from ghar.episode import Episode

ASKING = ("everyone", "router")  # variants that stand beside the trained agent
ROUTERS = {"router": "the teacher's right episodes", "router_truth": "what training visits need"}  # taught it
FEW, CS = 5, (0.1, 1.0, 10.0)  # folds and inverse strengths of the cross-validation
Needed = Mapping[int, tuple[str, ...]]  # visit -> sources
RARE = (1, 3, 10, 30)  # training records that show a topic: fewer than this


def by_source(partitions: Sequence[Partition]) -> dict[str, tuple[int, ...]]:
    """Ids of the partitions of each source, in the menu's order."""
    indices: dict[str, tuple[int, ...]] = {}
    for partition in partitions:
        indices[source_of(partition)] = (*indices.get(source_of(partition), ()), partition.index)
    return indices


@dataclass(frozen=True)
class EverySource:
    """Of every source one line, whatever the case."""

    groups: Groups

    def __call__(self, case: Case) -> Groups:
        return self.groups


@dataclass(frozen=True, eq=False)
class Router:
    """One line among those of the sources that a classifier names for a case; none where it names none.

    The classifier is a logistic regression a source (scikit-learn, C by cross-validation on the training cases) on the
    topics of the newest visit and on how rare they are among training records: a name that no training record showed
    says by its rarity alone that it must be looked up.
    """

    ids: Mapping[str, tuple[int, ...]]
    seen: Mapping[str, int]
    models: Mapping[str, Any]
    _groups: dict[str, Groups] = field(default_factory=dict, repr=False)

    def __call__(self, case: Case) -> Groups:
        if case.sample_id not in self._groups:
            chosen = [name for name in self.ids if self._asks(name, case)]
            both = tuple(index for name in chosen for index in self.ids[name])
            self._groups[case.sample_id] = (both,) if both else ()
        return self._groups[case.sample_id]

    def _asks(self, name: str, case: Case) -> bool:
        model = self.models[name]
        return model if isinstance(model, bool) else bool(model.predict([clues(case, self.seen)])[0])


def clues(case: Case, seen: Mapping[str, int]) -> dict[str, int]:
    """What the router reads: each topic, and of each kind of topic how many are rarer than each of `RARE`."""
    kinds = [(topic.split(" ", 1)[0], seen.get(topic, 0)) for topic in case.topics]
    rare = Counter(f"{kind} in fewer than {most}" for kind, count in kinds for most in RARE if count < most)
    return dict.fromkeys(case.topics, 1) | dict(rare)


def fit_router(cases: Sequence[Case], wanted: Sequence[frozenset[str]], ids: Mapping[str, tuple[int, ...]]) -> Router:
    """A router of training cases and the sources that each should ask. A source that fewer than `FEW` of
    them ask, or do not ask, is never or always asked."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    seen = Counter(topic for case in cases for topic in set(case.topics))
    # of its own record a training case must not know that it was seen
    rows = [clues(case, {topic: seen[topic] - 1 for topic in case.topics}) for case in cases]
    models: dict[str, Any] = {}
    for name in ids:
        labels = np.array([name in own for own in wanted], dtype=bool)
        few = min(int(labels.sum()), int((~labels).sum()))
        if few < FEW:
            models[name] = bool(labels.mean() > 0.5) if len(labels) else False
            continue
        plain = make_pipeline(DictVectorizer(), LogisticRegression(max_iter=1000))
        search = GridSearchCV(plain, {"logisticregression__C": CS}, cv=FEW, scoring="f1")
        models[name] = search.fit(rows, labels).best_estimator_
    return Router(ids, dict(seen), models)


def asked_rightly(
    episodes: Sequence[Episode], cases: Sequence[Case], partitions: Sequence[Partition]
) -> tuple[list[Case], list[frozenset[str]]]:
    """The cases whose episodes ended with the right label, and the sources that each asked."""
    of = [source_of(partition) for partition in partitions]
    right = [(case, e) for case, e in zip(cases, episodes, strict=True) if e.prediction.label == case.label]
    asked = [frozenset(of[p] for step in e.prediction.history if step.retrieved for p in step.paths) for _, e in right]
    return [case for case, _ in right], asked


def asking(episodes: GharEpisodes[Any], every: EverySource, has_truth: bool) -> dict[str, Variant]:
    """With several sources: all of them asked each time, or those that a router names, which is taught before it is
    played. has_truth: whether a generated world knows what visits need."""
    spec = replace(episodes.spec, decision="learned")
    everyone = GharEpisodes(spec, episodes.metapaths, every)
    variants = [
        Variant("everyone", "RL weights, every source asked", everyone),
        Variant("scripted_everyone", "Scripted teacher, every source asked", everyone, "teacher"),
    ]
    for name, by in ROUTERS.items():
        if name == "router" or has_truth:
            own = GharEpisodes(spec, episodes.metapaths)
            variants.append(Variant(name, f"RL weights, a router taught by {by}", own))
            variants.append(Variant(f"scripted_{name}", f"Scripted teacher, a router taught by {by}", own, "teacher"))
    return {variant.name: variant for variant in variants}


def routed(
    made: System[None], config: Config, episodes: GharEpisodes[Any], needed: Needed | None, variant: Variant
) -> Variant:
    """A router's variant once it has been taught; any other as it is."""
    by = variant.name.removeprefix("scripted_")
    if by not in ROUTERS:
        return variant
    cases, ids = made.cases.train, by_source(made.partitions)
    if by == "router_truth" and needed is not None:
        wanted = [frozenset(needed[case.visit_id]) for case in cases]
    else:
        free = Variant("taught", spec=GharEpisodes(replace(episodes.spec, decision="learned"), episodes.metapaths))
        teacher = made.fixed["teacher"]()
        played = play(stage_of(made, free, config), cases, teacher, seed=config.seed, title="Teach the router")
        cases, wanted = asked_rightly(played, cases, made.partitions)
    return replace(variant, spec=GharEpisodes(variant.spec.spec, episodes.metapaths, fit_router(cases, wanted, ids)))
