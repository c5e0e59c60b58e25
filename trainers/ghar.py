"""GHAR from raw tables to an evaluated policy: the whole recipe, top to bottom (section IV of the paper).

    1. cohort, task, splits, graph, retriever           trainers/study.py
    2. a base model (demo: made on the spot)            trainers/demo.py, trainers/runs/models.py
    3. warm-up: teacher, rejection sampling, SFT        trainers/sft/warmup.py, trainers/sft/run.py
    4. multi-agent PPO                                  trainers/rl/loop.py, trainers/rl/mappo.py
    5. evaluation and report                            trainers/evaluate.py
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from envs.ghar.teacher import ScriptedTeacher
from ghar.config import Config
from ghar.disk import full_disk_told
from ghar.errors import BadInput
from ghar.llm.hf import HFEngine
from ghar.llm.models import load_pretrained
from ghar.llm.policy import EnginePolicy, Policy
from ghar.metrics.logger import Logger, start_logger
from ghar.metrics.report import write_report
from ghar.metrics.runfolder import RunFolder
from trainers.demo import TEACHER, base_key, base_knowledge, build_base, teacher_knowledge
from trainers.evaluate import evaluate_study, table
from trainers.players import Hire, here
from trainers.rl.learner import sharing
from trainers.rl.loop import Patients, reinforce
from trainers.runs.distributed import main_first, on_main, rank, together
from trainers.runs.machine import check_machine
from trainers.runs.models import SFT, load_sft, make_actor, save_model, use_cores
from trainers.runs.resume import hold, open_run
from trainers.sft.lessons import Lessons, lessons_of, read_lessons, write_lessons
from trainers.sft.run import run_sft
from trainers.sft.warmup import imitation, sample_references
from trainers.study import Study, prepare

LESSONS, SFT_STEPS = "lessons.npz", "sft-steps"  # in checkpoints/: see trainers/sft/lessons.py; SFT on its way

Log = Callable[[Mapping[str, Any]], None]


def train(config: Config, hire: Hire = here) -> None:
    """Run every phase into `config.run_dir`. A finished run is only reported, a killed one goes on where it was.

    hire: gives the RL phase who plays its episodes, by default this process.
    """
    if hire is here and config.ray is not None and config.ray.max_staleness:
        raise BadInput(f"ray.max_staleness={config.ray.max_staleness} needs launch/train_ray.py: start that instead.")
    path, finish = Path(config.run_dir), None
    with ExitStack() as held, full_disk_told(path):
        with together(sharing(config).stage):
            use_cores(config.threads)
            torch.manual_seed(config.seed)
            on_main(lambda: hold(held, path))
            on_main(lambda: check_machine(config))
            opened = on_main(lambda: open_run(config))
            if opened is not None:
                finish = _train(config, *opened, hire)
            first = rank() == 0
        if finish is not None and first:  # alone: vLLM's engine, built beside a group, would wait for the others' ones
            use_cores(config.threads)  # those of the others too
            finish()


def _train(config: Config, folder: RunFolder, resumed: bool, hire: Hire) -> Callable[[], None]:
    """What all processes do together; returns what is left to do for the first one."""
    seconds: dict[str, float] = {}  # of this start: what an earlier one has done is not counted
    with _timed(seconds, "data"):
        study = main_first(lambda: prepare(config))
    logger = _logger(study, folder)
    log = _log_to(folder, logger)
    on_main(lambda: _banner(study))
    checkpoints = folder.path / "checkpoints"
    if on_main(lambda: not (checkpoints / SFT).is_dir()):
        _warm_up(study, folder, log, seconds)
    else:
        on_main(lambda: print("The warm-up was finished by an earlier start."))
    on_main(lambda: shutil.rmtree(checkpoints / SFT_STEPS, ignore_errors=True))
    model, tokenizer = load_sft(config, checkpoints)  # also right after SFT: every start of RL sees the same bytes
    cases = study.cases(study.splits.train, tokenizer), study.cases(study.splits.valid, tokenizer)
    patients = Patients(*cases, read_lessons(checkpoints / LESSONS).references)
    with _timed(seconds, "rl"):
        reinforce(study, make_actor(config, model), tokenizer, patients, log, folder, hire)
    return lambda: _finish(study, folder, logger, seconds, resumed)


def _finish(study: Study, folder: RunFolder, logger: Logger, seconds: dict[str, float], resumed: bool) -> None:
    """Evaluation and report."""
    config = study.config
    with _timed(seconds, "evaluation"):
        summary = evaluate_study(study, folder, resume=True)
    for name in config.eval.policies:
        if config.logger.wandb != "disabled":
            logger.log_episodes(name, folder.episodes(name))
    logger.finish()
    about = {"time": seconds, "resumed": resumed, "memory_gb": _peak_memory(), "commit": _commit()}
    folder.write_summary({**summary, **about})
    print(table(summary))
    print(f"Report: {write_report(folder.path)}")


def _warm_up(study: Study, folder: RunFolder, log: Log, seconds: dict[str, float]) -> None:
    """Base model, teacher and SFT, into checkpoints/sft. What an earlier start has finished is not done again."""
    checkpoints = folder.path / "checkpoints"
    with _timed(seconds, "base"):
        model, tokenizer = start_model(study, folder, log)
    with _timed(seconds, "teacher"):
        on_main(lambda: _teach(study, checkpoints / LESSONS, tokenizer))
        lessons = read_lessons(checkpoints / LESSONS)
    on_main(lambda: folder.rewind("sft", -1))
    with _timed(seconds, "sft"):
        model = _imitate(study, model, tokenizer, lessons, log, checkpoints / SFT_STEPS)
        on_main(lambda: save_model(model, tokenizer, checkpoints / SFT))


def _teach(study: Study, kept: Path, tokenizer: Any) -> None:
    """The teacher's lessons, into the file `kept` unless an earlier start has written it."""
    if not kept.is_file():
        train_cases = study.cases(study.splits.train, tokenizer)
        found = sample_references(study, train_cases, _teacher(study, train_cases))
        write_lessons(kept, lessons_of(found, tokenizer))
    print(f"The teacher was right on {read_lessons(kept).rate:.1%} of the samples it tried.")


def start_model(study: Study, folder: RunFolder, log: Log) -> tuple[Any, Any]:
    """What training starts from: the pretrained model, or the demo's base of this task, made once in a cache."""
    model = study.config.model
    if model.kind == "pretrained":
        assert model.path is not None  # ghar.configure asks for it
        return load_pretrained(model.path, model.dtype)
    knowledge = base_knowledge(study, study.cases(study.splits.train, None))
    kept = Path(study.config.data.cache) / "bases" / base_key(study, knowledge)
    if on_main(lambda: kept.is_dir()):
        on_main(lambda: print(f"Base model of an earlier run: {kept}"))
    else:
        on_main(lambda: folder.rewind("base", -1))
        kept.parent.mkdir(parents=True, exist_ok=True)
        base = build_base(study, knowledge, log)
        on_main(lambda: save_model(*base, kept))
    return load_pretrained(str(kept), model.dtype)


def _teacher(study: Study, train_cases: Any) -> Policy:
    name = study.config.trainer.warmup.teacher
    if name == "scripted":
        return ScriptedTeacher(teacher_knowledge(study, train_cases), TEACHER)
    model, tokenizer = load_pretrained(name, study.config.model.dtype)
    return EnginePolicy(HFEngine(model, tokenizer, study.config.engine.max_batch), study.config.engine.temperature)


def _imitate(study: Study, model: Any, tokenizer: Any, lessons: Lessons, log: Log, keep: Path) -> Any:
    """SFT on the replies of the accepted episodes, `trainer.warmup.epochs` times over; its checkpoints go to `keep`."""
    settings = imitation(study.config, len(lessons.pairs))
    result = run_sft(model, tokenizer, lessons.pairs, settings, keep)
    for row in result.curve:
        log({"phase": "sft", "step": int(row["step"]), "train/loss": row["loss"], "train/accuracy": row["accuracy"]})
    return result.model


def _logger(study: Study, folder: RunFolder) -> Logger:
    config = study.config
    if rank() > 0:
        return Logger()
    return start_logger(
        config.logger.wandb,
        folder.path,
        project=config.logger.project,
        entity=config.logger.entity,
        group=config.logger.group,
        config=asdict(config),
        credentialed=study.cohort.credentialed,
        allow=config.privacy.allow,
    )


def _log_to(folder: RunFolder, logger: Logger) -> Log:
    def log(row: Mapping[str, Any]) -> None:
        if rank() > 0:
            return
        folder.log(row)
        logger.log(row)
        if row["phase"] == "rl" and "eval/reward" in row:
            numbers = [f"{name} {row[f'eval/{name}']:.3f}" for name in ("reward", "accuracy", "retrieval_rate")]
            print(f"update {row['step']:3d}  validation: {'  '.join(numbers)}")

    return log


def _banner(study: Study) -> None:
    if study.cohort.generated:
        print("These patients are GENERATED (demo world); nothing below says anything about real ones.")
    counts = study.counts
    sizes = "/".join(str(counts[f"{split} samples"]) for split in ("train", "validation", "test"))
    paths = len(study.episodes.metapaths)
    print(f"{study.task.name}: {sizes} samples; graph of {counts['graph nodes']} nodes in {paths} meta-paths")


@contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    seconds[phase] = time.monotonic() - start


def _peak_memory() -> float:
    """Peak resident memory of this process in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _commit() -> str | None:
    """The code's commit, where it is a git checkout."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
