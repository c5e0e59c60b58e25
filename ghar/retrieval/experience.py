"""Experience retrievers: from the reports of similar patients, the pieces that answer a question (section 3.2, EXPRAG).

bm25, dense, fusion      chunks of a report, by words, by vectors, by both (relative score fusion)
sentence_window          single sentences, each returned with its neighbours
auto_merging             small chunks; where most chunks of a longer stretch are hit, the stretch is returned

A piece is matched together with the heading it stands under. Sizes are LlamaIndex's defaults, which the paper names
as its source, in words (four words to five tokens, say): chunks of 800, windows of 3 sentences on either side, chunks
of 100 within 400 within 1,600. As LlamaIndex's, a chunk holds whole sentences; here whole items of a list, too.
FLARE asks again while the answer is written, so it is a way of asking (envs/exprag/flare.py) and not of finding; it
finds with `dense`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from ghar.data.sections import split_sections
from ghar.retrieval.matching import Matcher, bm25, fused, top

CHUNK, LEAF, BRANCHES, LEVELS = 800, 100, 4, 2
KEPT = 8192  # reports whose pieces are kept: a report is found for many questions
MAJORITY = 0.5  # share of a stretch's chunks that must be exceeded
WINDOW = 3
SENTENCE = re.compile(r"\S[^\n]*?(?:[.!?]+(?=\s|\Z)|(?=\n)|\Z)")
# A sentence, or an item of a list with its number, also where the next number stands in the same line.
ITEM = re.compile(r"(?:\d+[.)][^\S\n]+)?\S[^\n;]*?(?:[.!?]+(?=\s|\Z)|;|(?=\s+\d+[.)]\s)|(?=\n)|\Z)")
WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class ReportSpan:
    """A piece of a report: text[start:end], and the heading it begins under; `first` and `last` number its smallest
    units in the report."""

    report: int
    heading: str
    start: int
    end: int
    first: int
    last: int


@dataclass(frozen=True)
class Excerpt:
    """A piece that was found: of which report, under which heading it begins, its text and score."""

    report: int
    heading: str
    text: str
    score: float


Cut = tuple[tuple[str, int, int], ...]  # heading, start, end
Finder = Callable[[Mapping[int, str], str, int], list[tuple[ReportSpan, float]]]  # reports, query, top_n -> pieces


def make_finder(kind: str, vectors: Matcher) -> Finder:
    """The retriever named `kind`; `vectors` is what dense retrieval means here."""
    if kind == "bm25":
        return chunk_finder(bm25)
    if kind == "fusion":
        return chunk_finder(fused(bm25, vectors))
    if kind in ("dense", "flare"):
        return chunk_finder(vectors)
    if kind == "sentence_window":
        return window_finder(vectors)
    if kind == "auto_merging":
        return merging_finder(vectors)
    raise ValueError(f"there is no retriever {kind!r}")


def find_excerpts(finder: Finder, reports: Mapping[int, str], query: str, top_n: int) -> list[Excerpt]:
    """The `top_n` best pieces of `reports` (number -> text), best first; merged pieces may leave fewer."""
    return [
        Excerpt(span.report, span.heading, reports[span.report][span.start : span.end].strip(), score)
        for span, score in finder(reports, query, top_n)
    ]


def chunk_finder(matcher: Matcher) -> Finder:
    """Chunks of at most `CHUNK` words that end with their section."""
    return partial(_find_chunks, matcher)


def _find_chunks(
    matcher: Matcher, reports: Mapping[int, str], query: str, top_n: int
) -> list[tuple[ReportSpan, float]]:
    return _match(matcher, reports, _all(reports, lambda text: chunks(text, CHUNK)), query, top_n)


def window_finder(matcher: Matcher, window: int = WINDOW) -> Finder:
    """Sentences, each widened by `window` neighbours on both sides; windows that meet become one, with the best of
    their scores."""
    return partial(_find_windows, matcher, window)


def _find_windows(
    matcher: Matcher, window: int, reports: Mapping[int, str], query: str, top_n: int
) -> list[tuple[ReportSpan, float]]:
    spans = _all(reports, sentence_spans)
    by_place = {(span.report, span.first): span for span in spans}
    lengths = {span.report: span.first + 1 for span in spans}
    hits = _match(matcher, reports, spans, query, top_n)
    wide = []
    for report in dict.fromkeys(span.report for span, _ in hits):
        own = {span.first: score for span, score in hits if span.report == report}
        for first, last, score in join_windows(own, window, lengths[report]):
            ends = by_place[report, first], by_place[report, last]
            wide.append((ReportSpan(report, ends[0].heading, ends[0].start, ends[1].end, first, last), score))
    return sorted(wide, key=lambda hit: -hit[1])


def join_windows(hits: Mapping[int, float], window: int, length: int) -> list[tuple[int, int, float]]:
    """(first, last, best score) of the stretches that the windows around `hits` (place -> score) cover, in order."""
    joined: list[tuple[int, int, float]] = []
    for place in sorted(hits):
        first, last, score = max(place - window, 0), min(place + window, length - 1), hits[place]
        if joined and first <= joined[-1][1] + 1:
            before = joined.pop()
            first, score = before[0], max(before[2], score)
        joined.append((first, last, score))
    return joined


def merging_finder(matcher: Matcher, leaf: int = LEAF) -> Finder:
    """Leaves of `leaf` words in stretches of 4 leaves, those in stretches of 4 again (`merge`)."""
    return partial(_find_merged, matcher, leaf)


def _find_merged(
    matcher: Matcher, leaf: int, reports: Mapping[int, str], query: str, top_n: int
) -> list[tuple[ReportSpan, float]]:
    spans = _all(reports, lambda text: chunks(text, leaf))
    by_place = {(span.report, span.first): span for span in spans}
    counts = {span.report: span.first + 1 for span in spans}
    hits = _match(matcher, reports, spans, query, top_n)
    merged = []
    for report in dict.fromkeys(span.report for span, _ in hits):
        own = {(span.first, 0): score for span, score in hits if span.report == report}
        for (number, level), score in merge(own, counts[report]).items():
            first = number * BRANCHES**level
            last = min(first + BRANCHES**level, counts[report]) - 1
            ends = by_place[report, first], by_place[report, last]
            merged.append((ReportSpan(report, ends[0].heading, ends[0].start, ends[1].end, first, last), score))
    return sorted(merged, key=lambda hit: -hit[1])


def merge(hits: Mapping[tuple[int, int], float], leaves: int) -> dict[tuple[int, int], float]:
    """Replace hit pieces by the stretch they make up, where they are more than half of it, level after level.

    hits: (number, level 0) -> score. A stretch of level l holds the pieces 4n..4n+3 of level l - 1 (fewer at the end
    of a report of `leaves` leaves); its score is the mean of those that were hit. A stretch of one piece is no stretch.
    """
    score_of, pieces = dict(hits), leaves
    for level in range(LEVELS):
        children: dict[int, list[int]] = defaultdict(list)
        for number, own in score_of:
            if own == level:
                children[number // BRANCHES].append(number)
        for parent, hit in sorted(children.items()):
            size = min(BRANCHES, pieces - parent * BRANCHES)
            if size > 1 and len(hit) / size > MAJORITY:
                scores = [score_of.pop((number, level)) for number in sorted(hit)]
                score_of[parent, level + 1] = sum(scores) / len(scores)
        pieces = -(-pieces // BRANCHES)
    return score_of


@lru_cache(maxsize=KEPT)
def chunks(text: str, size: int) -> Cut:
    """Cut sections into stretches of whole sentences and items, as many as `size` words hold; longer ones by words."""
    return tuple(
        (section.heading, start, end)
        for section in split_sections(text)
        for start, end in _packed(text, section.start, section.end, size)
    )


def _packed(text: str, start: int, end: int, size: int) -> list[tuple[int, int]]:
    packed: list[tuple[int, int]] = []
    room = 0  # words that the last stretch may still take
    for item in ITEM.finditer(text, start, end):
        words = [match.span() for match in WORD.finditer(text, *item.span())]
        if len(words) <= room:
            packed[-1] = packed[-1][0], words[-1][1]
            room -= len(words)
            continue
        for i in range(0, len(words), size):
            part = words[i : i + size]
            packed.append((part[0][0], part[-1][1]))
            room = size - len(part)
    return packed


@lru_cache(maxsize=KEPT)
def sentence_spans(text: str) -> Cut:
    """The sentences and lines of a report's sections."""
    return tuple(
        (section.heading, *match.span())
        for section in split_sections(text)
        for match in SENTENCE.finditer(text, section.start, section.end)
    )


def _all(reports: Mapping[int, str], cut: Callable[[str], Cut]) -> list[ReportSpan]:
    return [
        ReportSpan(report, heading, start, end, number, number)
        for report, text in reports.items()
        for number, (heading, start, end) in enumerate(cut(text))
    ]


def _match(
    matcher: Matcher, reports: Mapping[int, str], spans: Sequence[ReportSpan], query: str, top_n: int
) -> list[tuple[ReportSpan, float]]:
    texts = [f"{span.heading}: {reports[span.report][span.start : span.end]}" for span in spans]
    scores = matcher(texts, query) if spans else np.zeros(0)
    return [(spans[i], float(scores[i])) for i in top(scores, top_n).tolist()]
