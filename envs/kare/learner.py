"""EHR-CoAgent's rounds before a variant is played (`System.prepare`): guidelines for the policy that will answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ghar.data.tasks.splits import Splits
from ghar.envs.case import Case
from ghar.envs.kare.coagent import CoagentSpec, Guidelines, learn_guidelines
from ghar.envs.kare.episode import KareReading
from ghar.envs.kare.graph.considerations import considerations_of
from ghar.envs.kare.methods import KarePlayer, method_of
from ghar.envs.kare.scripted_expert import scripted_critic
from ghar.envs.kare.settings import Settings
from ghar.envs.play import PlayContext, play
from ghar.envs.records import Records
from ghar.envs.reply_budget import with_budgets
from ghar.envs.rollout import Corpus
from ghar.envs.system import Variant
from ghar.episode import Episode
from ghar.llm.engines import engine_key, named_engine
from ghar.llm.policy import Policy

ROUNDS = CoagentSpec()


@dataclass(frozen=True, eq=False)
class Learner:
    """Learns on the training patients. learned: by variant, what it has learned, for the summary."""

    records: Records
    own: Settings
    cases: Splits[Case[KareReading]]
    player: KarePlayer
    corpus: Corpus
    learned: dict[str, Guidelines] = field(default_factory=dict)

    def prepare(self, variant: Variant, policy: Policy) -> Variant:
        """The variant with what it has to know; one that learns nothing comes back as it is."""
        method = method_of(variant)
        if method.learns == "no":
            return variant
        self.learned[variant.name] = self._learn(variant, policy)
        advice = self.learned[variant.name].advice
        return replace(variant, spec=replace(method, advice=advice, learns="no"))

    def _learn(self, variant: Variant, policy: Policy) -> Guidelines:
        config, expert = self.records.config, self.own.expert
        credentialed = self.records.credentialed(self.records.cohort)
        learns = method_of(variant).learns
        store = Path(config.run_dir) / "coagent" / f"{engine_key(config, expert)}-{learns}.jsonl"
        first, cases = considerations_of(self.records.task.name), self.cases.train
        texts, rounds = [case.text for case in cases], partial(self._play, variant, policy)
        with named_engine(config, expert, scripted_critic, credentialed, lambda: texts) as critic:
            regulated = learns == "regulated"
            return learn_guidelines(rounds, critic, cases, first, store, ROUNDS, regulated=regulated, seed=config.seed)

    def _play(
        self, variant: Variant, policy: Policy, some: Sequence[Case[KareReading]], advice: str, number: int
    ) -> list[Episode]:
        """One round's predictions with the guidelines so far."""
        config = self.records.config
        advised = replace(variant, spec=replace(method_of(variant), advice=advice, learns="no"))
        credentialed = self.records.credentialed(self.records.cohort)
        episode = with_budgets(self.player.episode, config.env.budgets)
        stage = PlayContext(config, ("top",), episode, advised, self.corpus, credentialed)
        title = f"{variant.title}, round {number + 1}"
        return play(stage, some, policy, seed=config.seed, title=title, attempt=number)

    def guidelines(self) -> dict[str, Any]:
        """The guidelines and their price, by variant."""
        return {
            name: {
                "advice": guidelines.advice,
                "rounds": [asdict(r) for r in guidelines.rounds],
                "cost": asdict(guidelines.cost),
            }
            for name, guidelines in self.learned.items()
        }
