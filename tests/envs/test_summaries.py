"""Summaries as a task: what is read, how near a text is to its reference, what it earns, and a whole training."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.config import Config
from ghar.data.tasks.summary_files import SummarisedText, read_summary_set, read_text_parts, read_texts
from ghar.envs.case import Case
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.summaries import cut_text, summary_numbers, written
from ghar.envs.system import WORDS as READER
from ghar.envs.system import Reporting, build, words
from ghar.episode import Act, Completion
from ghar.errors import BadInput
from ghar.launch.entry import check, load
from ghar.metrics.answers import answer_verdicts, patients_verdict
from ghar.metrics.texts import rouge, sari, tokens
from tests.envs.exams import DISEASES, DRUGS, write_exam

SHORT = (
    "threads=1", "model.hidden=32", "model.layers=1", "model.vocab=1000", "trainer.warmup.epochs=1",
    "trainer.rl.updates=1", "trainer.rl.episodes=4", "trainer.rl.eval_samples=2", "trainer.rl.eval_every=1",
    "eval.bootstrap=20", "task.max_train=16", "task.max_test=2", "system.max_iterations=1", "env.history_tokens=24",
)  # fmt: skip


SLEPT = ("badly", "poorly", "little", "lightly")


def write_texts(path: Path, count: int = 40, columns: Sequence[str] = ("note_id", "input", "target")) -> Path:
    """Notes of one stay each in MIMIC-IV-Ext-BHC's columns, or as ACI-BENCH has them."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["dataset", *columns])
        for i in range(count):
            disease, drug = DISEASES[i % 10], DRUGS[i % 10]
            slept = SLEPT[i // 10 % len(SLEPT)]  # no two of forty are copies
            note = f"Seen for {disease},\nhas slept {slept}. Was given {drug}."
            table.writerow(["x", f"{1000 + i // 2}-DS-{i}", note, f"A patient with {disease} was given {drug}."])
    return path


PLAYED = {
    "label": "written", "prediction": "written", "correct": True, "retrieved": False, "iterations": 0, "seconds": 0.0,
    "prompt_tokens": 9, "completion_tokens": 9, "needs_retrieval": None, "reward": 1.0, "failure": None,
    "turns": [{"format_ok": True}],
}  # fmt: skip


def config_of(folder: Path, *overrides: str) -> Config:
    _, graph = write_exam(folder)
    keys = ["task=summary", "data=summary", f"data.root={write_texts(folder / 'bhc.csv')}", f"kg.path={graph}"]
    return load([*keys, "threads=1", f"data.cache={folder / 'cache'}", *overrides])


class Writer:
    """Policy that writes the record or the reference as the summary, and says yes or terminate before."""

    def __init__(self, reference: bool) -> None:
        self.reference = reference

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(self._said(act)) for act in acts]

    def _said(self, act: Act) -> str:
        case: Case[SummarisedText] = act.facts["case"]
        if act.role == "predict":
            return case.reads.summary if self.reference else "unrelated"
        said = {"retrieve": "yes", "continue": "terminate", "metapaths": "0", "search": "answer"}
        return said.get(act.role, case.topics[0])


def test_the_notes_of_aci_bench(shared_data: Path) -> None:
    parts = read_text_parts(shared_data / "text/aci-bench")
    assert {part: len(found) for part, found in parts.items()} == {"train": 67, "valid": 20, "test": 120}
    first = parts["train"][0]
    assert first.source.startswith("[doctor]") and first.summary.split()[:2] == ["CHIEF", "COMPLAINT"]
    assert first.patient is None
    ids = [text.text_id for found in parts.values() for text in found]
    assert len(set(ids)) == len(ids) == 207


def test_texts_of_one_patient_stand_in_one_part(tmp_path: Path) -> None:
    config = load(["task=summary", "data=summary", f"data.root={write_texts(tmp_path / 'bhc.csv')}"])
    splits = read_summary_set(tmp_path / "bhc.csv", config.task).splits
    parts = [{sample.subject_id for sample in part} for part in (splits.train, splits.valid, splits.test)]
    assert list(map(len, parts)) == [16, 2, 2] and len(set.union(*parts)) == 20
    assert splits.train[0].text.source.count("\n") == 1 and 1000 <= splits.train[0].subject_id < 1020


@pytest.mark.parametrize("text, said", [
    ("a,b\n1,2\n", "has the columns a, b: a file of texts is ACI-BENCH"),
    ("note_id,input,target\n1,x,\n", "row 1: target is empty"),
    ("note_id,input,target\n1,x,y\n1,x,y\n", "rows 1 and 2 have one note_id"),
    ("note_id,input,target\n1,pain, fever,y\n", "row 1: 4 cells under 3 columns; put a text with commas in quotes"),
    ("note_id,input,target\n", "has no text"),
    ("1,A man of 61 years was seen for a cough that would not end,y\n", "no header, but 3 cells of up to 57 letters"),
])  # fmt: skip
def test_a_damaged_file_is_named(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(BadInput, match=said):
        read_texts(tmp_path / "a.csv")
    wanted = r"needs a file with train in its name: it has a\.csv\. To get one file split, name it: data\.root=.*a\.csv"
    with pytest.raises(BadInput, match=wanted):
        read_text_parts(tmp_path)


WORDS = st.lists(st.sampled_from("abcde"), min_size=0, max_size=8)


def slow_sari(source: list[str], given_: list[str], wanted: list[str]) -> float:
    """As Xu et al. define it for one reference, n-gram by n-gram; 0/0 is 1."""
    total = 0.0
    for n in range(1, 5):
        s, c, r = (Counter(tuple(x[i : i + n]) for i in range(len(x) - n + 1)) for x in (source, given_, wanted))
        grams = {*s, *c, *r}
        kept = {g: min(s[g], c[g]) for g in grams if min(s[g], c[g])}
        right = {g: min(kept[g], r[g]) for g in kept}
        wished = sum(min(s[g], r[g]) for g in grams)
        precision = sum(right[g] / kept[g] for g in kept) / len(kept) if kept else 1.0
        keep = harmonic(precision, sum(right.values()) / wished if wished else 1.0)
        gone = {g: s[g] - c[g] for g in grams if s[g] > c[g]}
        delete = sum(max(gone[g] - r[g], 0) / gone[g] for g in gone) / len(gone) if gone else 1.0
        new, wanted_new = {g for g in c if g not in s}, {g for g in r if g not in s}
        both = len(new & wanted_new)
        add = harmonic(both / len(new) if new else 1.0, both / len(wanted_new) if wanted_new else 1.0)
        total += (keep + delete + add) / 3
    return total / 4


def harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b else 0.0


@pytest.mark.slow
@settings(max_examples=200)
@given(WORDS, WORDS, WORDS)
def test_sari_as_its_authors_define_it(source: list[str], given_: list[str], wanted: list[str]) -> None:
    found = sari(" ".join(source), " ".join(given_), " ".join(wanted))
    assert found == pytest.approx(slow_sari(source, given_, wanted))


def test_likeness_of_a_copy_and_of_nothing_in_common() -> None:
    text = "Start heparin and repeat the scan in two days."
    assert rouge(text, text)["rougeL"].f == 1 and rouge("nothing else", text)["rouge1"].f == 0
    assert sari("A long note about it.", text, text) == 1 and len(tokens(text)) == 9
    half = rouge("start heparin", text)["rouge1"]
    assert half.recall == pytest.approx(2 / 9) and half.f == pytest.approx(2 * 2 / (2 + 9))


def test_a_long_text_loses_its_last_words() -> None:
    assert cut_text("one two\nthree four", 9, words) == "one two\nthree four"
    assert cut_text("one two\nthree four", 3, words) == "one two\nthree" and cut_text("one", 0, words) == ""


@pytest.mark.parametrize("name", ["ghar", "comparators"])
def test_what_is_written_earns_its_likeness(name: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, f"system={name}")
    system = build(Records(config))
    variant, cases = system.variants[system.main], system.cases.test
    assert cases[0].topics[0].startswith("disease ") and system.training.teacher is None
    rows = {}
    for reference in (True, False):
        played = play(stage_of(system, variant, config), cases, Writer(reference), seed=0, title="")
        rewards = [system.reward(episode, case) for episode, case in zip(played, cases, strict=True)]
        pairs = zip(played, cases, strict=True)
        rows[reference] = [system.report.row(episode, case, variant)["likeness"] for episode, case in pairs]
        assert all(episode.prediction.label == 0 for episode in played)
        assert {reward.terms["orm"] for reward in rewards} == {3.0 if reference else 2.0}
        assert all(r.total == pytest.approx(sum(sum(turn.values()) for turn in r.per_turn)) for r in rewards)
    assert all(row["rouge_l"] == row["sari"] == 1 for row in rows[True])
    assert all(row["rouge_l"] == 0 and row["bleu_4"] == 0 for row in rows[False])


@pytest.mark.parametrize("name", ["ghar", "comparators"])
def test_the_first_words_of_a_text_are_a_row_without_a_model(name: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, f"system={name}", "env.history_tokens=4")
    system = build(Records(config))
    lead, cases = system.variant("lead"), system.cases.test
    assert system.listed[0] == "lead" and not system.asks_model(lead)
    assert lead.title == "First 7 words of the text", "the training references have 7.2 words in the mean"
    played = play(stage_of(system, lead, config), cases, system.fixed["lead"](), seed=0, title="")
    rows = [system.report.row(episode, case, lead) for episode, case in zip(played, cases, strict=True)]
    numbers = summary_numbers([{**PLAYED, **row, "subject_id": i} for i, row in enumerate(rows)], {"resamples": 20})
    page = {"policies": {"lead": numbers}, "task": {"labels": ["written"]}}
    assert not list(answer_verdicts(page, "lead")) and "another label" not in patients_verdict(numbers, False).sentence
    for row, case in zip(rows, cases, strict=True):
        assert row["summary"].split() == case.reads.source.split()[:7] and row["likeness"]["rouge_1"] > 0


def test_a_report_compares_texts_by_rouge_l(tmp_path: Path) -> None:
    from ghar.trainers.evaluation.evaluate import evaluate  # brings torch

    keys = ("system=comparators", "eval.variants=[lead,nearest]", "eval.bootstrap=20", f"run_dir={tmp_path / 'run'}")
    summary = evaluate(config_of(tmp_path, *keys))
    policies, difference = summary["policies"], summary["differences"]["lead - nearest"]["rouge_l"]
    assert summary["metric"] == "rouge_l" and summary["task"]["samples"] == "texts"
    assert difference[0] == pytest.approx(policies["lead"]["rouge_l"][0] - policies["nearest"]["rouge_l"][0])
    page = (tmp_path / "run" / "report.html").read_text()
    assert "in ROUGE-L, paired" in page and "<span>ROUGE-L</span>" in page and "ROUGE-L on the test patients" in page
    assert "4 texts of 2 patients" in page and "was evaluated on clinical texts." in page
    for absent in ("in accuracy", "<span>Accuracy</span>", "Accuracy on the", "Confusion", "Paper mode", "stays"):
        assert absent not in page.partition("<details><summary>Configuration")[0], absent


def test_systems_are_compared_by_rouge_l(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ghar.trainers.evaluation.compare import ComparedSystem, compare  # brings torch

    names = ("comparators", "ghar")
    entries = [ComparedSystem(n, config_of(tmp_path, f"system={n}", "eval.bootstrap=20"), "") for n in names]
    summary = compare(entries, [], ["lead", "nearest"], tmp_path / "compared")
    difference = summary["differences"]["comparators.lead - ghar.nearest"]["rouge_l"]
    means = [summary["policies"][name]["rouge_l"][0] for name in ("comparators.lead", "ghar.nearest")]
    assert summary["metric"] == "rouge_l" and difference[0] == pytest.approx(means[0] - means[1])
    assert f"comparators.lead - ghar.nearest: ROUGE-L {difference[0]:.3f} [" in capsys.readouterr().out
    assert "<th>BLEU-4</th>" in (tmp_path / "compared" / "report.html").read_text()


def test_label_only_sft_of_texts_imitates_references(tmp_path: Path) -> None:
    system = build(Records(config_of(tmp_path, "system=ghar")))
    assert system.variant("label_sft").title == "SFT on references, no retrieval"


def test_the_pairs_of_sft_are_texts_and_their_references(tmp_path: Path) -> None:
    system = build(Records(config_of(tmp_path, "system=ghar", "env.prompts=full")))
    assert system.training.examples is not None
    prompt, reply, choices, _ = system.training.examples(READER).train[0]
    assert "Clinical text:" in prompt and "Summarise the text" in prompt and not choices
    assert reply.startswith("A patient with ") and reply not in prompt


def test_tables_of_patients_are_refused_where_there_are_texts_alone(tmp_path: Path) -> None:
    others = "choose system=ghar, kare, exprag, graphwalker, ehr_rag, comparators or baselines"
    with pytest.raises(BadInput, match=f"task=summary has texts alone: {others}"):
        Records(config_of(tmp_path, "system=ehr_rag")).require_patients()


@pytest.mark.slow
def test_a_training_from_texts_to_a_report(tmp_path: Path) -> None:
    from ghar.trainers.recipe import train  # brings torch

    variants = "eval.variants=[label_sft,ghar_rl]"
    train(config_of(tmp_path, "system=ghar", *SHORT, variants, f"run_dir={tmp_path / 'run'}"))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    main = summary["policies"][summary["main"]]
    assert main["n"] == 2 and main["failures"] == 0 and 0 <= main["rouge_l"][0] <= 1 and 0 <= main["sari"][0] <= 1
    assert set(summary["policies"]) == {"label_sft", "ghar_rl"} and summary["trained_on"]["episodes"] == 4
    assert "rouge_l" in (tmp_path / "run" / "report.html").read_text()


def test_the_best_weights_on_texts_are_chosen_by_likeness(tmp_path: Path) -> None:
    """All that were written have one label, so that by accuracy no update is ever better than none."""
    config = config_of(tmp_path, "system=ghar")
    assert config.trainer.rl.select == "accuracy"
    assert build(Records(config)).report.chosen_by("accuracy") == "rouge_l"
    assert build(Records(config)).report.chosen_by("reward") == "reward"
    assert Reporting().chosen_by("accuracy") == "accuracy"
    with pytest.raises(BadInput, match=r"which have one label: set trainer\.rl\.select=reward"):
        check(["task=summary", "data=summary", "data.root=x", "kg.path=x", "trainer.method=plain"])


@pytest.mark.parametrize("name", ["ghar", "exprag", "graphwalker", "comparators"])
def test_a_model_does_not_learn_from_its_own_summaries(name: str, tmp_path: Path) -> None:
    """Whatever it writes counts as right: references teach, but for a teacher of another name."""
    own = (f"system={name}", "model=pretrained", "model.path=org/small", "scale=laptop")
    system = build(Records(config_of(tmp_path, *own)))
    assert system.training.examples is not None
    replies = [one.reply for one in system.training.examples(READER).train]
    assert replies == [case.reads.summary for case in system.cases.train]
    other = build(Records(config_of(tmp_path, *own, "trainer.warmup.teacher=org/large")))
    assert other.training.examples is None


def test_the_nearest_summary_is_copied_from_another_patient(tmp_path: Path) -> None:
    """Two of ten diseases' notes are alike but for the patient; a training text does not copy its own patient's."""
    config = config_of(tmp_path, "system=ghar")
    system = build(Records(config))
    nearest, train = system.variant("nearest"), system.cases.train
    for cases in (system.cases.test, train):
        played = play(stage_of(system, nearest, config), cases, system.fixed["nearest"](), seed=0, title="")
        for episode, case in zip(played, cases, strict=True):
            others = {one.reads.summary for one in train if one.subject_id != case.subject_id}
            assert written(episode) in others and not system.asks_model(nearest)
    disease = case.reads.source.partition(",")[0].removeprefix("Seen for ")
    alike = [one for one in train if one.subject_id != case.subject_id and disease in one.reads.source]
    assert not alike or disease in written(episode)


@pytest.mark.parametrize("name, variant", [("exprag", "scripted"), ("exprag", "nearest"), ("kare", "nearest")])
def test_a_copy_of_a_text_shows_no_one_its_summary(name: str, variant: str, tmp_path: Path) -> None:
    """The first test text stands in training too, as another patient's, spaced and capitalised otherwise."""
    folder = tmp_path / "parts"
    folder.mkdir()
    write_texts(tmp_path / "bhc.csv")
    header, *rows = csv.reader((tmp_path / "bhc.csv").read_text().splitlines(keepends=True))
    _, _, source, summary = rows[30]
    copy = ["x", "5000-DS-1", f"{source.upper()} ", f"{summary} Own words."]
    for part, some in {"train": [*rows[:20], copy], "valid": rows[20:30], "test": [[*rows[30][:3], copy[3]]]}.items():
        with (folder / f"{part}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *some])
    config = config_of(tmp_path, f"system={name}", f"data.root={folder}")
    system = build(Records(config))
    made = system.variant(variant)
    [episode] = play(stage_of(system, made, config), system.cases.test, system.fixed[made.who](), seed=0, title="")
    assert written(episode) and "Own words." not in written(episode)
    asked = [r.effect.prompt for r in episode.trace if isinstance(r.effect, Act)]
    assert asked and not any("Own words." in prompt for prompt in asked)
