"""The baselines as a system: on the samples of any task of visits, on examination questions (exam.py), or on clinical
texts to be summarised (summary.py). Its variants ask no language model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ghar.config import Config
from ghar.data.cohort import Sample, Task
from ghar.data.tasks.question_files import MEDQA
from ghar.data.tasks.splits import Splits
from ghar.data.tasks.summary_files import SUMMARY
from ghar.data.views.visits import visit_lists
from ghar.envs.baselines.evidence import GraphEvidence
from ghar.envs.baselines.exam import EXAM_FITS, build_exam
from ghar.envs.baselines.features import TrainingData
from ghar.envs.baselines.fitted import EVERY, EVIDENCED, FITS, FittedBaseline
from ghar.envs.baselines.fitted_system import fitted_system
from ghar.envs.baselines.notes import EarlierNotes
from ghar.envs.baselines.settings import Settings
from ghar.envs.baselines.stay_lengths import StayLengths, read_lengths
from ghar.envs.baselines.summary import SENTENCES, SUMMARY_ROLES, build_summaries
from ghar.envs.case import Case
from ghar.envs.records import Records
from ghar.envs.summaries import TRIVIAL
from ghar.envs.system import System, words
from ghar.errors import BadInput

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


def build(records: Records, settings: Settings) -> System[Any]:
    """All baselines on the task of `records`; none is fitted before it is played. BadInput for system.notes on a task
    of texts."""
    if records.texts_alone and settings.notes is not None:
        raise BadInput(
            f"system.notes={settings.notes} names summaries of stays, and task={records.config.task.name} has texts "
            "alone: leave it out."
        )
    if records.asks_summaries:
        return build_summaries(records)
    return build_exam(records) if records.asks_questions else _build_visits(records, settings)


def _build_visits(records: Records, settings: Settings) -> System[Sample]:
    config, splits, stated = records.config, records.splits, _states_grades(records)
    notes = partial(_notes, records, settings)
    data = TrainingData(
        splits.train, splits.valid, len(records.task.labels), config.seed, settings, notes, partial(_evidence, records),
        partial(_lengths, records),
    )  # fmt: skip
    titles = {name: TITLES[name] for name in _names(stated)}
    listed = (*FITS, *(EVIDENCED if stated else ()))
    return fitted_system(records, _cases(records), FittedBaseline(data, splits), titles, MAIN, listed)


def variant_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the variants that `build` may make; a graph of one's own states no grades."""
    if config.task.name == SUMMARY:
        return (*TRIVIAL[SUMMARY], SENTENCES)
    return tuple(EXAM_FITS) if config.task.name == MEDQA else _names(config.kg.path is None)


def role_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the roles of the system that `build` makes: a rule writes summaries, and no one acts elsewhere."""
    return SUMMARY_ROLES if config.task.name == SUMMARY else ()


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
