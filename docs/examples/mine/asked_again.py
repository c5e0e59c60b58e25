"""A metric: how often GHAR retrieves more than once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ghar.envs.additions import add_metric
from ghar.envs.ghar.settings import Settings as GharSettings
from ghar.envs.ghar.system import build as build_ghar
from ghar.envs.records import Records
from ghar.envs.system import System


@dataclass(frozen=True)
class Settings(GharSettings):
    name: str = "mine.asked_again"


def asked_again(row: Mapping[str, Any]) -> float:
    return float(row["retrievals"] > 1)


def build(records: Records, settings: Settings) -> System:
    return add_metric(build_ghar(records, settings), "asked_again", asked_again)
