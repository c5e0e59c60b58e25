"""Engine `hf`: batched sampling with a transformers model in this process.

Behaviour log-probabilities equal what the trainer recomputes, because both see the same ids, temperature and
choices. Draws come from a generator of the request alone (its seed), so a reply does not depend on what else is
in the batch, up to float rounding of the logits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ghar.episode import Completion
from ghar.heap import trim
from ghar.llm import canary
from ghar.llm.engine import Pair, Request, check_pairs
from ghar.llm.kv_cache import BatchCache, PrefixStore, grouped_heads, read_prompts
from ghar.llm.model_facts import facts_of
from ghar.llm.partial_reply import PartialReply
from ghar.llm.sampling import draw, draw_among
from ghar.llm.tokens import Tokenizer, encode_requests, encode_restriction
from ghar.llm.tree_scores import can_share, score_trees

KEEP_ROWS = 0.5  # share of a batch's rows below which those that are done are dropped; dropping copies the others
JOIN = 0.25  # share of the replies under way from which waiting ones begin beside them
PADDED = 2.0  # columns of a batch to its prompts' tokens at most


def batches(rows: Sequence[tuple[int, bool]], most: int) -> Iterator[list[int]]:
    """Which rows are sampled together, at most so many: those of similar length, so that little is padded; choices
    end early and go together. rows: of each the tokens of its prompt, and whether its reply is one of several."""
    batch: list[int] = []
    tokens = longest = 0
    for i in sorted(range(len(rows)), key=lambda i: (rows[i][1], rows[i][0])):
        length = rows[i][0]
        columns = (len(batch) + 1) * max(longest, length)
        if batch and (len(batch) >= most or columns > PADDED * (tokens + length)):
            yield batch
            batch, tokens, longest = [], 0, 0
        batch.append(i)
        tokens, longest = tokens + length, max(longest, length)
    if batch:
        yield batch


def passes(sampled: Sequence[int], most: int) -> tuple[float, float]:
    """How many passes of one token replies take behind their prompts, and the rows of these passes, when at most so
    many are under way and the others wait for their turn; sampled: tokens of each, in the order in which they come.

    Where some wait, the last ones are counted as if others waited behind them.
    """
    waiting, live = deque(sampled), [0] * 0
    steps = rows = 0
    while True:
        going = [tokens for tokens in live if tokens]
        begin = min(most - len(going), len(waiting))
        if begin and begin >= JOIN * len(going):
            live = going + [waiting.popleft() for _ in range(begin)]
        if not waiting and (not any(live) or len(sampled) > most):
            break
        live = [max(0, tokens - 1) for tokens in live]
        going = [tokens for tokens in live if tokens]
        if len(going) <= KEEP_ROWS * len(live):
            live = going
        steps, rows = steps + bool(live), rows + len(live)
    done = sum(sampled) - sum(live)
    share = sum(sampled) / done if done else 1.0
    return share * steps, share * rows


@dataclass(eq=False, kw_only=True)
class _Row(PartialReply):
    """One request on its way. finish: how its reply ended; done: of a queued one, who is called then."""

    draws: np.ndarray
    finish: str | None = None
    done: Callable[[Completion], None] | None = None


@dataclass(eq=False)
class _Batch:
    """Rows that grow together. positions: int64 [rows, 1], of the next token; logits: what it is sampled from."""

    rows: list[_Row]
    cache: BatchCache
    positions: torch.Tensor
    logits: torch.Tensor

    def going(self) -> list[int]:
        """Places of the rows that are not done."""
        return [i for i, row in enumerate(self.rows) if row.finish is None]

    def keep(self, places: list[int]) -> None:
        """Drop all other rows."""
        self.cache.keep(places)
        self._take(places)

    def join(self, other: _Batch) -> None:
        """Go on with the rows that are not done, and with those of `other`."""
        going = self.going()
        self.cache.join(going, other.cache)
        self._take(going)
        self.rows += other.rows
        self.positions = torch.cat([self.positions, other.positions])
        self.logits = torch.cat([self.logits, other.logits])

    def fits(self, lengths: Sequence[int]) -> bool:
        """Whether prompts of these lengths can join without more padding than `PADDED`."""
        going = self.going()
        tokens = [self.cache.columns - self.cache.starts[i] for i in going] + list(lengths)
        return len(tokens) * max(tokens) <= PADDED * sum(tokens)

    def _take(self, places: list[int]) -> None:
        index = torch.tensor(places, device=self.positions.device)
        self.rows = [self.rows[i] for i in places]
        self.positions, self.logits = self.positions[index], self.logits[index]


class HFEngine:
    """Samples from `model` (a causal language model of transformers) in batches of at most `max_batch` prompts.

    The model object may be trained between calls; `sync` tells the engine of another one, or of other weights.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, max_batch: int = 64):
        self.model = model
        self.tokenizer = tokenizer
        self.max_batch = max_batch
        self.version = -1
        self._ends = frozenset(facts_of(tokenizer).ends)
        self._pad: int = tokenizer.pad_token_id or 0
        self._store = PrefixStore()
        self._seen: tuple[tuple[int, int, int], ...] = ()
        self._canary = canary.Canary()
        self._new: list[tuple[Request, Callable[[Completion], None]]] = []
        self._waiting: list[_Row] = []
        self._live: _Batch | None = None

    def sync(self, model: Any, version: int) -> None:
        """Sample from `model` itself: nothing is copied, so there is nothing that could be stale."""
        self.model, self.version = model, version
        self.forget()

    def probe(self, ids: Sequence[int]) -> canary.EngineProbe:
        """What the canary compares: a text as this engine scores it."""
        return canary.EngineProbe(tuple(ids), self.score([(ids[:1], ids[1:])])[0], ())

    def judge(self, expected: canary.TrainerScores) -> float:
        """How far the engine is from what a trainer expects, in nats; see `Canary.judge`."""
        try:
            return self._canary.judge(expected, self.probe(expected.ids))
        except canary.WrongWeights:
            self.version = -1
            raise

    def forget(self) -> None:
        """Give back the memory of what was read, before the model is trained."""
        if self._store.tokens:
            self._store.clear()
            trim()

    def close(self) -> None:
        """Give memory back; the model is the owner's."""
        self.forget()

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Replies in the order of `requests`."""
        prompts = encode_requests(self.tokenizer, requests)
        rows = [self._row(r, ids) for r, ids in zip(requests, prompts, strict=True)]
        with self._answering():
            for batch in batches([(len(row.prompt_ids), bool(row.choice_ids)) for row in rows], self.max_batch):
                self._generate_batch([rows[i] for i in batch])
        return [row.completion(self.tokenizer, row.finish or "length", self.version) for row in rows]

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """The model as it is played. What was kept of other weights, or of these before a step, is dropped."""
        now = tuple((id(p), p.data_ptr(), p._version) for p in self.model.parameters())
        if now != self._seen:
            self._store.clear()
            self._seen = now
        training = self.model.training
        switched = any(part.training for part in self.model.modules())  # looked for: switching takes longer
        if switched:
            self.model.eval()
        try:
            with grouped_heads(self.model):
                yield
        finally:
            if switched:
                self.model.train(training)

    @torch.inference_mode()
    def score(self, pairs: Sequence[Pair]) -> list[tuple[float, ...]]:
        """Log-probabilities of each pair's second part (see `Engine.score`); pairs of one context in one pass."""
        check_pairs(pairs)
        shared: dict[tuple[int, ...], list[int]] = {}
        for i, (context, _) in enumerate(pairs):
            shared.setdefault(tuple(context), []).append(i)
        several = {context: of for context, of in shared.items() if len(of) > 1 and len(context) > 1}
        if not can_share(self.model):
            several = {}
        alone = sorted({*range(len(pairs))} - {i for of in several.values() for i in of},
                       key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))  # fmt: skip
        all_scores: dict[int, tuple[float, ...]] = {}
        with self._answering():
            for start in range(0, len(alone), self.max_batch):
                part = alone[start : start + self.max_batch]
                all_scores |= zip(part, self._score_batch([pairs[i] for i in part]), strict=True)
            targets = [[tuple(pairs[i][1]) for i in of] for of in several.values()]
            scores = score_trees(self.model, list(several), targets, self.max_batch, self._pad, self._store)
            for of, some in zip(several.values(), scores, strict=True):
                all_scores |= zip(of, some, strict=True)
        return [all_scores[i] for i in range(len(pairs))]

    def _score_batch(self, pairs: Sequence[Pair]) -> list[tuple[float, ...]]:
        """Padded on the left, so that all targets end together and only their logits are computed."""
        whole = [[*context, *target] for context, target in pairs]
        width, longest = max(map(len, whole)), max(len(target) for _, target in pairs)
        pad, device = self.tokenizer.pad_token_id, self.model.device
        ids = torch.tensor([[pad] * (width - len(row)) + row for row in whole], device=device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in whole], device=device)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        out = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False, logits_to_keep=longest + 1
        )
        logp = out.logits[:, :-1].float().log_softmax(-1)
        picked = logp.gather(2, ids[:, width - longest :, None]).squeeze(2).cpu()
        return [tuple(row[longest - len(t) :].tolist()) for row, (_, t) in zip(picked, pairs, strict=True)]

    def _row(self, request: Request, prompt_ids: Sequence[int]) -> _Row:
        choice_ids, tree = encode_restriction(self.tokenizer, request)
        longest = tree.longest if tree else max(map(len, choice_ids), default=request.max_tokens)
        draws = np.random.Generator(np.random.Philox(request.seed)).random(longest)
        return _Row(request, tuple(prompt_ids), choice_ids, tree=tree, draws=draws)

    def _generate_batch(self, rows: list[_Row]) -> None:
        """One reply a row, token by token."""
        batch = self._begin(rows)
        while batch.rows:
            self._grow(batch)

    def _begin(self, rows: list[_Row]) -> _Batch:
        """Read the prompts of `rows`."""
        cache, logits = read_prompts(self.model, [row.prompt_ids for row in rows], self._pad, self._store)
        positions = torch.tensor([[len(row.prompt_ids)] for row in rows], device=self.model.device)
        return _Batch(list(rows), cache, positions, logits)

    def _grow(self, batch: _Batch) -> list[_Row]:
        """Sample a token for each row, and return the rows that are done with it. These go on unread until half of the
        rows are done; a batch of which all are has no rows any more."""
        going, rows = batch.going(), batch.rows
        self._sample([rows[i] for i in going], batch.logits if len(going) == len(rows) else batch.logits[going])
        left = batch.going()
        ended = [rows[i] for i in going if rows[i].finish is not None]
        for i in set(going) - set(left):
            self._remember(rows[i], batch.cache, i)
        if not left:
            batch.rows = []
            return ended
        if len(left) <= KEEP_ROWS * len(rows):
            batch.keep(left)
        cache = batch.cache
        ids = torch.tensor([[row.token_ids[-1]] for row in batch.rows], device=self.model.device)
        cache.mask = torch.cat([cache.mask, cache.mask.new_ones(len(batch.rows), 1)], dim=1)
        how = {"attention_mask": cache.mask, "position_ids": batch.positions, "past_key_values": cache.cache}
        batch.logits = self.model(input_ids=ids, **how, use_cache=True, logits_to_keep=1).logits[:, -1]
        batch.positions = batch.positions + 1
        return ended

    def submit(self, request: Request, done: Callable[[Completion], None]) -> None:
        """Queue a request (see `StreamingEngine`)."""
        self._new.append((request, done))

    def step(self) -> None:
        """Answer the queued choices, or grow the replies under way until one is whole."""
        self._encode()
        for row in self._work():
            assert row.done is not None
            row.done(row.completion(self.tokenizer, row.finish or "length", self.version))

    @torch.inference_mode()
    def _work(self) -> list[_Row]:
        """Rows that are done, by the least that ends one.

        Those that wait begin together, once they are a share of those under way (`JOIN`): to take rows in copies the
        keys and values of all others. A choice is short, so choices are answered apart from those."""
        ended: list[_Row] = []
        with self._answering():
            if rows := self._due([row for row in self._waiting if row.choice_ids]):
                for places in batches([(len(row.prompt_ids), True) for row in rows], self.max_batch):
                    self._generate_batch([rows[i] for i in places])
                return rows
            self._admit()
            while self._live is not None and not ended:
                ended = self._grow(self._live)
                if not self._live.rows:
                    self._live = None
        return ended

    def cancel(self) -> None:
        """Forget every open request."""
        self._new, self._waiting, self._live = [], [], None

    def _encode(self) -> None:
        new, self._new = self._new, []
        prompts = encode_requests(self.tokenizer, [request for request, _ in new])
        for (request, done), ids in zip(new, prompts, strict=True):
            row = self._row(request, ids)
            row.done = done
            self._waiting.append(row)

    def _due(self, rows: list[_Row]) -> list[_Row]:
        """`rows`, which wait no longer where they are enough; else none of them."""
        live = len(self._live.going()) if self._live is not None else 0
        if not rows or len(rows) < JOIN * live:
            return []
        taken = set(map(id, rows))
        self._waiting = [row for row in self._waiting if id(row) not in taken]
        return rows

    def _admit(self) -> None:
        """Begin with rows that wait, as far as they fit."""
        live = self._live
        room = self.max_batch - (len(live.going()) if live else 0)
        waiting = [row for row in self._waiting if not row.choice_ids][: max(0, room)]
        lengths = [(len(row.prompt_ids), False) for row in waiting]
        # with the one that has waited longest
        some = next(([waiting[i] for i in of] for of in batches(lengths, self.max_batch) if 0 in of), [])
        if not some or (live and not live.fits([len(row.prompt_ids) for row in some])):
            return
        if rows := self._due(some):
            began = self._begin(rows)
            if live:
                live.join(began)
            else:
                self._live = began

    def _remember(self, row: _Row, cache: BatchCache, place: int) -> None:
        """Keep what was read of a finished row, for prompts that begin alike or go on from it."""
        ids = (*row.prompt_ids, *row.token_ids)[: cache.columns - cache.starts[place]]
        self._store.add(ids, cache.row(place, len(ids)))

    def _sample(self, rows: list[_Row], logits: torch.Tensor) -> None:
        """Draw one token a row by inverting the distribution's cumulative sum."""
        allowed = [r.allowed(r.token_ids) if r.choice_ids else () for r in rows]
        free = [i for i, some in enumerate(allowed) if not some]
        bound = [i for i, some in enumerate(allowed) if some]
        temperatures = torch.tensor([r.request.temperature for r in rows], dtype=torch.float64)
        draws = torch.tensor([r.draws[len(r.token_ids)] for r in rows], dtype=torch.float64)
        if free:
            some = logits if not bound else logits[free]
            self._take([rows[i] for i in free], draw(some, temperatures[free], draws[free]))
        if bound:
            sample = draw_among(logits[bound], [allowed[i] for i in bound], temperatures[bound], draws[bound])
            self._take([rows[i] for i in bound], sample)

    def _take(self, rows: Sequence[_Row], sample: tuple[torch.Tensor, torch.Tensor]) -> None:
        for row, token, logp in zip(rows, sample[0].tolist(), sample[1].tolist(), strict=True):
            row.token_ids.append(token)
            row.logprobs.append(logp)
            self._advance(row)

    def _advance(self, row: _Row) -> None:
        if row.choice_ids:
            # once one choice is left, the rest of it costs no forward pass: its log-probability is 0
            reply = list(row.token_ids)
            while len(allowed := row.allowed(reply)) == 1:
                reply.append(allowed[0])
            if not allowed:
                row.logprobs += [0.0] * (len(reply) - len(row.token_ids))
                row.token_ids, row.finish = reply, "stop"
        elif row.token_ids[-1] in self._ends:
            row.finish = "stop"
        elif len(row.token_ids) >= row.request.max_tokens:
            row.finish = "length"
