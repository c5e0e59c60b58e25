"""Evaluation of any system: its variants on the test cases, their rows and numbers, and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from envs import system as systems
from envs.beside import with_beside
from envs.play import play, stage_of
from envs.records import Records, of_credentialed
from envs.rollout import derive_seed
from envs.system import System, Variant
from envs.upstream import with_selected
from ghar.config import Config
from ghar.disk import full_disk_told
from ghar.errors import BadInput
from ghar.llm.policy import Policy
from ghar.metrics.calibration import temperature
from ghar.metrics.clinical import best_threshold
from ghar.metrics.policy import compare
from ghar.metrics.runfolder import RunFolder, write_whole
from ghar.privacy import ask_gate
from rewards.normalise import Running
from trainers.audited import audited, by_rarity
from trainers.overlap import check_overlap
from trainers.predictions import samples_of, write_predictions
from trainers.report import conclude
from trainers.rows import Ranker, Row, reward_of, rows_of, running_of, summarise
from trainers.runs import checkpoint
from trainers.runs.models import use_cores
from trainers.runs.resume import as_yaml, occupied
from trainers.weights import LAST, Found, answering, find

TITLES = {"test": "Evaluating", "valid": "Calibrating", "train": "Playing"}


class NoOne:
    """Answers variants that ask nothing."""

    def answer(self, acts: Sequence[Any], seeds: Sequence[int]) -> list[Any]:
        raise RuntimeError("a variant without a policy (Variant.who is empty) asked for one")


def evaluate(config: Config) -> dict[str, Any]:
    """Evaluate `eval.variants` of a run on its test split; rewrites summary.json, episodes/ and report.html.

    Weights come from `eval.checkpoint`, by default the run's best; a run that was never trained is evaluated with the
    model as it is. Returns the summary.
    """
    ask_gate(config, lambda: of_credentialed(config))
    with occupied(Path(config.run_dir)), full_disk_told(Path(config.run_dir)):
        return _evaluate(config)


def _evaluate(config: Config) -> dict[str, Any]:
    use_cores(config.threads)
    records = Records(config)
    check_overlap(config, records)
    system = table_of(systems.build(records), records)
    ask_gate(config, lambda: system.credentialed)  # once more, of what has been read
    folder = RunFolder.open(Path(config.run_dir))
    if not (folder.path / "config.yaml").exists():
        folder.write_config(as_yaml(config))
    (folder.path / "episodes" / ".of").unlink(missing_ok=True)  # a resumed training must not take ours for its own
    summary = evaluate_system(system, config, folder)
    rows = {name: list(folder.episodes(name)) for name in config.eval.variants or system.listed}
    write_predictions(folder.path, samples_of(records), system.task.labels, rows)
    return conclude(folder, summary | audited(records) | by_rarity(records, folder))


def table_of(system: System[Any], records: Records) -> System[Any]:
    """The system with all that an evaluation puts into its table: what stands beside it, RLlib's policy, and variants
    that show chosen examples."""
    config = records.config
    shown = with_rllib(with_beside(system, records), config)
    return with_selected(shown, records, config.eval.variants or ())


def with_rllib(system: System[Any], config: Config) -> System[Any]:
    """The system with the variant rllib, where rllib.checkpoint names what RLlib has learned."""
    if config.rllib is None or config.rllib.checkpoint is None:
        return system
    try:
        from trainers.rllib.ppo import decisions_of, load_policy
    except ImportError as error:
        raise BadInput("rllib.checkpoint needs RLlib: pip install '.[ray]', or leave it out.") from error
    path, own = Path(config.rllib.checkpoint), decisions_of(system)
    variant = replace(system.variants[system.main], name="rllib", title="RLlib", who="rllib")
    fixed = {**system.fixed, "rllib": lambda: load_policy(path, own)}
    variants = {**system.variants, "rllib": variant}
    return replace(system, fixed=fixed, variants=variants, listed=(*system.listed, "rllib"))


def evaluate_system(
    system: System[Any], config: Config, folder: RunFolder, resume: bool = False
) -> dict[str, Any]:
    """The parts of summary.json that an evaluation fills in.

    resume: do not play again what an earlier evaluation of the same weights under the same configuration has finished.
    """
    found = find(config)
    names = config.eval.variants or system.listed
    wanted = [system.variant(name) for name in names]
    done = _finished(config, folder, found) if resume else []
    rows = {name: list(folder.episodes(name)) for name in names if name in done}
    for name in rows:
        print(f"Episodes of {name}: finished by an earlier start.")
    judged: dict[str, Any] = {}
    left = [variant for variant in wanted if variant.name not in rows]
    for name, made in played(system, config, found, left, judged, temperatures=True):
        rows[name] = made
        folder.write_episodes(name, made)
    return summary_of(system, config, {name: rows[name] for name in names}, answered_by(system, found, wanted)) | judged


def answered_by(system: System[Any], found: Found, wanted: Sequence[Variant]) -> dict[str, str]:
    """Which weights answered each variant."""
    return {v.name: found.names(v.who) if system.asks_model(v) else v.who or "no one" for v in wanted}


def played(
    system: System[Any],
    config: Config,
    found: Found,
    wanted: Sequence[Variant],
    judged: dict[str, Any] | None = None,
    temperatures: bool = False,
) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each variant, those of one stage of weights together. judged: takes what the system asks the model of
    its main variant at the end (`System.judged`). temperatures: fit one to each trained variant on validation cases."""
    stage_for = {v.name: found.names(v.who) if system.asks_model(v) else "" for v in wanted}
    running, named = _running(system, config, found), set(stage_for.values()) - {""}
    # the policy after RL is made from the one after SFT, in place
    stages = [*sorted(named - set(LAST)), *(stage for stage in LAST if stage in named)]
    if not stages:
        yield from _by_rules(system, config, wanted, running)
        return
    with answering(config, system, found, named) as opened:
        for stage in stages:
            with opened(stage) as answers:
                own = system.read_by(answers.reader)
                rules = [v for v in wanted if not stage_for[v.name]] if stage == stages[0] else []
                yield from _by_rules(own, config, rules, running)
                ranker = None
                if answers.ranker is not None and system.answer is None:
                    ranker = partial(answers.ranker, labels=system.task.labels)
                for variant in (v for v in wanted if stage_for[v.name] == stage):
                    rows = score(own, config, variant, answers.policy, "test", running, ranker)
                    if temperatures and stage != "base":
                        rows = _with_temperature(own, config, variant, answers.policy, rows, running, ranker)
                    yield variant.name, rows
                if judged is not None and own.judged is not None and stage == stages[-1]:
                    judged |= own.judged(answers.policy)


def _by_rules(
    system: System[Any], config: Config, wanted: Sequence[Variant], running: Running | None
) -> Iterator[tuple[str, list[Row]]]:
    made: dict[str, Policy] = {}
    for variant in wanted:
        if variant.who not in made:
            made[variant.who] = system.fixed[variant.who]() if variant.who else NoOne()
        rows = score(system, config, variant, made[variant.who], "test", running, None)
        if not variant.who and any(row["label_probabilities"] is not None for row in rows):  # fitted, quick to ask
            judged = score(system, config, variant, made[variant.who], "valid", running, None)
            rows = with_threshold(rows, judged, system.task.labels)
        yield variant.name, rows


def score(
    system: System[Any],
    config: Config,
    variant: Variant,
    policy: Policy,
    split: str,
    running: Running | None = None,
    ranker: Ranker | None = None,
    most: int | None = None,
) -> list[Row]:
    """Play a split, or its first `most` cases, by a variant and return its rows. Rewards leave out what needs a
    warm-up's references."""
    cases = getattr(system.cases, split)[:most]
    if system.prepare is not None:
        variant = system.prepare(variant, policy)
    stage = stage_of(system, variant, config)
    episodes = play(stage, cases, policy, seed=config.seed, title=f"{TITLES[split]} {variant.name}")
    rewards = [reward_of(system, e, case, running) for e, case in zip(episodes, cases, strict=True)]
    return rows_of(system, variant, cases, episodes, rewards, split, ranker)


def _with_temperature(
    system: System[Any],
    config: Config,
    variant: Variant,
    policy: Policy,
    rows: list[Row],
    running: Running | None,
    ranker: Ranker | None,
) -> list[Row]:
    """The rows with the temperature at which the variant's label probabilities on validation cases are most likely, as
    "temperature"; as they are where nobody knows how probable a label was."""
    if ranker is None or all(row["label_probabilities"] is None for row in rows):
        return rows
    most = config.trainer.rl.eval_samples
    judged = score(system, config, variant, policy, "valid", running, ranker, most)
    if all(row["label_probabilities"] is None for row in judged):
        return rows
    fitted = temperature(judged, system.task.labels)
    return [{**row, "temperature": fitted} for row in with_threshold(rows, judged, system.task.labels)]


def with_threshold(rows: list[Row], judged: Sequence[Row], labels: Sequence[str]) -> list[Row]:
    """The rows with the probability of class 1 from which on to say yes, as "threshold": that of the highest F1 on
    validation rows. As they are where there are not two labels, or no probabilities."""
    known = [row for row in judged if row["label_probabilities"] is not None]
    if len(labels) != 2 or not known:
        return rows
    truth = [labels.index(row["label"]) for row in known]
    at = best_threshold(truth, [min(1.0, row["label_probabilities"][1]) for row in known])
    return [{**row, "threshold": at} for row in rows]


def summary_of(
    system: System[Any], config: Config, rows: Mapping[str, list[Row]], stages: Mapping[str, str]
) -> dict[str, Any]:
    """What summary.json holds of an evaluation."""
    task, cases = system.task, system.cases.test
    draw = {"seed": config.seed, "resamples": config.eval.bootstrap}
    main = system.main if system.main in rows else next(iter(rows))
    pairs = [(main, other) for other in rows if other != main]
    pairs += [pair for pair in system.pairs_of if set(pair) <= rows.keys() and pair not in pairs]
    return {
        "system": config.system.name,
        "generated": system.generated,
        "credentialed": system.credentialed,
        "scale": config.scale.name,
        "experiment": f"{config.task.name} on {config.data.name}",
        "protocol": config.protocol.name,
        "seed": config.seed,
        "task": {"name": task.name, "question": task.question, "labels": list(task.labels)},
        "ceilings": system.ceilings(cases),
        "data": dict(system.counts),
        "titles": {name: system.variants[name].title or name for name in rows},
        "main": main,
        "before": next((name for name in rows if system.variants[name].who == "sft"), None),
        "answered_by": dict(stages),
        "neutralised": {name: sum(row.get("neutralised", 0) for row in found) for name, found in rows.items()},
        "policies": {name: summarise(system, found, **draw) for name, found in rows.items()},
        "differences": {f"{a} - {b}": compare(rows[a], rows[b], **draw) for a, b in pairs},
        **system.summary(rows),
    }


def _running(system: System[Any], config: Config, found: Found) -> Running | None:
    """The normaliser as training left it."""
    running = running_of(system)
    if running is not None and found.step is not None:
        running.load_state_dict(checkpoint.state_of(found.step)["running"])
    return running


def _finished(config: Config, folder: RunFolder, found: Found) -> list[str]:
    """Variants whose episodes were finished by an evaluation of these weights; those of other ones are removed."""
    weights = "" if found.step is None else (found.step / checkpoint.MANIFEST).read_text()
    of, mark = f"{derive_seed(weights, asdict(config)):016x}", folder.path / "episodes" / ".of"
    if not mark.is_file() or mark.read_text() != of:
        for name in folder.episode_names():
            (folder.path / "episodes" / f"{name}.jsonl").unlink()
        write_whole(mark, of)
    return folder.episode_names()
