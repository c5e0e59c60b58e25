"""KARE's reasoning distillation (Section 3.3.2, Appendix D.3): one small model learns to reason and to predict.

multitask            the same context twice: [Reasoning] leads to the expert's best chain, [Label Prediction] to a label
multitask_weighted   the same, patients weighted by the inverse frequency of their label
two_in_one           one reply of chain and label (the ablation of Table 4)
label_only           labels alone (Table 3 without reasoning)

Settings are those of Table 6, where trained pairs are averaged one by one: so a chain counts as much as a label,
however many tokens it has. The weights with the lowest validation loss are kept; it is computed every quarter of an
epoch over what is trained for the answer (Figure 2): the labels, or for two_in_one the joint reply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from envs.kare.episode import KareCase, Prompts, both_prompt, join_both, knowledge_text, label_prompt, reason_prompt
from envs.rollout import Corpus
from ghar.config import Config
from ghar.episode import Retrieve
from ghar.llm.tokens import Tokenizer, encode_choices, encode_many
from ghar.progress import track
from trainers.expert_chains import Chain
from trainers.sft.pairs import Pair
from trainers.sft.run import SFTResult, run_sft
from trainers.sft.warmup import imitation

Tasks = Literal["multitask", "multitask_weighted", "two_in_one", "label_only"]
WARMUP, LONGEST = 0.1, 6000  # Table 6: warmup_ratio, max_seq_length; its schedule is a cosine
LOOKED_UP = 64  # patients at once


@dataclass(frozen=True)
class Taught:
    """What distillation works on: patients, sample id -> what was looked up for them, and -> their best chain."""

    cases: Sequence[KareCase]
    knowledge: Mapping[str, str]
    chains: Mapping[str, Chain]


def look_up_all(
    cases: Sequence[KareCase],
    look_up: Callable[[KareCase], Retrieve | None],
    corpus: Corpus,
    tokens: int,
    count: Callable[[str], int],
) -> dict[str, str]:
    """Sample id -> its knowledge as prompts show it, the same that an episode would be shown."""
    found: dict[str, str] = {}
    for start in track(range(0, len(cases), LOOKED_UP), "Knowledge of the training patients"):
        asked = [(case, request) for case in cases[start : start + LOOKED_UP] if (request := look_up(case)) is not None]
        evidence = corpus.retrieve([request for _, request in asked])
        found |= {
            case.sample_id: knowledge_text(e, tokens, count) for (case, _), e in zip(asked, evidence, strict=True)
        }
    return {case.sample_id: found.get(case.sample_id, "") for case in cases}


def lessons(tokenizer: Tokenizer, taught: Taught, tasks: Tasks, prompts: Prompts) -> list[Pair]:
    """Training pairs, patient by patient; one without a chain has its label alone, and is left out of two_in_one.

    A pair's weight is the class weight over its length: each pair counts the same, or as its class does.
    """
    told: list[tuple[KareCase, str, str]] = []  # whose, prompt, reply
    answers: list[KareCase] = []
    for case in taught.cases:
        chain, knowledge = taught.chains.get(case.sample_id), taught.knowledge[case.sample_id]
        if tasks == "two_in_one":
            if chain is not None:
                said = join_both(chain.text, case.task.labels[case.label])
                told.append((case, both_prompt(case, knowledge, prompts), said))
            continue
        if tasks != "label_only" and chain is not None:
            told.append((case, reason_prompt(case, knowledge, prompts), chain.text))
        answers.append(case)
    inputs, replies = encode_many(tokenizer, [prompt for _, prompt, _ in told], [reply for _, _, reply in told])
    share = class_weights(taught.cases) if tasks == "multitask_weighted" else Counter()
    pairs = [
        Pair(ids, reply, share.get(case.label, 1.0) / len(reply))
        for (case, _, _), ids, reply in zip(told, inputs, replies, strict=True)
    ]
    return pairs + label_pairs(tokenizer, answers, taught.knowledge, prompts, share)


def label_pairs(
    tokenizer: Tokenizer,
    cases: Sequence[KareCase],
    knowledge: Mapping[str, str],
    prompts: Prompts,
    share: Mapping[int, float],
) -> list[Pair]:
    """[Label Prediction] of each case: the token ids an engine would choose among, no end token. share: of a label."""
    asked = [label_prompt(case, knowledge[case.sample_id], prompts) for case in cases]
    inputs, _ = encode_many(tokenizer, asked, [])
    choices = encode_choices(tokenizer, cases[0].task.labels) if cases else ()
    return [
        Pair(ids, choices[case.label], share.get(case.label, 1.0) / len(choices[case.label]))
        for case, ids in zip(cases, inputs, strict=True)
    ]


def class_weights(cases: Sequence[KareCase]) -> dict[int, float]:
    """n / (C n_c) for each of the C labels that occur: its patients together weigh as much as those of any other."""
    counts = Counter(case.label for case in cases)
    return {label: len(cases) / (len(counts) * n) for label, n in counts.items()}


def answers_of(tokenizer: Tokenizer, taught: Taught, tasks: Tasks, prompts: Prompts) -> list[Pair]:
    """Validation pairs: labels, or for two_in_one the joint replies."""
    if tasks == "two_in_one":
        return lessons(tokenizer, taught, "two_in_one", prompts)
    return lessons(tokenizer, taught, "label_only", prompts)


def distil(
    config: Config, model: Any, tokenizer: Any, pairs: Sequence[Pair], valid: Sequence[Pair], keep: Path | None
) -> SFTResult:
    """Fine-tune, full or by LoRA, and keep the weights with the lowest validation loss."""
    settings = imitation(config, len(pairs))
    quarter = max(1, round(len(pairs) / settings.batch_size / 4))
    table6 = replace(settings, warmup=WARMUP, schedule="cosine", log_every=quarter, max_length=LONGEST)
    return run_sft(model, tokenizer, pairs, table6, keep, valid)
