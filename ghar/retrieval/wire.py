"""What the retrieval service and its clients say to each other: JSON over HTTP.

GET  /health    {"status": "ok"}
GET  /version   Version as an object
POST /retrieve  {"graph": fingerprint, "requests": [{"query", "partitions", "top_n"}]}
                -> {"answers": [[[text, kind, partition, score, ident], ...], ...]}, one per request, in order
All but /health need the header "Authorization: Bearer TOKEN". A request that fails is answered with a 4xx or 5xx status
and {"error": name, "detail": sentence}, which repeat nothing of it:

401 unauthorized     404, 405 unknown     408 too_slow     409 other_graph     413 too_large     422 invalid
500 failed           503 busy (more wait than there is room for; come again)    504 too_late (no answer in time)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ghar.episode import Evidence, Passage, Retrieve
from ghar.sanitize import readable

PROTOCOL = 2
MOST_ITEMS = 10_000  # of all partitions of a call: writing an answer down holds up everyone else's
MOST_REQUESTS, MOST_TOP_N, MOST_QUERY = 64, 1000, 20_000  # requests of a call, items a partition, characters of a query


@dataclass(frozen=True)
class ServiceVersion:
    """What a service answers with. Equal versions give equal answers.

    graph: fingerprint of the graph. kind, probes: as in the configuration.
    """

    graph: str
    kind: str
    probes: int | None
    protocol: int = PROTOCOL


def requests_to_json(requests: Sequence[Retrieve]) -> list[dict[str, Any]]:
    """As the body of /retrieve wants them."""
    return [
        {"query": readable(one.query)[:MOST_QUERY], "partitions": one.partitions, "top_n": one.top_n}
        for one in requests
    ]


def requests_from_json(values: Sequence[dict[str, Any]]) -> list[Retrieve]:
    """The inverse of `requests_to_json`, for values that have been validated."""
    return [
        Retrieve(v["query"], None if v["partitions"] is None else tuple(v["partitions"]), v["top_n"]) for v in values
    ]


def answers_to_json(answers: Sequence[Evidence]) -> list[list[tuple[Any, ...]]]:
    """Passages as lists of their fields; floats keep every bit."""
    return [[(p.text, p.kind, p.partition, p.score, p.ident) for p in answer.passages] for answer in answers]


def answers_from_json(values: Sequence[Sequence[Sequence[Any]]]) -> list[Evidence]:
    """The inverse of `answers_to_json`. Raises TypeError or ValueError for anything else."""
    return [Evidence(tuple(Passage(*fields) for fields in answer)) for answer in values]
