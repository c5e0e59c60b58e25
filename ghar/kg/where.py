"""Where a run's graph lies, and the sentence for one that is not there."""

from __future__ import annotations

from pathlib import Path

from ghar.config import KgConfig

NEED_NONE = ("baselines", "ehr_rag", "exprag", "graphwalker")  # systems without `reads_graph`


def graph_file(kg: KgConfig, root: Path) -> Path:
    """File of the graph, or folder of UMLS: `kg.path`, else beside the tables in `root`, as generated ones have it."""
    return Path(kg.path) if kg.path else root / "kg" / "kg.csv.gz"


def no_graph(path: Path) -> str:
    """What to do where the tables come without a graph."""
    *others, last = NEED_NONE
    return (
        f"There is no graph at {path}: set kg.path to a PrimeKG-format csv or csv.gz, or choose a system that needs "
        f"none, as system={', '.join(others)} or {last}."
    )
