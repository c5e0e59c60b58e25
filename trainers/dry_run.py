"""A run without a model: replies are a rule's or sketched, and what an engine would read and sample is counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, TypeAlias

import torch

from ghar.config import Config
from ghar.episode import Act, Completion
from ghar.llm.engine import Pair, Request
from ghar.llm.policy import EnginePolicy, Policy
from ghar.trainers.activation_memory import architecture
from ghar.trainers.memory import ModelShape

Ids: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Encoding:
    """Ids of texts. prompt: as the model reads one, in its chat template where it has one; text: of words alone;
    weight: how many tokens an id stands for."""

    prompt: Callable[[str], Ids]
    text: Callable[[str], Ids]
    weight: float = 1.0


class DryRun:
    """Counts what engine hf, or another one, would do with the requests of episodes.

    share: episodes that are played to those that will be in flight, if fewer, for an engine keeps prompts of all.

    calls, prompt, reply: requests, and tokens of their prompts and replies (of one that goes on from a reply, the words
    behind it alone); context: tokens of all prompts whole; fresh: of them those that are read; longest: tokens of the
    longest prompt with the longest reply that it allows; widest: the most requests at once;
    seconds: what counting itself took.
    """

    def __init__(self, config: Config, shape: ModelShape, encoding: Encoding, *, share: float):
        from ghar.llm.kv_cache import KEPT, PrefixStore, windowed

        self.config, self.encoding, self.weight = config, encoding, encoding.weight
        with torch.device("meta"):
            self.kept = config.engine.kind == "hf" and not windowed(architecture(shape.architecture, 2))
        self.store = PrefixStore(round(KEPT / self.weight * share))
        self.calls = 0
        self.prompt = self.context = self.reply = self.fresh = self.seconds = 0.0
        self._written: list[float] = []  # tokens of each free reply
        self._chosen: list[list[float]] = []  # of choices that are sampled together
        self.longest: int | None = None
        self.widest = 0

    def sketched(self) -> Policy:
        """A model that has not learned to answer: it writes half of what it may or more, which cannot be read, and
        chooses by the requests' seeds alone."""
        return EnginePolicy(_Sketch(self), decisions=self.config.env.decisions)

    def following(self, rule: Policy) -> Policy:
        """A model that replies as the rule does."""
        return _CountedRule(rule, self)

    def count(self, requests: Sequence[Request], replies: Sequence[str]) -> list[Completion]:
        """Count requests that an engine gets at once, and their replies as it would return them."""
        start = time.thread_time()
        completions = [self._completion(*pair) for pair in zip(requests, replies, strict=True)]
        sampled = [self._sampled(r, reply) for r, reply in zip(requests, completions, strict=True)]
        for request, reply, tokens in zip(requests, completions, sampled, strict=True):
            before = request.before
            new = len(reply.prompt_ids) - (len(before.prompt_ids) + len(before.token_ids) if before else 0)
            self.calls, self.prompt, self.reply = self.calls + 1, self.prompt + self.weight * new, self.reply + tokens
            self.context += self.weight * len(reply.prompt_ids)
            self.longest = max(self.longest or 0, round(self.weight * len(reply.prompt_ids) + request.max_tokens))
        self.widest = max(self.widest, len(requests))
        self._batches(completions, [bool(request.choices) for request in requests], sampled)
        self.seconds += time.thread_time() - start
        return completions

    def _completion(self, request: Request, text: str) -> Completion:
        before = request.before
        words = self.encoding.text
        asked = self.encoding.prompt(request.prompt) if before is None else (*before.prompt_ids, *before.token_ids)
        return Completion(text, (*asked, *words(request.head)), words(text))

    def _sampled(self, request: Request, reply: Completion) -> float:
        """Tokens that an engine samples: of a choice those that tell it from the others."""
        if not request.choices:
            return max(1.0, min(self.weight * len(reply.token_ids), request.max_tokens))
        alike = 0
        for choice in set(request.choices) - {reply.text}:
            for place, (one, other) in enumerate(zip(reply.token_ids, self.encoding.text(choice), strict=False)):
                if one != other:
                    break
                alike = max(alike, place + 1)
        return max(1.0, min(self.weight * (alike + 1), self.weight * len(reply.token_ids)))

    def passes(self, episodes: int) -> tuple[float, float]:
        """Passes of one token for a batch of replies, and the replies in them, of so many episodes among as many as are
        in flight. Free replies are queued; of choices those that come together are sampled together."""
        from ghar.llm.hf import passes

        most = min(self.config.engine.max_batch, self.config.env.in_flight)
        if self.config.engine.kind != "hf":
            tokens = sum(self._written)
            return tokens / most, tokens
        often = ceil(most / episodes)  # so that a batch is as full as it will be
        steps, rows = passes([round(tokens) for tokens in self._written] * often, most)
        chosen = [passes([round(tokens) for tokens in batch], self.config.engine.max_batch) for batch in self._chosen]
        together = min(1.0, episodes / most) * sum(some for some, _ in chosen)
        return steps / often + together, rows / often + sum(some for _, some in chosen)

    def _batches(self, completions: Sequence[Completion], chosen: Sequence[bool], sampled: Sequence[float]) -> None:
        from ghar.llm.hf import batches
        from ghar.llm.kv_cache import tokens_read

        if self.config.engine.kind != "hf":  # it goes on with other prompts while some are answered
            self.fresh = self.prompt
            self._written += sampled
            return
        sizes = [(len(reply.prompt_ids), one) for reply, one in zip(completions, chosen, strict=True)]
        for batch in batches(sizes, self.config.engine.max_batch):
            self.fresh += self.weight * tokens_read([completions[i].prompt_ids for i in batch], self.store, self.kept)
            for reply in (completions[i] for i in batch if self.kept):
                self.store.add((*reply.prompt_ids, *reply.token_ids[:-1]), [])
            if picked := [sampled[i] for i in batch if chosen[i]]:
                self._chosen.append(picked)
        self._written += [tokens for tokens, one in zip(sampled, chosen, strict=True) if not one]


class _Sketch:
    """An engine without a model."""

    version = -1
    scores = False

    def __init__(self, run: DryRun):
        self.run = run

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return self.run.count(requests, [self._reply(request) for request in requests])

    def _reply(self, request: Request) -> str:
        if not request.choices:
            least = request.max_tokens // 2
            return "so " * (least + request.seed % (request.max_tokens - least + 1))
        return request.choices[request.seed % len(request.choices)]

    def score(self, pairs: Sequence[Pair]) -> list[tuple[float, ...]]:
        raise NotImplementedError("no model, no probabilities")

    def sync(self, model: Any, version: int) -> None:
        self.version = version

    def close(self) -> None:
        pass


class _CountedRule:
    """A rule whose replies are counted as a model's."""

    def __init__(self, rule: Policy, run: DryRun):
        self.rule, self.run = rule, run

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        replies = self.rule.answer(acts, seeds)
        requests = [Request(act.prompt, act.max_tokens, act.choices) for act in acts]
        counted = self.run.count(requests, [reply.text for reply in replies])
        return [
            replace(reply, prompt_ids=ids.prompt_ids, token_ids=ids.token_ids)
            for reply, ids in zip(replies, counted, strict=True)
        ]
