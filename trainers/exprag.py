"""EXPRAG from tables and discharge summaries to numbers: DischargeQA's questions, the corpus of reports, its policies.

direct            the language model without experience
exprag            the language model with experience
scripted_direct   a fixed rule without experience: every option, or the first of one that is right
scripted          the same rule with experience: what most similar patients' reports list
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from envs.exprag.episode import ExpragEpisodes, ExpragSpec
from envs.exprag.flare import Pieces
from envs.exprag.rule import MajorityOfExperiences
from envs.rollout import Job, rollout
from ghar.config import Config, Exprag
from ghar.data.cohort import Cohort
from ghar.data.demo.world import generate_world, world_folder
from ghar.data.readers.notes import Notes, read_notes
from ghar.data.readers.source import read_source
from ghar.data.tasks.dischargeqa import ASKED, Kind, Question, build_questions
from ghar.data.tasks.splits import Splits, split_by_patient
from ghar.episode import Episode
from ghar.errors import BadInput
from ghar.llm.policy import EnginePolicy, Policy
from ghar.metrics.dischargeqa import compare_questions, question_summary
from ghar.metrics.report import conclude
from ghar.metrics.runfolder import RunFolder
from ghar.progress import progress
from ghar.retrieval.encoders import Encoder, load_encoder
from ghar.retrieval.experience import make_finder
from ghar.retrieval.matching import dense, tfidf
from ghar.retrieval.report_build import index_reports, queries_of
from ghar.retrieval.report_corpus import Ranker, ReportCorpus
from ghar.retrieval.report_texts import rank_by_text, text_scores
from ghar.retrieval.reports import ReportIndex, rank, rank_by_thirds, weights
from trainers.exprag_rows import question_row
from trainers.runs.resume import as_yaml

WITHOUT = {"direct", "scripted_direct"}  # policies that look nothing up
SHOWN = 5  # diagnoses that stand for a ranked stay in the report
ENCODED = 32  # texts an encoder sees at once
LONGEST = 3600.0  # seconds for the look-ups of all episodes in flight: a model may have thousands of pieces to encode


@dataclass(frozen=True, eq=False)
class ExpragStudy:
    """One of DischargeQA's tasks on one cohort.

    names: text of every code. encoder: of vectors, None for TF-IDF. counts: what was read and left out, for the report.
    """

    config: Config
    exprag: Exprag
    cohort: Cohort
    notes: Notes
    splits: Splits[Question]
    corpus: ReportCorpus
    names: dict[str, str]
    encoder: Encoder | None
    counts: dict[str, int]

    def spec(self, retrieves: bool) -> ExpragSpec:
        """The episode's settings, with or without experience."""
        exprag = self.exprag
        top_k = exprag.top_k if retrieves else 0
        return ExpragSpec(self.config.env.prompts, top_k, exprag.excerpts, exprag.words, exprag.retriever == "flare")


def prepare(config: Config) -> ExpragStudy:
    """Read tables and summaries, build the questions, split them by patient and index the reports. BadInput names
    what is missing or does not fit."""
    exprag, cache = section(config), Path(config.data.cache)
    root, note_folder = _sources(config, exprag)
    name = "mimic4" if config.data.name == "demo" else config.data.name
    cohort = read_source(replace(config.data, name=name, root=str(root)), charts=False)
    notes = read_notes(note_folder, cache / "notes")
    kind = cast(Kind, config.task.name.removeprefix("dischargeqa_"))
    questions, counts = build_questions(
        cohort, notes, kind, rows=exprag.rows, words=config.env.history_tokens, seed=config.task.split_seed
    )
    splits = split_by_patient(questions, config.task.split, config.task.split_seed)
    strict = config.data.leakage == "strict"
    pool = {question.subject_id for question in splits.train} if strict else None
    index = index_reports(cohort, notes, pool, cache / "indexes")
    task = config.task
    splits = Splits(splits.train[: task.max_train], splits.valid[: task.max_valid], splits.test[: task.max_test])
    asking = [question.visit_id for part in (splits.train, splits.valid, splits.test) for question in part]
    encoder = None if config.retriever.kind == "tfidf" else load_encoder(config.retriever.kind, ENCODED)
    names = cohort.names()
    corpus = ReportCorpus(
        index,
        notes,
        queries_of(cohort, asking, strict=strict),
        make_ranker(exprag, kind, index, notes, encoder),
        make_finder(exprag.retriever, tfidf if encoder is None else dense(encoder)),
        partial(_stay_name, cohort, names),
    )
    counts |= {"reports": len(notes), "reports that can be ranked": len(index), **notes.counts}
    counts |= {"train questions": len(splits.train), "test questions": len(splits.test)}
    return ExpragStudy(config, exprag, cohort, notes, splits, corpus, names, encoder, counts)


def section(config: Config) -> Exprag:
    """The section `exprag`, which policy=exprag sets."""
    assert config.exprag is not None  # ghar.configure asks for it
    return config.exprag


def make_ranker(exprag: Exprag, kind: Kind, index: ReportIndex, notes: Notes, encoder: Encoder | None) -> Ranker:
    """The ranker that exprag.ranker names."""
    if exprag.ranker == "text":
        return partial(rank_by_text, index, text_scores(index, notes, encoder))
    if exprag.ranker == "released":
        return lambda query, text, top_k: rank_by_thirds(index, query, top_k)
    weight = weights(exprag.ranker, ASKED[kind][1])
    return lambda query, text, top_k: rank(index, query, weight, top_k)


def _sources(config: Config, exprag: Exprag) -> tuple[Path, Path]:
    """Folders of the tables and of the summaries; generates both where none is named."""
    data = config.data
    if data.root is not None and exprag.notes is None:
        raise BadInput("exprag.notes is null: set it to the folder with note/discharge.csv.gz (MIMIC-IV-Note).")
    if data.root is not None:
        return Path(data.root), Path(exprag.notes or "")
    if data.name not in ("demo", "mimic4"):
        raise BadInput(f"data={data.name} needs data.root: the generated patients come in MIMIC-IV's files only.")
    from ghar.data.demo.notes import write_notes  # only where summaries are generated

    root = world_folder(Path(data.cache), data.world_seed, data.patients)
    generate_world(root, seed=data.world_seed, patients=data.patients)
    folder = root.with_name(f"{root.name}-notes") if exprag.notes is None else Path(exprag.notes)
    if exprag.notes is None:
        write_notes(root, folder)
    return root, folder


def _stay_name(cohort: Cohort, names: dict[str, str], stay: int) -> str:
    """A ranked stay in the report: its first diagnoses, and how many there are."""
    codes = cohort.shown.visits[stay].diagnoses
    more = f" and {len(codes) - SHOWN} more" if len(codes) > SHOWN else ""
    return ", ".join(names.get(code, code) for code in codes[:SHOWN]) + more


def play_questions(
    study: ExpragStudy,
    questions: Sequence[Question],
    policy: Policy,
    episodes: ExpragEpisodes,
    *,
    seed: int,
    title: str,
) -> list[Episode]:
    """One episode a question, in their order."""
    jobs = [Job(question.sample_id, 0, partial(episodes.episode, question)) for question in questions]
    with progress(len(jobs), title) as advance:
        return rollout(
            jobs,
            {"top": policy},
            study.corpus,
            seed=seed,
            in_flight=study.config.env.in_flight,
            on_done=advance,
            timeout=LONGEST,
            steady=study.config.engine.kind == "hf",  # look-ups are short here
        )


def evaluate(config: Config) -> dict[str, Any]:
    """Evaluate `exprag.policies` on the test questions; writes summary.json, episodes/ and report.html to run_dir."""
    study = prepare(config)
    folder = RunFolder.open(Path(config.run_dir))
    folder.write_config(as_yaml(config))
    if study.notes.generated:
        print("These patients and their reports are GENERATED; nothing below says anything about real ones.")
    rows: dict[str, list[dict[str, Any]]] = {}
    with policies(study) as (made, pieces):
        for name, policy in made.items():
            episodes = ExpragEpisodes(study.spec(name not in WITHOUT), pieces)
            played = play_questions(
                study, study.splits.test, policy, episodes, seed=config.seed, title=f"Evaluating {name}"
            )
            rows[name] = [question_row(q, e, name) for q, e in zip(study.splits.test, played, strict=True)]
            folder.write_episodes(name, rows[name])
        judged = _judge_rankers(study, made)
    return conclude(folder, {**_summary(study, rows), "rankers": judged}, table)


@contextmanager
def policies(study: ExpragStudy) -> Iterator[tuple[dict[str, Policy], Pieces | None]]:
    """The policies of exprag.policies by name, and how sure the language model is of its tokens (None without one)."""
    wanted = study.exprag.policies
    if all(name.startswith("scripted") for name in wanted):
        yield dict.fromkeys(wanted, MajorityOfExperiences()), None
        return
    from trainers.exprag_model import language_model

    with language_model(study) as (engine, pieces):
        learned = EnginePolicy(engine, temperature=0)
        rule = MajorityOfExperiences()
        yield {name: rule if name.startswith("scripted") else learned for name in wanted}, pieces


def _judge_rankers(study: ExpragStudy, made: dict[str, Policy]) -> dict[str, Any] | None:
    """The correlation study, where exprag.judged asks for one; the language model is the judge."""
    if not study.exprag.judged:
        return None
    from trainers.exprag_rankers import judge_rankers

    return judge_rankers(study, made.get("exprag") or made["direct"])


def _summary(study: ExpragStudy, rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    config, draw = study.config, {"seed": study.config.seed, "resamples": study.config.eval.bootstrap}
    pairs = [(a, b) for a, b in (("exprag", "direct"), ("scripted", "scripted_direct")) if a in rows and b in rows]
    return {
        "system": "exprag",
        "generated": study.cohort.generated,
        "credentialed": study.cohort.credentialed,
        "scale": config.scale.name,
        "experiment": f"{config.task.name} on {config.data.name}",
        "seed": config.seed,
        "task": {"name": config.task.name, "question": study.splits.test[0].text, "labels": []},
        "data": study.counts,
        "policies": {name: question_summary(found, **draw) for name, found in rows.items()},
        "differences": {f"{a} - {b}": compare_questions(rows[a], rows[b], **draw) for a, b in pairs},
    }


def table(summary: dict[str, Any]) -> str:
    """The policies' main numbers as text."""
    columns = ("accuracy", "f1", "precision", "recall", "retrieval_rate", "tokens")
    lines = [f"{'policy':16}" + "".join(f"{name:>24}" for name in columns)]
    for name, numbers in summary["policies"].items():
        cells = ["{:.3f} [{:.3f}, {:.3f}]".format(*numbers[column]) for column in columns]
        lines.append(f"{name:16}" + "".join(f"{cell:>24}" for cell in cells))
        if numbers["errors"]:
            told = ", ".join(f"{error} {n}" for error, n in numbers["errors"].items())
            lines.append(f"{'':16}unreadable replies of {numbers['n']} questions: {told}")
    for ranker, found in (summary["rankers"] or {}).get("rankers", {}).items():
        lines.append(f"ranker {ranker}: Pearson {found['pearson'][0]:.3f}, Spearman {found['spearman'][0]:.3f}")
    if summary["generated"]:
        lines.append("These patients are generated; the numbers say nothing about real ones.")
    return "\n".join(lines)
