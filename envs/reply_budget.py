"""Reply budgets of a run: env.reply_tokens in place of the numbers in prompt files, for the acts of any system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ghar.envs.generators import change_acts
from ghar.episode import Act, EpisodeGenerator

Play = Callable[..., EpisodeGenerator]


def with_budgets(episode: Play, budgets: Mapping[str, int]) -> Play:
    """Return a function that makes the same episodes, whose acts of a role in `budgets` may have so many tokens."""
    return partial(_budgeted, episode, dict(budgets)) if budgets else episode


def _budgeted(episode: Play, budgets: Mapping[str, int], *arguments: Any) -> EpisodeGenerator:
    def limit(act: Act) -> Act:
        return replace(act, max_tokens=budgets[act.role]) if act.role in budgets else act

    return change_acts(episode(*arguments), limit)
