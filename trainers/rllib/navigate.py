"""The navigation game of a study, and what the rules by hand reach in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from envs.case import Case
from envs.demo import ghar_scene
from envs.ghar.knowledge import NO_ERROR, exact_knowledge
from envs.ghar.navigation import Chart, NavigationGame, Words, navigation
from envs.ghar.navigator import Navigator, Rule, rules
from ghar.llm.policy import Policy
from rewards.compose import score_episode
from trainers.demo import teacher_knowledge
from trainers.play import play
from trainers.study import Study

AGENTS = ("top", "low")


def chart_of(study: Study) -> Chart:
    """What observations are made from: the truth of a generated world; of real patients, what training labels tell."""
    env, config = study.config.env, study.config
    if study.world is None:
        knowledge = teacher_knowledge(study, study.cases(study.splits.train, None))
    else:
        knowledge = exact_knowledge(study.world, study.names, config.task.name)
    return Chart(knowledge, env.max_iterations, env.max_paths, len(study.episodes.metapaths))


def game_of(study: Study, chart: Chart, cases: Sequence[Case]) -> NavigationGame:
    """Both agents decide, on `cases`."""
    scene = ghar_scene(study.episodes, study.retriever, cases, study.rewards)
    return navigation(scene, chart.knowledge, chart, AGENTS)


def navigator(chart: Chart, decide: Rule) -> Navigator:
    """The policy that decides by `decide` and speaks by the teacher's rules."""
    return Navigator(chart, decide, Words(chart.knowledge, NO_ERROR), AGENTS)


def best_rule(study: Study, chart: Chart, cases: Sequence[Case]) -> tuple[Rule, float]:
    """The scripted optimum, as the mean reward of every rule on `cases` tells it, and that reward."""
    found = [(reward(study, cases, navigator(chart, rule)), rule) for rule in rules(chart, study.episodes.metapaths)]
    best, rule = max(found, key=lambda pair: pair[0])
    return rule, best


def reward(study: Study, cases: Sequence[Case], policy: Policy) -> float:
    """Mean R_all of a policy on `cases`, without R_rank."""
    episodes = play(study, cases, policy, seed=study.config.seed, title="Playing")
    totals = [score_episode(e, c.label, study.rewards).total for e, c in zip(episodes, cases, strict=True)]
    return float(np.mean(totals))
