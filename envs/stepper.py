"""What every view plays: episodes of one system, one at a time, paused wherever an agent must act.

The rollout (envs/rollout.py) and the views (gym_view.py, pettingzoo_view.py) run the same generators; here nothing is
batched, and whoever holds the `SteppedEpisode` episode answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ghar.envs.generators import Returned, resume
from ghar.envs.rollout import Corpus, derive_seed
from ghar.envs.system import System, Variant, mark_of
from ghar.episode import (
    Act,
    AuditRecord,
    Completion,
    Episode,
    EpisodeGenerator,
    Evidence,
    Prediction,
    Retrieve,
    Turn,
    read_reply,
)
from ghar.llm.policy import Policy
from ghar.rewards.compose import EpisodeReward

TRIES = 2  # of a retrieval that raises


@dataclass(frozen=True)
class Scene:
    """One system on some patients.

    name: of the system, as in "ghar/NAME-v0". agents, roles: all that its acts can name.
    cases: what `episode` takes; each has a `sample_id`. reward: of a finished episode and its case.
    so_far: where rewards come step by step, what all agents have earned when an act is asked; None: all at the end.
    """

    name: str
    agents: tuple[str, ...]
    roles: tuple[str, ...]
    cases: Sequence[Any]
    episode: Callable[[Any], EpisodeGenerator]
    corpus: Corpus
    reward: Callable[[Episode, Any], EpisodeReward]
    so_far: Callable[[Act], float] | None = None


def scene_of(system: System[Any], variant: str | None = None) -> Scene:
    """What the views play of a system: a variant (its main one) on the training cases."""
    chosen = system.variants[variant or system.main]
    episode = partial(_episode_of, system.episode, chosen)
    return Scene(system.name, system.agents, system.roles, system.cases.train, episode, system.corpus, system.reward)


def _episode_of(episode: Callable[[Any, Variant], EpisodeGenerator], variant: Variant, case: Any) -> EpisodeGenerator:
    return episode(case, variant)


@dataclass(eq=False)
class SteppedEpisode:
    """One episode under way. `acts`: open questions by their place among the effects asked together; while there are
    none, `episode` is the finished one.

    fixed: role -> policy that answers it at once. seed: of those policies' randomness, with sample and turn.
    """

    scene: Scene
    case: Any
    fixed: Mapping[str, Policy] = field(default_factory=dict)
    seed: int = 0
    acts: dict[int, Act] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    trace: list[AuditRecord] = field(default_factory=list)
    episode: Episode | None = None
    _effects: tuple[Any, ...] = ()
    _results: dict[int, Any] = field(default_factory=dict)
    _single: bool = True

    def __post_init__(self) -> None:
        self._generator = self.scene.episode(self.case)
        self._resume(None)
        self._settle()

    def waiting(self) -> list[tuple[str, int]]:
        """(agent, place) of the open questions, in order; none when the episode has ended."""
        return [(act.agent, place) for place, act in self.acts.items()]

    def answer(self, place: int, completion: Completion) -> None:
        """Give the reply to `acts[place]` and run on to the next question or the end."""
        self._reply(place, completion)
        self._settle()

    def _reply(self, place: int, completion: Completion) -> None:
        turn, self._results[place] = read_reply(self.acts.pop(place), completion, len(self.turns))
        self.turns.append(turn)

    def _settle(self) -> None:
        """Answer what needs no one outside, until somebody is needed or the episode has ended."""
        while self.episode is None:
            for place in [place for place, act in self.acts.items() if act.role in self.fixed]:
                act = self.acts[place]
                own_seed = derive_seed(self.seed, self.case.sample_id, 0, len(self.turns), place)
                self._reply(place, self.fixed[act.role].answer([act], [own_seed])[0])
            if self.acts:
                return
            results = tuple(self._results[i] for i in range(len(self._effects)))
            self.trace += [AuditRecord(effect, result) for effect, result in zip(self._effects, results, strict=True)]
            self._resume(results[0] if self._single else results)

    def _resume(self, value: object) -> None:
        effect = resume(self._generator, value)
        if isinstance(effect, Returned):
            self._end(effect.value)
            return
        self._single = not isinstance(effect, tuple)
        self._effects = (effect,) if self._single else effect
        self._results = {}
        self.acts = {i: e for i, e in enumerate(self._effects) if isinstance(e, Act)}
        lookups = [i for i, e in enumerate(self._effects) if isinstance(e, Retrieve)]
        if len(self.acts) + len(lookups) < len(self._effects):
            raise TypeError(f"episode {self.case.sample_id} yielded {effect!r}, which holds no Act and no Retrieve")
        if lookups:
            self._look_up(lookups)

    def _look_up(self, places: list[int]) -> None:
        requests = [replace(self._effects[i], credentialed=mark_of(self.case)) for i in places]
        for tried in range(1, TRIES + 1):
            try:
                evidence: list[Evidence] = self.scene.corpus.retrieve(requests)
            except Exception as error:  # as in the rollout: a typed failure of the episode, never shown to a policy
                if tried == TRIES:
                    self._end(Prediction(None), failure=f"retrieval: {type(error).__name__}: {error}")
            else:
                self._results |= dict(zip(places, evidence, strict=True))
                return

    def _end(self, prediction: Prediction, failure: str | None = None) -> None:
        self._generator.close()
        self.acts = {}
        turns, trace = tuple(self.turns), tuple(self.trace)
        self.episode = Episode(self.case.sample_id, 0, prediction, turns, trace, failure)


def transcript(paused: SteppedEpisode) -> str:
    """The episode so far as a reader wants it: who was asked what and said what, and what was found."""
    lines = [f"== {paused.scene.name}, {paused.case.sample_id} =="]
    for record in paused.trace:
        if isinstance(record.effect, Act):
            lines += [_asked(record.effect), f"    > {_indented(record.result.text)}"]
        else:
            assert isinstance(record.result, Evidence)
            passages = [f"    {_indented(passage.text)}" for passage in record.result.passages] or ["    (nothing)"]
            where = "all" if record.effect.partitions is None else record.effect.partitions
            lines += [f"[retrieve] {_indented(record.effect.query)} in {where}", *passages]
    lines += [f"{_asked(act)}\n    ?" for act in paused.acts.values()]
    if paused.episode is not None:
        end = paused.episode.failure or f"prediction {paused.episode.prediction.label}"
        lines.append(f"== {end} ==")
    return "\n".join(lines)


def _asked(act: Act) -> str:
    choices = f" ({' | '.join(act.choices)})" if act.choices else ""
    return f"[{act.agent}: {act.role}]{choices}\n    {_indented(act.prompt)}"


def _indented(text: str) -> str:
    return "\n    ".join(text.splitlines())  # whatever a reply takes for the end of a line
