"""KARE end to end on generated patients: what is built and kept, every method, the report; what does not fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envs.kare.episode import label_prompt, reason_prompt
from ghar.config import Config
from ghar.episode import Act, Completion
from ghar.errors import BadInput
from ghar.kg.themes import theme_of
from ghar.llm.engine import Request
from ghar.llm.engines import engine_key, named_engine
from ghar.llm.scripted import ScriptedEngine
from ghar.metrics.runfolder import RunFolder
from ghar.retrieval.community_corpus import ChosenCommunity, SelectCommunities
from ghar.retrieval.patient_graph import patient_graph
from launch.entry import load
from trainers import kare_build
from trainers.kare import Method, evaluate, play_cases
from trainers.kare_study import KareStudy, prepare, settings
from trainers.records import counter

TINY = (
    "+experiment=kare_demo", "data.patients=60", "model.hidden=32", "model.layers=1", "model.heads=2",
    "model.vocab=512", "kare.communities=[5,5,5,6]", "task.max_test=4", "eval.bootstrap=20",
)  # fmt: skip
BUILT = ("graphs", "clusters", "communities", "summaries")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kare")


def configured(cache: Path, *overrides: str) -> Config:
    return load([*TINY, f"data.cache={cache}", *overrides])


@pytest.fixture(scope="module")
def study(cache: Path) -> KareStudy:
    return prepare(configured(cache))


class Asked(ScriptedEngine):
    """Counts what it is asked, and stops at question number `until`."""

    asked = 0
    until = 10**9

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        if Asked.asked + len(requests) > Asked.until:
            raise KeyboardInterrupt
        Asked.asked += len(requests)
        return super().generate(requests)


def test_every_method_is_evaluated_and_reported(cache: Path, tmp_path: Path) -> None:
    methods = "kare,no_reasoning,zero_shot,rag,scripted,scripted_base"
    summary = evaluate(configured(cache, f"run_dir={tmp_path}", f"kare.methods=[{methods}]"))
    assert list(summary["policies"]) == methods.split(",") and summary["generated"] and not summary["credentialed"]
    assert tuple(summary["build"]) == BUILT and json.loads((tmp_path / "summary.json").read_text())["system"] == "kare"
    for name, numbers in summary["policies"].items():
        assert {"accuracy", "macro_f1"} <= numbers.keys() and numbers["n"] == 4, name
    rates = {name: numbers["retrieval_rate"][0] for name, numbers in summary["policies"].items()}
    assert rates["zero_shot"] == rates["scripted_base"] == 0 and rates["rag"] == 1
    assert rates["kare"] == rates["scripted"] > 0.5
    assert summary["policies"]["zero_shot"]["errors"], "an untrained model answers nothing readable"
    assert not summary["policies"]["no_reasoning"]["errors"], "labels are chosen"
    row = next(iter(RunFolder(tmp_path).episodes("scripted")))
    assert [turn["role"] for turn in row["turns"]] == ["reason", "predict"] and row["chain"] and row["similar"]
    factors = row["found"][0]["factors"]
    product = factors["hits"] * factors["decay"] * factors["coherence"] * factors["recency"] * factors["theme"]
    assert product == pytest.approx(factors["relevance"]) and row["found"][0]["score"] == factors["relevance"]
    page = (tmp_path / "report.html").read_text()
    for told in ("Why these communities", "Reasoning chain", "How the knowledge was built", "patients are generated"):
        assert told in page
    assert "This run is not complete" not in page


def test_what_is_built_is_opened_again(cache: Path, study: KareStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: Any) -> None:
        raise AssertionError("asked although everything is there")

    monkeypatch.setattr(kare_build, "named_engine", nobody)
    again = prepare(configured(cache))
    assert again.graph.report == study.graph.report
    sample = study.records.splits.test[0].sample_id
    request = SelectCommunities("sepsis", None, 5, sample)
    assert again.corpus.retrieve([request]) == study.corpus.retrieve([request])


def test_an_interrupted_summarisation_goes_on(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ghar.llm.engines.ScriptedEngine", Asked)
    config = configured(cache, f"data.cache={tmp_path}", "data.patients=40")
    Asked.asked, Asked.until = 0, 10**9
    prepare(config)
    whole = Asked.asked
    for folder in (tmp_path / "kare").glob("summaries-*"):
        folder.rename(tmp_path / "kept")
    (tmp_path / "kare" / "answers").rename(tmp_path / "answers")
    Asked.asked, Asked.until = 0, 150
    with pytest.raises(KeyboardInterrupt):
        prepare(config)
    first = Asked.asked
    assert not list((tmp_path / "kare").glob("summaries-*"))
    Asked.until = 10**9
    report = prepare(config).graph.report
    assert 0 < first <= 150 and Asked.asked == report["summaries"]["asked"] + first
    undisturbed = json.loads((tmp_path / "kept" / "report.json").read_text())
    assert report["summaries"]["reused"] == first and whole >= undisturbed["asked"]
    for name in ("completion_tokens", "communities", "unreadable"):
        assert report["summaries"][name] == undisturbed[name]


def test_no_prompt_knows_the_label_of_its_patient(study: KareStudy) -> None:
    """The same patients with the other label get the same prompts and the same communities."""
    test = study.records.splits.test
    turned = [replace(sample, label=1 - sample.label) for sample in test]
    told, other = (study.cases(samples, counter(None)) for samples in (test, turned))
    for a, b in zip(told, other, strict=True):
        assert a.label != b.label and (a.text, a.similar, a.base) == (b.text, b.similar, b.base)
        assert study.look_up(a) == study.look_up(b)
        for prompt in (reason_prompt, label_prompt):
            assert prompt(a, "known", "compact") == prompt(b, "known", "compact")


def test_only_training_patients_are_shown_and_never_oneself(study: KareStudy) -> None:
    train = study.records.splits.train
    texts = {sample.subject_id for sample in train}
    for case in study.cases(train, counter(None)):  # training patients are shown others, too
        assert case.similar.count("outcome: ") == 2 and "outcome: no" in case.similar and "outcome: yes" in case.similar
    shown = [case.similar for case in study.cases(train, counter(None), similar=2)]
    assert max(text.count("outcome: ") for text in shown) == 4, "N = 4 of the few-shot rows"
    vectors = study._vectors(train)
    for sample, vector in zip(train, vectors, strict=True):
        found = study._similar.find(sample.subject_id, vector)
        assert sample.subject_id not in {other.subject_id for other in found}
        assert {other.subject_id for other in found} <= texts


def test_evidence_tells_why(study: KareStudy) -> None:
    case = study.cases(study.records.splits.test[:1], counter(None))[0]
    [evidence] = study.corpus.retrieve([study.look_up(case)])
    assert evidence.passages and all(isinstance(passage, ChosenCommunity) for passage in evidence.passages)
    assert len({passage.ident for passage in evidence.passages}) == len(evidence.passages) <= 10


class Fixed:
    """Answers nothing but labels."""

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(act.choices[0] if act.choices else "because") for act in acts]


def test_a_patient_of_unknown_concepts_is_predicted_without_knowledge(study: KareStudy) -> None:
    """A concept without a node: named, and no reason to stop."""
    sample = study.records.splits.test[0]
    visit = replace(sample.history[-1], diagnoses=("ICD10CM/Q999",), procedures=(), medications=())
    strange = replace(sample, history=(visit,), sample_id="strange")
    graph = patient_graph(strange.history, study.records.name_of, study.graph.nodes)
    assert len(graph.unknown) == 1 and not len(graph.direct)
    corpus = replace(study.corpus, graphs={"strange": graph})
    own = replace(study, corpus=corpus)
    cases = own.cases([strange], counter(None))
    method = Method("communities", 1, "beside", "rule")
    [episode] = play_cases(own, cases, method, Fixed(), counter(None), title="strange")
    assert episode.prediction.label == 0 and not episode.prediction.history[0].retrieved


@pytest.mark.parametrize("variant, told", [
    ("paper", ("direct", "nodes", ())), ("released", ("all", "summary", ())),
    ("no_decay", ("direct", "nodes", ("decay",))),
])  # fmt: skip
def test_variants_of_the_equations(variant: str, told: tuple) -> None:
    kare = load(["policy=kare_released" if variant == "released" else "policy=kare", f"kare.variant={variant}"]).kare
    assert kare is not None
    found = settings(kare)
    assert (found.decay_over, found.theme_by, found.without) == told
    assert found.alpha == (0.8 if variant == "released" else 0.1)


def test_what_does_not_fit_is_told(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no theme"):
        theme_of("series_mortality")
    with pytest.raises(BadInput, match="nowhere"):
        prepare(configured(cache, f"kare.abstracts={tmp_path / 'nowhere'}"))
    for name in ("claude", "model@ftp://host"):
        with pytest.raises(BadInput, match="names no engine"):
            prepare(configured(tmp_path, f"kare.expert={name}", "data.patients=40"))


def test_credentialed_text_goes_nowhere_unasked() -> None:
    config = load(["policy=kare", "data=mimic4", "data.root=x", "kare.expert=gpt@https://example.org/v1"])
    server = "gpt@https://example.org/v1"
    with pytest.raises(BadInput, match=r"example\.org"), named_engine(config, server, str, True, list):
        pass
    keys = {engine_key(config, name) for name in ("scripted", "engine", server)}
    assert len(keys) == 3
