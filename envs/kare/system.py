"""KARE as a `System`: records, communities, similar patients and variants, put together without a model.

records -> envs/kare/build.py      communities of a graph made from three sources (Section 3.1)
        -> envs/kare/cases.py      records and similar patients as prompts show them; of questions envs/kare/exam.py,
                                   of clinical texts envs/kare/summary.py
        -> envs/kare/corpus.py     what is looked up (Algorithm 1, or by likeness)
        -> envs/kare/methods.py    variants, each an episode (envs/kare/episode.py)
        -> envs/kare/training_examples.py    what a model is distilled on (Section 3.3)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ghar.config import Config
from ghar.data.tasks.question_files import MEDQA
from ghar.data.tasks.summary_files import SUMMARY
from ghar.envs.baseline_table import borrowed_names
from ghar.envs.case import Case
from ghar.envs.kare.build import BuildInputs, KareGraph, abstracts_of, build_communities, visit_inputs
from ghar.envs.kare.cases import UNCUT, CutSplits, Neighbourhood
from ghar.envs.kare.coagent import Guidelines, advise
from ghar.envs.kare.corpus import ConceptNames, KareCorpus, PatientGraphs, equations
from ghar.envs.kare.episode import ROLES, KareEpisodes, KareReading, knowledge_text, label_prompt, reason_prompt
from ghar.envs.kare.exam import EXAM, as_exam, exam_inputs, exam_refusals, exam_splits
from ghar.envs.kare.graph.considerations import considerations_of
from ghar.envs.kare.graph.themes import theme_of
from ghar.envs.kare.learner import Learner
from ghar.envs.kare.mentions import NearestTexts, names_of_topics
from ghar.envs.kare.methods import (
    LABELS,
    LISTED,
    RULE,
    TUNED_RAG,
    KarePlayer,
    LooksUp,
    Method,
    look_up,
    prompts_of,
    variants_of,
)
from ghar.envs.kare.pretraining import practice
from ghar.envs.kare.retrieval.community_corpus import CommunityCorpus
from ghar.envs.kare.retrieval.community_index import partitions
from ghar.envs.kare.rows import KareRows
from ghar.envs.kare.rule import belief, rule_of
from ghar.envs.kare.settings import NOUNS, Settings, contradictions, sizes
from ghar.envs.kare.summary import (
    CLINICAL_TEXT,
    SummaryEpisodes,
    as_summary,
    summary_inputs,
    summary_refusals,
    summary_splits,
)
from ghar.envs.kare.training_examples import ExampleWriter, look_up_all
from ghar.envs.kare.upper_bounds import kare_ceilings, law_of
from ghar.envs.questions import with_usual
from ghar.envs.real_patients import early_refusals, is_real, without_rules
from ghar.envs.records import Records
from ghar.envs.summaries import TRIVIAL
from ghar.envs.system import (
    WORDS,
    DemoPretraining,
    GroundTruth,
    Reader,
    Reporting,
    SftExamples,
    System,
    Training,
    Variant,
    words,
)
from ghar.envs.worlds.severity_grades import follows
from ghar.episode import Episode
from ghar.errors import BadInput
from ghar.kg.umls import Umls
from ghar.retrieval.encoders import Encoder, load_encoder
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import score_outcome

BASELINES = "baselines"  # the system whose variants stand in the same table
ENCODED = 64  # texts a sentence encoder sees at once
EXAMPLES = 50  # patients whose prompts the demo's tokenizer is made from


@dataclass(frozen=True, eq=False)
class Kare:
    """What all readers of one configuration share. learned: see `Learner`."""

    records: Records
    own: Settings
    graph: KareGraph
    corpus: KareCorpus
    near: Neighbourhood | NearestTexts[Any]
    learned: dict[str, Guidelines] = field(default_factory=dict)

    def read_by(self, reader: Reader) -> System[KareReading]:
        """The system with texts cut as `reader` counts tokens."""
        records, corpus = self.records, self.corpus
        player, rows = self._player(reader), KareRows(self.graph.index, records.task.labels)
        cases = self._cases(reader)
        learner = Learner(records, self.own, cases, player, corpus, self.learned)
        advice = advise(considerations_of(records.task.name), "")
        variants = variants_of(self.own, advice, corpus.papers is not None)
        made = System(
            name="kare",
            task=records.task,
            agents=("top",),
            roles=ROLES,
            cases=cases,
            episode=player.episode,
            corpus=corpus,
            reward=partial(_reward, records.config.reward.eta),
            variants=variants,
            main="kare",
            read_by=self.read_by,
            fixed={RULE: partial(rule_of, records)},
            prepare=learner.prepare,
            partitions=partitions(self.graph.index),
            origin=records.provenance(),
            training=Training(
                teacher=RULE,
                examples=self.examples,
                stages={LABELS: self.label_pairs, TUNED_RAG: partial(self.label_pairs, looks_up="abstracts")},
                pretraining=self.pretraining,
                texts=self.texts,
            ),
            report=Reporting(
                listed=_listed(variants),
                row=rows.row,
                numbers=rows.numbers,
                summary=partial(self._summary, learner),
                counts=self.counts,
                comparisons=(("scripted", "scripted_base"), ("kare", "no_reasoning")),
                baselines=BASELINES,
            ),
            truth=GroundTruth(upper_bounds=self.ceilings),
        )
        return without_rules(made, records, self.label_pairs)

    def texts(self) -> list[str]:
        """Prompts of some training patients, whose words the demo's tokenizer knows whole."""
        player, near = self._player(WORDS), self.near
        some: Any = near.splits.train[:EXAMPLES]
        cases = near.writer(self.records.config.env, words).cases(some)
        prompt = label_prompt if self.records.asks_summaries else reason_prompt
        requests = [request for case in cases if (request := look_up("communities", player.top_n, case)) is not None]
        return [
            prompt(case, knowledge_text(evidence, player.tokens, words), player.prompts)
            for case, evidence in zip(cases, self.corpus.retrieve(requests), strict=True)
        ]

    @cached_property
    def pretraining(self) -> DemoPretraining | str | None:
        """The demo's base practises these prompts where outcomes follow from grades, and GHAR's elsewhere; for real
        patients none."""
        records = self.records
        if is_real(records):
            return None
        if not follows(records.config.task.name) or isinstance(records.graph, Umls):
            return "ghar"
        return practice(records, self.own, self.corpus, lambda: self._cases(WORDS).train)

    def examples(self, reader: Reader) -> SftExamples:
        """What a model is distilled on."""
        return self._writer(reader, self.own, self.own.looks_up).examples()

    def label_pairs(self, reader: Reader, looks_up: LooksUp | None = None) -> SftExamples:
        """What a model that learns labels alone is trained on, in the same contexts or in those of classic RAG."""
        return self._writer(reader, replace(self.own, tasks="label_only"), looks_up or self.own.looks_up).examples()

    def ceilings(self, cases: Sequence[Case[KareReading]]) -> dict[str, float] | None:
        """What the communities of these cases allow at best, all of those that are found: who counts more tokens is
        shown fewer. None where the model is shown no communities."""
        law = law_of(self.records.config.task.name)
        if self.records.world is None or law is None or self.own.looks_up == "nothing":
            return None
        request = partial(look_up, "communities", self.records.config.retriever.top_n)
        prompt_texts = look_up_all(cases, request, self.corpus, UNCUT, words)
        return kare_ceilings(law, belief(self.records).knowledge, cases, prompt_texts)

    def _writer(self, reader: Reader, own: Settings, looks_up: LooksUp) -> ExampleWriter:
        cases = self._cases(reader, own.similar)
        return ExampleWriter(self.records, own, cases, self._player(reader), self.corpus, looks_up)

    def _cases(self, reader: Reader, similar: int = 1) -> CutSplits:
        near: Any = self.near
        return CutSplits(near.splits, near.writer(self.records.config.env, reader.count, similar))

    def _player(self, reader: Reader) -> KarePlayer:
        config = self.records.config
        tokens = sizes(config, self.own).tokens
        kind = SummaryEpisodes if self.records.asks_summaries else KareEpisodes
        return KarePlayer(prompts_of(self.records), tokens, config.retriever.top_n, reader.count, kind)

    @cached_property
    def counts(self) -> dict[str, Any]:
        """What was read and linked."""
        graphs = [self.corpus.communities.graphs[sample.sample_id] for sample in self.near.splits.test]
        counts = self.records.counts() | self.records.graph_counts()
        unknown = sum(bool(graph.unknown) for graph in graphs)
        if not self.records.texts_alone:
            return {**counts, "test samples with a concept that has no node": unknown}
        noun = NOUNS[self.records.task.name]
        apart = sum(len(graph.direct) == len(graph.indirect) == 0 for graph in graphs)
        return {
            **counts,
            f"test {noun} with a concept that has no node": unknown,
            f"test {noun} without a concept in the communities": apart,
        }

    def _summary(self, learner: Learner, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
        """What each step of the build did, and what EHR-CoAgent has learned."""
        return {
            "kare": f"{self.own.variant}, expert {self.own.expert}",
            "build": self.graph.report,
            "guidelines": {name: guidelines for name, guidelines in learner.guidelines().items() if name in rows},
        }


def _reward(eta: float, episode: Episode, case: Case[KareReading]) -> EpisodeReward:
    return score_outcome(episode, case.label, eta)


def build(records: Records, settings: Settings) -> System[KareReading]:
    """Build or open the communities. BadInput, before anything costly, for a task that themes do not list, for variant
    rag without abstracts, and for whatever a step of the build cannot use."""
    config = records.config
    theme_of(records.task.name)
    papers = abstracts_of(records, settings)
    for name in {"rag", TUNED_RAG}.intersection(config.eval.variants or ()):
        if papers is None:
            raise BadInput(f"Variant {name} looks abstracts up: set system.abstracts to their folder, or leave it out.")
    for sentence in contradictions(config, settings):  # of another system's configuration, which asks these communities
        raise BadInput(sentence)
    encoder = load_encoder(config.retriever.kind, ENCODED)
    near, inputs = _neighbours(records, encoder)
    graph, splits = build_communities(records, settings, encoder, inputs), near.splits
    histories = {sample.sample_id: sample.history for sample in (*splits.train, *splits.valid, *splits.test)}
    graphs = PatientGraphs(histories, near.name_of, graph.nodes)
    communities = CommunityCorpus(graph.index, encoder, graphs, equations(settings))
    corpus = KareCorpus(communities, papers, Path(config.data.cache) / "indexes")
    made = Kare(records, settings, graph, corpus, near).read_by(WORDS)
    if records.asks_summaries:
        return as_summary(made, config.reward.eta)
    return with_usual(as_exam(made), Method("nothing", 0, "none")) if records.asks_questions else made


def _neighbours(records: Records, encoder: Encoder) -> tuple[Neighbourhood | NearestTexts[Any], BuildInputs]:
    """Patients, questions or texts, and what the graph is built around."""
    task = records.task
    if not records.texts_alone:
        inputs, name_of = visit_inputs(records), ConceptNames(records.names)
        return Neighbourhood(records.splits, task, name_of, encoder, records.config.data.earlier), inputs
    closed = records.provenance().credentialed
    if records.asks_summaries:
        texts = summary_splits(records)
        names = ConceptNames(names_of_topics(texts))
        return NearestTexts(CLINICAL_TEXT, texts, task, names, encoder, closed), summary_inputs(records, texts)
    questions = exam_splits(records)
    names = ConceptNames(names_of_topics(questions))
    return NearestTexts(EXAM, questions, task, names, encoder, closed), exam_inputs(records, questions)


def variant_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the variants that `build` may make, where there are abstracts, with those of the baselines beside them."""
    others = TRIVIAL.get(config.task.name) or borrowed_names(BASELINES, config)
    return (*variants_of(settings, "", abstracts=True), *others)


def refused_variants(config: Config, settings: Settings) -> Mapping[str, str]:
    """Map the variants of the rule to its refusal, for real patients; for questions and texts also those that need
    patients or labels."""
    variants = variants_of(settings, "", abstracts=settings.abstracts is not None)
    if config.task.name == MEDQA:
        return exam_refusals(variants)
    if config.task.name == SUMMARY:
        return summary_refusals(variants)
    return early_refusals(config.data, "kare", variants, _listed(variants), RULE)


def _listed(variants: Mapping[str, Variant]) -> tuple[str, ...]:
    """Those of the table, as far as the data have them."""
    return tuple(name for name in LISTED if name in variants)


def role_names(config: Config, settings: Settings) -> tuple[str, ...]:
    """List the roles of the system that `build` makes."""
    return ROLES
