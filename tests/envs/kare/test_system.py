"""KARE on generated patients: what is built and kept, what its variants show, its rows; what does not fit."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ghar.envs.kare.build as kare_build
from ghar.config import Config
from ghar.envs.kare.build import KareGraph
from ghar.envs.kare.corpus import KareCorpus, PatientGraphs, equations
from ghar.envs.kare.episode import KareReading, base_text, label_prompt, reason_prompt
from ghar.envs.kare.methods import look_up
from ghar.envs.kare.retrieval.community_corpus import ChosenCommunity, SelectCommunities
from ghar.envs.kare.retrieval.patient_graph import patient_graph
from ghar.envs.kare.settings import Settings
from ghar.envs.kare.system import Kare
from ghar.envs.records import Records
from ghar.envs.system import Reader, System, build
from ghar.episode import Act, Completion, Retrieve
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.llm.engine import Request
from ghar.llm.engines import engine_key, named_engine
from ghar.llm.scripted import ScriptedEngine
from tests.envs.kare.playing import TINY, built, played, rows_as_reported

pytestmark = pytest.mark.slow

BUILT = ("graphs", "clusters", "communities", "summaries")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kare")


def configured(cache: Path, *overrides: str) -> Config:
    return load([*TINY, f"data.cache={cache}", *overrides])


@pytest.fixture(scope="module")
def system(cache: Path) -> System[KareReading]:
    return build(Records(configured(cache)))


def shared(system: System[KareReading]) -> Kare:
    """What all readers share."""
    return system.read_by.__self__  # type: ignore[attr-defined]


class Asked(ScriptedEngine):
    """Counts what it is asked, and stops at question number `until`."""

    asked = 0
    until = 10**9

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        if Asked.asked + len(requests) > Asked.until:
            raise KeyboardInterrupt
        Asked.asked += len(requests)
        return super().generate(requests)


def test_the_rules_rows_say_what_was_found_and_why(system: System[KareReading]) -> None:
    rows = {name: rows_as_reported(system, name) for name in ("scripted", "scripted_base")}
    assert not any(row["retrieved"] for row in rows["scripted_base"]) and any(row["found"] for row in rows["scripted"])
    row = next(row for row in rows["scripted"] if row["found"])
    assert row["chain"] and row["similar"].count("outcome: ") == 2
    factors = row["found"][0]["factors"]
    product = factors["hits"] * factors["decay"] * factors["coherence"] * factors["recency"] * factors["theme"]
    assert product == pytest.approx(factors["relevance"]) and row["found"][0]["score"] == factors["relevance"]
    assert system.report.numbers is not None
    numbers = system.report.numbers(rows["scripted"], {"seed": 0, "resamples": 20})
    assert {"accuracy", "macro_f1", "errors", "cut", "shortened"} <= numbers.keys() and numbers["n"] == 4
    assert numbers["found"] == sum(len(row["found"]) for row in rows["scripted"])
    summary = system.report.summary(rows)
    assert tuple(summary["build"]) == BUILT and json.dumps(summary) and not summary["guidelines"]


def test_what_stands_in_the_system(system: System[KareReading]) -> None:
    assert system.main in system.variants and set(system.listed) < system.variants.keys()
    assert {v.who for v in system.variants.values()} == {"trained", "sft", "base", "rule", *system.training.stages}
    assert system.training.teacher == "rule" and set(system.training.stages) == {"label_only", "rag_tuned"}
    assert system.partitions and system.origin.generated and not system.origin.credentialed
    assert len(system.training.texts()) == min(50, len(system.cases.train))
    assert {"test samples with a concept that has no node", "graph nodes"} <= system.report.counts.keys()


def test_no_bound_is_told_of_communities_that_the_model_is_not_shown(system: System[KareReading]) -> None:
    kare, cases = shared(system), system.cases.test
    assert set(kare.ceilings(cases) or {}) == {"parametric", "communities"}
    for variant, bound in (("no_patients", True), ("base", False)):
        other = replace(kare, own=replace(kare.own, variant=variant))
        assert (other.ceilings(cases) is not None) == bound


def test_another_reader_shares_all_but_the_texts(system: System[KareReading]) -> None:
    other = system.read_by(Reader(count=lambda text: 3 * len(text.split())))
    assert other.corpus is system.corpus and [c.sample_id for c in other.cases.test] == [
        c.sample_id for c in system.cases.test
    ]
    assert sum(c.reads.dropped for c in other.cases.test) >= sum(c.reads.dropped for c in system.cases.test)
    assert sum(len(c.text) for c in other.cases.train) < sum(len(c.text) for c in system.cases.train)


def test_what_other_processes_play_with_can_be_sent(system: System[KareReading]) -> None:
    episode, corpus, variant = pickle.loads(pickle.dumps((system.episode, system.corpus, system.variant("scripted"))))
    sent = replace(system, episode=episode, corpus=corpus)
    rule = system.fixed["rule"]()
    first, second = played(system, variant, rule), played(sent, variant, rule)
    assert [e.prediction for e in first] == [e.prediction for e in second]


def test_what_is_built_is_opened_again(
    cache: Path, system: System[KareReading], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_one(*_: Any) -> None:
        raise AssertionError("asked although everything is there")

    monkeypatch.setattr(kare_build, "named_engine", no_one)
    again = build(Records(configured(cache)))
    assert shared(again).graph.report == shared(system).graph.report
    request = SelectCommunities("sepsis", None, 5, system.cases.test[0].sample_id)
    assert again.corpus.retrieve([request]) == system.corpus.retrieve([request])


def test_an_interrupted_summarisation_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ghar.llm.engines.ScriptedEngine", Asked)
    records = Records(configured(tmp_path, "data.patients=40"))
    Asked.asked, Asked.until = 0, 10**9
    build(records)
    whole = Asked.asked
    for folder in (tmp_path / "kare").glob("summaries-*"):
        folder.rename(tmp_path / "kept")
    (tmp_path / "kare" / "answers").rename(tmp_path / "answers")
    Asked.asked, Asked.until = 0, 150
    with pytest.raises(KeyboardInterrupt):
        build(records)
    first = Asked.asked
    assert not list((tmp_path / "kare").glob("summaries-*"))
    Asked.until = 10**9
    report = shared(build(records)).graph.report
    assert 0 < first <= 150 and Asked.asked == report["summaries"]["asked"] + first
    undisturbed = json.loads((tmp_path / "kept" / "report.json").read_text())
    assert report["summaries"]["reused"] == first and whole >= undisturbed["asked"]
    for name in ("completion_tokens", "communities", "unreadable"):
        assert report["summaries"][name] == undisturbed[name]


def test_no_prompt_knows_the_label_of_its_patient(system: System[KareReading]) -> None:
    """The same patients with the other label get the same prompts and the same communities."""
    kare = shared(system)
    turned = [replace(sample, label=1 - sample.label) for sample in kare.records.splits.test]
    writer = system.cases._writer  # type: ignore[attr-defined]
    for a, b in zip(system.cases.test, writer.cases(turned), strict=True):
        assert a.label != b.label and (a.text, a.reads.similar, base_text(a)) == (b.text, b.reads.similar, base_text(b))
        assert a.reads.neighbours == b.reads.neighbours and look_up("communities", 5, a) == look_up("communities", 5, b)
        for prompt in (reason_prompt, label_prompt):
            assert prompt(a, "known", "compact") == prompt(b, "known", "compact")


def test_only_training_patients_are_shown_and_never_oneself(system: System[KareReading]) -> None:
    train, near = shared(system).records.splits.train, shared(system).near
    for case in system.cases.train:  # training patients are shown others, too
        similar = case.reads.similar
        assert similar.count("outcome: ") == 2 and "outcome: no" in similar and "outcome: yes" in similar
    shown = [case.reads.showing(2).similar for case in system.cases.train]
    assert max(text.count("outcome: ") for text in shown) == 4, "N = 4 of the few-shot rows"
    assert all(case.reads.showing(0).similar == "" for case in system.cases.train)
    texts = {sample.subject_id for sample in train}
    for sample, groups in zip(train, near.of(train), strict=True):
        found = {other.subject_id for group in groups for other in group}
        assert sample.subject_id not in found and found <= texts
        assert all(len({other.label for other in group}) == 1 for group in groups)


def test_by_switch_a_similar_patient_is_one_whose_outcome_was_known(system: System[KareReading], cache: Path) -> None:
    """In the prompts, too: each shown record is one of those patients'."""
    late, told = {}, {}
    for earlier, built_ in (("false", system), ("true", build(Records(configured(cache, "data.earlier=true"))))):
        kare = shared(built_)
        asked, cases = kare.records.splits.train, built_.cases.train
        groups = kare.near.of(asked)
        shown = [
            other.outcome_time is not None and other.outcome_time <= sample.prediction_time
            for sample, own in zip(asked, groups, strict=True)
            for group in own
            for other in group
        ]
        late[earlier] = shown.count(False)
        told[earlier] = sum(case.reads.showing(2).similar.count("outcome: ") for case in cases)
        assert told[earlier] == len(shown) and shown.count(True) > 10
    assert late["true"] == 0 < late["false"] and told["true"] < told["false"]


def test_the_nearest_of_two_is_the_nearest_of_one(system: System[KareReading]) -> None:
    near, test = shared(system).near, shared(system).records.splits.test
    for sample, vector, groups in zip(test, near.vectors(test), near.of(test), strict=True):
        assert near.trained.find(sample, vector, each=1) == tuple(group[0] for group in groups)


def test_evidence_tells_why(system: System[KareReading]) -> None:
    request = look_up("communities", 10, system.cases.test[0])
    assert request is not None
    [evidence] = system.corpus.retrieve([request])
    assert evidence.passages and all(isinstance(passage, ChosenCommunity) for passage in evidence.passages)
    assert len({passage.ident for passage in evidence.passages}) == len(evidence.passages) <= 10


def test_others_look_communities_up_by_their_relation(system: System[KareReading]) -> None:
    part = next(part for part in system.partitions if part.text == "phenotype present")
    [found] = system.corpus.retrieve([Retrieve("disease heart failure", (part.index,), 2)])
    assert len(found.passages) == 2 and {passage.kind for passage in found.passages} == {"community"}


class Fixed:
    """Answers nothing but labels."""

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(act.choices[0] if act.choices else "because") for act in acts]


def test_a_patient_of_unknown_concepts_is_predicted_without_knowledge(system: System[KareReading]) -> None:
    """A concept without a node: named, and no reason to stop."""
    kare = shared(system)
    sample = kare.records.splits.test[0]
    visit = replace(sample.history[-1], diagnoses=("ICD10CM/Q999",), procedures=(), medications=())
    strange = replace(sample, history=(visit,), sample_id="strange")
    graphs = PatientGraphs({"strange": strange.history}, kare.near.name_of, kare.graph.nodes)
    assert len(graphs["strange"].unknown) == 1 and not len(graphs["strange"].direct)
    corpus = replace(kare.corpus, communities=replace(kare.corpus.communities, graphs=graphs))
    cases = system.cases._writer.cases([strange])  # type: ignore[attr-defined]
    [episode] = played(replace(system, corpus=corpus), system.variant("scripted"), Fixed(), cases)
    assert episode.prediction.label == 0 and not episode.prediction.history[0].retrieved


def test_a_patients_graph_is_made_when_it_is_asked_for(system: System[KareReading]) -> None:
    kare = shared(system)
    graph: KareGraph = kare.graph
    sample = kare.records.splits.train[0]
    graphs = PatientGraphs({sample.sample_id: sample.history}, kare.near.name_of, graph.nodes)
    wanted = patient_graph(sample.history, kare.records.name_of, graph.nodes)
    assert sample.sample_id in graphs and len(graphs) == 1 and "other" not in graphs
    assert graphs[sample.sample_id].direct.tolist() == wanted.direct.tolist()
    assert graphs[sample.sample_id] is graphs[sample.sample_id] and list(graphs) == [sample.sample_id]


TASKS = ("los", "read", "dec", "kare_mortality", "guo_los", "guo_readmission", "new_acutemi", "lab_anemia",
         "los_24h", "mortality_24h")  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_every_task_of_visits_can_be_put_to_it(cache: Path, task: str) -> None:
    """Samples are those of the records, so that systems can be compared on one patient."""
    records = Records(configured(cache, f"task={task}", "task.max_train=40", "task.max_valid=4"))
    found = build(records)
    assert [case.sample_id for case in found.cases.test] == [sample.sample_id for sample in records.splits.test]
    episodes = played(found, found.variant("scripted"), found.fixed["rule"]())
    assert all(e.failure is None and e.prediction.label is not None for e in episodes)


@pytest.mark.parametrize("variant, expected", [
    ("paper", ("direct", "nodes", ())), ("released", ("all", "summary", ())),
    ("no_decay", ("direct", "nodes", ("decay",))),
])  # fmt: skip
def test_variants_of_the_equations(variant: str, expected: tuple) -> None:
    own = load(["system=kare_released" if variant == "released" else "system=kare", f"system.variant={variant}"]).system
    assert isinstance(own, Settings)
    found = equations(own)
    assert (found.decay_over, found.theme_by, found.without) == expected
    assert found.alpha == (0.8 if variant == "released" else 0.1)


def test_what_does_not_fit_is_said(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere"):
        build(Records(configured(cache, f"system.abstracts={tmp_path / 'nowhere'}")))
    for name in ("claude", "model@ftp://host"):
        with pytest.raises(BadInput, match="names no engine"):
            build(Records(configured(tmp_path, f"system.expert={name}", "data.patients=40")))
    with pytest.raises(BadInput, match="must be below"):
        load(["system=kare", "system.small=10"])  # the demo's other limit is 6


def test_another_system_that_asks_communities_needs_vectors(cache: Path) -> None:
    config = load(["system=ghar", "system.sources=[kare]", "task=read", "data.patients=60", f"data.cache={cache}"])
    with pytest.raises(BadInput, match="makes no vectors of summaries"):
        build(Records(config))


def test_credentialed_text_goes_nowhere_unasked() -> None:
    config = load(["system=kare", "data=mimic4", "data.root=x", "system.expert=gpt@https://example.org/v1"])
    server = "gpt@https://example.org/v1"
    with pytest.raises(BadInput, match=r"example\.org"), named_engine(config, server, str, True, list):
        pass
    keys = {engine_key(config, name) for name in ("scripted", "engine", server)}
    assert len(keys) == 3


def test_answers_of_other_weights_at_the_same_place_are_not_reused(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    config = load(["system=kare", f"model.path={model}", "model=pretrained"])
    keys = set()
    for weights in (b"one", b"another"):
        (model / "model.safetensors").write_bytes(weights)
        keys.add(engine_key(config, "engine"))
        assert engine_key(config, "engine") in keys and engine_key(config, "scripted") == engine_key(config, "scripted")
    assert len(keys) == 2


def test_answers_of_another_model_without_a_folder_are_not_reused(tmp_path: Path) -> None:
    """The demo's untrained model, engines of the user's own, a GGUF file that was replaced, another system message."""
    (tmp_path / "model.gguf").write_bytes(b"one")
    gguf = ["model=pretrained", f"model.path={tmp_path / 'model.gguf'}"]
    configs = [
        load(["system=kare", "engine=hf", *own])
        for own in ([], ["model.hidden=96"], ["data.world_seed=3"], gguf, [*gguf, "model.system_message=Be brief."])
    ]  # fmt: skip
    configs += [replace(configs[0], engine=replace(configs[0].engine, kind=kind)) for kind in ("own.one", "own.two")]
    keys = [engine_key(config, "engine") for config in configs]
    assert len(set(keys)) == len(keys) and keys == [engine_key(config, "engine") for config in configs]
    (tmp_path / "model.gguf").write_bytes(b"another")
    assert engine_key(configs[3], "engine") != keys[3]
    assert len({engine_key(config, "gpt@https://example.org/v1") for config in configs}) == 1


def test_without_abstracts_there_is_no_rag(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ghar.envs.kare.system.abstracts_of", lambda records, own: None)
    found = built(*TINY, f"data.cache={cache}")
    assert not {"rag", "rag_tuned"}.intersection(found.variants) and "rag" not in found.listed
    assert isinstance(found.corpus, KareCorpus)
    for name in ("rag", "rag_tuned"):
        with pytest.raises(BadInput, match=rf"{name} looks abstracts up: set system\.abstracts"):
            built(*TINY, f"data.cache={cache}", f"eval.variants=[{name}]")
