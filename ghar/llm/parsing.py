"""Reading what a model said. Nothing here raises: a reply maps to a value or to a named format error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from ghar.data.sections import sentences
from ghar.episode import Parsed
from ghar.llm.answer_line import (
    CORRECTED,
    LINE,
    MOST,
    NEXT_CASE,
    WITHDRAWN,
    StatedAnswer,
    earlier_answers,
    last_answer,
    small,
)
from ghar.sanitize import readable


@dataclass(frozen=True)
class PathChoice:
    """Meta-path ids read from a reply: valid distinct ones, and how many were wrong or repeated (Eq. 8, GHAR)."""

    ids: tuple[int, ...]
    errors: int = 0
    duplicates: int = 0


OPEN, CLOSE = r"(?:[\s*_`\"'(\[]|\\(?:boxed|text(?:bf)?)\{){0,6}", r"[*_`\"')\]}]{0,6}"
KIND = rf"(?:(?:class|label|category|option|number)\s{{1,2}}{OPEN})?"
END = r"(?![\w%°]|[.,]\d)"  # of a label: "4.5", "4%" and "4th" are none
REASON = re.compile(r"\b(?:because|since|given|due to|based on|as|with|that is|meaning|i\.e)\b")
# what may follow a label on its line: nothing, a stop, a gloss or a reason, but neither a word nor "/", "|", "?"
AFTER = re.compile(
    rf"\s*$|\s*(?:[,;:!](?!\d)|\.{{1,3}}(?![\d.])|[(\[—]|</|<\||[*_]+\s*$)|\s+[-–—]\s|\s+{REASON.pattern}"
)
OTHERS = r"(?:or|and|to|but|vs|versus|maybe|perhaps|possibly|rather|either|actually|mean|not|wait|then|likely|probably)"
GLOSS = re.compile(rf"\s*[(\[](?!\s*{OTHERS}\b)([^()\[\]]*)[)\]]")
SURE = re.compile(r"\b(?:confidence|probability|certainty|likelihood)\b[^,;.\d]{0,20}[\d.]{1,8}\s{0,2}(?:%|/\s?100?)?")
# a share of less than half, which of two labels speaks for the other one
LOW = re.compile(
    r"[\s,;:(\[–—-]{0,4}(?:with )?(?:an? )?(?:(?:probability|chance|likelihood|certainty)(?: of|:)?\s?)?"
    r"(?:(?:with )?(?:an? )?(?:very )?low (?:probability|chance|likelihood|certainty|confidence)\b(?! of\b).*|"
    r"(?:only |about |around |at |p\s?[=:]\s?){0,3}"
    r"(?:0?\.[0-4]\d{0,6}|[0-4]?\d(?:\.\d{1,3})?\s?%)"
    r"\s?(?:sure|confident|confidence|certain|certainty|probability|likely|likelihood|probable|chance)?[)\].\s]*)$"
)
SOON = re.compile(rf"\b{OTHERS}\W{{0,3}}$")  # before another label, this makes it another answer
STATED = r"(?:is|was|seems|looks|appears|would|could|might|may|remains|cannot|can ?not)"
ALONE = re.compile(rf"(?!\s+[^\W\d])|\s+(?:{OTHERS}|{STATED})\b")  # "no" is an answer, "no doubt" is none
# "answer: no, that cannot be said" is none; a word of the patient ("unlikely to survive") is no doubt
DOUBT = re.compile(
    r"\b(?:wrong|incorrect|kidding|not (?:right|correct|true|sure|certain|enough|known|possible|available)|cannot|"
    r"can ?not|unable|unclear|unknown|unsure|uncertain|undetermined|insufficient|unavailable|impossible|missing|n/a|"
    r"no (?:idea|data|information|answer)|guess(?:ing)?|if|unless|until|provided|assuming|depend(?:s|ing)|"
    r"(?:as|so) long as|not sufficient|(?:more|further|additional) \w{1,20} (?:is|are) (?:needed|required|necessary)|"
    r"(?:or|perhaps|maybe|possibly) not)\b|n['’]t\b"
)
# These leave the answer open where another label stands beside them, even in its reason.
HEDGE = re.compile(r"\b(?:as well|alternative(?:ly)?|second choice|runner-?up|(?:could|might|may|can) (?:also )?be)\b")
# These leave any answer open.
FEW = r"(?:\d{1,3}|one|two|three|four|five|six|seven|eight|nine|ten)"
OPEN_ANSWER = re.compile(
    r"\b(?:doubtful|questionable|debatable|toss-?up|fifty-fifty|50\s?[/–-]\s?50|coin[ -]?(?:flip|toss)|"
    r"hard to (?:say|tell|call|predict)|close (?:call|to call)|"
    r"against my|low(?:er)? (?:confidence|certainty)|(?:confidence|certainty)(?: is|:) low|lean(?:ing|s)?)\b|"
    rf"^[\s,;:(\[–—-]{{0,4}}(?:about |around |maybe |only )?{FEW} (?:in|out of) {FEW}\b"
)
EQUAL = re.compile(r"\b(?:equally|as) (?:likely|probable)\b")
# These speak against an answer of two, unless it denies ("no, unlikely"); "unlikely to survive" is no doubt.
AGAINST = re.compile(
    r"\b(?:(?:un|not |less )likely|(?:im|not |less )probable|low(?:er)? (?:probability|chance|likelihood))\b(?! to\b)"
)
DENYING = ("no", "false", "negative", "absent", "0")
# A reply that is one sentence, or ends with one, that says what the answer is.
SENTENCE = (
    r"(?:^|[\n.!?]\s{0,3})[*_#\s]{0,6}(?:(?:so|thus|hence|therefore|overall|finally),?\s)?"
    r"(?:the|my)\s(?:(?:final|correct|best)\s)?answer\sis\s"
)
EXPLAINED = re.compile(r"[\s*_#(]{0,8}(?:because|reason|explanation|rationale|justification|since|based on)")
# between two answers, where no word corrects the first
NO_WORD = re.compile(r"(?:</answer>)?[\W_]*(?:<answer>)?[\W_]*")
SENTENCES, NUMBER = re.compile(r"[;\n]|\.(?!\d)"), re.compile(r"[0-9]")
DENIED = re.compile(
    r"\b(?:none|neither|nor|nothing|except|excluding|exclude|without|irrelevant|avoid|skip|ignore|"
    r"(?:all|any) (?:but|of)|at most|cannot|not(?! only\b)|no (?:meta-?)?(?:path|id)s?)\b|"
    r"n['’]t\b"
)
LISTED = re.compile(r"^[ \t]{0,8}([0-9]{1,6})[.)][ \t]{1,8}(?=\S)", re.M)  # "1. 7" and "2) 9": lines that are counted
COUNTED = 5  # numbers that may run upward one by one; more, and more than twice what is allowed, only count
SPLIT, BULLET = re.compile(r"[;\n]"), re.compile(r"[-*]|\d+[.)](?!\d)")
LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class _Grammar:
    """head: a label at the beginning of an answer. mention: any that is named (any number, where labels are numbers).
    sentence: a last sentence that says what the answer is. two: whether there are two labels."""

    head: re.Pattern[str]
    mention: re.Pattern[str]
    sentence: re.Pattern[str]
    two: bool


def parse_label(reply: str, labels: Sequence[str]) -> Parsed:
    """Index of the one label the reply names, after its last "answer:", or as a reply of the bare label alone.

    After "answer:" the label comes first, and nothing on its line may make it doubtful: "answer: 3 (2 drugs)" and
    "answer: yes, no doubt" are 3 and yes, "answer: 1 or 2", "answer: not yes" and "answer: 3 days" are errors, and so
    is an answer that is taken back or corrected behind it. Prose without "answer:" names no label, whatever words are
    in it, but for a last sentence "The answer is yes."
    Errors: "empty", "no_label", "ambiguous_label" (several different labels, or one that is taken back).
    """
    return _read_label(reply, labels)[0]


def label_start(reply: str, labels: Sequence[str]) -> int | None:
    """Find where the label begins that `parse_label` reads; None where it reads none."""
    return _read_label(reply, labels)[1]


def _read_label(reply: str, labels: Sequence[str]) -> tuple[Parsed, int | None]:
    """Read the label (see `parse_label`) and the place in the reply where it begins."""
    text = reply.strip()
    if not text:
        return Parsed(None, "empty"), None
    lowered, short = tuple(label.lower() for label in labels), len(text) <= MOST
    text, grammar = small(text[-MOST:]), _grammar(lowered)
    begin = len(reply.rstrip()) - len(text)  # in the reply, of the part where the label is searched
    answer = last_answer(text)
    if answer is None:
        if (match := grammar.sentence.search(text[-LINE:])) is not None:
            begin += max(0, len(text) - LINE)
        elif short:
            match = _bare(text, grammar)
        excerpt = text[:LINE]
    else:
        begin += answer.end - len(answer.text)
        match = grammar.head.match(answer.text)
        excerpt = answer.text
        rest = "" if match is None else excerpt[match.end() :]
        if match is not None and not (_closes(match[1], rest, grammar.mention) and _sure(match[1], rest, grammar)):
            match = None
    if match is None:
        several = len({other[0] for other in grammar.mention.finditer(excerpt)}) > 1
        return Parsed(None, "ambiguous_label" if several else "no_label"), None
    if answer is not None and _contradicted(text, answer, match[1], grammar):
        return Parsed(None, "ambiguous_label"), None
    return Parsed(lowered.index(match[1])), begin + match.start(1)


def answer_line(text: str) -> str | None:
    """The first words after the last "answer:" of a lower-case text, to the end of their line; None where there is no
    "answer:" or it is denied ("I cannot answer: ...")."""
    answer = last_answer(text)
    return None if answer is None else answer.text


@lru_cache(maxsize=256)
def _grammar(labels: tuple[str, ...]) -> _Grammar:
    names = "|".join(re.escape(label) for label in sorted(labels, key=len, reverse=True)) or "(?!)"
    numbers = "|[0-9]+" if all(label.isdecimal() for label in labels) else ""
    label = rf"{OPEN}(?:(?=<(?:{names})>)<)?{KIND}({names}){END}>?{CLOSE}"
    mention = re.compile(rf"(?<![\w.])(?:{names}{numbers}){END}")
    return _Grammar(re.compile(label), mention, re.compile(rf"{SENTENCE}{label}[.!]?\s*$"), len(labels) == 2)


def _bare(text: str, grammar: _Grammar) -> re.Match[str] | None:
    """The label of a reply of one line that is nothing else; lines below it may only give a reason."""
    line, _, below = text.partition("\n")
    match = grammar.head.match(line[:LINE])
    if match is None or line[match.end() :].strip(" \t\r.!"):
        return None
    if below.strip() and (not EXPLAINED.match(below) or _corrected(below[:LINE], match[1], grammar)):
        return None
    return match


def _closes(label: str, rest: str, mention: re.Pattern[str]) -> bool:
    """Whether what follows a label on its line leaves it the only answer."""
    before = REASON.split(rest, maxsplit=1)[0]
    if DOUBT.search(before) or WITHDRAWN.search(rest):
        return False
    if HEDGE.search(rest) and any(match[0] != label for match in mention.finditer(rest)):
        return False
    gloss = GLOSS.match(rest)
    if gloss and not mention.fullmatch(gloss[1].strip(" ?!~.≈")):
        rest = rest[gloss.end() :]
    if not AFTER.match(rest):
        return False
    return not _rivals(label, SURE.sub("", REASON.split(rest, maxsplit=1)[0]), mention)


def _sure(label: str, rest: str, grammar: _Grammar) -> bool:
    """Whether what follows a label on its line, up to a reason, gives it no small share and weighs it against nothing
    else."""
    before = REASON.split(rest, maxsplit=1)[0]
    if OPEN_ANSWER.search(before) or EQUAL.search(rest):
        return False
    if not grammar.two:
        return True
    gloss = GLOSS.match(before)
    if gloss and _rivals(label, gloss[1], grammar.mention):
        return False
    return not LOW.match(rest) and (label in DENYING or not AGAINST.search(before))


def _rivals(label: str, text: str, mention: re.Pattern[str]) -> bool:
    """Whether a text names another label as an answer."""

    def rivals(other: re.Match[str]) -> bool:
        return bool(ALONE.match(text, other.end()) or SOON.search(text[max(0, other.start() - 20) : other.start()]))

    return any(match[0] != label and rivals(match) for match in mention.finditer(text))


def _corrected(below: str, label: str, grammar: _Grammar) -> bool:
    """Whether the lines below an answer take it back, give another one after a word of correction, or are another."""
    if WITHDRAWN.search(below):
        return True
    cue = CORRECTED.search(below)
    if cue and _rivals(label, below[cue.end() :], grammar.mention):
        return True
    bare = (_bare(line, grammar) for line in below.split("\n")[:40] if line.strip())
    return any(match is not None and match[1] != label for match in bare)


def _contradicted(text: str, answer: StatedAnswer, label: str, grammar: _Grammar) -> bool:
    """Whether the rest of a reply says something else than its last answer."""
    if _corrected(text[answer.end : answer.end + 4 * LINE], label, grammar):
        return True
    first = _bare(text[: answer.begin].partition("\n")[0], grammar)
    if first is not None and first[1] != label:  # "yes", and then the next example with its answer
        return True
    for other in earlier_answers(text, answer):
        between = text[other.end : answer.begin]
        match = grammar.head.match(other.text)
        differs = match is None or match[1] != label
        if differs and match is not None and NO_WORD.fullmatch(other.text[match.end() :] + between):
            return True
        if differs and (other.end >= answer.end or NEXT_CASE.search(f"\n{between}"[-4 * LINE :])):
            return True
    return False


def parse_path_ids(reply: str, n_paths: int, max_paths: int) -> Parsed:
    """`PathChoice` of the whole numbers in the reply's first `MOST` characters; ids that do not exist or exceed
    `max_paths` are errors. Numbers that count the lines of a list are no ids ("1. 7", then "2. 9").

    Errors: "no_ids" when no number is there, "no_valid_id" when none of them exists, "denied_ids" when a sentence with
    numbers says that they do not apply, or all but they ("None of paths 1-5 apply", "1 but not 3"), "counted_ids" when
    the numbers only count upward (0, 1, 2, and on, far beyond what is allowed).
    """
    ids: list[int] = []
    errors = duplicates = 0
    text = _without_markers(reply[:MOST])
    # nine digits are more than any graph has paths, and int() refuses thousands of them
    numbers = [int(number[:9]) for number in re.findall(r"0*([0-9]+)", text)]
    if len(numbers) > max(COUNTED, 2 * max_paths) and all(b == a + 1 for a, b in pairwise(numbers)):
        return Parsed(PathChoice(()), "counted_ids")
    for number in numbers:
        if number in ids:  # at most max_paths of them
            duplicates += 1
        elif number >= n_paths or len(ids) >= max_paths:
            errors += 1
        else:
            ids.append(number)
    if any(DENIED.search(part) and NUMBER.search(part) for part in SENTENCES.split(reply[:MOST].lower())):
        return Parsed(PathChoice(()), "denied_ids")
    choice = PathChoice(tuple(ids), errors, duplicates)
    if not numbers:
        return Parsed(choice, "no_ids")
    return Parsed(choice, None if ids else "no_valid_id")


def _without_markers(text: str) -> str:
    """A list without the numbers that count its lines from 0 or 1, where a line has a number of its own besides; any
    other text as it is."""
    marks = list(LISTED.finditer(text))
    numbers = [int(mark[1]) for mark in marks]
    if not marks or numbers != list(range(numbers[0], numbers[0] + len(marks))) or numbers[0] > 1:
        return text
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    items = [text[mark.end() : end] for mark, end in zip(marks, ends, strict=True)]
    own = any(NUMBER.search(item.partition("\n")[0]) for item in items)
    return text[: marks[0].start()] + "\n".join(items) if own else text


def parse_queries(reply: str, limit: int) -> Parsed:
    """Up to `limit` distinct sub-queries of the first `MOST` characters, separated by line breaks or semicolons, list
    markers removed. A small model counts ("1. 1."): what has no letter is no query.

    Error: "no_query" when nothing is left.
    """
    queries: dict[str, None] = {}
    for part in filter(None, map(str.strip, SPLIT.split(reply[:MOST]))):
        marker = BULLET.match(part)
        query = part[marker.end() :].lstrip() if marker else part
        if LETTER.search(query):
            queries.setdefault(query)
        if len(queries) >= limit:
            break
    return Parsed(tuple(queries), None if queries else "no_query")


def parse_query(reply: str) -> Parsed:
    """The first sub-query of the reply."""
    parsed = parse_queries(reply, 1)
    return Parsed(parsed.value[0] if parsed.value else "", parsed.error)


def parse_summary(reply: str) -> Parsed:
    """The reply as it stands; of one that repeats itself each sentence once, without a last one that was cut off.

    A small model says one sentence again up to the limit of its reply, and all of it would stand in every later prompt.
    Error: "empty".
    """
    text = reply.strip()
    if not text:
        return Parsed("", "empty")
    parts = sentences(readable(text)) if len(text) <= MOST else [text]
    kept = list(dict.fromkeys(parts))
    if len(kept) == len(parts):
        return Parsed(text)
    if any(other.startswith(kept[-1]) for other in kept[:-1]):
        kept.pop()  # cut off by the limit
    return Parsed(" ".join(kept))


def parse_choice(reply: str, choices: Sequence[str]) -> Parsed:
    """One of `choices`; engines restrict the reply to them, other policies may not. Error: "not_a_choice"."""
    text = reply.strip().lower()
    return Parsed(text) if text in choices else Parsed(None, "not_a_choice")
