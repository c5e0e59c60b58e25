"""What every environment pays policies that take no thought (benchmarks/run.py trivial), onto each room's page.

Each system plays the test split of its demo by the four policies of envs/trivial.py and by its own rule or teacher; the
agent that was trained in FOLDER/NAME stands beside them, on the same samples. The one reply that is always given is the
one that does best on training cases. Navigation, GHAR's decisions as numbers, has three policies, words by rule, and
RLlib's PPO of FOLDER/navigation. Intervals are over patients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import trivial_walks

if TYPE_CHECKING:
    from ghar.config import Config
    from ghar.envs.system import System

ROOT = Path(__file__).resolve().parents[1]
DEMOS = {
    "ghar": "+experiment=mimic4_los", "kare": "+experiment=kare_demo", "graphwalker": "+experiment=graphwalker_demo",
    "ehr_rag": "+experiment=ehr_rag_demo", "exprag": "+experiment=exprag_demo", "ghar_all": "system=ghar_all",
}  # fmt: skip
PAGES = {name: f"envs/{name}/README.md" for name in DEMOS} | {"ghar_all": "docs/four-sources.md"}
NAVIGATION = "navigation"  # the run of launch/train_rllib.py
CHOOSING = 100  # drawn training cases that choose the one reply
BEGIN, END = "<!-- trivial -->", "<!-- /trivial -->"
INTRO = """The policies of envs/trivial.py, on the test split. Look-ups are a sample's; unreadable is the share of
replies; where a reply is one of several choices and a policy names none, the first is taken."""
TRAINED = "the trained agent"
COLUMNS = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "reward": "reward"}
Row = Mapping[str, Any]


def trivial(
    overrides: Sequence[str],
    folder: Path,
    root: Path = ROOT,
    names: Sequence[str] = tuple(DEMOS),
    steps: int = trivial_walks.STEPS,
) -> dict[str, Any]:
    """Play every system; writes its table onto its page below `root`. {system: {policy: its numbers}}

    folder: where trained runs are, each under its system's name. steps: of training on ghar/GraphWalker-v0."""
    result: dict[str, Any] = {}
    for name in names:
        system, config = _system(name, [*overrides, f"run_dir={folder / name}"])
        tables = {name: _texts(system, config)}
        if name == "ghar":
            tables["Navigation"] = _numbers(system, config, folder / NAVIGATION)
        result |= {title: {who: summary for who, (summary, _) in table.items()} for title, table in tables.items()}
        about = f"{config.task.name}, {len(system.cases.test)} test samples of {_patients(system)} generated patients"
        text = "\n\n".join(f"{title}, task {about}.\n\n{_table(table)}" for title, table in tables.items())
        command = " ".join(["python benchmarks/run.py trivial", *overrides])
        if name == "graphwalker":
            result["walks"] = own = trivial_walks.walks(steps)
            text += f"\n\nghar/GraphWalker-v0, walks over generated patients.\n\n{trivial_walks.table(own)}"
        write_section(root / PAGES[name], f"```sh\n{command}\n```\n\n{INTRO}\n\n{text}")
    return result


def _system(name: str, overrides: Sequence[str]) -> tuple[System[Any], Config]:
    from ghar.envs import system as systems
    from ghar.envs.records import Records
    from ghar.launch.entry import load

    config = load([DEMOS[name], *overrides])
    return systems.build(Records(config)), config


def _patients(system: System[Any]) -> int:
    return len({case.subject_id for case in system.cases.test})


def _texts(system: System[Any], config: Config) -> dict[str, Any]:
    """policy -> (its numbers, its rows), the system's own rule last."""
    from ghar.data.tasks.splits import Splits
    from ghar.envs.trivial import constant_policy, replies, trivial_policies
    from ghar.trainers.evaluation.playing import score

    variant = system.teacher_variant()  # the same questions, whoever answers
    learning = replace(system, cases=Splits(choosing_cases(system, config), system.cases.valid, system.cases.test))

    def right(reply: str) -> float:
        return sum(row["correct"] for row in score(learning, config, variant, constant_policy(reply), "train"))

    policies = dict(trivial_policies(system, max(replies(system), key=right)))
    rows = {who: score(system, config, variant, policy, "test") for who, policy in policies.items()}
    if system.training.teacher is not None:
        rule = system.fixed[system.training.teacher]()
        rows[f"its own rule ({system.training.teacher})"] = score(system, config, variant, rule, "test")
    return _summaries(system, config, rows, trained(system, config))


def choosing_cases(system: System[Any], config: Config) -> tuple[Any, ...]:
    """Training cases that choose the one reply: drawn, as the first ones are all stays of a few patients."""
    from ghar.data.tasks.splits import draw

    return tuple(draw(system.cases.train, CHOOSING, config.task.split_seed, system.block))


def trained(system: System[Any], config: Config) -> list[dict[str, Any]] | None:
    """What the trained agent of run_dir did on the test samples, None where there is no such run."""
    from ghar.errors import BadInput
    from ghar.metrics.runfolder import RunFolder

    run, name = Path(config.run_dir), system.main
    if not (run / "episodes" / f"{name}.jsonl").exists():
        return None
    rows = list(RunFolder.open(run).episodes(name))
    if {row["sample_id"] for row in rows} != {case.sample_id for case in system.cases.test}:
        raise BadInput(f"{run} was scored on other samples than these: give the data keys of that run.")
    return rows


def _numbers(system: System[Any], config: Config, run: Path) -> dict[str, Any]:
    """The same of decisions that are numbers; the best rule by validation reward last. run: of RLlib's PPO."""
    from ghar.envs.trivial import trivial_decisions
    from ghar.trainers.evaluation.playing import score

    assert system.truth.decisions is not None  # whoever calls has looked
    own, variant = system.truth.decisions(), system.variants[system.main]

    def reward(rule: Any) -> float:
        return sum(row["reward"] for row in score(system, config, variant, own.policy(rule), "valid"))

    decided = {**trivial_decisions(), "its best rule": max(own.rules, key=reward)}
    rows = {who: score(system, config, variant, own.policy(rule), "test") for who, rule in decided.items()}
    return _summaries(system, config, rows, _by_rllib(system, config, run))


def _by_rllib(system: System[Any], config: Config, run: Path) -> list[dict[str, Any]] | None:
    """What the policy that RLlib has trained in a run does on the test samples, None where there is none."""
    from ghar.trainers.evaluation.playing import score

    checkpoint = run / "checkpoints" / "rllib"
    if not checkpoint.exists():
        return None
    from ghar.trainers.rllib.ppo import load_policy

    assert system.truth.decisions is not None
    policy = load_policy(checkpoint, system.truth.decisions())
    return score(system, config, system.variants[system.main], policy, "test")


def _summaries(
    system: System[Any], config: Config, rows: Mapping[str, Any], trained: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    from ghar.metrics.bootstrap import mean_interval
    from ghar.metrics.policy import compare
    from ghar.trainers.rows import summarise

    draw = {"seed": config.seed, "resamples": config.eval.bootstrap}
    last = list(rows)[-1]
    rows = {**rows} if trained is None else {**rows, TRAINED: trained}
    summaries = {}
    for who, some in rows.items():
        patients = [row["subject_id"] for row in some]
        lookups = mean_interval([row["retrievals"] for row in some], patients=patients, **draw).as_list()
        apart = {"less_rule": compare(some, rows[last], **draw)["accuracy"]} if who != last else {}
        if trained is not None and who != TRAINED:
            apart["less_trained"] = compare(some, trained, **draw)["accuracy"]
        summaries[who] = summarise(system, some, **draw) | {"lookups": lookups} | apart, some
    return summaries


def _table(table: Mapping[str, Any]) -> str:
    heads = ["policy", *COLUMNS.values(), "look-ups", "unreadable", "less its rule's", "less the trained agent's"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for who, (numbers, _) in table.items():
        cells = [_cell(numbers.get(column), 3 if column != "reward" else 2) for column in COLUMNS]
        cells += [_cell(numbers["lookups"], 1), _share(numbers.get("format_errors"))]
        cells.append(_cell(numbers.get("less_rule"), 3))
        cells.append(_cell(numbers.get("less_trained"), 3) or ("" if TRAINED in table else "not measured"))
        lines.append(f"| {who} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(interval: Any, digits: int) -> str:
    if not isinstance(interval, list) or None in interval:
        return ""
    return "{:.{d}f} [{:.{d}f}, {:.{d}f}]".format(*interval, d=digits)


def _share(interval: Any) -> str:
    return "" if interval is None else f"{interval[0]:.0%}"


def write_section(readme: Path, text: str) -> None:
    """Put `text` between the markers of a README, which get a heading of their own at its end where they are not there
    yet."""
    from ghar.metrics.runfolder import write_whole

    old = readme.read_text() if readme.exists() else ""
    if BEGIN not in old:
        old = f"{old.rstrip()}\n\n## Policies that take no thought\n\n{BEGIN}\n{END}\n".lstrip()
    before, _, rest = old.partition(BEGIN)
    write_whole(readme, f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
