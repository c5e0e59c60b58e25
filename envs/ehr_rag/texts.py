"""EHR-RAG on texts in place of patients (task=medqa, task=summary): the text is the record that is searched.

python launch/evaluate.py system=ehr_rag task=summary data=summary data.root=PATH/aci-bench

Of a question the sentences before the one that asks are searched; the two paths argue for an answer and against the
obvious one. Of a text to be summarised all sentences are searched, however long it is;
the two paths note what is the matter and what is not. The paper asks about records alone: ETHER's times and numbers
have no counterpart (`text_pieces.py`), AIR and DER are as for patients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from ghar.config import Config
from ghar.data.sections import sentences
from ghar.data.tasks.cards import TaskCard
from ghar.data.tasks.question_files import LETTERS, ChoiceQuestion
from ghar.data.tasks.samples import TextSample
from ghar.data.tasks.splits import Splits
from ghar.data.tasks.summary_files import SUMMARY, WRITTEN, SummarisedText
from ghar.envs.case import Case
from ghar.envs.ehr_rag.context import PromptContext
from ghar.envs.ehr_rag.episode import AGENTS, ROLES, EhrRagEpisodes, EhrRagSpec, EventPrediction, Method, Passages
from ghar.envs.ehr_rag.label_only import LABELS, USUAL, label_examples, usual_answer
from ghar.envs.ehr_rag.rows import shows, text_row, variant_numbers
from ghar.envs.ehr_rag.settings import Settings
from ghar.envs.ehr_rag.text_pieces import TextPieces, TextRecord, fit_words
from ghar.envs.ehr_rag.text_rule import TextRule
from ghar.envs.ehr_rag.variants import MAIN, METHODS, READER, variants
from ghar.envs.play import play, stage_of, teacher_cases
from ghar.envs.questions import plain_question_cases
from ghar.envs.real_patients import labels_teach
from ghar.envs.records import Records
from ghar.envs.summaries import TRIVIAL, label_of_text, plain_summary_cases, right_reply, with_summaries
from ghar.envs.system import WORDS, Example, Reader, Reporting, SftExamples, System, Training, Variant
from ghar.episode import Act, Episode, EpisodeGenerator, Parsed, Prediction, Reply, as_text
from ghar.llm.parsing import parse_label
from ghar.llm.policy import FunctionPolicy
from ghar.retrieval.encoders import CODES, Encoder, load_encoder
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import score_outcome

ENCODED = 256  # pieces a sentence encoder sees at once
EXAMPLES = 200  # texts that the demo's tokenizer is made from
REASONS = {  # methods that need what texts lack
    "no_ether": "ranks without times and trajectories, which texts have not, so that it would read as ehr_rag",
    "rule": "reads the most frequent codes, and texts have none",
}
OF_LABELS = {  # methods and variants that need labels, which summaries lack
    "react": "ends with the number of a label",
    USUAL: "answers with the usual label",
}
OF_PATIENTS = {"counts": "counts codes of patients", "embeddings": "reads vectors of patients"}
LONGEST = 60  # words of a row: talk may go on without an end
UNREAD = "unread"  # `Variant.spec` of what copies from a text or from its like, so that nothing is looked up
TITLES = {"direct": "the text, its end where it is too long", "rag": "similar pieces", "uniform": "random pieces"}
FINDINGS = "complaints, findings, diagnoses and treatment of the patient"
ABSENCES = "what is denied, absent, normal, ruled out or stopped"


@dataclass(frozen=True)
class QuestionCard(TaskCard):
    """A question, whose labels are letters."""

    @property
    def answers(self) -> tuple[str, ...]:
        """The letters of the options."""
        return tuple(LETTERS[: len(self.meanings)])

    @property
    def definition(self) -> str:
        """Each option behind its letter."""
        return "\n".join(f"{letter}. {text}" for letter, text in zip(self.answers, self.meanings, strict=True))


@dataclass(frozen=True)
class QuestionReading:
    """What EHR-RAG reads of a question: its place in the corpus, and how it is asked."""

    asked_at: ClassVar[str] = ""
    place: int
    card: TaskCard


@dataclass(frozen=True)
class SummaryReading(SummarisedText):
    """The same of a text, with its reference, which no prompt shows."""

    asked_at: ClassVar[str] = ""
    place: int
    card: TaskCard


class QuestionEpisodes(EhrRagEpisodes):
    """Makes episodes about texts, which measure nothing."""

    roles = tuple(role for role in ROLES if role != "indicators")

    def parse_answer(self, case: Case[Any]) -> Callable[[str], Parsed]:
        """Make the parser of a letter."""
        return partial(parse_label, labels=case.task.labels)

    def unread(self, case: Case[Any]) -> EpisodeGenerator:
        """The deciding reply alone, before which nothing is looked up."""
        label = yield from self._label(case, "predict", (), (), [])
        return EventPrediction(label)

    def _indicators(self, case: Case[Any], lookups: Any) -> Any:
        yield from ()
        none: Passages = ()
        return none


class SummaryEpisodes(QuestionEpisodes):
    """Makes episodes that end with a text."""

    roles = tuple(role for role in QuestionEpisodes.roles if role != "react")

    def label_of(self, reply: Reply) -> int | None:
        """The label of a text that was written."""
        return label_of_text(reply)

    def _decide(self, case: Case[Any], role: str, context: PromptContext, asked: tuple[str, ...], **fields: Any) -> Act:
        return self._act(case, "top", role, context, self.spec.iterations, parse=as_text, asked=asked, **fields)


def build_texts(records: Records, settings: Settings) -> System[Any]:
    """EHR-RAG on questions or on texts to be summarised."""
    config, room = records.config, TextRoom(records, settings)
    cases, played = room.cases(WORDS), text_variants(records.asks_summaries, settings)
    by_references = records.asks_summaries and labels_teach(records)
    made: System[Any] = System(
        name="ehr_rag",
        task=records.task,
        agents=AGENTS,
        roles=room.kind.roles,
        cases=cases,
        episode=room.player(WORDS, cases),
        corpus=room.corpus(),
        reward=partial(_reward, config.reward.eta),
        variants=played,
        main=MAIN,
        read_by=lambda reader: replace(made, cases=room.cases(reader), episode=room.player(reader, cases)),
        decides=("weigh", "predict"),
        fixed={READER: TextRule},
        refused=text_refusals(records.asks_summaries, settings),
        origin=records.provenance(),
        training=Training(
            teacher=READER,
            examples=(lambda reader: _written(made.read_by(reader), config)) if by_references else None,
            stages={LABELS: lambda reader: label_examples(made.read_by(reader), config, settings.label_epochs)},
            texts=lambda: [case.text for case in cases.train[:EXAMPLES]],
        ),
        report=Reporting(
            listed=[name for name, variant in played.items() if variant.who != READER],
            row=text_row,
            shows=shows,
            numbers=partial(variant_numbers, records.task.labels),
            counts=records.counts(),
            comparisons=[("scripted", name) for name in played if name.startswith("scripted_")],
        ),
    )
    return with_summaries(made, config.reward.eta, UNREAD) if records.asks_summaries else made


def text_variants(summaries: bool, settings: Settings) -> dict[str, Variant]:
    """The variants that texts allow. summaries: of texts to be summarised, else of questions."""
    refused = _reasons(summaries, settings)
    own = {name: variant for name, variant in variants(settings).items() if name not in refused}
    return {name: replace(variant, title=_title(variant)) for name, variant in own.items()}


def text_variant_names(summaries: bool, settings: Settings) -> tuple[str, ...]:
    """List them with those of every system on summaries, and those that are refused."""
    return (*(TRIVIAL[SUMMARY] if summaries else ()), *_of_patients(settings))


def text_refusals(summaries: bool, settings: Settings) -> dict[str, str]:
    """Map each variant that needs codes, times or labels to the sentence that refuses it for texts."""
    others = ", ".join(name for name in text_variants(summaries, settings) if not name.startswith("scripted"))
    reasons = _reasons(summaries, settings)
    return {name: f"Variant {name} of system=ehr_rag {reason}: choose {others}." for name, reason in reasons.items()}


def _reasons(summaries: bool, settings: Settings) -> dict[str, str]:
    lacking = REASONS | (OF_LABELS if summaries else {}) | OF_PATIENTS
    every = _of_patients(settings).items()
    return {name: lacking[str(variant.spec)] for name, variant in every if str(variant.spec) in lacking}


def _of_patients(settings: Settings) -> dict[str, Variant]:
    """Those that patients have, with the one of their vectors, which is refused with its own sentence."""
    return variants(replace(settings, embeddings=""))


def _title(variant: Variant) -> str:
    if variant.name == LABELS:
        return "Label-only SFT, the text"
    title = TITLES.get(variant.spec)
    return variant.title if title is None else f"Rule, {title}" if variant.who == READER else title


@dataclass(frozen=True, eq=False)
class TextRoom:
    """What one configuration's variants share."""

    records: Records
    settings: Settings

    @property
    def kind(self) -> type[QuestionEpisodes]:
        """Whose episodes are played."""
        return SummaryEpisodes if self.records.asks_summaries else QuestionEpisodes

    @property
    def samples(self) -> Sequence[TextSample[Any]]:
        """Those of all parts, by place."""
        parts = self.records.texts.splits
        return (*parts.train, *parts.valid, *parts.test)

    def cases(self, reader: Reader) -> Splits[Case[Any]]:
        """The texts, within env.history_tokens as reports show them; what is searched is never cut."""
        cut = plain_summary_cases if self.records.asks_summaries else plain_question_cases
        parts, samples = cut(self.records, reader), enumerate(self.samples)

        def read(part: Sequence[Case]) -> tuple[Case[Any], ...]:
            return tuple(replace(case, reads=_reading(*next(samples), case.task.question)) for case in part)

        return Splits(read(parts.train), read(parts.valid), read(parts.test))

    def corpus(self) -> TextPieces:
        """The sentences of all texts; retriever=codes means the words of the training texts."""
        texts = {place: TextRecord(_searched(one.text), one.subject_id) for place, one in enumerate(self.samples)}
        kind, train = self.records.config.retriever.kind, self.records.texts.splits.train
        codes = kind == CODES
        load = partial(_fitted, fit_words(list(map(_whole, train)))) if codes else partial(load_encoder, kind, ENCODED)
        return TextPieces(texts, load, self.settings.sentences, self.records.config.seed)

    def player(self, reader: Reader, cases: Splits[Case[Any]]) -> TextPlayer:
        """Evidence within system.tokens as `reader` counts, and within half of what it can read."""
        tokens = self.settings.tokens
        if reader.context is not None:
            tokens = min(tokens, reader.context // 2)
        made = {name: self.kind(self._spec(name, tokens), reader.count) for name in METHODS}
        return TextPlayer(made, usual_answer(cases.train, len(self.records.task.labels)))

    def _spec(self, method: Method, tokens: int) -> EhrRagSpec:
        own, prompts = self.settings, "summaries" if self.records.asks_summaries else "questions"
        whole = own.chunks * own.iterations  # as many pieces as a path may find
        return EhrRagSpec(prompts, method, own.iterations, own.chunks, 0, 0, whole, own.rows, tokens)


@dataclass(frozen=True, eq=False)
class TextPlayer:
    """Plays a case as a variant says. methods: its episodes, by method. usual: the usual answer."""

    methods: Mapping[str, QuestionEpisodes]
    usual: Prediction

    def __call__(self, case: Case[Any], variant: Variant) -> EpisodeGenerator:
        if variant.spec == UNREAD:
            return self.methods["direct"].unread(case)
        return self._usual() if variant.spec == USUAL else self.methods[variant.spec].episode(case)

    def _usual(self) -> EpisodeGenerator:
        yield from ()
        return self.usual


def _reading(place: int, sample: TextSample[Any], question: str) -> QuestionReading | SummaryReading:
    text = sample.text
    if isinstance(text, SummarisedText):
        card = TaskCard("Summary", "Clinical texts", question, FINDINGS, ABSENCES, (WRITTEN,), "")
        return SummaryReading(text.text_id, text.source, text.summary, place, card)
    asked, options = " ".join(_parts(text)[1]), "; ".join(text.options)
    factual, counterfactual = f"findings that speak for one of these: {options}", f"{ABSENCES}: {asked}"
    return QuestionReading(
        place, QuestionCard("Examination question", "Examinations", asked, factual, counterfactual, text.options, "")
    )


def _searched(text: ChoiceQuestion | SummarisedText) -> tuple[str, ...]:
    """The sentences of a text, of a question those before the one that asks; long ones in pieces."""
    whole = sentences(text.source) if isinstance(text, SummarisedText) else _parts(text)[0]
    cut = (row.split() for row in whole)
    return tuple(" ".join(row[i : i + LONGEST]) for row in cut for i in range(0, len(row), LONGEST))


def _parts(question: ChoiceQuestion) -> tuple[list[str], list[str]]:
    """The case, and what is asked: from the last sentence with a question mark on, the last one where there is none."""
    every = sentences(question.text)
    last = max((i for i, sentence in enumerate(every) if "?" in sentence), default=len(every) - 1)
    return every[:last], every[last:]


def _whole(sample: TextSample[Any]) -> str:
    """All words of a text but its summary."""
    return sample.text.source if isinstance(sample.text, SummarisedText) else sample.text.shown()


def _fitted(encoder: Encoder) -> Encoder:
    return encoder


def _reward(eta: float, episode: Episode, case: Case[Any]) -> EpisodeReward:
    """The outcome alone, weighted by `eta`."""
    return score_outcome(episode, case.label, eta)


def _written(made: System[Any], config: Config) -> SftExamples:
    """Episodes of the rule on training and validation texts, at whose end the reference stands in place of its text."""
    policy, stage = FunctionPolicy(partial(_reference, TextRule())), stage_of(made, made.teacher_variant(), config)

    def examples(cases: Sequence[Case[Any]]) -> tuple[Example, ...]:
        episodes = play(stage, cases, policy, seed=config.seed, title="Summaries by clinicians")
        turns = [(record.effect, record.result) for episode in episodes for record in episode.trace]
        return tuple(
            Example(act.prompt, reply.text, act.choices)
            for act, reply in turns
            if isinstance(act, Act) and isinstance(reply, Reply)
        )

    about = {"lessons": "summaries by clinicians, behind searches and notes of a rule"}
    return SftExamples(examples(teacher_cases(made, config)), examples(made.cases.valid), about)


def _reference(rule: TextRule, act: Act) -> str:
    return right_reply(act.facts["case"]) if act.role in ("weigh", "predict") else rule.answer([act], [0])[0].text
