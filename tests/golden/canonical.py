"""Canonical text of episodes, cases, tables and reports.

The text holds subject matter only: prompts, replies, evidence, predictions, rewards. It holds no module path, class
name, file path, configuration key or time. A moved file or a renamed class therefore leaves it as it is.
Numbers have six significant digits: the processor decides the digits after them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

DIGITS = 6
UNREAD = ("script", "style", "pre", "footer")  # of a report: <pre> quotes the configuration, <footer> names a module


def sum_of(text: str) -> str:
    """The first 16 hexadecimal digits of the sha256 sum."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def as_text(value: Any) -> str:
    """A value as JSON, the entries of its two outer levels on lines of their own: `diff` shows what differs."""
    return "\n".join(_lines(plain(value), 2)) + "\n"


def _lines(value: Any, levels: int) -> Iterator[str]:
    if levels and isinstance(value, dict):
        for key, one in value.items():
            yield f"{key}:"
            yield from _lines(one, levels - 1)
    elif levels and isinstance(value, list):
        for one in value:
            yield from _lines(one, levels - 1)
    else:
        yield json.dumps(value, ensure_ascii=False)


def plain(value: Any) -> Any:
    """A value as JSON has it, floats rounded. An object of another type becomes the list of its public values."""
    if value is None or isinstance(value, bool | str):
        return value
    if hasattr(value, "tolist"):  # an array or a number of NumPy
        return plain(value.tolist())
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}" if value == value else "nan"
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(one) for one in value), key=str)
    if isinstance(value, Sequence):
        return [plain(one) for one in value]
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is None:
        raise TypeError(f"{type(value).__name__} has no canonical form")
    return [plain(getattr(value, name)) for name in fields if not name.startswith("_")]


def episode_text(system: Any, variant: Any, case: Any, episode: Any, reward: Any, row: bool = True) -> str:
    """One episode: the audit trail, the prediction, the reward by term and by turn, the values of the system's row.

    row: False where a model's own numbers stand in the row, whose last digits differ by processor.
    """
    from ghar.episode import Act

    prediction = episode.prediction
    history = [
        [s.query, s.answer, s.retrieved, s.paths, s.path_errors, s.path_duplicates, s.evidence]
        for s in prediction.history
    ]
    end = {
        "failure": episode.failure,
        "label": system.in_words(case, case.label),
        "prediction": [system.in_words(case, prediction.label), prediction.probabilities, prediction.truncated],
        "history": history,
        "turns": [[t.agent, t.role, t.index, t.step, t.format_ok, t.trainable] for t in episode.turns],
        "rewards": dict(reward.terms),
        "reward": reward.total,
        "reward by turn": [dict(turn) for turn in reward.per_turn],
        "row": list(system.report.row(episode, case, variant).values()) if row else [],
    }
    lines = [f"== {episode.sample_id} =="]
    for record in episode.trace:
        lines += (_act if isinstance(record.effect, Act) else _retrieval)(record.effect, record.result)
    return "\n".join(lines) + "\n" + as_text(end)


def _act(act: Any, reply: Any) -> list[str]:
    done = reply.completion
    asked = [act.agent, act.role, act.step, act.max_tokens, list(act.choices)]
    came = [reply.text, reply.error, list(done.token_ids), len(done.prompt_ids), done.finish_reason]
    return [f"act {json.dumps(asked)}", act.prompt, f"reply {json.dumps(came)}"]


def _retrieval(effect: Any, evidence: Any) -> list[str]:
    asked = [effect.query, plain(effect.partitions), plain(effect.top_n), getattr(effect, "sample_id", None)]
    came = [f"{p.kind} {p.partition} {p.ident} {p.text}" for p in evidence.passages]
    return [f"retrieve {json.dumps(asked)}", *came]


def cases_text(system: Any) -> dict[str, Any]:
    """All cases of a system by split, what they need, and the upper bounds on the test cases."""
    parts = {"train": system.cases.train, "valid": system.cases.valid, "test": system.cases.test}
    return {
        "agents": system.agents,
        "roles": system.roles,
        "question": system.task.question,
        "labels": system.task.labels,
        **{
            name: [
                [c.sample_id, c.subject_id, c.label, system.in_words(c, c.label), system.truth.needs(c), c.text]
                for c in cases
            ]
            for name, cases in parts.items()
        },
        "upper bounds": list((system.truth.upper_bounds(parts["test"]) or {}).values()),
    }


def cohort_text(cohort: Any) -> str:
    """Events, codes and visits as CSV."""
    codes = cohort.codes.with_columns(cohort.codes["parents"].list.join("|")).sort("code")
    tables = cohort.events, codes, cohort.visits
    return "\n".join(table.write_csv(datetime_format="%Y-%m-%d %H:%M:%S", float_precision=4) for table in tables)


class _Words(HTMLParser):
    """The words of a page in `lines`: a row of a table, or another piece of text. Times are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.unread = 0  # elements of UNREAD that are open
        self.row: list[str] | None = None
        self.timed: int | None = None  # the table's column of times

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.unread += tag in UNREAD
        if tag == "table":
            self.timed = None
        elif tag == "tr":
            self.row = []
        elif tag in ("td", "th") and self.row is not None:
            self.row.append("")

    def handle_endtag(self, tag: str) -> None:
        self.unread -= tag in UNREAD
        if tag == "tr" and self.row is not None:
            self._end_row(self.row)
            self.row = None

    def handle_data(self, data: str) -> None:
        words = " ".join(data.split())
        if words and not self.unread:
            if self.row:
                self.row[-1] = f"{self.row[-1]} {words}".strip()
            else:
                self.lines.append(words)

    def _end_row(self, row: list[str]) -> None:
        if row[:1] in (["Seconds"], ["Commit"]):
            return
        if "Seconds" in row:
            self.timed = row.index("Seconds")
        self.lines.append(" | ".join(cell for i, cell in enumerate(row) if i != self.timed))


def report_text(html: str) -> str:
    """The words of a report, a row or a piece of text a line, without scripts, configuration, times and commit."""
    words = _Words()
    words.feed(html)
    return "\n".join(words.lines) + "\n"
