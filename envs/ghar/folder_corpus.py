"""Texts of your own as a corpus: a folder of NAME.txt, a passage a line, a partition a file, asked by TF-IDF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ghar.episode import Evidence, Passage, Retrieve
from ghar.errors import BadInput
from ghar.retrieval.sparse import SparseIndex, build_sparse


@dataclass(frozen=True, eq=False)
class FolderCorpus:
    """names: of the files, without .txt, in their order; starts: where the lines of each begin, and where all end."""

    names: tuple[str, ...]
    lines: tuple[str, ...]
    starts: tuple[int, ...]
    index: SparseIndex

    @classmethod
    def read(cls, folder: Path) -> FolderCorpus:
        """BadInput for a folder without texts, and for a file that is no UTF-8."""
        files = sorted(folder.glob("*.txt"))
        lines: list[str] = []
        starts = [0]
        for file in files:
            try:
                text = file.read_text(encoding="utf-8")
            except UnicodeDecodeError as problem:
                raise BadInput(f"{file} is no UTF-8 text (byte {problem.start}): save it as UTF-8.") from problem
            lines += [" ".join(line.split()) for line in text.split("\n") if line.strip()]
            starts.append(len(lines))
        if not lines:
            raise BadInput(f"system.sources: {folder} holds no NAME.txt with a passage a line.")
        return cls(tuple(file.stem for file in files), tuple(lines), tuple(starts), build_sparse("tfidf", lines))

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One evidence a request, in order: of each partition the `top_n` best lines."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Retrieve) -> Evidence:
        [query] = self.index.encode([request.query])
        passages = []
        for part in request.partitions if request.partitions is not None else range(len(self.names)):
            items = range(self.starts[part], self.starts[part + 1])
            [(hits, scores)] = self.index.search([query], items, request.top_n)
            passages += [
                Passage(self.lines[item], "line", part, score, item)
                for item, score in zip(hits.tolist(), scores.tolist(), strict=True)
            ]
        return Evidence(tuple(sorted(passages, key=lambda p: (-round(p.score, 5), p.partition, p.ident))))
