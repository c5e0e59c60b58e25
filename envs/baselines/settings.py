"""The keys of system=baselines."""

from __future__ import annotations

from dataclasses import dataclass

from ghar.config import Count


@dataclass(frozen=True)
class Settings:
    """Baselines that ask no language model. What validation chooses (penalty, neighbours, which visits) has no key."""

    name: str = "baselines"  # of the system
    codes: Count = 500  # of the training patients, the most frequent ones, as columns of boosting
    rounds: Count = 300  # of boosting at most
    sweeps: Count = 50  # over the table of severities at most
    hidden: Count = 64  # of the networks over visits
    visits: Count = 20  # the newest ones, that the networks read
    epochs: Count = 100  # of the networks at most
    patience: Count = 8  # epochs or rounds without a better validation loss
