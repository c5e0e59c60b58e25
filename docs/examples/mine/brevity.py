"""A reward term and a metric: GHAR, rewarded for few words, and how often it retrieves more than once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ghar.config import NotNegative
from ghar.envs.additions import add_metric, add_term
from ghar.envs.ghar.settings import Settings as GharSettings
from ghar.envs.ghar.system import build as build_ghar
from ghar.envs.records import Records
from ghar.envs.system import System
from ghar.episode import Episode, Reply


@dataclass(frozen=True)
class Settings(GharSettings):
    """GHAR's keys, and one."""

    name: str = "mine.brevity"
    brevity: NotNegative = 0.01  # weight of each word that an agent writes


def words(episode: Episode, case: Any) -> float:
    """Words of all replies, as a cost."""
    replies = [record.result.text for record in episode.trace if isinstance(record.result, Reply)]
    return -float(sum(len(text.split()) for text in replies))


def asked_again(row: Mapping[str, Any]) -> float:
    """Whether an episode retrieved more than once; `row` is a line of episodes/VARIANT.jsonl."""
    return float(row["retrievals"] > 1)


def build(records: Records, settings: Settings) -> System[Any]:
    """GHAR with both."""
    made = add_metric(build_ghar(records, settings), "asked_again", asked_again)
    return add_term(made, "brevity", words, settings.brevity) if settings.brevity else made
