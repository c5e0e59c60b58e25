"""What is true in the demo world, and a teacher without errors."""

from __future__ import annotations

from ghar.envs.ghar.teacher import TeacherErrors
from ghar.envs.worlds.severity_grades import POSITIVE_FROM, RELATIONS, exact_knowledge, label_rule, topic_of

__all__ = ("NO_ERROR", "POSITIVE_FROM", "RELATIONS", "exact_knowledge", "label_rule", "topic_of")

NO_ERROR = TeacherErrors(flip=0.0, stray_path=0.0, missed_path=0.0, go_on=0.0, disorder=0.0, guess=0.0)
