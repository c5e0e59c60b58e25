"""How costs grow with the work: processor seconds at three sizes, and the exponent of a power fitted to them.

An exponent of 1 is a cost in proportion to the work. What begins with a fixed cost has less at these sizes, least in
the step from a tenth to a third; what compares all pairs has 2. Sizes are a tenth, a third and the whole of what
`COSTS` names; `--share` makes all smaller. Each size is measured `--seeds` times on one core, and the least counts:
other work on the machine only adds. The first, smallest size runs once before, so that what is imported or compiled
late is not counted.

Processes are not among them (`processes`), nor is a model's reply, whose cost its length and the engine decide
(`real_model`, `rollout`).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (0.1, 0.32, 1.0)
LIMIT = 1.1  # exponents above are looked into (docs/results.md says what was found)
TURNS, RECORD, PROMPT, REPLY, VOCAB = 8, 256, 320, 16, 2048  # of the updates: turns an episode, tokens, entries
NODES = 129_375  # of PrimeKG
ROWS = 60  # prescriptions, and lab results, of an admission

Work = Callable[[], object]


@dataclass(frozen=True)
class Cost:
    """What is measured: by what it grows, the largest size, and what is done at a size, made ready in a folder.
    amount: of work at a size, where the size is not it."""

    by: str
    size: int
    ready: Callable[[Path, int], Work]
    amount: Callable[[int], int] = int


def growth(folder: Path, *, runs: int, share: float) -> dict[str, Any]:
    """Of each cost: processor seconds by size, and the exponent."""
    result: dict[str, Any] = {}
    for name, cost in COSTS.items():
        sizes = [max(2, round(cost.size * share * part)) for part in SIZES]
        seconds, amounts = _measured(folder / "growth", cost, sizes, runs), [cost.amount(size) for size in sizes]
        result[name] = {
            "by": cost.by,
            "processor seconds": dict(zip(map(str, amounts), seconds, strict=True)),
            "exponent": exponent(amounts, seconds),
            "exponent of the last step": exponent(amounts[1:], seconds[1:]),
        }
        print(f"{name}, by {cost.by}: {result[name]}", flush=True)
    return result | {"runs": runs, "load average": os.getloadavg()[0]}


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Slope of log seconds over log size, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def _measured(folder: Path, cost: Cost, sizes: list[int], runs: int) -> list[float]:
    numbers = count()
    seconds = []
    for size in (sizes[0], *sizes):
        times = []
        for _ in range(runs):
            own = folder / str(next(numbers))
            own.mkdir(parents=True)
            work = cost.ready(own, size)
            began = time.process_time()
            work()
            times.append(time.process_time() - began)
            shutil.rmtree(own)
        seconds.append(min(times))
    return seconds[1:]


# ---------------------------------------------------------------- what is measured


def _tables(folder: Path, patients: int) -> Path:
    from benchmarks.tables import write_tables

    write_tables(folder / "tables", patients=patients, prescriptions=ROWS, labs=ROWS)
    return folder / "tables"


def _reading(folder: Path, patients: int) -> Work:
    from ghar.data.readers.mimic4 import read_mimic4

    return partial(read_mimic4, _tables(folder, patients), folder / "cache", charts=False)


def _samples(folder: Path, patients: int) -> Work:
    from ghar.data.readers.mimic4 import read_mimic4
    from ghar.data.tasks.stays import make_samples

    return partial(make_samples, read_mimic4(_tables(folder, patients), folder / "cache", charts=False), "los")


def _labels(folder: Path, patients: int) -> Work:
    from ghar.data.readers.mimic4 import read_mimic4
    from ghar.data.tasks.ehrshot import ehrshot_labels

    return partial(ehrshot_labels, read_mimic4(_tables(folder, patients), folder / "cache", charts=False), "lab_anemia")


def _text(folder: Path, patients: int) -> Work:
    """Texts of the samples of a task."""
    from ghar.data.readers.mimic4 import read_mimic4
    from ghar.data.tasks.stays import make_samples
    from ghar.data.views.visits import visit_lists

    cohort = read_mimic4(_tables(folder, patients), folder / "cache", charts=False)
    samples, name_of = make_samples(cohort, "los")[1], cohort.names().__getitem__
    return lambda: list(visit_lists(samples, name_of, style="full", budget=4096, count=lambda text: len(text) // 4))


def _export(folder: Path, patients: int) -> Work:
    from ghar.data.readers.meds_export import write_meds
    from ghar.data.readers.mimic4 import read_mimic4

    cohort = read_mimic4(_tables(folder, patients), folder / "cache", charts=False)
    return partial(write_meds, cohort, folder / "meds")


def _store(folder: Path, patients: int) -> Work:
    from benchmarks.events import cohort_of, write_events
    from ghar.retrieval.encoders import HashingEncoder
    from ghar.retrieval.event_build import build_event_store
    from ghar.retrieval.event_store import StoreLayout

    write_events(folder / "events", patients, 0)
    cohort, encoder = cohort_of(folder / "events", patients), HashingEncoder()
    return partial(build_event_store, cohort, folder / "stores", encoder, StoreLayout(100, 5, True, "time"))


def _edges(nodes: int) -> int:
    from benchmarks.graph import primekg_sized

    return primekg_sized(0, nodes / NODES).num_edges


def _index(folder: Path, nodes: int) -> Work:
    from benchmarks.graph import primekg_sized
    from ghar.retrieval.build import build_retriever

    return partial(build_retriever, primekg_sized(0, nodes / NODES), "hashing", cache=folder)


def _queries(folder: Path, nodes: int) -> Work:
    """A hundred queries to the partition with the most edges, exactly."""
    from benchmarks.graph import primekg_sized
    from benchmarks.retrieval import requests_of
    from ghar.retrieval.build import build_retriever

    graph = primekg_sized(0, nodes / NODES)
    retriever = build_retriever(graph, "hashing", cache=folder)
    largest = int(np.argmax(np.diff(graph.path_start)))
    requests = requests_of(graph, np.random.default_rng(0), np.full(100, largest))
    retriever.retrieve(requests[:1])
    return lambda: [retriever.retrieve([request]) for request in requests]


def _patient_graph(folder: Path, patients: int) -> Work:
    from benchmarks.patient_graph import clustered
    from ghar.envs.graphwalker.selectors.graph import build_graph

    vectors, _ = clustered(patients, 0)
    return partial(build_graph, vectors, [str(i) for i in range(patients)])


def _ranking(folder: Path, admissions: int) -> Work:
    """EXPRAG's 15 nearest of so many admissions, for 20 stays."""
    from benchmarks.reports import code_lists, draw_codes
    from ghar.retrieval.reports import KINDS, ReportQuery, build_reports, rank, weights

    rng = np.random.default_rng(0)
    entries = {kind: draw_codes(rng, kind, admissions) for kind in KINDS}
    subject = np.sort(rng.integers(0, admissions, admissions))
    index = build_reports(np.arange(admissions), subject, np.zeros(admissions, int), entries)
    codes, weight = code_lists(index), weights("uniform", "diagnoses")
    queries = [ReportQuery(int(index.subject_id[row]), None, codes(row)) for row in range(20)]
    return lambda: [rank(index, query, weight, 15) for query in queries]


def _episodes(folder: Path, episodes: int) -> Work:
    """GHAR's episodes by the scripted policy, on generated patients."""
    from ghar.envs import system as systems
    from ghar.envs.records import Records
    from ghar.envs.rollout import EpisodeJob, rollout
    from ghar.launch.entry import load

    system = systems.build(Records(load(["+experiment=mimic4_los", f"run_dir={folder / 'run'}"])))
    policy = system.fixed["teacher"]()
    cases, main = system.cases.train, system.variants[system.main]
    jobs = [EpisodeJob(case.sample_id, k, partial(system.episode, case, main)) for k, case in
            enumerate(islice(cycle(cases), episodes))]  # fmt: skip
    policies = dict.fromkeys(system.agents, policy)
    return lambda: rollout(jobs, policies, system.corpus, seed=0, in_flight=64)


def _updates_by_episodes(folder: Path, episodes: int) -> Work:
    return _update(episodes, TURNS)


def _updates_by_turns(folder: Path, turns: int) -> Work:
    return _update(4, turns)


def _update(episodes: int, turns: int) -> Work:
    """An epoch over so many episodes, each over a record of its own; every turn's prompt begins with it."""
    import torch
    from transformers import Qwen2ForCausalLM

    from benchmarks.ppo import MICRO_TOKENS, qwen2, trl_settings
    from ghar.trainers.rl.actor_critic import ActorCritic, ActorCriticConfig
    from ghar.trainers.rl.mappo import update

    torch.set_num_threads(1)
    how = ActorCriticConfig("full", 8, 16, detach=True, agents=("top",))
    actor = ActorCritic(Qwen2ForCausalLM(qwen2(128, 4, 4, VOCAB)).eval(), how)
    optimizer = torch.optim.AdamW(actor.parameter_groups(1e-5, 1e-5))
    traj, settings = _trajectories(episodes, turns), trl_settings(1, 1, MICRO_TOKENS)
    return lambda: update(actor, optimizer, traj, settings, np.random.default_rng(0))


def _trajectories(episodes: int, turns: int) -> Any:
    """Random ids; every second episode is right."""
    from ghar.episode import Completion, Episode, Prediction, Turn
    from ghar.rewards.compose import EpisodeReward
    from ghar.trainers.rl.trajectory import build

    rng = np.random.default_rng(0)
    level = (-float(np.log(VOCAB)),) * REPLY

    def ids(length: int) -> tuple[int, ...]:
        return tuple(rng.integers(8, VOCAB, length).tolist())

    def episode(number: int) -> Episode:
        record = ids(RECORD)
        replies = [Completion("", record + ids(PROMPT - RECORD), ids(REPLY), level) for _ in range(turns)]
        own = tuple(Turn("top", "predict", i, i, completion, format_ok=True) for i, completion in enumerate(replies))
        return Episode(str(number), 0, Prediction(0), own)

    rewards = [
        EpisodeReward({}, float(i % 2), ({},) * (turns - 1) + ({"orm": float(i % 2)},), "shared")
        for i in range(episodes)
    ]
    return build([episode(i) for i in range(episodes)], rewards, ("top",), ("predict",))


def _intervals(folder: Path, samples: int) -> Work:
    from ghar.metrics.bootstrap import mean_interval

    rng = np.random.default_rng(0)
    return partial(mean_interval, rng.random(samples), patients=[str(i // 2) for i in range(samples)])


def _ledger(folder: Path, rows: int) -> Work:
    """Metrics of so many updates, each told to the ledger as a run does, then read and checked once."""
    from ghar import ledger
    from ghar.metrics.runfolder import RunFolder

    def work() -> None:
        run = RunFolder.open(folder / "run")
        for i in range(rows):
            run.log({"phase": "rl", "step": i, "loss": 1 / (i + 1)})
        ledger.check(run.path, "metrics.jsonl")

    return work


COSTS: dict[str, Cost] = {
    "reading MIMIC-IV's tables": Cost("patients", 2_000, _reading),
    "samples of a task": Cost("patients", 2_000, _samples),
    "EHRSHOT's labels": Cost("patients", 2_000, _labels),
    "MEDS export": Cost("patients", 2_000, _export),
    "texts of records": Cost("patients", 2_000, _text),
    "event store": Cost("patients of 5,000 events", 200, _store),
    "index of a graph": Cost("edges", 15_000, _index, _edges),
    "exact queries to the largest partition": Cost("edges", 15_000, _queries, _edges),
    "nearest patients and cohorts": Cost("patients", 10_000, _patient_graph),
    "EXPRAG's nearest admissions": Cost("admissions", 100_000, _ranking),
    "episodes by a rule": Cost("episodes", 1_000, _episodes),
    "an update": Cost("episodes of 8 turns", 40, _updates_by_episodes),
    "an update of 4 episodes": Cost("turns an episode", 40, _updates_by_turns),
    "an interval over patients": Cost("samples", 100_000, _intervals),
    "metrics and their ledger": Cost("updates", 2_000, _ledger),
}
