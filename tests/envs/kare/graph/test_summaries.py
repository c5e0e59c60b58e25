"""Summaries of communities: which questions are asked, what becomes of answers, and kills in the middle."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.kare.graph.communities import Communities, detect
from ghar.envs.kare.graph.scripted_summaries import FACT, PART, reply
from ghar.envs.kare.graph.summaries import TOGETHER, Summaries, summarise
from ghar.envs.kare.graph.themes import Theme
from ghar.envs.kare.graph.triples import Triple, union
from ghar.episode import Completion
from ghar.llm.engine import Request
from ghar.llm.scripted import ScriptedEngine

THEME = Theme("mortality prediction", ("organ failure", "septic-shock"))


def one_community(triples: int, tail: str = "finding") -> Communities:
    """A star, which Leiden leaves whole."""
    rows = [Triple("hub", "presents with", f"{tail} {i:03}") for i in range(triples)]
    return detect(union({"graph": {"x": rows}}), runs=1, max_cluster=triples + 1, seed=0)


class Killed(Exception):
    """What a kill is to the process."""


class OneByOne(ScriptedEngine):
    """Takes requests in a stream and answers the oldest at each step, so that a kill falls between two answers."""

    def __init__(self, answer: Callable[[str], str]):
        super().__init__(answer)
        self.waiting: list[tuple[Request, Callable[[Completion], None]]] = []

    def submit(self, request: Request, done: Callable[[Completion], None]) -> None:
        self.waiting.append((request, done))

    def step(self) -> None:
        request, done = self.waiting.pop(0)
        done(self.generate([request])[0])

    def cancel(self) -> None:
        self.waiting.clear()


class Recorder:
    """An engine that keeps the prompts it answered, in order; it is killed when `kill_after` are answered."""

    def __init__(self, answer: Callable[[str], str] = reply, kill_after: int | None = None):
        self.prompts: list[str] = []
        self.engine = OneByOne(self._answer)
        self.answer, self.kill_after = answer, kill_after

    def _answer(self, prompt: str) -> str:
        if len(self.prompts) == self.kill_after:
            raise Killed
        self.prompts.append(prompt)
        return self.answer(prompt)


def run(communities: Communities, store: Path, recorder: Recorder, theme: Theme | None = None, **options) -> Summaries:
    return summarise(communities, recorder.engine, store, theme, **{"seed": 0} | options)


@settings(max_examples=25)
@given(triples=st.integers(1, 60), small=st.integers(1, 12), seed=st.integers(0, 99))
def test_parts_hold_every_triple_once_and_summaries_end_as_one(
    triples: int, small: int, seed: int, tmp_path_factory: pytest.TempPathFactory
):
    recorder = Recorder(lambda prompt: f"text {len(prompt)}")
    store = tmp_path_factory.mktemp("store") / "answers.jsonl"
    done = run(one_community(triples), store, recorder, small=small, large=50, seed=seed)
    if triples > 50:
        assert done.general == (None,) and done.missing == {"too large": 1} and not recorder.prompts
        return
    first = [FACT.findall(prompt.partition("Facts:")[2]) for prompt in recorder.prompts if "Facts:" in prompt]
    assert sorted(fact for part in first for fact in part) == [
        ("hub", "presents with", f"finding {i:03}") for i in range(triples)
    ]
    sizes = [len(part) for part in first]
    assert max(sizes) <= small and max(sizes) - min(sizes) <= 1 and len(sizes) == -(-triples // small)
    left, rounds = len(sizes), []  # what combining 8 at a time must ask, a lone last one not being asked about
    while left > 1:
        rounds += [TOGETHER] * (left // TOGETHER) + [left % TOGETHER] * (left % TOGETHER > 1)
        left = -(-left // TOGETHER)
    assert [len(PART.findall(prompt)) for prompt in recorder.prompts if "Facts:" not in prompt] == rounds
    assert done.general[0] and done.missing == {}
    assert done.cost.asked == len(recorder.prompts)


def test_split_is_shuffled_by_the_seed(tmp_path: Path):
    asked = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        recorder = Recorder()
        run(one_community(30), tmp_path / name, recorder, seed=seed)
        asked.append(recorder.prompts)
    assert asked[0] == asked[1] != asked[2]
    facts = FACT.findall(asked[0][0].partition("Facts:")[2])
    assert facts != sorted(facts)


@pytest.mark.parametrize("after", [0, 3, 11, 15])
def test_a_killed_job_goes_on_without_asking_twice(tmp_path: Path, after: int):
    communities = one_community(95)
    whole = Recorder()
    expected = run(communities, tmp_path / "whole", whole, THEME, small=10)
    assert len(whole.prompts) == 23  # 10 parts, 8 and 2 of them combined, then both; 10 parts without the theme
    cut = Recorder(kill_after=after)
    with pytest.raises(Killed):
        run(communities, tmp_path / "cut", cut, THEME, small=10)
    rest = Recorder()
    resumed = run(communities, tmp_path / "cut", rest, THEME, small=10)
    assert sorted(cut.prompts + rest.prompts) == sorted(whole.prompts)
    assert (resumed.general, resumed.theme, resumed.missing) == (expected.general, expected.theme, expected.missing)
    assert resumed.cost.asked + resumed.cost.reused == expected.cost.asked
    assert resumed.cost.prompt_tokens == expected.cost.prompt_tokens


def test_unreadable_answers_are_counted_and_no_other_summary_is_lost(tmp_path: Path):
    rows = [Triple(f"{group}", "has", f"{group} {i}") for group in ("good", "bad") for i in range(12)]
    communities = detect(union({"graph": {"x": rows}}), runs=1, max_cluster=20, seed=0)
    assert len(communities) == 2
    recorder = Recorder(lambda prompt: " " if "bad | has | bad 3\n" in prompt + "\n" else reply(prompt))
    done = run(communities, tmp_path / "store", recorder, small=5)
    bad = next(i for i in range(2) if communities.triple_names(communities.triples_of(i)[0]).head == "bad")
    assert done.general[bad] is None and done.general[1 - bad]
    assert done.missing == {"general: empty": 1} and done.cost.by_reason == {"empty": 3}


def test_theme_may_not_apply(tmp_path: Path):
    done = run(one_community(4), tmp_path / "a", Recorder(), THEME)
    assert done.theme == ("",) and done.general[0]
    done = run(one_community(4, tail="septic shock"), tmp_path / "b", Recorder(), THEME)
    assert done.theme[0] and "septic shock 003" in done.theme[0]
    replies = {
        "Facts:": lambda p: "Not relevant." if "finding 007" in p else "It matters.",
        "Paragraph 1": lambda p: "x",
    }
    recorder = Recorder(lambda prompt: next(answer(prompt) for key, answer in replies.items() if key in prompt))
    done = run(one_community(30), tmp_path / "c", recorder, THEME)  # one of the two parts is left: nothing to combine
    assert done.theme == ("It matters.",)
    assert run(one_community(4), tmp_path / "d", Recorder()).theme == ()


def test_a_community_found_again_among_others_is_not_asked_again(tmp_path: Path):
    rows = [Triple("a", "is", "b"), Triple("x", "is", "y")]
    run(detect(union({"graph": {"q": rows[1:]}}), runs=1, seed=0), tmp_path / "store", Recorder())
    recorder = Recorder()
    done = run(detect(union({"graph": {"q": rows}}), runs=1, seed=0), tmp_path / "store", recorder)
    assert len(recorder.prompts) == 1 and done.cost.reused == 1 and None not in done.general


def test_scripted_summaries_keep_every_fact_through_combination(tmp_path: Path):
    rows = [Triple(f"disease {i % 9}", "phenotype present", f"sign {i:02}") for i in range(60)]
    rows += [Triple(f"disease {i}", "phenotype present", f"grade {i} course") for i in range(9)]
    rows += [Triple(f"disease {i}", "linked to", f"disease {i + 1}") for i in range(8)]
    communities = detect(union({"graph": {"x": rows}}), runs=1, max_cluster=100, seed=0)
    done = run(communities, tmp_path / "store", Recorder(), THEME)
    for community, (general, theme) in enumerate(zip(done.general, done.theme, strict=True)):
        for head, relation, tail in map(communities.triple_names, communities.triples_of(community).tolist()):
            for text in (general, theme):
                assert text and re.search(rf"{head} {relation} [^.]*\b{tail}\b", text)


def test_scripted_summary_is_cut_at_the_end_of_a_sentence_and_puts_the_theme_first():
    facts = "a | is | b\na | causes | organ failure\nc | is | d\na | is | e"
    theme = "Theme: mortality prediction\nWords that belong to the theme: organ failure; septic-shock\n"
    assert reply(f"Facts:\n{facts}\n\nat most 50 words") == "a is b and e. a causes organ failure. c is d."
    assert reply(f"Facts:\n{facts}\n\n{theme}at most 50 words").startswith("a causes organ failure. a is b and e.")
    assert reply(f"Facts:\n{facts}\n\nat most 9 words") == "a is b and e. a causes organ failure."
    with pytest.raises(ValueError, match="something else"):
        reply("Is the patient readmitted?")
