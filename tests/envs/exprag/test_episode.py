"""EXPRAG's episode: what it asks, what it shows, how it ends; FLARE; the fixed rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ghar.envs.exprag.dischargeqa import DischargeQuestion, question_case
from ghar.envs.exprag.episode import ExpragEpisodes, ExpragSpec, cut_piece, experience_text, exprag_scene, shows
from ghar.envs.exprag.flare import flare, tentative
from ghar.envs.exprag.report_corpus import FindExcerpts, RankReports
from ghar.envs.exprag.rule import chosen, listed_share, majority_of_experiences
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.episode import Act, Completion, Evidence, Passage, Reply, Retrieve
from ghar.llm.policy import FunctionPolicy

QUESTION = DischargeQuestion(
    "5-diagnosis", 1, 5, "diagnosis", ("Sepsis", "Gout", "Asthma"), 0b001, "chief complaint: fever"
)
ADVICE = DischargeQuestion("5-instruction", 1, 5, "instruction", ("Rest. Walk.", "Rest. Swim."), 0b10, "")
SPEC = ExpragSpec("compact", top_k=2, excerpts=4, words=50)


def excerpt(stay: int, text: str, number: int = 0) -> Passage:
    return Passage(text, "excerpt", stay, 1.0 - number / 10, number)


RANKED = Evidence((Passage("gout", "report", -1, 0.9, 71), Passage("sepsis", "report", -1, 0.8, 72)))
FOUND = Evidence((
    excerpt(72, "discharge diagnosis: Sepsis"),
    excerpt(71, "past medical history: - Gout\n- Sepsis", 1),
    excerpt(71, "discharge diagnosis: Sepsis", 2),
    excerpt(72, "brief hospital course: Treated for asthma.", 3),
))  # fmt: skip


class Fixed:
    """A corpus with one answer for each kind of request."""

    def __init__(self, ranked: Evidence = RANKED):
        self.ranked = ranked
        self.asked: list[Retrieve] = []

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        self.asked += requests
        return [self.ranked if isinstance(r, RankReports) else FOUND for r in requests]


class Says:
    """Replies one after the other, with a probability for each word."""

    def __init__(self, *replies: str, sure: float = 1.0):
        self.replies = list(replies)
        self.acts: list[Act] = []
        self.sure = sure

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        self.acts += acts
        return [Completion(self.replies.pop(0)) for _ in acts]


def play(
    policy: Any, question: DischargeQuestion = QUESTION, spec: ExpragSpec = SPEC, corpus: Any = None, pieces: Any = None
):
    corpus = corpus or Fixed()
    job = EpisodeJob(question.sample_id, 0, lambda: ExpragEpisodes(spec, pieces).episode(question_case(question)))
    [episode] = rollout([job], {"top": policy}, corpus, seed=0, in_flight=4, steady=True)
    return episode, corpus


def test_rank_find_answer() -> None:
    policy = Says("answer: A, C")
    episode, corpus = play(policy)
    rank, find = corpus.asked
    assert isinstance(rank, RankReports) and rank.stay == 5 and rank.top_n == 2 and "fever" in rank.query
    assert isinstance(find, FindExcerpts) and find.partitions == (71, 72) and find.stay == 5
    [act] = policy.acts
    assert (act.agent, act.role) == ("top", "predict")
    for told in ("\n1: past medical history: Gout Sepsis\n", "\n1: Sepsis\n2: Sepsis\n", "B. Gout"):
        assert told in act.prompt
    full = Says("answer: A, C")
    play(full, spec=ExpragSpec("full", 2, 4, 50))
    assert "similar stay 1:\n- past medical history: - Gout - Sepsis\n" in full.acts[0].prompt
    assert episode.prediction.label == 0b101
    [step] = episode.prediction.history
    assert step.retrieved and step.answer == "stays 71 72"


def test_without_experience_nothing_is_asked() -> None:
    policy = Says("B")
    episode, corpus = play(policy, spec=ExpragSpec("full", 0, 4, 50))
    assert corpus.asked == [] and episode.prediction.label == 0b10
    assert "xperience" not in policy.acts[0].prompt and "(none)" not in policy.acts[0].prompt
    assert not episode.prediction.history[0].retrieved


def test_a_stay_like_no_other_is_answered_without_excerpts() -> None:
    episode, corpus = play(Says("A"), corpus=Fixed(Evidence()))
    assert len(corpus.asked) == 1 and episode.failure is None and episode.prediction.label == 1


@pytest.mark.parametrize("reply, error", [("Z", "unknown_option"), ("", "empty"), ("I cannot say", "no_option")])
def test_an_answer_outside_the_options_is_a_named_error(reply: str, error: str) -> None:
    episode, _ = play(Says(reply))
    [reply_] = [r.result for r in episode.trace if isinstance(r.result, Reply)]
    assert reply_.error == error and episode.prediction.label is None and not episode.turns[0].format_ok


def test_the_answer_is_no_part_of_a_prompt() -> None:
    """Two questions that differ in the truth alone look the same."""
    other = DischargeQuestion("5-diagnosis", 1, 5, "diagnosis", QUESTION.options, 0b110, QUESTION.background)
    prompts = []
    for question in (QUESTION, other):
        policy = Says("A")
        play(policy, question)
        prompts.append(policy.acts[0].prompt)
    assert prompts[0] == prompts[1]


def test_the_budget_goes_to_the_best_pieces() -> None:
    text = experience_text(RANKED, FOUND, 8)
    assert text.splitlines() == [
        "similar stay 1:", "- past medical history: - Gout", "similar stay 2:", "- discharge diagnosis: Sepsis",
    ]  # fmt: skip
    assert experience_text(RANKED, Evidence(), 8) == "(none)"


COURSE = "Brief Hospital Course:\nMedications given: a a; b c; d."
RECORD = f"head: Record\nLength of stay: 2 days.\n\n{COURSE}\n\nFollow up: Home."


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (1, ""),
        *((n, "head: Record") for n in (2, 3, 5)),
        (6, "head: Record Length of stay: 2"),
        *((n, "head: Record Length of stay: 2 days.") for n in (7, 8, 10, 12, 13)),
        *((n, "head: Record Length of stay: 2 days. Brief Hospital Course: Medications given: a a;") for n in (14, 15)),
        (16, "head: Record Length of stay: 2 days. Brief Hospital Course: Medications given: a a; b c;"),
        *((n, " ".join(RECORD.partition("\n\nFollow")[0].split())) for n in (17, 18, 19)),
        (20, " ".join(RECORD.split())),
    ],
)
def test_a_cut_ends_with_no_heading_and_no_part_of_an_item(words: int, left: str) -> None:
    """Excerpts of real stays ended with "Discharge Diagnosis:" and with "Pneumonitis due to inhalation"."""
    assert cut_piece(RECORD, words) == left
    assert cut_piece("a b c d e f g h i j said: l", 3) == "a b c"
    assert cut_piece(f"{'a ' * 30}; b", 3) == "a a a"


VIGNETTE = "Laboratory studies of a man of 60 years who was found at home show: Hemoglobin: 10 Leukocytes: 9000 of all"


def test_a_colon_within_a_line_costs_its_own_word_alone() -> None:
    words = VIGNETTE.split()
    for number in range(1, len(words)):
        short = words[:number]
        while short[-1].endswith(":"):
            short.pop()
        assert cut_piece(VIGNETTE, number) == " ".join(short)


def test_an_item_goes_on_in_a_line_that_begins_with_a_small_letter() -> None:
    wrapped = "Discharge Diagnosis: Sepsis; Pneumonitis due to\ninhalation of food; Gout\nCourse: He rested."
    assert cut_piece(wrapped, 6) == cut_piece(wrapped, 8) == "Discharge Diagnosis: Sepsis;"
    assert cut_piece(wrapped, 9) == "Discharge Diagnosis: Sepsis; Pneumonitis due to inhalation of food;"
    assert cut_piece(wrapped, 11) == " ".join(wrapped.split("\nC")[0].split())


def test_the_rule_chooses_what_most_reports_list() -> None:
    assert chosen(QUESTION, FOUND) == 0b001  # gout is only history where the list is known, asthma only treated
    assert listed_share("Sepsis", QUESTION, FOUND) == 1 and listed_share("Gout", QUESTION, FOUND) == 0
    assert listed_share("Fever", QUESTION, FOUND) is None
    assert chosen(QUESTION, Evidence()) == 0b111  # nothing known: nothing told apart
    told = Evidence((excerpt(71, "discharge instructions: - Swim.\n- Rest."),))
    assert chosen(ADVICE, told) == 0b10 and chosen(ADVICE, Evidence()) == 0b01
    merged = Evidence((excerpt(71, "past medical history: Asthma\n\nDischarge Diagnosis:\nGout"),))
    assert chosen(QUESTION, merged) == 0b010


def test_the_rule_plays_without_a_model() -> None:
    episode, _ = play(FunctionPolicy(majority_of_experiences))
    assert episode.prediction.label == QUESTION.answer and not episode.turns[0].trainable


PIECES = {"It may be": 1.0, " gout": 0.3, " or": 0.7, " sepsis": 0.5, "." : 1.0, " More": 0.1}  # fmt: skip


def test_a_doubtful_sentence_becomes_a_query_without_its_least_sure_words() -> None:
    assert tentative(list(PIECES.items())) == ("It may be gout or sepsis.", "It may be or sepsis.", True)
    assert tentative([("Sure.", 0.9)]) == ("Sure.", "Sure.", False)
    assert tentative([]) == ("", "", False)


def run_flare(*replies: list[tuple[str, float]]) -> tuple[list[str], tuple[str, Evidence]]:
    """What FLARE asks for ("look up: query" or "write: draft"), and what it returns."""
    said, asked = list(replies), []
    queue = [Completion("", token_ids=(i,)) for i in range(len(said))]

    def write(draft: str, evidence: Evidence, step: int) -> Act:
        return Act("top", "answer", f"write: {draft} on {len(evidence.passages)}", step=step)

    running = flare(write, lambda q: FindExcerpts(q, (71,), 4, 5), lambda c: said[c.token_ids[0]], Evidence())
    result: Any = None
    try:
        while True:
            effect = running.send(result)
            asked.append(effect.prompt if isinstance(effect, Act) else f"look up: {effect.query}")
            result = Reply(queue.pop(0), "") if isinstance(effect, Act) else FOUND
    except StopIteration as stop:
        return asked, stop.value


def test_flare_looks_up_in_doubt_and_goes_on_with_what_it_found() -> None:
    asked, (draft, evidence) = run_flare([("Maybe", 0.9), (" gout.", 0.5)], [("Sepsis.", 0.9)], [("finished", 1.0)])
    assert asked == ["write:  on 0", "look up: Maybe gout.", "write:  on 4", "write: Sepsis. on 4"]
    assert draft == "Sepsis." and evidence == FOUND


def test_flare_stops_when_it_is_sure_and_done_or_says_nothing() -> None:
    assert run_flare([("Finished.", 1.0)])[0] == ["write:  on 0"]
    assert run_flare([])[1] == ("", Evidence())
    asked, (draft, _) = run_flare(*[[("Again.", 1.0)]] * 4)
    assert len(asked) == 4 and draft == "Again. Again. Again. Again."


def test_flare_within_the_episode() -> None:
    policy = Says("Maybe sepsis.", "It is sepsis.", "finished", "A")
    sure = {"Maybe sepsis.": 0.5}

    def pieces(completion: Completion) -> list[tuple[str, float]]:
        return [(completion.text, sure.get(completion.text, 1.0))]

    episode, corpus = play(policy, spec=ExpragSpec("full", 2, 4, 50, flare=True), pieces=pieces)
    assert [r.query for r in corpus.asked[1:]][-1] == "Maybe sepsis." and len(corpus.asked) == 3
    assert [act.role for act in policy.acts] == ["answer", "answer", "answer", "predict"]
    assert all("Worked out so far:\n(none)\n" in act.prompt for act in policy.acts[:2])
    assert "Worked out so far:\nIt is sepsis.\n" in policy.acts[2].prompt
    assert "It is sepsis." in policy.acts[-1].prompt and episode.prediction.label == 1


def test_the_views_play_it() -> None:
    pytest.importorskip("gymnasium", reason="the views need the extra ray (gymnasium, pettingzoo)")
    from ghar import envs
    from ghar.envs.views.games import TextGame
    from ghar.envs.views.gym_view import GymView

    cases = [question_case(QUESTION), question_case(ADVICE)]
    envs.check(GymView(TextGame(exprag_scene(ExpragEpisodes(SPEC), Fixed(), cases, eta=5.0))))


def test_a_passage_before_the_first_heading_is_shown_without_a_name() -> None:
    """Reports ask this of what prompts show; the name "head" is ours, and no text has it."""
    act = Act("top", "predict", "similar question 1:\n- A man\nof 60. Why?\nright answer: Gout")
    assert shows(act, Passage("head: A man of 60. Why?", "excerpt", 1, 1.0, 0))
    assert not shows(act, Passage("head: A man of 61. Why?", "excerpt", 1, 1.0, 0))
    assert not shows(act, Passage("plan: A man of 60. Why?", "excerpt", 1, 1.0, 0))
