"""What labels are worth without retrieval: the usual answer, and label-only SFT, which reads the newest rows.

Label-only SFT is a control of the warm-up, which imitates a rule: the same base model learns to answer from the rows of
variant `direct`, without a teacher and without searches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ghar.config import Config
from ghar.data.tasks.summary_files import SummarisedText
from ghar.envs.case import Case
from ghar.envs.ehr_rag.episode import EventReading
from ghar.envs.play import play, stage_of
from ghar.envs.system import Example, SftExamples, System
from ghar.episode import Act, Prediction
from ghar.llm.policy import FunctionPolicy

USUAL, LABELS = "usual", "label_sft"  # LABELS: the weights' name too


def usual_answer(train: Sequence[Case[EventReading]], classes: int) -> Prediction:
    """The most frequent label of the training samples, the first of equal ones, with the share of each."""
    counts = np.bincount([case.label for case in train], minlength=classes)
    return Prediction(int(counts.argmax()), probabilities=tuple((counts / max(1, len(train))).tolist()))


def label_examples(system: System[EventReading], config: Config, epochs: int) -> SftExamples:
    """Each training sample's question and the right reply; validation samples choose the weights that are kept."""
    stage, policy = stage_of(system, system.variants[LABELS], config), FunctionPolicy(_right_reply)

    def examples(cases: Sequence[Case[EventReading]]) -> tuple[Example, ...]:
        episodes = play(stage, cases, policy, seed=config.seed, title="Label-only examples")
        acts = [record.effect for e in episodes for record in e.trace if isinstance(record.effect, Act)]
        return tuple(Example(act.prompt, _right_reply(act), act.choices) for act in acts)

    return SftExamples(examples(system.cases.train), examples(system.cases.valid), epochs=epochs)


def _right_reply(act: Act) -> str:
    """The label's number, as the rule writes it, or the summary by a clinician."""
    case = act.facts["case"]
    if isinstance(case.reads, SummarisedText):
        return case.reads.summary
    answer = case.reads.card.answers[case.label]
    return answer if act.facts["shown"].brief else f"Answer: {answer}"
