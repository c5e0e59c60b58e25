"""A few episodes played before a run starts, and what they count: by the system's rule where it teaches, else by a
sketch of a model (trainers/dry_run.py)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ghar.config import Config
from ghar.envs.play import play, stage_of
from ghar.envs.system import WORDS, Reader, System, Variant
from ghar.episode import Episode
from ghar.llm.policy import Policy
from ghar.trainers.dry_run import DryRun, Encoding, Ids
from ghar.trainers.memory import ModelShape
from ghar.trainers.pass_sizes import row_of
from ghar.trainers.rl.trajectory import Row
from ghar.trainers.stages import evaluated_variants

PROBED, PROBED_VARIANT = 24, 8  # episodes: of what the teacher plays, and of a variant with weights of its own
TOKENS_A_WORD = 1.5  # where there is no tokenizer yet


@dataclass(frozen=True)
class EpisodeCounts:
    """Of an episode, on average: calls of the model, tokens of their prompts and replies, and seconds besides.

    steps, rows: passes of one token for a batch of replies, an episode's share of them, and the replies in these
    passes; fresh: the share of the prompts' tokens that an engine reads, the rest being kept from other prompts;
    longest: tokens of the longest prompt of all with the longest reply that it allows, None where it was not counted;
    context: tokens of a call's prompt, with the reply that it goes on from, None where they are prompt / calls;
    texts: prompts and replies of each episode of the probe; at_once: requests that an episode waits for together; sft,
    rl, before: tokens of its rows in the passes of SFT, of RL and of RL's log-probabilities, those that rows share
    once, None where they are its `tokens`; scored: prompts besides, which the corpus has the model read
    (`System.corpus_prompts`).
    """

    calls: float
    prompt: float
    reply: float
    seconds: float
    steps: float
    rows: float
    fresh: float = 1.0
    longest: int | None = None
    context: float | None = None
    texts: tuple[tuple[Row, ...], ...] = field(default=(), repr=False)
    at_once: float = 1.0
    sft: float | None = None
    rl: float | None = None
    before: float | None = None
    scored: float = 0.0

    @property
    def tokens(self) -> float:
        return self.prompt + self.reply

    @property
    def call(self) -> float:
        """Tokens of a call's whole prompt and its reply."""
        return self.asked + self.reply / max(self.calls, 1)

    @property
    def asked(self) -> float:
        """Tokens of a call's whole prompt."""
        return self.prompt / max(self.calls, 1) if self.context is None else self.context


def probe_variants(system: System[Any], config: Config, shape: ModelShape) -> dict[str, EpisodeCounts]:
    """Count the episodes of evaluated variants with weights of their own (`Training.stages`), which play otherwise."""
    own = [variant for variant in evaluated_variants(system, config) if variant.who in system.training.stages]
    return {variant.name: _count(system, variant, config, shape, PROBED_VARIANT) for variant in own}


def probe(system: System[Any], config: Config, shape: ModelShape) -> EpisodeCounts:
    """Play a few training cases and count: by the system's rule where it teaches, else by a sketch of a model."""
    teacher = system.training.teacher if config.trainer.warmup.teacher == "scripted" else None
    return _count(system, system.teacher_variant(), config, shape, PROBED, teacher)


def _count(
    system: System[Any], variant: Variant, config: Config, shape: ModelShape, most: int, rule: str | None = None
) -> EpisodeCounts:
    """Play at most so many training cases and count. rule: a policy of `System.fixed`; None is a sketch of a model."""
    cases, stage = system.cases.train, stage_of(system, variant, config)
    chosen = [cases[i] for i in np.linspace(0, len(cases) - 1, min(most, len(cases))).astype(int)]
    share = min(1.0, len(chosen) / config.env.in_flight)

    def played(some: Sequence[Any]) -> tuple[DryRun, list[Episode]]:
        run = DryRun(config, shape, encoding_of(config), share=share)
        policy: Policy = run.following(system.fixed[rule]()) if rule else run.sketched()
        episodes: list[Episode] = []
        taken = timed(lambda: episodes.extend(play(stage, some, policy, seed=config.seed, title="Probe")))
        run.seconds = max(0.0, taken - run.seconds)
        return run, episodes

    played(chosen[:1])  # what is read or built at the first retrieval
    run, episodes = played(chosen)
    calls, read, sampled, fresh, steps, rows, seconds = (
        n / len(chosen)
        for n in (run.calls, run.prompt, run.reply, run.fresh, *run.passes(len(chosen)), run.seconds)
    )
    share_read, context = (fresh / read if read else 1.0), run.context / max(run.calls, 1)
    return EpisodeCounts(
        calls, read, sampled, seconds, steps, rows, share_read, run.longest, context,
        texts=tuple(_texts(episode, run.weight) for episode in episodes),
        at_once=run.widest / min(len(chosen), config.env.in_flight),
    )  # fmt: skip


def _texts(episode: Episode, weight: float) -> tuple[Row, ...]:
    """An episode's prompts with their replies, as they are trained on."""
    parts = (part for turn in episode.turns for part in turn.completion.parts)
    return tuple(row_of(part.prompt_ids, part.token_ids, weight) for part in parts if part.token_ids)


def tokenizer_of(config: Config) -> Any:
    """The model's own tokenizer, its chat template frozen; None where it has none yet."""
    if config.model.kind != "pretrained":
        return None
    from transformers import AutoTokenizer

    from ghar.llm.chat_template import freeze
    from ghar.llm.models import model_path

    path, tokenizer = model_path(config), None
    with suppress(OSError, ValueError):
        tokenizer = AutoTokenizer.from_pretrained(path)
    if tokenizer is not None:
        freeze(tokenizer, config.model.template_arguments, config.model.system_message, path)
    return tokenizer


def reader_without_weights(config: Config, shape: ModelShape) -> Reader:
    """Who will read the system's prompts, which are cut by it: the model's tokenizer where it has one already."""
    from ghar.trainers.base import TokenCount

    tokenizer = tokenizer_of(config)
    return WORDS if tokenizer is None else Reader(TokenCount(tokenizer), shape.reach, None, tokenizer)


def encoding_of(config: Config) -> Encoding:
    """Ids by the model's own tokenizer, its chat template included, where it has one already; else of words."""
    if (tokenizer := tokenizer_of(config)) is not None:
        from ghar.llm.tokens import encode_prompt

        return Encoding(
            lambda text: tuple(encode_prompt(tokenizer, text)),
            lambda text: tuple(tokenizer.encode(text, add_special_tokens=False)),
        )
    numbers: dict[str, int] = {}

    def words(text: str) -> Ids:
        return tuple(numbers.setdefault(word, len(numbers)) for word in text.split())

    return Encoding(words, words, TOKENS_A_WORD)


def timed(work: Callable[[], Any]) -> float:
    """Seconds; on a CPU those that it worked, where others hold it the rest of the time."""
    start, worked = time.perf_counter(), time.process_time()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter() - start
    return min(time.perf_counter() - start, time.process_time() - worked)
