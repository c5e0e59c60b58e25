"""The one gate that patient text passes before it leaves the machine."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from ghar.errors import BadInput


def check_destination(cohort_credentialed: bool, destination: str, allow: Sequence[str]) -> None:
    """Raise BadInput when text of a credentialed cohort would go to a destination that privacy.allow does not name.

    Call it before the first byte is sent. destination: "wandb", or the host of a service; compared exactly.
    """
    if cohort_credentialed and destination not in tuple(allow):
        raise BadInput(
            f"text of credentialed patients would be sent to {destination!r}, which privacy.allow does not name: "
            f"add it there if your data use agreement permits it, or switch that destination off"
        )


def check_url(cohort_credentialed: bool, url: str, allow: Sequence[str]) -> None:
    """`check_destination` for the host of `url`, unless that is this machine (localhost, 127.0.0.1, ::1)."""
    host = urlsplit(url).hostname or url
    if not _is_this_machine(host):
        check_destination(cohort_credentialed, host, allow)


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
