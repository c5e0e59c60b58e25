"""Demonstration selectors at an equal number of scored prompts, on data=demo_cases: quality against effort.

An exact reader stands in the language model's place, so that selectors are compared and no model's skill. Of a record
it knows how common each item is and copies from the cases shown: p(item | S) = (q + c) / 2, with q the item's share of
the pool's items and c its share of the items of S (a cache model: Kuhn and De Mori 1990); without cases p = q. H(x | S)
is the mean of -log p over the record's items. What the cases shown tell of the outcome it computes exactly
(`ghar.envs.worlds.cases.story.outcome_posterior`); it knows that phenotypes count and nothing of their courses.

Accuracy is that of the reader's likeliest outcome on the test patients of `--seeds` worlds; intervals by resampling
patients, differences paired. Prompts are those the selector had scored, a patient, shared ones included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ghar.envs.graphwalker.selectors.protocol import Ask, Entropy, Labels, Name, Patient, Perplexity
from ghar.envs.graphwalker.selectors.rare_items import items_of
from ghar.envs.worlds.cases.story import GeneratedPatient, outcome_posterior
from ghar.metrics.bootstrap import mean_interval, paired_difference

EFFORTS = (6, 14, 26, 50)
FREE: tuple[Name, ...] = ("zero_shot", "random_choice", "semantic_emb", "rare_items")  # score nothing
SCORING: tuple[Name, ...] = ("graphwalker", "cone", "delta_knn", "influence", "spell")
LEAST = 1e-6  # share of an item that no one of the pool has


class ExactReader:
    """Answers what selectors ask, and predicts. prompts: scored so far."""

    def __init__(self, pool: Sequence[Patient], people: Mapping[int, GeneratedPatient]) -> None:
        self.items = [sorted(items_of(patient.text)) for patient in pool]
        held = Counter(item for own in self.items for item in own)
        self.common = {item: count / held.total() for item, count in held.items()}
        self.cases, self.people, self.prompts = [people[patient.subject_id] for patient in pool], people, 0

    def answer(self, asks: Sequence[Ask]) -> list[Any]:
        """Entropies, log-probabilities of labels, and surprises of examples. TypeError for anything else."""
        return [self._one(ask) for ask in asks]

    def outcome(self, patient: Patient, shots: Sequence[int]) -> np.ndarray:
        """P(outcome | the cases shown)."""
        return outcome_posterior(self.people[patient.subject_id].phenotypes, [self.cases[row] for row in shots])

    def _one(self, ask: Ask) -> Any:
        if isinstance(ask, Entropy):
            self.prompts += len(ask.sets)
            return [self._surprise(sorted(items_of(ask.patient.text)), shots) for shots in ask.sets]
        if isinstance(ask, Labels):
            logprobs = np.log(np.stack([self.outcome(ask.patient, shots) for shots in ask.sets]))
            self.prompts += logprobs.size
            return logprobs
        if isinstance(ask, Perplexity):
            self.prompts += len(ask.shots)
            return [self._surprise(self.items[row], ()) for row in ask.shots]
        raise TypeError(f"an exact reader is not asked for {type(ask).__name__}")

    def _surprise(self, items: Sequence[str], shots: Sequence[int]) -> float:
        counts = Counter(item for row in shots for item in self.items[row])
        common = np.array([self.common.get(item, LEAST) for item in items])
        copied = np.array([counts[item] / max(1, counts.total()) for item in items])
        return float(-np.log((common + copied) / 2 if shots else common).mean())


def effort(seeds: int, overrides: Sequence[str], efforts: Sequence[int] = EFFORTS) -> dict[str, Any]:
    """Accuracy, prompts and nats of every selector at every effort, and what the walk is above it."""
    right: dict[tuple[int, str], list[float]] = {}
    spent: dict[tuple[int, str], list[float]] = {}
    gains: dict[int, list[float]] = {}
    patients: list[int] = []
    ceilings: list[Mapping[str, float]] = []
    for seed in range(seeds):
        material, people, bounds = _world(seed, overrides)
        ceilings.append(bounds)
        for number in efforts:
            names = (*SCORING, *FREE) if number == efforts[0] else SCORING
            for name, (correct, prompts, nats) in _played(material, people, number, names).items():
                right.setdefault((number, name), []).extend(correct)
                spent.setdefault((number, name), []).append(prompts)
                if name == "graphwalker":
                    gains.setdefault(number, []).extend(nats)
        patients += [1_000_000 * seed + i for i in range(len(material.splits.test))]
    draw: dict[str, Any] = {"patients": patients, "seed": 0, "resamples": 1000}
    table = {}
    for (number, name), correct in right.items():
        prompts = float(np.mean(spent[number, name]))
        row: dict[str, Any] = {"accuracy": mean_interval(correct, **draw).as_list(), "prompts": prompts}
        for other in efforts if name in FREE else (number,):
            walk = right[other, "graphwalker"]
            if name != "graphwalker":
                row[f"walk at {other} less it"] = paired_difference(walk, correct, **draw).as_list()
        table[name if name in FREE else f"{name} at {number}"] = row
    return {
        "patients": len(patients),
        "worlds": seeds,
        "ceilings": {name: float(np.mean([bounds[name] for bounds in ceilings])) for name in ceilings[0]},
        "selectors": table,
        "nats of the walk": {str(number): float(np.mean(values)) for number, values in gains.items()},
    }


def _world(seed: int, overrides: Sequence[str]) -> tuple[Any, Mapping[int, GeneratedPatient], Mapping[str, float]]:
    from ghar.envs.graphwalker.settings import Settings
    from ghar.envs.graphwalker.visits import visits_material
    from ghar.envs.records import Records
    from ghar.errors import BadInput
    from ghar.launch.entry import load

    config = load(["+experiment=graphwalker_demo", f"seed={seed}", f"data.world_seed={seed}", *overrides])
    records, own = Records(config), config.system
    truth = records.cases_truth
    if truth is None or not isinstance(own, Settings):
        raise BadInput("This benchmark knows the truth of data=demo_cases alone: leave data and system as they are.")
    material = visits_material(records, own)
    bounds = material.ceilings([sample.subject_id for sample in material.splits.test])
    assert bounds is not None  # there is a truth
    return material, truth.people, bounds


def _played(
    material: Any, people: Mapping[int, GeneratedPatient], number: int, names: Sequence[Name]
) -> dict[str, tuple[list[float], float, list[float]]]:
    """By selector: whether each test patient's outcome was told, prompts a patient, and nats that its picks gained."""
    from ghar.envs.graphwalker.corpus import choose, prepare
    from ghar.envs.graphwalker.pool import cut_to
    from ghar.envs.system import WORDS

    walkers = cut_to(replace(material, settings=replace(material.settings, effort=number)), WORDS)
    test = walkers.by_split["test"]
    queries = [walkers.query(patient.sample_id) for patient in test]
    results = {}
    for name in names:
        pool = walkers.pool(name)
        reader = ExactReader(pool.patients, people)
        chosen = choose(pool, prepare(pool, reader), queries, reader, 256)
        guesses = [int(reader.outcome(patient, one.shots).argmax()) for patient, one in zip(test, chosen, strict=True)]
        correct = [float(answer == patient.label) for answer, patient in zip(guesses, test, strict=True)]
        results[name] = correct, reader.prompts / len(test), [sum(one.gains) for one in chosen]
    return results
