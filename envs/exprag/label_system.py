"""The system that asks for a label, of visits (labels.py) or of an examination (exam.py): what both have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ghar.data.readers.notes import Notes
from ghar.data.tasks.splits import Splits
from ghar.envs.case import Case
from ghar.envs.exprag.baselines import RightReply, label_pairs, right_label
from ghar.envs.exprag.episode import ExpragSpec, play_exprag, shows
from ghar.envs.exprag.label_episode import LABEL_ROLES, LabelEpisodes
from ghar.envs.exprag.report_corpus import ReportCorpus
from ghar.envs.exprag.rows import label_row
from ghar.envs.exprag.settings import Settings
from ghar.envs.exprag.variants import LABELS, LISTED, MAIN, PAIRS, RULE, prompts_of, spec_of, variants
from ghar.envs.records import Records
from ghar.envs.system import WORDS, DemoPretraining, Reader, Reporting, SftExamples, System, Training, Variant
from ghar.episode import Act, Episode
from ghar.errors import BadInput
from ghar.llm.policy import FunctionPolicy
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import score_outcome


@dataclass(frozen=True)
class Experience:
    """What a label's own room knows of it.

    corpus: of experience, `noun` in the report's counts. cases: cut to what a reader takes. rule: answers without a
    language model. sources: texts that the experience is made of. episodes: makes them, of a spec. reply: the right
    one. row: what an episode adds to a report. practice: of the demo's base model, on cases and their episodes.
    """

    corpus: ReportCorpus
    noun: str
    cases: Callable[[Reader], Splits[Any]]
    rule: Callable[[Act], str]
    sources: tuple[Notes, ...] = ()
    episodes: Callable[[ExpragSpec], LabelEpisodes] = LabelEpisodes
    reply: RightReply = right_label
    row: Callable[[Episode, Any, Variant], dict[str, Any]] = label_row
    practice: Callable[[Sequence[Case[None]], LabelEpisodes], DemoPretraining] | None = None


def build_label_system(records: Records, settings: Settings, experience: Experience) -> System[Any]:
    """EXPRAG over some experience. BadInput for settings that labels know nothing of."""
    config, corpus, cases = records.config, experience.corpus, experience.cases(WORDS)
    played = variants(spec_of(config, settings), experience.episodes)
    rule, practice = partial(FunctionPolicy, experience.rule), experience.practice
    read = {name: number for notes in experience.sources for name, number in notes.counts.items()}
    made: System[Any] = System(
        name="exprag",
        task=records.task,
        agents=("top",),
        roles=LABEL_ROLES,
        cases=cases,
        episode=play_exprag,
        corpus=corpus,
        reward=partial(_reward, config.reward.eta),
        variants=played,
        main=MAIN,
        read_by=lambda reader: replace(made, cases=experience.cases(reader)),
        fixed={RULE: rule},
        origin=records.provenance(*experience.sources),
        training=Training(
            teacher=RULE,
            stages={LABELS: partial(_label_pairs, experience, played[LABELS], settings.label_epochs)},
            pretraining=None if practice is None else practice(cases.train, played[MAIN].spec),
            texts=lambda: prompts_of(cases.train, played[MAIN], corpus, rule(), config),
        ),
        report=Reporting(
            listed=LISTED,
            row=experience.row,
            shows=shows,
            counts=records.counts() | {f"{experience.noun} that are experience": len(corpus.index), **read},
            comparisons=PAIRS,
        ),
    )
    return made


def check_label_settings(settings: Settings, task: str) -> None:
    """BadInput for what only DischargeQA's questions have."""
    other = f"task={task} asks for a label"
    if settings.retriever == "flare":
        raise BadInput(f"system.retriever=flare looks up while an answer is written, but {other}: choose another.")
    if settings.ranker in ("task_focused", "complementary"):
        raise BadInput(f"system.ranker={settings.ranker} weighs what a question is about, but {other}: choose another.")
    if settings.judged:
        raise BadInput(f"system.judged={settings.judged} compares rankers on DischargeQA, but {other}: set it to 0.")


def _label_pairs(experience: Experience, alone: Variant, epochs: int, reader: Reader) -> SftExamples:
    return label_pairs(alone.spec.episode, experience.cases(reader), experience.reply, epochs)


def _reward(eta: float, episode: Episode, case: Any) -> EpisodeReward:
    return score_outcome(episode, case.label, eta)
