"""EXPRAG on labels of visits: who is experience, what is ranked by, what is shown, and the rule."""

from __future__ import annotations

import pickle
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from ghar.data.cohort import Sample, Task, Visit
from ghar.data.tasks.visits import VISIT_TASKS
from ghar.data.views.reports import PLAIN, stay_reports
from ghar.envs.case import Case
from ghar.envs.exprag.episode import NOTHING, ExpragSpec
from ghar.envs.exprag.label_episode import LabelEpisodes, outcomes_text
from ghar.envs.exprag.labels import Asking, experience, index_samples
from ghar.envs.exprag.report_corpus import ReportCorpus
from ghar.envs.exprag.rule import MajorityOfOutcomes, outcome_shares
from ghar.envs.records import Records
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.system import WORDS, Reader, System, build
from ghar.episode import Act, Episode, Evidence, Passage
from ghar.launch.entry import load
from ghar.retrieval.reports import rank

pytestmark = pytest.mark.slow

TASK = Task("mood", "Which mood?", ("low", "mid", "high"))
WHEN = datetime(2100, 1, 1)
THIRDS = (1 / 3, 1 / 3, 1 / 3)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("labels")


def records_of(cache: Path, *overrides: str) -> Records:
    return Records(load(["system=exprag", "data.patients=120", f"data.cache={cache}", "task.max_test=8", *overrides]))


def play(system: System[None], name: str) -> list[Episode]:
    variant = system.variants[name]
    jobs = [EpisodeJob(case.sample_id, 0, partial(system.episode, case, variant)) for case in system.cases.test]
    return rollout(jobs, {"top": system.fixed[variant.who]()}, system.corpus, seed=0, in_flight=8, steady=True)


def corpus_of(system: System[None]) -> ReportCorpus:
    assert isinstance(system.corpus, ReportCorpus)
    return system.corpus


@pytest.mark.parametrize("task", VISIT_TASKS)
def test_every_task_on_visits_is_played(cache: Path, task: str) -> None:
    records = records_of(cache, f"task={task}", "data.leakage=strict")
    system = build(records)
    assert [case.sample_id for case in system.cases.test] == [s.sample_id for s in records.splits.test]
    for name in ("scripted_direct", "scripted"):
        for case, episode in zip(system.cases.test, play(system, name), strict=True):
            assert episode.failure is None and episode.prediction.label is not None
            assert system.reward(episode, case).total >= 2 * records.config.reward.eta  # readable at the least
            shown = system.report.row(episode, case, system.variants[name])["experience"]
            assert [o["text"] for o in shown["options"]] == list(records.task.labels)
            assert (name == "scripted") or not shown["ranked"]


def test_label_only_sft_imitates_right_labels_without_experience(cache: Path) -> None:
    records = records_of(cache, "task=read", "task.max_train=30", "system.label_epochs=3")
    system = build(records)
    pairs = system.training.stages["label_sft"](WORDS)
    assert pairs.epochs == 3 and len(pairs.valid) == len(records.splits.valid)
    for example, case in zip(pairs.train, system.cases.train, strict=True):
        act = next(system.episode(case, system.variants["label_sft"]))
        assert example.prompt == act.prompt and NOTHING in act.prompt
        assert act.parse(example.reply).value == case.label


def test_experience_is_of_training_patients_with_a_label(cache: Path) -> None:
    records = records_of(cache, "task=read")
    system = build(records)
    corpus, train = corpus_of(system), records.splits.train
    assert set(corpus.index.visit_id.tolist()) == {s.visit_id for s in train}
    assert corpus.outcomes == {s.visit_id: s.label for s in train}
    owner = {s.visit_id: s.subject_id for s in train}
    variant, rule = system.variants["scripted"], system.fixed["rule"]()
    jobs = [EpisodeJob(c.sample_id, 0, partial(system.episode, c, variant)) for c in system.cases.train]
    played = rollout(jobs, {"top": rule}, corpus, seed=0, in_flight=8)
    for case, episode in zip(system.cases.train, played, strict=True):
        ranked = system.report.row(episode, case, variant)["experience"]["ranked"]
        assert all(owner[stay["stay"]] != case.subject_id for stay in ranked)
        assert all(stay["outcome"] == records.task.labels[corpus.outcomes[stay["stay"]]] for stay in ranked)


def test_by_switch_a_report_is_of_a_stay_whose_outcome_was_known(cache: Path) -> None:
    late = {}
    for earlier in ("false", "true"):
        records = records_of(cache, "task=read", f"data.earlier={earlier}", "task.max_test=60")
        train = sorted(records.splits.train, key=lambda s: s.prediction_time)
        known = {s.visit_id: s.outcome_time or datetime.max for s in train}
        asked = {s.sample_id: s.prediction_time for s in records.splits.test}
        system = build(records)
        shown = [
            known[stay["stay"]] <= asked[case.sample_id]
            for case, episode in zip(system.cases.test, play(system, "scripted"), strict=True)
            for stay in system.report.row(episode, case, system.variants["scripted"])["experience"]["ranked"]
        ]
        late[earlier] = shown.count(False)
        assert shown.count(True) > 100
    assert late["true"] == 0 < late["false"]


def test_a_source_without_summaries_has_plain_records(cache: Path) -> None:
    records = records_of(cache, "task=read", f"data.root={records_of(cache).root}", "data=mimic4")
    system = build(records)
    assert corpus_of(system).notes.text(records.splits.train[0].visit_id).startswith(PLAIN)
    assert all(e.failure is None for e in play(system, "scripted"))


def test_the_record_is_cut_to_its_reader(cache: Path) -> None:
    system = build(records_of(cache, "task=los", "env.history_tokens=20"))
    assert all(len(case.text.split()) <= 20 for case in system.cases.test)
    longer = system.read_by(Reader(count=lambda text: len(text.split()) // 4))
    assert any(len(case.text.split()) > 20 for case in longer.cases.test) and longer.corpus is system.corpus
    assert system.training.texts()[0].count("similar patient") == 15


def test_what_actors_of_ray_get_survives_pickling(cache: Path) -> None:
    system = build(records_of(cache, "task=read"))
    before = play(system, "scripted")
    sent = pickle.loads(pickle.dumps((system.episode, system.corpus, system.variants["scripted"])))
    episode, corpus, variant = sent
    jobs = [EpisodeJob(case.sample_id, 0, partial(episode, case, variant)) for case in system.cases.test]
    after = rollout(jobs, {"top": system.fixed["rule"]()}, corpus, seed=0, in_flight=8, steady=True)
    assert [e.trace for e in after] == [e.trace for e in before]


def sample(number: int, codes: str, *, subject: int, label: int = 0, before: str = "", day: int = 1) -> Sample:
    visits = [Visit(number + 100, WHEN, tuple(before))] if before else []
    visits.append(Visit(number, WHEN, tuple(codes), (), tuple(codes.lower())))
    return Sample(f"s{number}", subject, number, datetime(2100, 1, day), tuple(visits), label)


def test_stays_are_ranked_by_what_their_samples_show() -> None:
    """The whole history takes part, on both sides: Eq. 7 with the codes that a sample has, and with no others."""
    pool = [sample(1, "AB", subject=1), sample(2, "A", subject=2, before="C"), sample(3, "X", subject=3)]
    asking = sample(9, "A", subject=9, before="C")
    query = Asking({"s9": asking}, False)["s9"]
    assert query.codes == (("C", "A"), ("a",), ()) and query.before is None
    index = index_samples(pool)
    rows, scores = rank(index, query, THIRDS, 5)
    assert index.visit_id[rows].tolist() == [2, 1]
    assert scores.tolist() == pytest.approx([(1 + 1) / 3, (1 / 3 + 1 / 2) / 3])
    own = Asking({"s2": pool[1]}, False)["s2"]
    assert 2 not in index.visit_id[rank(index, own, THIRDS, 5)[0]]


def test_among_equally_similar_stays_the_later_comes_first() -> None:
    pool = [sample(1, "A", subject=1, day=1), sample(2, "A", subject=2, day=9)]
    index = index_samples(pool)
    rows, _ = rank(index, Asking({"s9": sample(9, "A", subject=9)}, False)["s9"], THIRDS, 5)
    assert index.visit_id[rows].tolist() == [2, 1]


def test_a_stay_counts_once_and_only_with_a_report(cache: Path) -> None:
    cohort = records_of(cache).cohort
    reports = stay_reports(cohort)
    stay = int(reports.visit_id[0])
    early, late = sample(stay, "A", subject=1, day=1), sample(stay, "AB", subject=1, label=2, day=3)
    assert experience([late, early, sample(-1, "A", subject=2)], reports) == [late]


CASE = Case("s9", 9, 9, "now: gout", (), TASK, 1)
STAYS = ((71, 2, 0.5), (72, 0, 0.3), (73, 0, 0.2))  # stay, its outcome, its similarity
RANKED = Evidence(tuple(Passage("gout", "report", outcome, score, stay) for stay, outcome, score in STAYS))
PIECES = (Passage("course: Walked home.", "excerpt", 72, 1.0, 0), Passage("course: Slept.", "excerpt", 71, 0.5, 1))
FOUND = Evidence(PIECES)


def test_every_outcome_is_shown_and_pieces_as_far_as_they_fit() -> None:
    assert outcomes_text(RANKED, FOUND, TASK.labels, 4).splitlines() == [
        "similar stay 1, outcome: high", "similar stay 2, outcome: low", "- course: Walked home.",
        "similar stay 3, outcome: low",
    ]  # fmt: skip
    assert outcomes_text(Evidence(), Evidence(), TASK.labels, 4) == "(none)"


def test_full_prompts_call_a_stay_a_stay() -> None:
    """Of 15 "similar patients" of a patient of the MIMIC-IV demo five were patients: 10007795 was five of them."""
    for prompts, noun in (("full", "stay"), ("compact", "patient")):
        episode = LabelEpisodes(ExpragSpec(prompts, 3, 4, 50)).episode(CASE)
        next(episode)
        episode.send(RANKED)
        act = episode.send(FOUND)
        assert act.prompt.count(f"similar {noun} ") == 3
        assert ("Several may be stays of one patient" in act.prompt) == (prompts == "full")


@pytest.mark.parametrize("usual, ranked, answer", [
    ((1, 1, 1), RANKED, "low"),  # 0.3 + 0.2 is as much as 0.5: training has them equally often, so the first
    ((1, 1, 2), RANKED, "high"),
    ((1, 1, 2), Evidence(RANKED.passages[1:]), "low"),
    ((0, 4, 2), Evidence(), "mid"),
])  # fmt: skip
def test_the_rule_follows_most_of_the_weight(usual: tuple[int, ...], ranked: Evidence, answer: str) -> None:
    act = Act("top", "predict", "", facts={"case": CASE, "ranked": ranked, "evidence": Evidence()})
    assert MajorityOfOutcomes(usual)(act) == f"answer: {answer}"
    assert sum(outcome_shares(ranked, 3)) == pytest.approx(float(bool(ranked.passages)))


@pytest.mark.parametrize("prompts", ["compact", "full"])
def test_the_label_is_no_part_of_a_prompt(prompts: str) -> None:
    """Two cases that differ in the truth alone look the same; a reply is read as GHAR's is."""
    asked = []
    for label in (0, 1):
        case = Case("s9", 9, 9, "now: gout", (), TASK, label)
        playing = LabelEpisodes(ExpragSpec(prompts, 3, 4, 50)).episode(case)  # type: ignore[arg-type]
        next(playing)
        playing.send(RANKED)
        asked.append(playing.send(FOUND))
    assert asked[0].prompt == asked[1].prompt and "outcome: high" in asked[0].prompt and "now: gout" in asked[0].prompt
    assert asked[0].parse("answer: mid").value == 1 and asked[0].parse("maybe").error == "no_label"


@pytest.mark.parametrize("template", ["label", "exam"])
def test_without_experience_no_prompt_speaks_of_it(template: str) -> None:
    case = Case("s9", 9, 9, "now: gout", (), TASK, 0)
    act = next(LabelEpisodes(ExpragSpec("full", 0, 4, 50), template).episode(case))
    assert "now: gout" in act.prompt and "answer: <one of" in act.prompt
    assert not any(word in act.prompt for word in ("(none)", "similar", "xperience", "ther questions"))


def test_the_views_play_it(cache: Path) -> None:
    pytest.importorskip("gymnasium", reason="the views need the extra ray (gymnasium, pettingzoo)")
    from ghar import envs
    from ghar.envs.stepper import Scene
    from ghar.envs.views.games import TextGame
    from ghar.envs.views.gym_view import GymView

    system = build(records_of(cache, "task=read"))
    play_one = system.variants["exprag"].spec.episode
    scene = Scene("EXPRAG", system.agents, system.roles, system.cases.test, play_one, system.corpus, system.reward)
    envs.check(GymView(TextGame(scene)))
