"""KARE on clinical texts: what stands for records and similar patients, and where summaries may not be."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ghar.envs.kare.build as kare_build
import ghar.envs.kare.training_examples as kare_examples
from ghar.config import Config
from ghar.data.tasks.splits import Splits
from ghar.data.tasks.summary_files import LABEL, SummarisedText
from ghar.envs.case import Case
from ghar.envs.kare.corpus import ConceptNames
from ghar.envs.kare.graph.considerations import TEXTS
from ghar.envs.kare.mentions import MentionSample, NearestTexts
from ghar.envs.kare.summary import CLINICAL_TEXT, summary_inputs, summary_splits
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.summaries import written
from ghar.envs.system import WORDS, System, build
from ghar.episode import Act, Episode
from ghar.errors import BadInput
from ghar.launch.entry import check, load
from ghar.llm.engine import Engine
from ghar.llm.policy import FunctionPolicy
from ghar.llm.scripted import ScriptedEngine
from ghar.retrieval.encoders import HashingEncoder
from tests.envs.exams import write_exam
from tests.envs.refusals import assert_refused
from tests.envs.test_summaries import SHORT, write_texts

OWN = ("system=kare", "task=summary", "data=summary", "threads=1", "system.leiden_runs=2")
PROMPTED = ("kare", "zero_shot", "kare_zero_shot", "few_shot_4", "kare_few_shot")


def config_of(folder: Path, *overrides: str) -> Config:
    folder.mkdir(parents=True, exist_ok=True)
    _, graph = write_exam(folder)
    texts = folder / "bhc.csv"
    root = texts if texts.exists() else write_texts(texts)
    return load([*OWN, f"data.root={root}", f"kg.path={graph}", f"data.cache={folder / 'cache'}", *overrides])


def played(system: System[Any], config: Config, variant: str, cases: Sequence[Case[Any]], reply: str) -> list[Episode]:
    policy = FunctionPolicy(lambda act: reply)
    return play(stage_of(system, system.variant(variant), config), cases, policy, seed=0, title="")


def acts_of(system: System[Any], config: Config, variant: str, cases: Sequence[Case[Any]]) -> list[Act]:
    """What a variant asks about cases."""
    episodes = played(system, config, variant, cases, "A text.")
    return [record.effect for episode in episodes for record in episode.trace if isinstance(record.effect, Act)]


def prompts_of(system: System[Any], config: Config, cases: Sequence[Case[Any]]) -> list[str]:
    """All prompts of some variants about cases."""
    return [act.prompt for name in PROMPTED for act in acts_of(system, config, name, cases)]


def rewrite(path: Path, change: Callable[[list[str]], bool]) -> None:
    """Give other summaries to the rows that `change` chooses."""
    with path.open(newline="") as file:
        head, *rows = list(csv.reader(file))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *([*r[:-1], f"Other {r[1]}."] if change(r) else r for r in rows)])


def disease_of(case: Case[Any]) -> str:
    return case.text.partition(",")[0].removeprefix("Seen for ")


def test_a_text_stands_where_a_record_stands(tmp_path: Path) -> None:
    config = config_of(tmp_path, "env.prompts=full", "env.history_tokens=100")
    system = build(Records(config))
    case = system.cases.test[0]
    [act] = acts_of(system, config, "kare", [case])
    assert act.role == "predict" and not act.choices and act.max_tokens == 640
    assert f"# Text\n<data>\n{case.text}\n</data>" in act.prompt
    assert "# Similar texts\n" in act.prompt and act.prompt.count("\n1. A patient with ") == 1
    assert "# Medical knowledge\n" in act.prompt and " indication " in act.prompt
    assert "answer" not in act.prompt and "Records" not in act.prompt and TEXTS[0] not in act.prompt
    factors = [passage.factors for passage in act.facts["evidence"].passages]
    assert factors and {(one.recency, one.theme) for one in factors} == {(1.0, 1.0)}
    [alone] = acts_of(system, config, "zero_shot", [case])
    assert TEXTS[0] in alone.prompt and "# Similar" not in alone.prompt and "# Medical" not in alone.prompt
    assert system.origin.credentialed == case.credentialed and not system.origin.generated


def test_every_reply_that_is_not_empty_is_a_summary(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    system = build(Records(config))
    cases = system.cases.test
    for name in ("kare", "few_shot", "kare_zero_shot"):
        one, none = (played(system, config, name, cases[:1], reply)[0] for reply in ("Two\nlines.", " "))
        assert one.prediction.label == 0 and written(one) == "Two\nlines."
        assert none.prediction.label is None and written(none) == ""
    case, variant = cases[0], system.variant("kare")
    right, wrong = (played(system, config, "kare", [case], text)[0] for text in (case.reads.summary, "unrelated"))
    assert system.reward(right, case).total > system.reward(wrong, case).total
    rows = [system.report.row(episode, case, variant) for episode in (right, wrong)]
    assert [row["likeness"]["rouge_l"] for row in rows] == [1, 0] and rows[0]["found"]


def test_the_graph_is_of_what_texts_mention(tmp_path: Path) -> None:
    records = Records(config_of(tmp_path, "task.max_test=1", "task.max_train=5"))
    splits = summary_splits(records)
    inputs = summary_inputs(records, splits)
    assert len({one.subject_id for one in splits.train}) < len(splits.train), "some are of one patient"
    assert len(splits.train) == len(inputs.sets) == 5 and len(inputs.sets.names) == 20 == len(inputs.nodes)
    first = splits.train[0]
    own = {name.lower() for _, name in (topic.split(" ", 1) for topic in first.topics)}
    assert set(inputs.sets.names_of(0)) == own and len(own) == 2
    assert all(records.primekg.names[node] == topic.partition(" ")[2] for topic, node in inputs.nodes.items())


def test_no_summary_reaches_the_prompts_of_its_text(tmp_path: Path) -> None:
    """Other summaries of all validation and test texts change no prompt, and nothing is built anew."""
    config, cache = config_of(tmp_path), tmp_path / "cache" / "kare"
    one = build(Records(config))
    folders = sorted(path.name for path in cache.iterdir())
    before = [prompts_of(one, config, cases) for cases in (one.cases.valid, one.cases.test)]
    hidden = {case.sample_id.partition(":")[2] for case in (*one.cases.valid, *one.cases.test)}
    rewrite(tmp_path / "bhc.csv", lambda row: row[1] in hidden)
    two = build(Records(config))
    assert all(case.reads.summary.startswith("Other ") for case in (*two.cases.valid, *two.cases.test))
    assert [prompts_of(two, config, cases) for cases in (two.cases.valid, two.cases.test)] == before
    assert sorted(path.name for path in cache.iterdir()) == folders, "nothing is built anew"
    assert not any("Other" in prompt for prompt in prompts_of(two, config, two.cases.train))
    rewrite(tmp_path / "bhc.csv", lambda row: row[1] not in hidden)
    three = build(Records(config))
    assert prompts_of(three, config, three.cases.test) != before[1], "those of training texts are shown"
    assert sorted(path.name for path in cache.iterdir()) == folders, "concept sets are of the texts alone"


def test_no_summary_of_the_own_patient_is_in_a_prompt(tmp_path: Path) -> None:
    """The file has two notes a patient; a training text sees neither its own summary nor the other one's."""
    write_texts(tmp_path / "bhc.csv")
    rewrite(tmp_path / "bhc.csv", lambda row: True)  # each summary names its text
    config = config_of(tmp_path)
    system = build(Records(config))
    for case in system.cases.train:
        patient = [one for one in system.cases.train if one.subject_id == case.subject_id]
        prompts = prompts_of(system, config, [case])
        assert len(patient) == 2 and any("Other " in prompt for prompt in prompts)
        assert not any(one.reads.summary in prompt for one in patient for prompt in prompts)


def sample(number: int, patient: int, text: str) -> MentionSample[SummarisedText]:
    note = SummarisedText(f"t{number}", text, f"summary {number}")
    return MentionSample(f"t{number}", patient, note, LABEL, number, ())


def test_similar_texts_are_the_nearest_ones_of_other_patients() -> None:
    encoder = HashingEncoder(64)
    train = (
        sample(0, 0, "seen for acute gout"),
        sample(1, 0, "seen again for gout"),  # of the same patient
        sample(2, 2, "seen for a toe with gout"),
        sample(3, 3, "seen for gout of the toe"),
        sample(4, 4, "has scurvy"),
        sample(5, 5, "seen for old gout"),
        sample(6, 6, "fell from a ladder"),
        sample(7, 7, "sleeps badly"),
        sample(8, 8, "Seen  for acute GOUT"),  # a copy
    )
    near = NearestTexts(CLINICAL_TEXT, Splits(train, (), ()), Any, ConceptNames({}), encoder, False)  # type: ignore[arg-type]
    vectors = encoder.passages([one.text.source for one in train])
    for asked, nearest in zip(train, near.of(train), strict=True):
        cosines = np.round(vectors @ encoder.passages([asked.text.source])[0], 5)
        copies = {0, 8} if asked.sample_id in ("t0", "t8") else set()
        others = [i for i, one in enumerate(train) if one.subject_id != asked.subject_id and i not in copies]
        best = sorted(others, key=lambda i: (-cosines[i], i))[:4]
        assert [one.sample_id for one in nearest] == [f"t{i}" for i in best]
    assert "t1" not in {one.sample_id for one in near.of(train)[0]}


def test_prompts_show_two_or_four_summaries_of_similar_texts(tmp_path: Path) -> None:
    config = config_of(tmp_path, "env.history_tokens=28")
    system = build(Records(config))
    case = system.cases.test[0]
    [two], [four] = (acts_of(system, config, name, [case]) for name in ("few_shot", "few_shot_4"))
    assert (two.prompt.count("A patient with "), four.prompt.count("A patient with ")) == (2, 4)
    assert f"similar 1. A patient with {disease_of(case)} was given" in two.prompt, "texts about one disease read alike"
    [alone] = acts_of(system, config, "no_similar", [case])
    assert "A patient with" not in alone.prompt and "known - " in alone.prompt


def test_classic_rag_retrieves_abstracts_for_a_text(tmp_path: Path) -> None:
    (tmp_path / "abstracts").mkdir()
    paper = {"pmid": "1", "title": "Gout", "abstract": "Allopurinol is given for gout."}
    (tmp_path / "abstracts" / "some.jsonl").write_text(json.dumps(paper) + "\n")
    config = config_of(tmp_path, f"system.abstracts={tmp_path / 'abstracts'}", "env.prompts=full")
    system = build(Records(config))
    [act] = acts_of(system, config, "rag", system.cases.test[:1])
    assert "Allopurinol is given for gout." in act.prompt and TEXTS[0] in act.prompt and not act.choices
    [first, *_] = system.training.stages["rag_tuned"](WORDS).train
    assert "Allopurinol is given for gout." in first.prompt and first.reply == system.cases.train[0].reads.summary


@pytest.mark.parametrize("variant, shown", [("base", False), ("no_patients", True)])
def test_contexts_of_table_3_leave_similar_texts_out(variant: str, shown: bool, tmp_path: Path) -> None:
    config = config_of(tmp_path, "env.prompts=full", "env.history_tokens=100", f"system.variant={variant}")
    system = build(Records(config))
    [act] = acts_of(system, config, "kare", system.cases.test[:1])
    assert "# Similar" not in act.prompt and ("# Medical knowledge" in act.prompt) is shown


def test_a_long_text_and_long_summaries_lose_their_last_words(tmp_path: Path) -> None:
    system = build(Records(config_of(tmp_path, "env.history_tokens=8")))
    case = system.cases.test[0]
    assert case.reads.dropped > 0 and len(case.text.split()) <= 8 and case.text.startswith("Seen for ")
    assert case.reads.similar == "1. A patient\n2. A patient", "a quarter of 8 words each"


@pytest.mark.parametrize("expert", ["scripted", "model@http://127.0.0.1:9/v1"])
def test_training_examples_are_the_references_whoever_the_expert_is(
    expert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    @contextmanager
    def engine(*_: Any) -> Iterator[Engine]:
        yield ScriptedEngine(reply)

    def reply(prompt: str) -> str:
        asked.append(prompt)
        return "[]" if "Concepts:\n" in prompt else "These belong together."

    if "@" in expert:
        for module in (kare_build, kare_examples):
            monkeypatch.setattr(module, "named_engine", engine)
    config = config_of(tmp_path, "env.prompts=full", "env.history_tokens=100", f"system.expert={expert}")
    system = build(Records(config))
    assert system.training.examples is not None and "label_only" not in system.training.stages
    examples = system.training.examples(WORDS)
    for part, cases in ((examples.train, system.cases.train), (examples.valid, system.cases.valid)):
        acts = acts_of(system, config, "kare", cases)
        assert [one.prompt for one in part] == [act.prompt for act in acts], "what is played is what was trained"
        assert [one.reply for one in part] == [case.reads.summary for case in cases]
        assert not any(one.choices for one in part)
    assert str(examples.about["lessons"]).startswith("summaries by clinicians")
    assert bool(asked) == ("@" in expert) and not any("# Chain" in prompt or "hospital" in prompt for prompt in asked)
    assert not any(case.reads.summary in prompt for case in system.cases.train for prompt in asked)


@pytest.mark.parametrize("name, reason", [
    ("scripted", "knows the grades of generated patients"), ("coagent", "learns what speaks for each outcome"),
    ("kare_base", "reasons in a chain that leads to a label"), ("no_reasoning", "leaves out chains"),
    ("label_only", "learns labels without such chains"),
])  # fmt: skip
def test_variants_that_need_patients_or_labels_are_refused_early_and_late(
    name: str, reason: str, tmp_path: Path
) -> None:
    refusal = rf"Variant {name} of system=kare {reason}.*task=summary has none: choose others \(kare, zero_shot"
    config = config_of(tmp_path, f"eval.variants=[{name}]")
    system = assert_refused(config, name, refusal)
    assert system.listed[:4] == ("lead", "nearest", "kare", "backbone") and set(system.listed) <= set(system.variants)


@pytest.mark.parametrize("extra, sentence", [
    (["system.variant=no_theme"], "leaves out a factor of Eq. 3 that is 1 for texts"),
    (["system.tasks=two_in_one"], "teaches labels beside or after chains, and task=summary has neither"),
    (["system.tasks=multitask_weighted"], "teaches labels beside or after chains"),
    (["data.earlier=true"], "task=summary has no dates"),
    (["protocol=kare"], "protocol=kare has no task=summary"),
])  # fmt: skip
def test_settings_that_texts_have_no_sense_for(extra: list[str], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        check([*OWN, "data.root=bhc.csv", "kg.path=kg.csv", *extra])


def test_texts_that_mention_nothing_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "bhc.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("note_id", "input", "target"), *((i, f"Why {i}?", "So.") for i in range(20))])
    with pytest.raises(BadInput, match=r"No training text of .* mentions a node of the graph: check kg\.path"):
        build(Records(config_of(tmp_path)))


@pytest.mark.slow
def test_a_training_from_texts_to_a_report(tmp_path: Path) -> None:
    from ghar.trainers.recipe import train  # brings torch

    short = [key for key in SHORT if not key.startswith("system.")]
    variants = "eval.variants=[lead,nearest,kare,kare_sft,backbone]"
    train(config_of(tmp_path, *short, "system.tokens=20", variants, f"run_dir={tmp_path / 'run'}"))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    policies = summary["policies"]
    assert set(policies) == {"lead", "nearest", "kare", "kare_sft", "backbone"} and summary["main"] == "kare"
    assert policies["kare"]["found"] > 0 and policies["nearest"]["rouge_l"][0] > policies["lead"]["rouge_l"][0]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Similar texts of the training set" in page and "Reference</summary>" in page and "rouge_l" in page
    assert "Reasoning chain</h3>" not in page


@pytest.mark.slow
def test_notes_of_aci_bench_get_communities_of_primekg(shared_data: Path, tmp_path: Path) -> None:
    graph = shared_data / "kg/primekg-subset/merged_kg_12col.csv.gz"
    config = load([*OWN, f"data.root={shared_data / 'text/aci-bench'}", f"kg.path={graph}", f"data.cache={tmp_path}",
                   "env.prompts=full", "env.history_tokens=2000"])  # fmt: skip
    system = build(Records(config))
    acts = acts_of(system, config, "kare", system.cases.test)
    supplied = [act for act in acts if act.facts["evidence"].passages]
    assert len(acts) == 120 and 100 < len(supplied) < 120, "some notes mention nothing"
    assert all("# Medical knowledge\n" in act.prompt for act in supplied)
    assert all(act.prompt.count("\n1. ") >= 1 and "\n# Similar texts\n" in act.prompt for act in acts)
