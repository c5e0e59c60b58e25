"""GHAR on generated patients, as `gymnasium.make("ghar/GHAR-v0")` plays it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from ghar.data.tasks.stays import make_samples
from ghar.disk import cache_of
from ghar.envs.case import Case, build_cases
from ghar.envs.demo import ETA, PATIENTS, WORDS, demo_cohort
from ghar.envs.ghar.episode import AGENTS, ROLES, GharEpisodes, GharSpec
from ghar.envs.ghar.teacher import Knowledge
from ghar.envs.rollout import Corpus
from ghar.envs.stepper import Scene
from ghar.envs.system import words
from ghar.envs.worlds.severity_grades import exact_knowledge
from ghar.episode import Episode
from ghar.kg.linking import link_codes
from ghar.kg.metapaths import metapaths
from ghar.kg.primekg import open_primekg
from ghar.retrieval.build import build_retriever
from ghar.rewards.compose import EpisodeReward, RewardSpec, score_episode

SPEC = GharSpec("compact", rewrites=3, max_iterations=4, max_paths=3, top_n=2, ablation="none")
REWARDS = RewardSpec(ETA, 0.2, 3, "range", "sound", "shared", SPEC.max_iterations, SPEC.max_paths)


def ghar_scene(episodes: GharEpisodes, corpus: Corpus, cases: Sequence[Case], rewards: RewardSpec) -> Scene:
    """GHAR's episode on `cases`, rewarded without R_rank (which needs a warm-up's references)."""
    return Scene("GHAR", AGENTS, ROLES, cases, episodes.episode, corpus, partial(_reward, rewards))


def _reward(rewards: RewardSpec, episode: Episode, case: Any) -> EpisodeReward:
    return score_episode(episode, case.label, rewards)


@cache
def demo_scene(folder: str | None = None, patients: int = PATIENTS) -> tuple[Scene, Knowledge]:
    """GHAR on the length of stay of `patients` generated ones, and what is true about them; made once a process.

    The world is kept under `folder`, by default where runs look for theirs too.
    """
    world, cohort = demo_cohort(folder, patients)
    task, samples = make_samples(cohort, "los")
    graph = open_primekg(world.root / "kg" / "kg.csv.gz", cache_of(folder) / "graphs")
    links = link_codes(cohort.codes, graph, world.root / "kg" / "mondo_references.csv.gz")
    names = links.respelled(cohort.names(), graph)
    cases = build_cases(samples, task, names, style="compact", budget=WORDS, count=words)
    corpus = build_retriever(graph, "tfidf", cache=cache_of(folder) / "indexes")
    scene = ghar_scene(GharEpisodes(SPEC, metapaths(graph)), corpus, cases, REWARDS)
    return scene, exact_knowledge(world, names, task.name)
