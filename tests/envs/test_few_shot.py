"""A selector's examples before the prompts of a system that knows nothing of them, as further variants of it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from ghar.data.cohort import Task
from ghar.data.tasks.splits import Splits
from ghar.envs.case import Case
from ghar.envs.few_shot import with_demonstrations, with_selected
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.system import WORDS, Reader, Reporting, System, Variant, build
from ghar.episode import (
    Act,
    Completion,
    Episode,
    EpisodeGenerator,
    Evidence,
    Passage,
    Prediction,
    ReasoningStep,
    Retrieve,
)
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.llm.parsing import parse_label
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import score_outcome

TASK = Task("toy", "Die?", ("no", "yes"))
EXAMPLES = {f"s{i}": f"Earlier patient:\nlike {i}\nOutcome: yes" for i in range(3)} | {"s2": ""}


class Library:
    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        return [Evidence((Passage(f"about {request.query}", "node", 0, 1.0, 0),)) for request in requests]


def episode(case: Case[None], variant: Variant) -> EpisodeGenerator:
    """As GHAR's: decide, look up, summarise, predict; `variant.spec` is the ablation."""
    decided = yield Act("top", "retrieve", f"{case.text} {variant.spec}: look up?", ("no", "yes"))
    found = (yield Retrieve(case.text)) if decided.text == "yes" else Evidence()
    said = yield Act("low", "summarise", found.text)
    parse = partial(parse_label, labels=TASK.labels)
    final = yield Act("top", "predict", f"{case.text} {said.text}", TASK.labels, parse=parse)
    return Prediction(final.value, (ReasoningStep(case.text, said.text, bool(found.passages)),))


def reward(episode: Episode, case: Case[None]) -> EpisodeReward:
    return score_outcome(episode, case.label, 5.0)


def row(episode: Episode, case: Case[None], variant: Variant) -> dict[str, Any]:
    return {"ablation": variant.spec}


def toy(reader: Reader) -> System[None]:
    """Texts as long as the reader's context."""
    cases = tuple(Case(f"s{i}", i, i, f"patient {i}"[: reader.context], (), TASK, i % 2) for i in range(3))
    variants = {name: Variant(name, spec=name) for name in ("toy", "blind")}
    return System(
        "toy", TASK, ("top", "low"), ("retrieve", "summarise", "predict"), Splits(cases, cases, cases), episode,
        Library(), reward, variants, "toy", read_by=toy, report=Reporting(("toy",), row),
    )  # fmt: skip


class Says:
    def __init__(self) -> None:
        self.acts: list[Act] = []

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        self.acts += acts
        return [Completion({"summarise": "so"}.get(act.role, "yes")) for act in acts]


def played(system: System[None], name: str) -> tuple[list[Episode], dict[str, list[str]]]:
    """Episodes of the test cases, and each role's prompts in the order of the cases."""
    variant, said = system.variant(name), Says()
    jobs = [EpisodeJob(case.sample_id, 0, lambda c=case: system.episode(c, variant)) for case in system.cases.test]
    found = rollout(jobs, dict.fromkeys(system.agents, said), system.corpus, seed=0, in_flight=1)
    return found, {role: [act.prompt for act in said.acts if act.role == role] for role in system.roles}


def test_a_variant_more_shows_examples_and_changes_nothing_else() -> None:
    system = with_demonstrations(toy(WORDS), EXAMPLES, "cone")
    new = system.variant("toy_with_cone")
    assert system.listed == ("toy", "toy_with_cone") and ("toy_with_cone", "toy") in system.report.comparisons
    assert new.who == "trained" and "cone" in new.title and system.variants["toy"] == toy(WORDS).variants["toy"]
    plain, before = played(system, "toy")
    shown, after = played(system, "toy_with_cone")
    assert played(toy(WORDS), "toy")[1] == before and [e.prediction for e in plain] == [e.prediction for e in shown]
    assert after["retrieve"] == before["retrieve"] and after["summarise"] == before["summarise"]
    for i, (one, two) in enumerate(zip(before["predict"], after["predict"], strict=True)):
        assert two == (f"{EXAMPLES[f's{i}']}\n\n{one}" if i < 2 else one)
    assert system.report.row(shown[0], system.cases.test[0], new) == {"ablation": "toy"}
    assert system.reward(shown[1], system.cases.test[1]).total > system.reward(shown[0], system.cases.test[0]).total


def test_other_roles_several_variants_and_several_selectors() -> None:
    system = with_demonstrations(toy(WORDS), EXAMPLES, "cone", of=("toy", "blind"), roles=("retrieve",))
    both = with_demonstrations(system, dict.fromkeys(EXAMPLES, "other"), "ids")
    assert set(both.variants) == {"toy", "blind", "toy_with_cone", "blind_with_cone", "toy_with_ids"}
    assert played(both, "blind_with_cone")[1]["retrieve"][0] == f"{EXAMPLES['s0']}\n\npatient 0 blind: look up?"
    assert played(both, "toy_with_ids")[1]["predict"][0].startswith("other\n\n")
    assert not played(both, "toy_with_cone")[1]["predict"][0].startswith("other")


def test_another_reader_keeps_the_variants() -> None:
    system = with_demonstrations(toy(WORDS), EXAMPLES, "cone", of=("blind",)).read_by(replace(WORDS, context=3))
    assert set(system.variants) == {"toy", "blind", "blind_with_cone"}
    assert played(system, "blind_with_cone")[1]["predict"][0].endswith("yes\n\npat so")


def test_what_a_variant_learns_first_it_learns_with_examples_too() -> None:
    def prepare(variant: Variant, policy: Any) -> Variant:
        return replace(variant, spec=f"{variant.spec} {policy}")

    system = with_demonstrations(replace(toy(WORDS), prepare=prepare), EXAMPLES, "cone")
    ready: Any = system.prepare(system.variant("toy_with_cone"), cast(Any, "taught"))
    assert ready.name == "toy_with_cone" and system.prepare(system.variant("toy"), Says()).spec.startswith("toy ")
    assert next(system.episode(system.cases.test[0], ready)).prompt == "patient 0 toy taught: look up?"


def test_it_can_be_sent_to_another_process() -> None:
    system = with_demonstrations(toy(WORDS), EXAMPLES, "cone")
    sent, variant = pickle.loads(pickle.dumps((system.episode, system.variant("toy_with_cone"))))
    assert next(sent(system.cases.test[0], variant)).role == "retrieve"


def test_what_does_not_fit_together_is_said() -> None:
    system = with_demonstrations(toy(WORDS), {"s0": "one"}, "cone")
    with pytest.raises(BadInput, match="no examples by cone for sample s1"):
        system.episode(system.cases.test[1], system.variant("toy_with_cone"))
    with pytest.raises(BadInput, match="has a variant toy_with_cone already"):
        with_demonstrations(system, EXAMPLES, "cone")
    with pytest.raises(BadInput, match="system toy has no role answer"):
        with_demonstrations(toy(WORDS), EXAMPLES, "cone", roles=("answer",))


def test_graphwalkers_selectors_stand_before_ghars_prompts(small_system: System[Any], small_records: Records) -> None:
    name = "scripted_with_graphwalker.semantic_emb"
    system = with_selected(small_system, small_records, ["scripted", name])
    few = system.cases.test[:4]
    plain, shown = (
        play(stage_of(system, system.variants[one], small_records.config), few, teacher, seed=0, title="")
        for teacher in [system.fixed["teacher"]()]
        for one in ("scripted", name)
    )
    for before, after in zip(plain, shown, strict=True):
        prompts = [[r.effect for r in e.trace if isinstance(r.effect, Act)] for e in (before, after)]
        for one, other in zip(*prompts, strict=True):
            if one.role == "predict":
                assert other.prompt.endswith(one.prompt) and other.prompt.startswith("Earlier patient:")
            else:
                assert other.prompt == one.prompt
    with pytest.raises(BadInput, match="chooses no examples"):
        with_selected(small_system, small_records, ["scripted_with_ghar.random"])


def test_they_choose_for_a_system_that_searches_events_by_codes(tmp_path: Path) -> None:
    name = "scripted_direct_with_graphwalker.semantic_emb"
    config = load(
        ["system=ehr_rag", "task=read", "data=demo", "data.patients=60", f"run_dir={tmp_path}",
         f"eval.variants=[{name}]"]
    )  # fmt: skip
    assert config.retriever.kind == "codes"
    records = Records(config)
    system = with_selected(build(records), records, [name])
    one = replace(system, cases=replace(system.cases, test=system.cases.test[:1]))
    variant = one.variants[name]
    (episode,) = play(stage_of(one, variant, config), one.cases.test, one.fixed[variant.who](), seed=0, title="")
    (act,) = [record.effect for record in episode.trace if isinstance(record.effect, Act)]
    assert act.prompt.startswith("Earlier patient:")
