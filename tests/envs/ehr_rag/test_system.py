"""EHR-RAG as a system: cases of every task, stores, variants, rule, regressions, rows and numbers; MEDS folders."""

from __future__ import annotations

import pickle
from collections import Counter
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ghar.data.readers.diagnosis_copies import without_repeated_diagnoses
from ghar.data.readers.lab_copies import without_copies
from ghar.data.views.events import event_label
from ghar.envs.case import Case
from ghar.envs.ehr_rag.baselines import Regressions, count_features, fit_shots, read_embeddings
from ghar.envs.ehr_rag.episode import EventReading
from ghar.envs.ehr_rag.ether import EventQuery
from ghar.envs.ehr_rag.report import shots_chart
from ghar.envs.ehr_rag.stores import Stores
from ghar.envs.records import Records
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.system import Reader, System, build, words
from ghar.episode import Act, Completion, Episode, Evidence
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.trainers.rows import lookup_rows

TINY = (
    "system=ehr_rag", "task=guo_readmission", "data.patients=120", "task.max_test=8", "system.chunk_rows=6",
    "system.chunk_overlap=1", "system.chunks=2", "system.rows=20", "system.tokens=120", "system.indicators=6",
    "system.indicators_kept=2", "system.recent_values=2", "system.iterations=2",
)  # fmt: skip
TASKS = ("los", "read", "dec", "kare_mortality", "kare_readmission", "guo_los", "guo_readmission", "new_acutemi",
         "lab_anemia", "los_24h", "mortality_24h")  # fmt: skip
METHODS = ("ehr_rag", "no_ether", "no_air", "no_der", "direct", "rag", "uniform", "rule", "react")
DRAW = {"seed": 0, "resamples": 50}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ehr-rag")


def made(cache: Path, *overrides: str) -> System[Any]:
    return build(Records(load([*TINY, f"data.cache={cache}", *overrides])))


@pytest.fixture(scope="module")
def system(cache: Path) -> System[Any]:
    return made(cache)


def parts(system: System[Any]) -> tuple[Stores, Regressions]:
    """What lies behind its episodes."""
    player = system.episode.__self__  # type: ignore[attr-defined]
    return player.stores, player.fitted


def everyone(system: System[Any]) -> list[Case[EventReading]]:
    return [*system.cases.train, *system.cases.valid, *system.cases.test]


def play(system: System[Any], name: str, cases: Any = None, policy: Any = None) -> list[Episode]:
    variant = system.variant(name)
    jobs = [
        EpisodeJob(case.sample_id, 0, partial(system.episode, case, variant)) for case in cases or system.cases.test
    ]
    if policy is None and variant.who:
        policy = system.fixed[variant.who]()
    played = rollout(jobs, dict.fromkeys(system.agents, policy), system.corpus, seed=0, in_flight=8)
    assert [episode.failure for episode in played] == [None] * len(played)
    return played


def rows(system: System[Any], name: str, played: list[Episode]) -> list[dict[str, Any]]:
    """Rows as the evaluation writes them, as far as the numbers here read them."""
    found = []
    for case, episode in zip(system.cases.test, played, strict=True):
        about = {
            "sample_id": case.sample_id, "subject_id": case.subject_id, "label": system.in_words(case, case.label),
            "prediction": system.in_words(case, episode.prediction.label), "needs_retrieval": None, "errors": [],
            "correct": episode.prediction.label == case.label, "reward": system.reward(episode, case).total,
            "label_probabilities": episode.prediction.probabilities, "prompt_tokens": 1, "completion_tokens": 1,
            "seconds": 0.0, "failure": None, "turns": [{"format_ok": turn.format_ok} for turn in episode.turns],
        }  # fmt: skip
        found.append({**about, **system.report.row(episode, case, system.variants[name])})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scripted", "scripted_rag", "scripted_react"])
def test_a_row_tells_what_fitted_into_the_prompt_that_decided(cache: Path, name: str) -> None:
    """Against the prompt itself: in full prompts a row stands as it was found."""
    system, missed = made(cache, "env.prompts=full"), 0
    for episode, row in zip(played := play(system, name), rows(system, name, played), strict=True):
        said = [record.effect.prompt for record in episode.trace if isinstance(record.effect, Act)][-1].split("\n")
        for passage in (passage for lookup in row["found"] for passage in lookup["passages"]):
            lines = passage["text"].split("\n")
            assert [i for i, line in enumerate(lines) if line in said] == passage["fitted"]
            missed += len(lines) - len(passage["fitted"])
    assert missed or name != "scripted"


@pytest.mark.slow
def test_every_variant_plays_and_has_numbers(system: System[Any]) -> None:
    scripted = ["scripted" if name == "ehr_rag" else f"scripted_{name}" for name in METHODS]
    assert list(system.variants) == [*METHODS, "ehr_rag_sft", "ehr_rag_base", *scripted, "label_sft", "usual", "counts"]
    assert set(system.listed) < set(system.variants) and system.training.teacher in system.fixed
    for name in (*scripted, "usual", "counts"):
        found = rows(system, name, play(system, name))
        for row in found:
            for lookup in row["found"]:
                assert all(passage["last"] <= row["prediction_time"] for passage in lookup["passages"])
        assert system.report.numbers is not None
        numbers = system.report.numbers(found, DRAW)
        assert set(numbers["class_f1"]) == {"no", "yes"} and numbers["patients"] <= numbers["n"] == 8
        assert ("reward" in numbers) == (name not in ("usual", "counts")) == ("auroc" not in numbers)
    told = system.report.summary({"counts": []})["shots"]["counts"]
    assert set(told) >= {"1", "2", "all"} and "macro_f1" in told["all"] and system.report.summary({}) == {"shots": {}}


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_it_is_put_to_every_task_of_visits(cache: Path, task: str) -> None:
    """The prompts of the rule's episodes offer all labels, and show nothing after the prediction time."""
    own = (f"task={task}", "task.max_test=2", "data.patients=200", "data.leakage=strict", "system.tokens=400")
    system = made(cache, *own)
    records = Records(load([*TINY, f"data.cache={cache}", *own]))
    n = len(system.task.labels)
    assert {case.label for case in everyone(system)} <= set(range(n))
    assert [case.sample_id for case in system.cases.test] == [one.sample_id for one in records.splits.test]
    for case, episode in zip(system.cases.test, play(system, "scripted"), strict=True):
        assert episode.prediction.label in range(n)
        acts = {act.role: act for act in (r.effect for r in episode.trace) if isinstance(act, Act)}
        assert len(case.reads.card.meanings) == n and ", ".join(map(str, range(n))) in acts["weigh"].prompt
        assert acts["weigh"].parse(f"Answer: {n - 1}").value == n - 1
        assert acts["weigh"].parse(f"Answer: {n}").error == "outside_labels"
        end = f"{case.reads.prediction_time:%Y-%m-%d %H:%M:%S}"
        assert all(row[1:20] <= end for act in acts.values() for _, row in act.facts["shown"].rows.values())


@pytest.mark.slow
def test_ehrshot_cases_are_numbered_by_their_labels(system: System[Any]) -> None:
    assert all(case.sample_id.startswith(f"guo_readmission-{case.subject_id}-") for case in everyone(system))
    places = [case.reads.place for case in everyone(system)]
    assert len(set(places)) == len(places)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["series_mortality", "dischargeqa_diagnosis"])
def test_a_task_without_visits_is_refused(cache: Path, task: str) -> None:
    with pytest.raises(BadInput, match="shows no visits of codes"):
        made(cache, f"task={task}")


def test_of_stays_without_an_order_the_one_asked_about_is_shown(cache: Path) -> None:
    records = Records(load([*TINY, f"data.cache={cache}", "task=los"]))
    whole = everyone(build(records))
    grouped = records.charted.visits.with_columns(group=pl.col("visit_id")).sort("subject_id", "group")
    object.__setattr__(records.charted, "visits", grouped)
    object.__setattr__(records.charted, "key", None)
    system = build(records)
    assert [case.sample_id for case in everyone(system)] == [case.sample_id for case in whole]
    assert max(Counter(case.subject_id for case in everyone(system)).values()) > 1
    events, names = records.charted.events.with_columns(recorded="time"), records.charted.names()
    for case, record in zip(system.cases.test, parts(system)[0].records(system.cases.test, apart=False), strict=True):
        known = events.filter(pl.col("visit_id") == case.visit_id, pl.col("time") <= case.reads.prediction_time)
        assert record.rows == without_copies(known.lazy()).collect().height > 0
        shown = {line.split("] ")[1].split(" (value")[0] for line in record.text(range(record.rows))}
        assert shown <= {event_label(code, names[code]) for code in known["code"]}
        assert case.text == next(one.text for one in whole if one.sample_id == case.sample_id)


def test_vectors_of_patients_are_refused_where_a_record_is_a_stay(cache: Path) -> None:
    records = Records(load([*TINY, f"data.cache={cache}", "task=los", "system.embeddings=vectors.npz"]))
    object.__setattr__(records.charted, "visits", records.charted.visits.with_columns(group=pl.col("visit_id")))
    object.__setattr__(records.charted, "key", None)
    with pytest.raises(BadInput, match=r"no order in the .*: leave it out"):
        build(records)


@pytest.mark.parametrize("task", ["mortality_24h", "los"])
def test_a_stay_of_the_open_eicu_demo_shows_itself_alone(shared_data: Path, cache: Path, task: str) -> None:
    records = Records(load([
        "system=ehr_rag", "data=eicu", f"data.root={shared_data / 'eicu-crd-demo-2.0.1'}", f"data.cache={cache}",
        f"task={task}", "task.max_test=40",
    ]))  # fmt: skip
    system = build(records)
    events, visits, others = records.charted.events, records.charted.visits, 0
    for case, record in zip(system.cases.test, parts(system)[0].records(system.cases.test, apart=False), strict=True):
        [group] = visits.filter(pl.col("visit_id") == case.visit_id)["group"]
        own = events.filter(pl.col("visit_id").is_in(visits.filter(pl.col("group") == group)["visit_id"].implode()))
        clock = pl.max_horizontal("time", "recorded") if task == "mortality_24h" else pl.col("time")
        known = own.filter(clock <= case.reads.prediction_time)
        labels = {code: event_label(code, name) for code, name in records.charted.names().items()}
        each_once = without_repeated_diagnoses(without_copies(known.lazy()), labels).collect()
        shown = {line.split("] ", 1)[1].split(" (value")[0] for line in record.text(range(record.rows))}
        assert shown == {labels[code] for code in each_once["code"]} and record.rows == each_once.height > 0
        others += visits.filter(pl.col("subject_id") == case.subject_id)["group"].n_unique() - 1
    assert others


@pytest.mark.slow
def test_evidence_keeps_to_half_of_what_a_reader_reads(system: System[Any]) -> None:
    def letters(text: str) -> int:
        return len(text)

    for reader, most in ((Reader(words), 120), (Reader(words, 100), 50), (Reader(letters, 400), 120)):
        again = system.read_by(reader)
        assert again.cases is system.cases and again.corpus is system.corpus
        for episode in play(again, "scripted_direct"):
            [act] = [record.effect for record in episode.trace if isinstance(record.effect, Act)]
            assert reader.count(act.facts["shown"].text) <= most


def test_a_passage_is_shown_where_a_line_of_it_fitted(system: System[Any]) -> None:
    """Prompts have the lines of all passages by time, so that no passage stands in them as it was found."""
    for episode in play(system, "scripted"):
        acts = [record.effect for record in episode.trace if isinstance(record.effect, Act)]
        rows = {number for act in acts for number in act.facts["shown"].rows}
        trajectories = {line for act in acts for _, line in act.facts["shown"].indicators}
        lookups = [record.result for record in episode.trace if isinstance(record.result, Evidence)]
        assert lookups and rows
        for lookup, row in zip(lookups, lookup_rows(system, episode), strict=True):
            for passage, told in zip(lookup.passages, row["found"], strict=True):
                event: Any = passage
                fits = bool(rows & set(event.numbers)) if event.numbers else event.text in trajectories
                assert told["shown"] == fits


def test_bad_replies_are_counted_by_name(system: System[Any]) -> None:
    class Mute:
        def answer(self, acts: Any, seeds: Any) -> list[Completion]:
            return [Completion("") for _ in acts]

    [episode] = play(system, "ehr_rag", system.cases.test[:1], Mute())
    assert episode.prediction.label is None and not any(turn.format_ok for turn in episode.turns)


def test_texts_are_records_of_training_patients(system: System[Any]) -> None:
    lines = list(system.training.texts())
    assert any(line.startswith("[") for line in lines) and any(": [" in line for line in lines)


def test_it_goes_to_another_process(system: System[Any]) -> None:
    """Ray sends these three; stores are opened there anew."""
    first = play(system, "scripted_direct")
    copied = pickle.loads(pickle.dumps((system.episode, system.corpus, system.variants["scripted_direct"])))
    episode, corpus, variant = copied
    jobs = [EpisodeJob(case.sample_id, 0, partial(episode, case, variant)) for case in system.cases.test]
    policies = dict.fromkeys(system.agents, system.fixed["reader"]())
    again = rollout(jobs, policies, corpus, seed=0, in_flight=8)
    assert [one.prediction for one in again] == [one.prediction for one in first]
    place = system.cases.test[0].reads.place
    asked = [EventQuery("fever", top_n=2, place=place, view=view) for view in ("similar", "newest", "chunks")]
    assert system.corpus.retrieve(asked) == corpus.retrieve(asked)


def test_counts_are_of_codes_before_the_time_and_of_their_ancestors(cache: Path, system: System[Any]) -> None:
    cohort, cases = Records(load([*TINY, f"data.cache={cache}"])).charted, system.cases.train[:5]
    above = [["LAB"] if code.startswith("LAB/") else [] for code in cohort.codes["code"]]
    codes = cohort.codes.with_columns(parents=pl.Series(above, dtype=pl.List(pl.String)))
    found = count_features(parts(system)[0].records(cases, apart=False), codes)
    each_once = without_copies(cohort.scan()).collect()  # as the store of events holds them
    for i, case in enumerate(cases):
        events = each_once.filter(
            pl.col("subject_id") == case.subject_id, (pl.col("time") <= case.reads.prediction_time).fill_null(True)
        )
        labs = events["code"].str.starts_with("LAB/").sum()
        assert found[[i]].sum() == events.height + labs


@pytest.mark.slow
def test_shots_that_a_class_does_not_have_are_left_out(system: System[Any]) -> None:
    cases = everyone(system)
    row_of = {case.sample_id: i for i, case in enumerate(cases)}
    features = np.array([[float(case.label), 1.0] for case in cases])
    found = fit_shots(features, row_of, system.cases, 2, 0, "Fitting")
    fewest = min(sum(case.label == label for case in system.cases.train) for label in (0, 1))
    assert list(found) == [str(n) for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if n <= fewest] + ["all"]
    assert all(shares.sum(axis=2) == pytest.approx(1) for shares in found.values())
    assert {len(shares) for shots, shares in found.items() if shots != "all"} == {5} and len(found["all"]) == 1
    assert found["all"][0].argmax(axis=1).tolist() == [case.label for case in cases]


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_embeddings_from_elsewhere(system: System[Any], tmp_path: Path, kind: str) -> None:
    cases = system.cases.test
    path = tmp_path / f"vectors.{kind}"
    subjects = [case.subject_id for case in cases]
    times = np.array([case.reads.prediction_time for case in cases], dtype="datetime64[us]")
    vectors = np.arange(2.0 * len(cases), dtype=np.float32).reshape(-1, 2)
    if kind == "npz":
        np.savez(path, subject_id=subjects, prediction_time=times, vector=vectors)
    else:
        pl.DataFrame({"subject_id": subjects, "prediction_time": times, "vector": vectors.tolist()}).write_parquet(path)
    assert np.array_equal(read_embeddings(path, cases[::-1]), vectors[::-1])
    with pytest.raises(BadInput, match="has no vector of patient"):
        read_embeddings(path, system.cases.train)
    with pytest.raises(BadInput, match="does not exist"):
        read_embeddings(tmp_path / "no.npz", cases)


@pytest.mark.slow
def test_embeddings_are_a_variant_where_their_file_is_given(cache: Path, system: System[Any], tmp_path: Path) -> None:
    cases = everyone(system)
    np.savez(
        tmp_path / "v.npz",
        subject_id=[case.subject_id for case in cases],
        prediction_time=np.array([case.reads.prediction_time for case in cases], dtype="datetime64[us]"),
        vector=np.array([[case.label, 0.5] for case in cases]),
    )
    again = made(cache, f"system.embeddings={tmp_path}/v.npz", "eval.variants=[embeddings]")
    played = play(again, "embeddings")
    assert all(episode.prediction.label == case.label for case, episode in zip(again.cases.test, played, strict=True))
    with pytest.raises(BadInput, match="no variant embeddings"):
        system.variant("embeddings")


@pytest.mark.parametrize("overrides, reason", [
    (("retriever=tfidf",), "makes no vectors"),
    (("system.chunk_rows=5", "system.chunk_overlap=5"), "repeats whole chunks"),
    (("eval.variants=[embeddings]",), "set both"),
])  # fmt: skip
def test_what_does_not_fit_together_is_reported(overrides: tuple[str, ...], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        load(["system=ehr_rag", *overrides])


@pytest.mark.slow
def test_labels_and_split_that_come_with_a_meds_folder(cache: Path, tmp_path: Path) -> None:
    from ghar.data.readers.meds_export import write_meds

    cohort = Records(load([*TINY, f"data.cache={cache}"])).charted
    write_meds(cohort, tmp_path / "meds")
    (tmp_path / "meds" / "labels").mkdir()
    some = cohort.events.filter(pl.col("time").is_not_null()).group_by("subject_id").agg(pl.max("time"))
    some = some.sort("subject_id").with_row_index()
    labels = some.select("subject_id", prediction_time="time", boolean_value=pl.col("index") % 3 == 0)
    labels.write_parquet(tmp_path / "meds" / "labels" / "guo_readmission.parquet")
    split = pl.when(pl.col("index") < 40).then(pl.lit("train")).when(pl.col("index") < 60).then(pl.lit("tuning"))
    splits = some.select("subject_id", split=split.otherwise(pl.lit("held_out")))
    splits.write_parquet(tmp_path / "meds" / "metadata" / "subject_splits.parquet")
    own = ["data=meds", f"data.root={tmp_path}/meds", f"data.cache={tmp_path}", "task.max_test=null"]
    found = build(Records(load([*TINY, *own])))
    assert (len(found.cases.train), len(found.cases.valid)) == (40, 20)
    assert [case.label for case in found.cases.train] == [int(i % 3 == 0) for i in range(40)]
    assert found.report.counts["labels that came with the data"] == some.height


@pytest.mark.slow
def test_a_meds_folder_of_real_patients(shared_data: Path, tmp_path: Path) -> None:
    """The open MIMIC-IV demo, exported as MEDS: a task of two and one of four classes, strict and not."""
    from ghar.data.readers.meds_export import write_meds
    from ghar.data.readers.mimic4 import read_mimic4

    write_meds(read_mimic4(shared_data / "mimic-iv-demo-2.2", charts=False), tmp_path / "meds", shard_size=50)
    folder = ["system=ehr_rag", "data=meds", f"data.root={tmp_path}/meds", f"data.cache={tmp_path}/cache"]
    folder += ["task.max_test=12", "env.prompts=full"]
    for task, leakage in (("guo_los", "paper"), ("lab_anemia", "strict")):
        system = build(Records(load([*folder, f"task={task}", f"data.leakage={leakage}"])))
        assert not system.origin.generated
        found = rows(system, "scripted", play(system, "scripted"))
        assert len(found) == 12 and all(row["prediction"] is not None for row in found)
        for row in found:
            end = datetime.fromisoformat(row["prediction_time"])
            for lookup in row["found"]:
                assert len(lookup["passages"]) <= (10 if lookup["path"] == "numbers" else 5)
                assert {p["kind"] for p in lookup["passages"]} <= {"chunks", "indicators"}
                assert all(datetime.fromisoformat(p["last"]) < end for p in lookup["passages"])


@pytest.mark.slow
def test_the_scene_to_begin_with(cache: Path) -> None:
    pytest.importorskip("gymnasium")
    from ghar import envs
    from ghar.envs.ehr_rag.demo import demo_events
    from ghar.envs.views.games import TextGame
    from ghar.envs.views.gym_view import GymView

    scene = demo_events(str(cache), patients=60)
    envs.check(GymView(TextGame(scene)))


def test_the_chart_of_shots_has_the_methods_as_levels() -> None:
    shots = {"counts": {"1": {"macro_f1": [0.4, 0.3, 0.5]}, "all": {"macro_f1": [0.6, 0.5, 0.7]}}}
    policies = {"rag": {"macro_f1": [0.51, 0.4, 0.6]}, "uniform": {"macro_f1": [0.2, 0.1, 0.3]}, "ehr_rag": {}}
    chart = shots_chart({"shots": shots, "policies": policies, "titles": {"rag": "similar chunks"}})
    assert chart is not None and "similar chunks" in chart and "random chunks" not in chart
    assert shots_chart({"shots": {"counts": {"all": {}}}}) is None
