"""The words every system shares: effects an episode yields, results it gets back, and its record.

An episode is a generator. It yields an `Act` (ask an agent), a `Retrieve` (ask a corpus) or a tuple of
both (ask for several at once) and is resumed with a `Reply`, an `Evidence` or a tuple of them. It never
calls a model, an index or a network itself, so rollout, environments, training and audit are all views of
the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any


@dataclass(frozen=True)
class Parsed:
    """What a reply means: `value` when it could be read, `error` (a short name such as "no_label") when not."""

    value: Any = None
    error: str | None = None


def as_text(reply: str) -> Parsed:
    """Accept any non-empty reply as it stands."""
    text = reply.strip()
    return Parsed(text) if text else Parsed("", "empty")


@dataclass(frozen=True)
class Options:
    """What the reply to an act decides among, where it is not restricted to `choices` (`ghar.llm.decisions`).

    texts: the options, as replies name them. most: how many a reply may name, `separator` between them. head: what the
    engine writes before them. alone: the reply is the choice and nothing else; otherwise free text comes first. open:
    the options that free text follows ("Search:"). words: of that text, what is read; None: all of its first line.
    """

    texts: tuple[str, ...]
    most: int = 1
    head: str = "answer:"
    separator: str = ", "
    alone: bool = False
    open: tuple[str, ...] = ()
    words: int | None = None


@dataclass(frozen=True)
class Act:
    """Ask `agent` ("top", "low", ...) to act.

    role: which decision this is ("rewrite", "retrieve", "metapaths", "summarise", "answer", "continue",
        "followup", "predict"); policies and reports group by it.
    choices: when given, the reply is exactly one of these strings.
    step: the iteration it belongs to, counted from 0.
    parse: reads the reply; never raises.
    facts: what the prompt was made of, for policies that are not language models. Never shown to one.
    options: what a free reply decides among, for models whose words cannot be read.
    credentialed: whether the prompt may quote a patient that is not open to everyone. The rollout marks it by the case;
        an act without a mark counts as credentialed (`ghar.privacy`).
    """

    agent: str
    role: str
    prompt: str
    choices: tuple[str, ...] = ()
    max_tokens: int = 64
    step: int = 0
    parse: Callable[[str], Parsed] = field(default=as_text, compare=False, repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    options: Options | None = field(default=None, compare=False, repr=False)
    credentialed: bool = field(default=True, kw_only=True, compare=False, repr=False)


@dataclass(frozen=True)
class Retrieve:
    """Ask the corpus for the `top_n` best nodes and edges per partition; `partitions=None` is the whole corpus.

    credentialed: as in `Act`.
    """

    query: str
    partitions: tuple[int, ...] | None = None
    top_n: int = 1
    credentialed: bool = field(default=True, kw_only=True, compare=False, repr=False)


@dataclass(frozen=True)
class RetrieveFor(Retrieve):
    """The same of a corpus whose answers depend on the patient: their own past, patients like them."""

    sample_id: str = ""


@dataclass(frozen=True)
class Completion:
    """What an engine returns for one request, token ids as sampled (never re-tokenised).

    prompt_ids, token_ids: ids; logprobs: behaviour log-probabilities, one per sampled token, under the
    distribution that was really sampled from (temperature and choices included).
    choice_ids: the token sequences the reply was restricted to, empty when free.
    finish_reason: "stop" (end token or a whole choice) or "length".
    version: of the weights that sampled it.
    usage: (prompt, completion) tokens that a remote server says it used; it gives no ids.
    neutralised: places of the prompt that were no plain text and were made so (`ghar.sanitize`).
    before, chosen: of a reply that was sampled in parts, the part before this one, which `prompt_ids` goes on from, and
        the words that decide. `text` is of all parts.
    """

    text: str
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    choice_ids: tuple[tuple[int, ...], ...] = ()
    finish_reason: str = "stop"
    version: int = 0
    usage: tuple[int, int] = (0, 0)
    neutralised: int = 0
    before: Completion | None = None
    chosen: str = ""

    @property
    def parts(self) -> tuple[Completion, ...]:
        """What was sampled one after the other, each in a context of its own: itself, where it is whole."""
        return (self,) if self.before is None else (*self.before.parts, self)

    @property
    def tokens(self) -> tuple[int, int]:
        """(prompt, completion) tokens it took: of the ids where they are known, else as the server says."""
        if self.before is not None:
            own, first = self._own_tokens, self.before.tokens
            whole = len(self.prompt_ids) + len(self.token_ids)
            return (first[0], whole - first[0]) if self.prompt_ids else (first[0] + own[0], first[1] + own[1])
        return self._own_tokens

    @property
    def _own_tokens(self) -> tuple[int, int]:
        return (len(self.prompt_ids), len(self.token_ids)) if self.prompt_ids or self.token_ids else self.usage


@dataclass(frozen=True)
class Reply:
    """The answer to an `Act`: the completion and what it was parsed to."""

    completion: Completion
    value: Any
    error: str | None = None

    @property
    def text(self) -> str:
        return self.completion.text


@dataclass(frozen=True)
class Passage:
    """One retrieved node or edge: `kind` is "node" or "edge", `partition` the meta-path id (-1: whole graph)."""

    text: str
    kind: str
    partition: int
    score: float
    ident: int


@dataclass(frozen=True)
class Evidence:
    """The answer to a `Retrieve`, best first, without duplicates."""

    passages: tuple[Passage, ...] = ()

    @property
    def text(self) -> str:
        return "\n".join(p.text for p in self.passages)


Effect = Act | Retrieve
Result = Reply | Evidence


@dataclass(frozen=True)
class ReasoningStep:
    """One entry of the reasoning history H_rea: a sub-query and its intermediate answer (Eq. 6, GHAR).

    paths: valid meta-path ids used; path_errors, path_duplicates: ids that do not exist or were repeated.
    """

    query: str
    answer: str
    retrieved: bool
    paths: tuple[int, ...] = ()
    path_errors: int = 0
    path_duplicates: int = 0
    evidence: str = ""

    @property
    def text(self) -> str:
        return f"{self.query} {self.answer}"


@dataclass(frozen=True)
class Prediction:
    """What an episode returns: label index (None when no answer could be read), H_rea, whether it ran out of
    iterations (`truncated`) instead of ending by its own decision, and label probabilities where no language model was
    asked."""

    label: int | None
    history: tuple[ReasoningStep, ...] = ()
    truncated: bool = False
    probabilities: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.label is not None and not isinstance(self.label, Integral):
            raise TypeError(
                f"Prediction(label={self.label!r}): a label is its number among task.labels, or None where no answer "
                "could be read; labels.index(word) gives the number of a word."
            )


@dataclass(frozen=True)
class Turn:
    """One answered `Act`: who acted, in which iteration (`step`), on what, and whether the reply was readable.

    trainable: False when the reply was forced or came from a fixed policy.
    """

    agent: str
    role: str
    index: int
    step: int
    completion: Completion
    format_ok: bool
    trainable: bool = True

    @property
    def completed(self) -> bool:
        """Whether its decision was chosen behind a free reply that left it open (ghar.llm.decisions)."""
        return self.completion.before is not None


def read_reply(act: Act, completion: Completion, index: int) -> tuple[Turn, Reply]:
    """What a completion means for the act that asked: the episode's turn number `index`, and the reply it goes on with.

    A completion without token ids came from no language model (a fixed rule, a person), so it is not trained on.
    TypeError for an answer that is no completion.
    """
    if not isinstance(completion, Completion) or not isinstance(completion.text, str):
        message = f"{act.agent}'s policy answered {act.role!r} with {completion!r}"
        raise TypeError(f"{message}: a policy's answer is a ghar.episode.Completion whose text is a str")
    parsed = act.parse(completion.chosen or completion.text)
    readable, trainable = parsed.error is None, bool(completion.token_ids)
    turn = Turn(act.agent, act.role, index, act.step, completion, readable, trainable)
    return turn, Reply(completion, parsed.value, parsed.error)


@dataclass(frozen=True)
class AuditRecord:
    """One line of the audit trail: an effect and its result."""

    effect: Effect
    result: Result


@dataclass(frozen=True)
class Episode:
    """A finished episode. `failure` names why it could not finish; such an episode has no prediction.

    cut: it was cut short by something other than the policy, e.g. an interrupted rollout, so what it would still have
        earned is unknown. A reply that runs into `max_tokens` is the policy's own doing and cuts nothing.
    """

    sample_id: str
    attempt: int
    prediction: Prediction
    turns: tuple[Turn, ...] = ()
    trace: tuple[AuditRecord, ...] = ()
    failure: str | None = None
    seconds: float = 0.0
    cut: bool = False

    @property
    def replies(self) -> list[str]:
        """What the agents wrote, reply by reply."""
        return [record.result.text for record in self.trace if isinstance(record.result, Reply)]


EpisodeGenerator = Generator[Any, Any, Prediction]
