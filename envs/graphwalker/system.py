"""GraphWalker and the other demonstration selectors as one `System`: whose cases are shown, then the prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, cast

from ghar.config import Config
from ghar.data.cohort import Task
from ghar.data.tasks.question_files import MEDQA, ChoiceQuestion
from ghar.data.tasks.samples import TextSample
from ghar.data.tasks.splits import Splits
from ghar.data.tasks.summary_files import SUMMARY
from ghar.envs.case import Case
from ghar.envs.graphwalker.clinical_texts import reference_examples, text_refusals, texts_material
from ghar.envs.graphwalker.corpus import Examples, ExamplesCorpus, SelectExamples, earlier, prompts_before
from ghar.envs.graphwalker.episode import (
    INFERENCE_ROLES,
    EncoderSpec,
    ExampleEpisodes,
    ExampleSpec,
    SelectorSpec,
    prompt_text,
    tokens_behind,
)
from ghar.envs.graphwalker.medical_questions import exams_material
from ghar.envs.graphwalker.numbers import ClinicalNumbers
from ghar.envs.graphwalker.pool import EncodedCases, SelectionPool, cut_to, everyone
from ghar.envs.graphwalker.probability import AGENT
from ghar.envs.graphwalker.react import Looks
from ghar.envs.graphwalker.rows import SelectionRows
from ghar.envs.graphwalker.rule import CopiedSummary, RarestShared, majority_of_examples
from ghar.envs.graphwalker.selectors.protocol import EVERY, Name, Patient
from ghar.envs.graphwalker.selectors.rare_items import rarity
from ghar.envs.graphwalker.series import PREFIX, series_material, series_splits
from ghar.envs.graphwalker.settings import Settings
from ghar.envs.graphwalker.visits import WITHOUT_SERIES, visits_material
from ghar.envs.real_patients import labels_teach
from ghar.envs.records import Records
from ghar.envs.summaries import TRIVIAL, with_summaries
from ghar.envs.system import WORDS, Example, GroundTruth, Reader, Reporting, SftExamples, System, Training, Variant
from ghar.episode import Episode
from ghar.errors import BadInput
from ghar.llm.policy import FunctionPolicy
from ghar.provenance import Provenance
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import score_outcome

NAME, MAIN, RULE, ALIKE, COPY = "graphwalker", "graphwalker", "majority", "rarest_shared", "copy"
SUPERVISED, EPOCHS = "supervised", 10  # the paper's SFT: of labels, without examples; validation keeps the best epoch
LISTED = (
    MAIN, f"{MAIN}_sft", f"{MAIN}_base", "zero_shot", "random_choice", "semantic_emb", "scripted_zero_shot",
)  # fmt: skip
# ask nothing of a model
SCRIPTED: tuple[Name, ...] = ("random_choice", "semantic_emb", "ehr_emb", "rare_items", "zero_shot")
ENCODER = "encoder"  # a variant of time series: its prediction without a language model
TAUGHT, USUAL = "scripted_semantic_emb", "usual label of the training patients"
ABOUT = {"lessons": "summaries by clinicians, behind prompts with examples"}


def build(records: Records, settings: Settings) -> System[Looks]:
    """The system on the task of `records`: time series, questions, texts, or visits. BadInput names what is missing."""
    task = records.config.task.name
    if records.asks_summaries:
        return _build_texts(records, settings)
    if task.startswith(PREFIX):
        return assemble(series_material(records, settings), records.config, WORDS)
    if task == MEDQA:
        return assemble(exams_material(records, settings), records.config, WORDS)
    return assemble(visits_material(records, settings), records.config, WORDS)


def _build_texts(records: Records, settings: Settings) -> System[Any]:
    """The system on clinical texts, rewarded and measured by the likeness of summaries."""
    material, config = texts_material(records, settings), records.config
    made = assemble(material, config, WORDS)
    own = made.adapt(partial(_as_texts, material, config.env.in_flight, labels_teach(records)))
    return with_summaries(own, config.reward.eta, made.variants["zero_shot"].spec)


def _as_texts(material: EncodedCases[Any], in_flight: int, references_teach: bool, made: System[Any]) -> System[Any]:
    """`made` whose rules copy a summary, and whose SFT learns references. references_teach: in a teacher's place."""
    refused = text_refusals()
    variants = {name: variant for name, variant in made.variants.items() if name not in refused}
    for name in (name for name, variant in variants.items() if variant.who == RULE):
        title = variants[name].title.replace("majority of: ", "copy of: ")
        variants[name] = replace(variants[name], title=title, who=COPY)
    variants[SUPERVISED] = replace(variants[SUPERVISED], title="SFT on references, no examples")
    summaries = {sample.sample_id: sample.text.summary for sample in material.splits.known}
    alone = partial(reference_examples, material, "zero_shot", in_flight, {}, EPOCHS)
    behind = partial(reference_examples, material, variants[TAUGHT].spec.selector, in_flight, ABOUT, None)
    return replace(
        made, variants=variants, refused=refused, fixed={COPY: lambda: FunctionPolicy(CopiedSummary(summaries))},
        training=replace(
            made.training, teacher=COPY, teacher_variant=variants[TAUGHT], stages={SUPERVISED: alone},
            examples=behind if references_teach else None,
        ),
        report=replace(made.report, listed=(*(name for name in LISTED if name in variants), TAUGHT)),
    )  # fmt: skip


def drawn(records: Records, settings: Settings) -> tuple[Task, Splits[Any]]:
    """A task of time series with its samples by split, before any encoder. BadInput for another task."""
    if not (name := records.config.task.name).startswith(PREFIX):
        raise BadInput(f"task={name} is none of GraphWalker's own: choose task={PREFIX}mortality, say.")
    task, splits, _ = series_splits(records, settings)
    return task, splits


def assemble(material: EncodedCases[Any], config: Config, reader: Reader) -> System[Looks]:
    """The system as one reader has it. BadInput for a context, or a pool, too small for k."""
    task, settings = material.task, material.settings
    if settings.reply == "probability" and len(task.labels) != 2:
        raise BadInput(f"system.reply=probability is of two answers, and {task.name} has more: choose label.")
    bounds = settings.inference, settings.reply, material.reply
    spec = ExampleSpec(task, material.head, settings.k, material.usual, *bounds)
    seen = _longest_look(material) if settings.inference == "react" else ""
    behind = partial(tokens_behind, spec, seen=seen)
    walkers = cut_to(material, reader, behind(reader.count))
    without = walkers.without()
    corpus = ExamplesCorpus(walkers, reader.engine, config.env.in_flight)
    series = config.task.name.startswith(PREFIX)
    variants = variants_of(material.selectors, series)
    encoded: dict[str, tuple[float, ...]] = {}  # goes with the episodes to other processes
    if series:
        embeddings = material.embeddings
        encoded = {name: tuple(map(float, embeddings.probabilities[row])) for name, row in embeddings.row_of.items()}
    exams = {exam.sample_id: exam for exam in everyone(material.splits)} if task.name == MEDQA else None
    if exams is not None:
        name = "scripted_zero_shot"
        variants[name] = replace(variants[name], title=USUAL.replace("patients", "questions"))
    clinical = ClinicalNumbers(task, cast("Mapping[str, TextSample[ChoiceQuestion]] | None", exams))
    rows = SelectionRows(material, RULE, sum(patient.dropped > 0 for patient in walkers.patients.values()))
    weights = cache(lambda: rarity([patient.text for patient in walkers.candidates]).weights)
    lists = "time_series" not in material.selectors and exams is None  # of visits, whose items are codes
    return System(
        NAME, task, (AGENT,), spec.roles, _cases(walkers), ExampleEpisodes(spec, encoded).episode, corpus,
        partial(_reward, config.reward.eta), variants, MAIN, read_by=partial(assemble, material, config),
        fixed={
            RULE: partial(FunctionPolicy, majority_of_examples),
            ALIKE: lambda: FunctionPolicy(RarestShared(weights())),
        },
        corpus_prompts=partial(prompts_before, settings),
        origin=Provenance(material.generated, material.credentialed),
        training=Training(
            teacher=ALIKE if lists else RULE, teacher_variant=variants["scripted_alike" if lists else TAUGHT],
            stages={SUPERVISED: lambda reader: _label_pairs(cut_to(material, reader, behind(reader.count)), spec)},
            pretraining=material.practice, texts=material.texts,
        ),
        report=Reporting(
            listed=LISTED,
            row=rows.row, numbers=clinical.numbers, counts=counts(material, without),
            summary=partial(_summary, rows, clinical, variants, config, material.audit),
        ),
        truth=GroundTruth(upper_bounds=partial(_ceilings, material)),
    )  # fmt: skip


def variant_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the variants that `build` makes."""
    series = config.task.name.startswith(PREFIX)
    own = tuple(variants_of(EVERY if series else WITHOUT_SERIES, series))
    return (*TRIVIAL[SUMMARY], *own) if config.task.name == SUMMARY else own


def refused_variants(config: Config, settings: Settings) -> Mapping[str, str]:
    """Map the variants that texts cannot be asked with to the reason."""
    return text_refusals() if config.task.name == SUMMARY else {}


def role_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the roles of the system that `build` makes."""
    return INFERENCE_ROLES[settings.inference]


def variants_of(selectors: Sequence[Name], series: bool) -> dict[str, Variant]:
    """One variant a selector, answered by the model, those that a fixed rule answers, and of time series the encoder,
    which asks no one."""
    learned: dict[str, Variant] = {name: Variant(name, TITLES[name], spec=SelectorSpec(name)) for name in selectors}
    for name in SCRIPTED:
        title = USUAL if name == "zero_shot" else f"majority of: {TITLES[name]}"
        learned[f"scripted_{name}"] = Variant(f"scripted_{name}", title, spec=SelectorSpec(name), who=RULE)
    learned["scripted_alike"] = Variant(
        "scripted_alike", "rarest shared item of: sharing rare items", spec=SelectorSpec("rare_items"), who=ALIKE
    )
    for stage, about in (("sft", "after SFT"), ("base", "before training")):
        learned[f"{MAIN}_{stage}"] = Variant(f"{MAIN}_{stage}", f"GraphWalker {about}", SelectorSpec(MAIN), stage)
    title = "SFT on labels, no examples"
    learned[SUPERVISED] = Variant(SUPERVISED, title, spec=SelectorSpec("zero_shot"), who=SUPERVISED)
    if series:
        learned[ENCODER] = Variant(ENCODER, "EHR encoder alone", EncoderSpec(), who="")
    return learned


TITLES = {
    "graphwalker": "GraphWalker",
    "zero_shot": "no examples",
    "random_choice": "random examples",
    "semantic_emb": "nearest by text",
    "ehr_emb": "nearest by EHR encoder",
    "time_series": "nearest by measurements",
    "spell": "SPELL",
    "influence": "Influence",
    "ids": "IDS",
    "cone": "CONE",
    "lms3": "LMS3",
    "delta_knn": "Delta-KNN",
    "gradsel": "GradSel",
    "rare_items": "sharing rare items",
}


def _longest_look(material: EncodedCases[Any]) -> str:
    """The longest text that ReAct can look at, of any sample."""
    texts = (text for sample in everyone(material.splits) for text in material.reads(sample).values())
    return max(texts, key=len, default="")


def _label_pairs(walkers: SelectionPool, spec: ExampleSpec) -> SftExamples:
    """The question about each training patient alone, and its label; validation patients choose the weights."""

    def examples(split: str) -> tuple[Example, ...]:
        asked = [(prompt_text(spec.opening, Examples(), p.text), p.label) for p in walkers.by_split[split]]
        return tuple(Example(prompt, spec.task.labels[label], spec.task.labels) for prompt, label in asked)

    return SftExamples(examples("train"), examples("valid"), epochs=EPOCHS)


def _ceilings(material: EncodedCases[Any], cases: Sequence[Case[Looks]]) -> Mapping[str, float] | None:
    return material.ceilings([case.subject_id for case in cases])


def counts(material: EncodedCases[Any], without: int) -> dict[str, int]:
    """How many cases there are, and, with data.earlier, how many of the test are shown no example."""
    parts = {"train": material.splits.train, "validation": material.splits.valid, "test": material.splits.test}
    parts |= {"pool": material.splits.pool} if material.splits.pool else {}
    sizes = {f"{name} samples": len(samples) for name, samples in parts.items()} | dict(material.left_out)
    return sizes if material.times is None else {**sizes, "test samples with too few outcomes known before": without}


def examples(
    system: System[Looks], selector: Name = MAIN, splits: Sequence[str] = ("train", "valid", "test")
) -> dict[str, str]:
    """Sample id -> its examples as text with their outcomes, "" for none, for `ghar.envs.few_shot.with_demonstrations`.

    system: this one, `read_by` whoever reads the prompts. BadInput for a selector that this reader does not allow.
    """
    system.variant(selector)  # BadInput for one that this task has not
    texts: dict[str, str] = {}
    for split in splits:
        cases = getattr(system.cases, split)
        asked = [SelectExamples(case.text, sample_id=case.sample_id, selector=selector) for case in cases]
        for case, evidence in zip(cases, system.corpus.retrieve(asked), strict=True):
            demonstrations = getattr(evidence, "demonstrations", ())
            texts[case.sample_id] = earlier(demonstrations, system.task.name == SUMMARY)
    return texts


def _cases(walkers: SelectionPool) -> Splits[Case[Looks]]:
    material = walkers.material
    samples = {sample.sample_id: sample for sample in everyone(material.splits)}

    def case(patient: Patient) -> Case[Looks]:
        sample = samples[patient.sample_id]
        return Case(
            patient.sample_id, patient.subject_id, getattr(sample, "visit_id", patient.subject_id), patient.text, (),
            material.task, patient.label, material.reads(sample),
            credentialed=getattr(sample, "credentialed", material.credentialed),
        )  # fmt: skip

    def part(name: str) -> tuple[Case[Looks], ...]:
        return tuple(map(case, walkers.by_split[name]))

    return Splits(part("train"), part("valid"), part("test"))


def _reward(eta: float, episode: Episode, case: Case[Looks]) -> EpisodeReward:
    return score_outcome(episode, case.label, eta)


def _summary(
    rows: SelectionRows,
    clinical: ClinicalNumbers,
    variants: Mapping[str, Variant],
    config: Config,
    audit: Mapping[str, Any] | None,
    played: Mapping[str, Sequence[Mapping[str, Any]]],
) -> dict[str, Any]:
    """What the report shows of the main variant, or of the first one played, under "selection"; and the audit."""
    own = [name for name in (MAIN, *played) if name in played and name in variants]
    audit_part = {} if audit is None else {"audit": audit}
    if not own:
        return audit_part
    name = own[0]
    draw = {"seed": config.seed, "resamples": config.eval.bootstrap}
    selection = rows.content(name, variants[name].spec.selector, played[name], clinical.clinical(played[name], draw))
    return {"selection": selection, **audit_part}
