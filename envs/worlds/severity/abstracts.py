"""Generated abstracts of the demo world: one for every disease, drug and gene of its knowledge graph, telling some of
its edges in sentences.

They state grades as the graph does, so what they say of common conditions misleads in this hospital (story.py), and
look-alikes have grades of their own. Written only when asked for, beside the world.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import polars as pl

from ghar.envs.worlds.severity.world import load_world
from ghar.errors import BadInput
from ghar.provenance import GENERATED, signed_mark
from ghar.seal import sound
from ghar.storage import new_folder

FORMAT = 2
STREAM = 8  # of the world's seed; worlds draw from streams 0 to 2, discharge summaries from 7
# relation -> the types of its two ends, and its sentence; {display} is the relation's display name
SENTENCES = {
    "disease_phenotype_positive": ("disease", "effect/phenotype", "{x} takes a {y}."),
    "drug_effect": ("drug", "effect/phenotype", "{x} leads to a {y}."),
    "indication": ("drug", "disease", "{x} is given for {y}."),
    "contraindication": ("drug", "disease", "{x} should be avoided in {y}."),
    "disease_protein": ("gene/protein", "disease", "{x} is associated with {y}."),
    "drug_protein": ("gene/protein", "drug", "{x} is a {display} of {y}."),
    "exposure_disease": ("exposure", "disease", "{x} is linked to {y}."),
    "phenotype_protein": ("effect/phenotype", "gene/protein", "{y} brings a {x}."),
}
PADDING = (
    "We went through the charts of {n} patients.",
    "Interviews with {n} clinicians were held.",
    "Follow-up took {n} months.",
    "Further work is under way at {n} sites.",
)


def write_abstracts(world: Path, folder: Path) -> None:
    """Write abstracts.jsonl.gz of the world in `world` to `folder`, whole or not at all; finished ones of the same
    world are kept. Raises BadInput when `world` is no finished demo world, and when `folder` holds something else."""
    wanted = {"generated": True, "format": FORMAT, "world": dict(load_world(world).manifest["parameters"])}
    kept = folder / "manifest.json"
    if kept.exists() and sound(folder) and signed_mark(folder).generated and json.loads(kept.read_text()) == wanted:
        return
    if folder.exists() and not kept.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} holds something else than generated abstracts: delete it or name another folder.")
    rng = np.random.default_rng(np.random.SeedSequence(wanted["world"]["seed"], spawn_key=(STREAM,)))
    sentences = _collect_sentences(pl.read_csv(world / "kg" / "kg.csv.gz", infer_schema=False, glob=False))
    rows = [
        {"id": f"GENERATED-{number}", "title": f"On {name}", "abstract": _abstract(rng, sentences[name])}
        for number, name in enumerate(sorted(sentences), 1)
    ]
    with new_folder(folder, GENERATED) as half:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (half / "abstracts.jsonl.gz").write_bytes(gzip.compress(text.encode(), compresslevel=3, mtime=0))
        (half / "manifest.json").write_text(json.dumps(wanted, indent=1) + "\n")


def _collect_sentences(graph: pl.DataFrame) -> dict[str, list[str]]:
    """Collect the sentences about each disease, drug or gene, in an order of their own."""
    sentences: dict[str, list[str]] = {}
    for relation, (x, y, sentence) in SENTENCES.items():
        edges = graph.filter(
            pl.col("relation") == relation, pl.col("x_type") == x, pl.col("y_type") == y
        ).select("x_name", "y_name", "display_relation", "x_type", "y_type")
        for x_name, y_name, display, *types in edges.sort(pl.all()).iter_rows():
            for name, kind in zip((x_name, y_name), types, strict=True):
                if kind in ("disease", "drug", "gene/protein"):
                    sentences.setdefault(name, []).append(sentence.format(x=x_name, y=y_name, display=display))
    return sentences


def _abstract(rng: np.random.Generator, sentences: list[str]) -> str:
    padding = [PADDING[i].format(n=int(rng.integers(3, 400))) for i in rng.permutation(len(PADDING))[:2]]
    chosen = [sentences[i] for i in rng.permutation(len(sentences))]
    return " ".join(["GENERATED ABSTRACT.", padding[0], *chosen, padding[1]])
