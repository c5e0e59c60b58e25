"""What orders add to a row of episodes/*.jsonl, and their numbers by group, with patients and drugs drawn again."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ghar.data.tasks.order_check import GROUPS, OrderQuestion
from ghar.envs.case import Case
from ghar.envs.ghar.orders.episode import LABELS, named_condition
from ghar.envs.system import Variant
from ghar.episode import Episode
from ghar.metrics.bootstrap import Interval, patient_codes, patient_weights
from ghar.metrics.policy import acted, policy_summary
from ghar.metrics.rows import Row, paired, patients_of
from ghar.metrics.seeds import between_seeds

MAIN = "ghar_rl"
COLUMNS = {"accuracy": "correct", "named": "named", "retrievals": "retrievals", "reward": "reward"}


def order_row(episode: Episode, case: Case[OrderQuestion], variant: Variant) -> dict[str, Any]:
    """named: whether the answer is right and, where it is yes, names a condition against the drug."""
    question = case.reads
    right = episode.prediction.label == question.label
    named = named_condition(episode) or 0
    return {
        "drug": question.drug,
        "group": question.group,
        "conditions": len(question.conditions),
        "against": [question.conditions[i] for i in question.against],
        "named": right and (not question.against or named - 1 in question.against),
    }


def order_numbers(rows: Sequence[Row], draw: dict[str, int]) -> dict[str, Any]:
    """`policy_summary`, the share of right answers that name the condition, searches, and searches by condition.

    Intervals draw patients and drugs. Each patient has as many yes as no, so intervals over patients alone would be too
    narrow: numbers that are no mean over questions have none.
    """
    drawn = _Draw(rows, draw)
    numbers = policy_summary(rows, LABELS, **draw)
    numbers |= {name: [*value[:1], None, None] for name, value in numbers.items() if _has_interval(name, value)}
    usual = numbers["answers"]["usual"]
    means = {
        "accuracy": [row["correct"] for row in rows],
        "over_usual": [row["correct"] - (row["label"] == usual) for row in rows],
        "retrieval_rate": [row["retrieved"] for row in rows],
        "tokens": [row["prompt_tokens"] + row["completion_tokens"] for row in rows],
        **{name: [row[name] for row in rows] for name in ("named", "retrievals", "iterations", "seconds")},
        **({"reward": [row["reward"] for row in rows]} if acted(rows) else {}),
    }
    numbers |= {name: drawn.mean([float(value) for value in values]).as_list() for name, values in means.items()}
    searches, conditions = (sum(row[name] for row in rows) for name in ("retrievals", "conditions"))
    return numbers | {"retrievals_per_condition": [searches / conditions] * 3}


def by_group(rows: Mapping[str, Sequence[Row]], draw: dict[str, int]) -> dict[str, Any]:
    """For summary.json, "orders": variant -> group -> number -> [value, low, high], and "differences" of the variant
    trained last, or the first, less the others; patients and drugs are drawn."""
    by_variant: dict[str, Any] = {}
    for variant, every in rows.items():
        parts = {"all": every} | {group: [row for row in every if row["group"] == group] for group in GROUPS}
        by_variant[variant] = {
            group: {"n": len(own)} | {
                name: _Draw(own, draw).mean([float(row[key]) for row in own]).as_list() for name, key in _columns(own)
            }
            for group, own in parts.items() if own
        }  # fmt: skip
    main = MAIN if MAIN in rows else next(iter(rows))
    apart = {f"{main} - {name}": _difference(rows[main], own, draw) for name, own in rows.items() if name != main}
    return {"orders": by_variant, "differences": apart}


def _difference(a: Sequence[Row], b: Sequence[Row], draw: dict[str, int]) -> dict[str, Any]:
    """`ghar.metrics.policy.compare` with patients and drugs drawn."""
    columns = {"accuracy": "correct", **({"reward": "reward"} if acted(a) and acted(b) else {})}
    differences = {name: order_difference(a, b, key, draw).as_list() for name, key in columns.items()}
    alike = [one["prediction"] is not None and one["prediction"] == two["prediction"] for one, two in paired(a, b)]
    return {**differences, "same": float(np.mean(alike))}


def _has_interval(name: str, value: object) -> bool:
    return name != "confusion" and isinstance(value, list) and len(value) == 3


def order_difference(a: Sequence[Row], b: Sequence[Row], column: str, draw: dict[str, int]) -> Interval:
    """Mean of a column of policy a minus policy b on the same questions; patients and drugs are drawn together."""
    pairs = paired(a, b)
    return _Draw(a, draw).mean([float(one[column]) - float(two[column]) for one, two in pairs])


def mean_over_seeds(seeds: Sequence[Sequence[Row]], column: str, draw: dict[str, int]) -> Interval:
    """Mean over seeds of a column's mean on the same questions; seeds, patients and drugs are drawn."""
    return _over_seeds(seeds[0], [_in_order(seeds[0], rows, column) for rows in seeds], draw)


def difference_over_seeds(
    a: Sequence[Sequence[Row]], b: Sequence[Sequence[Row]], column: str, draw: dict[str, int]
) -> Interval:
    """`order_difference` of seed i of policy a and seed i of policy b, and its mean over seeds, which are drawn too."""
    first, second = ([_in_order(a[0], rows, column) for rows in seeds] for seeds in (a, b))
    return _over_seeds(a[0], np.subtract(first, second).tolist(), draw)


def _in_order(of: Sequence[Row], rows: Sequence[Row], column: str) -> list[float]:
    """A column of `rows`, question by question as `of` has them."""
    return [float(row[column]) for _, row in paired(of, rows)]


def _over_seeds(rows: Sequence[Row], values: Sequence[Sequence[float]], draw: dict[str, int]) -> Interval:
    table = np.array(values)  # [seeds, questions]
    weights = _Draw(rows, draw).weights
    resampled_means = weights @ table.T / weights.sum(axis=1, keepdims=True)  # [resamples, seeds]
    together, each = resampled_means.mean(axis=1), table.mean(axis=1)
    drawn = together + between_seeds(each, resampled_means - together[:, None], draw["seed"])
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Interval(float(each.mean()), float(low), float(high))


def _columns(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(name, key) for name, key in COLUMNS.items() if name != "reward" or acted(rows)]


class _Draw:
    """Resamples of patients and drugs, crossed: a question counts as often as its patient times its drug is drawn."""

    def __init__(self, rows: Sequence[Row], draw: Mapping[str, int]):
        keys: tuple[list[Hashable], ...] = (patients_of(rows), [row["drug"] for row in rows])
        weights = np.ones((draw["resamples"], len(rows)))
        for offset, own in enumerate(keys):
            codes, count = patient_codes(len(rows), own)
            blocks = patient_weights(count, draw["resamples"], draw["seed"] + offset, len(rows))
            weights *= np.concatenate(list(blocks))[:, codes]
        self.weights = weights[weights.sum(axis=1) > 0]

    def mean(self, values: Sequence[float]) -> Interval:
        """The mean of one value a question."""
        array = np.asarray(values)
        low, high = np.percentile(self.weights @ array / self.weights.sum(axis=1), [2.5, 97.5])
        return Interval(float(array.mean()), float(low), float(high))
