"""What EHR-RAG retrieves from: stores of events, each built or opened when a view first needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path

from ghar.data.cohort import Cohort
from ghar.data.stay_records import StayRecords
from ghar.data.tasks.first_day import FIRST_DAY
from ghar.data.tasks.visits import EHRSHOT
from ghar.envs.case import Case
from ghar.envs.ehr_rag.code_vectors import fit_code_vectors
from ghar.envs.ehr_rag.episode import EventReading, Method
from ghar.envs.ehr_rag.ether import EtherSpec, EventCorpus, EventQuery, View
from ghar.envs.ehr_rag.settings import Settings
from ghar.envs.records import Records
from ghar.episode import Evidence, Retrieve
from ghar.retrieval.encoders import CODES, Encoder, load_encoder
from ghar.retrieval.event_build import build_event_store
from ghar.retrieval.event_store import Clock, EventStore, PatientRecord, StoreLayout

ENCODED = 256  # chunks a sentence encoder sees at once
STORE_OF_VIEW: Mapping[View, str] = {
    "indicators": "apart", "chunks": "apart", "similar": "whole",
    "newest": "plain", "frequent": "plain", "uniform": "plain",
}  # fmt: skip
STORE_OF_METHOD: Mapping[Method, str] = {
    "ehr_rag": "apart", "no_air": "apart", "no_der": "apart", "no_ether": "whole", "rag": "whole", "react": "whole",
    "direct": "plain", "uniform": "plain", "rule": "plain",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Stores:
    """Three stores of one cohort's events, under `cache`; its patients are records (`StayRecords`).

    load: the encoder of their texts, asked for once. searching: whether chunks of all events will be looked for: then
    one store serves `whole` and `plain`. units: code -> unit of its numbers, None where events say it themselves.
    """

    cohort: Cohort
    cache: Path
    load: Callable[[], Encoder]
    size: int
    overlap: int
    clock: Clock
    searching: bool
    units: Callable[[], Mapping[str, str]] | None = None

    @cached_property
    def encoder(self) -> Encoder:
        """Of queries, rows and indicators' names."""
        return self.load()

    @cached_property
    def apart(self) -> EventStore:
        """Numbers as trajectories, other events in chunks with vectors."""
        return self._build(True, self.encoder)

    @cached_property
    def whole(self) -> EventStore:
        """Every event in chunks with vectors."""
        return self._build(False, self.encoder)

    @cached_property
    def plain(self) -> EventStore:
        """Every event as a row; vectors only where `whole` has them anyway."""
        return self.whole if self.searching else self._build(False, None)

    def open(self, method: Method) -> EventStore:
        """The store that a method reads. Building one may take hours, which no look-up should wait for."""
        return getattr(self, STORE_OF_METHOD[method])

    def records(self, cases: Iterable[Case[EventReading]], *, apart: bool) -> Iterator[PatientRecord]:
        """The records of some cases one by one, with numbers apart or with every event as a row."""
        store = self.apart if apart else self.plain
        return (store.record(case.reads.record, case.reads.prediction_time) for case in cases)

    def _build(self, apart: bool, encoder: Encoder | None) -> EventStore:
        layout = StoreLayout(self.size, self.overlap, apart, self.clock)
        return build_event_store(self.cohort, self.cache, encoder, layout, self.units)


def open_stores(records: Records, stays: StayRecords, settings: Settings, searching: bool) -> Stores:
    """The stores of a configuration; none is built yet."""
    config = records.config
    cache = Path(config.data.cache) / "stores"
    rows, clock = (settings.chunk_rows, settings.chunk_overlap), clock_for(config.data.leakage, config.task.name)
    return Stores(stays.cohort, cache, partial(_encoder, records, stays), *rows, clock, searching, records.units)


def _encoder(records: Records, stays: StayRecords) -> Encoder:
    """The encoder that retriever=... names; `codes` is fitted to the records of training samples."""
    if records.config.retriever.kind == CODES:
        train = {stays.record(sample.subject_id, sample.visit_id) for sample in records.splits.train}
        return fit_code_vectors(stays.cohort, train)
    return load_encoder(records.config.retriever.kind, ENCODED)


def clock_for(leakage: str, task: str) -> Clock:
    """What an event's time is compared by.

    EHRSHOT's tasks, those after a stay's first day, and label files ask within a stay: codes of the admission day that
    were given at the discharge are not known there, also where leakage=paper lets other tasks see the stay that they
    ask about.
    """
    if leakage == "strict":
        return "recorded"
    return "known" if task in (*EHRSHOT, *FIRST_DAY, "labels") else "time"


@dataclass(eq=False)
class EventLookups:
    """The corpus: answers each query from the store that its view reads. cases: place -> record and time.

    Its open records stay behind when it is sent to another process.
    """

    stores: Stores
    cases: Mapping[int, tuple[int, datetime]]
    spec: EtherSpec
    seed: int

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One `Evidence` a request, in order."""
        by_request: dict[int, Evidence] = {}
        for name in ("apart", "whole", "plain"):
            places = [i for i, request in enumerate(requests) if _store_of(request) == name]
            if places:
                answers = getattr(self, f"_{name}").retrieve([requests[i] for i in places])
                by_request |= dict(zip(places, answers, strict=True))
        return [by_request[i] for i in range(len(requests))]

    @cached_property
    def _apart(self) -> EventCorpus:
        return self._corpus(self.stores.apart, None)

    @cached_property
    def _whole(self) -> EventCorpus:
        return self._corpus(None, self.stores.whole)

    @cached_property
    def _plain(self) -> EventCorpus:
        return self._corpus(None, self.stores.plain)

    def _corpus(self, apart: EventStore | None, whole: EventStore | None) -> EventCorpus:
        return EventCorpus(self.cases, self.spec, self.stores.encoder, apart, whole, self.seed)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}


def _store_of(request: Retrieve) -> str:
    if not isinstance(request, EventQuery):
        raise TypeError(f"EHR-RAG's corpus answers EventQuery, not {request!r}")
    return STORE_OF_VIEW[request.view]
