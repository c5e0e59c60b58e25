"""Evaluation of any system: its variants on the test cases, their rows and numbers, and the report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from ghar.config import Config
from ghar.disk import report_full_disk
from ghar.envs import system as systems
from ghar.envs.baseline_table import with_baselines
from ghar.envs.few_shot import with_selected
from ghar.envs.records import Records, of_credentialed
from ghar.envs.rollout import derive_seed
from ghar.envs.system import RLLIB, System, Variant
from ghar.errors import BadInput
from ghar.heap import release_memory
from ghar.llm.policy import Policy
from ghar.metrics.policy import compare
from ghar.metrics.runfolder import RunFolder, write_whole
from ghar.privacy import ask_gate, keep_log
from ghar.rewards.normalise import RunningNormaliser
from ghar.trainers.evaluation.leakage import audited, by_rarity, keep_groups
from ghar.trainers.evaluation.playing import EvaluationRun, has_probabilities, threshold, with_all
from ghar.trainers.evaluation.predictions import samples_of, write_predictions
from ghar.trainers.evaluation.report import conclude
from ghar.trainers.evaluation.train_test_overlap import check_overlap
from ghar.trainers.evaluation.weights import (
    AnsweringModel,
    RunStages,
    answering,
    check_trained,
    find,
    lacking_variants,
    without_variants,
)
from ghar.trainers.memory import check_machine
from ghar.trainers.rows import Row, description, running_of, summarise
from ghar.trainers.runs import checkpoint
from ghar.trainers.runs.distributed import main_first, on_main, rank, together
from ghar.trainers.runs.manifest import MANIFEST
from ghar.trainers.runs.models import BASE, SFT, model_size, use_cores
from ghar.trainers.runs.resume import as_yaml, hold
from ghar.trainers.runs.samples import Print, data_of, data_print, differences, hold_data, name_of
from ghar.trainers.scale import print_scale
from ghar.trainers.sharding import claim
from ghar.trainers.stages import POLICY_STAGES

AS_LOADED = "(model as loaded)"  # behind the title of a variant of trained weights that a run does not have
OTHERS = "evaluations"  # in a run folder: evaluations on other data than the run's


class NoPolicy:
    """Answers variants that ask nothing."""

    def answer(self, acts: Sequence[Any], seeds: Sequence[int]) -> list[Any]:
        raise RuntimeError("a variant without a policy (Variant.who is empty) asked for one")


def evaluate(config: Config) -> dict[str, Any]:
    """Evaluate `eval.variants` of a run on its test split; rewrites summary.json, episodes/ and report.html.

    With task.max_test=0 its validation samples are played in the test's place, which stays unopened.

    Weights come from `eval.checkpoint`, by default the run's best; a run that was never trained is evaluated with the
    model as it is. An evaluation on other data than the run's writes into a folder of its own, RUN/evaluations/NAME.
    Returns the summary.
    """
    systems.check_variants(config)
    path = Path(config.run_dir)
    with ExitStack() as held, report_full_disk(path), together(None):
        use_cores(config.threads)
        on_main(lambda: ask_gate(config, lambda: of_credentialed(config)))
        keep_log(config)  # of every process
        on_main(lambda: hold(held, path))
        return _evaluate(config)


def _evaluate(config: Config) -> dict[str, Any]:
    records = Records(config)
    on_main(lambda: check_overlap(config, records))
    system = main_first(lambda: table_of(systems.build(records), records))
    on_main(lambda: ask_gate(config, lambda: system.origin.credentialed))  # once more, of what has been read
    lacking = on_main(lambda: lacking_variants(system, find(config), config.eval.variants or ()))
    system = without_variants(system, lacking)
    played = [system.variant(name) for name in config.eval.variants or system.listed]
    if any(map(system.asks_model, played)):  # what rules play loads no model
        on_main(lambda: print_scale(config, training=False))
        on_main(lambda: check_machine(config, training=False))
        on_main(lambda: print_untrained(system, config, played))
        on_main(lambda: check_trained(config, system, played))
    folder = on_main(lambda: _opened(config, data_print(system, records)))
    summary = evaluate_system(system, config, folder)

    def end() -> dict[str, Any]:
        rows = {name: lean(folder, name) for name in config.eval.variants or system.listed}
        write_predictions(folder.path, samples_of(records), system.task.labels, rows)
        keep_groups(records, folder)
        return conclude(folder, summary | audited(records) | by_rarity(records, folder, rows))

    return on_main(end)


def print_untrained(system: System[Any], config: Config, variants: Sequence[Variant]) -> None:
    """Print which variants have the name of a trained policy and are answered by the model as it was loaded."""
    stages = answered_by(system, find(config), variants)
    names = [variant.name for variant in variants if is_untrained(variant, stages[variant.name])]
    if names:
        print(
            f"{config.run_dir} holds no trained weights: the model as it was loaded answers {', '.join(names)}. If you "
            "meant a trained run, check run_dir."
        )


def is_untrained(variant: Variant, stage: str) -> bool:
    """Whether the base model answers a variant of trained weights. stage: which answered it."""
    return stage == "base" != variant.who


def _opened(config: Config, fingerprint: Print) -> RunFolder:
    """The run's folder; of a run of other samples a folder of its own below it, so that no numbers are replaced by
    those of other patients."""
    folder = RunFolder.open(Path(config.run_dir))
    kept = data_of(folder)
    wrong = [] if kept is None else differences(kept, fingerprint, texts=False)
    if wrong:
        folder = RunFolder.open(folder.path / OTHERS / name_of(fingerprint))
        print(f"This run is of other data ({'; '.join(wrong)}): the numbers go to {folder.path}.")
    if kept is None or (wrong and data_of(folder) is None):
        hold_data(folder, fingerprint)
    if not (folder.path / "config.yaml").exists():
        folder.write_config(as_yaml(config))
    (folder.path / "episodes" / ".of").unlink(missing_ok=True)  # a resumed training must not take ours for its own
    return folder


def table_of(system: System[Any], records: Records) -> System[Any]:
    """The system with all that an evaluation puts into its table: what stands beside it, RLlib's policy, and variants
    that show chosen examples."""
    config = records.config
    extended_system = with_rllib(with_baselines(with_method(system, config), records), config)
    return with_selected(extended_system, records, config.eval.variants or ())


def with_method(system: System[Any], config: Config) -> System[Any]:
    """Name rejection-sampling fine-tuning in the titles of trained variants, where trainer.method=rft trained them."""
    if config.trainer.method != "rft":
        return system

    def titled(variant: Variant) -> Variant:
        title = f"{(variant.title or variant.name).replace(' after RL', '')} after RFT"
        return replace(variant, title=title) if variant.who == "trained" else variant

    return system.adapt(
        lambda own: replace(own, variants={name: titled(variant) for name, variant in own.variants.items()})
    )


def with_rllib(system: System[Any], config: Config) -> System[Any]:
    """The system with the variant rllib, where rllib.checkpoint names what RLlib has learned."""
    if config.rllib is None or config.rllib.checkpoint is None:
        return system
    try:
        from ghar.trainers.rllib.ppo import decisions_of, load_policy
    except ImportError as error:
        raise BadInput("rllib.checkpoint needs RLlib: pip install '.[ray]', or leave it out.") from error
    path, decisions = Path(config.rllib.checkpoint), decisions_of(system)

    def with_policy(own: System[Any]) -> System[Any]:
        variant = replace(own.variants[own.main], name=RLLIB, title="RLlib", who=RLLIB)
        fixed = {**own.fixed, RLLIB: lambda: load_policy(path, decisions)}
        variants = {**own.variants, RLLIB: variant}
        report = replace(own.report, listed=(*own.listed, RLLIB))
        return replace(own, fixed=fixed, variants=variants, report=report)

    return system.adapt(with_policy)


def evaluate_system(system: System[Any], config: Config, folder: RunFolder, resume: bool = False) -> dict[str, Any]:
    """The parts of summary.json that an evaluation fills in; every process calls it, and plays its share.

    What a killed evaluation of the same weights under the same configuration has played is not played again. resume:
    nor are whole variants that an earlier one has finished.
    """
    run_stages, parts = on_main(lambda: find(config)), folder.path / "episodes" / ".parts"
    names = config.eval.variants or system.listed
    wanted = [system.variant(name) for name in names]
    of = weights_and_keys(config, run_stages)
    done = on_main(lambda: _finished(folder, of) if resume else [])
    claim(parts, f"{of} {derive_seed([case.sample_id for case in system.cases.test]):016x}")
    finished = [name for name in names if name in done]
    on_main(lambda: [print(f"Episodes of {name}: finished by an earlier start.") for name in finished])
    judged: dict[str, Any] = {}
    left = [variant for variant in wanted if variant.name not in finished]
    for name, rows in played(system, config, run_stages, left, parts, judged, temperatures=True):
        on_main(lambda name=name, rows=rows: folder.write_episodes(name, rows))

    def summed() -> dict[str, Any]:
        rows = {name: lean(folder, name) for name in names}
        summary = summary_of(system, config, rows, answered_by(system, run_stages, wanted)) | judged
        if run_stages.step is not None:
            summary["weights_step"] = checkpoint.step_number(run_stages.step)
        folders = _model_folders(config, run_stages, system.training.stages)
        sizes = (model_size(folder, config.model.path) for folder in folders)
        summary["model"] = next(filter(None, sizes), None)
        shutil.rmtree(parts)
        return summary

    return on_main(summed)


def _model_folders(config: Config, run_stages: RunStages, stages: Iterable[str]) -> list[Path]:
    """Folders in which the model that answers may be saved. stages: of `Training.stages`."""
    home, named = run_stages.home, (config.eval.checkpoint, config.model.path)
    given = (Path(name) for name in named if name is not None)
    return [home / SFT, *given, *(home / stage for stage in stages), home / BASE]


def lean(folder: RunFolder, name: str) -> list[Row]:
    """A variant's rows without the texts that no number is made from: whole histories of all test patients would not
    fit into memory."""
    return [
        {**row, "patient": "", "turns": [{**turn, "prompt": "", "evidence": None} for turn in row["turns"]]}
        for row in folder.episodes(name)
    ]


def answered_by(system: System[Any], run_stages: RunStages, wanted: Sequence[Variant]) -> dict[str, str]:
    """Which weights answered each variant."""
    return {v.name: run_stages.names(v.who) if system.asks_model(v) else v.who or "no one" for v in wanted}


def played(
    system: System[Any],
    config: Config,
    run_stages: RunStages,
    wanted: Sequence[Variant],
    home: Path,
    judged: dict[str, Any] | None = None,
    temperatures: bool = False,
) -> Iterator[tuple[str, Iterable[Row]]]:
    """The rows of each variant, those of one stage of weights together, from the disk: they are played in parts
    (ghar.trainers.sharding) into the folder `home`, by all processes.

    judged: takes what the system asks the model of its main variant (`Reporting.judge`), in process 0.
    temperatures: fit one to each trained variant on validation cases.
    """
    stage_for = {v.name: run_stages.names(v.who) if system.asks_model(v) else "" for v in wanted}
    running, named = _running(system, config, run_stages), set(stage_for.values()) - {""}
    # the policy after RL is made from the one after SFT, in place
    stages = [*sorted(named - set(POLICY_STAGES)), *(stage for stage in POLICY_STAGES if stage in named)]
    if not stages:
        yield from _by_rules(EvaluationRun(system, config, running, home), wanted)
        if judged is not None:
            judged |= _judged(home, None)
        return
    with answering(config, system, run_stages) as opened:
        for stage in stages:
            with opened(stage) as answers:
                own = system.read_by(answers.reader)
                if judged is not None and stage == stages[-1]:  # first: once all is played, no one would ask again
                    judge = own.report.judge
                    judged |= _judged(home, None if judge is None else partial(judge, answers.policy))
                playing = EvaluationRun(own, config, running, home)
                yield from _by_rules(playing, [v for v in wanted if not stage_for[v.name] and stage == stages[0]])
                asked, fits = [v for v in wanted if stage_for[v.name] == stage], temperatures and stage != "base"
                yield from _play_by_model(playing, asked, answers, fits)
            del own, playing, answers  # and the model with them, before that of the next stage is loaded
            release_memory()


def _play_by_model(
    playing: EvaluationRun, wanted: Sequence[Variant], answers: AnsweringModel, temperatures: bool
) -> Iterator[tuple[str, Iterable[Row]]]:
    """The rows of variants that one model answers. temperatures: see `played`."""
    system, ranker = playing.system, None
    if answers.ranker is not None and system.report.answer is None:
        ranker = partial(answers.ranker, labels=system.task.labels)
    for variant in wanted:
        read = playing.play(variant, answers.policy, "test", ranker)
        extra = {}
        if temperatures and ranker is not None and has_probabilities(read()):
            extra = playing.fitted(variant, answers.policy, ranker)
        yield variant.name, with_all(extra, read())


def _judged(home: Path, ask: Callable[[], dict[str, Any]] | None) -> dict[str, Any]:
    """What `ask` says, or said before a kill; nothing in any process but the first."""
    kept = home / "judged.json"
    if rank() == 0 and ask is not None and not kept.is_file():
        write_whole(kept, json.dumps(ask()))
    return json.loads(kept.read_text()) if rank() == 0 and kept.is_file() else {}


def _by_rules(playing: EvaluationRun, wanted: Sequence[Variant]) -> Iterator[tuple[str, Iterable[Row]]]:
    made: dict[str, Policy] = {}
    for variant in wanted:
        if variant.who not in made:
            made[variant.who] = playing.system.fixed[variant.who]() if variant.who else NoPolicy()
        read = playing.play(variant, made[variant.who], "test")
        extra = {}
        if not variant.who and has_probabilities(read()):  # fitted, quick to ask
            judged = list(playing.play(variant, made[variant.who], "valid")())
            extra = threshold(judged, playing.system.task.labels)
        yield variant.name, with_all(extra, read())


def summary_of(
    system: System[Any], config: Config, rows: Mapping[str, list[Row]], stages: Mapping[str, str]
) -> dict[str, Any]:
    """What summary.json holds of an evaluation."""
    cases = system.cases.test
    draw = {"seed": config.seed, "resamples": config.eval.bootstrap}
    main = main_of(system, rows)
    bases = [name for name in rows if name != main and _is_base(system.variants[name], system.variants[main])]
    pairs = [(main, other) for other in rows if other != main]
    pairs += [pair for pair in system.report.comparisons if set(pair) <= rows.keys() and pair not in pairs]
    return {
        "system": config.system.name,
        "generated": system.origin.generated,
        "credentialed": system.origin.credentialed,
        "scale": config.scale.name,
        "experiment": f"{config.task.name} on {config.data.name}",
        "protocol": config.protocol.name,
        "seed": config.seed,
        "method": config.trainer.method,
        **description(system),
        **({} if config.task.played == "test" else {"split": config.task.played}),
        "ceilings": system.truth.upper_bounds(cases),
        "data": dict(system.report.counts),
        "titles": {name: title_of(system.variants[name], stages[name]) for name in rows},
        "main": main,
        "before": next((name for name in rows if system.variants[name].who == "sft"), None),
        "base": next(iter(bases), None),
        "answered_by": dict(stages),
        "neutralised": {
            name: sum(row.get("neutralised", 0) for row in variant_rows) for name, variant_rows in rows.items()
        },
        "policies": {name: summarise(system, variant_rows, **draw) for name, variant_rows in rows.items()},
        "differences": {f"{a} - {b}": compare(rows[a], rows[b], system.report.metric, **draw) for a, b in pairs},
        **system.report.summary(rows),
    }


def title_of(variant: Variant, stage: str) -> str:
    """Name a variant in reports: "after RL" would be untrue of weights that were never trained."""
    title = variant.title or variant.name
    return f"{title} {AS_LOADED}" if is_untrained(variant, stage) else title


def main_of(system: System[Any], rows: Iterable[str]) -> str:
    """Choose the row that others are compared with: the main variant, else the first that a language model plays, else
    the teacher's, and not a baseline that stands before it."""
    names = list(rows)
    played = [name for name in names if system.asks_model(system.variants[name])]
    taught = [name for name in names if system.variants[name].who == system.training.teacher]
    return system.main if system.main in names else [*played, *taught, *names][0]


def _is_base(variant: Variant, main: Variant) -> bool:
    """Whether a variant is the main one as the base model plays it."""
    return variant.who == "base" and variant.spec == main.spec


def _running(system: System[Any], config: Config, run_stages: RunStages) -> RunningNormaliser | None:
    """The normaliser as training left it."""
    running = running_of(system)
    if running is not None and run_stages.step is not None:
        running.load_state_dict(checkpoint.state_of(run_stages.step)["running"])
    return running


def weights_and_keys(config: Config, run_stages: RunStages) -> str:
    """Name all that an evaluation's episodes depend on, besides the samples."""
    step, home = run_stages.step, run_stages.home
    kept = [step] if step is not None else sorted(p.parent for p in home.glob(f"*/{MANIFEST}"))
    weights = [(step / MANIFEST).read_text() for step in kept]
    return f"{derive_seed(weights, asdict(config)):016x}"


def _finished(folder: RunFolder, of: str) -> list[str]:
    """Variants whose episodes were finished by an evaluation of that name; those of other ones are removed."""
    mark = folder.path / "episodes" / ".of"
    if not mark.is_file() or mark.read_text() != of:
        folder.remove_episodes()
        write_whole(mark, of)
    return folder.episode_names()
