"""EHR-RAG as a system: its cases, stores, variants and fixed rule, from the records of a task of visits.

What a case may know is every event up to and including its prediction time, with charts. Where a task predicts at the
end of a stay (los under data.leakage=paper), that is the whole stay with its times: see README.md of this room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ghar.config import Config
from ghar.data.stay_records import stay_records
from ghar.data.tasks.question_files import MEDQA
from ghar.data.tasks.summary_files import SUMMARY
from ghar.envs.case import Case
from ghar.envs.ehr_rag.baselines import LINEAR, Regressions
from ghar.envs.ehr_rag.cases import EventCases, event_cases
from ghar.envs.ehr_rag.episode import AGENTS, ROLES, EhrRagEpisodes, EhrRagSpec, EventReading, Method
from ghar.envs.ehr_rag.ether import EtherSpec
from ghar.envs.ehr_rag.evidence_recall import compute_evidence_bound, gains, score_evidence
from ghar.envs.ehr_rag.label_only import LABELS, USUAL, label_examples, usual_answer
from ghar.envs.ehr_rag.pretraining import practice
from ghar.envs.ehr_rag.rows import Row, event_row, shows, variant_numbers
from ghar.envs.ehr_rag.rule import RuleReader
from ghar.envs.ehr_rag.rule_fit import RecordFeatures, fit_features, read_features
from ghar.envs.ehr_rag.settings import Settings
from ghar.envs.ehr_rag.stores import EventLookups, Stores, clock_for, open_stores
from ghar.envs.ehr_rag.texts import (
    QuestionEpisodes,
    SummaryEpisodes,
    build_texts,
    text_refusals,
    text_variant_names,
)
from ghar.envs.ehr_rag.variants import MAIN, METHODS, READER, linear, variants
from ghar.envs.records import Records
from ghar.envs.system import WORDS, GroundTruth, Reader, Reporting, System, Training, Variant
from ghar.envs.worlds.histories.truth import LongTruth
from ghar.episode import Act, Completion, Episode, EpisodeGenerator, Prediction
from ghar.errors import BadInput
from ghar.llm.policy import Policy
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import score_outcome

SEARCHING = ("rag", "no_ether", "react")  # methods that look for chunks of all events
REHEARSED = {"direct": 0.2, "rag": 0.2, "no_der": 0.2}  # they predict, which `MAIN` never does: small models unlearn it
FOLDS = 5  # of training patients
EXAMPLES = 50  # patients whose records the demo's tokenizer is made from


def build(records: Records, settings: Settings) -> System[EventReading]:
    """EHR-RAG on the task of `records`. BadInput as `event_cases` and `load_encoder` raise it, and
    for vectors of patients where a record is a hospital stay's."""
    if records.texts_alone:
        return build_texts(records, settings)
    config = records.config
    stays = stay_records(records.charted, Path(config.data.cache) / "cohorts")
    if settings.embeddings is not None and stays.record_of_visit is not None:
        raise BadInput(
            "system.embeddings has vectors of patients at a time, and hospital stays of a patient have no order in the "
            f"{records.charted.name}: leave it out."
        )
    cases = event_cases(records, stays, clock_for(config.data.leakage, config.task.name))
    played = ("ehr_rag", "ehr_rag_sft", "ehr_rag_base", LABELS, "direct", "rag", "uniform", "rule", "react")
    listed = (*played, USUAL, *linear(settings))
    names = config.eval.variants or listed
    rehearsed = REHEARSED if config.env.prompts == "compact" else {}
    asked = (*names, *rehearsed)
    stores = open_stores(records, stays, settings, any(name.removeprefix("scripted_") in SEARCHING for name in asked))
    room = EhrRagParts(config, settings, cases, stores, records.charted.names(), records.cohort.generated)
    keys = {case.reads.place: (case.reads.record, case.reads.prediction_time) for case in cases.all}
    windows = settings.recent_days, settings.early_days
    spec = EtherSpec(settings.alpha, *windows, settings.candidates, settings.recent_values)
    fitted = Regressions(cases, stores, stays.cohort, settings.embeddings, config.seed)
    labels = cases.task.labels

    def read_by(reader: Reader) -> System[EventReading]:
        return replace(made, episode=room.player(reader, fitted).episode)

    made = System(
        name="ehr_rag",
        task=cases.task,
        agents=AGENTS,
        roles=ROLES,
        cases=cases.splits,
        episode=room.player(WORDS, fitted).episode,
        corpus=EventLookups(stores, keys, spec, config.seed),
        reward=partial(outcome, config.reward.eta, settings),
        variants=variants(settings),
        main=MAIN,
        read_by=read_by,
        decides=("weigh", "predict"),
        fixed={READER: lambda: room.reader},
        origin=records.provenance(records.charted),
        training=Training(
            teacher=READER,
            rehearsal=rehearsed,
            stages={LABELS: lambda reader: label_examples(read_by(reader), config, settings.label_epochs)},
            pretraining=practice(records, (settings, spec)),
            texts=room.texts,
        ),
        report=Reporting(
            listed=listed,
            row=event_row,
            shows=shows,
            numbers=partial(variant_numbers, labels),
            summary=partial(summarise_run, fitted, records.long_truth, config.eval.bootstrap),
            counts=records.counts() | cases.counts,
            comparisons=[("scripted", f"scripted_{name}") for name in METHODS if name != MAIN],
        ),
        truth=GroundTruth(upper_bounds=partial(_ceilings, records)),
    )
    return made


def variant_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the variants that `build` makes or refuses."""
    if config.task.name in (MEDQA, SUMMARY):
        return text_variant_names(config.task.name == SUMMARY, settings)
    return tuple(variants(settings))


def refused_variants(config: Config, settings: Settings) -> Mapping[str, str]:
    """Map the variants that texts cannot be asked about to the sentence that refuses them."""
    texts = config.task.name in (MEDQA, SUMMARY)
    return text_refusals(config.task.name == SUMMARY, settings) if texts else {}


def role_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the roles of the system that `build` makes."""
    kinds = {MEDQA: QuestionEpisodes, SUMMARY: SummaryEpisodes}
    return kinds.get(config.task.name, EhrRagEpisodes).roles


def outcome(eta: float, settings: Settings, episode: Episode, case: Case[EventReading]) -> EpisodeReward:
    """The outcome, weighted by `eta`; where it is known which rows tell, also what was found of them less what the
    searches cost."""
    if not case.reads.gold:
        return score_outcome(episode, case.label, eta)
    evidence_gains = gains(episode, case.reads.gold)
    return score_evidence(episode, case.label, eta, evidence_gains, recall=settings.recall, cost=settings.cost)


def _ceilings(records: Records, cases: Sequence[Case[EventReading]]) -> Mapping[str, float] | None:
    truth = records.long_truth
    return truth.ceilings(case.subject_id for case in cases) if truth is not None else None


def summarise_run(
    fitted: Regressions, truth: LongTruth | None, resamples: int, rows: Mapping[str, Sequence[Row]]
) -> dict[str, Any]:
    """What summary.json has besides: of the regressions {"shots": {name: {training samples a class: numbers}}}, and
    where the truth is known {"found_ceilings": {variant: best accuracy with what it found}}."""
    numbers: dict[str, Any] = {"shots": {name: fitted.numbers(name, resamples) for name in LINEAR if name in rows}}
    if truth is not None:
        ceilings = {name: compute_evidence_bound(truth.switches, played) for name, played in rows.items()}
        numbers["found_ceilings"] = {name: value for name, value in ceilings.items() if value is not None}
    return numbers


@dataclass(frozen=True, eq=False)
class EhrRagPlayer:
    """Plays a case as a variant says. methods: its episodes, by method. usual: the usual answer."""

    methods: Mapping[str, EhrRagEpisodes]
    stores: Stores
    fitted: Regressions = field(repr=False)
    usual: Prediction

    def episode(self, case: Case[EventReading], variant: Variant) -> EpisodeGenerator:
        """An episode of the variant's method. The store that it reads is open before its first look-up."""
        if variant.spec in (USUAL, *LINEAR):
            return self._without_model(case, variant.spec)
        self.stores.open(variant.spec)
        return self.methods[variant.spec].episode(case)

    def _without_model(self, case: Case[EventReading], name: Any) -> EpisodeGenerator:
        yield from ()
        return self.usual if name == USUAL else self.fitted.predict(case, name)


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """Asks about each training patient a rule that has not seen his label. fold_of: training patient -> fold; folds:
    rules fitted without the patients of a fold; whole: for everybody else."""

    fold_of: Mapping[int, int]
    folds: Sequence[Policy]
    whole: Policy

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        completions = []
        for act, seed in zip(acts, seeds, strict=True):
            fold = self.fold_of.get(act.facts["case"].subject_id)
            rule = self.whole if fold is None else self.folds[fold]
            completions += rule.answer([act], [seed])
        return completions


@dataclass(frozen=True, eq=False)
class EhrRagParts:
    """What one configuration's variants share. names: of codes."""

    config: Config
    settings: Settings
    cases: EventCases
    stores: Stores
    names: Mapping[str, str]
    generated: bool = True

    def player(self, reader: Reader, fitted: Regressions) -> EhrRagPlayer:
        """Evidence within system.tokens as `reader` counts, and within half of what it can read."""
        tokens = self.settings.tokens
        if reader.context is not None:
            tokens = min(tokens, reader.context // 2)
        made = {name: EhrRagEpisodes(self._spec(name, tokens), reader.count) for name in METHODS}
        usual = usual_answer(self.cases.splits.train, len(self.cases.task.labels))
        return EhrRagPlayer(made, self.stores, fitted, usual)

    def _spec(self, method: Method, tokens: int) -> EhrRagSpec:
        own = self.settings
        return EhrRagSpec(
            prompts=self.config.env.prompts,
            method=method,
            iterations=own.iterations,
            chunks=own.chunks,
            coarse=own.indicators,
            keep=own.indicators_kept,
            whole=-(-own.rows // own.chunk_rows),
            rows=own.rows,
            tokens=tokens,
        )

    @cached_property
    def reader(self) -> Policy:
        """The fixed rule, fitted to the training samples; of real patients, where it may teach the very patients whose
        labels it has seen, one rule for each fold of patients, fitted without them."""
        train, values = self.cases.splits.train, self.settings.recent_values
        event_records = self.stores.records(train, apart=True)
        examples = [(case, read_features(record, self.names, values))
                    for case, record in zip(train, event_records, strict=True)]  # fmt: skip
        if self.generated:
            return self._fitted(examples)
        people = sorted({case.subject_id for case in train})
        fold_of = {subject: place % FOLDS for place, subject in enumerate(people)}
        folds = [self._fitted([one for one in examples if fold_of[one[0].subject_id] != fold]) for fold in range(FOLDS)]
        return CrossFitted(fold_of, folds, self._fitted(examples))

    def _fitted(self, train: Sequence[tuple[Case[EventReading], RecordFeatures]]) -> RuleReader:
        labels, classes = [case.label for case, _ in train], len(self.cases.task.labels)
        features, values = [features for _, features in train], self.settings.recent_values
        return RuleReader(fit_features(features, labels, classes, self.names, values))

    def texts(self) -> list[str]:
        """The rows and trajectories of some training records."""
        lines: list[str] = []
        for record in self.stores.records(self.cases.splits.train[:EXAMPLES], apart=True):
            measured = record.trajectory_lines(record.indicators, self.settings.recent_values)
            lines += [*record.text(range(record.rows)), *(line for line, *_ in measured)]
        return lines
