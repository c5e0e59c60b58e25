"""Budgets of replies that a configuration sets (env.reply_tokens); every system: tests/systems/test_contract.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ghar.envs.case import Case
from ghar.envs.generators import Returned, resume
from ghar.envs.ghar.episode import GharEpisodes, room_of_summary
from ghar.envs.ghar.settings import Settings
from ghar.envs.ghar.system import spec_of
from ghar.envs.reply_budget import with_budgets
from ghar.envs.system import Variant
from ghar.episode import Act, AuditRecord, Completion, Episode, EpisodeGenerator, Prediction, Reply, Retrieve
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.memory import estimate, longest_of, shape_of
from ghar.trainers.runs.resume import as_yaml, open_run
from ghar.trainers.teacher import check_replies

ROLES = "rewrite, retrieve, metapaths, summarise, answer, continue, followup, predict"


def toy(case: Case | str, variant: Variant | str) -> EpisodeGenerator:
    """Two replies and a retrieval, asked for at once, then a label."""
    chosen = Act("low", "answer", "why?", ("a", "b"))
    first = yield (Act("top", "rewrite", f"{case} {variant}"), Retrieve("gout"), chosen)
    label = yield Act("top", "predict", str(first), max_tokens=3)
    return Prediction(label)


def test_acts_of_the_named_roles_alone_are_changed() -> None:
    episode = with_budgets(toy, {"rewrite": 7, "predict": 192})("case", "variant")
    rewrite, retrieve, answer = resume(episode, None)
    assert rewrite == Act("top", "rewrite", "case variant", max_tokens=7)
    assert (retrieve, answer) == (Retrieve("gout"), Act("low", "answer", "why?", ("a", "b")))
    assert resume(episode, (1, 2, 3)) == Act("top", "predict", "(1, 2, 3)", max_tokens=192)
    assert resume(episode, 4) == Returned(Prediction(4))


def test_without_the_key_an_episode_is_the_systems_own() -> None:
    assert with_budgets(toy, {}) is toy and load().env.reply_tokens is None and load().env.budgets == {}


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["{sumarise: 192}"], rf"names sumarise, a role that system ghar has not: .* {ROLES}\. Did you mean summ.*\?"),
        (["{summarise: 0}"], f"gives summarise 0 tokens, and a reply needs one: .* {ROLES}"),
        (["{predict: 9, summarise: -3}"], f"gives summarise -3 tokens, .* {ROLES}"),
        (["{summarise: 1.5}"], "must be a mapping of names, each to a whole number, or null"),
        (["[summarise]"], "must be a mapping of names, each to a whole number, or null"),
        (["{predict: 9}", "system=baselines"], "system baselines has no roles that reply, .*: leave it out"),
        (["{act: 9}", "system=graphwalker"], r"names act, a role that system graphwalker has not: .* for predict\."),
        (["{rewrite: 9}", "system=exprag", "task=read"], "system exprag has not: .* for predict"),
        (["{rewrite: 9}", "task=order_check"], "has not: .* for retrieve, followup, metapaths, .* predict"),
        (["{predict: 4090}"], r"a reply have 4090 tokens, .*env.history_tokens=48 .*model.max_length=4096: lower the"),
    ],
)
def test_a_wrong_budget_is_refused_before_tables_are_read(overrides: list[str], sentence: str) -> None:
    budgets, *others = overrides
    with pytest.raises(BadInput, match=sentence) as caught:
        load([f"env.reply_tokens={budgets}", *others])
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "overrides",
    [
        ["{summarise: 192, predict: 1}"],
        ["{think: 9}", "system=graphwalker", "system.inference=react", "task=series_los"],
        ["{answer: 9}", "system=exprag", "task=dischargeqa_diagnosis"],
        ["{weigh: 9}", "system=ehr_rag"],
        ["{reason: 900}", "system=kare", "task=read"],
        ["{think: 9}", "system=comparators"],
        ["{}", "system=baselines"],
    ],
)
def test_right_budgets_pass(overrides: list[str]) -> None:
    budgets, *others = overrides
    load([f"env.reply_tokens={budgets}", *others])


def test_memory_is_estimated_with_the_longest_reply() -> None:
    before, after = load([]), load(["env.reply_tokens={summarise: 192, predict: 1000}"])
    assert longest_of(after) - longest_of(before) == 1000
    shape = shape_of(before)
    assert shape is not None
    needs = [{name: sum(need.values()) for name, need in estimate(c, shape, 1).items()} for c in (before, after)]
    assert needs[0].keys() == needs[1].keys() and all(needs[0][phase] < needs[1][phase] for phase in needs[0])


def test_a_changed_budget_is_another_run(tmp_path: Path) -> None:
    words = [f"run_dir={tmp_path}"]
    kept = as_yaml(load(words)).replace("  reply_tokens: null\n", "")  # of before the key
    assert "reply_tokens" not in kept
    RunFolder.open(tmp_path).write_config(kept)
    assert open_run(load([*words, "env.reply_tokens={}"])) == (RunFolder(tmp_path), True)
    assert open_run(load(words)) == (RunFolder(tmp_path), True)
    with pytest.raises(BadInput, match=r"another configuration \(env.reply_tokens.* there and .*192.* here\)"):
        open_run(load([*words, "env.reply_tokens={summarise: 192}"]))


def test_nl_passes_on_as_many_words_as_a_summary_may_have_tokens() -> None:
    def room(*overrides: str) -> int:
        config = load([*overrides])
        assert isinstance(config.system, Settings)
        return room_of_summary(GharEpisodes(spec_of(config, config.system), ()))

    assert room("env.reply_tokens={summarise: 5}") == 5
    assert room("env.reply_tokens={answer: 5}") == room() != 5


def test_a_budget_does_not_rename_the_packaged_base_model() -> None:
    config, limited = load(), load(["env.reply_tokens={summarise: 5}"])
    assert isinstance(config.system, Settings) and isinstance(limited.system, Settings)
    assert repr(spec_of(config, config.system)) == repr(spec_of(limited, limited.system))


def test_replies_of_a_rule_must_fit(small_tokenizer: Any) -> None:
    def episode(act: Act, reply: str) -> Episode:
        answered = AuditRecord(act, Reply(Completion(reply), reply))
        return Episode("s", 0, Prediction(0), trace=(AuditRecord(Retrieve("gout"), None), answered))  # type: ignore[arg-type]

    free, chosen = Act("low", "summarise", "?"), Act("low", "summarise", "?", ("one two three four",))
    four = episode(free, "one two three four")
    check_replies({"summarise": 4}, small_tokenizer, [four])
    check_replies({"answer": 1}, small_tokenizer, [four])
    check_replies({"summarise": 1}, small_tokenizer, [episode(chosen, "one two three four")])
    with pytest.raises(BadInput, match=r"4 tokens as summarise, and env.reply_tokens gives it 3: raise that"):
        check_replies({"summarise": 3}, small_tokenizer, [four])


@pytest.fixture
def small_tokenizer() -> Any:
    from ghar.llm.demo_model import build_tokenizer

    return build_tokenizer(["patient one two three four"] * 3, [], 400)
