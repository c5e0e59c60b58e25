"""Evaluation: policies by name on a split, their numbers, their episodes, and the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from envs.case import Case
from envs.ghar.teacher import ScriptedTeacher
from envs.rollout import derive_seed
from ghar.config import Config
from ghar.data.demo.world import ceilings
from ghar.episode import Episode
from ghar.errors import BadInput
from ghar.llm.engines import make_engine
from ghar.llm.policy import EnginePolicy, ForcedPolicy, Policy
from ghar.metrics.policy import compare, policy_summary
from ghar.metrics.report import conclude
from ghar.metrics.runfolder import RunFolder, write_whole
from rewards.compose import score_episode
from rewards.normalise import Running
from trainers.demo import TEACHER, teacher_knowledge
from trainers.engines import serving
from trainers.label_scores import label_probabilities
from trainers.play import episode_row, needs_retrieval, play
from trainers.runs import checkpoint
from trainers.runs.models import SFT, identity, load_sft, make_actor, use_cores
from trainers.study import Study, prepare

WORDLESS = {"scripted", "rllib"}  # policies that ask no language model
Ranker = Callable[[Sequence[Episode]], Sequence[Sequence[float] | None]]
CURVE_RESAMPLES = 200  # intervals of a learning curve; final numbers use eval.bootstrap


def score_policy(
    study: Study,
    cases: Sequence[Case],
    policy: Policy,
    name: str,
    split: str,
    running: Running | None = None,
    ranker: Ranker | None = None,
) -> list[dict[str, Any]]:
    """Play `cases` and return their episode rows. Rewards leave out R_rank, which needs references.

    ranker: gives the rows their label probabilities.
    """
    episodes = play(study, cases, policy, seed=study.config.seed, title=f"Evaluating {name}")
    return rows_of(study, cases, episodes, name, split, running, ranker)


def rows_of(
    study: Study,
    cases: Sequence[Case],
    episodes: Sequence[Episode],
    name: str,
    split: str,
    running: Running | None = None,
    ranker: Ranker | None = None,
) -> list[dict[str, Any]]:
    """Rows of episodes that have been played; see `score_policy`."""
    needs = needs_retrieval(study, cases)
    probabilities = ranker(episodes) if ranker is not None else [None] * len(episodes)
    return [
        episode_row(
            case,
            episode,
            score_episode(episode, case.label, study.rewards, None, running),
            needs[case.sample_id],
            policy=name,
            split=split,
            label_probabilities=found,
        )
        for case, episode, found in zip(cases, episodes, probabilities, strict=True)
    ]


def summarise(study: Study, rows: Sequence[dict[str, Any]], resamples: int) -> dict[str, Any]:
    """The numbers of one policy."""
    return policy_summary(rows, study.task.labels, seed=study.config.seed, resamples=resamples)


def evaluate(config: Config) -> dict[str, Any]:
    """Evaluate `eval.policies` of a trained run on its test split; rewrites summary.json, episodes/ and report.html.

    Weights come from `eval.checkpoint` (a step folder), by default the run's best one. Returns the summary.
    """
    use_cores(config.threads)
    study = prepare(config)
    folder = RunFolder.open(Path(config.run_dir))
    (folder.path / "episodes" / ".of").unlink(missing_ok=True)  # a resumed training shall not take ours for its own
    return conclude(folder, evaluate_study(study, folder), table)


def evaluate_study(study: Study, folder: RunFolder, resume: bool = False) -> dict[str, Any]:
    """The parts of summary.json that an evaluation fills in.

    resume: do not play again what an earlier evaluation of the same weights under the same configuration has finished.
    """
    config = study.config
    if WORDLESS.issuperset(config.eval.policies):
        return _evaluate_wordless(study, folder)
    checkpoints = folder.path / "checkpoints"
    step = weights_step(config, checkpoints)
    home = step.parent if step is not None else checkpoints
    base, tokenizer = load_sft(config, home)
    cases = study.cases(study.splits.test, tokenizer)
    engine = make_engine(config, base, tokenizer)
    ranker = partial(label_probabilities, engine, tokenizer, labels=study.task.labels)
    played = _played(config, folder, step) if resume else []
    rows: dict[str, list[dict[str, Any]]] = {}

    def run(names: Sequence[str], running: Running | None) -> None:
        learned = EnginePolicy(engine, temperature=0)
        policies: dict[str, Policy] = {
            "ghar_sft": learned,
            "ghar_rl": learned,
            "llm_only": ForcedPolicy(learned, {"retrieve": "no"}),
            "always_rag": ForcedPolicy(learned, {"retrieve": "yes"}),
        }
        for name in names:
            if name in played:
                print(f"Episodes of {name}: finished by an earlier start.")
                rows[name] = list(folder.episodes(name))
                continue
            policy = _wordless(study, name, tokenizer) if name in WORDLESS else policies[name]
            asked = None if name in WORDLESS else ranker
            rows[name] = score_policy(study, cases, policy, name, "test", running, asked)
            folder.write_episodes(name, rows[name])

    running = _running(config)
    wanted = config.eval.policies
    if step is None:
        if "ghar_rl" in wanted:
            raise BadInput(f"{checkpoints} holds no checkpoint of RL: train it, or leave ghar_rl out of eval.policies.")
        with serving(engine, base, 0):
            run(wanted, running)
    else:
        actor = make_actor(config, base)
        found = checkpoint.load(step, identity(config, actor, tokenizer))
        if running is not None:
            running.load_state_dict(found.state["running"])
        with serving(engine, base, 0):
            run([name for name in wanted if name in ("scripted", "ghar_sft")], running)
        actor.load_trainable_state(found.weights)
        with serving(engine, actor, 1):
            run([name for name in wanted if name not in ("scripted", "ghar_sft")], running)
    engine.close()
    return _summary(study, cases, rows)


def _evaluate_wordless(study: Study, folder: RunFolder) -> dict[str, Any]:
    """`evaluate_study` where no language model is asked, so that none need have been trained."""
    cases, rows, running = study.cases(study.splits.test, None), {}, _running(study.config)
    for name in study.config.eval.policies:
        rows[name] = score_policy(study, cases, _wordless(study, name, None), name, "test", running)
        folder.write_episodes(name, rows[name])
    return _summary(study, cases, rows)


def _running(config: Config) -> Running | None:
    return Running() if config.reward.normalise == "running" else None


def _wordless(study: Study, name: str, tokenizer: Any | None) -> Policy:
    if name == "scripted":
        return ScriptedTeacher(teacher_knowledge(study, study.cases(study.splits.train, tokenizer)), TEACHER)
    try:
        from trainers.rllib.ppo import load_policy
    except ImportError as error:
        raise BadInput("Policy rllib needs RLlib: pip install '.[ray]', or leave it out of eval.policies.") from error
    assert study.config.eval.navigation is not None  # ghar.configure asks for it
    return load_policy(Path(study.config.eval.navigation), study)


def _summary(study: Study, cases: Sequence[Case], rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    config = study.config
    return {
        "generated": study.cohort.generated,
        "credentialed": study.cohort.credentialed,
        "scale": config.scale.name,
        "experiment": f"{config.task.name} on {config.data.name}",
        "seed": config.seed,
        "task": {"name": study.task.name, "question": study.task.question, "labels": list(study.task.labels)},
        "ceilings": _ceilings(study, cases),
        "data": dict(study.counts),
        "policies": {name: summarise(study, rows[name], config.eval.bootstrap) for name in config.eval.policies},
        "differences": _differences(config, rows),
    }


def _played(config: Config, folder: RunFolder, step: Path | None) -> list[str]:
    """Policies whose episodes were finished by an evaluation of these weights; those of other ones are removed."""
    weights = "" if step is None else (step / checkpoint.MANIFEST).read_text()
    of, mark = f"{derive_seed(weights, asdict(config)):016x}", folder.path / "episodes" / ".of"
    if not mark.is_file() or mark.read_text() != of:
        for name in folder.episode_names():
            (folder.path / "episodes" / f"{name}.jsonl").unlink()
        write_whole(mark, of)
    return folder.episode_names()


def _differences(config: Config, rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """ghar_rl against every other policy, paired by patient."""
    draw = {"seed": config.seed, "resamples": config.eval.bootstrap}
    others = [name for name in rows if name != "ghar_rl"] if "ghar_rl" in rows else []
    return {f"ghar_rl - {other}": compare(rows["ghar_rl"], rows[other], **draw) for other in others}


def weights_step(config: Config, checkpoints: Path) -> Path | None:
    """The checkpoint asked for: eval.checkpoint, else the best; None where nothing was trained by RL."""
    if config.eval.checkpoint is None:
        return checkpoint.find(checkpoints, "best")
    step = Path(config.eval.checkpoint)
    if not (step / "manifest.json").is_file() and not (step.parent / SFT).is_dir():
        raise BadInput(f"eval.checkpoint={step} is no checkpoint: name a folder such as RUN/checkpoints/step-10.")
    return step


def _ceilings(study: Study, cases: Sequence[Case]) -> dict[str, float] | None:
    """Best possible accuracy on exactly these cases; known for the demo world under leakage=paper only."""
    if study.world is None or study.config.data.leakage != "paper":
        return None
    found = ceilings(study.world.root, [case.visit_id for case in cases], study.config.task.name)
    return {"parametric": found.parametric, "retrieval": found.retrieval}


def table(summary: dict[str, Any]) -> str:
    """The policies' main numbers as text."""
    columns = ("accuracy", "macro_f1", "auroc", "reward", "retrieval_rate", "when_f1", "iterations", "tokens")
    lines = [f"{'policy':12}" + "".join(f"{c:>24}" for c in columns)]
    for name, numbers in summary["policies"].items():
        cells = [_cell(numbers.get(c)) for c in columns]
        lines.append(f"{name:12}" + "".join(f"{cell:>24}" for cell in cells))
    if summary.get("ceilings"):
        lines.append("ceilings on accuracy: " + ", ".join(f"{k} {v:.3f}" for k, v in summary["ceilings"].items()))
    if summary["generated"]:
        lines.append("These patients are generated; the numbers say nothing about real ones.")
    return "\n".join(lines)


def _cell(interval: Sequence[float] | None) -> str:
    return "-" if interval is None else "{:.3f} [{:.3f}, {:.3f}]".format(*interval)


