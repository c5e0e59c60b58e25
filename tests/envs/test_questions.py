"""Questions as a task of every system that reads text: what it is asked, what it looks up, and a whole training."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from ghar.config import Config
from ghar.data.tasks.question_files import ChoiceQuestion
from ghar.envs.exprag.exam import answer_of_similar
from ghar.envs.exprag.report_corpus import FindExcerpts
from ghar.envs.ghar.episode import play_ghar
from ghar.envs.play import play, stage_of
from ghar.envs.questions import cut_question
from ghar.envs.records import Records
from ghar.envs.system import System, build, words
from ghar.episode import Act, Completion, Evidence, Passage, Reply
from ghar.errors import BadInput
from ghar.launch.entry import load
from tests.envs.exams import exam_keys, write_exam

PLAYED = ("ghar", "comparators", "exprag", "kare")
SHORT = (
    "threads=1", "model.hidden=32", "model.layers=1", "model.vocab=1000", "trainer.warmup.samples=16",
    "trainer.warmup.epochs=1", "trainer.rl.updates=1", "trainer.rl.episodes=8", "trainer.rl.eval_samples=4",
    "trainer.rl.eval_every=1", "eval.bootstrap=20", "task.max_test=4",
)  # fmt: skip


def config_of(folder: Path, *overrides: str) -> Config:
    return load([*exam_keys(folder), "threads=1", f"data.cache={folder / 'cache'}", *overrides])


def prompts(system: System, config: Config, variant: str) -> list[str]:
    """What a variant's rule is asked about the first test question."""
    chosen = system.variant(variant)
    played = play(stage_of(system, chosen, config), system.cases.test[:1], system.fixed[chosen.who](), seed=0, title="")
    return [record.effect.prompt for record in played[0].trace if isinstance(record.effect, Act)]


def test_the_scripted_teacher_finds_what_the_graph_says(tmp_path: Path) -> None:
    config = config_of(tmp_path, "system=ghar")
    system = build(Records(config))
    test, scripted = system.cases.test, system.variant("scripted")
    assert not system.origin.generated and system.report.baselines is None
    assert system.report.counts["test questions"] == len(test)
    assert all(case.topics[0].startswith("disease ") and len(case.topics) == 5 for case in test)
    played = play(stage_of(system, scripted, config), test, system.fixed["teacher"](), seed=0, title="")
    assert [episode.prediction.label for episode in played] == [case.label for case in test]
    assert all(episode.prediction.history[0].retrieved for episode in played)


def test_full_prompts_say_that_nothing_was_found(tmp_path: Path) -> None:
    config = config_of(tmp_path, "system=ghar", "env.prompts=full")
    system = build(Records(config))
    episode = play_ghar(system.cases.test[0], system.variant("ghar_rl"))
    said = {"retrieve": "yes", "metapaths": "0"}
    effect = next(episode)
    while not (isinstance(effect, Act) and effect.role == "summarise"):
        if isinstance(effect, Act):
            completion = Completion(said.get(effect.role, "Is it gout?"))
            effect = episode.send(Reply(completion, effect.parse(completion.text).value))
        else:
            effect = episode.send(Evidence())
    assert "<data>\n(nothing found)\n</data>" in effect.prompt


def test_full_prompts_speak_of_an_examination(tmp_path: Path) -> None:
    config = config_of(tmp_path, "system=ghar", "env.prompts=full", "env.history_tokens=200")
    shown = "\n".join(prompts(build(Records(config)), config, "scripted"))
    assert "Examination question" in shown and "A. " in shown and "Patient record" not in shown


def test_tables_of_patients_are_refused_where_there_are_questions_alone(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="system=ehr_rag reads codes, visits or events of patients, and task=medqa has"):
        Records(config_of(tmp_path, "system=ehr_rag")).require_patients()


def test_questions_need_a_graph_of_the_users(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"There is no graph at .*: set kg\.path"):
        build(Records(config_of(tmp_path, "system=ghar", "kg.path=null")))


def test_a_long_question_loses_its_first_words_and_no_option() -> None:
    question = ChoiceQuestion("q", " ".join(f"w{i}" for i in range(50)), ("one", "two"), 0)
    assert cut_question(question, 99, words) == question.shown()
    cut = cut_question(question, 20, words)
    assert words(cut) == 20 and cut.startswith("w34 ") and cut.endswith("w49\nA. one\nB. two")
    assert cut_question(question, 1, words) == cut, "of the sentence that asks 16 words stay"
    asking = ChoiceQuestion("q", "An old man coughs. He smokes. What is it?", ("one", "two"), 0)
    assert cut_question(asking, 1, words) == "What is it?\nA. one\nB. two"


def test_a_copy_of_a_question_shows_no_one_its_answer(tmp_path: Path) -> None:
    """The first test question stands in training too, with its options in another order."""
    file, _ = write_exam(tmp_path)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    turned = dict(zip("ABCD", [rows[70]["options"][letter] for letter in "DCBA"], strict=True))
    copy = {**rows[70], "question": rows[70]["question"].upper(), "options": turned}
    copy["answer_idx"] = "ABCD"["DCBA".index(rows[70]["answer_idx"])]
    (tmp_path / "parts").mkdir()
    for part, some in {"train": [*rows[:60], copy], "dev": rows[60:70], "test": rows[70:71]}.items():
        (tmp_path / "parts" / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    config = config_of(tmp_path, "system=exprag", "system.top_k=60", f"data.root={tmp_path / 'parts'}")
    system = build(Records(config))
    main = system.variant("exprag")
    [case] = system.cases.test
    [evidence] = system.corpus.retrieve([next(system.episode(case, main))])
    shown = {passage.ident for passage in evidence.passages}
    assert 60 not in shown and len(shown) > 10


def test_the_experience_of_exprag_is_other_questions_and_their_answers(tmp_path: Path) -> None:
    config = config_of(tmp_path, "system=exprag", "system.top_k=3")
    system = build(Records(config))
    scripted, test = system.variant("scripted"), system.cases.test
    [episode, *others] = play(stage_of(system, scripted, config), test, system.fixed["rule"](), seed=0, title="")
    [act] = [record.effect for record in episode.trace if isinstance(record.effect, Act)]
    experience = act.prompt.partition("\nquestion:")[0].splitlines()
    asked, answers = experience[2::3], experience[3::3]
    assert experience[1::3] == [f"similar question {n}:" for n in range(1, len(asked) + 1)] and len(asked) == 3
    assert all(line.startswith("- A patient of ") and " head: " not in line for line in asked)
    assert all(line.startswith("right answer: ") for line in answers), "no option of another question is shown"
    [evidence] = (r.result for r in episode.trace if isinstance(r.effect, FindExcerpts))
    assert evidence.passages and all(system.report.shows(act, passage) for passage in evidence.passages)
    [right, other] = [line.partition(". ")[2] for line in act.facts["case"].text.split("\n")[-4:-2]]
    ranked = Evidence((Passage(right, "report", -1, 1.0, 1), Passage(other, "report", -1, 9.0, 2)))
    hidden = replace(act, facts={**act.facts, "ranked": ranked, "experience": f"right answer: {right}"})
    assert answer_of_similar(hidden, 3) == "answer: A", "an answer that the prompt leaves out is not read"
    right = [one.prediction.label == case.label for one, case in zip([episode, *others], test, strict=True)]
    assert sum(right) / len(right) > 0.8, "questions about one disease have one answer"
    with pytest.raises(BadInput, match=r"system\.ranker=one_code reads codes, and questions have none"):
        build(Records(config_of(tmp_path, "system=exprag", "system.ranker=one_code")))


@pytest.mark.parametrize("name", ["ghar", "comparators", "kare"])
def test_the_usual_answer_is_a_row_without_a_model(name: str, tmp_path: Path) -> None:
    from ghar.trainers.evaluation.evaluate import main_of  # brings torch

    config = config_of(tmp_path, f"system={name}", "env.prompts=full")
    system = build(Records(config))
    usual, test = system.variant("usual"), system.cases.test
    assert system.listed[0] == "usual" and not system.asks_model(usual)
    counts = Counter(case.label for case in system.cases.train)
    played = play(stage_of(system, usual, config), test, system.fixed["usual"](), seed=0, title="")
    other = {"comparators": "base_direct", "kare": "kare_base", "ghar": "ghar_base"}[name]
    assert main_of(system, ["usual", other]) == other
    [label] = {episode.prediction.label for episode in played}
    assert label is not None and counts[label] == max(counts.values())


def test_a_report_of_questions_names_no_patients(tmp_path: Path) -> None:
    from ghar.trainers.evaluation.evaluate import evaluate  # brings torch

    keys = ("system=ghar", "eval.variants=[usual,scripted]", "eval.bootstrap=20", f"run_dir={tmp_path / 'run'}")
    summary = evaluate(config_of(tmp_path, *keys))
    assert summary["task"]["samples"] == "questions" and "metric" not in summary
    page = (tmp_path / "run" / "report.html").read_text()
    assert "was evaluated on examination questions." in page and "This page contains examination questions." in page
    count = summary["policies"]["usual"]["n"]
    assert f"{count} questions; intervals by resampling questions" in page and "Accuracy on the test questions" in page
    for absent in ("real patients", f"of {count} patients", "resampling patients", "test patients", "Paper mode"):
        assert absent not in page.partition("<details><summary>Configuration")[0], absent


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAYED)
def test_a_training_from_questions_to_a_report(name: str, tmp_path: Path) -> None:
    from ghar.trainers.recipe import train  # brings torch

    train(config_of(tmp_path, f"system={name}", *SHORT, f"run_dir={tmp_path / 'run'}"))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    main = summary["policies"][summary["main"]]
    assert main["n"] == 4 and main["failures"] == 0 and not summary["generated"]
    assert summary["trained_on"]["episodes"] == 8 and summary["task"]["labels"] == ["A", "B", "C", "D"]
    assert (tmp_path / "run" / "report.html").is_file()
