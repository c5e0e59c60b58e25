"""Asking resumably: nothing is lost, paid for twice or silently skipped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ghar.llm.cached_llm as asking
from ghar.episode import Completion
from ghar.errors import BadInput
from ghar.llm.cached_llm import CachedQuestion, LlmAnswers, UnreadableAnswer, ask
from ghar.llm.engine import Engine, Request
from ghar.llm.scripted import ScriptedEngine
from tests.running import run_python


def numbers(text: str) -> int:
    if not text.isdigit():
        raise UnreadableAnswer("prose" if text else "empty")
    return int(text)


class Recorder(ScriptedEngine):
    """Replies by a function of the request, keeps the requests, and dies before request `dies_at`."""

    def __init__(self, reply: Callable[[Request], str], dies_at: int | None = None):
        super().__init__(lambda prompt: "")
        self.by_request, self.dies_at = reply, dies_at
        self.requests: list[Request] = []

    def generate(self, requests):
        replies = []
        for request in requests:
            if len(self.requests) == self.dies_at:
                raise ConnectionError("the server went away")
            self.requests.append(request)
            replies.append(Completion(self.by_request(request), usage=(3, 1)))
        return replies


class Streaming(Recorder):
    """Answers the newest open request first, one a step."""

    def __init__(self, reply, dies_at=None):
        super().__init__(reply, dies_at)
        self.open: list = []
        self.most = 0

    def submit(self, request, done):
        self.open.append((request, done))
        self.most = max(self.most, len(self.open))

    def step(self):
        request, done = self.open.pop()
        done(self.generate([request])[0])

    def cancel(self):
        self.open.clear()


def questions(n: int) -> list[CachedQuestion]:
    return [CachedQuestion(f"q{i}", f"what is {i}?", 8) for i in range(n)]


def number_in(request: Request) -> str:
    return request.prompt.split()[-1].strip("?")


def run(engine: Engine, asked: list[CachedQuestion], store: Path, **options) -> LlmAnswers[int]:
    return ask(engine, asked, store, numbers, seed=0, title="test", **options)


@pytest.mark.parametrize("kind", [Recorder, Streaming])
@pytest.mark.parametrize("dies_at", [0, 1, 5, 7])
def test_an_interrupted_job_goes_on_and_tells_the_same(tmp_path: Path, kind, dies_at: int):
    undisturbed = run(kind(number_in), questions(8), tmp_path / "whole.jsonl", batch=2)
    store = tmp_path / "store.jsonl"
    with pytest.raises(ConnectionError):
        run(kind(number_in, dies_at), questions(8), store, batch=2)
    second = kind(number_in)
    resumed = run(second, questions(8), store, batch=2)
    assert resumed.values == undisturbed.values == {f"q{i}": i for i in range(8)}
    assert resumed.cost.asked == len(second.requests) and resumed.cost.asked + resumed.cost.reused == 8
    lost = 0 if kind is Streaming else 1  # a batch of two is stored when both have come
    assert 8 - dies_at <= resumed.cost.asked <= 8 - dies_at + lost
    assert (resumed.cost.prompt_tokens, resumed.cost.completion_tokens) == (24, 8)


def test_killed_in_the_middle_of_a_line(tmp_path: Path):
    store = tmp_path / "store.jsonl"
    run(Recorder(number_in), questions(4), store)
    whole = store.read_bytes()
    store.write_bytes(whole[:-5])
    engine = Recorder(number_in)
    answers = run(engine, questions(4), store)
    assert [request.prompt for request in engine.requests] == ["what is 3?"]
    assert answers.values == {f"q{i}": i for i in range(4)} and store.read_bytes() == whole


def test_a_process_that_is_killed_leaves_its_answers_and_no_lock(tmp_path: Path):
    store = tmp_path / "store.jsonl"
    script = f"""
import os, signal
from pathlib import Path
from ghar.llm.cached_llm import CachedQuestion, ask
from ghar.llm.scripted import ScriptedEngine
def reply(prompt):
    if prompt == "5":
        os.kill(os.getpid(), signal.SIGKILL)
    return prompt
ask(ScriptedEngine(reply), [CachedQuestion(str(i), str(i), 8) for i in range(9)], Path({str(store)!r}), int,
    seed=0, batch=1, title="")
"""
    done = run_python("-c", script)
    assert done.returncode == -9
    resumed = ask(ScriptedEngine(lambda p: p), [CachedQuestion(str(i), str(i), 8) for i in range(9)], store, int,
                  seed=0, title="")
    assert (resumed.cost.reused, resumed.cost.asked) == (5, 4) and len(resumed.values) == 9


def test_unreadable_answers_are_kept_counted_and_tried_again_with_other_seeds(tmp_path: Path):
    def moody(request: Request) -> str:
        if request.prompt == "what is 1?":
            return "I would rather not say"
        if request.prompt == "what is 2?" and request.temperature == 0:
            return ""
        return number_in(request)

    engine = Recorder(moody)
    answers = run(engine, questions(3), tmp_path / "store.jsonl")
    assert answers.values == {"q0": 0, "q2": 2}
    assert answers.failed == {"q1": "prose"}
    assert answers.cost.unreadable == 4 and answers.cost.by_reason == {"empty": 1, "prose": 3}
    tried = [request for request in engine.requests if request.prompt == "what is 1?"]
    assert len({request.seed for request in tried}) == 3 and [r.temperature for r in tried] == [0, 1, 1]
    texts = [json.loads(line)["text"] for line in (tmp_path / "store.jsonl").read_text().splitlines()]
    assert len(texts) == 6 and texts.count("I would rather not say") == 3

    again = Recorder(moody)
    resumed = run(again, questions(3), tmp_path / "store.jsonl")
    assert not again.requests and resumed.failed == answers.failed
    assert resumed.cost.by_reason == answers.cost.by_reason and resumed.cost.reused == 6
    more = run(again, questions(3), tmp_path / "store.jsonl", tries=5)
    assert len(again.requests) == 2 and more.failed == {"q1": "prose"}
    assert not {request.seed for request in again.requests} & {request.seed for request in tried}


def test_a_better_reader_reads_what_was_kept(tmp_path: Path):
    store = tmp_path / "store.jsonl"
    ask(ScriptedEngine(lambda p: "seven"), questions(1), store, numbers, seed=0, title="")
    answers = ask(ScriptedEngine(lambda p: "eight"), questions(1), store, len, seed=0, title="")
    assert answers.values == {"q0": 5} and answers.cost.asked == 0


def test_a_changed_prompt_is_asked_anew(tmp_path: Path):
    store = tmp_path / "store.jsonl"
    run(ScriptedEngine(lambda p: "1"), questions(2), store)
    changed = [CachedQuestion("q0", "what is 0?", 8), CachedQuestion("q1", "and now?", 8)]
    answers = run(ScriptedEngine(lambda p: "2"), changed, store)
    assert answers.values == {"q0": 1, "q1": 2} and (answers.cost.asked, answers.cost.reused) == (1, 1)


def test_an_answer_that_was_cut_says_so(tmp_path: Path):
    engine = Recorder(lambda request: "")
    engine.generate = lambda requests: [Completion("wo", finish_reason="length") for _ in requests]  # type: ignore
    assert run(engine, questions(1), tmp_path / "s.jsonl").failed == {"q0": "prose, cut off"}


def test_what_came_before_a_failure_is_kept(tmp_path: Path):
    class Several(Streaming):
        """Two replies a step, and the failure only after them."""

        def step(self):
            super().step()
            super().step()
            raise ConnectionError("the server went away")

    store = tmp_path / "store.jsonl"
    with pytest.raises(ConnectionError):
        run(Several(number_in), questions(4), store)
    assert len(store.read_text().splitlines()) == 2


@pytest.mark.parametrize("kind", [Recorder, Streaming])
def test_no_more_than_a_batch_is_with_the_engine(tmp_path: Path, kind):
    engine = kind(number_in)
    assert len(run(engine, questions(10), tmp_path / "s.jsonl", batch=4).values) == 10
    assert getattr(engine, "most", 4) == 4


def test_two_jobs_never_write_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asking, "LOCK_SECONDS", 0.1)
    store = tmp_path / "store.jsonl"

    def reply(prompt: str) -> str:
        with pytest.raises(BadInput, match=r"store\.jsonl is being written by process \d+: wait"):
            run(ScriptedEngine(lambda p: "2"), questions(1), store)
        return "1"

    assert run(ScriptedEngine(reply), questions(1), store).values == {"q0": 1}
    assert run(ScriptedEngine(reply), questions(1), store).cost.reused == 1


def test_a_damaged_line_is_named(tmp_path: Path):
    store = tmp_path / "store.jsonl"
    run(ScriptedEngine(lambda p: "1"), questions(3), store)
    lines = store.read_text().splitlines()
    store.write_text("\n".join([lines[0], '{"key": "q1"}', lines[2], ""]))
    with pytest.raises(BadInput, match=r"line 2 of .*store\.jsonl is damaged: delete that line"):
        run(ScriptedEngine(lambda p: "1"), questions(3), store)


def test_keys_are_unique(tmp_path: Path):
    with pytest.raises(ValueError, match="keys of their own"):
        run(ScriptedEngine(lambda p: "1"), questions(1) * 2, tmp_path / "s.jsonl")


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(good_after=st.lists(st.integers(0, 4), min_size=1, max_size=6), tries=st.integers(1, 3), batch=st.integers(1, 4),
       dies_at=st.integers(0, 20))
def test_whenever_it_dies_the_outcome_is_that_of_asking_one_by_one(tmp_path_factory, good_after, tries, batch, dies_at):
    """good_after[i]: how many unreadable answers come to question i before a readable one."""
    def engine(dies: int | None, seen: dict[str, set[int]]) -> Recorder:
        def reply(request: Request) -> str:
            place = int(number_in(request))
            attempts = seen.setdefault(request.prompt, set())
            attempts.add(request.seed)
            return str(place) if len(attempts) > good_after[place] else "no"
        return Streaming(reply, dies)

    asked, seen = questions(len(good_after)), {}
    store = tmp_path_factory.mktemp("any") / "store.jsonl"
    try:
        run(engine(dies_at, seen), asked, store, tries=tries, batch=batch)
    except ConnectionError:
        pass
    answers = run(engine(None, seen), asked, store, tries=tries, batch=batch)
    assert answers.values == {f"q{i}": i for i, n in enumerate(good_after) if n < tries}
    assert answers.failed == {f"q{i}": "prose" for i, n in enumerate(good_after) if n >= tries}
    assert answers.cost.asked + answers.cost.reused == sum(min(n + 1, tries) for n in good_after)


def test_an_answer_that_was_cut_off_is_asked_for_again_with_a_larger_budget(tmp_path: Path) -> None:
    class Cutting:
        credentialed = False

        def __init__(self) -> None:
            self.asked = 0

        def generate(self, requests: Any) -> list[Completion]:
            self.asked += len(requests)
            cut = Completion("cut", finish_reason="length", usage=(5, 10))
            return [cut if request.max_tokens == 10 else Completion("whole", usage=(5, 20)) for request in requests]

    def whole(text: str) -> str:
        if text != "whole":
            raise UnreadableAnswer("no_list")
        return text

    engine: Any = Cutting()
    for budget, asked, failed in ((10, 3, {"k": "no_list, cut off"}), (10, 3, {"k": "no_list, cut off"}), (50, 4, {})):
        question = CachedQuestion("k", "p", budget)
        answers = ask(engine, [question], tmp_path / "a.jsonl", whole, seed=0, title="t")
        assert (engine.asked, answers.failed) == (asked, failed)
