"""Write a graph as one table in PrimeKG's format, which every system reads: launch/convert_graph.py SOURCE TARGET

SOURCE: Hetionet's or SPOKE's edges with their nodes beside them, plain triples (head, relation, tail), PrimeKG itself,
or a folder of UMLS with MRCONSO.RRF, MRREL.RRF and MRSTY.RRF. TARGET: a .csv, .csv.gz or .parquet file for kg.path.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> None:
    """Convert, read the result again, and say what it holds. Raises BadInput."""
    from ghar.errors import BadInput

    if len(arguments) != 2:
        raise BadInput("A graph and a file to write are wanted: ghar graph edges.sif.gz kg.csv.gz")
    from ghar.kg.convert import convert
    from ghar.kg.metapaths import metapaths
    from ghar.kg.primekg import read_primekg

    source, target = map(Path, arguments)
    convert(source, target)
    graph = read_primekg(target)
    print(f"{target}: {graph.num_nodes:,} nodes of {len(graph.types)} types ({', '.join(graph.types)}), "
          f"{graph.num_edges:,} edges of {len(metapaths(graph))} meta-paths")  # fmt: skip


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and no launcher hides a library of its name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import plainly

    plainly(lambda: main(sys.argv[1:]), __doc__ or "")
