"""Where text of credentialed patients may go."""

import pytest

from ghar.errors import BadInput
from ghar.privacy import check_url


@pytest.mark.parametrize("url", ["http://localhost:8077", "http://127.0.0.1:1", "https://127.8.9.1", "http://[::1]:8077"])
def test_this_machine_needs_no_permission(url: str) -> None:
    check_url(True, url, [])


@pytest.mark.parametrize("url, host", [
    ("http://10.0.0.1:8077", "10.0.0.1"),
    ("https://index.example.org/v1", "index.example.org"),
    ("http://localhost.example.org", "localhost.example.org"),
    ("http://127.0.0.1@example.org:80", "example.org"),
    ("http://0.0.0.0:8077", "0.0.0.0"),
])  # fmt: skip
def test_another_machine_must_be_named(url: str, host: str) -> None:
    for allow in ([], ["wandb"], [f"x{host}"]):
        with pytest.raises(BadInput, match=rf"'{host}'.*privacy\.allow"):
            check_url(True, url, allow)
    check_url(True, url, [host])
    check_url(False, url, [])
