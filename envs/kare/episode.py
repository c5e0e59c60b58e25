"""KARE's episode (Sections 3.2 and 3.3 of the paper) and its language-model baselines.

Knowledge is looked up once for the patient; then the model reasons and predicts, each asked with its own prefix:

    beside   [Reasoning] and [Label Prediction] as two questions about the same context, asked together (KARE)
    none     [Label Prediction] alone
    within   one reply that ends with the answer: zero-shot, few-shot, and the "two-in-one" ablation of Table 4

What is looked up is not this file's business: `look_up` makes the request of a case (communities, abstracts, nothing),
so every variant is one episode. A case holds its label for rewards; no prompt is ever made from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ghar.data.cohort import Task
from ghar.envs.case import Case
from ghar.envs.rollout import Corpus
from ghar.envs.stepper import Scene
from ghar.episode import (
    Act,
    Episode,
    EpisodeGenerator,
    Evidence,
    Options,
    Parsed,
    Prediction,
    ReasoningStep,
    Reply,
    Retrieve,
    as_text,
)
from ghar.llm.answer_line import MOST, last_answer, small
from ghar.llm.parsing import parse_label
from ghar.llm.prompts import load_prompts
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import score_outcome

Prompts = Literal["full", "compact", "questions", "texts", "compact_texts"]  # env.prompts, and those of tasks of texts
Reasoning = Literal["none", "beside", "within"]
LookUp = Callable[["Case[KareReading]"], Retrieve | None]
ROLES = ("reason", "predict", "both")
NOTHING = "(none)"


@dataclass(frozen=True)
class KareReading:
    """What KARE reads of a sample besides the record.

    similar: the similar training patients that the prompts show, "" for none. neighbours: what `similar` is taken from:
    for each label its nearest patients' records with their outcome, nearest first. dropped: visits, and codes of the
    newest one, that the budget had no room for.
    """

    similar: str = ""
    neighbours: tuple[tuple[str, ...], ...] = ()
    dropped: int = 0

    def showing(self, each: int) -> KareReading:
        """The same with `each` similar patients of each label in the prompts."""
        return replace(self, similar="\n".join(text for group in self.neighbours for text in group[:each]))


def base_text(case: Case[KareReading]) -> str:
    """The base context B_p: task, record, similar patients."""
    return f"{case.task.question}\n{case.text}\n{case.reads.similar}".strip()


@dataclass(frozen=True)
class KareSpec:
    """tokens: budget of the looked-up knowledge in a prompt. advice: guidelines that zero-shot and few-shot prompts
    begin with, "" for a fine-tuned model, which is trained without (caption of Figure 15)."""

    prompts: Prompts
    reasoning: Reasoning
    tokens: int
    advice: str = ""


@dataclass(frozen=True)
class KarePrediction(Prediction):
    """A prediction with what it rests on: the reasoning chain ("" without one), what was looked up, and how many of
    those passages the prompt had room for."""

    chain: str = ""
    evidence: Evidence = field(default_factory=Evidence)
    prompt_passages: int = 0


class KareEpisodes:
    """Makes episodes of one kind. count: tokens of a text, for the budget."""

    def __init__(self, spec: KareSpec, look_up: LookUp, count: Callable[[str], int]):
        self.spec = spec
        self.look_up = look_up
        self.count = count

    def episode(self, case: Case[KareReading]) -> EpisodeGenerator:
        """The predicted label, the chain, and the knowledge in between (A_p = B_p with S_p)."""
        spec, request, evidence = self.spec, self.look_up(case), Evidence()
        if request is not None:
            evidence = yield request
        prompt_knowledge = knowledge_of(evidence, spec.tokens, self.count)
        knowledge = prompt_knowledge.text
        if spec.reasoning == "within":
            both: Reply = yield self._act("both", case, knowledge, evidence, lambda text: parse_both(text, case.task))
            chain, label = split_both(both.text), both.value
        elif spec.reasoning == "beside":
            reason, predict = yield (self._reason(case, knowledge, evidence), self._predict(case, knowledge, evidence))
            chain, label = reason.value, self.label_of(predict)
        else:
            reply: Reply = yield self._predict(case, knowledge, evidence)
            chain, label = "", self.label_of(reply)
        step = ReasoningStep(case.task.question, chain, bool(evidence.passages), evidence=evidence.text)
        return KarePrediction(label, (step,), chain=chain, evidence=evidence, prompt_passages=prompt_knowledge.passages)

    def label_of(self, reply: Reply) -> int | None:
        """The label that a reply to [Label Prediction] names."""
        return reply.value

    def _reason(self, case: Case[KareReading], knowledge: str, evidence: Evidence) -> Act:
        return self._act("reason", case, knowledge, evidence, as_text)

    def _predict(self, case: Case[KareReading], knowledge: str, evidence: Evidence) -> Act:
        labels = case.task.labels
        return self._act("predict", case, knowledge, evidence, lambda text: parse_label(text, labels), labels)

    def _act(
        self,
        role: Literal["reason", "predict", "both"],
        case: Case[KareReading],
        knowledge: str,
        evidence: Evidence,
        parse: Callable[[str], Parsed],
        choices: tuple[str, ...] = (),
    ) -> Act:
        prompt, spec = PROMPT_OF[role], self.spec
        text = prompt(case, knowledge, spec.prompts, spec.advice)
        facts = {"case": case, "evidence": evidence, "knowledge": knowledge}
        options = Options(tuple(case.task.labels)) if role == "both" else None
        return Act("top", role, text, choices, reply_tokens(role, spec.prompts), 0, parse, facts, options)


def reason_prompt(case: Case[KareReading], knowledge: str, prompts: Prompts, advice: str = "") -> str:
    """The augmented context after the prefix [Reasoning]; `label_prompt` shows the same context (Section 3.3.2)."""
    return _prompt("reason", case, knowledge, prompts, advice)


def label_prompt(case: Case[KareReading], knowledge: str, prompts: Prompts, advice: str = "") -> str:
    """The augmented context after the prefix [Label Prediction]."""
    return _prompt("predict", case, knowledge, prompts, advice)


def both_prompt(case: Case[KareReading], knowledge: str, prompts: Prompts, advice: str = "") -> str:
    """The augmented context with both questions at once; `join_both` words the reply, `parse_both` reads it."""
    return _prompt("both", case, knowledge, prompts, advice)


PROMPT_OF = {"reason": reason_prompt, "predict": label_prompt, "both": both_prompt}


def reply_tokens(role: str, prompts: Prompts) -> int:
    """How long a reply may be."""
    return load_prompts("ghar.envs.kare", prompts, ("context", role))[role].max_tokens


def _prompt(role: str, case: Case[KareReading], knowledge: str, prompts: Prompts, advice: str) -> str:
    templates = load_prompts("ghar.envs.kare", prompts, ("context", role))
    labels = ", ".join(case.task.labels)
    # What is not given has no heading either, but "reason" has its parts numbered, and compact prompts no sections.
    nothing = "" if prompts == "texts" or (role == "both" and prompts != "compact") else NOTHING
    context = templates["context"].render(
        question=case.task.question,
        labels=labels,
        advice=f"{advice}\n" if advice else "",
        patient=case.text or NOTHING,
        similar=case.reads.similar or nothing,
        knowledge=knowledge or nothing,
    )
    return templates[role].render(context=context, labels=labels)


@dataclass(frozen=True)
class PromptKnowledge:
    """What of the evidence a prompt shows, and how many passages that is of."""

    text: str
    passages: int


def knowledge_of(evidence: Evidence, tokens: int, count: Callable[[str], int]) -> PromptKnowledge:
    """The passages as a list, as many of the first as fit into `tokens` as `count` counts them: the one that was
    selected last goes first. Communities overlap: a sentence that stands in an earlier passage to the letter is not
    shown again."""
    lines: list[str] = []
    seen: set[str] = set()
    for number, passage in enumerate(evidence.passages):
        sentences = dict.fromkeys(re.split(r"(?<=\.) ", " ".join(passage.text.split())))
        new = [sentence for sentence in sentences if sentence and sentence not in seen]
        if not new:
            continue
        lines.append(f"- {' '.join(new)}")
        if count("\n".join(lines)) > tokens:
            return PromptKnowledge("\n".join(lines[:-1]), number)
        seen.update(new)
    return PromptKnowledge("\n".join(lines), len(evidence.passages))


def knowledge_text(evidence: Evidence, tokens: int, count: Callable[[str], int]) -> str:
    """The text of `knowledge_of`."""
    return knowledge_of(evidence, tokens, count).text


def join_both(chain: str, label: str) -> str:
    """Chain and label in one reply."""
    return f"{chain}\nanswer: {label}"


def parse_both(reply: str, task: Task) -> Parsed:
    """The label after the last "answer:"; errors as `parse_label`, and "no_answer" for a reply that has none."""
    if reply.strip() and "answer" not in small(reply[-MOST:]):
        return Parsed(None, "no_answer")
    return parse_label(reply, task.labels)


def split_both(reply: str) -> str:
    """The chain of a reply that holds both: what stands before the last "answer:"."""
    tail = reply[-MOST:]
    answer = last_answer(small(tail))
    at = len(reply) if answer is None else len(reply) - len(tail) + answer.begin
    return reply[:at].strip(" \t\r\n*_#")


def kare_scene(episodes: KareEpisodes, corpus: Corpus, cases: Sequence[Case[KareReading]], eta: float) -> Scene:
    """KARE on `cases` for the views (Gymnasium, PettingZoo, RLlib); eta: weight of the outcome."""

    def reward(episode: Episode, case: Case[KareReading]) -> EpisodeReward:
        return score_outcome(episode, case.label, eta)

    return Scene("KARE", ("top",), ROLES, cases, episodes.episode, corpus, reward)
