"""200 links drawn at random over the three open demos and judged by reading, and how many mentions have a node.

tests/data/judged_links.csv (demo, text, node, verdict) was drawn from all links, one a code and demo, with polars'
`sample(200, seed=41, shuffle=True)` of the links in the order of demo and code. A changed link must be judged anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.readers.eicu import read_eicu
from ghar.data.readers.mimic3 import read_mimic3
from ghar.data.readers.mimic4 import read_mimic4
from ghar.kg.graph import KnowledgeGraph
from ghar.kg.linking import link_codes
from ghar.kg.primekg import read_primekg

ROOT = Path(__file__).resolve().parents[2]
JUDGED = ROOT / "tests" / "data" / "judged_links.csv"
DEMOS: dict[str, tuple[Callable[..., Cohort], str]] = {
    "mimic3": (read_mimic3, "mimic-iii-demo-1.4"),
    "mimic4": (read_mimic4, "mimic-iv-demo-2.2"),
    "eicu": (read_eicu, "eicu-crd-demo-2.0.1"),
}
KINDS = {
    **dict.fromkeys(("ICD9CM", "ICD10CM", "EICU_DIAGNOSIS"), "diagnoses"),
    **dict.fromkeys(("DRUG",), "drugs"),
    **dict.fromkeys(("EICU_TREATMENT",), "treatments"),
}
MENTIONS = {  # demo -> kind -> mentions with a node, all mentions
    # six of them by the names of finer codes (code_families.py), read: respiratory failure, dysphagia
    "mimic3": {"diagnoses": (957, 1761), "drugs": (7038, 7781)},
    # four fewer than before, of three residual codes whose nodes were wrong, as "vitamin B12 deficiency" was of "Other
    # B-complex deficiencies"
    "mimic4": {"diagnoses": (2239, 4506), "drugs": (12886, 14410)},
    # 1,112 fewer mentions, of codes that say something else than their row: "septic shock" of hypovolemic shock
    "eicu": {"diagnoses": (32587, 44080), "drugs": (36200, 43421), "treatments": (14773, 38290)},
}


@pytest.fixture(scope="module")
def graph(shared_data: Path) -> KnowledgeGraph:
    return read_primekg(shared_data / "kg/primekg-subset/merged_kg_12col.csv.gz")


@pytest.mark.slow
@pytest.mark.parametrize("demo", DEMOS)
def test_judged_links_and_coverage(shared_data: Path, graph: KnowledgeGraph, demo: str, tmp_path: Path) -> None:
    read, folder = DEMOS[demo]
    root = shared_data / folder
    if demo == "eicu":  # its table lab lies in a folder of its own there
        for path in [*root.glob("*.csv.gz"), root / "subset_174_stays" / "lab.csv.gz"]:
            (tmp_path / path.name).symlink_to(path)
        root = tmp_path
    cohort = read(root, charts=False)
    links = link_codes(cohort.codes, graph, shared_data / "kg/primekg-subset/txgnn_mondo_references.csv.gz")
    nodes = {code: graph.names[node] for code, node in links.nodes.items()}
    vocabulary = pl.col("code").str.extract("^([^/]*)/")
    uses = cohort.scan().select("code", kind=vocabulary.replace_strict(KINDS, default=None)).drop_nulls().collect()
    found = uses.group_by("kind").agg(linked=pl.col("code").is_in(list(nodes)).sum(), all=pl.len())
    assert {kind: (linked, whole) for kind, linked, whole in found.rows()} == MENTIONS[demo]

    own = cohort.names()
    text = {code: own[code] if code.startswith("ICD") else code.partition("/")[2] for code in own}
    linked = {(text[code], node) for code, node in nodes.items()}
    judged = pl.read_csv(JUDGED).filter(pl.col("demo") == demo)
    changed = [(text, node) for _, text, node, _ in judged.iter_rows() if (text, node) not in linked]
    assert not changed, "judge these anew"


def test_the_page_names_the_verdicts() -> None:
    verdicts = dict(pl.read_csv(JUDGED).group_by("verdict").len().iter_rows())
    assert verdicts == {"right": 175, "one ingredient": 6, "too broad": 15, "wrong": 4}
    page = (ROOT / "docs" / "your-graph.md").read_text()
    assert all(f"| {verdict} | {count} |" in page for verdict, count in verdicts.items())
