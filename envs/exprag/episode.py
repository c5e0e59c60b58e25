"""EXPRAG's episode: rank similar stays, find what their reports say, answer (Eqs. 1-3 and Figure 3 of the paper).

A question's answer is a set of options, as a whole number (`DischargeQuestion.answer`), so `Prediction.label` is one
too: right means that the sets are equal. The agent is "top" and its decision "predict", as in GHAR, so the rollout, the
rewards and multi-agent PPO take these episodes as they are. The reward is R_orm of Eq. 15, GHAR, with sets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ghar.data.sections import HEAD, sentences
from ghar.envs.case import Case
from ghar.envs.exprag.discharge_items import BULLET
from ghar.envs.exprag.dischargeqa import ASKED, DischargeQuestion
from ghar.envs.exprag.flare import Pieces, flare
from ghar.envs.exprag.options import LETTERS, parse_options
from ghar.envs.exprag.report_corpus import FindExcerpts, RankReports
from ghar.envs.rollout import Corpus
from ghar.envs.stepper import Scene
from ghar.envs.system import Variant
from ghar.episode import (
    Act,
    Episode,
    EpisodeGenerator,
    Evidence,
    Options,
    Parsed,
    Passage,
    Prediction,
    ReasoningStep,
    Reply,
    as_text,
)
from ghar.llm.prompts import Template, load_prompts
from ghar.metrics.scores import set_scores
from ghar.rewards.compose import EpisodeReward

ROLES = ("predict", "answer")
DIRECT = "_direct"  # a full prompt without experience, which speaks of none
NOTHING = "(none)"
SINGLE, SEVERAL = "Exactly one option is right.", "Any number of options can be right."
QUOTED = "One set is right: quote from it."


@dataclass(frozen=True)
class ExpragSpec:
    """The paper ranks 15 stays (top_k); 0 looks nothing up. excerpts: pieces that are asked for; words: budget of the
    pieces in a prompt. flare: look up again while the answer is written. background: whether prompts tell what is known
    of the patient who asks; the ranking has read it either way."""

    prompts: Literal["full", "compact"]
    top_k: int
    excerpts: int
    words: int
    flare: bool = False
    background: bool = True


class ExpragEpisodes:
    """Makes episodes; `pieces` tells how sure a reply is of each of its tokens, which only FLARE asks."""

    def __init__(self, spec: ExpragSpec, pieces: Pieces | None = None):
        self.spec = spec
        self.pieces = pieces
        self.templates = load_prompts("ghar.envs.exprag", spec.prompts, with_direct(spec.prompts, *ROLES))

    def episode(self, case: Case[DischargeQuestion]) -> EpisodeGenerator:
        """Returns the chosen options; its one step holds which stays were ranked and what their reports said."""
        question, spec, ranked, evidence, draft = case.reads, self.spec, Evidence(), Evidence(), ""
        asked = f"{question.asked}\n{question.menu}"
        if spec.top_k:
            ranked = yield RankReports(f"{asked}\n{question.background}", None, spec.top_k, question.visit_id)  # Eq. 2
        look_up = self._look_up(question, ranked)
        if ranked.passages:
            evidence = yield look_up(asked)  # Eq. 3
            if spec.flare:
                assert self.pieces is not None  # envs/exprag/questions.py gives it
                write = self._writer(question, ranked)
                draft, evidence = yield from flare(write, look_up, self.pieces, evidence)
        reply: Reply = yield self._predict(question, ranked, evidence, draft)
        stays = " ".join(str(passage.ident) for passage in ranked.passages)
        step = ReasoningStep(asked, f"stays {stays or 'none'}", bool(evidence.passages), evidence=evidence.text)
        return Prediction(reply.value, (step,))

    def _look_up(self, question: DischargeQuestion, ranked: Evidence) -> Callable[[str], FindExcerpts]:
        stays = tuple(passage.ident for passage in ranked.passages)
        return lambda query: FindExcerpts(query, stays, self.spec.excerpts, question.visit_id)

    def _writer(self, question: DischargeQuestion, ranked: Evidence) -> Callable[[str, Evidence, int], Act]:
        def write(draft: str, evidence: Evidence, step: int) -> Act:
            so_far = draft or NOTHING  # that the next sentence is the first one is shown
            return self._act("answer", question, ranked, evidence, so_far, as_text, step)

        return write

    def _predict(self, question: DischargeQuestion, ranked: Evidence, evidence: Evidence, draft: str) -> Act:
        preamble = f"Worked out so far:\n{draft}\n\n" if draft else ""

        def parse(reply: str) -> Parsed:
            named = quoted(reply, own_pieces(question)) if question.single else None
            return named or parse_options(reply, len(question.options), question.single)

        return self._act("predict", question, ranked, evidence, preamble, parse, 0)

    def _act(
        self,
        role: str,
        question: DischargeQuestion,
        ranked: Evidence,
        evidence: Evidence,
        draft: str,
        parse: Callable[[str], Parsed],
        step: int,
    ) -> Act:
        quotes = quotable(question) if role == "predict" and self.spec.prompts == "compact" else ()
        experience = self._experience(question, ranked, evidence)
        nothing = NOTHING if self.spec.prompts == "compact" else ""  # and no heading of it
        template = template_of(self.templates, role, experience)
        prompt = template.render(
            rule=QUOTED if quotes else SINGLE if question.single else SEVERAL,
            background=(question.background if self.spec.background else "") or nothing,
            experience=experience,
            question=question.asked,
            options=question.menu if self.spec.prompts == "full" else short_menu(question),
            example="B" if question.single else "A, C",
            draft=draft,
        )
        facts = {"question": question, "ranked": ranked, "evidence": evidence, "experience": experience}
        letters = tuple(LETTERS[: len(question.options)])
        options = Options(letters, 1 if question.single else len(letters)) if role == "predict" else None
        return Act("top", role, prompt, quotes, template.max_tokens, step, parse, facts, options)

    def _experience(self, question: DischargeQuestion, ranked: Evidence, evidence: Evidence) -> str:
        if self.spec.prompts == "full":
            return experience_text(ranked, evidence, self.spec.words)
        heading, common = ASKED[question.kind][2], common_pieces(question)
        texts = ((p, shortened(p.text, heading, common)) for p in evidence.passages)
        short = Evidence(tuple(replace(p, text=text) for p, text in texts if text))
        kept = pieces_by_stay(short, self.spec.words, first_words)
        if question.single:
            return "\n".join(f"{n}: {piece}" for piece, n in times_advised(kept.values())) or NOTHING
        lines = [f"{n}: {text}" for n, stay in enumerate(ranked.passages, 1) for text in kept.get(stay.ident, ())]
        return "\n".join(lines) or NOTHING


def with_direct(prompts: str, predict: str, *others: str) -> tuple[str, ...]:
    """The prompts to load: of a prediction also the one without experience. Compact ones show in a word that there is
    none."""
    return (predict, *others) if prompts == "compact" else (predict, f"{predict}{DIRECT}", *others)


def template_of(templates: Mapping[str, Template], role: str, experience: str) -> Template:
    """The prompt of a role, of a prediction without experience its own."""
    direct = templates.get(f"{role}{DIRECT}")
    return templates[role] if experience != NOTHING or direct is None else direct


def times_advised(reports: Iterable[Sequence[str]]) -> list[tuple[str, int]]:
    """(advice, number of the reports that give it), the most frequent first."""
    once = (dict.fromkeys(piece for text in texts for piece in sentences(text)) for texts in reports)
    return Counter(piece for pieces in once for piece in pieces).most_common()


def common_pieces(question: DischargeQuestion) -> set[str]:
    """What all sets of advice have, which tells nothing; of other options nothing."""
    return set.intersection(*(set(sentences(option)) for option in question.options)) if question.single else set()


def own_pieces(question: DischargeQuestion) -> list[list[str]]:
    """Of each set of advice what not all sets have."""
    common = common_pieces(question)
    return [[piece for piece in sentences(option) if piece not in common] for option in question.options]


def quotable(question: DischargeQuestion) -> tuple[str, ...]:
    """The pieces of sets of advice that one set alone has, by which a reply may choose it; () where a set has none."""
    own = own_pieces(question) if question.single else []
    times = Counter(piece for pieces in own for piece in set(pieces))
    alone = [[piece for piece in dict.fromkeys(pieces) if times[piece] == 1] for pieces in own]
    return tuple(piece for pieces in alone for piece in pieces) if all(alone) else ()


def short_menu(question: DischargeQuestion) -> str:
    """The options, one a line; of sets of advice the pieces, one a line behind the letter of their set, without what
    all sets advise."""
    if not question.single:
        return question.menu
    lettered = [(letter, piece) for letter, own in zip(LETTERS, own_pieces(question), strict=False) for piece in own]
    return "\n".join(f"{letter} {piece}" for letter, piece in lettered)


def quoted(reply: str, options: Sequence[Sequence[str]]) -> Parsed | None:
    """The option whose pieces a reply quotes word for word; None where it quotes none. Error "several_options"."""
    reply_sentences = set(sentences(" ".join(reply.split())))
    matches = [i for i, pieces in enumerate(options) if reply_sentences.intersection(pieces)]
    if not matches:
        return None
    return Parsed(None, "several_options") if len(matches) > 1 else Parsed(1 << matches[0])


def shortened(text: str, heading: str, common: Collection[str] = ()) -> str:
    """A piece ("heading: text") in one line without bullets, without its heading where that is `heading`, and without
    the sentences in `common`; "" where nothing is left."""
    own, _, body = text.partition(": ")
    words = " ".join(" ".join(BULLET.sub("", line) for line in body.split("\n")).split())
    if common:
        words = " ".join(sentence for sentence in sentences(words) if sentence not in common)
    return words if own == heading or not words else f"{own}: {words}"


def exprag_scene(
    episodes: ExpragEpisodes, corpus: Corpus, cases: Sequence[Case[DischargeQuestion]], eta: float
) -> Scene:
    """EXPRAG on questions for the views (Gymnasium, PettingZoo, RLlib); eta: weight of the outcome."""

    def reward(episode: Episode, case: Case[DischargeQuestion]) -> EpisodeReward:
        return score_options(episode, case.label, eta)

    return Scene("EXPRAG", ("top",), ROLES, cases, episodes.episode, corpus, reward)


def play_exprag(case: Case[Any], variant: Variant) -> EpisodeGenerator:
    """The episode of a case as a variant plays it: of a question, or of a label (envs/exprag/label_episode.py)."""
    return variant.spec.episode(case)


def experience_text(ranked: Evidence, evidence: Evidence, words: int) -> str:
    """The pieces by stay, the most similar first, best first within a stay; together at most `words` words."""
    kept, lines = pieces_by_stay(evidence, words), []
    for number, stay in enumerate(ranked.passages, 1):
        if stay.ident in kept:
            lines += [f"similar stay {number}:", *(f"- {text}" for text in kept[stay.ident])]
    return "\n".join(lines) or NOTHING


HEADING = 8  # words of a heading of a report, at most
ITEM = 24  # words of the first item of a list, with its heading, at most; a longer one is of a sentence


def cut_piece(text: str, words: int) -> str:
    """A piece ("heading: text") in one line, of at most `words` words: without a part of an item of a list by
    semicolons, which may name another disease than the whole, and without a heading that nothing follows. "" where
    nothing is left."""
    kept: list[list[str]] = []
    for line in _unwrapped(text):
        left = words - sum(map(len, kept))
        kept.append(line if len(line) <= left else _whole_items(line[: max(left, 0)], line))
        if len(line) > left:
            while kept and (not kept[-1] or _is_heading(kept[-1])):
                kept.pop()
            break
    return " ".join(word for line in kept for word in line)


def _unwrapped(text: str) -> list[list[str]]:
    """The words of each line; a line that begins with a small letter goes on where the one before it was broken."""
    lines: list[list[str]] = []
    for line in filter(None, map(str.split, text.split("\n"))):
        if lines and line[0][0].islower():
            lines[-1] += line
        else:
            lines.append(line)
    return lines


def _is_heading(line: list[str]) -> bool:
    return len(line) <= HEADING and line[-1].endswith(":")


def _whole_items(short: list[str], line: list[str]) -> list[str]:
    """The beginning of a line without a part of an item, where it is a list, and without headings at its end; [] where
    it is of its own heading alone, of at most `HEADING` words."""
    ends = [i for i, word in enumerate(line, 1) if word.endswith(";")]
    if ends and ends[0] <= ITEM:
        return short[: max((end for end in ends if end <= len(short)), default=0)]
    while short and short[-1].endswith(":"):
        short = short[:-1]
    heading = next((i for i, word in enumerate(line[:HEADING], 1) if word.endswith(":")), 0)
    return short if len(short) > heading else []


def shows(act: Act, passage: Passage) -> bool:
    """Whether a prompt shows a whole passage, which stands in one line there."""
    return " ".join(without_head(passage.text).split()) in " ".join(act.prompt.split())


def without_head(piece: str) -> str:
    """A piece without the name of the part before a text's first heading, which no text writes itself."""
    return piece.removeprefix(f"{HEAD}: ")


def first_words(text: str, words: int) -> str:
    """The first `words` words of a piece, in one line, for compact prompts, as base models of the demo learn them."""
    return " ".join(text.split()[:words])


def pieces_by_stay(
    evidence: Evidence, words: int, cut: Callable[[str, int], str] = cut_piece
) -> dict[int, list[str]]:
    """The pieces that fit into `words` words, by stay.

    What is best overall has the first claim on the budget; of the last piece that fits, `cut` leaves a part.
    """
    left, kept = words, dict[int, list[str]]()
    for passage in evidence.passages:
        text = cut(passage.text, max(left, 0))
        left -= len(passage.text.split())
        if text:
            kept.setdefault(passage.partition, []).append(text)
    return kept


def score_options(episode: Episode, answer: int, eta: float) -> EpisodeReward:
    """η (F1 of the chosen options + I(readable answer) + share of readable replies), at the last turn.

    F1 stands where Eq. 15 has I(y, ŷ): with one option to choose both are the same, and with many it tells how near an
    answer was. answer: the right options as a whole number, bit i for option i. An episode that failed or was cut
    short (`Episode.cut`) is worth 0.
    """
    if episode.failure is not None or episode.cut:
        return EpisodeReward({"f1": 0.0, "format": 0.0}, 0.0, tuple({} for _ in episode.turns), "shared")
    chosen = episode.prediction.label
    readable = sum(turn.format_ok for turn in episode.turns) / len(episode.turns)
    terms = {"f1": set_scores(answer, chosen)["f1"], "format": float(chosen is not None) + readable}
    closing = {term: eta * value for term, value in terms.items()}
    per_turn = (*({} for _ in episode.turns[1:]), closing)
    return EpisodeReward(terms, sum(closing.values()), per_turn, "shared")
