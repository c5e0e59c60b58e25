"""EXPRAG as a system: on DischargeQA's questions (questions.py), or on any label of visits (labels.py)."""

from __future__ import annotations

from ghar.envs.exprag.labels import build_labels
from ghar.envs.exprag.questions import PREFIX, build_question_system
from ghar.envs.exprag.settings import Settings
from ghar.envs.records import Records
from ghar.envs.system import System


def build(records: Records, settings: Settings) -> System:
    """The system that answers task=...

    BadInput for a task that is neither, and as `build_question_system` and `build_labels` raise it.
    """
    if records.config.task.name.startswith(PREFIX):
        return build_question_system(records, settings)
    return build_labels(records, settings)
