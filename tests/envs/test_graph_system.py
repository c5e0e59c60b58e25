"""The short way to a system (envs/graph_system.py): what is given in part is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ghar.envs.ghar.sources import FolderCorpus
from ghar.envs.graph_system import graph_system
from ghar.envs.records import Records
from ghar.errors import BadInput


@dataclass(frozen=True)
class Part:
    relation: str
    text: str


def test_a_corpus_comes_with_its_partitions(small_records: Records, tmp_path: Any) -> None:
    """The graph's partitions would be asked of a corpus that has none of them."""
    (tmp_path / "wards.txt").write_text("The ward is on the third floor.\n")
    corpus = FolderCorpus.read(tmp_path)
    settings: Any = small_records.config.system
    made = dict(episode=lambda case, spec: iter(()), rule=lambda act: "", roles=("answer",))
    with pytest.raises(BadInput, match="give those of your corpus too"):
        graph_system(small_records, settings, **made, corpus=corpus)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"no part of a System: give report=Reporting\(listed=\.\.\.\)"):
        graph_system(small_records, settings, **made, listed=("scripted",))  # type: ignore[arg-type]
    parts = (Part("wards", "what wards report"),)
    system = graph_system(small_records, settings, **made, corpus=corpus, partitions=parts)  # type: ignore[arg-type]
    assert system.corpus is corpus and system.partitions == parts
