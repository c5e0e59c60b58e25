"""GraphWalker's own rule as a policy of its episodes, and a language model as their scorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ghar.envs.graphwalker.selection import STOP, MeasureSets, evidence_of, sets_of
from ghar.envs.graphwalker.selectors.protocol import Entropy, Patient
from ghar.envs.graphwalker.selectors.scorer import EngineScorer
from ghar.envs.graphwalker.selectors.search import DIGITS, gain_of
from ghar.envs.rollout import Corpus
from ghar.episode import Act, Evidence, Retrieve


@dataclass(frozen=True)
class ScoredByModel:
    """A corpus that measures H(x | S) with a language model; what is asked together becomes one batch."""

    scorer: EngineScorer
    patients: Mapping[str, Patient]

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        found = self.scorer.answer([Entropy(self.patients[r.query], sets_of(r)) for r in requests])
        return [evidence_of(request, values) for request, values in zip(requests, found, strict=True)]


class Greedy:
    """Algorithm 1's rule: the highest gain, ties to the lower row; stop where nothing gains.

    What was not measured for it, it has measured by `corpus`.
    """

    def __init__(self, corpus: Corpus):
        self.corpus = corpus

    def __call__(self, act: Act) -> str:
        gains, shots = act.facts["gains"], act.facts["shots"]
        if not gains:
            rows = act.facts["frontier"]
            sets = (shots, *((*shots, row) for row in rows))
            asked = MeasureSets(act.facts["case"].sample_id, None, len(sets), sets=sets)
            current, *values = [passage.score for passage in self.corpus.retrieve([asked])[0].passages]
            gains = {row: gain_of(round(current, DIGITS), value) for row, value in zip(rows, values, strict=True)}
        gain, row = max((gain, -row) for row, gain in gains.items())
        return str(-row) if gain > 0 else STOP
