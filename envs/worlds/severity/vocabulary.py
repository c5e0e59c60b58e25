"""The words of the demo world: real codes and names of what is common, invented names for the long tail.

vocabulary.csv, beside this file, is our own selection. Titles are the public-domain ones of the ICD-10-CM order file
(CMS, FY 2021) and of ICD-10-PCS; drugs are INN names with their ATC code (WHO Collaborating Centre for Drug Statistics
Methodology); lab items are MIMIC-IV's; genes, tissues, exposures, processes and phenotypes carry the NCBI, UBERON,
MeSH, GO and HPO numbers that PrimeKG uses. Within a kind, common rows stand in order of falling frequency.

The tail (story.py) is invented, since no list of real names is long enough for entities that are seen
about once each: two made-up words a name, so that a small model can copy names that it has never met. Its conditions
carry codes of U50 to U99, the block that ICD-10 leaves to research.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl

from ghar.errors import BadInput

VOCABULARY_FILE = Path(__file__).with_name("vocabulary.csv")
FIRST, SECOND = "bar cor del fal gor hel jan kel lor mar nor pel ras sol tar vel wen yor".split(), (
    "lan mek nop pis rud sto tev vin dag bul fen gis hom kir luz rix sab zet"
).split()  # fmt: skip
ENDINGS = {  # kind -> what its first words end in, and its second words, so that no word belongs to two kinds
    "condition": ("", ("itis", "osis", "emia", "ataxia", "trophy")),
    "drug": ("i", ("mab", "nib", "pril", "statin", "zole")),
    "target": ("u", ("ase", "kine", "ctin", "globin", "receptin")),
}
CODES = 500_000  # U50.0000 to U99.9999


@dataclass(frozen=True)
class WorldVocabulary:
    """One table per kind; columns kind, code, name, tier, lasting, atc, unit, low, high, category (all str).

    conditions: common ones first, `lasting` = "1" when a patient keeps it from visit to visit. drugs: common first.
    targets: genes and proteins of the tail; drug number i of the tail acts on target number i.
    digest: sha256 of the file, so that a world can tell which vocabulary it was made from.
    """

    conditions: pl.DataFrame
    drugs: pl.DataFrame
    targets: pl.DataFrame
    procedures: pl.DataFrame
    labs: pl.DataFrame
    fillers: pl.DataFrame
    digest: str

    @property
    def tail(self) -> int:
        """Entities of the long tail, of each kind."""
        return self.targets.height

    def filler(self, kind: str) -> pl.DataFrame:
        """Rows of one kind of graph node no patient table mentions: gene, anatomy, exposure, process, phenotype."""
        return self.fillers.filter(pl.col("kind") == kind)


@lru_cache(maxsize=4)
def load_vocabulary(tail: int) -> WorldVocabulary:
    """The package's own vocabulary.csv, and `tail` invented conditions, drugs and targets. BadInput for too many."""
    if tail > CODES:
        raise BadInput(f"A demo world has room for {CODES} rare conditions, not {tail}: generate fewer patients.")
    table = pl.read_csv(VOCABULARY_FILE, infer_schema=False, glob=False).with_columns(pl.all().fill_null(""))
    numbers = range(tail)
    codes = {
        "condition": [f"U{50 + i // 10_000}{i % 10_000:04d}" for i in numbers],
        "drug": [""] * tail,
        "target": [str(9_000_000 + i) for i in numbers],
    }
    rare = {
        kind: pl.DataFrame({"code": codes[kind], "name": invented(kind, tail)}, schema={"code": str, "name": str})
        .with_columns(pl.lit(kind).alias("kind"), pl.lit("rare").alias("tier"))
        .select(pl.col(c) if c in ("kind", "code", "name", "tier") else pl.lit("").alias(c) for c in table.columns)
        for kind in ENDINGS
    }
    # Or the name of a drug would tell that of its target, which the graph alone should.
    order = np.random.default_rng(0).permutation(tail)
    rare["target"] = rare["target"].with_columns(pl.col("name").gather(order))
    common = {kind: table.filter(pl.col("kind") == kind) for kind in ("condition", "drug")}
    return WorldVocabulary(
        conditions=pl.concat([common["condition"], rare["condition"]]),
        drugs=pl.concat([common["drug"], rare["drug"]]),
        targets=rare["target"],
        procedures=table.filter(pl.col("kind") == "procedure"),
        labs=table.filter(pl.col("kind") == "lab"),
        fillers=table.filter(~pl.col("kind").is_in(["condition", "drug", "procedure", "lab"])),
        digest=hashlib.sha256(VOCABULARY_FILE.read_bytes()).hexdigest(),
    )


def invented(kind: str, count: int) -> list[str]:
    """`count` different names of two words each, over as few words as can make them: every word recurs."""
    side = math.isqrt(max(count - 1, 0)) + 1
    ending, seconds = ENDINGS[kind]
    stems = _stems(side)
    last = [stem + seconds[i % len(seconds)] for i, stem in enumerate(stems)]
    # The first word runs fastest along a diagonal, so that neighbours share no word.
    return [f"{stems[i % side]}{ending} {last[(i // side + i) % side]}" for i in range(count)]


def _stems(count: int) -> list[str]:
    """Different stems of two syllables, and of three where there are not enough; no stem begins another."""
    pairs = [a + b for b in SECOND for a in FIRST]
    if count <= len(pairs):
        return pairs[:count]
    return [a + b + c for b in SECOND for c in SECOND for a in FIRST][:count]


def tail_words(count: int) -> list[str]:
    """All words of the names of a tail of that size."""
    names = [name for kind in ENDINGS for name in invented(kind, count)]
    return list(dict.fromkeys(word for name in names for word in name.split()))
