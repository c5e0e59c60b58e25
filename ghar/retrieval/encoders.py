"""Sentence encoders: text in, unit vectors out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ghar.disk import stamp
from ghar.errors import BadInput
from ghar.privacy import HOW_TO_DOWNLOAD
from ghar.retrieval.sparse import words_and_pairs

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from sklearn.feature_extraction import FeatureHasher

# The retrievers compared in Section V-B of GHAR. The paper names the families, not the checkpoints.
MODELS = {
    "e5": "intfloat/e5-base-v2",
    "bge_m3": "BAAI/bge-m3",
    "clinical_bert": "emilyalsentzer/Bio_ClinicalBERT",
}

CODES = "codes"  # a kind of retriever that is fitted to the codes of events, and encodes no other text

# What E5 was trained to see before a text (Wang et al. 2022). Other models bring their own prompts, or need none.
E5_PROMPTS = {"query": "query: ", "document": "passage: "}


class Encoder(Protocol):
    """Turns texts into f32[n, dimension] of unit length. `key` tells its vectors from those of other encoders."""

    @property
    def key(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    def queries(self, texts: Sequence[str]) -> np.ndarray: ...

    def passages(self, texts: Sequence[str]) -> np.ndarray: ...


@dataclass(frozen=True)
class HashingEncoder:
    """Words and word pairs hashed into signed buckets: a dense encoder for measurements, without any model."""

    dimension: int = 128

    @property
    def key(self) -> str:
        return f"hashing-{self.dimension}"

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        return self.passages(texts)

    def passages(self, texts: Sequence[str]) -> np.ndarray:
        from sklearn.utils.sparsefuncs_fast import inplace_csr_row_normalize_l2

        vectors = _hasher(self.dimension).transform([words_and_pairs(text) for text in texts])
        inplace_csr_row_normalize_l2(vectors)
        return vectors.toarray()


@cache
def _hasher(dimension: int) -> FeatureHasher:
    """What scikit-learn's HashingVectorizer is made of: that one checks its options again for every query, which takes
    longer than the hashing."""
    from sklearn.feature_extraction import FeatureHasher

    options: dict[str, Any] = {"input_type": "string", "dtype": np.float32}  # its types allow float64 alone
    return FeatureHasher(dimension, **options)


@dataclass(frozen=True, eq=False)
class SentenceEncoder:
    """A sentence-transformers model with its own pooling and prompts."""

    key: str
    model: SentenceTransformer
    batch_size: int

    @property
    def dimension(self) -> int:
        size = self.model.get_embedding_dimension()
        assert size is not None
        return size

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        return self.model.encode_query(list(texts), **self._options())

    def passages(self, texts: Sequence[str]) -> np.ndarray:
        return self.model.encode_document(list(texts), **self._options())

    def _options(self) -> dict[str, Any]:
        return {"batch_size": self.batch_size, "normalize_embeddings": True, "show_progress_bar": False}


def load_encoder(kind: str, batch_size: int) -> Encoder:
    """The encoder that a retriever kind means: a name of `MODELS`, "hashing" (or "hashing-N" of N dimensions), any
    sentence-transformers name, or a folder. `BadInput` when it cannot be loaded, which without a network is the case
    for every name not yet cached."""
    if kind == "hashing":
        return HashingEncoder()
    if kind == CODES:
        raise BadInput(f"retriever={CODES} is fitted to events, which only system=ehr_rag retrieves: choose another.")
    family, _, dimension = kind.partition("-")
    if family == "hashing" and dimension.isdigit():
        return HashingEncoder(int(dimension))
    name = MODELS.get(kind, kind)
    from sentence_transformers import SentenceTransformer

    folder = Path(name).expanduser()
    source = str(folder) if folder.is_dir() else name
    try:
        model = SentenceTransformer(source, prompts=E5_PROMPTS if _is_e5(name) else None)
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(
            f"retriever.kind={kind}: the sentence encoder {name!r} could not be loaded ({reason}); give the path of a "
            "local sentence-transformers folder, or use retriever=tfidf or retriever=bm25, which need no download"
            f"{HOW_TO_DOWNLOAD}."
        ) from None
    return SentenceEncoder(_key(name, folder), model, batch_size)


def _is_e5(name: str) -> bool:
    """Whether a model wants E5's prefixes; the instruction-tuned ones bring longer prompts of their own."""
    last = Path(name).name.lower()
    return "e5-" in last and "instruct" not in last


def _key(name: str, folder: Path) -> str:
    """The name, and for a folder also the sizes and times of its files, so that a changed model is indexed anew."""
    if not folder.is_dir():
        return name
    facts = repr([(str(p.relative_to(folder)), *stamp(p)) for p in sorted(folder.rglob("*")) if p.is_file()])
    return f"{folder.resolve()}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"
