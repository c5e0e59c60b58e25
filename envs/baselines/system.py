"""The discriminative baselines as a system: the samples of any task of visits, and variants that ask no one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ghar.config import Config
from ghar.data.cohort import Sample, Task
from ghar.data.tasks.splits import Splits
from ghar.data.views.visits import visit_lists
from ghar.envs.baselines.evidence import GraphEvidence
from ghar.envs.baselines.features import TrainingData
from ghar.envs.baselines.fitted import EVERY, EVIDENCED, FITS, FittedBaseline
from ghar.envs.baselines.notes import EarlierNotes
from ghar.envs.baselines.settings import Settings
from ghar.envs.baselines.stay_lengths import StayLengths, read_lengths
from ghar.envs.case import Case
from ghar.envs.records import Records
from ghar.envs.system import Reporting, System, Variant, words
from ghar.episode import Episode, EpisodeGenerator, Evidence, Retrieve
from ghar.llm.policy import Policy
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import score_outcome

TITLES = {
    "usual": "Usual label", "last_stay": "Length of the last stay",
    "severities": "Table of severities", "counts_lr": "Regression on counts",
    "boosting": "Boosting on counts", "memory": "Nearest training patients", "gru": "GRU over visits",
    "severities_evidence": "Table of severities, with all graph evidence",
    "boosting_evidence": "Boosting, with all graph evidence",
    "counts_lr_notes": "Regression on counts and earlier notes",
    "boosting_notes": "Boosting on counts and earlier notes",
    "retain": "RETAIN over visits", "transformer": "Transformer over visits",
}  # fmt: skip
MAIN = "counts_lr"


class NoCorpus:
    """Nothing is looked up."""

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        raise RuntimeError("system baselines looks nothing up")


def build(records: Records, settings: Settings) -> System[Sample]:
    """All baselines on the task of `records`; none is fitted before it is played."""
    config, splits, stated = records.config, records.splits, _states_grades(records)
    notes = partial(_notes, records, settings)
    data = TrainingData(
        splits.train, splits.valid, len(records.task.labels), config.seed, settings, notes, partial(_evidence, records),
        partial(_lengths, records),
    )  # fmt: skip
    fitted = FittedBaseline(data, splits)
    made: System[Sample] = System(
        name="baselines",
        task=records.task,
        agents=(),
        roles=(),
        cases=_cases(records),
        episode=partial(_episode, fitted),
        corpus=NoCorpus(),
        reward=partial(_outcome, config.reward.eta),
        variants={name: Variant(name, TITLES[name], name, "") for name in _names(stated)},
        main=MAIN,
        read_by=lambda reader: made,
        prepare=partial(_prepare, fitted),
        origin=records.provenance(),
        report=Reporting(
            listed=(*FITS, *(EVIDENCED if stated else ())), summary=partial(_chosen, fitted), counts=records.counts()
        ),
    )
    return made


def variant_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the variants that `build` may make; a graph of one's own states no grades."""
    return _names(config.kg.path is None)


def role_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """No one acts in the system that `build` makes."""
    return ()


def _names(stated: bool) -> tuple[str, ...]:
    """stated: whether the graph states grades."""
    return tuple(name for name in EVERY if name not in EVIDENCED or stated)


def _notes(records: Records, settings: Settings) -> EarlierNotes | None:
    """Read when a baseline asks for them; `Records.credentialed` knows of the folder by `Settings.patient_text`."""
    notes = records.notes(settings.notes)
    return None if notes is None else EarlierNotes(notes)


def _states_grades(records: Records) -> bool:
    """Whether the graph is a generated world's own, which states what outcomes follow from."""
    return records.world is not None and records.config.kg.path is None


def _evidence(records: Records) -> GraphEvidence | None:
    """Read when a baseline asks for it."""
    return GraphEvidence(records.primekg, records.links.nodes) if _states_grades(records) else None


def _lengths(records: Records) -> StayLengths:
    """Read when a baseline asks for them."""
    return read_lengths(records.cohort.visits)


def _cases(records: Records) -> Splits[Case[Sample]]:
    splits, env = records.splits, records.config.env

    def cases(samples: Sequence[Sample]) -> tuple[Case[Sample], ...]:
        views = visit_lists(
            samples,
            lambda code: records.described.get(code, code),
            style=env.prompts,
            budget=env.history_tokens,
            count=words,
        )
        return tuple(_case(sample, view.text, records.task) for sample, view in zip(samples, views, strict=True))

    return Splits(cases(splits.train), cases(splits.valid), cases(splits.test))


def _case(one: Sample, text: str, task: Task) -> Case[Sample]:
    """A sample that is read as it is. Its text is for reports alone."""
    about = one.sample_id, one.subject_id, one.visit_id
    return Case(*about, text, (), task, one.label, one, credentialed=one.credentialed)


def _episode(fitted: FittedBaseline, case: Case[Sample], variant: Variant) -> EpisodeGenerator:
    yield from ()
    return fitted.predict(case.reads, variant.spec)


def _prepare(fitted: FittedBaseline, variant: Variant, policy: Policy) -> Variant:
    """Fit before the first episode, so that no episode's seconds hold the fit."""
    fitted.model(variant.spec)
    return variant


def _outcome(eta: float, episode: Episode, case: Case[Sample]) -> EpisodeReward:
    """The outcome alone, weighted by `eta`."""
    return score_outcome(episode, case.label, eta)


def _chosen(fitted: FittedBaseline, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """What validation chose, for summary.json."""
    return {"chosen": {name: dict(fitted.model(name).about) for name in rows}}
