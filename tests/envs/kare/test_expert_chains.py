"""Chains of an expert that knows the label: what is kept, what is rejected, and that nothing is lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.data.cohort import Task
from ghar.envs.case import Case
from ghar.envs.kare.episode import KareReading
from ghar.envs.kare.expert_chains import CONFIDENCES, Chain, expert_prompt, gives_away, read_chain, write_chains
from ghar.llm.cached_llm import UnreadableAnswer
from ghar.llm.scripted import ScriptedEngine

TASK = Task("read", "Will this patient come back within 15 days?", ("no", "yes"))
CHAIN = "1. Patient: a grave disease. 4. Reasoning: it comes back. 5. Conclusion: the patient will be readmitted."


def case(name: str, label: int = 1) -> Case[KareReading]:
    return Case(name, 1, 2, f"disease {name}", (f"disease {name}",), TASK, label, KareReading())


def reply(chain: str = CHAIN, confidence: str = "very confident") -> str:
    return f"# Chain\n{chain}\n\n# Confidence\n{confidence}"


@pytest.mark.parametrize("sentence", [
    "The ground truth says that she returns.",
    "This agrees with the ground-truth label of the similar patient.",
    "Since the given label is yes, the risk must be high.",
    "As the outcome is already known, the severity fits.",
    "We know how this case ended, and the drug explains it.",
    "Knowing the outcome, the grade makes sense.",
    "I was given the answer, which is yes.",
    "According to the label, this patient comes back.",
    "The label indicates a readmission.",
    "This is consistent with the label.",
    "The patient was in fact readmitted.",
    "The actual outcome confirms this.",
    "The real ending was a readmission.",
])  # fmt: skip
def test_a_chain_that_says_it_knew_is_rejected(sentence):
    assert gives_away(f"A grave disease. {sentence} So it ends.") == sentence
    with pytest.raises(UnreadableAnswer) as told:
        read_chain(reply(f"{CHAIN} {sentence}"))
    assert told.value.reason == "gives_label_away"


@pytest.mark.parametrize("sentence", [
    "So the answer is yes.",
    "The patient will be readmitted within 15 days.",
    "Conclusion: readmission is the most probable outcome.",
    "The first similar patient has a known outcome, a readmission.",
    "Given the outcomes of similar patients, the risk is high.",
    "As stated in the record, the disease is chronic.",
    "The drug's use is off-label, and its label warns of bleeding.",
    "We are told in the record that she was discharged on a new drug.",
    "A known disease with a given grade leads to this prediction.",
    "Both patients' actual outcome was a long stay.",
    "The expected outcome of such a disease is poor.",
])  # fmt: skip
def test_a_conclusion_of_its_own_is_no_leak(sentence):
    assert gives_away(f"{CHAIN} {sentence}") is None
    assert read_chain(reply(f"{CHAIN} {sentence}")).confidence == 0


@pytest.mark.parametrize("text, reason", [
    ("", "no_chain"),
    ("yes", "no_chain"),
    ("# Chain\n\n# Confidence\nconfident", "no_chain"),
    (CHAIN, "no_confidence"),
    (reply(confidence=""), "no_confidence"),
    (reply(confidence="85%"), "no_confidence"),
    (reply(confidence="confident, or rather neutral"), "several_confidences"),
    (reply(confidence="not confident; very confident"), "several_confidences"),
])  # fmt: skip
def test_what_cannot_be_used_has_a_reason(text, reason):
    with pytest.raises(UnreadableAnswer) as told:
        read_chain(text)
    assert told.value.reason == reason


@pytest.mark.parametrize("level", range(5))
@pytest.mark.parametrize("shape", [
    "# Chain\n{chain}\n# Confidence\n{level}",
    "# Reasoning Chain #\n\n{chain}\n\n# Confidence #\n\n[{level}]",
    "{chain}\n**Confidence:** {level}.",
    "Chain: {chain}\nconfidence: I am {level}",
])  # fmt: skip
def test_the_same_contract_in_other_hands(level, shape):
    for word in (CONFIDENCES[level], CONFIDENCES[level].title()):
        assert read_chain(shape.format(chain=CHAIN, level=word)) == Chain(CHAIN, level)


@given(st.text())
def test_any_reply_is_read_or_refused_with_a_reason(text):
    try:
        assert read_chain(text).text
    except UnreadableAnswer as told:
        assert told.reason in {"no_chain", "no_confidence", "several_confidences", "gives_label_away"}


def test_the_surest_chain_is_kept_and_the_first_of_equals(tmp_path: Path):
    said = {
        "a": ["confident", "very confident", "very confident"],
        "b": ["neutral", "not confident", "neutral"],
        "c": ["none", "85%", ""],
        "d": ["none", "very not confident", "very confident"],
    }
    leaks = {("d", 2)}  # the surest one says what it must not know
    asked: Counter[str] = Counter()

    def expert(prompt: str) -> str:
        name = prompt.split("# Patient\ndisease ")[1][0]
        k = asked[name]
        asked[name] += 1
        chain = f"{CHAIN} Number {k % 3}." + (" The ground truth agrees." if (name, k % 3) in leaks else "")
        return reply(chain, said[name][k % 3])

    cases = [case(name) for name in said]
    store = tmp_path / "chains.jsonl"
    found = write_chains(ScriptedEngine(expert), cases, dict.fromkeys(said, ""), "", store, chains=3, seed=0)
    assert found.best["a"] == Chain(f"{CHAIN} Number 1.", 0)
    assert found.best["b"] == Chain(f"{CHAIN} Number 0.", 2)
    assert found.without == ("c",) and set(found.best) == {"a", "b", "d"}
    assert found.best["d"].confidence == 4  # the leak was asked again, and only the unsure chain is left
    lost = {name: n for name, n in found.counts.items() if name.startswith("chains rejected")}
    assert found.counts["samples without a chain"] == 1
    assert found.counts["chains"] + sum(lost.values()) == 12
    again = write_chains(ScriptedEngine(lambda _: ""), cases, dict.fromkeys(said, ""), "", store, chains=3, seed=0)
    assert again.best == found.best and again.counts == found.counts and again.cost.asked == 0


def test_the_expert_sees_everything_and_the_label():
    prompt = expert_prompt(case("x", label=0), "- x grade 2 course", "Look out for grave diseases.")
    for part in (TASK.question, "no, yes", "disease x", "- x grade 2 course", "Look out for", "# Real ending\nno\n"):
        assert part in prompt
