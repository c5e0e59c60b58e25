"""What the demo needs and a real run does not: a base model that has practised KARE's own prompts.

A large language model brings reading: finding a name among six or seven summaries, following a drug to its target,
writing down line by line what it found, concluding. The demo's model gets that here, before anything of the paper
starts. Its patients are made up: a training patient's prompt in disguise. Every rare name becomes one of the graph that
no patient has, the common ones change places, and every grade that is stated is drawn anew, one for each entity and
prompt. So what is rare can only be read, what the context states of a common entity is as misleading as a textbook
(worlds/severity/story.py) and its grade has to be known by heart, and no grade of a rare entity can be remembered. The
outcome follows from the new grades by the world's law; chains are those of the expert (scripted_expert.py).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from ghar.envs.case import NOT_SHOWN, Case
from ghar.envs.kare.cases import UNCUT
from ghar.envs.kare.corpus import ConceptNames, KareCorpus, equations
from ghar.envs.kare.episode import KareReading, join_both
from ghar.envs.kare.expert_chains import expert_prompt, read_chain
from ghar.envs.kare.methods import KarePlayer, Method, look_up
from ghar.envs.kare.retrieval.community_corpus import SelectCommunities
from ghar.envs.kare.rule import Belief, belief
from ghar.envs.kare.scripted_expert import scripted_expert
from ghar.envs.kare.settings import Settings
from ghar.envs.play import PlayContext, play
from ghar.envs.records import Records
from ghar.envs.rollout import derive_seed
from ghar.envs.system import DemoPretraining, PretrainingTasks, Variant, words
from ghar.envs.worlds.severity import story
from ghar.envs.worlds.severity.vocabulary import tail_words
from ghar.envs.worlds.severity.world import World
from ghar.envs.worlds.severity_grades import reading_of
from ghar.episode import Act, Episode, Evidence, Passage, Retrieve
from ghar.llm.policy import FunctionPolicy

FORMAT = 2  # raise it when the exercises change
SHARES = {"both": 0.75, "predict": 0.15, "reason": 0.1}  # of the exercises, by role
PASSES = 2  # times an exercise is seen
SUMMARIES = (2, 8)  # of an exercise, the fewest and the most; few are drawn more often, which is quicker practice
NEEDED = 0.85  # of the summaries that name what is rare and the patient's own are among them
EASY = 0.4  # as often as others: patients without anything rare
ALONE = 0.3  # share of the exercises without similar patients
GRADE = re.compile(r"grade (\d) course")
WITHIN, BESIDE = (Variant("practice", spec=Method("communities", 1, how)) for how in ("within", "beside"))


@dataclass(frozen=True)
class NameExchange:
    """Whom a disguise exchanges for whom. kind: name as prompts spell it -> its kind. common: names of a kind, common
    ones; strange: names of a kind that no patient has."""

    kind: Mapping[str, str]
    common: Mapping[str, Sequence[str]]
    strange: Mapping[str, Sequence[str]]

    def names(self, rng: np.random.Generator, seen: Sequence[str]) -> dict[str, str]:
        """Another name for each of `seen`: common ones change places, rare ones become strange."""
        new: dict[str, str] = {}
        for pool in self.common.values():
            new |= dict(zip(pool, (pool[int(i)] for i in rng.permutation(len(pool))), strict=True))
        for kind, pool in self.strange.items():
            rare = [name for name in seen if self.kind[name] == kind and name not in new]
            drawn = rng.choice(len(pool), len(rare), replace=False)
            new |= dict(zip(rare, (pool[int(i)] for i in drawn), strict=True))
        return new


def cast_of(world: World, names: Mapping[str, str]) -> NameExchange:
    """Of a demo world. names: text of a code as prompts spell it."""
    numbers = {int(n) for column in ("rare_1", "rare_2") for n in world.truth[column].drop_nulls()}
    rare = world.rare_codes
    spelt = ConceptNames({**names, **_invented(world)}).of_all
    kind: dict[str, str] = {}
    common: dict[str, list[str]] = {"disease": [], "drug": []}
    strange: dict[str, list[str]] = {"rare disease": [], "rare drug": [], "target": []}
    seen = {rare[number] for number in numbers}
    for code in world.severity:
        own = "drug" if code.startswith("DRUG/") else "disease"
        if world.tier[code] == "common":
            if code in names:
                kind[spelt[code]] = own
                common[own].append(spelt[code])
            continue
        kind[spelt[code]] = f"rare {own}"
        if code not in seen:
            strange[f"rare {own}"].append(spelt[code])
        if code in world.target:
            kind[world.target[code]] = "target"
            if code not in seen:
                strange["target"].append(world.target[code])
    return NameExchange(kind, common, strange)


def _invented(world: World) -> dict[str, str]:
    """Code -> name of the whole tail, which patients have a part of."""
    table = pl.read_csv(world.root / "entities.csv", glob=False).filter(pl.col("tier") == "rare")
    return {code: name.lower() for code, name in table.select("code", "name").iter_rows()}


class NamePlace(NamedTuple):
    """Where a name stands, or a grade that is stated of a name as its own or as absent."""

    name: str
    grade: Literal["no", "own", "absent"] = "no"


Piece: TypeAlias = "str | NamePlace"


@dataclass(frozen=True)
class RecordTemplate:
    """A prompt's parts with places for names and grades. texts: of the record, the similar patients, the topics and
    each summary."""

    case: Case[KareReading]
    texts: tuple[tuple[Piece, ...], ...]
    names: tuple[str, ...]

    def fill(self, new: Mapping[str, str], grades: Mapping[NamePlace, int]) -> list[str]:
        """The texts with other names and grades."""
        return ["".join(_fill_piece(piece, new, grades) for piece in text) for text in self.texts]


def _fill_piece(piece: Piece, new: Mapping[str, str], grades: Mapping[NamePlace, int]) -> str:
    if isinstance(piece, str):
        return piece
    return new[piece.name] if piece.grade == "no" else f"grade {grades[piece]} course"


class TemplateBuilder:
    """Cuts templates: finds the names of a cast, and the grades stated of them."""

    def __init__(self, cast: NameExchange):
        common = sorted((n for pool in cast.common.values() for n in pool), key=len, reverse=True)
        first, second = (sorted({n.split()[i] for n, k in cast.kind.items() if k in cast.strange}) for i in (0, 1))
        rare = rf"(?:{'|'.join(first)}) (?:{'|'.join(second)})"
        either = "|".join([*map(re.escape, common), rare])
        self.cast = cast
        self.places = re.compile(rf"\b(?P<name>{either})\b|{GRADE.pattern}")

    def template(self, case: Case[KareReading], passages: Sequence[str]) -> RecordTemplate:
        texts = (case.text, case.reads.similar, "\n".join(case.topics), *passages)
        pieces = tuple(tuple(self._pieces(text)) for text in texts)
        names = dict.fromkeys(p.name for text in pieces for p in text if not isinstance(p, str))
        return RecordTemplate(case, pieces, tuple(names))

    def _pieces(self, text: str) -> Iterator[Piece]:
        """A sentence states its grades of the name that it begins with."""
        at, about, start = 0, "", -1
        for match in self.places.finditer(text):
            name, begin = match["name"], text.rfind(". ", 0, match.start())
            if name is not None and name not in self.cast.kind:
                continue
            if name is None and not about:
                continue
            yield text[at : match.start()]
            if name is None:
                yield NamePlace(about, "absent" if "absent" in text[max(begin, 0) : match.start()] else "own")
            else:
                if begin != start or not about:
                    about, start = name, begin
                yield NamePlace(name)
            at = match.end()
        yield text[at:]


@dataclass(frozen=True)
class GeneratedKnowledge:
    """A corpus that tells of each made-up patient what was made up for him."""

    of: Mapping[str, Evidence]

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        return [self.of[request.sample_id] for request in requests if isinstance(request, SelectCommunities)]


class ExpertReplies:
    """Answers as the expert writes: chain, label, or both."""

    def __init__(self, demo_belief: Belief):
        self.expert = scripted_expert(demo_belief.knowledge, demo_belief.threshold)

    def __call__(self, act: Act) -> str:
        case: Case[KareReading] = act.facts["case"]
        label = case.task.labels[case.label]
        if act.role == "predict":
            return label
        chain = read_chain(self.expert(expert_prompt(case, act.facts["knowledge"], ""))).text
        return chain if act.role == "reason" else join_both(chain, label)


def practice(
    records: Records, own: Settings, corpus: KareCorpus, cases: Callable[[], Sequence[Case[KareReading]]]
) -> DemoPretraining:
    """Exercises over the demo world. cases: of the training patients, as rules read them.

    Their randomness is the world's: runs of different seeds start from one base, as they would from a downloaded one.
    """
    config = records.config
    texts = hashlib.sha256("\n".join(text or "" for text in corpus.index.summaries).encode()).hexdigest()
    key = (
        "kare", FORMAT, texts, records.primekg.fingerprint, sorted(records.names.items()), equations(own),
        (records.task.name, records.task.labels, config.data.world_seed, config.task.split_seed),
        (config.env.prompts, config.env.history_tokens, config.retriever.kind, config.retriever.top_n),
    )  # fmt: skip
    return DemoPretraining(key, partial(_exercises, records, corpus, cases))


def _exercises(
    records: Records, corpus: KareCorpus, cases: Callable[[], Sequence[Case[KareReading]]], total: int, seed: int
) -> PretrainingTasks:
    assert records.world is not None  # Kare.pretraining asks
    config, demo_belief = records.config, belief(records)
    names = ConceptNames(records.names)
    cast, player = (
        cast_of(records.world, records.names),
        KarePlayer(config.env.prompts, UNCUT, config.retriever.top_n, words),
    )
    templates = _templates(cast, cases(), corpus, player)
    easy = [all(topic in demo_belief.knowledge.grades for topic in template.case.topics) for template in templates]
    weights = np.where(easy, EASY, 1.0)
    played: list[Episode] = []
    for variant, share in ((WITHIN, SHARES["both"]), (BESIDE, SHARES["predict"])):
        count = max(64, int(total * share / PASSES))
        rng = np.random.default_rng(derive_seed(seed, "disguised", variant.spec.reasoning))
        chosen = rng.choice(len(templates), count, p=weights / weights.sum())
        disguised = [_disguised(templates[at], cast, demo_belief, i, rng) for i, at in enumerate(chosen.tolist())]
        knowledge = GeneratedKnowledge({case.sample_id: evidence for case, evidence in disguised})
        stage = PlayContext(config, ("top",), player.episode, variant, knowledge)
        some = [case for case, _ in disguised]
        expert = FunctionPolicy(ExpertReplies(demo_belief))
        played += play(stage, some, expert, seed=seed, title=f"Exercises, {variant.spec.reasoning}")
    return PretrainingTasks(played, _token_names(records, names, corpus), SHARES, copying=True)


def _templates(
    cast: NameExchange, cases: Sequence[Case[KareReading]], corpus: KareCorpus, player: KarePlayer
) -> list[RecordTemplate]:
    """Of every training patient for whom communities are found."""
    tailor = TemplateBuilder(cast)
    asked = [(case, request) for case in cases if (request := look_up("communities", player.top_n, case)) is not None]
    answers = corpus.retrieve([request for _, request in asked])
    return [
        tailor.template(case, [passage.text for passage in evidence.passages])
        for (case, _), evidence in zip(asked, answers, strict=True)
        if case.topics
    ]


def _disguised(
    template: RecordTemplate, cast: NameExchange, demo_belief: Belief, number: int, rng: np.random.Generator
) -> tuple[Case[KareReading], Evidence]:
    """Make up a patient and the evidence about him."""
    new = cast.names(rng, template.names)
    drawn = rng.integers(1, story.GRADES, (len(template.names), 2)).tolist()
    grades = {
        NamePlace(name, how): grade
        for name, pair in zip(template.names, drawn, strict=True)
        for how, grade in zip(("own", "absent"), pair, strict=True)
    }
    text, similar, topics, *passages = template.fill(new, grades)
    topic = tuple(topics.split("\n"))
    rare = [one.split(" ", 1)[1] for one in topic if one not in demo_belief.knowledge.grades]
    most = int(rng.integers(*SUMMARIES, 2, endpoint=True).min())
    first = rng.random(len(passages)) - [any(name in p for name in rare) and rng.random() < NEEDED for p in passages]
    kept = sorted(np.argsort(first)[:most].tolist())
    evidence = Evidence(tuple(Passage(passages[i], "community", -1, 0.0, i) for i in kept))
    truth = [_grade(one, demo_belief, "\n".join(passages), rng) for one in topic]
    label, alone = demo_belief.knowledge.label_of(max(truth)), rng.random() < ALONE
    reads = replace(
        template.case.reads, similar="" if alone else similar, neighbours=() if alone or not similar else ((similar,),)
    )
    case = replace(
        template.case, sample_id=f"{template.case.sample_id}~{number}", text=text, topics=topic, label=label,
        reads=reads,
    )  # fmt: skip
    return case, evidence


def _grade(topic: str, demo_belief: Belief, text: str, rng: np.random.Generator) -> int:
    """The true grade: known by heart, stated by `text`, or one that no one states."""
    grade = demo_belief.knowledge.grades.get(topic)
    if grade is None:
        grade = reading_of(topic, text).grade
    return int(rng.integers(1, story.GRADES)) if grade is None else grade


def _token_names(records: Records, names: ConceptNames, corpus: KareCorpus) -> list[str]:
    """Names worth a token of their own: the grades, the question, relations, the words of invented names, and the other
    names of the cohort and the graph. A name that is met once cannot be learned, a pair of words that recur can."""
    assert records.world is not None
    grades = [f"grade {g} course" for g in range(story.GRADES)]
    tail = tail_words(records.world.tail)
    codes = [code for code in records.cohort.codes["code"] if not code.startswith(NOT_SHOWN)]
    vocabulary = [names(code) for code in codes] + list(records.primekg.names)
    whole = [name for name in vocabulary if not set(tail).intersection(name.split())]
    return [*grades, records.task.question, *corpus.index.relations, *tail, *whole]
