"""EHR-RAG on the events of generated patients, as `gymnasium.make("ghar/EHRRAG-v0")` plays it."""

from __future__ import annotations

from functools import cache

from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.tasks.cards import CARDS
from ghar.data.tasks.ehrshot import TASKS, ehrshot_labels
from ghar.disk import cache_of
from ghar.envs.case import Case
from ghar.envs.ehr_rag.episode import EhrRagEpisodes, EhrRagSpec, EventReading, ehr_rag_scene
from ghar.envs.ehr_rag.ether import EtherSpec, EventCorpus
from ghar.envs.stepper import Scene
from ghar.envs.system import words
from ghar.envs.worlds.severity.world import generate_world, world_folder
from ghar.retrieval.encoders import HashingEncoder
from ghar.retrieval.event_build import build_event_store
from ghar.retrieval.event_store import StoreLayout

SPEC = EhrRagSpec("compact", "ehr_rag", iterations=3, chunks=2, coarse=12, keep=4, whole=4, rows=40, tokens=400)
ETHER = EtherSpec(alpha=0.75, recent_days=180, early_days=3650, candidates=100, values=5)  # the paper's
LAYOUT = StoreLayout(10, 2, True, "time")
WIDTH = 64  # of the vectors
PATIENTS, SEED, ETA = 300, 0, 5.0  # of the generated world; weight of the outcome
TASK = "guo_los"


@cache
def demo_events(folder: str | None = None, patients: int = PATIENTS) -> Scene:
    """Long stays (EHRSHOT's guo_los) of a generated world, from its events."""
    root = world_folder(cache_of(folder), SEED, patients)
    generate_world(root, seed=SEED, patients=patients)
    cohort = read_mimic4(root, cache_of(folder) / "cohorts", charts=False)
    encoder = HashingEncoder(WIDTH)
    store = build_event_store(cohort, cache_of(folder) / "stores", encoder, LAYOUT)
    cases = []
    for place, (subject, at, label) in enumerate(ehrshot_labels(cohort, TASK)[0].iter_rows()):
        facts = "; ".join(store.record(subject, at).facts)
        about, reads = (f"{TASK}-{place}", subject, place), EventReading(place, subject, at, CARDS[TASK])
        cases.append(Case(*about, facts, (), TASKS[TASK], label, reads, credentialed=cohort.credentialed))
    keys = [(case.subject_id, case.reads.prediction_time) for case in cases]
    corpus = EventCorpus(keys, ETHER, encoder, store, None, SEED)
    return ehr_rag_scene(EhrRagEpisodes(SPEC, words), corpus, cases, ETA)
