"""GraphWalker's use of a selection (Section 4.3): other patients' cases with their outcomes, then the patient, then the
label, or the summary of a text. Which cases, a selector decides; every selector is a variant of this one episode."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from ghar.data.cohort import Task
from ghar.envs.case import Case
from ghar.envs.few_shot import with_examples
from ghar.envs.generators import through
from ghar.envs.graphwalker.corpus import Examples, SelectExamples, earlier
from ghar.envs.graphwalker.probability import AGENT, probability_act, probability_prediction
from ghar.envs.graphwalker.probability import MAX_TOKENS as PROBABILITY_TOKENS
from ghar.envs.graphwalker.react import ROLES, Looks, react, tokens_of_react
from ghar.envs.graphwalker.selectors.prompt import END, asked_text
from ghar.envs.graphwalker.selectors.protocol import Name
from ghar.envs.summaries import label_of_text
from ghar.envs.system import Variant
from ghar.episode import Act, EpisodeGenerator, Evidence, Prediction, Reply, as_text
from ghar.llm.parsing import parse_label

MAX_TOKENS = 16  # of a label that is not restricted to the choices
SHARED_TOKENS = 64  # of what a patient shares with the examples
ANSWER = "Answer:"  # what the prompt of a label ends in
SHARED = "Shared:"  # what the prompt of a comparison ends in
NOTHING = "nothing"
INFERENCE_ROLES = {"direct": ("predict",), "compare": ("compare", "predict"), "react": ROLES}  # by system.inference


@dataclass(frozen=True)
class SelectorSpec:
    """`Variant.spec`: who chooses the examples."""

    selector: Name


@dataclass(frozen=True)
class EncoderSpec:
    """`Variant.spec` of the EHR encoder's own prediction: no example and no language model (Table 3)."""

    selector: Name = "zero_shot"


@dataclass(frozen=True)
class ExampleSpec:
    """opening: text before all examples. k: examples at most. usual: the most frequent label, for fixed rules.

    inference: the label at once; a comparison with the examples, then the label (ours); or ReAct with the examples
    before each of its prompts (Appendix O.2). reply: a label, or the probability of the second one. summary_tokens:
    of a summary, which ends the episode in place of a label; None where labels are asked.
    """

    task: Task
    opening: str
    k: int
    usual: int
    inference: Literal["direct", "compare", "react"] = "direct"
    reply: Literal["label", "probability"] = "label"
    summary_tokens: int | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        return INFERENCE_ROLES[self.inference]


def tokens_behind(spec: ExampleSpec, count: Callable[[str], int], seen: str = "") -> int:
    """Tokens that an episode says and hears after the patient, besides the answer. seen: the longest text that ReAct
    can look at."""
    behind = 0
    if spec.inference == "compare":
        behind += count(compared_prompt(ANSWER, "")) + SHARED_TOKENS
    if spec.inference == "react":
        behind += tokens_of_react(spec.task, seen, count)
    if spec.reply == "probability":
        behind += count(probability_act("", spec.task.labels).prompt) + PROBABILITY_TOKENS
    return behind


class ExampleEpisodes:
    """Makes episodes. encoded: label probabilities by the encoder alone, of each sample."""

    def __init__(self, spec: ExampleSpec, encoded: Mapping[str, tuple[float, ...]]):
        self.spec = spec
        self.encoded = encoded

    def episode(self, case: Case[Looks], variant: Variant) -> EpisodeGenerator:
        """The predicted label, of a text that of a summary; `variant.spec` is a `SelectorSpec` or an `EncoderSpec`."""
        if isinstance(variant.spec, EncoderSpec):
            shares = self.encoded[case.sample_id]
            return Prediction(shares.index(max(shares)), probabilities=shares)
        examples, selector = Examples(), variant.spec.selector
        if selector != "zero_shot":
            examples = yield SelectExamples(case.text, None, self.spec.k, sample_id=case.sample_id, selector=selector)
        facts = {"case": case, "labels": self.spec.task.labels, "usual": self.spec.usual, "evidence": examples}
        facts["reply"] = self.spec.reply
        if self.spec.inference == "react":
            return (yield from self._react(case, examples, facts))
        return (yield from self._direct(case, examples, facts))

    def _direct(self, case: Case[Looks], examples: Examples, facts: Mapping[str, Any]) -> EpisodeGenerator:
        labels = self.spec.task.labels
        prompt = prompt_text(self.spec.opening, examples, case.text)
        if self.spec.summary_tokens is not None:
            summary: Reply = yield Act(AGENT, "predict", prompt, (), self.spec.summary_tokens, 0, as_text, facts)
            return Prediction(label_of_text(summary))
        if self.spec.inference == "compare" and examples.passages:
            ask = compare_prompt(prompt)
            seen: Reply = yield Act(AGENT, "compare", ask, (), SHARED_TOKENS, 0, as_text, facts)
            prompt = compared_prompt(prompt, seen.text)
        if self.spec.reply == "probability":
            ask = replace(probability_act(prompt.removesuffix(ANSWER), labels), facts=facts)
            answer: Reply = yield ask
            return probability_prediction(answer.value)
        parse = partial(parse_label, labels=labels)
        reply: Reply = yield Act(AGENT, "predict", prompt, labels, MAX_TOKENS, 0, parse, facts)
        return Prediction(reply.value)

    def _react(self, case: Case[Looks], examples: Examples, facts: Mapping[str, Any]) -> EpisodeGenerator:
        text = earlier(examples.demonstrations)
        return (yield from _knowing(with_examples(react(case, reply=self.spec.reply), text, ROLES), facts))


def prompt_text(opening: str, examples: Evidence, text: str) -> str:
    """The text of the very pieces that selectors score (envs/graphwalker/selectors/prompt.py)."""
    return opening + "".join(passage.text + END for passage in examples.passages) + asked_text(text)


def compare_prompt(prompt: str) -> str:
    """The prompt of a label, asking first what the patient shares with the examples."""
    return prompt.removesuffix(ANSWER) + SHARED


def compared_prompt(prompt: str, seen: str) -> str:
    """The prompt of a label after a comparison, in one line."""
    return f"{compare_prompt(prompt)} {' '.join(seen.split())}\n{ANSWER}"


def comparison(shared: Sequence[tuple[Sequence[str], str]]) -> str:
    """What is imitated: the items shared with each example, and how it ended, example by example."""
    phrases = [f"{item} {outcome}" for items, outcome in shared for item in items]
    return "; ".join(phrases) or NOTHING


def _knowing(episode: EpisodeGenerator, facts: Mapping[str, Any]) -> Generator[Act, Reply, Prediction]:
    """The same episode, whose acts carry `facts`."""

    def asked(act: Act) -> Generator[Act, Reply, Reply]:
        return (yield replace(act, facts=facts))

    return through(episode, asked)
