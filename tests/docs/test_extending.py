"""Every module of docs/extending.md: the page shows it as it is, it is short, and it does what the page says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from ghar.config import Config
from ghar.data.readers.own_source import build_cohort, faults
from ghar.data.tasks.visits import visit_samples
from ghar.envs import check
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.stepper import scene_of
from ghar.envs.system import build
from ghar.envs.views.games import TextGame
from ghar.envs.views.gym_view import GymView
from ghar.envs.worlds.source import read_source
from ghar.episode import Act, Retrieve
from ghar.errors import BadInput
from ghar.inputs import missing
from ghar.kg.where import NEED_NONE
from ghar.launch.entry import choices, load
from ghar.llm.engine import Request
from ghar.llm.engines import make_engine, without_weights
from ghar.trainers.rows import rows_of, summarise
from tests.running import run_python

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
NAMES = ("registry", "long_stay", "overlap", "first_choice", "brevity", "asked_again", "kl_falls")
SHORT = ("registry", "brevity", "asked_again", "kl_falls")  # at most 20 lines with text in one file
STAYS = """patient,stay,admitted,discharged,died,diagnoses,drugs
2,21,2020-03-01 10:00:00,2020-03-04 09:00:00,no,I50.9;E11.9,Furosemide
1,11,2020-01-01 08:00:00,2020-01-12 12:00:00,no,J18.9,amoxicillin; insulin
1,12,2020-05-01 08:00:00,2020-05-02 20:00:00,yes,I50.9,
"""


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_each_module_as_it_is_and_none_is_long(name: str) -> None:
    text = (EXAMPLES / "mine" / f"{name}.py").read_text()
    assert f"```python\n{text}```" in (ROOT / "docs" / "extending.md").read_text()
    assert len(text.splitlines()) < 60
    assert name not in SHORT or len([line for line in text.splitlines() if line]) <= 20


def registry(folder: Path, text: str = STAYS, *overrides: str) -> Config:
    folder.mkdir(exist_ok=True)
    (folder / "stays.csv").write_text(text)
    return load(["data=mine.registry", f"data.root={folder}", f"data.cache={folder}/cache", *overrides])


def test_a_source_is_read_checked_and_counts_as_credentialed(tmp_path: Path) -> None:
    config = registry(tmp_path, STAYS, "task=read")
    records = Records(config)
    assert records.source.visits["visit_id"].to_list() == [11, 12, 21] and records.source.credentialed
    history = records.source.shown.visits[11]
    assert history.diagnoses == ("ICD10CM/J189",) and history.medications == ("DRUG/amoxicillin", "DRUG/insulin")
    twice = replace(records.source, codes=records.source.codes.head(1).vstack(records.source.codes.head(1)))
    assert any("twice" in wrong for wrong in faults(twice)) and any("not among the codes" in w for w in faults(twice))
    assert dict(records.source.codes.select("code", "description").iter_rows())["ICD10CM/J189"] == "J189"
    wrong = replace(records.source, visits=records.source.visits.reverse().drop("died"))
    assert faults(wrong) == ["visits.died is missing, and must be Boolean."]
    assert faults(replace(records.source, visits=records.source.visits.reverse()))[0].startswith("visits are not in")


def many(patients: int = 40) -> str:
    """stays.csv of that many patients, two stays each."""
    rows = [
        f"{patient},{patient}{stay},2020-0{month}-01 08:00:00,2020-0{month}-0{days} 12:00:00,no,{code},furosemide"
        for patient in range(1, patients + 1)
        for stay, month, days, code in (
            (1, 1, 2 + patient % 5, "I50.9;E11.9"),
            (2, 2 if patient % 2 else 6, 4, "J18.9"),
        )
    ]
    return "\n".join([STAYS.splitlines()[0], *rows, ""])


def test_a_training_without_a_graph_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    for name in choices("system"):
        config = registry(tmp_path, STAYS, f"system={name}", "task=read")
        told = [line for line in missing(config, training=False) if "graph" in line]
        assert len(told) == (config.system.name not in NEED_NONE), name
    config = registry(tmp_path, STAYS, "task=read")
    [told] = [line for line in missing(config) if "graph" in line]
    assert told.startswith(f"There is no graph at {tmp_path}/kg/kg.csv.gz: set kg.path to") and "ehr_rag" in told
    with pytest.raises(BadInput, match=r"There is no graph at .*: set kg\.path to .* system=baselines, ehr_rag"):
        build(Records(config))
    assert missing(load(["system=ghar"])) == []  # generated patients come with theirs


def test_a_readers_cohort_has_a_system_without_a_graph_and_one_with(
    small_config: Callable[..., Config], tmp_path: Path
) -> None:
    quick = ("+experiment=quick", "task=read")
    config = registry(tmp_path / "own", many(), "system=ehr_rag", *quick)
    assert config.eval.variants is None and load(["+experiment=quick", "system=mine.brevity"]).eval.variants
    made = build(Records(config))
    assert made.cases.train and made.cases.test and made.listed
    graph = Records(small_config("data.patients=150")).graph_path
    config = registry(tmp_path / "own", many(), "system=ghar", f"kg.path={graph}", *quick)
    made = build(Records(config))
    assert made.cases.train and set(config.eval.variants or ()) <= set(made.variants)


def test_the_pages_training_on_a_readers_cohort(tmp_path: Path) -> None:
    from ghar.trainers.recipe import train

    config = registry(
        tmp_path / "own", many(), "+experiment=quick", "system=ehr_rag", "task=read", f"run_dir={tmp_path}/run",
        "model.hidden=32", "model.layers=2", "trainer.base.seed=0", "trainer.base.steps=2", "trainer.base.batch=4",
        "trainer.warmup.samples=16", "trainer.rl.updates=1", "trainer.rl.episodes=4", "trainer.rl.eval_samples=2",
        "task.max_test=4", "eval.bootstrap=50", "threads=1",
    )  # fmt: skip
    train(config)
    assert "ehr_rag" in json.loads((tmp_path / "run" / "summary.json").read_text())["policies"]


def test_a_cohort_of_two_tables_is_filled_in_and_sorted() -> None:
    at = [datetime(2020, 1, day) for day in (1, 2, 5)]
    visits = pl.DataFrame({"visit_id": [7, 3], "subject_id": [2, 1], "start": at[:2], "end": at[1:]})
    rows = {"visit_id": [7, 3, 3], "time": [at[0], at[1], at[1]], "code": ["LAB/2", "LAB/2", "LAB/1"]}
    made = build_cohort("two", visits, pl.DataFrame({**rows, "numeric_value": [1, 2, 3]}))
    assert not faults(made) and made.credentialed and not made.generated
    assert made.events["code"].to_list() == ["LAB/1", "LAB/2", "LAB/2"]
    assert made.events["subject_id"].to_list() == [1, 1, 2]
    assert made.events["recorded"].to_list() == made.events["time"].to_list()
    assert made.visits["visit_id"].to_list() == [3, 7] and not made.visits["died"].any()
    # as a diagonal concat has them
    more = {**rows, "description": [None, "sodium", None], "recorded": [at[2], None, None]}
    named = build_cohort("two", visits, pl.DataFrame(more))
    assert named.names() == {"LAB/1": "1", "LAB/2": "sodium"}
    assert named.events["recorded"].to_list() == [at[1], at[1], at[2]] and not faults(named)
    died = build_cohort("two", visits.with_columns(died=pl.col("visit_id") == 7), pl.DataFrame(rows)).visits
    assert died["death_time"].to_list() == [None, at[1]]
    with pytest.raises(BadInput, match="The visits of two have no column end: give subject_id, visit_id, start, end"):
        build_cohort("two", visits.drop("end"), pl.DataFrame(rows))
    with pytest.raises(BadInput, match="The events of two have neither visit_id nor subject_id"):
        build_cohort("two", visits, pl.DataFrame(rows).drop("visit_id"))


def test_two_tables_are_joined_in_the_types_of_a_cohort() -> None:
    at = datetime(2020, 1, 1)
    visits = pl.DataFrame({"visit_id": ["7", "3"], "subject_id": [2, 1], "start": [at] * 2, "end": [at] * 2})
    rows = pl.DataFrame({"visit_id": [7, 3, 3], "time": [at] * 3, "code": ["A"] * 3, "numeric_value": [1, 3, 2]})
    made = build_cohort("two", visits, rows)
    assert not faults(made)
    assert made.events.select("subject_id", "numeric_value").rows() == [(1, 3), (1, 2), (2, 1)]
    with pytest.raises(BadInput, match="The visits of two have a column visit_id that does not") as error:
        build_cohort("two", visits.with_columns(visit_id=pl.Series(["7", "Smith"])), rows)
    assert "Smith" not in str(error.value)
    either = rows.with_columns(visit_id=pl.Series([7, None, None]), subject_id=pl.Series([None, 1, 1]))
    mixed = build_cohort("two", visits, either)
    assert not faults(mixed) and mixed.events["subject_id"].to_list() == [1, 1, 2]


def test_an_event_of_no_patient_is_a_fault() -> None:
    at = datetime(2020, 1, 1)
    visits = pl.DataFrame({"visit_id": [7], "subject_id": [2], "start": [at], "end": [at]})
    rows = pl.DataFrame({"visit_id": [7, None], "time": [at] * 2, "code": ["A"] * 2})
    wrong = faults(build_cohort("two", visits, rows))
    assert len(wrong) == 1 and wrong[0].startswith("1 rows of events are of no patient")


def test_many_events_of_one_time_and_code_stay_in_their_order() -> None:
    at = datetime(2020, 1, 1)
    visits = pl.DataFrame({"visit_id": [7], "subject_id": [2], "start": [at], "end": [at]})
    values = [float(value) for value in range(5000)]
    rows = pl.DataFrame({"numeric_value": values}).with_columns(visit_id=7, time=at, code=pl.lit("A"))
    assert build_cohort("two", visits, rows).events["numeric_value"].to_list() == values


def test_a_task_asks_on_the_second_day(tmp_path: Path) -> None:
    config = registry(tmp_path, STAYS, "task=mine.long_stay")
    task, samples = visit_samples(read_source(config.data), config.task, config.data.leakage)
    assert task.labels == ("no", "yes") and [sample.label for sample in samples] == [1, 0, 0]
    assert samples[0].history[-1].visit_id == 11
    assert samples[0].history[-1].diagnoses == ()  # which the chart knows at the discharge


@pytest.mark.parametrize("override, sentence", [
    ("data=mine.nowhere", "data=mine.nowhere leads to no module"),
    ("data=mine.long_stay", "data=mine.long_stay has no read"),
])  # fmt: skip
def test_a_module_that_is_missing_or_lacks_a_part_is_one_sentence(tmp_path: Path, override: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        read_source(load([override, f"data.root={tmp_path}"]).data)
    with pytest.raises(BadInput, match=r"data\.name"):
        load(["data.name=registry"])
    with pytest.raises(BadInput, match=r"There is no engine=mine\. .*engine=PACKAGE\.MODULE"):
        load(["engine=mine"])


def test_a_retriever_is_what_the_system_asks(small_config: Callable[..., Config]) -> None:
    made = build(Records(small_config("retriever=mine.overlap", "data.patients=150")))
    [evidence] = made.corpus.retrieve([Retrieve(made.cases.train[0].text, None, 1)])
    assert evidence.passages and {passage.kind for passage in evidence.passages} == {"edge"}
    check(GymView(TextGame(scene_of(made))), episodes=1)


def test_an_engine_answers_evaluations_alone(small_config: Callable[..., Config]) -> None:
    config = small_config("engine=mine.first_choice")
    with without_weights(config, credentialed=False) as engine:
        replies = engine.generate([Request("?", 8, ("yes", "no")), Request("?", 8)])
    assert [reply.text for reply in replies] == ["yes", "0"]
    with pytest.raises(BadInput, match="takes no weights"):
        make_engine(config, None, None)
    with pytest.raises(BadInput, match=r"privacy\.allow"), without_weights(config, credentialed=True):
        pass
    allowed = small_config("engine=mine.first_choice", "privacy.allow=[mine.first_choice]")
    with without_weights(allowed, credentialed=True) as engine:
        assert engine.version == -1


def test_a_reward_term_and_a_metric_stand_with_the_others(small_config: Callable[..., Config]) -> None:
    config, metric = small_config("system=mine.brevity", "system.brevity=0.5"), small_config("system=mine.asked_again")
    made, plain = build(Records(config)), build(Records(small_config()))
    rule, cases = made.variants["scripted"], made.cases.test[:4]
    episodes = play(stage_of(made, rule, config), cases, made.fixed[rule.who](), seed=0, title="Playing")
    for episode, case in zip(episodes, cases, strict=True):
        reward, before = made.reward(episode, case), plain.reward(episode, case)
        written = sum(len(r.result.text.split()) for r in episode.trace if isinstance(r.effect, Act))
        assert reward.terms["brevity"] == -written < 0 and reward.total == pytest.approx(before.total - 0.5 * written)
        assert sum(reward.arriving()) == pytest.approx(reward.total)
        assert made.training.shaping.reward(episode, case, None, None).terms["brevity"] == -written
    rewards = [made.reward(episode, case) for episode, case in zip(episodes, cases, strict=True)]
    rows = rows_of(made, rule, cases, episodes, rewards, "test")
    found = summarise(build(Records(metric)), rows, 0, 50)
    asked = sum(row["retrievals"] > 1 for row in rows) / len(rows)
    assert found["asked_again"][0] == asked and "accuracy" in found and rows[0]["rewards"]["brevity"] < 0


@pytest.mark.parametrize("method", ["mappo", "plain"])
def test_a_schedule_sets_the_kl_weight_of_each_update(
    method: str, small_config: Callable[..., Config], tmp_path: Path
) -> None:
    from ghar.trainers.recipe import train

    config = small_config(
        f"trainer.method={method}", "trainer.rl.schedule=mine.kl_falls", "trainer.rl.kl=0.5", "trainer.base.steps=0",
        "trainer.warmup.samples=20", "trainer.warmup.epochs=1", "trainer.rl.updates=3", "trainer.rl.episodes=4",
        "trainer.rl.eval_samples=2", "trainer.rl.eval_every=9", "task.max_test=2", "eval.variants=[ghar_rl]",
        f"run_dir={tmp_path / 'run'}",
    )  # fmt: skip
    train(config)
    curve = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    taken = [row["train/kl/weight"] for row in curve if row["phase"] == "rl" and row["step"] > 0]
    assert taken == pytest.approx([0.5, 0.5 * 0.6, 0.5 * 0.1])


HASTY = '''"""GHAR, paid for short episodes; how many turns an episode takes."""

from dataclasses import dataclass

from ghar.envs.additions import add_metric, add_term
from ghar.envs.ghar import system as ghar
from ghar.envs.ghar.settings import Settings as GharSettings


@dataclass(frozen=True)
class Settings(GharSettings):
    name: str = "theirs.hasty"


def build(records, settings):
    made = add_term(ghar.build(records, settings), "haste", lambda episode, case: -len(episode.turns), 0.25)
    return add_metric(made, "turns_taken", lambda row: len(row["turns"]) or None)
'''
TINY = (
    "--quick", "system=theirs.hasty", "task=read", "threads=1", "data.patients=120", "model.hidden=32",
    "model.layers=2", "trainer.base.seed=0", "trainer.base.steps=2", "trainer.base.batch=16",
    "trainer.warmup.samples=24", "trainer.rl.updates=2", "trainer.rl.episodes=8", "trainer.rl.eval_every=1",
    "trainer.rl.eval_samples=8", "task.max_test=8", "eval.bootstrap=50", "eval.variants=[scripted,ghar_rl]",
)  # fmt: skip


def test_a_term_and_a_metric_of_a_foreign_folder_stand_in_curves_summary_and_report(tmp_path: Path) -> None:
    """The command is started in a folder of the user's, which holds nothing but the module."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "hasty.py").write_text(HASTY)
    words = (*TINY, f"data.cache={tmp_path / 'cache'}", "run_dir=run")
    done = run_python("-m", "ghar.launch.cli", "train", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    run = tmp_path / "run"
    curve = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    updates = [row for row in curve if row["phase"] == "rl"]
    assert [row["train/reward/haste"] < 0 for row in updates[1:]] == [True, True]
    assert all(row["eval/turns_taken_low"] <= row["eval/turns_taken"] for row in updates)
    found = json.loads((run / "summary.json").read_text())["policies"]["ghar_rl"]
    rows = [json.loads(line) for line in (run / "episodes" / "ghar_rl.jsonl").open()]
    taken = [len(row["turns"]) for row in rows]
    assert found["turns_taken"][0] == pytest.approx(sum(taken) / len(taken))
    assert found["own_metrics"] == {"turns_taken": len(rows)}
    assert found["reward_terms"]["haste"] == pytest.approx(sum(row["weighted"]["haste"] for row in rows) / len(rows))
    assert sum(found["reward_terms"].values()) == pytest.approx(found["reward"][0])
    page = (run / "report.html").read_text()
    table = page[page.index("Reward by term, weighted") :]
    assert re.search(r'<th scope="row">haste</th><td class="main">-[0-9.]+<', table)
    assert re.search(rf'<th scope="row">turns_taken</th><td class="main">{found["turns_taken"][0]:.3f}<', table)
    assert ">haste</text>" in page or "haste" in page[page.index("Reward terms, training") :]
