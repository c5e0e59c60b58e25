"""The keys of system=exprag."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ghar.config import Config, Count, Natural


@dataclass(frozen=True)
class Settings:
    """EXPRAG as the paper has it: three equal weights, 15 stays, auto-merging (Section 5.1). The paper keeps stays with
    3 to 40 rows a table; generated stays have 1 to 4."""

    name: str = "exprag"  # of the room, or a dotted module of your own
    # folder of MIMIC-IV-Note, which holds note/discharge.csv.gz; null generates summaries for generated patients, and
    # for labels of real ones shows plain records of the stays
    notes: str | None = None
    # DischargeQA: who writes the wrong options, a rule or a server as model@http://host:8000/v1 (Figure 8 of the paper)
    options: str = "rule"
    fewest_rows: Count = 1  # DischargeQA: that a stay has in each table
    most_rows: Count = 40  # and at most
    # by codes, with the weights of Eq. 7 so named (the middle two for DischargeQA only); released: a third from each
    # modality's own list; by text; one_code: by chance among stays with the same principal diagnosis; by chance
    ranker: Literal["uniform", "task_focused", "complementary", "released", "text", "one_code", "random"] = "uniform"
    # retriever.kind of the ranker by text, so that excerpts may be found by another; null is the run's own
    ranker_encoder: str | None = None
    top_k: Count = 15  # stays that are ranked
    # how excerpts of the ranked stays' reports are found
    retriever: Literal["auto_merging", "sentence_window", "bm25", "fusion", "dense", "flare"] = "auto_merging"
    excerpts: Count = 48  # pieces of their reports that are looked for
    words: Count = 600  # of those pieces in a prompt
    label_epochs: Count = 8  # over the training samples at most, of label-only SFT (variant label_sft)
    judged: Natural = 0  # DischargeQA: stays on which rankers are held against the model as judge; the paper has 100

    @property
    def patient_text(self) -> tuple[str, ...]:
        """Folders of patients' texts beside the tables (`ghar.config.Named`)."""
        return () if self.notes is None else (self.notes,)


def contradictions(config: Config, own: Settings) -> Iterator[str]:
    """Sentences for values that do not go together."""
    if own.fewest_rows > own.most_rows:
        yield f"system.fewest_rows={own.fewest_rows} is above system.most_rows={own.most_rows}: exchange them."
    if own.options != "rule" and "@http" not in own.options:
        yield f"system.options={own.options} names no server: write rule, or model@http://host:8000/v1."
    if own.ranker_encoder == "bm25":
        yield "system.ranker_encoder=bm25 makes no vectors: choose tfidf, e5 or another model's name."
    by_run = own.ranker == "text" and own.ranker_encoder is None
    if config.retriever.kind == "bm25" and (by_run or own.retriever != "bm25"):
        yield "retriever=bm25 makes no vectors for exprag: choose retriever=tfidf, e5 or another model's name."
