"""An encoder of event rows that needs no download: it is fitted to the training patients' events, without labels.

A row is a name, whatever its time. Its vector has two parts. *Spelling*: the words of the name and the name as a whole,
each weighed by how few names have it (inverse document frequency), and hashed into signed places; a measured number is
one word more. *Meaning*: what the code is found together with, positive pointwise mutual information of codes within a
window of consecutive events of one patient, cut to its leading singular vectors (shifted, Levy and Goldberg 2014; for
clinical codes Beam et al. 2020, cui2vec); of a text that is no known name the mean of its words' meanings. So a row is
found by its own words and by what is found in the same places under other words.

A chunk is the sum of its rows, rare ones first: a row counts by the square of its rarity among the windows and by the
logarithm of how often it is there. Times have no say. In a query the names that it holds count as names, too.

American and British spelling are one ("anaemia", "anemia"), and so are a word and its plural.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from ghar.data.cohort import Cohort
from ghar.errors import BadInput
from ghar.retrieval.sparse import words

SPELLING, MEANING = 1024, 64  # places of the two parts
SHARE = 0.25  # of a cosine that meaning decides
WINDOW = 50  # consecutive events of one patient
MOST_EVENTS = 2_000_000  # that are looked at
MOST_CODES = 20_000  # with a meaning: the most frequent
SHIFT = float(np.log(2))  # twice as often together as by chance is the least that counts
FEW = 5  # windows at which a pair counts half: what was seen twice may be chance (Pantel and Lin 2002)
FEWEST = 3  # windows that a code needs for a meaning
NAME = "="  # begins a term that is a whole name
LONGEST = 16  # words of a name that is looked for in a query
STAMP = re.compile(r"^\[[^\]\n]{0,40}\] ")
KIND = re.compile(r"^\w+ - ")
AMOUNT = re.compile(r"^[<>=~ ]*-?\d[\d.,eE+/-]*(?: |$)")
SILENT = frozenset(
    "a after again all an and any are as at be been before by can did do does for from go had has have his how i if in "
    "into is it its just last like long many may more most next no not of off on one only or other others out over s "
    "same so such than that the their them then there these they this those to under until very was went were what "
    "when where which who whose why will with within would you your".split()
)


@dataclass(frozen=True, eq=False)
class CodeEncoder:
    """f32[n, SPELLING + MEANING] of unit length; 0 for a text without a word.

    key: changes with everything it was fitted to. telling: word -> inverse document frequency among names, the largest
    for a name itself. rarity: name ("=" before it) -> the same among windows. meaning: word or name -> f32[MEANING] of
    unit length. unseen: rarity of a name of no training event.
    """

    key: str
    telling: Mapping[str, float]
    rarity: Mapping[str, float]
    meaning: Mapping[str, np.ndarray]
    unseen: float
    _rows: dict[str, _ChunkRow] = field(default_factory=dict, repr=False)

    @property
    def dimension(self) -> int:
        return SPELLING + MEANING

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """Each text as if it were one row, with every known name in it as a name."""
        rows = [self._row(" ".join(text.split()), asked=True) for text in texts]
        return _sums([{i: 1.0} for i in range(len(rows))], rows)

    def passages(self, texts: Sequence[str]) -> np.ndarray:
        """Each line of a text is a row."""
        places: dict[str, int] = {}
        sums, rows = [], []
        for text in texts:
            weights: dict[int, float] = {}
            for name, count in Counter(STAMP.sub("", line) for line in text.split("\n")).items():
                if name not in places:
                    places[name] = len(rows)
                    rows.append(self._kept(name))
                row = rows[places[name]]
                weights[places[name]] = row.weight * (1.0 + float(np.log(count)))
            sums.append(weights)
        return _sums(sums, rows)

    def _kept(self, name: str) -> _ChunkRow:
        if name not in self._rows:
            self._rows[name] = self._row(name)
        return self._rows[name]

    def _row(self, line: str, asked: bool = False) -> _ChunkRow:
        name, value = _bare(line)
        own = words_of(name)
        whole, single = NAME + " ".join(own), [word for word in dict.fromkeys(own) if word not in SILENT]
        if asked:  # words of no name tell nothing, unless all are so
            single = [word for word in single if word in self.telling] or single
        if not own:
            return _ChunkRow({}, np.zeros(MEANING), 0.0)
        most = max(self.telling.values(), default=1.0)
        weighed = {word: self.telling.get(word, most) for word in single}
        weighed |= dict.fromkeys([*self._names(own)] if asked and whole not in self.rarity else [whole], most)
        if value:
            weighed[f"{whole} {value}"] = most
        meaning: np.ndarray | None = self.meaning.get(whole)
        if meaning is None:
            meanings = [weighed[word] * self.meaning[word] for word in single if word in self.meaning]
            meaning = _unit(np.sum(meanings, axis=0)) if meanings else np.zeros(MEANING)
        return _ChunkRow(weighed, meaning, self.rarity.get(whole, self.unseen) ** 2)

    def _names(self, own: Sequence[str]) -> Iterable[str]:
        """The known names in a text, each as long as it can be."""
        begin = 0
        while begin < len(own):
            for end in range(min(begin + LONGEST, len(own)), begin, -1):
                whole = NAME + " ".join(own[begin:end])
                if whole in self.rarity and own[begin] not in SILENT:
                    yield whole
                    begin = end
                    break
            else:
                begin += 1

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_rows": {}}


@dataclass(frozen=True, eq=False)
class _ChunkRow:
    """spelling: term -> rarity. meaning: f64[MEANING]. weight: of the row in a chunk."""

    spelling: Mapping[str, float]
    meaning: np.ndarray
    weight: float


def fit_code_vectors(cohort: Cohort, patients: Collection[int]) -> CodeEncoder:
    """Rarity and meaning of names from the events of `patients`, who should be the training patients.

    At most `MOST_EVENTS` events are read, of whole patients, drawn. BadInput where none has any.
    """
    events = _events(cohort, patients)
    if events.is_empty():
        raise BadInput("retriever=codes is fitted to training patients' events, and they have none: choose another.")
    codes = events.schema["code"].categories.to_list()  # type: ignore[attr-defined]
    described = cohort.names()
    names = [str(described.get(code) or code) for code in codes]
    incidence: Any = csr_array(
        (np.ones(events.height, np.float32), (events["window"].to_numpy(), events["code"].to_physical().to_numpy())),
        shape=(int(events["window"].to_numpy().max()) + 1, len(codes)),
    )
    incidence.sum_duplicates()
    incidence.data[:] = 1.0
    folded = [words_of(name) for name in names]
    telling, rarity = _telling(folded), _rarity(incidence, folded)
    meaning = _meaning(incidence, folded, telling)
    unseen = float(np.log(1.0 + incidence.shape[0]) + 1.0)
    digest = hashlib.sha256(repr((SPELLING, MEANING, SHARE, sorted(telling.items()), sorted(rarity.items()))).encode())
    for term in sorted(meaning):
        digest.update(term.encode() + np.round(meaning[term], 4).tobytes())
    return CodeEncoder(f"codes-{digest.hexdigest()[:16]}", telling, rarity, meaning, unseen)


def _events(cohort: Cohort, patients: Collection[int]) -> pl.DataFrame:
    """window, code (a category) of the events with a time."""
    timed = cohort.scan().filter(pl.col("time").is_not_null() & pl.col("subject_id").is_in(list(patients)))
    sizes = timed.group_by("subject_id").len().sort("subject_id").collect(engine="streaming")
    sizes = sizes[np.random.default_rng(0).permutation(sizes.height)]  # patients of some sources stand by hospital
    some = sizes.filter(pl.col("len").cum_sum() - pl.col("len") < MOST_EVENTS)["subject_id"]
    order = pl.int_range(pl.len()).over("subject_id") // WINDOW
    rows = timed.filter(pl.col("subject_id").is_in(some.implode())).select("subject_id", "code").collect()
    window = pl.struct("subject_id", "_order").rank("dense") - 1
    kept = pl.Enum(rows["code"].unique().sort())
    return rows.with_columns(_order=order).select(window.alias("window"), code=pl.col("code").cast(kept))


def _telling(names: Sequence[Sequence[str]]) -> dict[str, float]:
    """ln((1 + names) / (1 + names with the word)) + 1."""
    distinct = {tuple(dict.fromkeys(name)) for name in names}
    counts = Counter(word for name in distinct for word in name if word not in SILENT)
    return {word: float(np.log((1 + len(distinct)) / (1 + n)) + 1) for word, n in sorted(counts.items())}


def _rarity(incidence: Any, names: Sequence[Sequence[str]]) -> dict[str, float]:
    """ln((1 + windows) / (1 + windows with the name)) + 1."""
    place: dict[str, int] = {}
    which = [place.setdefault(NAME + " ".join(name), len(place)) for name in names]
    has: Any = csr_array((np.ones(len(which), np.float32), (range(len(which)), which)), shape=(len(names), len(place)))
    windows = np.asarray(((incidence @ has) > 0).sum(axis=0)).ravel()
    return {name: float(np.log((1 + incidence.shape[0]) / (1 + windows[i])) + 1) for name, i in place.items()}


def _meaning(incidence: Any, names: list[list[str]], telling: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Of names, and of words as the mean over the names that have them."""
    counts = np.asarray(incidence.sum(axis=0)).ravel()
    kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_CODES])
    kept = kept[counts[kept] >= FEWEST]
    if len(kept) < 3:
        return {}
    vectors = _factors(incidence[:, kept], counts[kept])
    sums: dict[str, np.ndarray] = {}
    for vector, place in zip(vectors, kept.tolist(), strict=True):
        for term in {NAME + " ".join(names[place]), *(word for word in names[place] if word in telling)}:
            sums[term] = sums.get(term, np.zeros(MEANING)) + vector
    return {term: _unit(vector).astype(np.float32) for term, vector in sums.items() if vector.any()}


def _factors(incidence: Any, counts: np.ndarray) -> np.ndarray:
    """f64[codes, MEANING]: leading factors of the positive pointwise mutual information of codes in a window."""
    from sklearn.decomposition import TruncatedSVD

    together: Any = (incidence.T @ incidence).tocoo()
    apart = together.row != together.col
    row, column = together.row[apart], together.col[apart]
    expected = counts[row] * counts[column] / incidence.shape[0]
    seen = together.data[apart]
    pmi = (np.log(seen / expected) - SHIFT) * seen / (seen + FEW)
    ppmi = csr_array((pmi[pmi > 0], (row[pmi > 0], column[pmi > 0])), shape=together.shape)
    if not ppmi.nnz:
        return np.zeros((len(counts), MEANING))
    size = min(MEANING, len(counts) - 1)
    model = TruncatedSVD(size, n_iter=10, random_state=0)
    left = model.fit_transform(ppmi)  # cosines of these are cosines of rows of the matrix
    return np.pad(left, ((0, 0), (0, MEANING - size)))


def _sums(sums: Iterable[Mapping[int, float]], rows: Sequence[_ChunkRow]) -> np.ndarray:
    """f32[sums, SPELLING + MEANING] of unit length: each a weighted sum of rows of unit length."""
    sums = list(sums)
    place = [(n, row, weight) for n, weights in enumerate(sums) for row, weight in weights.items()]
    weights: Any = csr_array(
        ([w for *_, w in place], ([n for n, *_ in place], [r for _, r, _ in place])), shape=(len(sums), len(rows))
    )
    spelled = [
        (n, at, sign * rare / norm)
        for n, row in enumerate(rows)
        for norm in [np.sqrt(sum(rare * rare for rare in row.spelling.values()))]
        for term, rare in row.spelling.items()
        for at, sign in [_place(term)]
    ]
    table: Any = csr_array(
        ([v for *_, v in spelled], ([n for n, *_ in spelled], [at for _, at, _ in spelled])),
        shape=(len(rows), SPELLING),
    )
    meant = np.stack([row.meaning for row in rows]) if rows else np.zeros((0, MEANING))
    spelling, meaning = _units((weights @ table).toarray()), _units(weights @ meant)
    both = np.hstack([np.sqrt(1 - SHARE) * spelling, np.sqrt(SHARE) * meaning])
    return _units(both).astype(np.float32)


def words_of(text: str) -> list[str]:
    """Words as they are compared: one spelling, no plural."""
    return [_folded(word) for word in words(text)]


@lru_cache(maxsize=65_536)
def _folded(word: str) -> str:
    if len(word) > 4:
        word = word.replace("ae", "e").replace("oe", "e")
        if word.endswith("s") and word[-2] not in "siu":
            word = word[:-1]
        word = re.sub(r"(?<=[a-z])our$", "or", word)
    return word


def _bare(line: str) -> tuple[str, str]:
    """The name of a row without time and type, and the number that was measured; a value in words is of the name."""
    name, separator, value = STAMP.sub("", line).rpartition(" (value: ")
    if not separator:
        return KIND.sub("", value), ""
    name, value = KIND.sub("", name), value.rstrip(")")
    return (name, value) if AMOUNT.match(value) else (f"{name} {value}", "")


@lru_cache(maxsize=65_536)
def _place(term: str) -> tuple[int, float]:
    """Where a term is hashed to, and its sign."""
    number = int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest(), "big")
    return (number >> 1) % SPELLING, 1.0 if number & 1 else -1.0


def _unit(vector: np.ndarray) -> np.ndarray:
    norm = float(np.linalg.norm(vector))
    return vector / norm if norm else vector


def _units(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors, dtype=np.float64), where=norms > 0)
