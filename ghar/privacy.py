"""The one gate that patient text passes before it leaves the machine."""

from __future__ import annotations

from collections.abc import Sequence

from ghar.errors import BadInput


def check_destination(cohort_credentialed: bool, destination: str, allow: Sequence[str]) -> None:
    """Raise BadInput when text of a credentialed cohort would go to a destination that privacy.allow does not name.

    Call it before the first byte is sent. destination: "wandb", or the host of an API engine; compared exactly.
    """
    if cohort_credentialed and destination not in tuple(allow):
        raise BadInput(
            f"text of credentialed patients would be sent to {destination!r}, which privacy.allow does not name: "
            f"add it there if your data use agreement permits it, or switch that destination off"
        )
