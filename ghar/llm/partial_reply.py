"""A request on its way: what an engine has sampled so far, and the completion that becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ghar.episode import Completion
from ghar.llm.constraint import ListTree, allowed_tokens
from ghar.llm.engine import Request
from ghar.llm.model_facts import facts_of
from ghar.llm.tokens import Tokenizer
from ghar.sanitize import count_marks


@dataclass(eq=False)
class PartialReply:
    """choice_ids: the token sequences the reply is restricted to, empty when free; tree: where it lists several."""

    request: Request
    prompt_ids: tuple[int, ...]
    choice_ids: tuple[tuple[int, ...], ...]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    tree: ListTree | None = None

    def allowed(self, reply: Sequence[int]) -> tuple[int, ...]:
        """Ids that may follow in a restricted reply, empty where it is whole."""
        return allowed_tokens(self.choice_ids, reply) if self.tree is None else self.tree.allowed(reply)

    def completion(self, tokenizer: Tokenizer, finish: str, version: int) -> Completion:
        """The reply as it stands, by weights number `version`."""
        ended = bool(self.token_ids) and self.token_ids[-1] in facts_of(tokenizer).ends
        ids = self.token_ids[:-1] if ended else self.token_ids  # some families' end is no special token
        return Completion(
            text=tokenizer.decode(ids, skip_special_tokens=True).strip(),
            prompt_ids=self.prompt_ids,
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            choice_ids=self.choice_ids if self.tree is None else self.tree.beside(self.token_ids),
            finish_reason=finish,
            version=version,
            neutralised=count_marks(self.request.prompt, tokenizer),
        )
