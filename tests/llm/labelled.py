"""1,000 replies with what they mean: 440 by a seeded script and the rest, the hard ones, by hand.

A reply is of a kind (who reads it), and means a value, or nothing that may be read (None: it refuses, hedges, names
several, or only speaks of the words). `clear` ones a clinician would read without a question.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ghar.data.cohort import Task
from ghar.envs.ehr_rag.event_replies import parse_label_number, parse_move, parse_search
from ghar.envs.exprag.options import parse_options, parse_scores
from ghar.envs.graphwalker.selectors.graphwalker import rating
from ghar.envs.kare.episode import parse_both
from ghar.envs.kare.expert_chains import read_chain
from ghar.episode import Parsed
from ghar.llm.cached_llm import UnreadableAnswer
from ghar.llm.parsing import parse_label

YES_NO, STAYS = ("no", "yes"), tuple(str(i) for i in range(10))
CHAIN = "1. Patient: heart failure, third stay this year.\n5. Conclusion: the risk is high."


def _chain(reply: str) -> Parsed:
    try:
        return Parsed(read_chain(f"# Chain\n{CHAIN}\n# Confidence\n{reply}").confidence)
    except UnreadableAnswer as error:
        return Parsed(None, error.reason)


def _rating(reply: str) -> Parsed:
    """0 stands for a rating that cannot be read; no reply of the set rates 0."""
    found = rating(reply)
    return Parsed(found or None, None if found else "none")


def _search(reply: str) -> Parsed:
    found = parse_search(reply, ["sepsis"])
    return Parsed(None, found.error) if found.error else found


READERS: dict[str, Callable[[str], Parsed]] = {
    "yes or no": partial(parse_label, labels=YES_NO),
    "stay": partial(parse_label, labels=STAYS),
    "both": partial(parse_both, task=Task("t", "?", YES_NO)),
    "number": partial(parse_label_number, n_labels=2),
    "options": partial(parse_options, count=5, single=False),
    "option": partial(parse_options, count=5, single=True),
    "move": partial(parse_move, parse_answer=partial(parse_label_number, n_labels=2), asked=("sepsis",)),
    "search": _search,
    "confidence": _chain,
    "rating": _rating,
    "scores": parse_scores,
}


@dataclass(frozen=True)
class Labelled:
    """A reply, who reads it, and the value it means; None where there is none to be read."""

    kind: str
    reply: str
    means: Any

    @property
    def clear(self) -> bool:
        return self.means is not None


THOUGHTS = (
    "The patient has heart failure and 3 earlier stays.", "There is no history of cancer.",
    "No data on renal function.", "One could say yes, another no.", "Of 12 drugs, 2 were new.",
    "1. Sepsis\n2. Renal failure\n3. No surgery",
    "The question is whether the answer lies in the record.", "Nothing speaks for it; I have no doubt.",
    "Class 4 would need 2 more days.", "Yes, the disease is severe. No, it is not new.",
    "It is not clear at first sight.",
    "Risk: 40%. Age 71. Stay 0.5 days.", "Option B was weighed, and C.", "He cannot walk, and won't eat.",
)  # fmt: skip
CLEAR = (
    "answer: {}", "Answer: {}", "ANSWER: {}", "**Answer:** {}", "**Answer: {}**", "Answer: **{}**", "answer: {}.",
    "Final answer: {}", "The final answer is: {}", "answer:{}", "answer : {}", "Answer:\n{}", "Answer: `{}`",
    'answer: "{}"', "- answer: {}", "### Answer\n{}", "<answer>{}</answer>", "Answer: <{}>", "The answer is {}.",
    '{{"answer": "{}"}}', '```json\n{{"reason": "severe, and no way back", "answer": "{}"}}\n```', "answer: [{}]",
    "So, all in all, answer: {}", "answer: {}, because the risk is what it is", "answer: {} (as in similar patients)",
    "answer: {}\n\nThe reason is the course of the disease.", "answer：{}", "answer: {}!", "Answer: ({})",
    "answer: \\boxed{{{}}}", "Therefore, my answer: {}", "answer: {} - the record supports it",
)  # fmt: skip
UNCLEAR = (
    "answer: not {}", "answer: {a} or {b}", "answer: {a}/{b}", "answer: {a} | {b}", "I cannot answer: {}",
    "answer: {}?", "answer: maybe {}", "answer: {a}, but it could be {b}", "I would not say answer: {}",
    "answer: anything but {}", "answer: either {a} or {b}", "answer: {a} vs {b}", "answer: {a} & {b}",
    "answer: {}\nWait, that is wrong.", "answer: {a}\nActually, {b}.", "answer: {a} - no, wait: {b}",
    "I do not know.", "It might be {}.", "If asked, one would say {}.", "answer:", "answer: <one of {a}, {b}>",
    "answer: between {a} and {b}", "answer: {a}; alternatively {b}", "If he were older, answer: {}",
    "Reply in the form answer: {}", "answer: {}, or perhaps not", "answer: {a}→{b}", "answer: {a} {b}",
    "The answer is not {}.", "Never answer: {}", "answer: {a}, {b}", "answer: unknown", "answer: -{}9",
    "answer: {}, but this is wrong", "The answer is {a} or {b}.", "answer: cannot be said, {} at most",
)  # fmt: skip


def scripted(seed: int = 23) -> list[Labelled]:
    """440 replies: clear and unclear shapes, with and without thoughts before them, of all labels."""
    rng, made = random.Random(seed), []
    for kind, labels in (("yes or no", YES_NO), ("stay", STAYS), ("number", ("0", "1")), ("both", YES_NO)):
        for shapes in (CLEAR, UNCLEAR):
            for number in range(55):
                shape = shapes[number % len(shapes)]
                a, b = rng.sample(labels, 2)
                word = rng.choice((str.lower, str.title, str.upper))
                shown = shape.format(word(a), a=word(a), b=word(b))
                thought = rng.sample(THOUGHTS, rng.randrange(4)) if number >= len(shapes) // 2 else []
                reply = "\n".join([*thought, shown])
                made.append(Labelled(kind, reply, labels.index(a) if shapes is CLEAR else None))
    return made


def by_hand() -> Iterator[Labelled]:
    """The hard ones; see labelled_by_hand.txt."""
    text = Path(__file__).with_name("labelled_by_hand.txt").read_text(encoding="utf-8")
    for block in text.split("\n== ")[1:]:
        head, _, rows = block.partition("\n")
        for row in filter(None, rows.split("\n")):
            meant, reply = row.split(" | ", 1)
            yield Labelled(head.strip(), reply.replace("\\n", "\n").replace("\\z", ""), _meant(head.strip(), meant))


def _meant(kind: str, meant: str) -> Any:
    """What stands before a reply: "-" for nothing, a label, letters, or an action with its object."""
    if meant == "-":
        return None
    if kind in ("yes or no", "both"):
        return YES_NO.index(meant)
    if kind in ("option", "options"):
        return sum(1 << "ABCDE".index(letter) for letter in meant)
    if kind == "search":
        return "" if meant == "ENOUGH" else meant
    if kind == "move":
        action, _, rest = meant.partition(" ")
        return action, int(rest) if action == "answer" else rest
    return float(meant) if kind == "scores" else int(meant)
