"""EXPRAG on DischargeQA: its questions, the corpus of reports, what is rewarded and compared (section 4 of the paper).

Without experience the rule chooses every option, or the first of one that is right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

from ghar.config import Config
from ghar.data.cohort import Task
from ghar.data.readers.notes import Notes
from ghar.data.tasks.splits import Splits, draw, split_by_patient
from ghar.envs.case import Case
from ghar.envs.exprag.baselines import (
    MajorityAnswer,
    OptionFeatures,
    OptionRegression,
    label_pairs,
    of_option,
    right_options,
)
from ghar.envs.exprag.corpus import StayNames, encoder_of, finder_of, make_ranker, ranker_encoder
from ghar.envs.exprag.dischargeqa import (
    ASKED,
    PREFIX,
    DischargeQuestion,
    Kind,
    build_questions,
    count_leaked_options,
    letters,
    question_case,
)
from ghar.envs.exprag.engine_options import options_by_engine
from ghar.envs.exprag.episode import ROLES, ExpragEpisodes, play_exprag, score_options, shows
from ghar.envs.exprag.flare import token_pieces
from ghar.envs.exprag.numbers import compare_questions, question_summary
from ghar.envs.exprag.pretraining import practice
from ghar.envs.exprag.rankers import RankerStudy
from ghar.envs.exprag.report_build import index_reports, queries_of
from ghar.envs.exprag.report_corpus import ReportCorpus
from ghar.envs.exprag.rows import question_row
from ghar.envs.exprag.rule import majority_of_experiences
from ghar.envs.exprag.settings import Settings
from ghar.envs.exprag.upper_bounds import experience_ceilings
from ghar.envs.exprag.variants import (
    LABELS,
    LISTED_QUESTIONS,
    MAIN,
    PAIRS,
    RULE,
    of_questions,
    prompts_of,
    spec_of,
    variants,
)
from ghar.envs.records import Records
from ghar.envs.rollout import derive_seed
from ghar.envs.system import WORDS, GroundTruth, Reader, Reporting, SftExamples, System, Training, Variant
from ghar.episode import Episode
from ghar.errors import BadInput
from ghar.llm.policy import FunctionPolicy
from ghar.retrieval.encoders import Encoder
from ghar.rewards.compose import EpisodeReward

Rows = Sequence[Mapping[str, Any]]


def build_question_system(records: Records, settings: Settings) -> System[DischargeQuestion]:
    """BadInput for an unknown kind of question, for tables without summaries, and where no question can be made."""
    config, kind = records.config, kind_of(records.config.task.name)
    notes, encoder = _notes(records, settings), encoder_of(records.config)
    questions, counts = _questions(records, settings, notes, kind)
    splits = records.limited(questions)
    corpus = _corpus(records, settings, notes, kind, questions, encoder)
    spec = spec_of(config, settings)
    taught = variants(replace(spec, flare=False), ExpragEpisodes)[MAIN]
    habits = records.phenotypes if settings.notes is None else None
    made = System(
        name="exprag",
        task=Task(config.task.name, ASKED[kind][0], ()),
        agents=("top",),
        roles=ROLES,
        cases=Splits(*(tuple(map(question_case, part)) for part in (splits.train, splits.valid, splits.test))),
        episode=play_exprag,
        corpus=corpus,
        reward=partial(_reward, config.reward.eta),
        variants=question_variants(config, settings, WORDS),
        main=MAIN,
        # texts are cut to words, whoever reads them; only FLARE asks a reader for more
        read_by=lambda reader: replace(made, variants=question_variants(config, settings, reader)),
        fixed={
            RULE: partial(FunctionPolicy, majority_of_experiences),
            "usual": partial(FunctionPolicy, MajorityAnswer(splits.train)),
            "options_only": partial(FunctionPolicy, OptionRegression(splits.train, of_option)),
            "background_only": partial(FunctionPolicy, OptionRegression(splits.train, OptionFeatures(corpus.queries))),
        },
        origin=replace(records.provenance(notes), generated=notes.generated),
        training=Training(
            teacher=RULE,
            teacher_variant=taught,
            stages={LABELS: lambda reader: _label_pairs(made.read_by(reader), settings.label_epochs)},
            pretraining=practice(config, splits.train, taught.spec),
            texts=lambda: prompts_of(made.cases.train, taught, corpus, FunctionPolicy(majority_of_experiences), config),
        ),
        report=Reporting(
            listed=LISTED_QUESTIONS,
            row=question_row,
            numbers=_numbers,
            shows=shows,
            summary=partial(_differences, config),
            counts=counts
            | {f"test: {rule}": n for rule, n in count_leaked_options(splits.test).items()}
            | _counts(notes, corpus, splits),
            comparisons=PAIRS,
            answer=_in_letters,
            judge=_ranker_study(records, settings, splits.test, corpus, encoder),
        ),
        truth=GroundTruth(upper_bounds=partial(_ceilings, corpus, habits, settings.top_k, splits.train)),
    )
    return made


def _label_pairs(system: System[DischargeQuestion], epochs: int) -> SftExamples:
    return label_pairs(system.variants[LABELS].spec.episode, system.cases, right_options, epochs)


def kind_of(task: str) -> Kind:
    """What a task of DischargeQA asks for. BadInput for a kind that it has not."""
    kind = task.removeprefix(PREFIX)
    if kind not in get_args(Kind):
        raise BadInput(f"task={task} is none of DischargeQA's: choose {PREFIX}{f', {PREFIX}'.join(get_args(Kind))}.")
    return cast(Kind, kind)


def _notes(records: Records, settings: Settings) -> Notes:
    notes = records.notes(settings.notes)
    if notes is None:
        raise BadInput("system.notes is null: set it to the folder with note/discharge.csv.gz (MIMIC-IV-Note).")
    return notes


def _questions(
    records: Records, settings: Settings, notes: Notes, kind: Kind
) -> tuple[Splits[DischargeQuestion], dict[str, int]]:
    """All questions by split, and how many stays each rule left out."""
    task, rows = records.config.task, (settings.fewest_rows, settings.most_rows)
    words = records.config.env.history_tokens
    made, counts = build_questions(records.source, notes, kind, rows=rows, words=words, seed=task.split_seed)
    if settings.options != "rule":
        credentialed = records.credentialed(records.source, notes)
        made, more = options_by_engine(records.config, settings.options, made, credentialed)
        counts = {**counts, **more}
    return split_by_patient(made, task.split, task.split_seed), counts


def _corpus(
    records: Records,
    settings: Settings,
    notes: Notes,
    kind: Kind,
    questions: Splits[DischargeQuestion],
    encoder: Encoder | None,
) -> ReportCorpus:
    """The reports of all patients, or under leakage=strict of the training patients."""
    cohort, data = records.cohort, records.config.data
    strict = data.leakage == "strict"
    pool: Collection[int] | None = {question.subject_id for question in questions.train} if strict else None
    index = index_reports(cohort, notes, pool, Path(data.cache) / "indexes")
    asking = records.limited(questions)
    stays = [question.visit_id for part in (asking.train, asking.valid, asking.test) for question in part]
    return ReportCorpus(
        index,
        notes,
        queries_of(cohort, stays, strict=strict),
        make_ranker(settings, ASKED[kind][1], index, notes, encoder),
        finder_of(settings, encoder),
        StayNames(cohort.shown.visits, records.described),
    )


def question_variants(config: Config, settings: Settings, reader: Reader) -> dict[str, Variant]:
    """By name, with the words of FLARE as `reader` has them."""
    pieces = partial(token_pieces, reader.tokenizer)
    episodes = partial(ExpragEpisodes, pieces=pieces)
    return variants(spec_of(config, settings), episodes) | of_questions(spec_of(config, settings), episodes)


def _ceilings(
    corpus: ReportCorpus,
    habits: Mapping[int, int] | None,
    top_k: int,
    train: Sequence[DischargeQuestion],
    cases: Sequence[Case[DischargeQuestion]],
) -> dict[str, float] | None:
    return None if habits is None else experience_ceilings(corpus, habits, top_k, train, [case.reads for case in cases])


def _ranker_study(
    records: Records,
    settings: Settings,
    test: Sequence[DischargeQuestion],
    corpus: ReportCorpus,
    encoder: Encoder | None,
) -> RankerStudy | None:
    """On system.judged test questions, drawn; None where that is 0."""
    if not settings.judged:
        return None
    asked = draw(test, settings.judged, derive_seed(records.config.task.split_seed, "judged"))
    visits, names = records.cohort.shown.visits, records.described
    return RankerStudy(records.config, asked, corpus, ranker_encoder(settings, encoder), visits, names)


def _counts(notes: Notes, corpus: ReportCorpus, splits: Splits[DischargeQuestion]) -> dict[str, int]:
    ranked = {"reports": len(notes), "reports that can be ranked": len(corpus.index), **notes.counts}
    return ranked | {"train questions": len(splits.train), "test questions": len(splits.test)}


def _reward(eta: float, episode: Episode, case: Case[DischargeQuestion]) -> EpisodeReward:
    return score_options(episode, case.label, eta)


def _in_letters(case: Case[DischargeQuestion], label: int) -> str:
    return letters(label)


def _numbers(rows: Rows, draw: dict[str, int]) -> dict[str, Any]:
    return question_summary(rows, seed=draw["seed"], resamples=draw["resamples"])


def _differences(config: Config, rows: Mapping[str, Rows]) -> dict[str, Any]:
    """Accuracy and F1 with experience minus those without, where both were played."""
    draw = {"seed": config.seed, "resamples": config.eval.bootstrap}
    pairs = [(a, b) for a, b in ((MAIN, "direct"), *PAIRS) if a in rows and b in rows]
    return {"set_differences": {f"{a} - {b}": compare_questions(rows[a], rows[b], **draw) for a, b in pairs}}
