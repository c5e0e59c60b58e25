"""A variant's numbers: those of any classifier, and beside them the ones of GraphWalker's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ghar.data.cohort import Task
from ghar.data.tasks.question_files import ChoiceQuestion
from ghar.data.tasks.samples import TextSample
from ghar.envs.graphwalker.medical_questions import answer_scores
from ghar.metrics.clinical import length_of_stay, risk
from ghar.metrics.policy import policy_summary
from ghar.metrics.rows import patients_of

THRESHOLD = 0.5  # of F1: an evaluation plays test patients alone, so no one could choose another on validation


@dataclass(frozen=True, eq=False)
class ClinicalNumbers:
    """exams: question of each sample id, for medical questions alone."""

    task: Task
    exams: Mapping[str, TextSample[ChoiceQuestion]] | None = None

    def numbers(self, rows: Sequence[Mapping[str, Any]], draw: Mapping[str, int]) -> dict[str, Any]:
        """`policy_summary`, and under "clinical" the paper's metrics as {name: [value, mean, deviation]}."""
        summary = policy_summary(rows, self.task.labels, **draw)
        clinical = self.clinical(rows, draw)
        return {**summary, "clinical": clinical, **({"threshold": THRESHOLD} if "f1" in clinical else {})}

    def clinical(self, rows: Sequence[Mapping[str, Any]], draw: Mapping[str, int]) -> dict[str, list[float]]:
        """AUROC, AUPRC and F1 of two labels, ma-ROC and mi-ROC of several, likeness of answers to questions.

        Those that the labels leave undefined are left out, and all that rank where no one gave probabilities.
        """
        shares = [row["label_probabilities"] for row in rows]
        resampling: dict[str, Any] = {**draw, "patients": patients_of(rows)}
        if self.exams is not None:
            questions = [self.exams[row["sample_id"]].text for row in rows]
            return answer_scores(questions, [self._one_hot(row["prediction"]) for row in rows], resampling)
        if all(row is None for row in shares):
            return {}
        truth = [self.task.labels.index(row["label"]) for row in rows]
        if len(self.task.labels) == 2:
            spread = risk(truth, [None if row is None else row[1] for row in shares], THRESHOLD, **resampling)
        else:
            spread = length_of_stay(truth, shares, len(self.task.labels), **resampling)
        return {name: value.as_list() for name, value in spread.items()}

    def _one_hot(self, answer: str | None) -> tuple[float, ...] | None:
        return None if answer is None else tuple(float(label == answer) for label in self.task.labels)
