"""EXPRAG on clinical texts to be summarised (task=summary): the experience is how other texts were summarised.

Training texts stand where other patients' stays stand. They are ranked by their texts, and pieces are found in their
summaries, by clinicians; no one sees those of the own patient. What others wrote shows the manner, and no finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ghar.data.tasks.summary_files import SummarisedText
from ghar.envs.case import Case
from ghar.envs.exprag.episode import NOTHING, cut_piece, first_words, pieces_by_stay, template_of, without_head
from ghar.envs.exprag.label_episode import LabelEpisodes
from ghar.envs.exprag.label_system import Experience, build_label_system, check_label_settings
from ghar.envs.exprag.rows import text_row
from ghar.envs.exprag.settings import Settings
from ghar.envs.exprag.text_corpus import TextRoles, check_ranker, corpus_of_texts
from ghar.envs.exprag.variants import LABELS, MAIN
from ghar.envs.real_patients import labels_teach
from ghar.envs.records import Records
from ghar.envs.rollout import Corpus
from ghar.envs.summaries import label_of_text, plain_summary_cases, right_reply, with_summaries
from ghar.envs.system import Example, Reader, SftExamples, System
from ghar.episode import Act, EpisodeGenerator, Evidence, Reply, as_text

ROLES = TextRoles(  # of a text with its summary
    ranked=lambda one: one.text.source,
    searched=lambda one: one.text.summary,
    shown=lambda one: one.text.summary,
)
ABOUT = {"lessons": "summaries by clinicians, behind prompts with experience"}


def build_summaries(records: Records, settings: Settings) -> System[SummarisedText]:
    """BadInput for rankers by codes, which texts have none of, and for what only DischargeQA has."""
    check_label_settings(settings, records.config.task.name)
    check_ranker(settings, "texts")
    full = records.config.env.prompts == "full"
    experience = Experience(
        corpus=corpus_of_texts(records, settings, ROLES),
        noun="texts",
        cases=partial(plain_summary_cases, records),
        rule=nearest_summary,
        episodes=partial(
            SummaryEpisodes, template="summary", describe=partial(pieces_text, cut=cut_piece if full else first_words)
        ),
        reply=lambda act, case: right_reply(case),
        row=text_row,
    )
    made = build_label_system(records, settings, experience)
    alone = replace(made.variants[LABELS], title="SFT on references, no experience")
    made = made.adapt(lambda one: replace(one, variants={**one.variants, LABELS: alone}))
    if labels_teach(records):  # the rule writes what others have
        made = made.adapt(lambda one: _with_references(one, experience))
    return with_summaries(made, records.config.reward.eta, made.variants["direct"].spec)


class SummaryEpisodes(LabelEpisodes):
    """Makes episodes that end with a text."""

    def label_of(self, reply: Reply) -> int | None:
        """The label of a text that was written."""
        return label_of_text(reply)

    def _predict(self, case: Case[Any], ranked: Evidence, evidence: Evidence) -> Act:
        experience = self.describe(ranked, evidence, (), self.spec.words)
        template = template_of(self.templates, self.name, experience)
        prompt = template.render(question=case.task.question, patient=case.text, experience=experience)
        facts = {"case": case, "ranked": ranked, "evidence": evidence, "experience": experience}
        return Act("top", "predict", prompt, (), template.max_tokens, 0, as_text, facts)


def pieces_text(
    ranked: Evidence, evidence: Evidence, labels: Sequence[str], words: int, cut: Callable[[str, int], str]
) -> str:
    """Pieces of the summaries of similar texts, the most similar text first, in at most `words` words."""
    kept, lines = pieces_by_stay(evidence, words, cut), []
    with_pieces = [text.ident for text in ranked.passages if text.ident in kept]
    for number, ident in enumerate(with_pieces, 1):
        lines += [f"summary of similar text {number}:", *(f"- {without_head(piece)}" for piece in kept[ident])]
    return "\n".join(lines) or NOTHING


def nearest_summary(act: Act) -> str:
    """The summary of the most similar text, or the text itself where nothing is alike: it reads no summary of the
    text's own."""
    ranked: Evidence = act.facts["ranked"]
    case: Case[SummarisedText] = act.facts["case"]
    return ranked.passages[0].text if ranked.passages else case.text


def _with_references(made: System[SummarisedText], experience: Experience) -> System[SummarisedText]:
    """`made`, whose warm-up learns the summaries by clinicians from the prompts that the trained variant shows."""
    play = made.variants[MAIN].spec.episode

    def examples(reader: Reader) -> SftExamples:
        cases = experience.cases(reader)
        train, valid = (
            tuple(Example(asked(play(case), experience.corpus).prompt, right_reply(case)) for case in part)
            for part in (cases.train, cases.valid)
        )
        return SftExamples(train, valid, ABOUT)

    return replace(made, training=replace(made.training, examples=examples))


def asked(episode: EpisodeGenerator, corpus: Corpus) -> Act:
    """What an episode asks a model first, once its look-ups are answered."""
    effect: Any = next(episode)
    while not isinstance(effect, Act):
        effect = episode.send(corpus.retrieve([effect])[0])
    return effect
