"""Rules that know a generated world refuse real patients, and what teaches real patients in their place: labels alone.

The scripted teachers and experts know grades of conditions that are true of generated patients. Of real patients no
grade is known; a grade made from the labels of training patients would put the outcome into the reasoning that a model
is to imitate. So trainer.warmup.teacher=scripted means, for real patients, label-only SFT: each training record and its
label, without invented reasoning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from ghar.config import DataConfig
from ghar.envs.records import Records, lacks_grades
from ghar.envs.system import Reader, SftExamples, System, Training, Variant
from ghar.errors import BadInput
from ghar.llm.policy import Policy

SCRIPTED = "scripted"
ABOUT = {"lessons": "labels alone: no rule knows real patients"}


def is_real(records: Records) -> bool:
    """Whether no rule knows the patients: they are real, or generated without a world of grades."""
    return records.world is None


def refuse(rule: str) -> Policy:
    """Raise BadInput in place of a rule that knows generated patients alone."""
    raise BadInput(_refusal(rule, ()))


def _refusal(rule: str, others: Sequence[str]) -> str:
    """Say why a rule is not played. others: variants that can be."""
    names = f" ({', '.join(others)})" if others else ""
    return (
        f"{rule} knows the grades of the demo world and nothing of these patients: evaluate other variants{names}, and "
        "for training set trainer.warmup.teacher to the folder, hub name or server (model@http://host:8000/v1) of a "
        "model, or leave it at scripted, which teaches such patients by their labels alone."
    )


def _rule(name: str) -> str:
    return "rule-based policy" if name == "rule" else f"rule-based {name}"


def rule_refusals(
    system: str, variants: Mapping[str, Variant], listed: Sequence[str], rules: Collection[str]
) -> dict[str, str]:
    """Map each variant that one of `rules` plays to the sentence that refuses it for real patients.

    listed: names of the system's tables, of which the sentence offers the others.
    """
    others = tuple(name for name in listed if variants[name].who not in rules)
    return {
        name: _refusal(f"The {_rule(variant.who)} of system={system}", others)
        for name, variant in variants.items()
        if variant.who in rules
    }


def early_refusals(
    data: DataConfig, system: str, variants: Mapping[str, Variant], listed: Sequence[str], rule: str
) -> dict[str, str]:
    """Return `System.refused` of `without_rules` before any table, graph or index is read; empty where the patients
    come with grades or are not there."""
    return rule_refusals(system, variants, listed, (rule,)) if lacks_grades(data) else {}


def early_no_numbers(data: DataConfig, system: str) -> str | None:
    """Return why `without_rules` leaves no decisions as numbers, before any table, graph or index is read; None where
    the patients come with grades or are not there."""
    return _no_numbers(system) if lacks_grades(data) else None


def labels_teach(records: Records) -> bool:
    """Whether the warm-up learns labels, or summaries by clinicians, where a rule would teach. Of texts also where a
    model would teach itself: whatever it writes is right, and it would learn to repeat itself."""
    teacher = records.config.trainer.warmup.teacher
    return teacher == SCRIPTED or (records.asks_summaries and teacher == records.config.model.path)


def without_rules(made: System[Any], records: Records, labels: Callable[[Reader], SftExamples]) -> System[Any]:
    """`made` for real patients: its rules refuse, tables do not list them, and a scripted teacher becomes label-only
    SFT on the pairs of `labels`. Unchanged for generated patients."""
    return made.adapt(lambda own: _without_rules(own, records, labels)) if is_real(records) else made


def _without_rules(made: System[Any], records: Records, labels: Callable[[Reader], SftExamples]) -> System[Any]:
    listed = tuple(name for name in made.listed if made.variants[name].who not in made.fixed)
    reasons = {name: _refusal(f"The {_rule(name)} of system={made.name}", listed) for name in made.fixed}
    refused = rule_refusals(made.name, made.variants, made.listed, made.fixed)
    fixed: Mapping[str, Callable[[], Policy]] = {name: partial(_raise, reason) for name, reason in reasons.items()}
    own = made.training
    examples = partial(_labelled, labels) if labels_teach(records) else None
    training = Training(examples=own.examples or examples, stages=own.stages, shaping=own.shaping, texts=own.texts)
    decisions = partial(_raise, _no_numbers(made.name)) if made.truth.decisions is not None else None
    return replace(
        made, fixed=fixed, refused=refused, training=training, report=replace(made.report, listed=listed),
        truth=replace(made.truth, decisions=decisions),
    )  # fmt: skip


def _raise(reason: str) -> NoReturn:
    raise BadInput(reason)


def _labelled(labels: Callable[[Reader], SftExamples], reader: Reader) -> SftExamples:
    examples = labels(reader)
    return replace(examples, about={**examples.about, **ABOUT})


def _no_numbers(name: str) -> str:
    return (
        f"Decisions of system={name} as numbers are made from grades of the demo world, which these patients lack: "
        "train a language model with launch/train.py, or leave data.root out."
    )
