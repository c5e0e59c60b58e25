"""What demonstration selection costs: scored prompts, prompt tokens, prompts per second.

counts    On random patient graphs with diminishing gains (k_g=8, 9 anchors, K=3), the prompts that each of three rules
          scores, counted: ours (fresh gains are not measured again, no expansion after the last pick), the released
          code's (the best candidate is measured again whenever it is popped, expansion after the last pick too), and
          full greedy. Then with noise on the gains: how often ours and full greedy differ.
tokens    On generated patients with the demo's small model: prompt tokens the model reads with shared beginnings read
          once, against each prompt from scratch, patient by patient and many patients together; the largest
          difference between the gains.
speed     The same walks: prompts per second one by one (`HFEngine.score` with a batch of one: each prompt from scratch,
          logits of the scored piece alone, no padding), in batches from scratch, and in batches with shared beginnings
          (what an evaluation does). The same engine, model and threads; scoring and the walks' own time are counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ghar.config import Config
from ghar.envs.graphwalker.selection_game import WIDTH, anchors_near, coverage, play, random_graph
from ghar.envs.graphwalker.selectors.protocol import Selection, Shots
from ghar.envs.graphwalker.selectors.search import greedy, lazy, without_stamps
from ghar.errors import BadInput

PATIENTS, K_G, K = 1000, 8, 3  # of a random instance
NOISE = 0.5  # deviation of the noise, in deviations of the first gains
TEXT = ("system=graphwalker", "task=series_mortality", "system.encoder=text")


def selection(seeds: int, overrides: Sequence[str], *, share: float) -> dict[str, Any]:
    """Both measurements. seeds: repetitions of the timing; share: of 300 random graphs, 100 patients."""
    result = {"counts": counts(round(300 * share)), **walks(overrides, round(100 * share), seeds)}
    return result


def counts(instances: int) -> dict[str, Any]:
    """Means over `instances` random graphs; the zero-shot prompt, which every rule scores once, is not counted."""
    rules = {"ours": lazy, "released": without_stamps, "full greedy": greedy}
    scored: dict[str, list[int]] = {name: [] for name in rules}
    same, noisy_same = 0, 0
    for seed in range(instances):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, PATIENTS, K_G)
        anchors = anchors_near(rng.normal(size=WIDTH), graph)
        entropy = coverage(rng, graph)
        near = {row: graph.near[row].tolist() for row in range(PATIENTS)}
        exact_walks = {name: play(rule(anchors, near.__getitem__, K), entropy) for name, rule in rules.items()}
        for name, walk in exact_walks.items():
            scored[name].append(walk.scored - 1)
        same += len({walk.shots for walk in exact_walks.values()}) == 1
        first = [entropy(()) - entropy((row,)) for row in range(PATIENTS)]
        noisy = _with_noise(entropy, seed, NOISE * float(np.std(first)))
        walks = [play(rule(anchors, near.__getitem__, K), noisy) for rule in (lazy, greedy)]
        noisy_same += walks[0].shots == walks[1].shots
    return {
        "instances": instances,
        **{f"scored prompts, {name}": float(np.mean(values)) for name, values in scored.items()},
        "identical picks under diminishing gains": same,
        "identical picks with noise": noisy_same,
    }


def _with_noise(entropy: Callable[[Shots], float], seed: int, deviation: float) -> Callable[[Shots], float]:
    """The same with noise that belongs to the set, so that gains no longer diminish."""

    def noisy(shots: Shots) -> float:
        return entropy(shots) + deviation * float(np.random.default_rng([seed, *shots]).normal())

    return noisy


def walks(overrides: Sequence[str], patients: int, repeats: int) -> dict[str, Any]:
    """GraphWalker's walks for `patients` generated patients with the configured model."""
    from ghar.envs.graphwalker.corpus import choose, prepare
    from ghar.envs.graphwalker.pool import cut_to
    from ghar.envs.graphwalker.prefix import PlainScorer, PrefixScorer
    from ghar.envs.graphwalker.selectors.scorer import KEEP, EngineScorer
    from ghar.launch.entry import load
    from ghar.llm.hf import HFEngine
    from ghar.trainers.runs.models import use_cores

    config = load([*TEXT, *overrides])
    use_cores(config.threads)
    material = _material(config)
    with _reader(config, material) as reader:
        engine, walkers = reader.engine, cut_to(material, reader)
        if not isinstance(engine, HFEngine):
            raise BadInput("This benchmark measures engine hf: choose engine=hf.")
        prompt, pool = walkers.prompt, walkers.pool("graphwalker")
        queries = [walkers.query(patient.sample_id) for patient in walkers.by_split["test"][:patients]]

        def run(in_flight: int, max_batch: int, shared: bool) -> tuple[Any, Any, float, float]:
            engine.max_batch = max_batch
            scorer = EngineScorer(engine, prompt, pool.patients)
            scorer.scores = PrefixScorer(engine, KEEP) if shared else PlainScorer(engine)
            began = time.perf_counter(), time.process_time()
            chosen = choose(pool, prepare(pool, scorer), queries, scorer, in_flight)
            return chosen, scorer.scores.tally, time.perf_counter() - began[0], time.process_time() - began[1]

        batch = engine.max_batch
        single = [choose_alone(pool, query, EngineScorer(engine, prompt, pool.patients)) for query in queries]
        ways: dict[str, Callable[[], tuple[Any, Any, float, float]]] = {
            "one by one": partial(run, 1, 1, False),
            "batches, from scratch": partial(run, len(queries), batch, False),
            "batches, shared beginnings": partial(run, len(queries), batch, True),
        }
        trials = {name: [way() for _ in range(repeats)] for name, way in ways.items()}
    plain, tally = trials["batches, from scratch"][0][0], trials["batches, shared beginnings"][0][1]
    shared = trials["batches, shared beginnings"][0][0]
    by_clock = {name: float(np.median([t.prompts / s for _, t, s, _ in runs])) for name, runs in trials.items()}
    by_processor = {name: float(np.median([t.prompts / s for _, t, _, s in runs])) for name, runs in trials.items()}
    alone_tokens, alone_scratch = (sum(getattr(t, key) for t in single) for key in ("tokens", "scratch"))
    return {
        "patients": len(queries),
        "threads": config.threads,
        "pool": len(pool.patients),
        "tokens of the head": len(prompt.head),
        "tokens of a record, median": float(np.median([len(patient.asked) for patient in pool.patients])),
        "scored prompts a patient": tally.prompts / len(queries),
        "prompt tokens a patient": {
            "from scratch": tally.scratch / len(queries),
            "shared, patients together": tally.tokens / len(queries),
            "shared, each patient alone": alone_tokens / len(queries),
        },
        "share of tokens, patients together": tally.tokens / tally.scratch,
        "share of tokens, each patient alone": alone_tokens / alone_scratch,
        "largest difference of gains": _largest_difference(plain, shared),
        "patients with other picks": sum(a.shots != b.shots for a, b in zip(plain, shared, strict=True)),
        "prompts per second": by_clock,
        "prompts per processor second": by_processor,
        "batched against one by one": _ratios(by_clock),
        "batched against one by one, processor time": _ratios(by_processor),
    }


def _material(config: Config) -> Any:
    """GraphWalker's own cases."""
    from ghar.envs.graphwalker.series import series_material
    from ghar.envs.graphwalker.settings import Settings
    from ghar.envs.records import Records

    assert isinstance(config.system, Settings)
    return series_material(Records(config), config.system)


@contextmanager
def _reader(config: Config, material: Any) -> Iterator[Any]:
    """The configured model, untrained in a demo, as a reader of prompts."""
    from ghar.envs.system import Reader
    from ghar.llm.engines import served
    from ghar.llm.models import load_backbone

    network, tokenizer = load_backbone(config, material.texts)
    with served(config, network, tokenizer) as engine:
        length = network.config.max_position_embeddings
        yield Reader(lambda text: len(tokenizer.encode(text, add_special_tokens=False)), length, engine, tokenizer)


def _ratios(speed: dict[str, float]) -> dict[str, float]:
    return {name: value / speed["one by one"] for name, value in speed.items() if name != "one by one"}


def choose_alone(pool: Any, query: Any, scorer: Any) -> Any:
    """The tally of one patient's walk, with nothing kept from others."""
    from ghar.envs.graphwalker.corpus import choose, prepare

    choose(pool, prepare(pool, scorer), [query], scorer, 1)
    return replace(scorer.scores.tally)


def _largest_difference(one: Sequence[Selection], two: Sequence[Selection]) -> float:
    """Over gains of picks that both made after the same picks."""
    worst = 0.0
    for a, b in zip(one, two, strict=True):
        for i, (x, y) in enumerate(zip(a.gains, b.gains, strict=False)):
            if a.shots[: i + 1] == b.shots[: i + 1]:
                worst = max(worst, abs(x - y))
    return worst
