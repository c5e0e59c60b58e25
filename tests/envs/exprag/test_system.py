"""EXPRAG as a system on DischargeQA: its variants, rows, rewards, rankers, and the study of rankers."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ghar.envs.exprag.dischargeqa import DischargeQuestion, letters
from ghar.envs.exprag.flare import token_pieces
from ghar.envs.exprag.options import LETTERS
from ghar.envs.exprag.rankers import RankerStudy, judge_rankers, sample_candidates
from ghar.envs.exprag.report_corpus import ReportCorpus
from ghar.envs.records import Records
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.system import WORDS, Reader, System, build
from ghar.episode import Act, Completion, Episode
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.llm.policy import Policy
from ghar.retrieval.reports import similarities

pytestmark = pytest.mark.slow

TINY = (
    "system=exprag", "data.patients=120", "system.words=60", "system.excerpts=6", "env.history_tokens=30",
    "task.max_test=12", "eval.bootstrap=50",
)  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exprag")


def made(cache: Path, *overrides: str) -> System[DischargeQuestion]:
    return build(Records(load([*TINY, f"data.cache={cache}", *overrides])))


@pytest.fixture(scope="module")
def system(cache: Path) -> System[DischargeQuestion]:
    return made(cache)


def play(system: System[DischargeQuestion], name: str, policy: Policy | None = None) -> list[Episode]:
    variant = system.variants[name]
    policy = policy or system.fixed[variant.who]()
    jobs = [EpisodeJob(case.sample_id, 0, partial(system.episode, case, variant)) for case in system.cases.test]
    return rollout(jobs, {"top": policy}, system.corpus, seed=0, in_flight=8, steady=True)


def rows_of(system: System[DischargeQuestion], name: str) -> list[dict[str, Any]]:
    """With the columns that every system's rows have and that EXPRAG's numbers read."""
    rows = []
    for case, episode in zip(system.cases.test, play(system, name), strict=True):
        right = episode.prediction.label == case.label
        base = {
            "sample_id": case.sample_id, "subject_id": case.subject_id, "correct": right, "errors": [], "seconds": 0.0,
            "retrieved": episode.prediction.history[0].retrieved, "prompt_tokens": 0, "completion_tokens": 0,
            "failure": episode.failure, "turns": [vars(turn) for turn in episode.turns],
        }  # fmt: skip
        rows.append({**base, **system.report.row(episode, case, system.variants[name])})
    return rows


class Says:
    """The same reply to everything."""

    def __init__(self, text: str):
        self.text = text

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(self.text) for _ in acts]


def test_what_a_floor_above_reads(system: System[DischargeQuestion]) -> None:
    assert system.main == "exprag" and system.origin.generated and not system.origin.credentialed
    assert {name: system.variants[name].who for name in system.listed} == {
        "usual": "usual", "options_only": "options_only", "background_only": "background_only", "direct": "trained",
        "label_sft": "label_sft",
        "experience_only": "trained", "exprag_base": "base", "exprag_sft": "sft", "exprag": "trained",
        "scripted_direct": "rule", "scripted": "rule",
    }  # fmt: skip
    case = system.cases.test[0]
    assert system.in_words(case, 0b101) == "AC" and case.reads.menu in case.text and case.reads.background in case.text
    assert system.report.counts["test questions"] == 12 and system.report.counts["reports that can be ranked"] > 0
    prompts = system.training.texts()
    assert prompts and all("answer:" in prompt for prompt in prompts)


def test_a_row_tells_what_was_ranked_found_and_chosen(system: System[DischargeQuestion]) -> None:
    row = rows_of(system, "scripted")[0]
    case = system.cases.test[0]
    [prompt] = [r.effect.prompt for r in play(system, "scripted")[0].trace if isinstance(r.effect, Act)]
    assert row["experience"]["said"] in prompt and row["experience"]["said"].strip()
    assert len(row["experience"]["ranked"]) == 15 and row["experience"]["found"]
    assert {o["letter"] for o in row["experience"]["options"] if o["right"]} == set(letters(case.label))
    assert [o["letter"] for o in row["experience"]["options"]] == list(LETTERS[: len(case.reads.options)])
    assert rows_of(system, "scripted_direct")[0]["experience"]["ranked"] == []


def test_experience_only_tells_nothing_of_the_patient_who_asks(system: System[DischargeQuestion]) -> None:
    both = [play(system, name, Says("A"))[0] for name in ("exprag", "experience_only")]
    case = system.cases.test[0]
    [known], [unknown] = [[r.effect for r in e.trace if isinstance(r.effect, Act)] for e in both]
    background = case.reads.background
    assert background and background in known.prompt and background not in unknown.prompt
    assert known.facts["experience"] == unknown.facts["experience"] and unknown.facts["experience"] in unknown.prompt


@pytest.mark.parametrize("prompts", ["compact", "full"])
@pytest.mark.parametrize("task", ["dischargeqa_medication", "dischargeqa_instruction"])
def test_label_only_sft_imitates_right_answers_without_experience(cache: Path, task: str, prompts: str) -> None:
    system = made(cache, f"task={task}", f"env.prompts={prompts}", "env.history_tokens=200")
    pairs = system.training.stages["label_sft"](WORDS)
    assert len(pairs.train) == len(system.cases.train) and len(pairs.valid) == len(system.cases.valid)
    assert pairs.epochs == 8
    quoted = task == "dischargeqa_instruction" and prompts == "compact"
    for example, case in zip(pairs.train, system.cases.train, strict=True):
        act = next(system.episode(case, system.variants["direct"]))
        assert example.prompt == act.prompt and act.parse(example.reply).value == case.label
        assert (example.reply in example.choices) if quoted else not example.choices


def test_only_variants_with_experience_look_up(system: System[DischargeQuestion]) -> None:
    direct, exprag = play(system, "direct", Says("A")), play(system, "exprag", Says("A"))
    assert not any(e.prediction.history[0].retrieved for e in direct)
    assert all(e.prediction.history[0].retrieved for e in exprag)
    assert all(system.reward(e, c).total > 0 for e, c in zip(exprag, system.cases.test, strict=True))


@pytest.mark.parametrize("task", ["dischargeqa_diagnosis", "dischargeqa_medication", "dischargeqa_instruction"])
def test_experience_helps_the_fixed_rule(cache: Path, task: str) -> None:
    """The habits of the generated hospital stand in the reports of other patients alone. Of codes that one stay has and
    no other, no report tells: the help is in whole answers that are right, not in every option."""
    whole = made(cache, "system.excerpts=48", f"task={task}", "task.max_test=null")
    rows = {name: rows_of(whole, name) for name in ("scripted_direct", "scripted")}
    better = whole.report.summary(rows)["set_differences"]["scripted - scripted_direct"]
    assert whole.report.numbers is not None
    found = {name: whole.report.numbers(own, {"seed": 0, "resamples": 50}) for name, own in rows.items()}
    assert better["accuracy"][0] > 0.1
    assert found["scripted_direct"]["retrieval_rate"][0] == 0 and found["scripted"]["retrieval_rate"][0] == 1


@pytest.mark.parametrize("overrides", [
    ("system.ranker=released",), ("system.ranker=text",), ("system.ranker=text", "retriever.kind=hashing"),
    ("system.ranker=one_code",), ("system.ranker=random",),
    ("system.ranker=complementary", "system.retriever=fusion"), ("system.retriever=sentence_window",),
    ("data.leakage=strict", "system.retriever=bm25"), ("system.retriever=flare",),
    ("retriever=bm25", "system.retriever=bm25"),
])  # fmt: skip
def test_other_rankers_and_retrievers_play(cache: Path, overrides: tuple[str, ...]) -> None:
    other = made(cache, "task.max_test=4", *overrides)
    # as an actor of Ray gets it
    other = replace(other, corpus=pickle.loads(pickle.dumps(other.corpus)))
    played = play(other, "scripted")
    assert all(e.failure is None and e.prediction.label for e in played)
    assert any(e.prediction.history[0].retrieved for e in played)


def test_strict_asks_training_patients_alone(cache: Path, system: System[DischargeQuestion]) -> None:
    strict = made(cache, "data.leakage=strict")
    train = {question.subject_id for question in strict.cases.train}
    assert set(corpus_of(strict).index.subject_id.tolist()) <= train
    assert len(corpus_of(strict).index) < len(corpus_of(system).index)


def test_one_code_ranks_stays_with_the_principal_diagnosis(cache: Path, system: System[DischargeQuestion]) -> None:
    other = corpus_of(made(cache, "system.ranker=one_code"))
    found = 0
    for case in system.cases.test:
        query = other.queries[case.visit_id]
        rows, scores = other.ranker(query, "", 5)
        again, _ = other.ranker(query, "other words", 5)
        assert rows.tolist() == again.tolist() and (scores > 0).all()
        assert query.subject_id not in other.index.subject_id[rows]
        sharing = other.index.sets[0].overlap(query.codes[0][:1])[0] > 0
        sharing &= other.index.subject_id != query.subject_id
        found += bool(sharing.any())
        assert not sharing.any() or sharing[rows].all()
    assert found


def corpus_of(system: System[DischargeQuestion]) -> ReportCorpus:
    assert isinstance(system.corpus, ReportCorpus)
    return system.corpus


class Letters:
    """A tokenizer of characters."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        return "".join(map(chr, ids))


class Unsure:
    """Answers everything, sure of nothing."""

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        ids = tuple(map(ord, "A."))
        return [Completion("A.", ids, ids, (-0.5, -0.5)) for _ in acts]


def test_flare_asks_its_reader_how_sure_it_is(cache: Path) -> None:
    flare = made(cache, "system.retriever=flare", "task.max_test=2").read_by(Reader(tokenizer=Letters()))
    for episode in play(flare, "exprag", Unsure()):
        roles = [turn.role for turn in episode.turns]
        assert roles[-1] == "predict" and "answer" in roles and episode.prediction.label == 1
    assert flare.training.teacher_variant is not None and not flare.training.teacher_variant.spec.spec.flare
    with pytest.raises(BadInput, match="log-probabilities"):
        token_pieces(Letters(), Completion("said by a person"))


class Alike:
    """A judge that sees what the ranker sees, in thirds of ten."""

    def __init__(self, corpus: ReportCorpus):
        self.corpus = corpus

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(self._says(act)) for act in acts]

    def _says(self, act: Act) -> str:
        index = self.corpus.index
        own = similarities(index, self.corpus.queries[act.facts["first"]], (1 / 3, 1 / 3, 1 / 3))
        score = own[index.visit_id.tolist().index(act.facts["second"])]
        return "nothing" if act.facts["second"] % 10 == 0 else f"{10 * score:.4f}, {10 * score:.4f}, {10 * score:.4f}"


def test_a_judge_that_thinks_like_a_ranker_agrees_with_it(cache: Path) -> None:
    judging = made(cache, "system.judged=6")
    study = judging.report.judge
    assert isinstance(study, RankerStudy) and len(study.questions) == 6
    asked = {question.subject_id for question in study.questions}
    found = study(Alike(corpus_of(judging)))["rankers"]
    ehr, text = found["rankers"]["ehr"], found["rankers"]["text"]
    assert ehr["pearson"][0] > 0.999 and ehr["spearman"][0] > 0.99
    assert 2 <= ehr["patients"] <= len(asked)  # of a patient without two readable scores nothing can be said
    assert text["pearson"][0] < ehr["pearson"][0]
    assert 0 < found["unreadable"] < found["pairs"] <= 600


def test_candidates_are_other_patients(cache: Path, system: System[DischargeQuestion]) -> None:
    assert system.report.judge is None
    study = made(cache, "system.judged=1").report.judge
    assert isinstance(study, RankerStudy) and len(study.questions) == 1
    question = study.questions[0]
    rows = sample_candidates(study, question)
    assert 20 <= len(rows) <= 100 and len(set(rows.tolist())) == len(rows)
    assert question.subject_id not in study.corpus.index.subject_id[rows]
    assert rows.tolist() == sample_candidates(study, question).tolist()
    assert judge_rankers(study, Says("no idea"))["unreadable"] == len(rows)
