"""SFT on pruned data (GHAR, Fig. 9c): training samples for which GHAR does not retrieve are query-answer pairs.

With a model as teacher such a sample is the teacher's right answer from the record alone; the rule gives the label.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import polars as pl

from ghar.config import Config
from ghar.envs.comparators.episode import ComparatorVariant
from ghar.envs.real_patients import SCRIPTED
from ghar.envs.records import lacks_grades
from ghar.envs.system import System, Variant
from ghar.episode import Act
from ghar.errors import BadInput
from ghar.llm.policy import FunctionPolicy

COLUMNS = {"sample_id": pl.String, "retrieved": pl.Boolean}
TEACHER = "rule_pruned_sft"  # the rule, with the labels of what is answered from the record alone

Rule = Callable[[Act], str]


class DirectSamples:
    """The training samples for which a file of decisions says that nothing was retrieved.

    The file is read at the first question, which training alone asks: a trained run needs it no more.
    ids: of the training samples. The file must be of these, each once. asked: of those that the teacher tries. The file
    must have them all.
    """

    def __init__(self, path: Path, ids: Callable[[], Sequence[str]], asked: Callable[[], Sequence[str]]) -> None:
        self.path = path
        self.ids = ids
        self.asked = asked

    def __contains__(self, sample_id: object) -> bool:
        return sample_id in self._direct_ids

    @cached_property
    def _direct_ids(self) -> frozenset[str]:
        table, asked = read_decisions(self.path), set(self.asked())
        there = table["sample_id"].to_list()
        strange, lacking = len(there) - len(set(self.ids()) & set(there)), len(asked - set(there))
        if strange or lacking:
            raise BadInput(
                f"system.pruned_by={self.path} is of other data: of its {len(there)} samples {strange} are no training "
                f"samples of this run, and {lacking} of the {len(asked)} that the run's teacher tries are not in it. "
                "Write it anew by launch/record_retrievals.py with this run's data, task, seed and "
                "trainer.warmup.samples."
            )
        direct = frozenset(table.filter(~pl.col("retrieved"))["sample_id"])  # null, a failed episode, decided nothing
        if os.environ.get("RANK", "0") == "0":  # under torchrun one process speaks for all
            number = f"{len(direct & asked)} of {len(asked)} training samples"
            print(f"{number} that the teacher tries are answered from the record alone.", flush=True)
        return direct


def read_decisions(path: Path) -> pl.DataFrame:
    """Read sample_id and retrieved of a file that launch/record_retrievals.py wrote. BadInput for any other file."""
    try:
        table = pl.read_parquet(path, glob=False) if path.is_file() else None
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _no_decisions(path, "cannot be read as Parquet") from error
    if table is None:
        raise _no_decisions(path, "is a folder" if path.is_dir() else "cannot be read: it does not exist")
    for name, kind in COLUMNS.items():
        if name not in table.columns:
            raise _no_decisions(path, f"has no column {name}")
        if table[name].dtype != kind:
            raise _no_decisions(path, f"has a column {name} of {table[name].dtype} in place of {kind}")
    return table.select(*COLUMNS)


def _no_decisions(path: Path, why: str) -> BadInput:
    return BadInput(f"system.pruned_by={path} {why}: write it by launch/record_retrievals.py.")


def check_teacher(config: Config, pruned_by: Path) -> None:
    """BadInput where no teacher is asked, before any table or graph is read."""
    if config.trainer.warmup.teacher == SCRIPTED and lacks_grades(config.data):
        raise BadInput(
            f"system.pruned_by={pruned_by} prunes what a teacher writes, and trainer.warmup.teacher=scripted teaches "
            "these samples by their labels alone: set trainer.warmup.teacher to the folder, hub name or server "
            "(model@http://host:8000/v1) of a model, or leave system.pruned_by out."
        )


def with_pruned_sft(made: System[None], direct: DirectSamples, rule: Callable[[], Rule]) -> System[None]:
    """Let the teacher of `made` answer the samples of `direct` from the record alone, a rule by their labels."""
    return made.adapt(partial(_pruned, direct, rule))


def _pruned(direct: DirectSamples, rule: Callable[[], Rule], made: System[None]) -> System[None]:
    spec = ComparatorVariant(made.variants[made.main].spec.method, direct=direct)
    training = replace(made.training, teacher_variant=Variant(f"{made.main}_pruned_sft", spec=spec))
    if training.teacher is None:  # a model teaches
        return replace(made, training=training)
    fixed = {**made.fixed, TEACHER: lambda: FunctionPolicy(label_of_direct(rule(), direct))}
    return replace(made, fixed=fixed, training=replace(training, teacher=TEACHER))


def label_of_direct(rule: Rule, direct: Container[str]) -> Rule:
    """Wrap `rule`, so that it predicts the label of the samples of `direct`."""

    def reply(act: Act) -> str:
        case = act.facts["case"]
        if act.role == "predict" and case.sample_id in direct:
            return case.task.labels[case.label]
        return rule(act)

    return reply
