"""Algorithm 1 (GHAR) against a slow second statement of it, its ablations, and what prompts may show."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.ghar.episode import GharEpisodes, Wording
from ghar.episode import Act, Prediction, Retrieve
from tests.envs.parts import LABELS, METAPATHS, TASK, drive, evidence_for, make_case, make_episodes

ABLATIONS = ("none", "ni", "nt", "nl", "nm")
QUERIES = st.sampled_from(["alpha", "beta", "gamma", "delta"])


@dataclass(frozen=True)
class Script:
    """What is said to the n-th question of each role, as meant; `say` puts it into words. Repeats from the start."""

    rewrite: list[str]
    retrieve: list[bool | None]
    metapaths: list[list[int]]
    summarise: list[str]
    answer: list[str]
    enough: list[bool | None]
    followup: list[str]
    predict: list[int | None]

    def meant(self, role: str, n: int) -> Any:
        values = getattr(self, {"continue": "enough"}.get(role, role))
        return values if role == "rewrite" else values[n % len(values)]

    def say(self, role: str, n: int) -> str:
        value = self.meant(role, n)
        if role == "rewrite":
            return "\n".join(f"{i}. {query}" for i, query in enumerate(value, 1))
        if role == "retrieve":
            return {True: "yes", False: " No\n", None: "perhaps"}[value]
        if role == "metapaths":
            return ", ".join(map(str, value)) or "none of these"
        if role == "continue":
            return {True: "terminate", False: "continue", None: "let me think"}[value]
        if role == "predict":
            return "I cannot tell" if value is None else f"Hard to say.\nanswer: {LABELS[value]}"
        return value


SCRIPTS = st.builds(
    Script,
    rewrite=st.lists(QUERIES, unique=True, max_size=5),
    retrieve=st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=4),
    metapaths=st.lists(st.lists(st.integers(0, 7), max_size=5), min_size=1, max_size=4),
    summarise=st.lists(st.sampled_from(["so it is", "", "who knows"]), min_size=1, max_size=3),
    answer=st.lists(st.sampled_from(["from memory", ""]), min_size=1, max_size=3),
    enough=st.lists(st.sampled_from([True, False, False, None]), min_size=1, max_size=4),
    followup=st.lists(st.one_of(QUERIES, st.sampled_from(["", "epsilon", "zeta", "eta"])), min_size=1, max_size=4),
    predict=st.lists(st.sampled_from([0, 1, 2, None]), min_size=1, max_size=1),
)


def run(generator: Any, script: Script) -> tuple[list[Act | Retrieve], Prediction]:
    """The episode as a script answers it."""
    asked: Counter[str] = Counter()

    def say(act: Act) -> str:
        asked[act.role] += 1
        return script.say(act.role, asked[act.role] - 1)

    return drive(generator, say)


@dataclass
class Restated:
    """Algorithm 1 line by line, on lists of plain tuples. `log` holds (agent, role, query, number of steps so far) of
    a question and ("search", query, partitions) of a retrieval; `chain` holds (query, answer, retrieved)."""

    script: Script
    text: str
    n_paths: int
    limit: int
    most: int
    first: int
    ablation: str
    log: list[tuple] = field(default_factory=list)
    chain: list[tuple[str, str, bool]] = field(default_factory=list)
    counts: list[tuple[tuple[int, ...], int, int]] = field(default_factory=list)
    said: dict[str, int] = field(default_factory=dict)

    def ask(self, agent: str, role: str, query: str = "") -> Any:
        self.log.append((agent, role, query, len(self.chain)))
        n = self.said.get(role, 0)
        self.said[role] = n + 1
        return self.script.meant(role, n)

    def play(self) -> tuple[int | None, list[tuple[str, str, bool]]]:
        if self.ablation == "ni":
            queue = [self.text]
        else:  # line 2: rewriting into the queue; if nothing can be read, the original query stands alone
            queue = self.ask("top", "rewrite")[: self.first] or [self.text]
        ever = list(queue)
        t = 0
        while len(queue) > 0 and t < self.limit:  # line 3
            query = queue.pop(0)  # line 4: first in, first out
            rag = True if self.ablation == "nt" else self.ask("top", "retrieve", query) is True
            self.chain.append((query, self.by_graph(query), True) if rag else (query, self.by_heart(query), False))
            t += 1
            if self.ablation == "nt":
                continue
            if self.ablation == "ni" or t == self.limit:  # the last iteration ends of itself
                break
            if self.ask("top", "continue", query) is True:  # line 15
                break
            more = self.ask("top", "followup", query)
            if more != "" and more not in ever:  # the queue is a set in the paper: Q ∪ {q}
                queue.append(more)
                ever.append(more)
        return self.ask("top", "predict"), self.chain

    def by_heart(self, query: str) -> str:  # lines 6 and 7
        self.counts.append(((), 0, 0))
        return self.ask("top", "answer", query)

    def by_graph(self, query: str) -> str:  # lines 8 to 13
        ids: list[int] | None = None
        wrong = again = 0
        if self.ablation not in ("nt", "nm"):
            ids = []
            for number in self.ask("top", "metapaths", query):
                if number in ids:
                    again += 1
                elif number >= self.n_paths or len(ids) == self.most:
                    wrong += 1
                else:
                    ids.append(number)
        self.counts.append((tuple(ids or ()), wrong, again))
        found = ""
        if ids is None or ids:
            request = Retrieve(query, None if ids is None else tuple(ids), 1)
            self.log.append(("search", request.query, request.partitions))
            found = evidence_for(request).text
        if self.ablation == "nl":  # 16 words, as many as the compact prompt leaves a summary
            beginning = re.match(r"(?:\s*\S+){1,16}", found)
            return beginning[0] if beginning else found
        return self.ask("low", "summarise", query)


def noted(effect: Act | Retrieve) -> tuple:
    if isinstance(effect, Retrieve):
        return ("search", effect.query, effect.partitions)
    query = effect.facts["query"]
    return (effect.agent, effect.role, query, effect.step)


@settings(max_examples=150)
@given(SCRIPTS, st.sampled_from(ABLATIONS), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3))
def test_the_episode_is_algorithm_1(script, ablation, limit, most, first):
    case = make_case(7)
    made = make_episodes(ablation, iterations=limit, paths=most, rewrites=first)
    effects, prediction = run(made.episode(case), script)
    again = Restated(script, case.text, len(METAPATHS), limit, most, first, ablation)
    label, chain = again.play()
    assert [noted(effect) for effect in effects] == again.log
    assert prediction.label == label
    assert [(s.query, s.answer, s.retrieved) for s in prediction.history] == chain
    assert [(s.paths, s.path_errors, s.path_duplicates) for s in prediction.history] == again.counts
    assert len(prediction.history) <= limit and prediction.truncated == (len(chain) == limit)
    for effect in (e for e in effects if isinstance(e, Act)):  # a decision is asked with what was known then
        assert [(s.query, s.answer, s.retrieved) for s in effect.facts["history"]] == chain[: effect.step]


PLAIN = Script(
    rewrite=["alpha", "beta", "gamma"],
    retrieve=[True, False],
    metapaths=[[2, 0]],
    summarise=["so it is"],
    answer=["from memory"],
    enough=[False],
    followup=["delta", "epsilon", "zeta"],
    predict=[1],
)


def roles(effects: list) -> list[str]:
    return [effect.role if isinstance(effect, Act) else "search" for effect in effects]


def test_queue_order_and_the_automatic_end_at_the_limit():
    effects, prediction = run(make_episodes(iterations=5).episode(make_case()), PLAIN)
    assert [s.query for s in prediction.history] == ["alpha", "beta", "gamma", "delta", "epsilon"]
    assert prediction.truncated and roles(effects).count("continue") == 4 and roles(effects)[-1] == "predict"


def test_a_follow_up_joins_the_queue_only_after_continue():
    script = replace(PLAIN, rewrite=["alpha"], enough=[False, True], followup=["delta"])
    effects, prediction = run(make_episodes().episode(make_case()), script)
    assert [s.query for s in prediction.history] == ["alpha", "delta"] and not prediction.truncated
    assert roles(effects).count("followup") == 1


def test_an_unreadable_rewrite_leaves_the_original_query():
    case = make_case(3)
    _, prediction = run(make_episodes(iterations=1).episode(case), replace(PLAIN, rewrite=[]))
    assert [s.query for s in prediction.history] == [case.text]


def test_ids_that_cannot_be_read_search_nothing_and_agent_low_says_so():
    effects, prediction = run(make_episodes(iterations=1).episode(make_case()), replace(PLAIN, metapaths=[[9]]))
    assert "search" not in roles(effects) and "summarise" in roles(effects)
    assert prediction.history[0].retrieved and prediction.history[0].evidence == ""
    assert (prediction.history[0].paths, prediction.history[0].path_errors) == ((), 1)


@pytest.mark.parametrize("ablation, gone", [
    ("ni", {"rewrite", "continue", "followup"}),  # one round on the original query
    ("nt", {"retrieve", "metapaths", "answer", "continue", "followup"}),  # nobody decides: always the whole graph
    ("nl", {"summarise"}),  # raw evidence instead of a summary
    ("nm", {"metapaths"}),  # the whole graph instead of partitions
])  # fmt: skip
def test_an_ablation_takes_away_what_table_vii_says_and_nothing_else(ablation, gone):
    def asked(name) -> set[str]:
        """Every kind of effect, whether the first decision is to retrieve or not."""
        scripts = (PLAIN, replace(PLAIN, retrieve=[False, True]))
        return {r for script in scripts for r in roles(run(make_episodes(name).episode(make_case()), script)[0])}

    effects, prediction = run(make_episodes(ablation).episode(make_case()), PLAIN)
    assert asked("none") - asked(ablation) == gone and asked(ablation) < asked("none")
    searches = [e for e in effects if isinstance(e, Retrieve)]
    assert searches and all((e.partitions is None) == (ablation in ("nt", "nm")) for e in searches)
    if ablation == "ni":
        assert len(prediction.history) == 1
    if ablation == "nt":
        assert all(s.retrieved for s in prediction.history) and len(searches) == len(prediction.history) == 3
    for step in prediction.history:
        raw = ablation == "nl" and step.retrieved
        assert step.answer == (step.evidence if raw else "so it is" if step.retrieved else "from memory")


@pytest.mark.parametrize("prompts", ["full", "compact"])
@pytest.mark.parametrize("ablation", ABLATIONS)
@settings(max_examples=10)
@given(SCRIPTS, st.integers(0, 2))
def test_nothing_a_policy_reads_depends_on_the_label(prompts, ablation, script, label):
    def shown(truth: int) -> list:
        effects, prediction = run(make_episodes(ablation, prompts).episode(make_case(1, truth)), script)
        asked = [(e.agent, e.role, e.prompt, e.choices, e.max_tokens) for e in effects if isinstance(e, Act)]
        return [asked, [e for e in effects if isinstance(e, Retrieve)], prediction]

    assert shown(label) == shown((label + 1) % 3)


@pytest.mark.parametrize("prompts", ["full", "compact"])
def test_prompts_show_what_their_decision_needs(prompts):
    case = make_case(5)
    effects, _ = run(make_episodes(prompts=prompts).episode(case), PLAIN)
    acts = [e for e in effects if isinstance(e, Act)]
    for act in acts:
        assert "{" not in act.prompt and act.max_tokens > 0
        if act.role in ("rewrite", "continue", "followup", "predict"):
            assert case.text in act.prompt
        if act.role in ("retrieve", "metapaths", "answer", "summarise"):
            assert act.facts["query"] in act.prompt
        if act.role in ("continue", "predict", "retrieve"):
            assert all(step.answer in act.prompt for step in act.facts["history"])
        if act.role == "metapaths":
            assert all(path.text in act.prompt for path in METAPATHS)
    if prompts == "full":
        assert all(label in acts[-1].prompt for label in LABELS) and TASK.question in acts[-1].prompt


@pytest.mark.parametrize("wording", ["records", "questions", "summaries"])
def test_a_prediction_from_the_record_alone_speaks_of_nothing_else(wording: Wording):
    episodes = make_episodes(prompts="full")
    alone = GharEpisodes(replace(episodes.spec, wording=wording), episodes.metapaths)
    prompt = next(alone.direct(make_case())).prompt
    assert make_case().text in prompt and "nothing yet" not in prompt and "worked out" not in prompt


@pytest.mark.parametrize("prompts", ["full", "compact"])
@pytest.mark.parametrize("ablation", ["none", "nl"])
def test_retrieved_text_is_shown_to_agent_low_alone_unless_it_is_the_answer(prompts, ablation):
    effects, _ = run(make_episodes(ablation, prompts).episode(make_case()), PLAIN)
    holders = {e.role for e in effects if isinstance(e, Act) and "<found" in e.prompt}
    if ablation == "none":
        assert holders == {"summarise"}
        shown = [e.prompt for e in effects if isinstance(e, Act) and e.role == "summarise"]
        wanted = [evidence_for(e).passages for e in effects if isinstance(e, Retrieve)]
        for prompt, passages in zip(shown, wanted, strict=True):
            assert all(passage.text in prompt for passage in passages)
    else:
        assert "summarise" not in roles(effects) and "predict" in holders


def test_choices_are_offered_for_the_two_decisions_alone():
    effects, _ = run(make_episodes().episode(make_case()), PLAIN)
    offered = {e.role: e.choices for e in effects if isinstance(e, Act) and e.choices}
    assert offered == {"retrieve": ("yes", "no"), "continue": ("terminate", "continue")}


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_fixed_retrievals_are_as_many_as_are_named_and_decide_nothing(rounds: int) -> None:
    """Fig. 9(b): one sub-query, so that later retrievals ask the original query; no decision is asked for."""
    episodes = make_episodes(rewrites=1)
    fixed = GharEpisodes(replace(episodes.spec, max_iterations=rounds, fixed=True), episodes.metapaths)
    say = {"rewrite": "alpha", "metapaths": "1", "summarise": "so", "followup": "", "predict": LABELS[0]}
    effects, told = drive(fixed.episode(make_case()), lambda act: say[act.role])
    asked = [effect.query for effect in effects if isinstance(effect, Retrieve)]
    assert asked == ["alpha", *[make_case().text] * (rounds - 1)]
    assert [step.retrieved for step in told.history] == [True] * rounds and not told.truncated
    assert {effect.role for effect in effects if isinstance(effect, Act)} <= set(say)
