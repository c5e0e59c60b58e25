"""KARE's reasoning distillation (Section 3.3.2, Appendix D.3): one small model learns to reason and to predict.

multitask            the same context twice: [Reasoning] leads to the expert's best chain, [Label Prediction] to a label
multitask_weighted   the same, patients weighted by the inverse frequency of their label
two_in_one           one reply of chain and label (the ablation of Table 4)
label_only           labels alone (Table 3 without reasoning)

Settings are those of Table 6, where trained pairs are averaged one by one: so a chain counts as much as a label,
however many tokens it has. What is validated is what is trained for the answer (Figure 2): the labels, or for
two_in_one the joint reply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ghar.data.tasks.splits import Splits
from ghar.data.tasks.summary_files import SummarisedText
from ghar.envs.case import Case
from ghar.envs.kare.episode import (
    KareReading,
    Prompts,
    both_prompt,
    join_both,
    knowledge_text,
    label_prompt,
    reason_prompt,
)
from ghar.envs.kare.expert_chains import Chain, Chains, write_chains
from ghar.envs.kare.graph.considerations import considerations_of
from ghar.envs.kare.methods import KarePlayer, LooksUp, look_up
from ghar.envs.kare.rule import belief
from ghar.envs.kare.scripted_expert import scripted_expert
from ghar.envs.kare.settings import Settings
from ghar.envs.real_patients import ABOUT
from ghar.envs.records import Records
from ghar.envs.rollout import Corpus
from ghar.envs.summaries import right_reply
from ghar.envs.system import Example, SftExamples
from ghar.envs.worlds.severity_grades import follows
from ghar.episode import Retrieve
from ghar.llm.engines import engine_key, named_engine
from ghar.progress import track

Tasks = Literal["multitask", "multitask_weighted", "two_in_one", "label_only"]
LOOKED_UP = 64  # patients at once
REFERENCES = {"lessons": "summaries by clinicians: a text has no label, and so no chain leads to one"}


@dataclass(frozen=True)
class DistillationData:
    """What distillation works on: patients, sample id -> what was looked up for them, and -> their best chain."""

    cases: Sequence[Case[KareReading]]
    knowledge: Mapping[str, str]
    chains: Mapping[str, Chain]


@dataclass(frozen=True, eq=False)
class ExampleWriter:
    """Write one reader's training examples: knowledge of training and validation patients, the expert's chains."""

    records: Records
    own: Settings
    cases: Splits[Case[KareReading]]
    player: KarePlayer
    corpus: Corpus
    looks_up: LooksUp = "communities"

    @property
    def tasks(self) -> Tasks:
        """What is taught: labels alone where chains would come from a rule that does not know the patients; of texts
        their references alone."""
        knows = self.records.world is not None and follows(self.records.config.task.name)
        chained = (knows or self.own.expert != "scripted") and not self.records.asks_summaries
        return self.own.tasks if chained else "label_only"

    def examples(self) -> SftExamples:
        """Asks the expert what it was not asked before. Chains for validation patients are written for two_in_one
        alone, whose validation loss is of chain and label."""
        taught: list[DistillationData] = []
        chains: dict[str, Chains] = {}
        noun = "questions" if self.records.asks_questions else "patients"
        for name, cases in (("training", self.cases.train), ("validation", self.cases.valid)):
            knowledge = self._knowledge(cases)
            if self.tasks == "two_in_one" or (self.tasks != "label_only" and name == "training"):
                chains[name] = self._ask_expert(cases, knowledge)
                counts = ", ".join(f"{what} {n}" for what, n in chains[name].counts.items())
                print(f"Chains for {name} {noun}: {counts}")
            taught.append(DistillationData(cases, knowledge, chains[name].best if name in chains else {}))
        train, valid = taught
        prompts = self.player.prompts
        about = _about(chains) | self._lessons
        return SftExamples(examples_of(train, self.tasks, prompts), answers_of(valid, self.tasks, prompts), about)

    @property
    def _lessons(self) -> dict[str, str]:
        """For summary.json, what is taught where it is not what system.tasks names."""
        if self.records.asks_summaries:
            return REFERENCES
        return ABOUT if self.tasks != self.own.tasks else {}

    def _knowledge(self, cases: Sequence[Case[KareReading]]) -> dict[str, str]:
        def request(case: Case[KareReading]) -> Retrieve | None:
            return look_up(self.looks_up, self.player.top_n, case)

        return look_up_all(cases, request, self.corpus, self.player.tokens, self.player.count)

    def _ask_expert(self, cases: Sequence[Case[KareReading]], knowledge: Mapping[str, str]) -> Chains:
        """Chains for `cases`. A model's answers cost something, so runs that differ in their seed share them; a rule's
        stay with the run."""
        config, expert = self.records.config, self.own.expert
        demo_belief = belief(self.records) if expert == "scripted" else None
        rule = str if demo_belief is None else scripted_expert(demo_belief.knowledge, demo_belief.threshold)
        considerations = "\n".join(considerations_of(self.records.task.name))
        root = Path(config.run_dir) if expert == "scripted" else Path(config.data.cache) / "kare"
        store = root / "expert" / f"{engine_key(config, expert)}.jsonl"
        credentialed = self.records.credentialed(self.records.cohort)
        chains, seed = self.own.chains, config.task.split_seed
        texts = [case.text for case in cases]
        with named_engine(config, expert, rule, credentialed, lambda: texts) as engine:
            return write_chains(engine, cases, knowledge, considerations, store, chains=chains, seed=seed)


def _about(by_split: Mapping[str, Chains]) -> dict[str, Any]:
    """For summary.json: what the expert gave, and what of it could not be used."""
    return {
        "chains": {
            name: {**chains.counts, "unreadable replies": chains.cost.by_reason} for name, chains in by_split.items()
        }
    }


def look_up_all(
    cases: Sequence[Case[KareReading]],
    request_of: Callable[[Case[KareReading]], Retrieve | None],
    corpus: Corpus,
    tokens: int,
    count: Callable[[str], int],
) -> dict[str, str]:
    """Sample id -> its knowledge as prompts show it, the same that an episode would be shown."""
    knowledge: dict[str, str] = {}
    for start in track(range(0, len(cases), LOOKED_UP), "Knowledge of patients", unit="batches"):
        some = cases[start : start + LOOKED_UP]
        asked = [(case, request) for case in some if (request := request_of(case)) is not None]
        evidence = corpus.retrieve([request for _, request in asked])
        knowledge |= {
            case.sample_id: knowledge_text(e, tokens, count) for (case, _), e in zip(asked, evidence, strict=True)
        }
    return {case.sample_id: knowledge.get(case.sample_id, "") for case in cases}


def examples_of(taught: DistillationData, tasks: Tasks, prompts: Prompts) -> list[Example]:
    """Training examples, chains before labels; a patient without a chain has its label alone, and is left out of
    two_in_one. The weight of an example is that of its class, or 1."""
    share = class_weights(taught.cases) if tasks == "multitask_weighted" else {}
    free: list[Example] = []
    for case in taught.cases:
        chain, knowledge = taught.chains.get(case.sample_id), taught.knowledge[case.sample_id]
        weight = share.get(case.label, 1.0)
        if chain is None or tasks == "label_only":
            continue
        if tasks == "two_in_one":
            reply = join_both(chain.text, case.task.labels[case.label])
            free.append(Example(both_prompt(case, knowledge, prompts), reply, weight=weight))
        else:
            free.append(Example(reason_prompt(case, knowledge, prompts), chain.text, weight=weight))
    return free if tasks == "two_in_one" else free + label_pairs(taught, prompts, share)


def label_pairs(taught: DistillationData, prompts: Prompts, share: Mapping[int, float]) -> list[Example]:
    """[Label Prediction] of each case: one of the task's labels, or the reference of a text. share: of a label."""
    return [
        Example(
            label_prompt(case, taught.knowledge[case.sample_id], prompts),
            right_reply(case),
            () if isinstance(case.reads, SummarisedText) else case.task.labels,
            share.get(case.label, 1.0),
        )
        for case in taught.cases
    ]


def class_weights(cases: Sequence[Case[KareReading]]) -> dict[int, float]:
    """n / (C n_c) for each of the C labels that occur: its patients together weigh as much as those of any other."""
    counts = Counter(case.label for case in cases)
    return {label: len(cases) / (len(counts) * n) for label, n in counts.items()}


def answers_of(taught: DistillationData, tasks: Tasks, prompts: Prompts) -> list[Example]:
    """Validation examples: labels, or for two_in_one the joint replies."""
    return examples_of(taught, "two_in_one" if tasks == "two_in_one" else "label_only", prompts)
