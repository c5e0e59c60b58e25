"""Reasoning chains by an expert model for the training patients of KARE (Section 3.3.1, Appendix D.3).

The expert sees task, augmented context and true label, and writes K chains with a confidence each; the most confident
one is kept. It knows the label, so a chain that says so teaches nothing: such chains are rejected (`gives_away`).
Whatever cannot be used is stored, counted by reason and asked again, up to a limit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ghar.data.tasks.question_files import MEDQA
from ghar.envs.case import Case
from ghar.envs.kare.episode import NOTHING, KareReading
from ghar.llm.cached_llm import LONGEST, CachedQuestion, LlmCost, UnreadableAnswer, ask
from ghar.llm.engine import Engine
from ghar.llm.prompts import load_prompts

CONFIDENCES = ("very confident", "confident", "neutral", "not confident", "very not confident")  # Fig. 16, surest first
SHORTEST = 5  # words of a chain; a bare "yes" reasons nothing
NAMES = re.compile(rf"\b(?:{'|'.join(sorted(CONFIDENCES, key=len, reverse=True))})\b")
HEADING = re.compile(r"(?im)^[#*_ \t]{0,12}confidence[#*_ \t]{0,12}(?::[*_ \t]{0,12}|$)")
TITLE = re.compile(r"(?i)\A[#*\s]*(?:reasoning )?chain\b[#*:\s]*")
LEVEL = re.compile(
    r"(?i)[\s#*_:\[(\"']{0,40}(?:I am |I'm )?"
    rf"({'|'.join(name.replace(' ', ' {1,3}') for name in sorted(CONFIDENCES, key=len, reverse=True))})"
    r"(?=[\s*_\])\"']{0,40}(?:$|[.,;:!(\n—-]|that\b|because\b))"
)
WRONG = re.compile(r"(?:that|because) (?:[a-z]+ ){1,4}(?:wrong|mistaken|incorrect|false|guessing)\b")

# Signs that the writer knew the label beforehand. The outcomes of similar patients are known and may be called so:
# only the first sign tells whatever the sentence is about.
_LABEL = r"(?:label|outcome|answer|ending)"
_GIVEN_WORDS = r"(?:known|true|real|actual|given|provided|stated|supplied|recorded|documented|observed|reported)"
CERTAIN = re.compile(r"ground[\s-]+truth|\b(?:true|gold|correct|given|provided|known|actual) label")
UNLESS_OTHERS = re.compile(
    "|".join(
        (
            rf"\b{_GIVEN_WORDS} {_LABEL}\b",
            rf"\b(?:the|this|its) {_LABEL} (?:is|was|has been) (?:already )?{_GIVEN_WORDS}\b",
            rf"\b(?:given|told|informed of|knowing|know|knew|known) (?:that )?(?:the|this|its) (?:final )?{_LABEL}\b",
            r"\b(?:told|know|knew|knowing) how (?:the|this|it) (?:[a-z']+ ){0,3}(?:ended|ends|turned out)\b",
            r"\b(?:the|this|its) label (?:says|states|indicates|tells|shows|confirms|is)\b",
            rf"\b(?:with|to) (?:the|its|this) {_LABEL} (?:i|we) (?:was|were|am|are)\b",
            r"\b(?:consistent|in line|in accordance|agrees|matches|aligns) with (?:the|its|this) label\b",
            rf"\baccording to (?:the|its|this) {_LABEL}\b",
            r"\b(?:did|was|were) (?:in fact|actually) (?:die|dead|readmitted|return|come back)\b",
        )
    )
)
OTHERS = re.compile(
    r"\bsimilar\b|\bneighbou?rs?\b|\b(?:other|earlier|comparable|reference|first|second|these|both) patients?\b"
)


@dataclass(frozen=True)
class Chain:
    """A chain that can be used; confidence: its place in `CONFIDENCES`, 0 the surest."""

    text: str
    confidence: int


@dataclass(frozen=True)
class Chains:
    """What the expert gave.

    best: sample id -> its most confident chain, of equal ones the first; samples without a usable chain are in
    `without`, in order. counts: "chains", "chains rejected: <reason>" (after all tries), "samples without a chain", and
    one "kept, <confidence>" for each level met. cost: of all questions.
    """

    best: Mapping[str, Chain]
    without: tuple[str, ...]
    counts: Mapping[str, int]
    cost: LlmCost


def write_chains(
    engine: Engine,
    cases: Sequence[Case[KareReading]],
    knowledge: Mapping[str, str],
    considerations: str,
    store: Path,
    *,
    chains: int,
    seed: int,
) -> Chains:
    """Ask for `chains` chains (the paper's K, which it leaves open) of every case and keep the best of each.

    knowledge: sample id -> what was looked up, as prompts show it. considerations: what to look out for in this task
    (Figure 15: shown to the expert, not to the student). store: file of the answers; see `ghar.llm.cached_llm.ask`.
    """
    questions = [
        CachedQuestion(
            f"{case.sample_id}#{k}", expert_prompt(case, knowledge[case.sample_id], considerations), reply_limit()
        )
        for case in cases
        for k in range(chains)
    ]
    # several chains are samples; a single one is the expert's most probable
    warmth = 1.0 if chains > 1 else 0.0
    answers = ask(
        engine, questions, store, read_chain, seed=seed, temperature=warmth, title="Expert's reasoning chains"
    )
    best: dict[str, Chain] = {}
    for case in cases:
        usable = [answers.values[key] for k in range(chains) if (key := f"{case.sample_id}#{k}") in answers.values]
        if usable:
            best[case.sample_id] = min(usable, key=lambda chain: chain.confidence)  # the first of equals
    without = tuple(case.sample_id for case in cases if case.sample_id not in best)
    kept = Counter(f"kept, {CONFIDENCES[chain.confidence]}" for chain in best.values())
    lost = Counter(f"chains rejected: {reason}" for reason in answers.failed.values())
    counts = {"chains": len(answers.values), **dict(sorted(lost.items())), "samples without a chain": len(without)}
    return Chains(best, without, counts | dict(sorted(kept.items())), answers.cost)


def expert_prompt(case: Case[KareReading], knowledge: str, considerations: str) -> str:
    """What the expert is asked: the inputs and the output contract of Figure 16, in our words."""
    prompts = "questions" if case.task.name == MEDQA else "expert"
    return load_prompts("ghar.envs.kare", prompts, ("chain",))["chain"].render(
        question=case.task.question,
        labels=", ".join(case.task.labels),
        considerations=considerations,
        patient=case.text or NOTHING,
        similar=case.reads.similar or NOTHING,
        knowledge=knowledge or NOTHING,
        truth=case.task.labels[case.label],
    )


def reply_limit() -> int:
    """Tokens of a reply (4,096; Appendix D.3)."""
    return load_prompts("ghar.envs.kare", "expert", ("chain",))["chain"].max_tokens


def read_chain(reply: str) -> Chain:
    """The chain and its confidence.

    Unreadable: "too_long", "no_chain" (nothing, or a few words), "no_confidence" (no such part, or one that begins with
    none of the five), "several_confidences" (more than one), "gives_label_away".
    """
    if len(reply) > LONGEST:
        raise UnreadableAnswer("too_long")
    parts = HEADING.split(reply)
    chain = TITLE.sub("", parts[0].strip()).strip()
    if len(chain.split()) < SHORTEST:
        raise UnreadableAnswer("no_chain")
    if len(parts) == 1:
        raise UnreadableAnswer("no_confidence")
    confidence = _confidence(parts[-1])
    if gives_away(chain):
        raise UnreadableAnswer("gives_label_away")
    return Chain(chain, confidence)


def _confidence(text: str) -> int:
    """Which of `CONFIDENCES` a text begins with; "not very confident" and "fairly confident" are none of them."""
    level = LEVEL.match(text)
    if level is None:
        raise UnreadableAnswer("no_confidence")
    words = " ".join(re.findall(r"[a-z]+", text[level.end() :].lower()))
    if WRONG.match(words):
        raise UnreadableAnswer("no_confidence")
    if any(name != level[1].lower() for name in NAMES.findall(words)):
        raise UnreadableAnswer("several_confidences")
    return CONFIDENCES.index(" ".join(level[1].lower().split()))


def gives_away(chain: str) -> str | None:
    """The sentence in which a chain says that its writer knew the label beforehand, None when there is none.

    Signs are words such as "ground truth", "the given outcome", "we know how the case ended". What a chain arrives at
    ("so the answer is yes", "the patient will be readmitted") is its conclusion and no sign, nor is what it says to be
    known of similar patients.
    """
    for sentence in re.split(r"(?<=[.!?;])\s+|\n+", chain):
        plain = " ".join(sentence.lower().split())
        if CERTAIN.search(plain) or (UNLESS_OTHERS.search(plain) and not OTHERS.search(plain)):
            return sentence.strip()
    return None
