"""Asking an engine many questions so that no answer is ever lost, paid for twice or silently skipped.

Every answer is appended to one JSONL store the moment it comes, whether it can be read or not: {"key", "prompt" (hash),
"text", "finish", "tokens": [prompt, completion], "sum": of the row}. A job that was killed goes on from the store; an
answer is found again by its key and the hash of its prompt, so a changed prompt is asked anew. A store belongs to one
engine: let its path name the model.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from ghar.disk import report_full_disk
from ghar.episode import Completion
from ghar.errors import BadInput
from ghar.llm.engine import Engine, Request, StreamingEngine, mark_of
from ghar.lock import lock
from ghar.progress import progress
from ghar.sanitize import readable

T = TypeVar("T")
LONGEST = 50_000  # characters of an answer that a reader looks at; 4,096 tokens, the longest budget, are half as many
ROW = {"key", "prompt", "text", "finish", "tokens"}
LOCK_SECONDS = 10.0  # how long to wait for another process that writes the same store


class UnreadableAnswer(Exception):
    """Raised by a reader for an answer it cannot use; `reason` is a short name such as "no_list", counted as it is."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class CachedQuestion:
    """One prompt; `key` is unique among the questions of a job and names the answer."""

    key: str
    prompt: str
    max_tokens: int


@dataclass(frozen=True)
class LlmCost:
    """What a job took, first to last: asked (in this call) + reused (from the store) answers, readable or not.

    unreadable, by_reason and the tokens are over both, so that a resumed job tells the same as an undisturbed one.
    """

    asked: int = 0
    reused: int = 0
    unreadable: int = 0
    by_reason: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: LlmCost) -> LlmCost:
        """What two jobs took together."""
        by_reason = dict(sorted((Counter(self.by_reason) + Counter(other.by_reason)).items()))
        numbers = ("asked", "reused", "unreadable", "prompt_tokens", "completion_tokens")
        return LlmCost(by_reason=by_reason, **{name: getattr(self, name) + getattr(other, name) for name in numbers})


@dataclass(frozen=True)
class LlmAnswers(Generic[T]):
    """values: key -> what was read. failed: key -> reason of its last try; every question is in one of the two."""

    values: dict[str, T]
    failed: dict[str, str]
    cost: LlmCost


@dataclass(frozen=True)
class _Answer:
    text: str
    finish: str
    tokens: tuple[int, int]


def ask(
    engine: Engine,
    questions: Sequence[CachedQuestion],
    store: Path,
    read: Callable[[str], T],
    *,
    seed: int,
    tries: int = 3,
    temperature: float = 0.0,
    batch: int = 64,
    title: str,
) -> LlmAnswers[T]:
    """Answer every question, or name why not after `tries` answers that could not be read.

    read: text -> value; raises `UnreadableAnswer`. temperature: of the first try; later tries sample at 1 with other
    seeds. batch: questions handed to the engine at once. Raises BadInput when the store is damaged or another process
    writes it; what the engine raises passes through, and the answers until then are kept.
    """
    if len({question.key for question in questions}) < len(questions):
        raise ValueError("questions of one job need keys of their own")
    with _opened(store) as (file, stored):
        settled = _Settled(read, tries)
        for question in questions:
            for answer in stored.get(_identity(question), ()):
                if settled.can_read(answer) or not _has_more_room(question, answer):
                    settled.take(question.key, answer)
        reused = settled.answers
        with progress(len(questions), title) as advance:
            advance(len(settled.values) + len(settled.failed()))
            while waiting := [question for question in questions if settled.is_open(question.key)]:
                requests = [_request(question, settled.used[question.key], seed, temperature) for question in waiting]
                requests = [replace(request, credentialed=mark_of(engine)) for request in requests]
                for place, completion in _replies(engine, requests, batch):
                    answer = _Answer(readable(completion.text), completion.finish_reason, completion.tokens)
                    _append(file, store, waiting[place], answer)
                    settled.take(waiting[place].key, answer)
                    advance(not settled.is_open(waiting[place].key))
    return LlmAnswers(settled.values, settled.failed(), settled.cost(reused))


def _has_more_room(question: CachedQuestion, answer: _Answer) -> bool:
    """Whether a stored answer was cut off at a smaller budget than the question has now: it is asked for anew."""
    return answer.finish == "length" and 0 < answer.tokens[1] < question.max_tokens


class _Settled(Generic[T]):
    """What is known so far: the value of a key, or its unreadable tries."""

    def __init__(self, read: Callable[[str], T], tries: int):
        self.read, self.tries = read, tries
        self.values: dict[str, T] = {}
        self.used: Counter[str] = Counter()
        self.last: dict[str, str] = {}
        self.reasons: Counter[str] = Counter()
        self.tokens = [0, 0]

    @property
    def answers(self) -> int:
        return self.used.total()

    def take(self, key: str, answer: _Answer) -> None:
        """Read one answer; an answer to a question that has its value already is of no use and not counted."""
        if key in self.values:
            return
        self.used[key] += 1
        self.tokens = [total + more for total, more in zip(self.tokens, answer.tokens, strict=True)]
        try:
            self.values[key] = self.read(answer.text)
        except UnreadableAnswer as error:
            reason = f"{error.reason}, cut off" if answer.finish == "length" else error.reason
            self.last[key] = reason
            self.reasons[reason] += 1

    def can_read(self, answer: _Answer) -> bool:
        try:
            self.read(answer.text)
        except UnreadableAnswer:
            return False
        return True

    def is_open(self, key: str) -> bool:
        return key not in self.values and self.used[key] < self.tries

    def failed(self) -> dict[str, str]:
        return {key: why for key, why in self.last.items() if key not in self.values and not self.is_open(key)}

    def cost(self, reused: int) -> LlmCost:
        reasons = dict(sorted(self.reasons.items()))
        return LlmCost(self.answers - reused, reused, self.reasons.total(), reasons, *self.tokens)


def _request(question: CachedQuestion, attempt: int, seed: int, temperature: float) -> Request:
    digest = hashlib.blake2b(repr((seed, question.key, attempt)).encode(), digest_size=8).digest()
    own_seed = int.from_bytes(digest, "big") >> 1
    return Request(question.prompt, question.max_tokens, (), own_seed, temperature if attempt == 0 else 1.0)


def _replies(engine: Engine, requests: Sequence[Request], batch: int) -> Iterator[tuple[int, Completion]]:
    """(place, reply) of every request as it comes; at most `batch` are with the engine at a time."""
    if not isinstance(engine, StreamingEngine):
        for start in range(0, len(requests), batch):
            yield from enumerate(engine.generate(requests[start : start + batch]), start)
        return
    came: list[tuple[int, Completion]] = []
    handed_in = answered = 0
    try:
        while answered < len(requests):
            while handed_in < len(requests) and handed_in - answered < batch:
                engine.submit(requests[handed_in], lambda reply, place=handed_in: came.append((place, reply)))
                handed_in += 1
            try:
                engine.step()
            finally:  # what came before a failure is kept, too
                answered += len(came)
                yield from came
                came.clear()
    finally:
        if answered < handed_in:
            engine.cancel()


@contextmanager
def _opened(store: Path) -> Iterator[tuple[IO[str], dict[tuple[str, str], list[_Answer]]]]:
    """The store, ready to append to, and its answers by identity. No one else can open it meanwhile."""
    store.parent.mkdir(parents=True, exist_ok=True)
    with _locked(store.with_name(store.name + ".lock"), store):
        stored = _read(store)
        with store.open("a", encoding="utf-8") as file:
            yield file, stored


@contextmanager
def _locked(path: Path, store: Path) -> Iterator[None]:
    """Hold `path` locked. The system lets go of it when the process ends, however it ends."""
    with path.open("a+", encoding="utf-8") as file:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                lock(file, store, wait=False)
                break
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise BadInput(
                        f"{store} is being written by process {path.read_text().strip() or 'unknown'}: wait until that "
                        f"job ends or stop it, then start again; answers it has stored are used."
                    ) from error
                time.sleep(0.05)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _read(store: Path) -> dict[tuple[str, str], list[_Answer]]:
    """Answers by identity in the order they came; a last line that a killed job left torn is cut off the file."""
    stored: dict[tuple[str, str], list[_Answer]] = {}
    if not store.exists():
        return stored
    data = store.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(store, whole)
    for number, line in enumerate(data[:whole].splitlines(), 1):
        try:
            row = json.loads(line)
            if ("sum" in row and row.pop("sum") != _sum(row)) or row.keys() != ROW:
                raise ValueError("its sum is another")
            prompt_tokens, completion_tokens = row["tokens"]
            answer = _Answer(readable(row["text"]), row["finish"], (prompt_tokens, completion_tokens))
            stored.setdefault((row["key"], row["prompt"]), []).append(answer)
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(
                f"line {number} of {store} is damaged: delete that line, its question is asked again."
            ) from error
    return stored


def _append(file: IO[str], store: Path, question: CachedQuestion, answer: _Answer) -> None:
    key, prompt = _identity(question)
    row = {"key": key, "prompt": prompt, "text": answer.text, "finish": answer.finish, "tokens": answer.tokens}
    with report_full_disk(store.parent):
        file.write(json.dumps(row | {"sum": _sum(row)}) + "\n")
        file.flush()


def _sum(row: Mapping[str, Any]) -> str:
    """A checksum of a row without it; rows of earlier versions have none."""
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]


def _identity(question: CachedQuestion) -> tuple[str, str]:
    return question.key, hashlib.blake2b(readable(question.prompt).encode(), digest_size=16).hexdigest()
