"""One cell, one job: its command line, the fork from the run it starts from, and what is kept of it."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import polars as pl

from ghar.config import Config
from ghar.envs import system as systems
from ghar.envs.records import Records
from ghar.errors import BadInput
from ghar.inputs import missing
from ghar.interrupt import EXIT, stop_group, wait_for
from ghar.metrics.runfolder import RETRIEVALS, RunFolder
from ghar.trainers.runs import checkpoint
from ghar.trainers.runs.code import commit
from ghar.trainers.runs.fork_run import begin_from
from ghar.trainers.runs.kept_config import kept_config
from ghar.trainers.runs.models import SFT
from ghar.trainers.runs.resume import plain
from ghar.trainers.study.folder import StudyFolder
from ghar.trainers.study.outside import file_of, read_outside, read_sets, read_summaries
from ghar.trainers.study.paper import differences, model_of, names_a_place
from ghar.trainers.study.predictions import SCHEMA, harvest, keep, sha256
from ghar.trainers.study.samples import fingerprint, key_of, labels_of, look_ups_needed, samples_frame, whole_parquet
from ghar.trainers.study.schema import Cell, Study, StudyScale, cells_of, pruner_of, rows_of, source_of
from ghar.trainers.study.translate import Translation, translation

Load = Callable[[Sequence[str]], Config]
Start = Callable[[str, Sequence[str], Path], str | None]  # script, overrides, run folder -> why it failed
On = Literal["here", "torchrun", "ray"]
SAME = ("data", "task", "model", "seed", "retriever", "env")  # what a run must share with the one it starts from
GRACE = 60.0  # seconds that a job has to save and stop
LOG = "log.txt"
LABELS_ALONE = "trained on labels alone, since no rule knows real patients"


@dataclass(frozen=True)
class StudyJobs:
    """What all jobs of a study share. load: overrides -> configuration; more: overrides of the command line."""

    study: Study
    scale: StudyScale
    folder: StudyFolder
    load: Load
    more: tuple[str, ...] = ()
    on: On = "here"
    processes: int = 1
    start: Start | None = None  # plays a job in this process, for tests; None starts one of its own
    published: Mapping[str, Any] = field(default_factory=dict)  # tables of papers that stand beside ours

    def rows(self, cell: Cell) -> dict[str, str]:
        """Row -> the variant that plays it at this scale."""
        variants = {}
        for row in rows_of(self.study, cell.run.name):
            variant = row.variant if self.scale.train or not cell.run.train else row.rule
            if variant is not None:
                variants[row.name] = variant
        return variants

    def holes(self, cell: Cell) -> dict[str, str]:
        """Rows that nothing can stand for where nothing is trained."""
        missing = [row.name for row in rows_of(self.study, cell.run.name) if row.name not in self.rows(cell)]
        return dict.fromkeys(missing, f"needs a trained model; scale={self.scale.name} trains none")

    def overrides(self, cell: Cell) -> list[str]:
        """The command line of a cell."""
        run, study = cell.run, self.study
        own = [
            f"system={run.system}", f"task={cell.task}", *study.cohorts[cell.cohort], f"seed={cell.seed}",
            f"trainer.base.seed={cell.seed}", *study.overrides, *self.scale.overrides, *self._as_the_paper(cell),
            *run.overrides, *(run.full if self.scale.full else run.demo), *self._of_the_command(cell),
            f"eval.variants=[{','.join(dict.fromkeys(self.rows(cell).values()))}]",
            f"run_dir={self.folder.run(cell)}",
        ]  # fmt: skip
        if self.scale.train and run.weights is not None:
            source = source_of(cell, study)
            assert source is not None
            own.append(f"eval.checkpoint={self._weights(source)}")
        pruner = pruner_of(cell, study)
        if self.scale.train and pruner is not None:
            own.append(f"system.pruned_by={self.folder.run(pruner) / RETRIEVALS}")
        return own

    def _of_the_command(self, cell: Cell) -> list[str]:
        """The overrides of the command line, without keys of systems other than the cell's."""
        own = self.system_keys(cell.run.system) if any(map(system_key, self.more)) else frozenset()
        return [text for text in self.more if (key := system_key(text)) is None or key in own]

    def shipped(self, cell: Cell) -> Config:
        """The configuration of a cell as the study has it, with those overrides of the command line alone that name
        places."""
        return self.load(replace(self, more=tuple(filter(names_a_place, self.more))).overrides(cell))

    def differences(self, cell: Cell, config: Config, samples: pl.DataFrame, labels: Sequence[str]) -> dict[str, Any]:
        """Row -> in what it differs from the paper (`paper.differences`)."""
        shipped = self.shipped(cell)
        rows = ((row, self.study.row(row)) for row in self.rows(cell))
        return {name: differences(self.study, cell, row, config, samples, labels, shipped) for name, row in rows}

    def system_keys(self, system: str) -> frozenset[str]:
        """The keys of system=NAME, without "system."."""
        if system not in self._system_keys:
            own: Any = self.load([f"system={system}"]).system
            self._system_keys[system] = frozenset(one.name for one in fields(own))
        return self._system_keys[system]

    @cached_property
    def _system_keys(self) -> dict[str, frozenset[str]]:
        return {}

    def _as_the_paper(self, cell: Cell) -> list[str]:
        """Overrides of the paper's setting, at scale=full alone."""
        paper = self.study.paper
        if paper is None or not self.scale.full:
            return []
        return [*paper.overrides, *(text for part in paper.where if part.holds(cell) for text in part.overrides)]

    def _weights(self, source: Cell) -> Path:
        """The best step of a finished run, or its model after SFT where RL did nothing."""
        kept = self.folder.run(source) / "checkpoints"
        return checkpoint.find(kept, "best") or kept / SFT

    def trains(self, cell: Cell) -> bool:
        paper = self.study.paper if self.scale.full else None
        frozen = paper is not None and paper.leaves_frozen(cell)
        return self.scale.train and cell.run.train and cell.run.weights is None and not frozen


def system_key(override: str) -> str | None:
    """KEY of an override "system.KEY=..."; None for every other one."""
    section, _, rest = override.partition("=")[0].lstrip("+").partition(".")
    return rest.partition(".")[0] if section == "system" and rest else None


def check_cells(shop: StudyJobs) -> None:
    """BadInput, with the first reason, where no cell can be configured or has what it reads. A study of which a cell is
    done is not asked."""
    cells = cells_of(shop.study)
    if any(shop.folder.done(cell) is not None for cell in cells):
        return
    first = None
    for cell in [cell for cell in cells if cell.seed == shop.study.seeds[0]]:
        reason = _obstacle(shop, cell)
        if reason is None:
            return
        first = first or f"{cell.id}: {reason}"
    raise BadInput(f"No cell of study={shop.study.name} can be played. {first or 'It has no cells.'}")


def _obstacle(shop: StudyJobs, cell: Cell) -> str | None:
    """Why a cell cannot be played, as far as its configuration says; None where it can."""
    if not shop.rows(cell):
        return next(iter(shop.holes(cell).values()), "it has no rows")
    try:
        absent = missing(shop.load(shop.overrides(cell)), training=shop.trains(cell))
    except BadInput as error:
        return " ".join(str(error).split())
    return " ".join(absent) or None


def play(shop: StudyJobs, cell: Cell) -> str | None:
    """Play a cell to its predictions; returns why there are none, None where there are. What was done stays."""
    began = time.monotonic()
    if not shop.rows(cell):
        return next(iter(shop.holes(cell).values()), "it has no rows")
    source = source_of(cell, shop.study)
    if source is not None and shop.scale.train and shop.folder.done(source) is None:
        return f"it starts from {source.id}, which has not been played"
    try:
        if problem := _record_retrievals(shop, cell):
            return problem
        config = shop.load(shop.overrides(cell))
        samples = samples_of(shop, config)
        if cell.run.predictions is not None:
            _keep_outside(shop, cell, config, samples)
            return None
        if source is not None and cell.run.start is not None and shop.trains(cell):
            fork(shop.folder.run(source), config)
        problem = _job(shop, cell)
        if problem is not None:
            return problem
        _keep(shop, cell, config, samples, source, time.monotonic() - began)
    except BadInput as error:
        return " ".join(str(error).split())
    return None


def samples_of(shop: StudyJobs, config: Config) -> pl.DataFrame:
    """The samples of a configuration, kept for all cells that share them."""
    kept = shop.folder.samples(key_of(config))
    if not kept.is_file():
        whole_parquet(samples_frame(config), kept)
    return pl.read_parquet(kept, glob=False)


def fork(source: Path, config: Config) -> None:
    """Begin a run folder with another run's base model, examples and SFT: both differ in what comes after alone.

    Nothing happens where the run has begun. BadInput where the two are not of one model, cohort, task and seed.
    """
    target = Path(config.run_dir)
    if (target / "checkpoints" / SFT).is_dir():
        return
    there = kept_config(source)
    if there is None:
        raise BadInput(f"it cannot start from {source.name}, which holds no config.yaml.")
    here = plain(config)
    for name in SAME:
        if name == "data":
            there[name], here[name] = ({k: v for k, v in part[name].items() if k != "cache"} for part in (there, here))
        if there[name] != here[name]:
            raise BadInput(f"it cannot start from {source.name}: they differ in {name}.")
    for part in ("base", "warmup"):
        if there["trainer"][part] != here["trainer"][part]:
            raise BadInput(f"it cannot start from {source.name}: they differ in trainer.{part}.")
    shutil.rmtree(target, ignore_errors=True)  # of a fork that was cut short
    begin_from(source, config)


def _record_retrievals(shop: StudyJobs, cell: Cell) -> str | None:
    """Write the retrievals that prune a cell's SFT data, once for all cells that they prune; why that failed."""
    pruner = pruner_of(cell, shop.study)
    if pruner is None or not shop.trains(cell) or (shop.folder.run(pruner) / RETRIEVALS).is_file():
        return None
    if shop.folder.done(pruner) is None:
        return f"its SFT data are pruned by {pruner.id}, which has not been played"
    run, script = shop.folder.run(pruner), "record_retrievals.py"
    if shop.start is not None:
        return shop.start(script, shop.overrides(pruner), run)
    return run_command([*_launcher(shop, script), *shop.overrides(pruner)], run / LOG)


def _job(shop: StudyJobs, cell: Cell) -> str | None:
    """Run the command of a cell; why it failed, in its own words where it says them."""
    run, script = shop.folder.run(cell), "train.py" if shop.trains(cell) else "evaluate.py"
    run.mkdir(parents=True, exist_ok=True, mode=0o700)
    if shop.start is not None:
        return shop.start(script, shop.overrides(cell), run)
    return run_command([*_launcher(shop, script), *shop.overrides(cell)], run / LOG)


def _launcher(shop: StudyJobs, script: str) -> list[str]:
    launch = Path(__file__).resolve().parents[2] / "launch"
    if script != "train.py" or shop.on == "here":
        return [sys.executable, str(launch / script)]
    if shop.on == "ray":
        return [sys.executable, str(launch / "train_ray.py"), "ray=cluster", f"ray.workers={shop.processes}"]
    many = [f"--nproc-per-node={shop.processes}"]
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", *many, str(launch / script)]


def run_command(command: Sequence[str], log: Path) -> str | None:
    """Run a command with its output in `log`, and stop it when this process is asked to stop."""
    with log.open("ab") as out:
        out.write(f"$ {' '.join(command)}\n".encode())
        out.flush()
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = wait_for(child)
        except BaseException:
            stop_group(child, GRACE)
            raise
    if code == 0:
        return None
    if code == EXIT:
        raise KeyboardInterrupt
    last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
    message = last[0].strip() if last and not last[0].startswith("$ ") else "it printed nothing"
    return message if code == 2 else f"its job ended with code {code} ({message[:200]}); see {log}"


def _keep(
    shop: StudyJobs, cell: Cell, config: Config, samples: pl.DataFrame, source: Cell | None, seconds: float
) -> None:
    """Predictions of every row, and done.json at the end."""
    run, names = shop.folder.run(cell), shop.rows(cell)
    summary = RunFolder(run).summary() or {}
    labels = list((summary.get("task") or {}).get("labels") or ())
    words = None
    if cell.run.weights is not None and source is not None and shop.scale.train:
        words = _words(shop, source, labels, samples)
    needed = look_ups_needed(config)
    for row, variant in names.items():
        harvest(run, variant, samples, shop.folder.predictions(cell, row), words, needed)
    files = {row: shop.folder.predictions(cell, row) for row in names}
    asked = {row: str(who) for row, name in names.items() if (who := summary.get("answered_by", {}).get(name))}
    differs, unexplained = shop.differences(cell, config, samples, labels), labels_alone(summary, asked)
    shop.folder.finish(cell, {
        "rows": {row: file.name for row, file in files.items()},
        "predictions": {file.name: sha256(file) for file in files.values()},
        "holes": shop.holes(cell), "labels": labels, "answered_by": asked,
        "generated": summary.get("generated"), "credentialed": summary.get("credentialed", True),
        "models": {row: model_numbers(summary, asked.get(row)) for row in names} if cell.run.weights is None else {},
        "seconds": round(seconds, 1), "phases": summary.get("time"), "memory_gb": summary.get("memory_gb"),
        "commit": commit(), "samples": key_of(config), "fingerprint": fingerprint(samples),
        "overrides": shop.overrides(cell), "model_path": model_of(config),
        "differs": {row: [*why, *([LABELS_ALONE] if row in unexplained else [])] for row, why in differs.items()},
        "labels_alone": unexplained,
    })  # fmt: skip


def labels_alone(summary: Mapping[str, Any], asked: Mapping[str, str]) -> list[str]:
    """Rows of trained weights whose SFT, meant to be of explained answers, had labels alone for want of a teacher
    (`envs.real_patients`). asked: row -> who answered it."""
    replaced = "lessons" in (summary.get("lessons") or {})
    return [row for row, who in asked.items() if replaced and who in (SFT, "trained")]


def model_numbers(summary: Mapping[str, Any], who: str | None) -> dict[str, float]:
    """Seconds of training until the best step, and parameters, of a row that `who` answered (`metrics.MODEL_METRICS`).

    Only SFT has the seconds: after RL and other stages the best step is another one.
    """
    numbers: dict[str, float] = {}
    if who in ("base", SFT, "trained") and summary.get("model"):
        numbers["parameters"] = summary["model"]["parameters"]
    if who == SFT and summary.get("best_step"):
        numbers["training_seconds"] = summary["best_step"]["seconds"]
    return numbers


def _keep_outside(shop: StudyJobs, cell: Cell, config: Config, samples: pl.DataFrame) -> None:
    """Predictions of a model from elsewhere, and done.json at the end; the samples lie beside them, for whoever has yet
    to train it."""
    [row] = shop.rows(cell)
    labels, target = labels_of(config), shop.folder.predictions(cell, row)
    try:
        path = file_of(cell)
    except BadInput as error:
        raise BadInput(f"{error}; the samples are in {shop.folder.samples(key_of(config))}") from None
    records = Records(config)
    if records.asks_summaries:
        texts = {one.sample_id: one.text for one in records.texts.splits.test}
        own = read_summaries(path, texts, samples)
    else:
        own = read_outside(path, labels, samples) if labels else read_sets(path, _options(records), samples)
    rest = [pl.lit(None, kind).alias(name) for name, kind in SCHEMA.items() if name not in own.columns]
    frame = own.with_columns(*rest).with_columns(as_replied=pl.col("prediction")).select(list(SCHEMA))
    keep(frame, samples, target, str(path), look_ups_needed(config))
    origin = records.provenance() if records.texts_alone else records.cohort
    shop.folder.finish(cell, {
        "rows": {row: target.name}, "predictions": {target.name: sha256(target)}, "holes": {}, "labels": list(labels),
        "answered_by": {row: path.name}, "source": sha256(path), "generated": origin.generated,
        "credentialed": origin.credentialed, "seconds": 0.0, "phases": None, "memory_gb": None, "commit": None,
        "samples": key_of(config), "fingerprint": fingerprint(samples), "overrides": shop.overrides(cell),
        "differs": shop.differences(cell, config, samples, labels),
    })  # fmt: skip


def _options(records: Records) -> dict[str, int]:
    """How many options each test question of DischargeQA has, by sample id."""
    return {case.sample_id: len(case.reads.options) for case in systems.build(records).cases.test}


def _words(shop: StudyJobs, source: Cell, labels: Sequence[str], samples: pl.DataFrame) -> Translation | None:
    """How replies in the source task's words are read here; None where both have the same words."""
    record = shop.folder.done(source)
    if record is None or record["labels"] == list(labels) or not labels or not record["labels"]:
        return None
    trained = pl.read_parquet(shop.folder.samples(record["samples"]), glob=False)
    return translation(record["labels"], _counts(trained, record["labels"]), labels, _counts(samples, labels))


def _counts(samples: pl.DataFrame, labels: Sequence[str]) -> list[int]:
    train = samples.filter(pl.col("split") == "train")["label"]
    return [int((train == label).sum()) for label in labels]


def versions() -> dict[str, str]:
    """Of Python and of the libraries that numbers depend on."""
    names = ("torch", "transformers", "numpy", "polars", "scikit-learn", "scipy")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}
