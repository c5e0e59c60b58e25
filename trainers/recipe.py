"""Any system from raw tables to an evaluated policy: the whole recipe, top to bottom (section IV of GHAR's paper).

1. records, the system, its cases                        envs/records.py, envs/NAME/system.py
2. a base model (demo: made on the spot)                 trainers/base.py
3. training examples: a teacher's right episodes, or the system's own chains; SFT on them, unless all that is
   evaluated has weights of its own                      trainers/sft/, stages.py
4. where trainer.rl.updates is not 0, on as many episodes: multi-agent PPO (trainer.method=mappo), or
   rejection-sampling fine-tuning (rft)                  trainers/rl/loop.py; mappo.py or rft.py
5. evaluation and report                                 trainers/evaluation/evaluate.py

trainer.method=plain has all of this done by one slow file, trainers/plain.py, in the same run folder.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ghar.config import Config
from ghar.disk import report_full_disk
from ghar.envs import system as systems
from ghar.envs.play import stage_of
from ghar.envs.records import Records, of_credentialed
from ghar.envs.system import DemoPretraining, System
from ghar.errors import BadInput
from ghar.heap import release_memory
from ghar.interrupt import explain_interrupt
from ghar.metrics.logger import Logger, start_logger
from ghar.metrics.runfolder import RunFolder, write_whole
from ghar.privacy import ask_gate, keep_log
from ghar.progress import left_of
from ghar.trainers.base import base_steps, reader_of, start_model
from ghar.trainers.base_replies import base_replies
from ghar.trainers.evaluation.evaluate import evaluate_system, table_of
from ghar.trainers.evaluation.leakage import audited, by_rarity, keep_groups
from ghar.trainers.evaluation.report import conclude, report
from ghar.trainers.evaluation.weights import RunStages, identity, load_base, make_actor
from ghar.trainers.memory import check_machine, fitted, room_for_copy, without_teacher
from ghar.trainers.plain import check as check_plain
from ghar.trainers.plain import train as train_plain
from ghar.trainers.rl.loop import reinforce
from ghar.trainers.rl.schedule import check_schedule, hold_schedule
from ghar.trainers.rl.workers import MakeWorkers, local
from ghar.trainers.runs.code import commit
from ghar.trainers.runs.distributed import main_first, on_main, rank, together
from ghar.trainers.runs.models import BASE, SFT, load_sft, save_trained, start_of, use_cores
from ghar.trainers.runs.resume import as_kept, given_back, hold, open_run, plain
from ghar.trainers.runs.samples import data_print, hold_data
from ghar.trainers.scale import print_scale
from ghar.trainers.sft.examples import TrainingExamples, read_examples, write_examples
from ghar.trainers.sft.pairs import TokenExample, tokenise_examples
from ghar.trainers.sft.run import SFTResult, best_step, metrics_row
from ghar.trainers.sft.warmup import learn
from ghar.trainers.stages import evaluated_variants, further_stages, may_skip_warm_up, needs_warm_up
from ghar.trainers.teacher import taught

PHASES = {
    "base": "base model", "teacher": "examples", "sft": "SFT", "rl": "RL", "evaluation": "evaluation",
}  # fmt: skip
RFT = "rejection-sampling fine-tuning"  # the phase "rl" where trainer.method=rft
# In checkpoints/: training examples (trainers/sft/examples.py), and SFT on its way. The first kept its old name, as did
# "lessons" in summary.json and the folder lessons-parts, so that runs of earlier versions go on and are read.
EXAMPLES, SFT_STEPS = "lessons.npz", "sft-steps"
REPLIES = "{}-replies.json"  # in checkpoints/: how many a further stage trained on, each as often as it was
AGAIN = "start again with resume=never, as a plain training goes on from nothing that is saved."
VALIDATED = {"eval/reward": "reward", "eval/accuracy": "accuracy", "eval/retrieval_rate": "retrieval_rate"}
TRAINED = {
    "train/accuracy": "accuracy", "train/explained_variance": "critic explains",
    "train/explained_variance/boosting": "boosting explains", "train/kl/reference": "KL", "train/entropy": "entropy",
}  # fmt: skip


@dataclass(frozen=True)
class TrainingRun:
    """A training under way. table: the system as the evaluation will play it.

    seconds: by phase, of this start; what an earlier one has done is not counted. pace: by phase, the first step of
    this start and when it ended.
    """

    records: Records
    system: System[Any]
    table: System[Any]
    folder: RunFolder
    logger: Logger
    resumed: bool
    seconds: dict[str, float] = field(default_factory=dict)
    pace: dict[str, tuple[int, float]] = field(default_factory=dict)

    @property
    def config(self) -> Config:
        return self.records.config

    @property
    def checkpoints(self) -> Path:
        return self.folder.path / "checkpoints"

    @property
    def phases(self) -> list[str]:
        """The phases of `PHASES` that this run has."""
        unused = set() if self.config.trainer.rl.updates else {"rl"}
        if not needs_warm_up(self.table, self.config):
            unused |= {"teacher", "sft"} | (set() if self.config.model.kind == "demo" else {"base"})
        return [name for name in PHASES if name not in unused]

    def log(self, row: Mapping[str, Any]) -> None:
        """A row of metrics.jsonl, to W&B too; a line on the screen where it is an evaluation."""
        if rank() > 0:
            return
        self.folder.log(row)
        self.logger.log(row)
        if row["phase"] == "rl" and "eval/reward" in row:
            validation = _format_row(row, VALIDATED)
            print(f"update {row['step']:3d}  validation: {validation}{self._left(row['step'])}", flush=True)
        elif row["phase"] == "rl":
            training = _format_row(row, TRAINED)
            print(f"update {row['step']:3d}  training:   {training}{self._left(row['step'])}", flush=True)

    def _left(self, step: int) -> str:
        """How much of the phase is left after an update, from the pace since this start's first one."""
        now = time.monotonic()
        first, since = self.pace.setdefault("rl", (step, now))
        done, total = step - first, self.config.trainer.rl.updates - first
        return f"  ({left_of(now - since, done, total - done)})" if 0 < done < total else ""

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Say which phase begins, of how many, and count its seconds; give back what the one before has freed."""
        if phase in self.phases and rank() == 0:
            title = RFT if phase == "rl" and self.config.trainer.method == "rft" else PHASES[phase]
            print(f"{self.phases.index(phase) + 1}/{len(self.phases)} {title}", flush=True)
        release_memory()
        start = time.monotonic()
        yield
        self.seconds[phase] = time.monotonic() - start


def train(config: Config, make_workers: MakeWorkers = local) -> None:
    """Run every phase into `config.run_dir`. A finished run is only reported, a killed one goes on where it was.

    make_workers: who plays the episodes of RL, by default this process.
    """
    if make_workers is local and config.ray is not None and config.ray.max_staleness:
        raise BadInput(f"ray.max_staleness={config.ray.max_staleness} needs launch/train_ray.py: start that instead.")
    config = fitted(as_kept(config), int(os.environ.get("WORLD_SIZE", "1")))
    check_schedule(config.trainer)
    systems.check_variants(config)
    if config.trainer.method == "plain":
        check_plain(config)
        with report_full_disk(Path(config.run_dir), AGAIN), explain_interrupt(AGAIN.capitalize()):
            _in_folder(config, make_workers)
    else:
        with report_full_disk(Path(config.run_dir)):
            _in_folder(config, make_workers)


def _in_folder(config: Config, make_workers: MakeWorkers) -> None:
    """`train` where the configuration can be trained: in its run folder, which is held for the duration."""
    path = Path(config.run_dir)
    with ExitStack() as held, together(config.deepspeed.stage):
        use_cores(config.threads)
        torch.manual_seed(config.seed)
        on_main(lambda: ask_gate(config, lambda: of_credentialed(config)))
        keep_log(config)  # of every process
        on_main(lambda: hold(held, path))
        on_main(lambda: print_scale(config))
        on_main(lambda: check_machine(without_teacher(config) if may_skip_warm_up(config) else config))
        opened = on_main(lambda: open_run(config))
        if opened is None:
            on_main(lambda: print(f"Report: {report(path)}"))
        elif config.trainer.method == "plain":
            train_plain(config, opened[0])
        else:
            _train(config, *opened, make_workers)


def _train(config: Config, folder: RunFolder, resumed: bool, make_workers: MakeWorkers) -> None:
    """All phases, in every process."""
    with given_back(folder, resumed):
        _train_phases(config, folder, resumed, make_workers)


def _train_phases(config: Config, folder: RunFolder, resumed: bool, make_workers: MakeWorkers) -> None:
    start = time.monotonic()
    records = Records(config)
    system = main_first(lambda: systems.build(records))
    require_agents(system)
    on_main(lambda: ask_gate(config, lambda: system.origin.credentialed))  # once more, of what has been read
    table = main_first(lambda: table_of(system, records))
    for name in config.eval.variants or ():
        table.variant(name)  # before hours of training, not after
    if may_skip_warm_up(config) and config.trainer.warmup.teacher != "scripted" and needs_warm_up(table, config):
        on_main(lambda: check_machine(config))  # with its teacher
    on_main(lambda: hold_data(folder, data_print(system, records)))
    on_main(lambda: hold_schedule(folder, config.trainer.rl))
    logger, seconds = _logger(config, system, folder), {"data": time.monotonic() - start}
    run = TrainingRun(records, system, table, folder, logger, resumed, seconds)
    on_main(lambda: print(banner(config, system)))
    if on_main(lambda: (run.checkpoints / SFT).is_dir()):
        on_main(lambda: print("The warm-up was finished by an earlier start."))
    elif needs_warm_up(table, config):
        _warm_up(run)
    else:
        _leave_warm_up_out(run)
    on_main(lambda: shutil.rmtree(run.checkpoints / SFT_STEPS, ignore_errors=True))
    _further_stages(run)
    if config.trainer.rl.updates:
        _reinforce(run, make_workers)
    _finish(run)


def _format_row(row: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """The numbers of a row that are there, by the words they are shown under."""
    return "  ".join(f"{word} {row[key]:.3f}" for key, word in names.items() if row.get(key) is not None)


def require_agents(system: System[Any]) -> None:
    """BadInput for a system whose main variant no language model answers, such as the baselines."""
    if not system.is_trainable:
        raise BadInput(
            f"system {system.name} has no agents that learn, so there is nothing to train: start launch/evaluate.py "
            f"system={system.name}, which fits it, or put it into launch/compare.py."
        )


def banner(config: Config, system: System[Any]) -> str:
    """What the run is about, and whose patients these are."""
    parts = system.cases.train, system.cases.valid, system.cases.test
    sizes = "/".join(str(len(part)) for part in parts)
    line = f"{system.name} on {system.task.name}: {sizes} samples to train, validate and test"
    if system.origin.generated:
        warning = "These patients are GENERATED (demo world); nothing below says anything about real ones."
        return f"{warning}\n{line}"
    return line


def _warm_up(run: TrainingRun) -> None:
    """Base model, examples and SFT, into checkpoints/sft. What an earlier start has finished is not done again."""
    config, kept = run.config, run.checkpoints / EXAMPLES
    with run.timed("base"):
        model, tokenizer = start_model(run.system, run.records, run.folder, run.log)
    with run.timed("teacher"):
        _teach(run, model, tokenizer, kept)
        examples = read_examples(kept)
    on_main(lambda: run.folder.rewind("sft", -1))
    with run.timed("sft"):
        steps = run.checkpoints / SFT_STEPS
        result = learn(config, model, tokenizer, examples, steps, log=lambda *row: run.log(metrics_row("sft", *row)))
        _keep_trained(run, result, tokenizer, SFT)


def _leave_warm_up_out(run: TrainingRun) -> None:
    """Make the demo's base model alone, which the further stages start from."""
    names = ", ".join(variant.name for variant in evaluated_variants(run.table, run.config))
    on_main(lambda: print(f"The warm-up is left out: trainer.rl.updates=0, and no variant uses it ({names})."))
    if "base" in run.phases and on_main(lambda: not (run.checkpoints / BASE / "config.json").is_file()):
        with run.timed("base"):
            start_model(run.system, run.records, run.folder, run.log)


def _further_stages(run: TrainingRun) -> None:
    """The base model after SFT on other pairs (`Training.stages`), each into a folder of its own, where the evaluation
    will ask for it."""
    for name in further_stages(run.table, run.config):
        if on_main(lambda home=run.checkpoints / name: not home.is_dir()):
            with run.timed(name):
                _further_stage(run, name)


def _further_stage(run: TrainingRun, name: str) -> None:
    config = replace(run.config, eval=replace(run.config.eval, checkpoint=None))  # the run's own base
    model, tokenizer = load_base(config, run.system, RunStages(run.checkpoints, None))
    pairs = run.system.training.stages[name](reader_of(tokenizer, model))
    train, valid = tokenise_examples(tokenizer, pairs.train), tokenise_examples(tokenizer, pairs.valid)
    steps = run.checkpoints / f"{name}-steps"
    examples, title = TrainingExamples(train, valid, {}, {}), f"SFT, {name}"
    learned = learn(config, model, tokenizer, examples, steps, pairs.epochs, title=title)
    trained_on = (pairs.epochs or config.trainer.warmup.epochs) * len(train)
    on_main(lambda: write_whole(run.checkpoints / REPLIES.format(name), json.dumps(trained_on)))
    _keep_trained(run, learned, tokenizer, name)
    on_main(lambda: shutil.rmtree(steps, ignore_errors=True))


def _keep_trained(run: TrainingRun, result: SFTResult, tokenizer: Any, name: str) -> None:
    """Write a model after SFT into checkpoints/`name`."""
    base, marked = start_of(run.config, run.checkpoints), run.system.origin.credentialed
    target = run.checkpoints / name
    on_main(lambda: save_trained(result.model, result.adapter, tokenizer, base, target, marked))


def _teach(run: TrainingRun, model: Any, tokenizer: Any, kept: Path) -> None:
    """The examples, into the file `kept` unless an earlier start has written it; every process asks the teacher its
    share."""
    if on_main(lambda: not kept.is_file()):
        system = run.system.read_by(reader_of(tokenizer, model))
        if system.training.examples is not None:
            on_main(lambda: write_examples(kept, _own_examples(system, tokenizer)))
        else:
            taught(system, run.config, model, tokenizer, kept)
    about = on_main(lambda: read_examples(kept).about)
    on_main(lambda: print("Training examples: " + ", ".join(f"{name} {number}" for name, number in about.items())))


def _own_examples(system: System[Any], tokenizer: Any) -> TrainingExamples:
    """What the system has written down itself."""
    assert system.training.examples is not None  # _teach asks
    examples = system.training.examples(reader_of(tokenizer, None))
    train, valid = tokenise_examples(tokenizer, examples.train), tokenise_examples(tokenizer, examples.valid)
    return TrainingExamples(train, valid, {}, {"pairs": len(train), **examples.about})


def _reinforce(run: TrainingRun, make_workers: MakeWorkers) -> None:
    """MAPPO from the policy after the warm-up, which every start reads from the same bytes."""
    config = run.config
    with run.timed("rl"):
        model, tokenizer = load_sft(config, run.checkpoints)
        system = run.system.read_by(reader_of(tokenizer, model))
        stage = stage_of(system, system.variants[system.main], config)
        references = read_examples(run.checkpoints / EXAMPLES).references
        actor = make_actor(config, model, system.agents)
        workers = make_workers(stage, system.origin.credentialed, actor, tokenizer)
        fits = identity(config, actor, tokenizer, run.checkpoints)
        room = room_for_copy(config)
        reinforce(system, config, actor, fits, references, run.log, run.folder, workers, room)


def _finish(run: TrainingRun) -> None:
    """Evaluation, by all processes, and report."""
    with run.timed("evaluation"):
        summary = evaluate_system(run.table, run.config, run.folder, resume=True)
    on_main(lambda: _conclude(run, summary))


def _conclude(run: TrainingRun, summary: dict[str, Any]) -> None:
    if run.config.logger.wandb != "disabled":
        for name in summary["policies"]:
            run.logger.log_episodes(name, run.folder.episodes(name))
        if run.folder.training_updates():
            run.logger.log_episodes("training", run.folder.training_episodes(), ("update", "attempt"))
    run.logger.conclude(summary["policies"], run.config.task.played)
    run.logger.finish()
    file = run.checkpoints / EXAMPLES
    kept = read_examples(file) if file.is_file() else TrainingExamples((), (), {}, {})  # without a warm-up
    examples = dict(kept.about)
    about: dict[str, Any] = {"trained_on": _trained_on(run, kept.train), "best_step": best_step(run.folder.metrics())}
    about |= {"time": run.seconds, "resumed": run.resumed, "memory_gb": _peak_memory(), "commit": commit()}
    about |= {"base_replies": _base_replies(run)}
    keep_groups(run.records, run.folder)
    analyses = audited(run.records) | by_rarity(run.records, run.folder, summary["policies"])
    conclude(run.folder, {**summary, **examples.pop("summary", {}), **analyses, "lessons": examples, **about})


def _trained_on(run: TrainingRun, examples: Sequence[TokenExample]) -> dict[str, int]:
    """Count what each phase trained on, each as often as it was; examples: of SFT."""
    trainer = run.config.trainer
    made = isinstance(run.system.training.pretraining, DemoPretraining | str) and run.config.model.kind == "demo"
    base = base_steps(run.checkpoints / BASE, trainer.base.steps) * trainer.base.batch if made else 0
    updates = [row for row in run.folder.metrics() if row["phase"] == "rl" and row["step"]]
    made_updates = max((row["step"] for row in updates), default=0)
    played = max(1, trainer.rl.episodes // trainer.rl.attempts) * trainer.rl.attempts
    epochs = trainer.warmup.epochs
    return {
        "pretraining examples": base,
        "SFT replies": epochs * len(examples),
        "SFT reply tokens": epochs * sum(len(one.completion_ids) for one in examples),
        "SFT prompt tokens": epochs * sum(len(one.prompt_ids) for one in examples),
        **_further_replies(run),
        "episodes": made_updates * played,
        **episode_tokens(updates),
    }


def _base_replies(run: TrainingRun) -> dict[str, Any]:
    """How far the base model had learned to decide when it was made; empty for one that comes from elsewhere."""
    folder = run.checkpoints / BASE
    kept = base_replies(folder) if run.config.model.kind == "demo" and folder.is_dir() else {}
    return {role: kept[role] for role in run.system.decides if role in kept}


def _further_replies(run: TrainingRun) -> dict[str, int]:
    """Read how many replies each further stage trained on, each as often as it was; nothing of one that an earlier
    version trained."""
    kept = {name: run.checkpoints / REPLIES.format(name) for name in further_stages(run.table, run.config)}
    return {f"replies of {name}": json.loads(file.read_text()) for name, file in kept.items() if file.is_file()}


def episode_tokens(updates: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Add up the tokens of all updates, without a number that one of them was made too early to have."""
    names = {"episode reply tokens": "train/tokens/reply", "episode prompt tokens": "train/tokens/prompt"}
    return {
        title: int(sum(row[name] for row in updates))
        for title, name in names.items()
        if all(name in row for row in updates)
    }


def _logger(config: Config, system: System[Any], folder: RunFolder) -> Logger:
    if rank() > 0:
        return Logger()
    return start_logger(
        config.logger.wandb,
        folder.path,
        project=os.environ.get("WANDB_PROJECT", "ghar"),
        config=plain(config),
        credentialed=system.origin.credentialed,
        allow=config.privacy.allow,
    )


def _peak_memory() -> float:
    """Peak resident memory of this process in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
