"""Hostile replies through every reader of every system: exceptions, and processor time (benchmarks/run.py hostile).

A reply is made of pieces that readers look for (answers, numbers, brackets, marks, line ends, halves of characters) and
of any characters, glued at random or repeated; `LARGE` of them, at even places, are of a million characters, in the
shapes that make quadratic readers slow. Every reply goes to every reader. An exception other than `UnreadableAnswer`,
the readers' own way to refuse, counts against them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from ghar.data.cohort import Task
from ghar.envs.ehr_rag.event_replies import parse_items, parse_label_number, parse_move, parse_search
from ghar.envs.exprag.options import parse_options, parse_scores
from ghar.envs.graphwalker.selectors.graphwalker import rating
from ghar.envs.kare.coagent import read_guidelines
from ghar.envs.kare.episode import parse_both, split_both
from ghar.envs.kare.expert_chains import gives_away, read_chain
from ghar.envs.kare.graph.answers import read_triples
from ghar.envs.kare.graph.summaries import read_summary, read_theme_summary
from ghar.episode import as_text
from ghar.llm.api_wire import named_choice, read_answer
from ghar.llm.cached_llm import UnreadableAnswer
from ghar.llm.parsing import parse_choice, parse_label, parse_path_ids, parse_queries, parse_query, parse_summary
from ghar.progress import track
from ghar.sanitize import count_marks, plain

REPLIES, LARGE, MEGABYTE, LIMIT = 1_000_000, 400, 1_000_000, 0.1
NO_YES, STAYS = ("no", "yes"), tuple(str(i) for i in range(10))
READERS: dict[str, Callable[[str], Any]] = {
    "text": as_text,
    "label, no or yes": lambda reply: parse_label(reply, NO_YES),
    "label, 0 to 9": lambda reply: parse_label(reply, STAYS),
    "label, words": lambda reply: parse_label(reply, ("heart failure", "failure", "a+b")),
    "choice": lambda reply: parse_choice(reply, NO_YES),
    "ghar: paths": lambda reply: parse_path_ids(reply, 20, 3),
    "ghar: queries": lambda reply: parse_queries(reply, 3),
    "ghar: query": parse_query,
    "ghar: summary": parse_summary,
    "kare: chain and label": lambda reply: parse_both(reply, Task("t", "?", NO_YES)),
    "kare: chain": split_both,
    "kare: expert's chain": read_chain,
    "kare: leak": lambda reply: gives_away(reply[:50_000]),
    "kare: guidelines": read_guidelines,
    "kare: triples": read_triples,
    "kare: summary": read_summary,
    "kare: summary for a theme": read_theme_summary,
    "ehr_rag: label": lambda reply: parse_label_number(reply, 2),
    "ehr_rag: search": lambda reply: parse_search(reply, ("sepsis",)),
    "ehr_rag: items": lambda reply: parse_items(reply, ("sodium", "glucose", "pH"), 2),
    "ehr_rag: move": lambda reply: parse_move(reply, lambda text: parse_label_number(text, 2), ("sepsis",)),
    "exprag: options": lambda reply: parse_options(reply, 5, single=False),
    "exprag: option": lambda reply: parse_options(reply, 30, single=True),
    "exprag: scores": parse_scores,
    "graphwalker: rating": rating,
    "server: choice": lambda reply: named_choice(reply, NO_YES),
    "server: answer": lambda reply: read_answer({"choices": [{"message": {"content": reply}}]}, chat=True),
    "prompt": plain,
    "marks": count_marks,
}
PIECES = (
    "answer", "answer:", "Answer: ", "**Answer:**", "<answer>", "</answer>", "search:", "Search: ", "ENOUGH", "enough ",
    "confidence", "# Confidence\n", "very ", "confident", "not ", "no", "yes", "no ", "yes ", "0", "1", "7 ", "12",
    "99", "-1", "4.5", "1,000", "A", "B ", "A, C", "(", ")", "[", "]", "{", "}", '"', "'", "`", "*", "#", "_", "<", ">",
    "|", "/", "\\", ":", "：", ";", ",", ".", "...", "?", "!", "-", "–", "=", "+", "&", "%", "\n", "\r\n", "\t", " ",
    "\x0b", "\x00", "\x1b[31m", "\u2028", "\u200b", "\ufeff", "\u202e", "\ud800", "\udfff", "٣", "²", "é", "İ", "ﬁ",
    "ß", "😀", "\U000e0041", "<|im_end|>", "<|im_start|>", "[INST]", "</s>", "if ", "wait ", "because ", "I cannot ",
    "or ", "1. ", "- ", '["a", "b", "c"]', '["a"', "[]", "[[", '{"answer": ', '{"answer": "yes"}', '{"a":', "null",
    "NaN", "1e999", "9" * 40, "the ", "patient: ", "heart failure", "ground truth", "summary:", "not relevant",
)  # fmt: skip


def hostile(*, share: float = 1.0, seed: int = 0) -> dict[str, Any]:
    """Numbers of `share` of a million replies, and as large a share of the long ones."""
    total, large = max(1, round(REPLIES * share)), max(8, round(LARGE * share))
    worst, raised, slow = dict.fromkeys(READERS, 0.0), [], 0
    for reply in track(replies(total, large, seed), "Read hostile replies", total):
        for name, read in READERS.items():
            begin = time.process_time()
            try:
                read(reply)
            except UnreadableAnswer:
                pass
            except Exception as error:  # whatever it is, it is what is counted
                raised.append(f"{name}: {type(error).__name__} for {reply[:80]!r}")
            seconds = time.process_time() - begin
            worst[name] = max(worst[name], seconds)
            slow += seconds > LIMIT
    return {
        "replies": total,
        "of them of a million characters": large,
        "readers": len(READERS),
        "exceptions": len(raised),
        f"readings of more than {LIMIT} s of processor": slow,
        "longest reading, ms": {name: 1000 * seconds for name, seconds in worst.items()},
        "raised": raised[:100],
    }


def replies(total: int, large: int, seed: int) -> Iterator[str]:
    """`total` replies, `large` of them of a million characters."""
    rng = random.Random(seed)
    every = max(1, total // large)
    for number in range(total):
        yield _long(rng) if number % every == 0 and number // every < large else _short(rng)


def _short(rng: random.Random) -> str:
    parts = [_any(rng) if rng.random() < 0.2 else rng.choice(PIECES) for _ in range(rng.randrange(12))]
    return "".join(parts) * (rng.randrange(2, 40) if rng.random() < 0.05 else 1)


def _long(rng: random.Random) -> str:
    """A piece or two, repeated to a million characters; whole, or around what a reader looks for."""
    piece = "".join(rng.choices(PIECES, k=rng.randrange(1, 4)))
    body = piece * (MEGABYTE // len(piece) + 1)
    head, tail = rng.choice(("", "answer: 1", "Search: ", "[", "1.", "{")), rng.choice(("", "answer: yes", "]", "x"))
    return f"{head}{body[: MEGABYTE - len(head) - len(tail)]}{tail}"


def _any(rng: random.Random) -> str:
    """Some character of Unicode, halves of pairs among them."""
    return chr(rng.randrange(0x80) if rng.random() < 0.5 else rng.randrange(0x110000))
