"""The words of the demo world: real codes and names, read from vocabulary.csv beside this file.

The list is our own selection. Titles are the public-domain ones of the ICD-10-CM order file (CMS, FY 2021) and of
ICD-10-PCS; drugs are INN names with their ATC code (WHO Collaborating Centre for Drug Statistics Methodology); lab
items are MIMIC-IV's; genes, tissues, exposures, processes and phenotypes carry the NCBI, UBERON, MeSH, GO and HPO
numbers that PrimeKG uses. Within a kind, common rows stand in order of falling frequency.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import polars as pl

VOCABULARY_FILE = Path(__file__).with_name("vocabulary.csv")


@dataclass(frozen=True)
class Vocabulary:
    """One table per kind; columns kind, code, name, tier, lasting, atc, unit, low, high, category (all str).

    conditions: common ones first, `lasting` = "1" when a patient keeps it from visit to visit. drugs: common first.
    digest: sha256 of the file, so that a world can tell which vocabulary it was made from.
    """

    conditions: pl.DataFrame
    drugs: pl.DataFrame
    procedures: pl.DataFrame
    labs: pl.DataFrame
    fillers: pl.DataFrame
    digest: str

    def filler(self, kind: str) -> pl.DataFrame:
        """Rows of one kind of graph node no patient table mentions: gene, anatomy, exposure, process, phenotype."""
        return self.fillers.filter(pl.col("kind") == kind)


@lru_cache(maxsize=1)
def load_vocabulary() -> Vocabulary:
    """Read the package's own vocabulary.csv."""
    table = pl.read_csv(VOCABULARY_FILE, infer_schema=False).with_columns(pl.all().fill_null(""))
    return Vocabulary(
        conditions=table.filter(pl.col("kind") == "condition").sort("tier", maintain_order=True),
        drugs=table.filter(pl.col("kind") == "drug").sort("tier", maintain_order=True),
        procedures=table.filter(pl.col("kind") == "procedure"),
        labs=table.filter(pl.col("kind") == "lab"),
        fillers=table.filter(pl.col("kind").is_in(["gene", "anatomy", "exposure", "process", "phenotype"])),
        digest=hashlib.sha256(VOCABULARY_FILE.read_bytes()).hexdigest(),
    )
