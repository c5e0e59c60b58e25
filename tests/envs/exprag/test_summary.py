"""EXPRAG on clinical texts: how others were summarised is the experience, and no own summary is in a prompt."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from ghar.config import Config
from ghar.data.tasks.summary_files import SummarisedText
from ghar.envs.exprag.summary import asked
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.summaries import LEAD, likeness, written
from ghar.envs.system import WORDS, System, build
from ghar.episode import Act, Episode
from ghar.errors import BadInput
from ghar.launch.entry import load
from tests.envs.test_summaries import SHORT, write_texts


def config_of(folder: Path, *overrides: str) -> Config:
    texts = write_texts(folder / "bhc.csv")
    return load(["system=exprag", "task=summary", "data=summary", f"data.root={texts}", "threads=1", *overrides])


def prompts_of(system: System[SummarisedText], name: str) -> list[str]:
    variant = system.variant(name)
    return [asked(system.episode(case, variant), system.corpus).prompt for case in system.cases.test]


def played(system: System[SummarisedText], config: Config, name: str) -> list[Episode]:
    variant = system.variant(name)
    policy = system.fixed[variant.who]()
    return play(stage_of(system, variant, config), system.cases.test, policy, seed=0, title="")


def test_a_prompt_shows_how_others_were_summarised(tmp_path: Path) -> None:
    config = config_of(tmp_path, "env.prompts=full", "system.top_k=3", "system.words=40")
    system = build(Records(config))
    prompt, alone = prompts_of(system, "exprag")[0], prompts_of(system, "direct")[0]
    case = system.cases.test[0]
    disease = case.reads.source.partition(",")[0].removeprefix("Seen for ")
    first = prompt.partition("summary of similar text 1:\n- ")[2].partition("\n")[0]
    assert disease in first and " was given " in first, "texts about one disease are alike"
    assert case.text in prompt and case.text in alone and "similar text" not in alone


def test_no_text_of_the_own_patient_is_experience(tmp_path: Path) -> None:
    """The file has two notes a patient, who stands in one part; a training text is not shown its own."""
    system = build(Records(config_of(tmp_path, "system.top_k=40")))
    subjects = sorted(case.subject_id for case in system.cases.train)
    main = system.variant("exprag")
    for case in system.cases.train:
        act = asked(system.episode(case, main), system.corpus)
        shown = {subjects[passage.ident] for passage in act.facts["ranked"].passages}
        assert shown and case.subject_id not in shown


def test_what_is_asked_about_gives_no_summary_away(tmp_path: Path) -> None:
    """Other summaries of the test texts leave every prompt as it is; other summaries of training texts do not."""
    config = config_of(tmp_path)
    before = prompts_of(build(Records(config)), "exprag")
    test = {case.sample_id.partition(":")[2] for case in build(Records(config)).cases.test}
    with (tmp_path / "bhc.csv").open(newline="") as file:
        rows = list(csv.reader(file))

    def rewritten(of_test: bool) -> list[str]:
        with (tmp_path / "bhc.csv").open("w", newline="") as file:
            changed = [
                (*row[:-1], "Nothing.") if (row[1] in test) == of_test and i else row for i, row in enumerate(rows)
            ]
            csv.writer(file).writerows(changed)
        return prompts_of(build(Records(config)), "exprag")

    assert rewritten(True) == before and rewritten(False) != before


def test_rules_copy_a_summary_or_the_text(tmp_path: Path) -> None:
    config = config_of(tmp_path, "system.top_k=3")
    system = build(Records(config))
    scripted, alone, lead = (played(system, config, name) for name in ("scripted", "scripted_direct", LEAD))
    train = {case.reads.summary for case in system.cases.train}
    assert all(written(episode) in train for episode in scripted)
    assert [written(episode) for episode in alone] == [case.text for case in system.cases.test]
    near, far = (
        sum(likeness(written(one), case.reads)["rouge_l"] for one, case in zip(some, system.cases.test, strict=True))
        for some in (scripted, lead)
    )
    assert near > far  # a note about the same disease tells more than the first words
    assert "lead" in system.variants and system.report.numbers is not None


def test_the_warm_up_learns_clinicians_summaries_behind_experience(tmp_path: Path) -> None:
    system = build(Records(config_of(tmp_path, "system.top_k=3")))
    assert system.training.examples is not None
    examples, labels = system.training.examples(WORDS), system.training.stages["label_sft"](WORDS)
    for part, cases in ((examples.train, system.cases.train), (examples.valid, system.cases.valid)):
        assert [one.reply for one in part] == [case.reads.summary for case in cases]
        assert all("summary of similar text 1:" in one.prompt for one in part)
    assert [one.reply for one in labels.train] == [case.reads.summary for case in system.cases.train]
    assert not any("similar text" in one.prompt for one in labels.train)
    other = build(Records(config_of(tmp_path, "trainer.warmup.teacher=m@http://127.0.0.1:9/v1")))
    assert other.training.examples is None  # a model of the user's teaches


@pytest.mark.parametrize(
    "key, said",
    [
        ("system.ranker=one_code", r"system\.ranker=one_code reads codes, and texts have none: leave it out"),
        ("system.retriever=flare", "flare looks up while an answer is written"),
    ],
)
def test_what_texts_have_not_is_refused(key: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said):
        build(Records(config_of(tmp_path, key)))


def test_the_notes_of_aci_bench(shared_data: Path) -> None:
    config = load(["system=exprag", "task=summary", "data=summary", f"data.root={shared_data / 'text/aci-bench'}",
                   "env.prompts=full", "env.history_tokens=400", "threads=1"])  # fmt: skip
    system = build(Records(config))
    assert len(system.cases.test) == 120
    (act, *_) = [asked(system.episode(case, system.variant("exprag")), system.corpus) for case in system.cases.test[:3]]
    assert isinstance(act, Act) and "summary of similar text 1:" in act.prompt and "head: " not in act.prompt
    evidence = act.facts["evidence"].passages
    assert any(system.report.shows(act, passage) for passage in evidence)
    for case in system.cases.test:
        assert system.corpus.retrieve([next(system.episode(case, system.variant("exprag")))])[0].passages


@pytest.mark.slow
def test_a_training_from_texts_to_a_report(tmp_path: Path) -> None:
    from ghar.trainers.recipe import train  # brings torch

    short = [key for key in SHORT if not key.startswith("system.")]
    variants = "eval.variants=[lead,scripted,label_sft,exprag_sft,exprag]"
    keys = [variants, f"run_dir={tmp_path / 'run'}", f"data.cache={tmp_path / 'cache'}", "system.top_k=2"]
    train(config_of(tmp_path, *short, "system.words=12", *keys))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    policies = summary["policies"]
    assert set(policies) == {"lead", "scripted", "label_sft", "exprag_sft", "exprag"}
    assert policies["scripted"]["rouge_l"][0] > policies["lead"]["rouge_l"][0]
    assert "rouge_l" in (tmp_path / "run" / "report.html").read_text()
