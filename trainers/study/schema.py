"""A study: what is trained and played, on which tasks and cohorts, under which seeds, and what is drawn of it.

conf/study/NAME.yaml holds the fields of `Study`, by these names; conf/study/_scales.yaml those of `StudyScale`.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ghar.configure import nearest
from ghar.errors import BadInput
from ghar.trainers.study.metrics import check_metric

Names = tuple[str, ...]
FIRST = "first"  # of a study's cohorts


@dataclass(frozen=True)
class WeightSource:
    """Whose weights a run plays without training any: those of another run, on another task or cohort if named.

    cohort: "first" is the study's first one, and every other cohort plays its weights (out of distribution)."""

    run: str
    task: str | None = None
    cohort: str | None = None


@dataclass(frozen=True)
class StudyRun:
    """What one job trains and plays: a system with keys of its own. Rows of tables are its variants.

    start: another run of the same seed, from whose base model and SFT this one goes on (an ablation of what RL does).
    weights: it trains nothing and plays these (out of distribution).
    pruned_by: another run of the same seed, whose retrievals on training samples prune this one's SFT data.
    train: false where there is nothing to train.
    demo, full: further overrides at a scale below full, and at full. tasks: those it is put to, () for all. paper: keys
    that the paper sets otherwise for this run than for the study. trained: by the paper too, where it leaves the others
    frozen. predictions: a folder of a model from elsewhere,
    whose answers are read (outside.py) and nothing is played.
    """

    name: str
    system: str
    overrides: Names = ()
    demo: Names = ()
    full: Names = ()
    start: str | None = None
    weights: WeightSource | None = None
    pruned_by: str | None = None
    train: bool = True
    tasks: Names = ()
    paper: Mapping[str, Any] = field(default_factory=dict)
    trained: bool = False
    predictions: str | None = None


@dataclass(frozen=True)
class StudyRow:
    """A line of tables: a variant of a run. rule: the variant that stands for it where nothing is trained
    (scale=rules), None where no rule can. x: where it stands on a figure's axis; series: on which line of it. paper:
    keys that the paper sets otherwise for this line. differs: in what this line is another than the paper's, whose
    numbers are then withheld."""

    name: str
    title: str
    run: str
    variant: str
    rule: str | None = None
    x: float | None = None
    series: str = ""
    paper: Mapping[str, Any] = field(default_factory=dict)
    differs: str = ""


@dataclass(frozen=True)
class StudyTable:
    """One table a cohort. rows, tasks, cohorts: () for all of the study's.

    metrics: of trainers/study/metrics.py, of every task. by: a column of the samples whose values part the table
    (rarity, age, sex, ...). published: cohort -> a paper's table beside it (conf/study/_published.yaml). main: what the
    other rows are tested against, None for the study's. draw: how its figure is drawn; axis: what rows' x is, under
    lines.
    """

    name: str
    title: str
    rows: Names = ()
    metrics: Names = ("accuracy", "balanced_accuracy", "macro_f1")
    tasks: Names = ()
    by: str | None = None
    published: Mapping[str, str] = field(default_factory=dict)
    main: str | None = None
    draw: Literal["bars", "lines", "curves", "scatter", "none"] = "bars"
    cohorts: Names = ()
    note: str = ""
    axis: str = ""


@dataclass(frozen=True)
class PaperPart:
    """Further overrides and keys of the cells of a system, a cohort or a task; None is any. closed: keys whose value
    the study cannot set by itself, since they name a model behind a vendor's door. frozen: the paper trains none of
    them."""

    system: str | None = None
    cohort: str | None = None
    task: str | None = None
    overrides: Names = ()
    keys: Mapping[str, Any] = field(default_factory=dict)
    closed: Mapping[str, Any] = field(default_factory=dict)
    frozen: bool = False

    def holds(self, cell: Cell) -> bool:
        wanted = (self.system, self.cohort, self.task)
        return all(w in (None, h) for w, h in zip(wanted, (cell.run.system, cell.cohort, cell.task), strict=True))


@dataclass(frozen=True)
class PaperSetting:
    """What a paper's numbers were made under: a published number stands only beside a cell that was made so.

    overrides: of every cell at scale=full, before the run's own. keys: dotted keys and their values, which a cell must
    hold. where: the same of some cells. frozen: the paper trains nothing, so scale=full does not either, but for runs
    that are `trained`. patients: cohort, or cohort/task where the paper counts one task alone, -> the paper's count.
    differs: sentences for what no key can say, printed under every table with its numbers.
    """

    source: str
    keys: Mapping[str, Any]
    overrides: Names = ()
    where: tuple[PaperPart, ...] = ()
    frozen: bool = False
    patients: Mapping[str, int] = field(default_factory=dict)
    differs: Names = ()

    def patients_of(self, cell: Cell) -> int | None:
        return self.patients.get(f"{cell.cohort}/{cell.task}", self.patients.get(cell.cohort))

    def leaves_frozen(self, cell: Cell) -> bool:
        frozen = self.frozen or any(part.frozen and part.holds(cell) for part in self.where)
        return frozen and not cell.run.trained


@dataclass(frozen=True)
class Study:
    """cohorts: name -> overrides. main: the row that others are tested against. smallest: patients that a group needs
    to be shown. paper: what its published numbers were made under; a study without has none."""

    name: str
    title: str
    about: str
    tasks: Names
    runs: tuple[StudyRun, ...]
    rows: tuple[StudyRow, ...]
    tables: tuple[StudyTable, ...]
    main: str
    cohorts: Mapping[str, Names] = field(default_factory=lambda: {"demo": ("data=demo",)})
    seeds: tuple[int, ...] = (0, 1, 2)
    overrides: Names = ()
    smallest: int = 10
    paper: PaperSetting | None = None

    def run(self, name: str) -> StudyRun:
        return next(run for run in self.runs if run.name == name)

    def row(self, name: str) -> StudyRow:
        return next(row for row in self.rows if row.name == name)


@dataclass(frozen=True)
class StudyScale:
    """How large a study is: overrides of every cell. train: whether anything is trained; else rules play. full: whether
    runs take their `full` overrides, and not their `demo` ones. seeds: None for the study's own."""

    name: str
    train: bool
    overrides: Names = ()
    full: bool = False
    seeds: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Cell:
    """One job: a run on a task of a cohort under a seed."""

    run: StudyRun
    cohort: str
    task: str
    seed: int

    @property
    def id(self) -> str:
        return f"{self.run.name}-{self.cohort}-{self.task}-seed{self.seed}"


def cells_of(study: Study) -> list[Cell]:
    """All cells, sources before those that start from them. Seed by seed: a study that is stopped has all rows of the
    seeds that it came to."""
    order = _in_order(study.runs)
    return [
        Cell(run, cohort, task, seed)
        for seed in study.seeds
        for run in order
        for cohort in study.cohorts
        for task in study.tasks
        if (not run.tasks or task in run.tasks) and (not abroad(run) or cohort != first_cohort(study))
    ]


def abroad(run: StudyRun) -> bool:
    """Whether a run plays the weights of the study's first cohort on every other one."""
    return run.weights is not None and run.weights.cohort == FIRST


def sources_of(run: StudyRun) -> dict[str, str]:
    """Name the runs that have to be finished before this one, each with what this one does with it."""
    sources = {run.pruned_by: "is pruned by", run.weights.run if run.weights else None: "starts from"}
    sources[run.start] = "starts from"
    return {name: how for name, how in sources.items() if name is not None}


def first_cohort(study: Study) -> str:
    return next(iter(study.cohorts))


def source_of(cell: Cell, study: Study) -> Cell | None:
    """The cell whose weights this one starts from or plays, None for one that stands by itself."""
    if cell.run.start is not None:
        return Cell(study.run(cell.run.start), cell.cohort, cell.task, cell.seed)
    if cell.run.weights is not None:
        of = cell.run.weights
        cohort = first_cohort(study) if abroad(cell.run) else of.cohort or cell.cohort
        return Cell(study.run(of.run), cohort, of.task or cell.task, cell.seed)
    return None


def pruner_of(cell: Cell, study: Study) -> Cell | None:
    """The cell whose retrievals prune this one's SFT data, None where nothing is pruned."""
    if cell.run.pruned_by is None:
        return None
    return Cell(study.run(cell.run.pruned_by), cell.cohort, cell.task, cell.seed)


def rows_of(study: Study, run: str) -> list[StudyRow]:
    """The lines of tables that a run plays."""
    return [row for row in study.rows if row.run == run]


def read_study(name: str, values: Any) -> Study:
    """The study that a YAML file holds. BadInput, with the file's key, for whatever is wrong with it."""
    study = made(Study, {"name": name, **(values if isinstance(values, dict) else {})}, f"study={name}")
    for what, names in (("runs", [r.name for r in study.runs]), ("rows", [r.name for r in study.rows]),
                        ("tables", [t.name for t in study.tables])):  # fmt: skip
        if twice := sorted({one for one in names if names.count(one) > 1}):
            raise BadInput(f"study={name}: {what} has {twice[0]} twice: rename one.")
    for sentence in _dangling(study):
        raise BadInput(f"study={name}: {sentence}")
    return study


def study_of(name: str, values: Any, scale: StudyScale, changes: Mapping[str, Any]) -> Study:
    """The study of a YAML file as a command wants it. changes: fields that the command line names."""
    study = read_study(name, values)
    if scale.seeds is not None and "seeds" not in changes:
        study = replace(study, seeds=scale.seeds)
    study = replace(study, **changes)
    if "tasks" in changes:
        study = of_tasks(study)
    for table in study.tables:
        for metric in table.metrics:
            check_metric(metric)
    return study


def of_tasks(study: Study) -> Study:
    """Without what none of its tasks has a part in."""
    def kept(one: Any) -> Any:
        return replace(one, tasks=tuple(task for task in one.tasks if task in study.tasks))

    runs = tuple(kept(run) for run in study.runs if not run.tasks or set(run.tasks) & set(study.tasks))
    names = {run.name for run in runs}
    rows = tuple(row for row in study.rows if row.run in names)
    lines = {row.name for row in rows}
    tables = tuple(
        replace(kept(table), rows=tuple(row for row in table.rows if row in lines))
        for table in study.tables
        if (not table.tasks or set(table.tasks) & set(study.tasks)) and (not table.rows or set(table.rows) & lines)
    )
    return replace(study, runs=runs, rows=rows, tables=tables)


def scales_of(values: Any) -> dict[str, StudyScale]:
    """The scales of conf/study/_scales.yaml."""
    return {name: made(StudyScale, {"name": name, **own}, f"scale={name}") for name, own in values.items()}


def _dangling(study: Study) -> Iterator[str]:
    runs, rows = [run.name for run in study.runs], [row.name for row in study.rows]
    for row in study.rows:
        if row.run not in runs:
            yield f"row {row.name} is of run {row.run}, which the study has not: choose among {', '.join(runs)}."
    for run in study.runs:
        for other, how in sources_of(run).items():
            if other not in runs or other == run.name:
                yield f"run {run.name} {how} {other}, which the study has not as another run."
        if strange := [task for task in run.tasks if task not in study.tasks]:
            yield f"run {run.name} is put to task {strange[0]}, which is not among the study's tasks."
    for table in study.tables:
        for name in filter(None, (*table.rows, table.main)):
            if name not in rows:
                yield f"table {table.name} names row {name}, which the study has not: choose among {', '.join(rows)}."
        if strange := [task for task in table.tasks if task not in study.tasks]:
            yield f"table {table.name} names task {strange[0]}, which is not among the study's tasks."
        if table.published and study.paper is None:
            yield f"table {table.name} has published numbers, and the study no paper: what were they made under?"
    if study.main not in rows:
        yield f"main is {study.main}, which is no row."


def _in_order(runs: Sequence[StudyRun]) -> list[StudyRun]:
    done: list[StudyRun] = []
    left = list(runs)
    while left:
        there = {run.name for run in done}
        ready = [run for run in left if sources_of(run).keys() <= there]
        if not ready:
            names = ", ".join(run.name for run in left)
            raise BadInput(f"runs {names} start from or are pruned by one another in a circle.")
        done += ready
        left = [run for run in left if run not in ready]
    return done


def made(kind: Any, values: Any, where: str) -> Any:
    """A frozen dataclass of plain YAML values. BadInput for unknown, missing and mistyped keys."""
    if not isinstance(values, Mapping):
        raise BadInput(f"{where}: write keys and values, not {values!r:.60}.")
    hints = get_type_hints(kind)
    fields_by_name = {one.name: one for one in fields(kind)}
    for key in values:
        if key not in fields_by_name:
            near = nearest(str(key), list(fields_by_name))
            raise BadInput(f"{where} has no key {key}{f': did you mean {near}?' if near else '.'}")
    for one in fields_by_name.values():
        if one.default is MISSING and one.default_factory is MISSING and one.name not in values:
            raise BadInput(f"{where} lacks {one.name}.")
    return kind(**{key: _value(hints[key], value, f"{where}: {key}") for key, value in values.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType,) or type(None) in inner:
        return None if value is None else _value(next(i for i in inner if i is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise BadInput(f"{where} must be a list.")
        return tuple(_value(inner[0], item, where) for item in value)
    if origin is Literal:
        if value not in inner:
            raise BadInput(f"{where} is {value!r}: choose among {', '.join(map(str, inner))}.")
        return value
    if is_dataclass(hint):
        return made(hint, value, where)
    if origin is not None:  # a mapping
        if not isinstance(value, Mapping):
            raise BadInput(f"{where} must be keys and values.")
        return {str(key): _value(inner[1], item, where) for key, item in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise BadInput(f"{where} is {value!r:.60}, not {hint.__name__}.")
    return value
