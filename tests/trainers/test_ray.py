"""The trainer on Ray: the numbers of a run without it, weights no older than allowed, actors that die."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytest.importorskip("ray", reason="launch/train_ray.py needs the extra ray")

import psutil
import ray
from ray.exceptions import ActorDiedError

from benchmarks.kills import RAY, TINY, kept, metrics
from ghar.config import Config
from ghar.envs.play import stage_of
from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.episode import Retrieve
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.llm import canary
from ghar.llm.hf import HFEngine
from ghar.llm.weight_update import pack
from ghar.scratch import system_folder
from ghar.trainers.base import reader_of
from ghar.trainers.evaluation.weights import make_actor
from ghar.trainers.ray import pool as ray_pool
from ghar.trainers.ray import train as ray_train
from ghar.trainers.ray.pool import ActorPool, OfferedWeights, pool, take_over
from ghar.trainers.ray.retrieval import RayRetriever
from ghar.trainers.ray.start import check_resources, on_ray
from ghar.trainers.recipe import train
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.learner import PlainLearner
from ghar.trainers.rl.workers import LocalWorkers, RolloutRequest
from ghar.trainers.runs.models import load_sft
from tests.running import IDLE, run_python, started, wait_until
from tests.trainers.mortal import Mortal
from tests.trainers.tiny import for_two, perturb, tiny_model, tiny_tokenizer

pytestmark = pytest.mark.heavy
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Config:
    """A run without Ray."""
    run = tmp_path_factory.mktemp("whole") / "run"
    config = load([*TINY, "eval.variants=[ghar_rl]", f"run_dir={run}", f"data.cache={cache}"])
    train(config)
    return config


def trained(run: Path) -> list[dict[str, Any]]:
    """Metrics without those of the base model, which the second of two runs finds in the cache."""
    return [row for row in metrics(run) if row["phase"] != "base"]


@pytest.fixture
def place() -> Iterator[Path]:
    """A temporary folder with a short name: Ray's sockets lie in it."""
    with TemporaryDirectory(dir=system_folder()) as folder:
        yield Path(folder)


def below(place: Path) -> list[psutil.Process]:
    """All processes that were started with a temporary folder in `place`."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.environ().get("TMPDIR", "").startswith(f"{place}/") and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


def test_a_run_whose_driver_is_killed_goes_on_to_the_numbers_and_weights_of_one_without_ray(
    tmp_path: Path, cache: Path, whole: Config, place: Path
):
    """Its workers, gcs and raylet end with it, what is left of Ray at the next start; no file stays of either."""
    run, screen, before = tmp_path / "run", tmp_path / "screen.txt", {*Path("/dev/shm").glob("plasma*")}
    arguments = [*TINY, *RAY, "eval.variants=[ghar_rl]", f"run_dir={run}", f"data.cache={cache}"]
    command = [sys.executable, ROOT / "launch" / "train_ray.py", *arguments]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(place)}
    with screen.open("w") as file, started(command, cwd=tmp_path, env=env, stdout=file, stderr=file) as going:
        wait_until(lambda: [*run.glob("checkpoints/step-1")] or None, going, "step-1")
        first = below(place)
        names = {one.name() for one in first}
        assert {"gcs_server", "raylet"} < names and any("RayTrainWorker" in name for name in names), names
        os.kill(going.pid, signal.SIGKILL)
        lasting = psutil.wait_procs([one for one in first if not one.name().endswith("Agent")], timeout=IDLE)[1]
        assert not lasting, lasting
    done = run_python(*command[1:], cwd=tmp_path, env={"TMPDIR": str(place)})
    assert done.returncode == 0 and "Resuming the unfinished run" in done.stdout, (
        done.stdout[-3000:] + done.stderr[-3000:]
    )
    assert trained(run) == trained(Path(whole.run_dir)) and kept(run) == kept(Path(whole.run_dir))
    assert (run / "report.html").is_file()
    assert not below(place) and not list(place.iterdir()) and set(Path("/dev/shm").glob("plasma*")) <= before


@pytest.fixture(scope="module")
def config(whole: Config) -> Config:
    """That run's, for a pool."""
    return replace(whole, ray=on_ray(load(RAY)))


def test_a_lost_actors_episodes_are_played_again_and_each_counts_once(
    cluster: None, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The actor's process ends in the middle of its first order; then the pool's retrieval actors answer like the
    retriever in this process, also after one of them was lost."""
    model, tokenizer = load_sft(config, Path(config.run_dir) / "checkpoints")
    learner = PlainLearner(make_actor(config, model, ("top", "low")), None, 1.0)  # type: ignore[arg-type]
    system = build(Records(config)).read_by(reader_of(tokenizer, model))
    stage = stage_of(system, system.variants[system.main], config)
    order = RolloutRequest(system.cases.train[:12], 5, 1.0, "Rollout")
    local = LocalWorkers(replace(stage, corpus=Mortal()), HFEngine(model, tokenizer, config.engine.max_batch))
    expected = local.begin(order, learner, 3)()
    assert any(step.retrieved for episode in expected for step in episode.prediction.history)

    monkeypatch.setattr(ray_pool, "RayRetriever", lambda actors: Mortal(tmp_path / "died"))
    workers = ActorPool(stage, system.origin.credentialed, tokenizer)
    first = workers.actors[0]
    found = workers.begin(order, learner, 3)()
    assert (tmp_path / "died").exists() and workers.actors[0] is not first
    assert "Rollout actor 0 is lost" in capsys.readouterr().out
    assert [episode.sample_id for episode in found] == [case.sample_id for case in order.cases]
    assert [episode.turns for episode in found] == [episode.turns for episode in expected]

    requests = [Retrieve(case.topics[0], (0, 1), 2) for case in order.cases[:5]]
    remote = RayRetriever(workers.retrieval)
    assert remote.retrieve(requests) == system.corpus.retrieve(requests)
    ray.kill(workers.retrieval[0], no_restart=False)
    assert remote.retrieve(requests) == system.corpus.retrieve(requests)
    workers.close()


def test_weights_that_play_are_never_older_than_allowed(cluster: None, tmp_path: Path, cache: Path):
    more = ["ray.max_staleness=2", "trainer.rl.updates=5", "trainer.rl.eval_every=5", "eval.variants=[ghar_rl]"]
    train(load([*TINY, *RAY, *more, f"run_dir={tmp_path / 'run'}", f"data.cache={cache}"]), pool)
    updates = [row for row in metrics(tmp_path / "run") if row["phase"] == "rl" and row["step"] > 0]
    assert [row["train/staleness"] for row in updates] == [0, 1, 2, 2, 2]
    assert all(row["train/failures"] == 0 for row in updates)


def test_too_small_a_cluster_is_told_at_once(cluster: None):
    check_resources({"CPU": 2, "GPU": 0}, "buy more")
    with pytest.raises(BadInput, match=r"9 CPUs where Ray has 2: lower ray\.workers"):
        check_resources({"CPU": 9}, "lower ray.workers")


def test_who_asks_for_no_gpu_sees_none(cluster: None):
    @ray.remote(num_cpus=0)
    class Curious:
        def sees(self) -> str | None:
            return os.environ.get("CUDA_VISIBLE_DEVICES")

    assert ray.get(Curious.remote().sees.remote(), timeout=600) == ""  # type: ignore[attr-defined]


def test_a_machine_that_joins_the_cluster_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    """RAY_ADDRESS names one machine of a cluster; another one may have joined, before the run or during it."""
    nodes = [{"NodeManagerAddress": address, "Alive": alive} for address, alive in (("10.0.0.1", True),
             ("10.0.0.9", True), ("10.0.0.7", False))]  # fmt: skip
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "10.0.0.1")
    with pytest.raises(BadInput, match=r"'10\.0\.0\.9'.*privacy\.allow"):
        ray_pool.check_nodes(load(["ray=cluster"]), True)
    ray_pool.check_nodes(load(["ray=cluster"]), False)
    ray_pool.check_nodes(load(["ray=cluster", "privacy.allow=['10.0.0.9']"]), True)


def test_a_worker_that_lost_another_one_is_no_error_of_its_own():
    cut, own = RuntimeError("[pair.cc:534] Connection closed by peer [10.0.0.2]:3871"), RuntimeError("shapes differ")
    assert ray_train._lost([cut, ActorDiedError()]) and ray_train._lost([cut, cut])
    assert not ray_train._lost([own]) and not ray_train._lost([cut, own]) and not ray_train._lost([])


def test_what_ray_train_cannot_use_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(BadInput, match=r"retriever\.service=null"):
        ray_train.train(load(["ray=cluster", "retriever.service=http://127.0.0.1:1"]), train)
    with pytest.raises(BadInput, match=r"gives each process one GPU: set engine\.gpus=1"):
        ray_train.train(load(["ray=cluster", "engine=vllm", "engine.gpus=2"]), train)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with pytest.raises(BadInput, match="run_dir=runs/a means another folder"):
        ray_train.train(load(["ray=cluster", "run_dir=runs/a"]), train)


def test_an_engine_takes_over_merged_weights_and_the_canary_sees_others():
    actor = perturb(ActorCritic(tiny_model(), for_two(finetune="lora", rank=4)))
    engine = HFEngine(tiny_model(seed=1), tiny_tokenizer())
    with actor.merged() as model:
        parcels, expected = pack(model, False), canary.expect(model, range(2, 40))
        take_over(engine, parcels, OfferedWeights(4, [], expected), canary.Canary())
    assert engine.version == 4
    with pytest.raises(canary.WrongWeights):
        take_over(engine, pack(tiny_model(seed=2), False), OfferedWeights(5, [], expected), canary.Canary())


FAILS_LATE = """
import psutil
from ray._private import node
from ghar.errors import BadInput
from ghar.trainers.ray import start

start.TRIES, begin = 1, node.Node.start_ray_processes

def fail(self):
    begin(self)
    raise RuntimeError("a full machine")

node.Node.start_ray_processes = fail
try:
    start.start_ray(1)
except BadInput as error:
    print(error)
print([" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)])
"""


def test_a_failed_start_leaves_no_process_behind(tmp_path: Path):
    """Nor a file, also where the temporary folder's name is too long for Ray's sockets."""
    (tmp_path / ("long" * 9)).mkdir()
    done = run_python("-c", FAILS_LATE, env={"TMPDIR": str(tmp_path / ("long" * 9))})
    told, left = done.stdout.splitlines()[-2:]
    assert "did not start on this machine in 1 tries (a full machine)" in told and left == "[]", done.stderr[-3000:]
    assert not list((tmp_path / ("long" * 9)).iterdir())
