"""Several systems on one cohort, one split and one test set: one table, paired differences, costs, one page."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from ghar.config import Config
from ghar.configure import nearest
from ghar.data.cohort import Sample
from ghar.data.tasks.splits import Splits
from ghar.disk import make_folder
from ghar.envs import system as systems
from ghar.envs.baseline_table import borrowed_names
from ghar.envs.records import Records, of_credentialed
from ghar.envs.summaries import TRIVIAL
from ghar.envs.system import System, Variant
from ghar.errors import BadInput
from ghar.metrics import comparison
from ghar.metrics.bootstrap import mean_interval
from ghar.metrics.policy import compare as differences
from ghar.metrics.rows import calls_of, tokens_of
from ghar.metrics.runfolder import RunFolder, write_whole
from ghar.privacy import ask_gate
from ghar.trainers.evaluation.evaluate import answered_by, played, summarise
from ghar.trainers.evaluation.predictions import (
    NAME,
    ExternalModel,
    check_outside,
    outside_rows,
    samples_of,
    write_predictions,
)
from ghar.trainers.evaluation.weights import RunStages, check_trained, find, lacking_variants
from ghar.trainers.rows import Row, description
from ghar.trainers.runs.kept_config import kept_config
from ghar.trainers.runs.models import use_cores
from ghar.trainers.scale import scale_notice
from ghar.yaml_text import parse_yaml

COSTS = {
    "calls": calls_of,
    "tokens": tokens_of,
    "lookups": lambda row: row["retrievals"],
    "seconds": lambda row: row["seconds"],
}
# numbers of a policy that say what it did and what that cost: a file of predictions says neither
EPISODE_NUMBERS = ("retrieval_rate", "iterations", "tokens", "seconds")
SAME = ("data", "task", "seed")  # sections of a run that must be those of the comparison: they make its split


@dataclass(frozen=True)
class ComparedSystem:
    """A system that is to be compared. config: None where it cannot be, for `reason`."""

    name: str
    config: Config | None
    reason: str
    trained: bool = False


@dataclass(frozen=True)
class SystemResults:
    """What a system contributed. rows: by variant; answered: which weights or rule answered each; external: it is a
    model from outside, whose costs are unknown."""

    system: System[Any]
    config: Config
    rows: Mapping[str, list[Row]]
    answered: Mapping[str, str]
    external: bool = False


def compare(
    entries: Sequence[ComparedSystem],
    runs: Sequence[Path],
    wanted: Sequence[str],
    folder: Path | None,
    others: Sequence[ExternalModel] = (),
) -> Row:
    """Evaluate every system that can be put to the task; writes summary.json, episodes/, predictions/ and report.html
    to `folder`.

    others: models from outside, by their predictions. Systems that cannot are listed with the reason. BadInput where
    none can, where a run is of another split, where a patient is in the training set of one system and in the test set
    of another, and as `outside_rows`. Returns the summary.
    """
    entries = [one for entry in entries for one in _of_runs(entry, runs)]
    configs = [entry.config for entry in entries if entry.config is not None]
    for config in configs:
        ask_gate(config, partial(of_credentialed, config))
    for other in others if configs else ():
        check_outside(other, configs[0])
    built, left_out, samples = _build(entries, wanted)
    parts: dict[str, SystemResults] = {}
    on_valid = any(config.task.played == "valid" for _, config, _ in built.values())
    check_patients({name: system for name, (system, _, _) in built.items()}, on_valid)
    plays = {n: _chosen(s, wanted, find(config) if trained else None) for n, (s, config, trained) in built.items()}
    for name, (system, config, trained) in built.items():
        if trained or config.eval.checkpoint is not None:
            check_trained(config, system, plays[name])
    asking = [config for name, (s, config, _) in built.items() if any(map(s.asks_model, plays[name]))]
    notices = [scale_notice(config, training=False) for config in asking]  # what rules play loads no model
    for notice in dict.fromkeys(filter(None, notices)):
        print(notice, flush=True)
    first = next((system for name, (system, _, _) in built.items() if plays[name]), None)
    outside = [] if first is None else [outside_rows(other, first, samples) for other in others]
    if folder is not None:
        make_folder(folder)
    for name, (system, config, trained) in built.items():
        print(f"{name}: {len(system.cases.test)} test samples", flush=True)
        if plays[name]:
            parts[name] = _part(system, config, plays[name], trained)
        else:
            left_out[name] = f"it has none of the variants named, only {', '.join(system.variants)}."
    if not parts:
        raise BadInput("\n".join(f"{name}: {reason}" for name, reason in left_out.items()))
    config = next(iter(parts.values())).config
    for other, (own, rows) in zip(others, outside, strict=True):
        print(f"{other.name}: {len(rows)} of {len(own.cases.test)} test samples", flush=True)
        answered = {NAME: "a model from outside"}
        parts[other.name] = SystemResults(own, config, {NAME: rows}, answered, external=True)
    return _conclude(parts, left_out, folder, samples)


def _build(
    entries: Sequence[ComparedSystem], wanted: Sequence[str]
) -> tuple[dict[str, tuple[System[Any], Config, bool]], dict[str, str], Splits[Sample] | None]:
    """Build the systems that can be compared; return them, the reasons of what is left out, and the samples.

    A system whose wanted variants are all refused for these patients is not built. BadInput where none can be compared,
    and for a wanted variant that no system has.
    """
    left_out = {entry.name: entry.reason for entry in entries if entry.config is None}
    built: dict[str, tuple[System[Any], Config, bool]] = {}
    samples: Splits[Sample] | None = None
    refused: set[str] = set()
    for entry in entries:
        try:
            if entry.config is None:
                continue
            reasons = systems.refused_variants(entry.config)
            left_out |= _refused(entry.name, reasons, _names_of(entry.config), wanted)
            refused |= reasons.keys()
            if entry.name in left_out:
                continue
            records = Records(entry.config)
            system = systems.build(records)
            left_out |= _refused(entry.name, system.refused, tuple(system.variants), wanted)
            if entry.name not in left_out:
                built[entry.name] = system, entry.config, entry.trained
                samples = samples or samples_of(records)
        except BadInput as error:
            left_out[entry.name] = " ".join(str(error).split())
    if not built:
        raise BadInput("\n".join(f"{name}: {reason}" for name, reason in left_out.items()))
    all_variants = dict.fromkeys(variant for system, _, _ in built.values() for variant in system.variants)
    if unknown := [name for name in wanted if name not in all_variants and name not in refused]:
        near = nearest(unknown[0], list(all_variants))
        guess = f" Did you mean {near}?" if near else ""
        raise BadInput(
            f"variants has {unknown[0]}, which no system here has: choose among {', '.join(all_variants)}.{guess}"
        )
    return built, left_out, samples


def _names_of(config: Config) -> list[str] | None:
    """List the variants of a system without those that it borrows for an evaluation's table; None where it lists none.
    No table is read."""
    names, lender = systems.variant_names(config), "baselines"
    if names is None or config.system.name == lender or config.task.name in TRIVIAL:
        return None if names is None else list(names)
    lent = borrowed_names(lender, config)
    return [name for name in names if name not in lent]


def _refused(
    system: str, reasons: Mapping[str, str], own: Sequence[str] | None, wanted: Sequence[str]
) -> dict[str, str]:
    """Map each wanted variant that the patients refuse, SYSTEM.VARIANT, to the reason; SYSTEM alone where they refuse
    all that is wanted of it. reasons: of all refused variants; own: all variants of the system, None if unknown."""
    refused = [name for name in wanted if name in reasons]
    others = [name for name in wanted if name not in reasons and (own is None or name in own)]
    if refused and not others:
        return {system: reasons[refused[0]]}
    return {f"{system}.{name}": reasons[name] for name in refused}


def _of_runs(entry: ComparedSystem, runs: Sequence[Path]) -> list[ComparedSystem]:
    """The entry with the folder of its trained run, as it is where there is none. A further run of the same system,
    trained another way, is an entry of its own, SYSTEM-FOLDER. BadInput for a run of another split."""
    entries: list[ComparedSystem] = []
    for run in runs:
        kept = kept_config(run)
        if kept is None:
            raise BadInput(f"{run} holds no config.yaml: name the folder of a run.")
        if entry.config is None or kept["system"]["name"] != entry.config.system.name:
            continue
        here = parse_yaml(yaml.safe_dump(_plain({name: asdict(entry.config)[name] for name in SAME})))
        for name in SAME:
            there = {k: v for k, v in _section(kept[name]).items() if k != "cache"}
            own = {k: v for k, v in _section(here[name]).items() if k != "cache"}
            if wrong := [k for k in own if there.get(k) != own[k] and not k.startswith("max_")]:
                raise BadInput(
                    f"{run} was trained with other values of {', '.join(f'{name}.{k}' for k in wrong)}: its patients "
                    "are split another way, so it cannot be compared here."
                )
        name = f"{entry.name}-{run.name}" if entries else entry.name
        entries.append(ComparedSystem(name, replace(_as_trained(entry.config, kept), run_dir=str(run)), "", True))
    if len({one.name for one in entries}) < len(entries):
        raise BadInput(f"two runs of {entry.name} lie in folders of one name: rename one, as the table goes by them.")
    return entries or [entry]


def _as_trained(config: Config, kept: Mapping[str, Any]) -> Config:
    """The configuration with the model and the system's own keys of a run."""
    own = replace(config.system, **{k: v for k, v in kept["system"].items() if k != "name"})  # pyright: ignore
    model = replace(config.model, **kept["model"])
    retriever, env = replace(config.retriever, **kept["retriever"]), replace(config.env, **kept["env"])
    return replace(config, system=own, model=model, retriever=retriever, env=env)


def _section(values: Any) -> dict[str, Any]:
    return values if isinstance(values, dict) else {"": values}


def _plain(values: Any) -> Any:
    """Tuples as lists, as a file keeps them."""
    if isinstance(values, dict):
        return {key: _plain(value) for key, value in values.items()}
    return [_plain(value) for value in values] if isinstance(values, list | tuple) else values


def check_patients(built: Mapping[str, System[Any]], on_valid: bool = False) -> None:
    """BadInput where a patient whom one system trains on is a test patient of another. on_valid: the test patients are
    those of validation (task.max_test=0)."""
    for name, system in built.items():
        chosen_on = () if on_valid else system.cases.valid
        seen = {case.subject_id for case in (*system.cases.train, *chosen_on)}
        for other, tested in built.items():
            both = seen & {case.subject_id for case in tested.cases.test}
            if both:
                raise BadInput(f"{len(both)} patients that {name} trains on are test patients of {other}: they cannot "
                               "be compared.")  # fmt: skip


def _chosen(system: System[Any], wanted: Sequence[str], run: RunStages | None) -> list[Variant]:
    """The variants to play: those that are `wanted`, else what the system lists; without a trained run its rules, and
    its main variant by an untrained model. run: the trained one. BadInput where it lacks the weights of one wanted."""
    if wanted:
        named = [name for name in wanted if name in system.variants and name not in system.refused]
        if run is not None and named:
            lacking_variants(system, run, named)
        return [system.variant(name) for name in named]
    if run is not None:
        lacking = lacking_variants(system, run)
        return [system.variants[name] for name in system.listed if name not in lacking]
    listed = [system.variants[name] for name in system.listed]
    every = system.variants.values()
    unlisted = [v for v in every if v.who in system.fixed and v.name not in system.refused]
    rules = [v for v in listed if not system.asks_model(v)] or unlisted
    main = system.variants[system.main]
    return rules if main in rules else [*rules, main]


def _part(system: System[Any], config: Config, variants: Sequence[Variant], trained: bool) -> SystemResults:
    use_cores(config.threads)
    # without a run named in runs=[...] nothing that lies in a default folder is taken for one
    run_stages = (
        find(config) if trained or config.eval.checkpoint else RunStages(Path(config.run_dir) / "untrained", None)
    )
    with TemporaryDirectory(prefix="ghar-compare-") as scratch:
        rows = {name: list(made) for name, made in played(system, config, run_stages, variants, Path(scratch))}
    answered = answered_by(system, run_stages, variants)
    if not run_stages.has_trained_weights(system.training.stages):  # nothing was trained in this run folder
        answered = {name: f"{who} (untrained)" if who == "base" else who for name, who in answered.items()}
    return SystemResults(system, config, {v.name: rows[v.name] for v in variants}, answered)


def _conclude(
    parts: Mapping[str, SystemResults], left_out: Mapping[str, str], folder: Path | None, samples: Splits[Sample] | None
) -> Row:
    """The table, the differences on the samples that all systems have, and the page."""
    first = next(iter(parts.values()))
    config, task, metric = first.config, first.system.task, first.system.report.metric
    draw = {"seed": config.seed, "resamples": config.eval.bootstrap}
    named = {f"{name}.{variant}": (part, rows) for name, part in parts.items() for variant, rows in part.rows.items()}
    shared = set.intersection(*({row["sample_id"] for row in rows} for _, rows in named.values()))
    if not shared:
        raise BadInput("These systems share no test sample, so nothing can be compared: choose a task of visits.")
    kept = {name: [row for row in rows if row["sample_id"] in shared] for name, (_, rows) in named.items()}
    main = _main(parts)
    target = RunFolder.open(folder or Path("runs") / f"compare_{task.name}_{config.data.name}_seed{config.seed}")
    for name, rows in kept.items():
        target.write_episodes(name, rows)
    write_predictions(target.path, samples, task.labels, kept)
    one = next(iter(kept.values()))
    summary = {
        "systems": {name: dict(part.answered) for name, part in parts.items()},
        "left_out": dict(left_out),
        "generated": any(part.system.origin.generated for part in parts.values()),
        "credentialed": any(part.system.origin.credentialed for part in parts.values()),
        **description(first.system),
        "experiment": f"{task.name} on {config.data.name}",
        **({} if config.task.played == "test" else {"split": config.task.played}),
        "seed": config.seed,
        "samples": len(shared),
        "patients": len({row["subject_id"] for row in one}),
        "main": main,
        "ceilings": _ceilings(parts, shared),
        "answered_by": {f"{n}.{v}": who for n, part in parts.items() for v, who in part.answered.items()},
        "policies": {name: _numbers(part, kept[name], **draw) for name, (part, _) in named.items()},
        "differences": {f"{main} - {o}": differences(kept[main], kept[o], metric, **draw) for o in kept if o != main},
        "when": time.strftime("%Y-%m-%d"),
    }
    target.write_summary(summary)
    write_whole(target.path / "report.html", comparison.page(summary, kept))
    print(comparison.table(summary))
    print(f"Report: {target.path / 'report.html'}")
    return summary


def _ceilings(parts: Mapping[str, SystemResults], shared: set[str]) -> dict[str, float] | None:
    """Best possible accuracies on the samples that all systems have, of the first system that knows them."""
    for part in parts.values():
        bounds = part.system.truth.upper_bounds([case for case in part.system.cases.test if case.sample_id in shared])
        if bounds is not None:
            return dict(bounds)
    return None


def _main(parts: Mapping[str, SystemResults]) -> str:
    """What the others are compared with: the first system's trained variant, else its first one."""
    name, part = next(iter(parts.items()))
    main = part.system.main
    return f"{name}.{main if main in part.rows else next(iter(part.rows))}"


def _numbers(part: SystemResults, rows: Sequence[Row], seed: int, resamples: int) -> Row:
    """The numbers of a variant with its costs; of a model from outside those of its predictions alone."""
    numbers = summarise(part.system, rows, seed=seed, resamples=resamples)
    if part.external:
        return {name: value for name, value in numbers.items() if name not in EPISODE_NUMBERS}
    return numbers | _costs(rows, seed=seed, resamples=resamples)


def _costs(rows: Sequence[Row], seed: int, resamples: int) -> Row:
    patients = [row["subject_id"] for row in rows]
    return {
        name: mean_interval([cost(row) for row in rows], patients=patients, seed=seed, resamples=resamples).as_list()
        for name, cost in COSTS.items()
    }
