"""A reward term: GHAR, rewarded for few words."""

from dataclasses import dataclass
from typing import Any

from ghar.envs.additions import add_term
from ghar.envs.ghar.settings import Settings as GharSettings
from ghar.envs.ghar.system import build as build_ghar
from ghar.envs.records import Records
from ghar.envs.system import System
from ghar.episode import Episode


@dataclass(frozen=True)
class Settings(GharSettings):  # GHAR's keys, and one
    name: str = "mine.brevity"
    brevity: float = 0.01  # weight of each word that an agent writes


def words(episode: Episode, case: Any) -> float:
    return -float(sum(len(text.split()) for text in episode.replies))


def build(records: Records, settings: Settings) -> System:
    return add_term(build_ghar(records, settings), "brevity", words, settings.brevity)
