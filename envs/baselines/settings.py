"""The keys of system=baselines."""

from __future__ import annotations

from dataclasses import dataclass

from ghar.config import Count


@dataclass(frozen=True)
class Settings:
    """Baselines that ask no language model. What validation chooses (penalty, neighbours, which visits) has no key."""

    name: str = "baselines"  # of the system
    # folder of MIMIC-IV-Note, for counts_lr_notes and boosting_notes; null generates summaries for generated patients
    notes: str | None = None
    words: Count = 300  # of the summaries of training patients, the most frequent ones, as columns
    codes: Count = 500  # of the training patients, the most frequent ones, as columns of boosting
    rounds: Count = 300  # of boosting at most
    sweeps: Count = 50  # over the table of severities at most
    hidden: Count = 64  # of the networks over visits
    visits: Count = 20  # the newest ones, that the networks read
    epochs: Count = 100  # of the networks at most
    patience: Count = 8  # epochs or rounds without a better validation loss

    @property
    def patient_text(self) -> tuple[str, ...]:
        """Folders of patients' texts beside the tables (`ghar.config.Named`)."""
        return () if self.notes is None else (self.notes,)
