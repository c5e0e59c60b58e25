"""Flipped bits in everything that a run keeps and reads again: each is found, or what is read is the same.

Kinds: the cohort, graph, indexes (sparse, dense, reports), event store, summaries, base model, checkpoint, training
examples and answers of an expert, made of generated patients; and, with as many flips as all of them together, the
folder of a run with five steps (`write_run`), of which all is read that reports, exports and evaluations read. For
every flip a random file is taken, one bit of one byte in it changed, and what was kept is opened as a run opens it.
Found: it is refused or named. Harmless: what was read equals what was written. Anything else is silent damage.
Verification is timed beside a warm start (a process that imports what a training needs and opens the same caches).
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ghar.progress import track

ROOT = Path(__file__).resolve().parents[1]
OVERRIDES = ("data.patients=60", "retriever=hashing")


@dataclass(frozen=True)
class Kept:
    """Something on disk. read: opens it and returns all that it says, as bytes of a digest."""

    root: Path
    read: Callable[[], bytes]


def flips(folder: Path, *, count: int, seed: int, timed: bool = True) -> dict[str, Any]:
    """`count` flips shared out among the kinds, and `count` in the folder of a run; found, harmless and silent ones of
    each, and (timed) the cost of looking."""
    shutil.rmtree(folder / "flips", ignore_errors=True)
    rng, kinds = np.random.default_rng(seed), make(folder / "flips")
    shares = dict.fromkeys(kinds, -(-count // len(kinds))) | {"run folder": count}
    run = folder / "flips" / "whole-run"
    write_run(run)
    kinds["run folder"] = Kept(run, lambda: read_run(run).encode())
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in kinds}
    for name, kept in kinds.items():
        right = kept.read()
        files = [path for path in sorted(kept.root.rglob("*")) if path.is_file() and path.stat().st_size]
        files = files or [kept.root]
        for _ in track(range(shares[name]), f"Flip bits: {name}", shares[name]):
            path = files[int(rng.integers(len(files)))]
            outcomes[name][_judge(kept, path, right, rng)] += 1
    total = sum((Counter(counts) for counts in outcomes.values()), Counter())
    counted = {name: {how: c[how] for how in ("found", "harmless", "silent")} for name, c in outcomes.items()}
    return {
        "flips": total.total(),
        "silent": total["silent"],
        "untold": total["untold"],
        "by kind": counted,
        **({"verification": cost(folder / "flips")} if timed else {}),
    }


class Named(BaseException):
    """A damaged file was named; making it again is another test's business (tests/test_seal.py), and slow."""


class Ears(io.StringIO):
    """Hears what is said on the screen."""

    def write(self, text: str, /) -> int:
        if "damaged" in text or "is missing" in text:
            raise Named
        return len(text)


def _judge(kept: Kept, path: Path, right: bytes, rng: np.random.Generator) -> str:
    """Flip one bit, open, and put it back."""
    from ghar.errors import BadInput

    whole = path.read_bytes()
    at, bit = int(rng.integers(len(whole))), int(rng.integers(8))
    path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
    output = Ears()
    try:
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            read = kept.read()
        verdict = "harmless" if read == right else "silent"
    except (BadInput, Named):
        verdict = "found"
    except Exception as error:  # found, but by a traceback
        print(f"{path}: {type(error).__name__}: {error}", file=sys.stderr)
        verdict = "untold"
    path.write_bytes(whole)
    return verdict


MODEL = {"architecture": "a", "tokenizer": "t", "base": "b", "trained": "{}"}
SCORES = {1: 0.3, 2: 0.9, 3: 0.8, 4: 0.91, 5: 0.2}  # of the steps of `write_run`
ROW = {"policy": "a", "split": "test", "sample_id": "s1", "reward": 1.0, "correct": True}


def write_run(run: Path) -> None:
    """Write a run folder with five steps, metrics, episodes of two variants and of training, groups and a summary."""
    import torch

    from ghar.metrics.runfolder import RunFolder
    from ghar.trainers.runs import checkpoint

    folder = RunFolder.open(run)
    folder.write_config("seed: 7\nsystem:\n  name: ghar\n")
    for step, score in SCORES.items():
        folder.log({"step": step, "phase": "rl", "eval/reward": score})
        folder.write_training_episodes(step, [ROW | {"update": step, "attempt": 0}])
        weights, state = {"w": torch.full((4,), float(step))}, {"best": score, "upcoming": [1, 2, 3]}
        kept = checkpoint.Checkpoint(weights, {"own": {}}, checkpoint.random_state(), state, step, score)
        checkpoint.save(run / "checkpoints", kept, MODEL, checkpoint.KeepPolicy(5, 5))
    for name in ("a", "b"):
        folder.write_episodes(name, [ROW | {"policy": name, "sample_id": f"s{i}"} for i in range(20)])
    folder.write_groups({"s1": {"sex": "F"}})
    folder.write_summary({"policies": {"a": {"accuracy": [0.5, 0.4, 0.6]}}, "generated": True})


def read_run(run: Path) -> str:
    """All that reports, exports and evaluations read of a run folder."""
    from ghar.metrics.runfolder import RunFolder
    from ghar.trainers.runs import checkpoint

    folder = RunFolder(run)
    contents: list[Any] = [folder.config_text(), folder.metrics(), folder.summary(), folder.groups()]
    contents += [list(folder.episodes(name)) for name in folder.episode_names()]
    contents += list(folder.training_episodes())
    for which in ("best", "latest"):
        step = checkpoint.find(run / "checkpoints", which)
        assert step is not None
        loaded = checkpoint.load(step, MODEL)
        contents.append([step.name, loaded.step, loaded.score, loaded.credentialed, loaded.weights["w"].tolist()])
        contents.append(sorted(loaded.state.items()))
    return json.dumps(contents)


def make(folder: Path) -> dict[str, Kept]:
    """Every kind of thing that a run keeps, made of one small world."""
    from ghar.data.readers.mimic4 import read_mimic4
    from ghar.envs.exprag.report_build import index_reports
    from ghar.envs.records import Records
    from ghar.kg.graph import KnowledgeGraph
    from ghar.kg.primekg import open_primekg
    from ghar.launch.entry import load
    from ghar.retrieval.build import build_retriever
    from ghar.retrieval.encoders import HashingEncoder
    from ghar.retrieval.event_build import build_event_store
    from ghar.retrieval.event_store import StoreLayout

    cache = folder / "cache"
    records = Records(load([*OVERRIDES, f"data.cache={cache}", f"run_dir={folder / 'run'}"]))
    root, graph_path, graph = records.root, records.graph_path, records.primekg
    notes = records.notes(None)
    assert notes is not None
    encoder, layout = HashingEncoder(32), StoreLayout(4, 1, True, "time")
    cohort = records.cohort
    places = {"cohort": cache / "cohorts", "graph": cache / "graphs", "notes": cache / "notes"}

    def arrays(*values: Any) -> bytes:
        return repr([zlib.crc32(np.ascontiguousarray(v).tobytes()) for v in values]).encode()

    def whole_cohort() -> bytes:
        cohort = read_mimic4(root, cache / "cohorts", charts=False)
        frames = (cohort.events, cohort.codes, cohort.visits)
        visits = sorted((k, repr(v)) for k, v in cohort.shown.visits.items())
        return repr([f.hash_rows(0).to_list() for f in frames] + [visits, cohort.credentialed, cohort.stay]).encode()

    def whole_graph() -> bytes:
        g: KnowledgeGraph = open_primekg(graph_path, cache / "graphs")
        parts = (g.names.data, g.ids.data, g.head, g.tail, g.path_start, g.out_start, g.in_edge, g.member)
        return arrays(*parts) + repr((g.types, g.displays, g.path_relation, g.fingerprint)).encode()

    def dense() -> bytes:
        return arrays(build_retriever(graph, "hashing", cache=cache / "dense", probes=3).index.matrix)  # type: ignore[union-attr]

    def sparse() -> bytes:
        index: Any = build_retriever(graph, "bm25", cache=cache / "sparse").index
        return arrays(*(v for v in vars(index).values() if isinstance(v, np.ndarray)))

    def events() -> bytes:
        store: Any = build_event_store(cohort, cache / "stores", encoder, layout)
        return arrays(*(v for v in vars(store).values() if isinstance(v, np.ndarray)))

    def reports() -> bytes:
        index = index_reports(cohort, notes, None, cache / "reports")
        sets = [part for one in index.sets for part in (one.stays, one.start, one.sizes, one.names.data)]
        return arrays(index.visit_id, index.available, *sets)

    def texts() -> bytes:
        notes = records.notes(None)
        assert notes is not None
        return arrays(notes.visit_id, notes.available) + "".join(notes.texts).encode()

    places |= {"dense": cache / "dense", "sparse": cache / "sparse", "stores": cache / "stores",
               "reports": cache / "reports"}  # fmt: skip
    readers = {"cohort": whole_cohort, "graph": whole_graph, "dense index": dense, "sparse index": sparse,
               "event store": events, "report index": reports, "summaries": texts}  # fmt: skip
    named = dict(zip(readers, ("cohort", "graph", "dense", "sparse", "stores", "reports", "notes"), strict=True))
    for read in readers.values():
        read()
    kinds = {name: Kept(places[named[name]], read) for name, read in readers.items()}
    return kinds | _trained(folder, cohort)


def _trained(folder: Path, cohort: Any) -> dict[str, Kept]:
    """What training keeps: models, checkpoints, training examples, answers."""
    import torch

    from ghar.episode import Completion
    from ghar.llm.cached_llm import CachedQuestion, ask
    from ghar.llm.demo_model import build_model, build_tokenizer
    from ghar.llm.models import load_pretrained
    from ghar.trainers.runs import checkpoint
    from ghar.trainers.runs.models import check_saved, save_model
    from ghar.trainers.sft.examples import TrainingExamples, read_examples, write_examples
    from ghar.trainers.sft.pairs import TokenExample

    tokenizer = build_tokenizer(["yes no answer patient with gout"] * 9, [], 300)
    model = build_model(tokenizer, hidden=16, layers=1, heads=2, seed=0)
    save_model(model, tokenizer, folder / "bases" / "base", False)
    one = {"weight": torch.arange(600.0)}
    state = checkpoint.Checkpoint(one, {"own": {}}, checkpoint.random_state(), {"best": None}, 3)
    checkpoint.save(folder / "checkpoints", state, {"architecture": "x"}, checkpoint.KeepPolicy(2, 1))
    pairs = [TokenExample([1, 2, i], [3, i], None) for i in range(60)]
    write_examples(folder / "lessons" / "lessons.npz", TrainingExamples(pairs, (), {}, {"pairs": 60}))
    questions = [CachedQuestion(f"q{i}", f"Is it {i}?", 9) for i in range(40)]

    class Answering:
        """Replies that are computed, so that an answer that is asked again comes out the same."""

        version = 0

        def generate(self, requests: Any) -> list[Completion]:
            return [Completion(f"answer to {request.prompt}") for request in requests]

    store = folder / "answers" / "answers.jsonl"

    def answers() -> bytes:
        engine: Any = Answering()
        replies = ask(engine, questions, store, str, seed=0, title="Asking")
        return repr((sorted(replies.values.items()), replies.failed)).encode()

    def base() -> bytes:
        check_saved(folder / "bases" / "base")
        loaded, words = load_pretrained(str(folder / "bases" / "base"), "float32")
        weights = [zlib.crc32(w.detach().numpy().tobytes()) for w in loaded.state_dict().values()]
        return repr((weights, sorted(words.get_vocab().items()))).encode()

    def step() -> bytes:
        last = checkpoint.load(folder / "checkpoints" / "step-3", {"architecture": "x"})
        return repr((last.weights["weight"].tolist(), last.state, last.step, last.optimizer)).encode()

    def examples() -> bytes:
        dataset = read_examples(folder / "lessons" / "lessons.npz")
        return repr(([(list(p.prompt_ids), list(p.completion_ids)) for p in dataset.train], dataset.about)).encode()

    answers()
    (store.parent / "answers.jsonl.lock").unlink()  # holds no more than the number of a process
    return {
        "base model": Kept(folder / "bases" / "base", base),
        "checkpoint": Kept(folder / "checkpoints" / "step-3", step),
        "training examples": Kept(folder / "lessons", examples),
        "answers": Kept(store, answers),
    }


def cost(folder: Path) -> dict[str, float]:
    """Processor seconds that verification takes of a process that imports what a training needs and opens every cache
    of `folder` warm, and its share of them."""
    code = (
        "import json, time\n"
        "from ghar import seal\n"
        "spent = [0.0]; real = seal.fault\n"
        "def fault(path):\n"
        "    start = time.process_time(); found = real(path); spent[0] += time.process_time() - start; return found\n"
        "seal.fault = fault\n"
        "import ghar.storage, ghar.data.readers.cache as kept; kept.fault = fault\n"
        "from benchmarks.flips import make; from pathlib import Path\n"
        "import torch, transformers, trl\n"
        f"make(Path({str(folder)!r}))\n"
        "print(json.dumps([spent[0], time.process_time()]))"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError(f"the warm start failed after {time.monotonic() - start:.0f} s:\n{done.stderr[-2000:]}")
    spent, whole = json.loads(done.stdout.splitlines()[-1])
    return {"seconds": spent, "of a warm start": whole, "share": spent / whole}
