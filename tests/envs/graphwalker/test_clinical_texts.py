"""GraphWalker on clinical texts: what its prompts show, where references may not be, and what selectors measure."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ghar.config import Config
from ghar.envs.case import Case
from ghar.envs.graphwalker.corpus import NEEDS, Examples, ExamplesCorpus, SelectExamples
from ghar.envs.graphwalker.pool import SelectionPool
from ghar.envs.graphwalker.selectors.prompt import END
from ghar.envs.graphwalker.selectors.protocol import Entropy, InfluenceGradients, Labels, Name
from ghar.envs.graphwalker.selectors.scorer import EngineScorer
from ghar.envs.graphwalker.system import examples as examples_for_others
from ghar.envs.graphwalker.visits import WITHOUT_SERIES
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.summaries import written
from ghar.envs.system import WORDS, Reader, System, build, variant_names
from ghar.episode import Act, Episode
from ghar.errors import BadInput
from ghar.launch.entry import check, load
from ghar.llm.engines import served
from ghar.llm.models import load_backbone
from ghar.llm.policy import FunctionPolicy
from tests.envs.graphwalker.selectors.walks import HashScorer
from tests.envs.kare.test_summary import rewrite
from tests.envs.refusals import assert_refused
from tests.envs.test_summaries import SHORT, write_texts

OWN = (
    "system=graphwalker", "task=summary", "data=summary", "threads=1", "system.k=2", "system.k_g=3",
    "model.hidden=16", "model.layers=1", "model.vocab=600", "env.history_tokens=120", "task.max_train=16",
)  # fmt: skip
FREE: tuple[Name, ...] = ("random_choice", "semantic_emb", "ehr_emb", "rare_items")  # ask nothing of a model
COPIES = ("scripted_random_choice", "scripted_semantic_emb", "scripted_rare_items")


def config_of(folder: Path, *overrides: str) -> Config:
    root = folder / "bhc.csv"
    if not root.exists():
        write_texts(root)
        rewrite(root, lambda row: True)  # each summary names its text
    return load([*OWN, f"data.root={root}", f"data.cache={folder / 'cache'}", *overrides])


def played(system: System[Any], config: Config, name: str, cases: Sequence[Case[Any]], reply: str) -> list[Episode]:
    policy = FunctionPolicy(lambda act: reply)
    return play(stage_of(system, system.variant(name), config), cases, policy, seed=0, title="")


def prompts_of(system: System[Any], config: Config, name: str, cases: Sequence[Case[Any]]) -> list[str]:
    """The prompt about each case."""
    trace = [record for episode in played(system, config, name, cases, "A text.") for record in episode.trace]
    return [record.effect.prompt for record in trace if isinstance(record.effect, Act)]


def pool_of(system: System[Any]) -> SelectionPool:
    assert isinstance(system.corpus, ExamplesCorpus)
    return system.corpus.walkers


def chosen(system: System[Any], name: Name, cases: Sequence[Case[Any]], scorer: Any = None) -> list[Examples]:
    """What a selector shows each case."""
    corpus = system.corpus
    assert isinstance(corpus, ExamplesCorpus)
    corpus = ExamplesCorpus(corpus.walkers, corpus.engine, 4, scorer)
    evidence = corpus.retrieve([SelectExamples("", sample_id=case.sample_id, selector=name) for case in cases])
    return [one for one in evidence if isinstance(one, Examples)]


def scored_text(system: System[Any], row: int) -> str:
    """An example of the pool, from the ids that a model scores."""
    pool = pool_of(system)
    return pool.prompt.tokenizer.decode(pool.candidates[row].example)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return config_of(tmp_path)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


@pytest.fixture(scope="module")
def reader(texts: Path) -> Iterator[Reader]:
    """A tiny model that nothing was taught."""
    config = config_of(texts)
    network, tokenizer = load_backbone(config, build(Records(config)).training.texts)

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    with served(config, network, tokenizer) as engine:
        yield Reader(count, 600, engine, tokenizer)


@pytest.fixture(scope="module")
def scored(texts: Path, reader: Reader) -> System[Any]:
    """The system as that model reads it."""
    return build(Records(config_of(texts))).read_by(reader)


def test_a_prompt_shows_other_texts_with_their_summaries(config: Config) -> None:
    system = build(Records(config))
    train = {case.sample_id: case for case in system.cases.train}
    [episode] = played(system, config, "semantic_emb", system.cases.test[:1], "Two\nlines.")
    [act] = [record.effect for record in episode.trace if isinstance(record.effect, Act)]
    case, found = system.cases.test[0], episode.trace[0].result
    assert isinstance(found, Examples) and act.role == "predict" and not act.choices and act.max_tokens == 64
    shown = [train[one.sample_id] for one in found.demonstrations]
    assert act.prompt == (
        "Clinical texts, each with its summary by a clinician. Summarise the text as a clinician would. Use only what "
        "the last text says, and reply with its summary alone.\n\n"
        + "".join(f"Example:\n{one.reads.source}\nAnswer: {one.reads.summary}\n\n" for one in shown)
        + f"Patient:\n{case.reads.source}\nAnswer:"
    )
    assert len(shown) == 2 and case.reads.summary not in act.prompt
    assert episode.prediction.label == 0 and written(episode) == "Two\nlines."
    [alone] = prompts_of(system, config, "zero_shot", [case])
    assert "Example:" not in alone and alone.endswith(f"Patient:\n{case.reads.source}\nAnswer:")


def test_no_prompt_shows_a_summary_of_the_own_patient(config: Config) -> None:
    """The file has two notes a patient; a training text sees neither its own summary nor the other one's."""
    system = build(Records(config))
    for name in FREE:
        for case, prompt in zip(system.cases.train, prompts_of(system, config, name, system.cases.train), strict=True):
            patient = [one for one in system.cases.train if one.subject_id == case.subject_id]
            assert prompt.count("Answer: Other ") == 2
            assert not any(one.reads.summary in prompt or one.reads.source in prompt.split("Patient:")[0]
                           for one in patient)  # fmt: skip


@pytest.mark.parametrize("context, tokens", [(None, 9), (200, 120)])
def test_other_summaries_of_validation_and_test_texts_change_no_prompt(
    context: int | None, tokens: int, tmp_path: Path, reader: Reader
) -> None:
    """Also far longer ones, which would leave less room for their texts."""
    config = config_of(tmp_path, f"env.history_tokens={tokens}")
    read = WORDS if context is None else replace(reader, context=context)

    def prompts(system: System[Any]) -> list[list[str]]:
        parts = system.cases.valid, system.cases.test
        return [prompts_of(system, config, name, part) for name in (*FREE, "zero_shot") for part in parts]

    one = build(Records(config)).read_by(read)
    before, root = prompts(one), tmp_path / "bhc.csv"
    hidden = [case.sample_id.partition(":")[2] for case in (*one.cases.valid, *one.cases.test)]
    assert any(pool_of(one).patients[case.sample_id].dropped for case in one.cases.test)
    for name in hidden:
        root.write_text(root.read_text().replace(f"Other {name}.", f"{'Much longer ' * 9}{name}."))
    two = build(Records(config)).read_by(read)
    assert all("Much longer" in case.reads.summary for case in (*two.cases.valid, *two.cases.test))
    assert prompts(two) == before


def test_no_selector_reads_the_summary_of_who_is_asked_about(scored: System[Any], texts: Path, reader: Reader) -> None:
    """With a model: other summaries of the test texts change nothing that any selector chooses or measures."""
    before = {name: chosen(scored, name, scored.cases.test) for name in WITHOUT_SERIES}
    root = texts / "others"
    root.mkdir(exist_ok=True)
    (root / "bhc.csv").write_text((texts / "bhc.csv").read_text())
    names = {case.sample_id.partition(":")[2] for case in scored.cases.test}
    for name in names:
        (root / "bhc.csv").write_text((root / "bhc.csv").read_text().replace(f"Other {name}.", f"Changed {name}."))
    other = build(Records(config_of(root))).read_by(reader)
    assert all(case.reads.summary.startswith("Changed ") for case in other.cases.test)
    for name in WITHOUT_SERIES:
        again = chosen(other, name, other.cases.test)
        assert [e.demonstrations for e in again] == [e.demonstrations for e in before[name]], name
    query = pool_of(scored).query(scored.cases.test[0].sample_id)
    assert query.patient.asked and not (query.patient.answer or query.patient.example or query.patient.answer_ids)


@pytest.mark.parametrize("context", [200, 400, 1500])
@pytest.mark.parametrize("reply", [None, 30])
def test_examples_the_text_and_the_reply_fit_into_the_context(
    context: int, reply: int | None, tmp_path: Path, reader: Reader
) -> None:
    more = () if reply is None else (f"env.reply_tokens={{predict: {reply}}}",)
    config = config_of(tmp_path, *more)
    system = build(Records(config)).read_by(replace(reader, context=context))
    pool, tokens = pool_of(system), reply or 64
    prompt, patients = pool.prompt, list(pool.patients.values())
    pieces = 2 * max(len(one.example) for one in patients) + max(len(one.asked) for one in patients)
    assert len(prompt.head) + pieces + len(prompt.close) + tokens <= context
    assert max(len(one.asked) + len(one.answer_ids) for one in patients) <= prompt.room + tokens
    assert (max(one.dropped for one in patients) > 0) == (context == 200)
    [episode] = played(system, config, "semantic_emb", system.cases.test[:1], "A text.")
    [act] = [record.effect for record in episode.trace if isinstance(record.effect, Act)]
    assert act.max_tokens == tokens
    whole = reader.tokenizer.encode(act.prompt, add_special_tokens=False)
    assert len(whole) + tokens <= context


def test_a_long_text_and_its_summary_lose_their_last_words(tmp_path: Path) -> None:
    config = config_of(tmp_path, "env.history_tokens=8")
    system = build(Records(config))
    pool = pool_of(system)
    for case in (*system.cases.train, *system.cases.test):
        patient = pool.patients[case.sample_id]
        assert case.reads.source.startswith(case.text) and len(case.text.split()) <= 8 and patient.dropped > 0
        assert case.reads.summary.startswith(patient.answer) and len(patient.answer.split()) == 2, "a quarter of 8"
    with pytest.raises(BadInput, match=r"one word of the text and one of its summary need more than the 3 tokens"):
        build(Records(config_of(tmp_path, "env.history_tokens=3")))
    with pytest.raises(BadInput, match=r"lower system\.k or use a model with a longer context"):
        system.read_by(Reader(context=100))


def test_a_summary_ends_no_example_and_begins_none(tmp_path: Path) -> None:
    rows = ((i, f"Seen for gout {i}.", f"Gout.\nPatient: one {i}") for i in range(40))
    with (tmp_path / "bhc.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("note_id", "input", "target"), *rows])
    config = config_of(tmp_path)
    system = build(Records(config))
    assert system.cases.train[0].reads.summary.startswith("Gout.\nPatient: one ")
    [prompt] = prompts_of(system, config, "semantic_emb", system.cases.test[:1])
    assert prompt.count("\n> Patient: one ") == 2 and prompt.count("\nPatient:") == 1


@pytest.mark.parametrize("name", WITHOUT_SERIES)
def test_every_selector_plays_texts(name: Name, scored: System[Any]) -> None:
    for case, found in zip(scored.cases.test, chosen(scored, name, scored.cases.test), strict=True):
        shown = [one.sample_id for one in found.demonstrations]
        assert case.sample_id not in shown and len(set(shown)) == len(shown) <= 2
        if name not in ("zero_shot", "graphwalker", "lms3"):
            assert len(shown) == 2
        asked = found.cost.prompts + found.cost.replies
        assert (found.cost.tokens > 20 * asked) == (name in NEEDS), "of replies too"
        pieces = [scored_text(scored, row) for row in found.selection.shots]
        assert pieces == [passage.text + END for passage in found.passages], "prompts are what selectors score"
        assert all(one.answer.startswith("Other ") for one in found.demonstrations)


def test_measures_are_direct_computations(scored: System[Any]) -> None:
    """H(x | S) of the text; the mean log p of a token of the own summary, for sets that are judged and their slopes."""
    pool = pool_of(scored)
    engine = scored.corpus.engine  # type: ignore[attr-defined]
    scorer = EngineScorer(engine, pool.prompt, pool.candidates)
    text, judged = pool.by_split["test"][0], pool.by_split["valid"][0]
    sets = ((), (3,), (3, 5))
    [entropies, labels, slopes] = scorer.answer(
        [Entropy(text, sets), Labels(judged, sets), InfluenceGradients(judged, (3, 5), (3, 7))]
    )
    assert labels.shape == (3, 1)
    for i, shots in enumerate(sets):
        before = [*pool.prompt.head, *(token for row in shots for token in pool.candidates[row].example)]
        [own] = engine.score([(before, text.asked)])
        assert entropies[i] == pytest.approx(-np.mean(own), abs=1e-4)
        [answer] = engine.score([([*before, *judged.asked, *pool.prompt.close], judged.answer_ids)])
        assert labels[i, 0] == pytest.approx(np.mean(answer), abs=1e-4)
    pieces = [pool.prompt.head, *(pool.candidates[row].example for row in (3, 5)), judged.asked, pool.prompt.close]
    assert (scorer.read, scorer.read_tokens) == (1, sum(map(len, [*pieces, judged.answer_ids])))
    assert slopes[0] == pytest.approx(labels[2, 0], abs=1e-4) and slopes[1][0, 0] == pytest.approx(0, abs=1e-5)
    tokens = pool.prompt.tokenizer.decode(judged.answer_ids)
    assert tokens.strip() == judged.answer


def test_judged_summaries_are_those_of_validation_and_training_texts(scored: System[Any]) -> None:
    """Influence and GradSel judge on validation, Delta-KNN on training texts."""
    asked: dict[str, set[str]] = {}

    class Watched(HashScorer):
        def answer(self, asks: Sequence[Any]) -> list[Any]:
            for one in asks:
                if isinstance(one, Labels | InfluenceGradients):
                    asked.setdefault(type(one).__name__, set()).add(one.patient.sample_id)
            return super().answer(asks)

    parts = {name: {case.sample_id for case in getattr(scored.cases, name)} for name in ("train", "valid")}
    for name, part in (("influence", "valid"), ("delta_knn", "train"), ("gradsel", "valid")):
        asked.clear()
        chosen(scored, name, scored.cases.test, Watched())
        [judged] = asked.values()
        assert judged and judged <= parts[part], name


@pytest.mark.parametrize("name", COPIES)
def test_a_rule_copies_the_summary_of_the_best_example(name: str, config: Config, tmp_path: Path) -> None:
    config = config_of(tmp_path, "env.history_tokens=8")  # prompts cut it, the rule copies it whole
    system = build(Records(config))
    summaries = {case.sample_id: case.reads.summary for case in system.cases.train}
    variant, cases = system.variant(name), system.cases.test
    assert variant.title.startswith("copy of: ") and not system.asks_model(variant)
    for case, episode in zip(
        cases, play(stage_of(system, variant, config), cases, system.fixed["copy"](), seed=0, title=""), strict=True
    ):
        found = episode.trace[0].result
        assert isinstance(found, Examples)
        assert written(episode) == summaries[found.demonstrations[0].sample_id]
        row = system.report.row(episode, case, variant)
        assert row["summary"] == written(episode) and row["reference"] == case.reads.summary and "found" not in row
        assert len(row["shots"]) == 2 and "label_probabilities" not in row
        assert row["likeness"]["rouge_l"] < 1


def test_a_summary_earns_its_likeness_and_an_empty_reply_is_unreadable(config: Config) -> None:
    system = build(Records(config))
    case = system.cases.test[0]
    right, wrong, none = (
        played(system, config, "semantic_emb", [case], reply)[0] for reply in (case.reads.summary, "unrelated", " ")
    )
    assert [episode.prediction.label for episode in (right, wrong, none)] == [0, 0, None] and written(none) == ""
    rewards = [system.reward(episode, case) for episode in (right, wrong, none)]
    assert [reward.terms["orm"] for reward in rewards[:2]] == [3.0, 2.0]
    assert rewards[0].total > rewards[1].total > rewards[2].total
    assert not none.turns[-1].format_ok


@pytest.mark.parametrize("teacher, examples", [("scripted", True), ("org/large", False)])
def test_training_pairs_are_the_references(teacher: str, examples: bool, config: Config, tmp_path: Path) -> None:
    config = config_of(tmp_path, f"trainer.warmup.teacher={teacher}")
    system = build(Records(config))
    alone = system.training.stages["supervised"](WORDS)
    made = [(alone, "zero_shot")]
    assert (system.training.examples is not None) == examples
    if system.training.examples is not None:
        made.append((system.training.examples(WORDS), "semantic_emb"))
    for pairs, name in made:
        for part, cases in ((pairs.train, system.cases.train), (pairs.valid, system.cases.valid)):
            assert [one.reply for one in part] == [case.reads.summary for case in cases] and len(part) > 1
            assert [one.prompt for one in part] == prompts_of(system, config, name, cases), "what is played is trained"
            assert not any(one.choices for one in part)
    assert system.training.teacher == "copy" and system.training.teacher_variant == system.variant(COPIES[1])


@pytest.mark.parametrize("name", ["scripted_zero_shot", "scripted_alike", "scripted_ehr_emb"])
def test_rules_about_labels_are_refused_early_and_late(name: str, tmp_path: Path) -> None:
    refusal = f"Variant {name} of system=graphwalker .* choose scripted_semantic_emb, scripted_random_choice or"
    config = config_of(tmp_path, f"eval.variants=[{name}]")
    system = assert_refused(config, name, refusal)
    assert set(system.variants) | set(system.refused) == set(variant_names(config) or ())
    assert system.listed[:3] == ("lead", "nearest", "graphwalker") and set(system.listed) <= set(system.variants)
    assert system.origin.credentialed == system.cases.test[0].credentialed and not system.origin.generated


@pytest.mark.parametrize("extra, sentence", [
    (["system.inference=compare"], "task=summary ends with a text, which needs no comparison"),
    (["system.inference=react"], "task=summary ends with a text, which needs no comparison, no ReAct"),
    (["system.reply=probability"], "no probability: leave out system.inference and system.reply"),
    (["system.inference=compare", "system.reply=probability"], "task=summary ends with a text"),
    (["system.encoder=smart"], "has no time series"),
    (["data.earlier=true"], "task=summary has no dates"),
])  # fmt: skip
def test_settings_that_texts_have_no_sense_for(extra: list[str], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence) as refused:
        check([*OWN, "data.root=bhc.csv", *extra])
    assert "\n" not in str(refused.value).strip(), "one sentence for one fault"


def test_ratings_and_reasoning_ask_about_texts(tmp_path: Path) -> None:
    system = build(Records(config_of(tmp_path, "system.utility=self_rated")))
    prompts: list[str] = []

    class Watched(HashScorer):
        def answer(self, asks: Sequence[Any]) -> list[Any]:
            prompts.extend(text for one in asks for text in getattr(one, "prompts", ()))
            return super().answer(asks)

    case = system.cases.test[0]
    for name, ending in (("graphwalker", "from 0 to 10 and nothing else."), ("ids", "Think step by step.")):
        prompts.clear()
        [found] = chosen(system, name, [case], Watched())
        assert prompts and all(prompt.endswith(ending) and case.text in prompt for prompt in prompts)
        assert "Its summary: Other " in prompts[-1] and case.reads.summary not in "".join(prompts)
        assert not any(word in prompts[-1] for word in ("patient:", "Outcome", "It turned out", "measurements"))
        assert len(found.demonstrations) == 2 or name == "graphwalker"


def test_examples_for_other_systems_are_texts_with_summaries(config: Config) -> None:
    system = build(Records(config))
    found = examples_for_others(system, "semantic_emb", ("test",))
    for case in system.cases.test:
        assert found[case.sample_id].startswith("Another text:\nSeen for ")
        assert found[case.sample_id].count("\nIts summary: Other ") == 2
        assert case.reads.summary not in found[case.sample_id]


@pytest.mark.slow
def test_a_training_from_texts_to_a_report(tmp_path: Path) -> None:
    from ghar.trainers.recipe import train  # brings torch

    variants = "eval.variants=[lead,nearest,scripted_semantic_emb,semantic_emb,supervised,graphwalker]"
    short = [key for key in SHORT if not key.startswith(("system.", "env."))]
    train(config_of(tmp_path, *short, variants, f"run_dir={tmp_path / 'run'}"))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    policies = summary["policies"]
    assert set(policies) == {*variants.partition("[")[2].rstrip("]").split(",")}
    assert policies["graphwalker"]["failures"] == 0 and summary["selection"]["variant"] == "graphwalker"
    page = (tmp_path / "run" / "report.html").read_text()
    assert "rouge_l" in page and "Who was chosen" in page and "copy of: nearest by text" in page
