"""What every environment pays policies that take no thought (launch/benchmark.py trivial), into each room's README.md.

Each system plays the test split of its usual task on generated patients, by the four policies of envs/trivial.py and by
its own rule or teacher; the trained agent of run_dir=... stands beside them in the room of its system, where it was
scored on the same samples. The one reply that is always given is the one that does best on training cases. Navigation,
GHAR's decisions as numbers, has three policies, and all words by rule. Intervals are over patients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envs.system import System
    from ghar.config import Config

ROOT = Path(__file__).resolve().parents[2]
PATIENTS = 400  # generated ones, unless the command line says otherwise
TASKS = {  # a usual task of each
    "ghar": ("task=los",), "kare": ("task=kare_readmission",), "graphwalker": ("task=read",),
    "ehr_rag": ("task=guo_los",), "exprag": ("task=read",),
}  # fmt: skip
CHOOSING = 100  # training cases that choose the one reply
BEGIN, END = "<!-- trivial -->", "<!-- /trivial -->"
INTRO = """The policies of envs/trivial.py, on the test split. Look-ups are a sample's; unreadable is the share of
replies; where a reply is one of several choices and a policy names none, the first is taken."""
TRAINED = "the trained agent"
COLUMNS = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "reward": "reward"}
Row = Mapping[str, Any]


def trivial(
    overrides: Sequence[str], rooms: Path = ROOT / "envs", names: Sequence[str] = tuple(TASKS)
) -> dict[str, Any]:
    """Play every system; writes its table into `rooms`/NAME/README.md. {system: {policy: its numbers}}"""
    found: dict[str, Any] = {}
    for name in names:
        system, config = _system(name, overrides)
        tables = {name: _texts(system, config)}
        if system.decisions is not None:
            tables["Navigation"] = _numbers(system, config)
        found |= {title: {who: summary for who, (summary, _) in table.items()} for title, table in tables.items()}
        about = f"{config.task.name}, {len(system.cases.test)} test samples of {_patients(system)} generated patients"
        text = "\n\n".join(f"{title}, task {about}.\n\n{_table(table)}" for title, table in tables.items())
        command = " ".join(["python launch/benchmark.py trivial", *overrides])
        write_section(rooms / name / "README.md", f"```sh\n{command}\n```\n\n{INTRO}\n\n{text}")
    return found


def _system(name: str, overrides: Sequence[str]) -> tuple[System[Any], Config]:
    from envs import system as systems
    from envs.records import Records
    from launch.entry import load

    config = load([f"system={name}", *TASKS[name], f"data.patients={PATIENTS}", *overrides])
    return systems.build(Records(config)), config


def _patients(system: System[Any]) -> int:
    return len({case.subject_id for case in system.cases.test})


def _texts(system: System[Any], config: Config) -> dict[str, Any]:
    """policy -> (its numbers, its rows), the system's own rule last."""
    from envs.trivial import Says, replies, trivial_policies
    from ghar.data.tasks.splits import Splits
    from trainers.playing import score

    variant = system.taught or system.variants[system.main]  # the same questions, whoever answers
    few = system.cases.train[:CHOOSING]
    learning = replace(system, cases=Splits(few, system.cases.valid, system.cases.test))

    def right(reply: str) -> float:
        return sum(row["correct"] for row in score(learning, config, variant, Says(reply), "train"))

    policies = dict(trivial_policies(system, max(replies(system), key=right)))
    rows = {who: score(system, config, variant, policy, "test") for who, policy in policies.items()}
    if system.teacher is not None:
        rule = system.fixed[system.teacher]()
        rows[f"its own rule ({system.teacher})"] = score(system, config, variant, rule, "test")
    return _summaries(system, config, rows, trained(system, config))


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


def _numbers(system: System[Any], config: Config) -> dict[str, Any]:
    """The same of decisions that are numbers; the best rule by validation reward last."""
    from envs.trivial import trivial_decisions
    from trainers.playing import score

    assert system.decisions is not None  # whoever calls has looked
    own, variant = system.decisions(), system.variants[system.main]

    def reward(rule: Any) -> float:
        return sum(row["reward"] for row in score(system, config, variant, own.policy(rule), "valid"))

    decided = {**trivial_decisions(), "its best rule": max(own.rules, key=reward)}
    rows = {who: score(system, config, variant, own.policy(rule), "test") for who, rule in decided.items()}
    return _summaries(system, config, rows)


def _summaries(
    system: System[Any], config: Config, rows: Mapping[str, Any], trained: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    from ghar.metrics.bootstrap import mean_interval
    from ghar.metrics.policy import compare
    from trainers.rows import summarise

    draw = {"seed": config.seed, "resamples": config.eval.bootstrap}
    last = list(rows)[-1]
    rows = {**rows} if trained is None else {**rows, TRAINED: trained}
    found = {}
    for who, some in rows.items():
        patients = [row["subject_id"] for row in some]
        lookups = mean_interval([row["retrievals"] for row in some], patients=patients, **draw).as_list()
        apart = {"less_rule": compare(some, rows[last], **draw)["accuracy"]} if who != last else {}
        if trained is not None and who != TRAINED:
            apart["less_trained"] = compare(some, trained, **draw)["accuracy"]
        found[who] = summarise(system, some, **draw) | {"lookups": lookups} | apart, some
    return found


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
