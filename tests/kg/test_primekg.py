from pathlib import Path

import polars as pl
import pytest

from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph
from ghar.kg.primekg import COLUMNS, open_primekg, read_primekg
from tests.kg.graphs import ALS, DEMENTIA, METFORMIN, TINY, WEAKNESS, frame, graph_of


def triples(graph: KnowledgeGraph) -> set[tuple[str, str, str]]:
    ends = zip(graph.head.tolist(), graph.display.tolist(), graph.tail.tolist(), strict=True)
    return {(graph.names[h], graph.displays[d], graph.names[t]) for h, d, t in ends}


def test_csv_gz_and_parquet_give_the_same_graph(tmp_path: Path):
    table = frame(TINY)
    table.write_csv(tmp_path / "kg.csv")
    table.write_csv(tmp_path / "kg.csv.gz", compression="gzip")
    table.write_parquet(tmp_path / "kg.parquet")
    prints = {read_primekg(tmp_path / name).fingerprint for name in ("kg.csv", "kg.csv.gz", "kg.parquet")}
    assert len(prints) == 1


def test_a_reversed_row_is_the_same_edge(tmp_path: Path):
    graph = graph_of(tmp_path, TINY)
    assert graph.num_edges == len(TINY)
    paths = [(graph.types[h], r, graph.types[t]) for h, r, t in zip(
        graph.path_head, graph.path_relation, graph.path_tail, strict=True)]
    assert paths == [
        ("disease", "disease_disease", "disease"),
        ("disease", "disease_phenotype_positive", "effect/phenotype"),
        ("disease", "disease_protein", "gene/protein"),
        ("disease", "indication", "drug"),
        ("drug", "drug_protein", "gene/protein"),
    ]


def test_within_a_type_the_smaller_index_leads(tmp_path: Path):
    assert ("amyotrophic lateral sclerosis", "parent-child", "dementia") in triples(graph_of(tmp_path, TINY))


def test_one_way_edges_keep_their_direction(tmp_path: Path):
    edges = [(WEAKNESS, "disease_phenotype_positive", "seen in", ALS), (DEMENTIA, "disease_disease", "includes", ALS)]
    assert triples(graph_of(tmp_path, edges, closed=False)) == {
        ("Muscle weakness", "seen in", "amyotrophic lateral sclerosis"),
        ("dementia", "includes", "amyotrophic lateral sclerosis"),
    }


@pytest.mark.parametrize("seed", range(5))
def test_order_and_repetition_of_rows_do_not_matter(tmp_path: Path, seed: int):
    graph = graph_of(tmp_path, TINY)
    table = pl.concat([frame(TINY), frame(TINY[:3])]).sample(fraction=1, shuffle=True, seed=seed)
    table.write_csv(tmp_path / "shuffled.csv")
    assert read_primekg(tmp_path / "shuffled.csv").fingerprint == graph.fingerprint


def test_the_real_subset(shared_data: Path):
    graph = read_primekg(shared_data / "kg/primekg-subset/merged_kg_12col.csv.gz")
    assert (graph.num_nodes, graph.num_edges, graph.num_paths) == (17_403, 65_202, 14)


def change(column: str, value: object):
    """A table whose third row has `value` in `column`."""
    table = frame(TINY).with_columns(pl.col("x_index", "y_index").cast(pl.String))
    row = pl.int_range(pl.len()) == 2
    return table.with_columns(pl.when(row).then(pl.lit(value, dtype=pl.String)).otherwise(pl.col(column)).alias(column))


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("x_name", None, "row 3, column x_name: the value is blank"),
        ("y_type", "  ", "row 3, column y_type: the value is blank"),
        ("y_index", "4.5", "row 3, column y_index: '4.5' is not a whole number"),
        ("x_name", "ALS", "x_name: node 10 is"),
        ("y_type", "disease", "y_type: node 30 is"),
    ],
)
def test_bad_values_are_named_by_row_and_column(tmp_path: Path, column: str, value: object, says: str):
    change(column, value).write_csv(tmp_path / "kg.csv")
    with pytest.raises(BadInput, match=r"kg\.csv") as error:
        read_primekg(tmp_path / "kg.csv")
    assert says in str(error.value)


def test_a_missing_column_is_named(tmp_path: Path):
    frame(TINY).drop("y_source").write_csv(tmp_path / "kg.csv")
    with pytest.raises(BadInput, match=r"has the columns .*: a graph is a table with PrimeKG's 12 columns"):
        read_primekg(tmp_path / "kg.csv")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("kg.csv", b"", "is empty"),
        ("kg.csv", (",".join(COLUMNS) + "\n").encode(), "no rows"),
        ("kg.csv.gz", b"\x1f\x8b\x08\x00 this is no gzip stream", "not a readable"),
        ("kg.parquet", b"PAR1 and nothing else", "not a readable"),
    ],
)
def test_unusable_files(tmp_path: Path, name: str, content: bytes, says: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=says):
        read_primekg(tmp_path / name)


def test_no_file(tmp_path: Path):
    with pytest.raises(BadInput, match="no such file"):
        read_primekg(tmp_path / "nowhere.csv")


def test_a_parquet_column_of_lists_is_refused(tmp_path: Path):
    frame(TINY).with_columns(x_name=pl.concat_list("x_name")).write_parquet(tmp_path / "kg.parquet")
    with pytest.raises(BadInput, match="column x_name"):
        read_primekg(tmp_path / "kg.parquet")


def test_the_drug_protein_path_reads_as_in_the_paper(tmp_path: Path):
    graph = graph_of(tmp_path, [(METFORMIN, "drug_protein", "target", (40, "gene/protein", "SOD1"))])
    assert triples(graph) == {("Metformin", "target", "SOD1")}


def test_a_graph_is_read_once_and_again_when_its_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = graph_of(tmp_path, TINY)
    assert open_primekg(tmp_path / "kg.csv", tmp_path / "cache").fingerprint == before.fingerprint
    with monkeypatch.context() as patch:
        patch.setattr("ghar.kg.primekg.read_primekg", None)
        again = open_primekg(tmp_path / "kg.csv", tmp_path / "cache")
    assert again.fingerprint == before.fingerprint and list(again.names) == list(before.names)
    smaller = graph_of(tmp_path, TINY[:3])
    assert open_primekg(tmp_path / "kg.csv", tmp_path / "cache").fingerprint == smaller.fingerprint
    with pytest.raises(BadInput, match=r"none\.csv: no such file"):
        open_primekg(tmp_path / "none.csv", tmp_path / "cache")
