"""What KARE adds to a row of episodes/*.jsonl, with why each community was chosen, and to the numbers of a variant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ghar.envs.case import Case
from ghar.envs.kare.episode import KarePrediction, KareReading
from ghar.envs.kare.methods import method_of
from ghar.envs.kare.retrieval.community_corpus import ChosenCommunity
from ghar.envs.kare.retrieval.community_index import CommunityIndex
from ghar.envs.system import Variant
from ghar.episode import Episode, Passage
from ghar.metrics.policy import policy_summary

NAMED = 12  # concepts of a community that are listed


@dataclass(frozen=True, eq=False)
class KareRows:
    """Reads episodes. index: of the communities. labels: of the task."""

    index: CommunityIndex
    labels: tuple[str, ...]

    def row(self, episode: Episode, case: Case[KareReading], variant: Variant) -> dict[str, Any]:
        """The similar patients that were shown, the reasoning chain, and `found`: what was looked up, also where a
        failed or unreadable episode rests on nothing. dropped: see `KareReading`."""
        prediction = episode.prediction
        rests_on = prediction if isinstance(prediction, KarePrediction) else KarePrediction(None)
        passages = rests_on.evidence.passages
        passage_rows = [self._passage_row(passage, i < rests_on.prompt_passages) for i, passage in enumerate(passages)]
        return {
            "similar": case.reads.showing(method_of(variant).similar).similar,
            "dropped": case.reads.dropped,
            "chain": rests_on.chain,
            "found": passage_rows,
        }

    def _passage_row(self, passage: Passage, is_in_prompt: bool) -> dict[str, Any]:
        """A passage, and whether the prompt had room for it; of a community also its concepts and Eq. 3's factors."""
        row: dict[str, Any] = {
            "kind": passage.kind, "ident": passage.ident, "score": passage.score, "text": passage.text,
            "shown": is_in_prompt,
        }  # fmt: skip
        if isinstance(passage, ChosenCommunity):
            names = self.index.names(passage.ident)
            row |= {"names": names[:NAMED], "size": len(names), "factors": asdict(passage.factors)}
        return row

    def numbers(self, rows: Sequence[Mapping[str, Any]], draw: dict[str, int]) -> dict[str, Any]:
        """`policy_summary`, "errors" {format error: count}, how many passages were "found" and had no room ("cut"),
        and of how many patients the record had none ("shortened")."""
        return policy_summary(rows, self.labels, **draw) | passage_counts(rows)


def passage_counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Count format errors, passages and shortened records, as `KareRows.numbers` says."""
    passages = [passage["shown"] for row in rows for passage in row.get("found", ())]  # baselines show nothing
    return {
        "errors": dict(Counter(error for row in rows for error in row["errors"]).most_common()),
        "found": len(passages),
        "cut": passages.count(False),
        "shortened": sum(row.get("dropped", 0) > 0 for row in rows),
    }
