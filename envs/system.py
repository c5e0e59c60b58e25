"""`System`: all that training, evaluation and comparison know of a published system, or of a sixth one.

A room (envs/NAME/, or a user's own module) has two names: `Settings`, a frozen dataclass of its keys whose first field
is `name: str`, and `build(records, settings) -> System`, which reads the records without any model. `system=NAME`
imports envs.NAME; a name with a dot is imported as it stands. Nothing has to be registered. With `variant_names(config,
settings)` beside `build`, which lists all variants, borrowed baselines too (`baseline_table.borrowed_names`), a wrong
name in eval.variants is refused before tables are read; with `refused_variants(config, settings)`, so is one of
`System.refused`, which it maps to the reason; with `role_names(config, settings)`, which lists the roles, so is a wrong
one in env.reply_tokens; with `refused_numbers(config, settings)`, so is what RLlib cannot learn from. A room whose
tasks are its own may have `drawn(records, settings) -> (task, splits)`, for statistics of samples that `build` would
first encode.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from ghar.configure import nearest
from ghar.data.tasks.visits import VISIT_TASKS
from ghar.envs.case import Case, R
from ghar.envs.reply_budget import with_budgets
from ghar.envs.rollout import Corpus
from ghar.episode import Act, Episode, EpisodeGenerator, Passage
from ghar.errors import BadInput
from ghar.extensions import is_module
from ghar.llm.policy import Policy
from ghar.provenance import UNKNOWN, Provenance
from ghar.rewards.compose import EpisodeReward

if TYPE_CHECKING:
    from ghar.config import Config
    from ghar.data.cohort import Task
    from ghar.data.tasks.splits import Splits
    from ghar.envs.records import Records

STAGES = ("trained", "sft", "base")  # whose weights a variant can ask for
RLLIB = "rllib"  # the variant that rllib.checkpoint plays


def mark_of(case: Any) -> bool:
    """Whether a case, or the start of a walk, is of a credentialed patient; one without a mark is."""
    return getattr(case, "credentialed", True) is not False


def words(text: str) -> int:
    """Words of a text: what stands for tokens before there is a tokenizer."""
    return len(text.split())


@dataclass(frozen=True)
class Reader:
    """Who reads a system's prompts, as far as the system may know.

    count: tokens of a text. context: tokens that a prompt and its reply may have, None where that is unknown.
    engine, tokenizer: of a language model, for systems that ask how probable a text is; None where a rule reads.
    """

    count: Callable[[str], int] = words
    context: int | None = None
    engine: Any = None
    tokenizer: Any = None


WORDS = Reader()  # rules, and the texts a tokenizer is made from


@dataclass(frozen=True)
class Variant:
    """One way to play a system: a method, an ablation, a selector, a forced decision. Each is a row of a table.

    title: as tables and reports show it. spec: what `System.episode` reads of it.
    who: whose answers: "trained" (after RL, else of the newest stage there is), "sft", "base", or the name of one of
        `Training.stages` or `System.fixed`; "" where the episode asks no one.
    forced: role -> the reply that stands in place of the agent's own.
    """

    name: str
    title: str = ""
    spec: Any = None
    who: str = "trained"
    forced: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RewardShaping:
    """A reward that training itself adds to: references from the warm-up, and a running normaliser.

    opposite: the policy that a negative reference is played by, given the teacher. reference: of a right episode and of
    its opposite. costs: (term, raw value) of an episode, for the normaliser. reward: with a case's reference and the
    normaliser, either of them None.
    """

    opposite: Callable[[Policy], Policy]
    reference: Callable[[Episode, Episode], Any]
    costs: Callable[[Episode], Iterable[tuple[str, float]]]
    reward: Callable[[Episode, Any, Any, Any], EpisodeReward]
    running: bool = False


@dataclass(frozen=True)
class DemoPretraining:
    """How the demo's base model is made on the spot; a pretrained model needs none.

    key: changes with everything that the exercises are made from. exercises: `total` of them, given a seed.
    packaged: folder of base models that come with the package, each in a folder named by its recipe.
    """

    key: tuple[Any, ...]
    exercises: Callable[[int, int], PretrainingTasks]
    packaged: Path | None = None


@dataclass(frozen=True)
class PretrainingTasks:
    """episodes: whose replies are imitated. names: words worth a token of their own. shares: of the exercises, by
    role. copying: whether the untrained model's heads begin by copying, for exercises that are matching and no more."""

    episodes: Sequence[Episode]
    names: Sequence[str]
    shares: Mapping[str, float]
    copying: bool = False


class Example(NamedTuple):
    """One training example: the reply to imitate after a prompt.

    choices: the replies it is one of, () for a free text. weight: against other examples, however long it is; None
    where every token counts alike.
    """

    prompt: str
    reply: str
    choices: tuple[str, ...] = ()
    weight: float | None = 1.0


@dataclass(frozen=True)
class SftExamples:
    """Training examples that a system writes itself, in place of a teacher's right episodes (KARE's distillation).

    The weights with the lowest loss on `valid` are kept. epochs: over `train`; None is trainer.warmup.epochs.
    """

    train: Sequence[Example]
    valid: Sequence[Example]
    about: Mapping[str, Any] = field(default_factory=dict)
    epochs: int | None = None


@dataclass(frozen=True)
class Decisions:
    """A system's decisions as numbers, for learners that read no text (launch/train_rllib.py).

    game: of some cases, for the views. policy: decides by a function of observations, masks and agents, and speaks by
    rules. rules: such functions by hand; the best of them is the scripted optimum.
    """

    game: Callable[[Sequence[Any]], Any]
    policy: Callable[[Callable[..., list[int]]], Policy]
    rules: Sequence[Callable[..., list[int]]]


@dataclass(frozen=True)
class Training:
    """What a system gives to SFT, to RL and to the demo's base model. The default has nothing to imitate.

    teacher: the policy of `System.fixed` that the warm-up imitates; teacher_variant: how it plays, where not as `main`.
    rehearsal: further variants that it plays, each with this share of the samples, to prevent forgetting of them.
    examples: training examples in place of a teacher's episodes, given a reader.
    stages: further weights by name, which a variant can ask for as it asks for "sft": the base model after SFT on other
        examples.
    shaping: of the reward, in training alone.
    pretraining: tasks of the demo's base model: None leaves it untrained; a name takes those of another system.
    texts: of prompts, for the tokenizer of a demo model without pretraining.
    """

    teacher: str | None = None
    teacher_variant: Variant | None = None
    rehearsal: Mapping[str, float] = field(default_factory=dict)
    examples: Callable[[Reader], SftExamples] | None = None
    stages: Mapping[str, Callable[[Reader], SftExamples]] = field(default_factory=dict)
    shaping: RewardShaping | None = None
    pretraining: DemoPretraining | str | None = None
    texts: Callable[[], Sequence[str]] = lambda: ()


@dataclass(frozen=True)
class Reporting(Generic[R]):
    """What a system adds to rows, to summary.json and to the table of an evaluation.

    listed: names of the variants that an evaluation plays by default, None for all.
    row: columns of an episode's row. numbers: of a variant's rows, where they are not those of a classifier.
    summary: further parts of summary.json, given the rows by variant. counts: of what was read.
    comparisons: pairs of variants besides those of `main` with each other one.
    shows: whether the prompt of an act shows something of a passage, by default its whole text.
    baselines: a system whose variants ask no one and stand in the same table. answer: a label in words.
    metric: the main number, by which variants are compared: accuracy, or one that rows have under "likeness".
    judge: parts of summary.json that a language model is asked for: the policy of `main`, or of another variant that
        was played by a language model. None where there is nothing to ask.
    """

    listed: Sequence[str] | None = None
    row: Callable[[Episode, Case[R], Variant], dict[str, Any]] = lambda episode, case, variant: {}
    numbers: Callable[[Sequence[Mapping[str, Any]], dict[str, int]], dict[str, Any]] | None = None
    summary: Callable[[Mapping[str, Sequence[Mapping[str, Any]]]], dict[str, Any]] = lambda rows: {}
    counts: Mapping[str, Any] = field(default_factory=dict)
    comparisons: Sequence[tuple[str, str]] = ()
    shows: Callable[[Act, Passage], bool] = lambda act, passage: passage.text in act.prompt
    baselines: str | None = None
    answer: Callable[[Case[R], int], str] | None = None
    judge: Callable[[Policy], dict[str, Any]] | None = None
    metric: str = "accuracy"

    def chosen_by(self, select: str) -> str:
        """Name the number that the best weights are chosen by: `metric` in the place of accuracy, else `select`."""
        return self.metric if select == "accuracy" else select


@dataclass(frozen=True)
class GroundTruth(Generic[R]):
    """What only a generated world can say. The default knows nothing, as of real patients.

    needs: whether a case needs retrieval. upper_bounds: best possible accuracies on some cases.
    decisions: the system's decisions as numbers.
    """

    needs: Callable[[Case[R]], bool | None] = lambda case: None
    upper_bounds: Callable[[Sequence[Case[R]]], Mapping[str, float] | None] = lambda cases: None
    decisions: Callable[[], Decisions] | None = None


@dataclass(frozen=True)
class System(Generic[R]):
    """One system on one task of one cohort. R: what it reads of a sample besides the record (`Case.reads`).

    name: of the system. task: name, question, labels. agents, roles: all that its acts can name.
    cases: by split, cut to what `read_by` was last given. episode: of a case, as a variant plays it.
    reward: of a finished episode and its case, without what training adds (`Training.shaping`).
    variants: by name, in the order of tables; main: the one that is trained, and that others are compared with.
    read_by: the same system for another reader: its texts cut to a budget, its corpus with an engine to ask.
    fixed: policies by name that are no language model. decides: roles whose reply is the prediction.
    refused: variants by name that these patients cannot be asked about, with the sentence that says why.
    prepare: what a variant has to learn before it is played, from the policy that will play it.
    partitions: of the corpus, where it has some (GHAR may ask it: system.sources).
    block: so many neighbouring cases are balanced only together; a draw takes all of them.
    corpus_prompts: that the corpus has the model read for a case, at most, besides those of its episode; for plans.
    """

    name: str
    task: Task
    agents: tuple[str, ...]
    roles: tuple[str, ...]
    cases: Splits[Case[R]]
    episode: Callable[[Case[R], Variant], EpisodeGenerator]
    corpus: Corpus
    reward: Callable[[Episode, Case[R]], EpisodeReward]
    variants: Mapping[str, Variant]
    main: str
    _: KW_ONLY
    read_by: Callable[[Reader], System[R]]
    fixed: Mapping[str, Callable[[], Policy]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    decides: tuple[str, ...] = ("predict",)
    prepare: Callable[[Variant, Policy], Variant] = lambda variant, policy: variant
    partitions: Sequence[Any] = ()
    block: int = 1
    corpus_prompts: Callable[[Variant], float] = lambda variant: 0.0
    origin: Provenance = UNKNOWN
    training: Training = field(default_factory=Training)
    report: Reporting[R] = field(default_factory=lambda: Reporting())
    truth: GroundTruth[R] = field(default_factory=lambda: GroundTruth())

    def adapt(self, change: Callable[[System[R]], System[R]]) -> System[R]:
        """Apply `change` to this system, and to what it is for any other reader."""
        return replace(change(self), read_by=lambda reader: self.read_by(reader).adapt(change))

    def with_trivial(self, variant: Variant, policy: Policy) -> System[R]:
        """This system with a variant that `policy` answers, listed first: a trivial baseline beside its methods."""
        return replace(
            self,
            variants={**self.variants, variant.name: variant},
            fixed={**self.fixed, variant.who: lambda: policy},
            report=replace(self.report, listed=(variant.name, *self.listed)),
        )

    @property
    def listed(self) -> tuple[str, ...]:
        """Names of the variants that an evaluation plays by default."""
        return tuple(self.variants if self.report.listed is None else self.report.listed)

    def variant(self, name: str) -> Variant:
        """BadInput, with all names and the nearest, for one that it has not, and for one that is refused."""
        if name in self.refused:
            raise BadInput(self.refused[name])
        if name not in self.variants:
            raise BadInput(_unknown_variant(self.name, name, list(self.variants)))
        return self.variants[name]

    def teacher_variant(self) -> Variant:
        """The variant that the teacher plays in the warm-up."""
        return self.training.teacher_variant or self.variants[self.main]

    @property
    def is_trainable(self) -> bool:
        """Whether a language model answers the main variant."""
        return bool(self.agents) and self.asks_model(self.variants[self.main])

    def asks_model(self, variant: Variant) -> bool:
        """Whether a language model answers it, and not a rule or no one."""
        return variant.who in STAGES or variant.who in self.training.stages

    def in_words(self, case: Case[R], label: int | None) -> str | None:
        """A label as rows have it."""
        if label is None:
            return None
        words = self.report.answer
        return self.task.labels[label] if words is None else words(case, label)


def room(name: str, part: str) -> ModuleType:
    """The module of system `name` that has `part` ("Settings", "build", "sections"): the folder's module of that
    purpose (settings.py, system.py, report.py), or the name itself where that is one module.

    BadInput for a name that leads nowhere.
    """
    home = name if "." in name else f"ghar.envs.{name}"
    inside = f"{home}.{({'Settings': 'settings', 'build': 'system', 'sections': 'report'})[part]}"
    for path in (inside, home):
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is None or not (path == error.name or path.startswith(f"{error.name}.")):
                raise  # the module is there, and something that it imports is not
    raise BadInput(f"system={name} leads to no module {home}: name a folder of envs/, or a module of your own.")


def settings_of(name: str) -> type:
    """The Settings of a system, a dataclass. BadInput for a system without."""
    module = room(name, "Settings")
    if not hasattr(module, "Settings"):
        raise BadInput(f"system={name}: {module.__name__} has no Settings; see envs/system.py.")
    return module.Settings


def _unknown_variant(system: str, name: str, valid: Sequence[str], refused: Collection[str] = ()) -> str:
    """refused: of the valid ones those that are not suggested; one that was meant has a reason of its own."""
    near = nearest(name, valid)
    guess = f" Did you mean {near}?" if near else ""
    playable = ", ".join(one for one in valid if one not in refused)
    return f"system {system} has no variant {name}: choose among {playable}.{guess}"


def variant_names(config: Config) -> tuple[str, ...] | None:
    """List the variants that the configured system may have, before any table is read, by `variant_names(config,
    settings)` beside its `build`; None where it has no such function. Some data lack a few of them."""
    settings = config.system
    listed = getattr(room(settings.name, "build"), "variant_names", None)
    return None if listed is None else tuple(listed(config, settings))


def refused_variants(config: Config) -> Mapping[str, str]:
    """Map variants that the configured patients cannot be asked about to the reason, before any table is read, by
    `refused_variants(config, settings)` beside the system's `build`; empty where it has no such function."""
    settings = config.system
    refusals = getattr(room(settings.name, "build"), "refused_variants", None)
    return {} if refusals is None else refusals(config, settings)


def check_variants(config: Config) -> None:
    """BadInput, with the nearest name, for an entry of eval.variants that the system has on no data, and for one that
    `refused_variants` names; for rllib.checkpoint as `check_numbers`. What else the data decide is left to
    `System.variant`."""
    if _plays_rllib(config):
        check_numbers(config)
    if config.eval.variants is None:
        return
    own, refused = variant_names(config), refused_variants(config)
    valid = [*(own or ()), *((RLLIB,) if _plays_rllib(config) else ())]
    plain_names = list(map(_without_examples, config.eval.variants))
    for name, plain in zip(config.eval.variants, plain_names, strict=True):
        if own is not None and plain not in valid:
            raise BadInput(_unknown_variant(config.system.name, name, valid, refused))
    for plain in plain_names:
        if plain in refused:
            raise BadInput(refused[plain])


def _plays_rllib(config: Config) -> bool:
    return config.rllib is not None and config.rllib.checkpoint is not None


def no_numbers(name: str) -> str:
    """Say that a system has no decisions as numbers."""
    return f"system {name} shows its decisions as text alone, which RLlib does not read."


def check_numbers(config: Config) -> None:
    """BadInput, before any table is read, where the configured system has no decisions as numbers for these patients
    (`GroundTruth.decisions`): where `refused_numbers(config, settings)` beside its `build` returns a reason, and for a
    folder of envs/ without that function. Of a module of one's own without it, `build` decides."""
    settings = config.system
    refusal = getattr(room(settings.name, "build"), "refused_numbers", None)
    if refusal is not None:
        reason = refusal(config, settings)
    else:
        reason = None if "." in settings.name else no_numbers(settings.name)
    if reason is not None:
        raise BadInput(reason)


def _without_examples(name: str) -> str:
    """The variant of few_shot.py's VARIANT_with_ROOM.SELECTOR, and any other name as it is."""
    plain, _, selector = name.partition("_with_")
    return plain if "." in selector else name


def role_names(config: Config) -> tuple[str, ...] | None:
    """List the roles of the configured system before any table is read, by `role_names(config, settings)` beside its
    `build`; None where it has no such function."""
    settings = config.system
    listed = getattr(room(settings.name, "build"), "role_names", None)
    return None if listed is None else tuple(listed(config, settings))


def check_budgets(config: Config, roles: Sequence[str] | None = None) -> None:
    """BadInput for a role in env.reply_tokens that the system has not, or a budget below 1. roles: of the system,
    `role_names` if None; where it lists none, `build` checks."""
    if not config.env.budgets:
        return
    named, valid = config.system.name, role_names(config) if roles is None else roles
    if valid is None:
        return
    if not valid:
        raise BadInput(f"system {named} has no roles that reply, so env.reply_tokens sets nothing: leave it out.")
    choose = f"set whole numbers from 1 on for {', '.join(valid)}"
    for role, tokens in config.env.budgets.items():
        if role not in valid:
            near = nearest(role, valid)
            guess = f" Did you mean {near}?" if near else ""
            raise BadInput(f"env.reply_tokens names {role}, a role that system {named} has not: {choose}.{guess}")
        if tokens < 1:
            raise BadInput(f"env.reply_tokens gives {role} {tokens} tokens, and a reply needs one: {choose}.")


def drawn_samples(records: Records) -> tuple[Task, Splits[Any]]:
    """The configured task and its samples by split, as every system is given them, or as the configured one draws its
    own: by `drawn(records, settings)` beside its `build`, else its cases, for which it is built."""
    task, settings = records.config.task.name, records.config.system
    if task in (*VISIT_TASKS, "labels") or is_module(task):
        return records.task, records.splits
    if records.texts_alone:
        return records.texts.task, records.texts.splits
    module = room(settings.name, "build")
    if hasattr(module, "drawn"):
        return module.drawn(records, settings)
    system = build(records)
    return system.task, system.cases


def build(records: Records) -> System[Any]:
    """The system that the configuration of `records` names, its acts with the budgets of env.reply_tokens. BadInput
    where it cannot be put to this task."""
    settings: Any = records.config.system
    module = room(settings.name, "build")
    if not hasattr(module, "build"):
        raise BadInput(f"system={settings.name}: {module.__name__} has no build(records, settings).")
    system: System[Any] = module.build(records, settings)
    if not (budgets := records.config.env.budgets):
        return system
    if not hasattr(module, "role_names"):
        check_budgets(records.config, system.roles)
    return system.adapt(lambda own: replace(own, episode=with_budgets(own.episode, budgets)))
