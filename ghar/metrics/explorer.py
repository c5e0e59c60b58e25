"""All test episodes of a run for its page: a small table of every row, and their texts in packs that open on request.

The table is columns of numbers; the page sorts and filters it. A pack is the JSON of `PACK` samples under every
variant, compressed (gzip, base64) unless all of them together are short; a browser opens one when a row is chosen.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ghar.metrics import traces
from ghar.metrics.rows import calls_of, tokens_of
from ghar.metrics.traces import Row, shorten

PACK = 100  # samples
PLAIN = 2_000_000  # characters of text up to which nothing is compressed
LARGEST = 30_000_000  # characters of compressed text; rows after that have no prompts, after twice as many no texts


@dataclass(eq=False)
class Explorer:
    """What the page is given. columns: variant -> column -> one value a sample, None where it was not played.

    groups, sources: names of what samples belong to and of what evidence came from; a sample's "groups" and the column
    "sources" hold their numbers. packs: (whether it is compressed, text). without: samples whose prompts, or whole
    texts, were left out.
    """

    words: list[str]
    groups: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    columns: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    packs: list[tuple[bool, str]] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)
    without: int = 0
    _index: dict[str, int] = field(default_factory=dict)
    _size: int = 0

    def word(self, text: str | None) -> int:
        """Number of a label or prediction; -1 for none."""
        if text is None:
            return -1
        if text not in self._index:
            if not self._index:
                self._index = {word: i for i, word in enumerate(self.words)}
            if text not in self._index:
                self._index[text] = len(self.words)
                self.words.append(text)
        return self._index[text]

    def table(self, titles: Mapping[str, str], colors: Mapping[str, str]) -> str:
        """The table as a script's JSON."""
        variants = [{"name": name, "title": titles[name], "color": colors[name]} for name in self.columns]
        content = {"words": self.words, "samples": self.samples, "variants": variants, "columns": self.columns}
        names = {"groups": self.groups, "sources": self.sources}
        return as_script(content | names | {"pack": PACK, "without": self.without})


COLUMNS = ("guess", "right", "confidence", "retrieved", "calls", "tokens", "seconds", "reward", "sources")


def sources_of(row: Row) -> list[str]:
    """Where the evidence of an episode came from: the sources asked, where a system has several, and the meta-path or
    kind of each passage."""
    asked = [f"source {name}" for name, times in row.get("asked", {}).items() if times]
    passages = [one for lookup in row.get("lookups") or () for one in lookup["found"]]
    return list(dict.fromkeys([*asked, *(one["path"] or one["kind"] for one in passages)]))


def _numbers(names: list[str], wanted: Sequence[str]) -> list[int]:
    """Places of the wanted names; new ones are added."""
    names += [name for name in wanted if name not in names]
    return [names.index(name) for name in wanted]


def explore(episodes: Mapping[str, Iterator[Row]], main: str, labels: Sequence[str]) -> Explorer:
    """Read every variant's rows once, side by side in the order of `main`'s; rows are never all in memory."""
    explorer = Explorer(list(labels))
    order = [main, *(name for name in episodes if name != main)]
    explorer.columns = {name: {column: [] for column in COLUMNS} for name in order}
    others = {name: _Beside(episodes[name]) for name in order[1:]}
    pack: dict[str, Any] = {}
    raw: list[str] = []
    for row in episodes[main]:
        rows = {main: row} | {name: beside.find(row["sample_id"]) for name, beside in others.items()}
        _sample(explorer, row, rows)
        pack[str(len(explorer.samples) - 1)] = _texts(explorer, row, rows)
        if len(pack) == PACK:
            _close(explorer, raw, pack)
            pack = {}
    if pack:
        _close(explorer, raw, pack)
    explorer.packs += [(False, as_script(json.loads(text))) for text in raw]
    return explorer


@dataclass(eq=False)
class _Beside:
    """Rows of another variant, found by sample; those that come before it in the file are kept until asked for."""

    rows: Iterator[Row]
    kept: dict[str, Row] = field(default_factory=dict)

    def find(self, sample: str) -> Row | None:
        if sample in self.kept:
            return self.kept.pop(sample)
        for row in self.rows:
            if row["sample_id"] == sample:
                return row
            self.kept[row["sample_id"]] = row
        return None


def _sample(explorer: Explorer, row: Row, rows: Mapping[str, Row | None]) -> None:
    """Add a sample to the table."""
    about = {"id": row["sample_id"], "of": row.get("subject_id"), "truth": explorer.word(row["label"])}
    of = _numbers(explorer.groups, [f"{kind}: {name}" for kind, name in row.get("groups", {}).items()])
    explorer.samples.append(about | {"needs": row["needs_retrieval"], "ups": row.get("look_ups"), "groups": of})
    for name, own in rows.items():
        values = [None] * len(COLUMNS) if own is None else _values(explorer, own)
        for column, value in zip(COLUMNS, values, strict=True):
            explorer.columns[name][column].append(value)
        for turn in own["turns"] if own is not None else ():
            if turn["agent"] not in explorer.agents:
                explorer.agents.append(turn["agent"])


def _values(explorer: Explorer, row: Row) -> list[Any]:
    shares = row.get("label_probabilities")
    confidence = None if shares is None else round(max(shares), 4)
    tokens, reward = round(tokens_of(row)), row["reward"]
    score = None if reward is None else round(reward, 4)
    answer = explorer.word(row["prediction"]), int(row["correct"]), confidence
    sources = _numbers(explorer.sources, sources_of(row))
    return [*answer, int(row["retrieved"]), round(calls_of(row)), tokens, round(row["seconds"], 4), score, sources]


def _texts(explorer: Explorer, row: Row, rows: Mapping[str, Row | None]) -> dict[str, Any]:
    """What a pack holds of a sample."""
    if explorer._size > LARGEST:
        explorer.without += 1
    if explorer._size > 2 * LARGEST:
        return {"patient": None, "runs": {}}
    prompts = explorer._size <= LARGEST
    runs = {name: traces.episode(own, prompts) for name, own in rows.items() if own is not None}
    return {"patient": shorten(row["patient"]), "runs": runs}


def _close(explorer: Explorer, raw: list[str], pack: Mapping[str, Any]) -> None:
    """Keep a finished pack: as it is while all are short, compressed once they are not."""
    raw.append(json.dumps(pack, ensure_ascii=True))
    if not explorer.packs and sum(map(len, raw)) <= PLAIN:
        return
    for text in raw:
        zipped = base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()
        explorer.packs.append((True, zipped))
        explorer._size += len(zipped)
    raw.clear()


def as_script(value: object) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
