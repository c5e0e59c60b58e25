"""EXPRAG as a system: on DischargeQA's questions (questions.py), on any label of visits (labels.py), on medical
examinations (exam.py), or on clinical texts to be summarised (summary.py)."""

from __future__ import annotations

from ghar.config import Config
from ghar.data.tasks.summary_files import SUMMARY
from ghar.envs.exprag.dischargeqa import PREFIX
from ghar.envs.exprag.episode import ROLES
from ghar.envs.exprag.exam import build_exam
from ghar.envs.exprag.label_episode import LABEL_ROLES, LabelEpisodes
from ghar.envs.exprag.labels import build_labels
from ghar.envs.exprag.questions import build_question_system, question_variants
from ghar.envs.exprag.settings import Settings
from ghar.envs.exprag.summary import build_summaries
from ghar.envs.exprag.variants import spec_of, variants
from ghar.envs.records import Records
from ghar.envs.summaries import TRIVIAL
from ghar.envs.system import WORDS, System


def build(records: Records, settings: Settings) -> System:
    """The system that answers task=...

    BadInput for a task that is none of these, and as what builds the system of each kind raises it.
    """
    if records.asks_summaries:
        return build_summaries(records, settings)
    if records.asks_questions:
        return build_exam(records, settings)
    if records.config.task.name.startswith(PREFIX):
        return build_question_system(records, settings)
    return build_labels(records, settings)


def variant_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the variants that `build` makes."""
    if config.task.name.startswith(PREFIX):
        return tuple(question_variants(config, settings, WORDS))
    own = tuple(variants(spec_of(config, settings), LabelEpisodes))
    return (*TRIVIAL[SUMMARY], *own) if config.task.name == SUMMARY else own


def role_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the roles of the system that `build` makes."""
    return ROLES if config.task.name.startswith(PREFIX) else LABEL_ROLES
