"""EXPRAG's episode for a label: rank similar stays, read how they ended and what their reports say, predict.

The paper asks about discharges only (DischargeQA, episode.py). Here the same three equations serve any label of a stay:
Eq. 7 ranks the stays of training patients, Eq. 2 retrieves from their reports, and beside each stay stands its own
outcome of the same task. The agent is "top" and its one decision "predict", so MAPPO takes these episodes as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ghar.envs.case import Case
from ghar.envs.exprag.episode import (
    NOTHING,
    ExpragSpec,
    cut_piece,
    first_words,
    pieces_by_stay,
    template_of,
    with_direct,
)
from ghar.envs.exprag.report_corpus import FindExcerpts, RankReports
from ghar.episode import Act, EpisodeGenerator, Evidence, Options, Prediction, ReasoningStep, Reply
from ghar.llm.parsing import parse_label
from ghar.llm.prompts import load_prompts

LABEL_ROLES = ("predict",)
DescribeExperience = Callable[[Evidence, Evidence, Sequence[str], int], str]


class LabelEpisodes:
    """Makes episodes. spec: as for questions of DischargeQA, without FLARE.

    template: name of the prompt; describe: puts ranked stays, their pieces and the labels into so many words.
    """

    def __init__(self, spec: ExpragSpec, template: str = "label", describe: DescribeExperience | None = None):
        self.spec = spec
        self.name = template
        self.templates = load_prompts("ghar.envs.exprag", spec.prompts, with_direct(spec.prompts, template))
        # base models of the demo have learned the compact words
        compact = partial(outcomes_text, noun="patient", cut=first_words)
        self.describe = describe or (outcomes_text if spec.prompts == "full" else compact)

    def episode(self, case: Case[None]) -> EpisodeGenerator:
        """Returns the label; its one step holds which stays were ranked and what their reports said."""
        spec, ranked, evidence = self.spec, Evidence(), Evidence()
        asked = f"{case.task.question}\n{case.text}"
        if spec.top_k:
            ranked = yield RankReports(asked, None, spec.top_k, case.sample_id)
        if ranked.passages:
            stays = tuple(passage.ident for passage in ranked.passages)
            evidence = yield FindExcerpts(asked, stays, spec.excerpts, case.sample_id)
        reply: Reply = yield self._predict(case, ranked, evidence)
        stays = " ".join(str(passage.ident) for passage in ranked.passages)
        step = ReasoningStep(asked, f"stays {stays or 'none'}", bool(ranked.passages), evidence=evidence.text)
        return Prediction(self.label_of(reply), (step,))

    def label_of(self, reply: Reply) -> int | None:
        """The label that a reply names."""
        return reply.value

    def _predict(self, case: Case[None], ranked: Evidence, evidence: Evidence) -> Act:
        task, experience = case.task, self.describe(ranked, evidence, case.task.labels, self.spec.words)
        template = template_of(self.templates, self.name, experience)
        prompt = template.render(
            task=task.name,
            question=task.question,
            patient=case.text,
            experience=experience,
            labels=", ".join(task.labels),
        )
        parse = partial(parse_label, labels=task.labels)
        facts = {"case": case, "ranked": ranked, "evidence": evidence, "experience": experience}
        return Act("top", "predict", prompt, (), template.max_tokens, 0, parse, facts, Options(tuple(task.labels)))


def outcomes_text(
    ranked: Evidence,
    evidence: Evidence,
    labels: Sequence[str],
    words: int,
    noun: str = "stay",
    cut: Callable[[str, int], str] = cut_piece,
) -> str:
    """Every ranked stay with its outcome, the most similar first, and below it the pieces of its report that fit into
    `words` words together with those of the others. noun: what a ranked stay is called; several may be one patient's.
    """
    kept, lines = pieces_by_stay(evidence, words, cut), []
    for number, stay in enumerate(ranked.passages, 1):
        lines.append(f"similar {noun} {number}, outcome: {labels[stay.partition]}")
        lines += [f"- {text}" for text in kept.get(stay.ident, ())]
    return "\n".join(lines) or NOTHING
