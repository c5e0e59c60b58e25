"""GraphWalker and every baseline as one system, on the demo world and on real tables, with rules and a tiny model."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import pytest

from ghar.config import Config
from ghar.envs.graphwalker.corpus import Examples, ExamplesCorpus, SelectExamples, choose, prepare
from ghar.envs.graphwalker.encoders.train import EncoderTraining
from ghar.envs.graphwalker.episode import SelectorSpec
from ghar.envs.graphwalker.pool import EncodedCases, cut_to
from ghar.envs.graphwalker.react import ROLES, Looks
from ghar.envs.graphwalker.report import sections
from ghar.envs.graphwalker.rule import shares
from ghar.envs.graphwalker.selectors.protocol import ExamplePool, Name, Selection, SelectionQuery
from ghar.envs.graphwalker.series import series_material
from ghar.envs.graphwalker.settings import Settings
from ghar.envs.graphwalker.system import assemble, build, examples
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import WORDS, Reader, System, words
from ghar.episode import Act, Episode, Reply
from ghar.errors import BadInput
from ghar.launch.entry import check, load
from ghar.llm.engines import served
from ghar.llm.models import load_backbone
from ghar.llm.policy import EnginePolicy, FunctionPolicy
from ghar.metrics.runfolder import RunFolder
from tests.envs.graphwalker.selectors.walks import HashScorer

pytestmark = pytest.mark.slow

NAMES = get_args(Name)
FEW = "test samples with too few outcomes known before"
QUICK = EncoderTraining(hidden=8, epochs=1, pretrain=1, batch=64, lr=1e-3, patience=1)
TINY = ("model.hidden=16", "model.layers=1", "model.vocab=1100", "threads=1", "eval.bootstrap=20")
SMALL = (
    *TINY, "system=graphwalker", "system.k=2", "system.k_g=3", "task.max_test=4",
    "task.max_valid=4", "data.patients=120",
)  # fmt: skip
SOURCES = {"demo": ("task=series_los",), "mimic3": ("task=series_mortality", "data=mimic3")}
VISITS = ("los", "read", "dec", "kare_mortality", "guo_los", "new_acutemi", "lab_anemia", "los_24h", "mortality_24h")


@pytest.fixture(scope="module", params=list(SOURCES))
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Overrides that read the demo world, or the open demo of MIMIC-III."""
    own = (*SMALL, *SOURCES[request.param], f"data.cache={tmp_path_factory.mktemp(request.param)}")
    if request.param == "demo":
        return own
    return (*own, f"data.root={request.getfixturevalue('shared_data') / 'mimic-iii-demo-1.4'}")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def own(config: Config) -> Settings:
    assert isinstance(config.system, Settings)
    return config.system


def reader_of(tokenizer: Any, network: Any, engine: Any) -> Reader:
    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    return Reader(count, network.config.max_position_embeddings, engine, tokenizer)


@pytest.fixture(scope="module")
def read(source: tuple[str, ...]) -> Iterator[tuple[Config, System[Looks], EnginePolicy]]:
    """The system as a tiny model reads it, and that model."""
    config = load(source)
    material: EncodedCases[Any] = series_material(Records(config), own(config), QUICK)
    network, tokenizer = load_backbone(config, material.texts)
    with served(config, network, tokenizer) as engine:
        yield config, assemble(material, config, reader_of(tokenizer, network, engine)), EnginePolicy(engine, 0)


def played(config: Config, system: System[Looks], name: str, policy: Any) -> list[Episode]:
    stage = stage_of(system, system.variant(name), config)
    return play(stage, system.cases.test, policy, seed=0, title=name)


@pytest.mark.parametrize("name", NAMES)
def test_every_selector_is_a_variant_and_chooses_within_the_rules(
    read: tuple[Config, System[Looks], EnginePolicy], name: Name
) -> None:
    """The corpus checks the rules; here: what is chosen stands before the patient, and rows tell of it."""
    config, system, policy = read
    variant = system.variant(name)
    for case, episode in zip(system.cases.test, played(config, system, name, policy), strict=True):
        assert episode.failure is None
        row = system.report.row(episode, case, variant)
        [act] = [record.effect for record in episode.trace if isinstance(record.effect, Act)]
        assert len(row["shots"]) <= 2 and row["retrieved"] == bool(row["shots"])
        assert act.prompt.count("Example:\n") == len(row["shots"]) and act.prompt.endswith(f"{case.text}\nAnswer:")
        assert act.choices == system.task.labels and episode.turns[-1].completion.token_ids
        if name not in ("zero_shot", "graphwalker", "lms3"):
            assert len(row["shots"]) == 2
        if name in ("graphwalker", "cone"):
            assert row["scored"] > 0 < row["cost"]["prompts"] and row["cost"]["tokens"] < row["cost"]["scratch"]


def test_prompts_are_the_pieces_that_selectors_score(read: tuple[Config, System[Looks], EnginePolicy]) -> None:
    config, system, policy = read
    corpus = system.corpus
    assert isinstance(corpus, ExamplesCorpus)
    walkers = corpus.walkers
    for episode in played(config, system, "semantic_emb", policy):
        found, [act] = episode.trace[0].result, [r.effect for r in episode.trace if isinstance(r.effect, Act)]
        assert isinstance(found, Examples)
        pool = walkers.candidates
        pieces = [walkers.prompt.head, *(pool[row].example for row in found.selection.shots)]
        ids = [i for piece in (*pieces, walkers.patients[episode.sample_id].asked) for i in piece]
        tokenizer = walkers.prompt.tokenizer
        assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode(act.prompt, add_special_tokens=False))


def test_a_choice_does_not_depend_on_how_many_are_chosen_for(cache: Path) -> None:
    config = load([*SMALL, "task=series_mortality", "system.encoder=text", f"data.cache={cache}"])
    walkers = cut_to(series_material(Records(config), own(config)), WORDS)
    ids = [patient.sample_id for patient in walkers.by_split["train"][:6]]
    for name in NAMES:
        asked = [SelectExamples("", sample_id=one, selector=name) for one in ids]
        together = ExamplesCorpus(walkers, None, 9, HashScorer()).retrieve(asked)
        corpus = ExamplesCorpus(walkers, None, 1, HashScorer())
        assert [corpus.retrieve([one])[0] for one in asked] == together, name


def test_a_selection_is_made_once_for_the_same_weights(read: tuple[Config, System[Looks], EnginePolicy]) -> None:
    _, system, policy = read
    corpus, case, engine = system.corpus, system.cases.test[0], policy.engine
    asked = [SelectExamples("", sample_id=case.sample_id, selector="cone")]
    first = corpus.retrieve(asked)[0]
    assert corpus.retrieve(asked)[0] is first
    engine.version += 1
    assert corpus.retrieve(asked)[0] is not first


def test_examples_are_chosen_for_those_who_are_played_alone(
    read: tuple[Config, System[Looks], EnginePolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, though one episode is in flight; of the same split no one else is scored, and nothing is prepared
    again for others who are played later."""
    config, system, policy = read
    chosen: list[list[str]] = []
    prepared: list[str] = []

    def watched(pool: ExamplePool, shared: Any, queries: list[SelectionQuery], *rest: Any) -> list[Selection]:
        chosen.append([query.patient.sample_id for query in queries])
        return choose(pool, shared, queries, *rest)

    def watched_preparation(pool: ExamplePool, scorer: Any) -> Any:
        prepared.append(pool.selector.name)
        return prepare(pool, scorer)

    monkeypatch.setattr("ghar.envs.graphwalker.corpus.choose", watched)
    monkeypatch.setattr("ghar.envs.graphwalker.corpus.prepare", watched_preparation)
    policy.engine.version += 1  # nothing is kept of other weights
    stage = stage_of(system, system.variants["spell"], replace(config, env=replace(config.env, in_flight=1)))
    parts = system.cases.test[:2], system.cases.test[1:3]
    assert len(system.cases.test) > 3
    costs = {}
    for cases in parts:
        for episode in play(stage, cases, policy, seed=0, title=""):
            found = episode.trace[0].result
            assert isinstance(found, Examples)
            costs[episode.sample_id] = found.cost
    first, second, third = (case.sample_id for case in system.cases.test[:3])
    assert chosen == [[first, second], [third]] and prepared == ["spell"]
    assert costs[first] == costs[third] and costs[first].prompts > 0


def test_who_needs_a_model_says_so_before_anything_is_played(cache: Path) -> None:
    config = load([*SMALL, "task=read", f"data.cache={cache}"])
    system = build(Records(config), own(config))
    rule = system.fixed["majority"]()
    for name in ("graphwalker", "ids", "lms3"):
        with pytest.raises(BadInput, match=f"{name} needs .* of a language model"):
            played(config, system, name, rule)
    episode, corpus = pickle.loads(pickle.dumps((system.episode, system.corpus)))
    stage = stage_of(system, system.variant("scripted_ehr_emb"), config)
    again = play(stage, system.cases.test, rule, seed=0, title="", corpus=corpus)
    assert [e.prediction for e in again] == [e.prediction for e in played(config, system, "scripted_ehr_emb", rule)]
    assert episode is not None


@pytest.mark.parametrize("task", VISITS)
def test_rules_play_any_task_of_visits(task: str, cache: Path) -> None:
    config = load([*SMALL, f"task={task}", f"data.cache={cache}", "data.patients=200"])
    records = Records(config)
    system = build(records, own(config))
    assert [case.sample_id for case in system.cases.test] == [sample.sample_id for sample in records.splits.test]
    assert "time_series" not in system.variants and set(system.listed) <= set(system.variants)
    labels, rule = system.task.labels, system.fixed["majority"]()
    usual = [sample.label for sample in records.splits.train]
    for name in (name for name, variant in system.variants.items() if variant.who == "majority"):
        for case, episode in zip(system.cases.test, played(config, system, name, rule), strict=True):
            row = system.report.row(episode, case, system.variants[name])
            found = row["label_probabilities"]
            assert sum(found) == pytest.approx(1) and max(found) <= 1
            assert episode.prediction.label == found.index(max(found)) < len(labels)
            if name == "scripted_zero_shot":
                assert episode.prediction.label is not None
                assert usual.count(episode.prediction.label) == max(map(usual.count, set(usual)))


def test_by_switch_an_example_is_of_a_patient_whose_outcome_was_known(cache: Path) -> None:
    """The first patients have too few before them: they are shown none, and the report says how many they are."""
    late, few = {}, {}
    for earlier, k in (("false", 2), ("true", 2), ("true", 20)):  # of 27 patients in the pool
        more = (f"data.cache={cache}", f"data.earlier={earlier}", "task.max_test=40", f"system.k={k}")
        config = load([*SMALL, "task=read", *more])
        records = Records(config)
        known = {s.sample_id: s.outcome_time or datetime.max for s in records.splits.train}
        patient = {s.sample_id: s.subject_id for s in records.splits.train}
        asked = {s.sample_id: s.prediction_time for s in records.splits.test}
        system = build(records, own(config))
        variant, without, shown = system.variants["scripted_alike"], 0, []
        rule = system.fixed[variant.who]()
        for case, episode in zip(system.cases.test, played(config, system, variant.name, rule), strict=True):
            shots = system.report.row(episode, case, variant)["shots"]
            assert len(shots) in (0, k) and episode.prediction.label is not None
            shown += [known[shot["sample_id"]] <= asked[case.sample_id] for shot in shots]
            before = {patient[name] for name, at in known.items() if at <= asked[case.sample_id]}
            without += not shots
            assert shots or len(before) < k + 5  # some of these may be its own or a copy of it
        late[earlier], few[earlier, k] = shown.count(False), without
        assert shown.count(True) > 10 and without == system.report.counts.get(FEW, 0)
        assert (FEW in system.report.counts) == (earlier == "true")
    assert late["true"] == 0 < late["false"] and few["false", 2] == 0 < few["true", 20]
    early = [*SMALL, "task=read", f"data.cache={cache}", "data.earlier=true", "task.max_test=1", "system.k=60"]
    with pytest.raises(BadInput, match=r"training patients may be shown to sample .* data\.earlier later outcomes"):
        build(Records(load(early)), own(load(early)))


def test_records_too_long_for_the_context_lose_their_oldest_visits(cache: Path) -> None:
    config = load([*SMALL, "task=read", f"data.cache={cache}", "env.history_tokens=400"])
    system = build(Records(config), own(config))
    short = system.read_by(Reader(context=130))
    pairs = list(zip(system.cases.train, short.cases.train, strict=True))
    assert all(len(b.text) <= len(a.text) for a, b in pairs) and any(a.text != b.text for a, b in pairs)
    assert all(len(b.text.split()) <= 130 / 3 for _, b in pairs)
    with pytest.raises(BadInput, match=r"lower system\.k or use a model with a longer context"):
        system.read_by(Reader(context=50))


def test_examples_weigh_by_gain_else_by_place() -> None:
    from ghar.envs.graphwalker.corpus import Demonstration
    from ghar.episode import Passage

    def found(*scored: tuple[int, float]) -> Examples:
        passages = tuple(Passage("", "example", -1, gain, row) for row, (_, gain) in enumerate(scored))
        return Examples(passages, tuple(Demonstration("", "", label, gain, "") for label, gain in scored))

    assert shares(found((1, 0.1), (0, 0.3), (0, -1.0)), 2, 0) == pytest.approx((0.75, 0.25))
    assert shares(found((1, 0.0), (0, 0.0), (0, 0.0)), 2, 0) == pytest.approx((5 / 11, 6 / 11))
    assert shares(Examples(), 3, 2) == (0.0, 0.0, 1.0)


def test_numbers_and_the_report_s_part(read: tuple[Config, System[Looks], EnginePolicy], tmp_path: Path) -> None:
    config, system, policy = read
    variant = system.variant("graphwalker")
    rows = []
    for case, episode in zip(system.cases.test, played(config, system, "graphwalker", policy), strict=True):
        label, said = system.in_words(case, case.label), system.in_words(case, episode.prediction.label)
        about = {"sample_id": case.sample_id, "subject_id": case.subject_id, "label": label, "prediction": said}
        about |= {"label_probabilities": [1 / len(system.task.labels)] * len(system.task.labels)}
        rows.append(json.loads(json.dumps(about | system.report.row(episode, case, variant))))
    found = system.report.summary({"graphwalker": rows})["selection"]
    names = {"ma_roc", "mi_roc"} if len(system.task.labels) > 2 else {"auroc", "auprc", "f1", "best_f1"}
    assert set(found["clinical"]) <= names and len(found["rows"]) == len(system.cases.test)
    assert found["cost"]["tokens a patient"] < found["cost"]["tokens a patient, each prompt from scratch"]
    assert "<svg" in found["walk"]["svg"] and found["walk"]["sample_id"] in {row["sample_id"] for row in rows}
    audit = system.report.summary({"graphwalker": rows})["audit"]
    assert set(audit["modes"]) == {"paper", "strict"} and audit["modes"]["strict"]["late"] == 0
    [part] = sections(RunFolder.open(tmp_path), {"selection": found})
    assert found["rows"][0]["sample_id"] in part.html and "<svg" in part.html


def test_react_and_self_rating_need_no_logprobs_of_prompts(cache: Path) -> None:
    more = ("system.utility=self_rated", "system.inference=react", "system.encoder=text", "system.k_a=1")
    config = load(
        [*SMALL, "task=series_mortality", *more, f"data.cache={cache}", "task.max_test=2", "task.max_valid=1"]
    )
    material = series_material(Records(config), own(config))
    network, tokenizer = load_backbone(config, material.texts)
    with served(config, network, tokenizer) as engine:
        system = assemble(material, config, reader_of(tokenizer, network, engine))
        assert system.roles == ROLES
        for case, episode in zip(
            system.cases.test, played(config, system, "graphwalker", EnginePolicy(engine, 0)), strict=True
        ):
            cost = system.report.row(episode, case, system.variant("graphwalker"))["cost"]
            assert cost["prompts"] == 0 < cost["replies"] and episode.turns[-1].role == "predict"
        rule = played(config, system, "scripted_semantic_emb", system.fixed["majority"]())
        assert all(e.prediction.label is not None and e.prediction.history == () for e in rule)


def test_a_comparison_comes_before_the_answer_where_there_are_examples(cache: Path) -> None:
    config = load([*config_of(cache), "system.inference=compare"])
    system = build(Records(config), own(config))
    assert system.roles == ("compare", "predict")
    alike = played(config, system, "scripted_alike", system.fixed["rarest_shared"]())
    plain = load(config_of(cache))
    direct = build(Records(plain), own(plain))
    same = played(config, direct, "scripted_alike", direct.fixed["rarest_shared"]())
    assert [e.prediction.label for e in alike] == [e.prediction.label for e in same], "the rule answers as it did"
    told = 0
    for case, episode in zip(system.cases.test, alike, strict=True):
        ask, answer = [turn.effect.prompt for turn in episode.trace if isinstance(turn.effect, Act)]
        [said, _] = [turn.result.text for turn in episode.trace if isinstance(turn.result, Reply)]
        examples = ask.split("Example:\n")[1:]
        assert ask.endswith("\nShared:") and answer.endswith(f" {said}\nAnswer:")
        for part in said.split("; ") if said != "nothing" else ():
            item, _, outcome = part.rpartition(" ")
            assert item in case.text and any(item in one and f"Answer: {outcome}" in one for one in examples)
            told += 1
    assert told >= 10
    [alone] = {len(e.turns) for e in played(config, system, "scripted_zero_shot", system.fixed["majority"]())}
    assert alone == 1, "nothing to compare with"


@pytest.mark.parametrize("ways", [("compare",), ("react",), ("react", "probability"), ("direct", "probability")])
def test_whatever_an_episode_asks_stays_within_the_context(cache: Path, ways: tuple[str, ...]) -> None:
    """In a context one word too short for the longest prompt and its reply, with replies as long as they may be."""
    series = [*SMALL, "task=series_mortality", "system.encoder=text", f"data.cache={cache}", "task.max_test=20"]
    series += ["system.step_hours=2"]  # longer records
    more = [f"system.inference={ways[0]}", *(f"system.reply={way}" for way in ways[1:])]
    config = load([*(config_of(cache) if ways == ("compare",) else series), *more])
    system = build(Records(config), own(config))
    longest = max(words_asked(config, system))
    assert max(words_asked(config, system.read_by(Reader(context=longest - 1)))) < longest


def words_asked(config: Config, system: System[Looks]) -> Iterator[int]:
    """Words of each prompt and of the longest reply to it."""
    def talk(act: Act) -> str:
        choices = [choice for choice in act.choices if choice != "answer"]
        return choices[-1] if choices else " ".join(["0.5", *["word"] * (act.max_tokens - 1)])

    for episode in played(config, system, "semantic_emb", FunctionPolicy(talk)):
        for act in (record.effect for record in episode.trace if isinstance(record.effect, Act)):
            yield words(act.prompt) + (max(map(words, act.choices)) if act.choices else act.max_tokens)


def config_of(cache: Path) -> list[str]:
    return ["system=graphwalker", "data=demo_cases", "task=labels", "data.patients=400", "system.k_g=4",
            "task.max_test=20", f"data.cache={cache}"]  # fmt: skip


def test_a_sweep_over_shots_neighbours_cohorts_and_anchors_is_one_command_line() -> None:
    sweep = ["system=graphwalker", "task=series_mortality", "data=mimic3", "data.root=tables", "system.k=1,2,3,4"]
    found = check([*sweep, "system.k_g=4,8", "system.k_c=1,3", "system.k_a=1,3"], sweep=True)
    kept = [own(config) for config in found]
    assert len({(s.k, s.k_g, s.k_c, s.k_a) for s in kept}) == 32


def test_the_encoders_prediction_is_printed_where_it_is_asked_for(source: tuple[str, ...]) -> None:
    config = load([*source, "system.variant=show_encoder"])
    system = assemble(series_material(Records(config), own(config), QUICK), config, WORDS)
    for case in (*system.cases.train, *system.cases.test):
        assert case.text.splitlines()[-1].startswith("estimate of a trained model: ")


def test_the_encoder_alone_answers_with_its_own_probabilities(
    read: tuple[Config, System[Looks], EnginePolicy]
) -> None:
    config, system, _ = read
    for episode in played(config, system, "encoder", None):
        shares = episode.prediction.probabilities
        assert shares is not None and not episode.turns and sum(shares) == pytest.approx(1, abs=1e-4)
        assert episode.prediction.label == shares.index(max(shares))


def test_time_series_want_no_words_about_encoders_of_visits() -> None:
    for wrong in ("system.encoder=smart", "system.inference=react", "system.variant=show_encoder"):
        with pytest.raises(BadInput, match="has no time series"):
            load(["system=graphwalker", "task=read", wrong])


def test_examples_for_other_systems_are_texts_by_sample(cache: Path) -> None:
    config = load([*SMALL, "task=read", f"data.cache={cache}"])
    system = build(Records(config), own(config))
    found = examples(system, "semantic_emb", ("test",))
    assert set(found) == {case.sample_id for case in system.cases.test}
    evidence = system.corpus.retrieve(
        [SelectExamples("", sample_id=case.sample_id, selector="semantic_emb") for case in system.cases.test]
    )
    for case, one in zip(system.cases.test, evidence, strict=True):
        assert isinstance(one, Examples)
        first = one.demonstrations[0]
        outcome = system.task.labels[first.label]
        assert found[case.sample_id].startswith(f"Earlier patient:\n{first.text}\nOutcome: {outcome}")
    assert set(examples(system, "zero_shot", ("test",)).values()) == {""}
    assert SelectorSpec("zero_shot") == system.variant("zero_shot").spec
    with pytest.raises(BadInput, match="has no variant time_series"):
        examples(system, "time_series")
