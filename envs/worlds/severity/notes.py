"""Generated discharge summaries of the demo world, in MIMIC-IV-Note's files: note/discharge.csv.gz and
note/discharge_detail.csv.gz. Written only when asked for, beside the world, whose own files stay as they are.

The story behind them, drawn once a world from a seed stream of its own. A phenotype is a short list of diagnoses, drugs
and procedures, that of one stay of the world; a stay follows the phenotype of whose three lists it has the largest
shares. The habits of this hospital belong to phenotypes:
    a condition is either named as a discharge diagnosis (6 in 10) or only kept in the history;
    a drug is either continued at home (6 in 10) or for the hospital only, and two more are taken home;
    two pieces of advice are given, beside two of those that everybody gets.
Each habit holds in a stay with probability 0.95; a piece of advice that does not is another one. Nothing before the
discharge plan tells which habits hold, and no single code tells a stay's phenotype: the reports of patients who are
alike in several tables do. So a reader of similar reports can answer the questions of DischargeQA, and one who looks
nothing up, or who looks up reports that share one code, can not.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ghar.envs.worlds.severity import story
from ghar.envs.worlds.severity.sources import POINTERS, SENTENCE
from ghar.envs.worlds.severity.vocabulary import WorldVocabulary, load_vocabulary
from ghar.envs.worlds.severity.world import World, load_world
from ghar.errors import BadInput
from ghar.progress import track
from ghar.provenance import GENERATED, signed_mark
from ghar.seal import sound
from ghar.storage import new_folder

FORMAT = 2
STREAM = 7  # of the world's seed; the world itself draws from streams 0 to 2
NAMED, KEPT, HABIT = 0.6, 0.6, 0.95
STAYS = 20  # of a world for each phenotype, about
HOME, OWN = 2, 2  # drugs and pieces of advice that a phenotype has of its own
TRUTH = "phenotypes.parquet"  # which phenotype each stay follows: for evaluation ONLY, never for a policy
DETAIL = ("note_id", "subject_id", "field_name", "field_value", "field_ordinal")
TABLES = ("hosp/diagnoses_icd", "hosp/procedures_icd", "hosp/prescriptions")
DECIMALS = 9  # shares that are equal in truth may differ in the last bits
COMPLAINTS = ("weakness", "shortness of breath", "abdominal pain", "fever", "dizziness", "confusion")
ADVICE = (
    "Weigh yourself every {n} hours.",
    "Drink {n} glasses of water a day.",
    "Lift nothing above {n} kilograms.",
    "See your own doctor in {n} days.",
    "Check your blood pressure {n} times a week.",
    "Keep the leg raised for {n} hours.",
    "Have a blood test after {n} days.",
    "Walk for {n} minutes twice a day.",
    "Eat no salty food for {n} weeks.",
    "Do not drive for {n} days.",
    "Sleep with {n} pillows.",
    "Change the dressing every {n} hours.",
    "Stay in bed for {n} hours a day.",
    "Take a lukewarm bath every {n} days.",
    "Climb at most {n} stairs.",
    "Measure your temperature {n} times a week.",
    "Inspect both feet every {n} days.",
    "Wear the belt {n} hours a day.",
    "Avoid the sun for {n} weeks.",
    "Breathe into the trainer {n} times a day.",
)
NUMBERS = (2, 18)  # n in a piece of advice, the last left out
ANYBODY = ("Come back at once if you get worse.", "Take your medicines as listed here.", "Rest when you feel tired.")


@dataclass(frozen=True, eq=False)
class DischargeHabits:
    """What this hospital does for each phenotype (rows): named, kept: bool by condition and by drug; home: HOME drug
    numbers; advice: OWN of `pieces_of_advice`, by number."""

    named: np.ndarray
    kept: np.ndarray
    home: np.ndarray
    advice: np.ndarray


@dataclass(frozen=True)
class _Lexicon:
    """The vocabulary as numbers and names."""

    titles: list[str]
    medicines: list[str]
    condition: dict[str, int]
    drug: dict[str, int]
    procedure: dict[str, str]


def vocabulary_of(world: World) -> WorldVocabulary:
    """The words that a world was made of."""
    return load_vocabulary(world.tail)


def _words(v: WorldVocabulary) -> _Lexicon:
    condition, drug = ({w: i for i, w in enumerate(column)} for column in (v.conditions["code"], v.drugs["name"]))
    procedure = dict(zip(v.procedures["code"], v.procedures["name"], strict=True))
    return _Lexicon(v.conditions["name"].to_list(), v.drugs["name"].to_list(), condition, drug, procedure)


def write_notes(world: Path, folder: Path) -> None:
    """Write the summaries of all stays of the world in `world` to `folder`, whole or not at all; finished ones of the
    same world are kept. Raises BadInput when `world` is no finished demo world."""
    wanted = {"generated": True, "format": FORMAT, "world": dict(load_world(world).manifest["parameters"])}
    kept = folder / "manifest.json"
    if kept.exists() and sound(folder) and signed_mark(folder).generated and json.loads(kept.read_text()) == wanted:
        return
    if folder.exists() and not kept.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} holds something else than generated summaries: delete it or name another folder.")
    rng = np.random.default_rng(np.random.SeedSequence(wanted["world"]["seed"], spawn_key=(STREAM,)))
    vocabulary, stays = vocabulary_of(load_world(world)), _stays(world)
    words = _words(vocabulary)
    follows = phenotypes(rng, stays)
    habits = draw_habits(rng, vocabulary, int(follows.max()) + 1)
    numbered_stays = enumerate(track(stays, "Generate discharge summaries"))
    rows = [_row(rng, habits, words, stay, number, int(follows[number])) for number, stay in numbered_stays]
    with new_folder(folder, GENERATED) as half:
        (half / "note").mkdir()
        notes = pl.DataFrame(rows)
        _write(half / "note" / "discharge.csv.gz", notes)
        author = notes.select("note_id", "subject_id", field_name=pl.lit("author"), field_value=pl.lit("___"))
        _write(half / "note" / "discharge_detail.csv.gz", author.with_columns(field_ordinal=pl.lit(1)).select(DETAIL))
        truth = {"visit_id": [stay["hadm_id"] for stay in stays], "phenotype": follows}
        pl.DataFrame(truth).write_parquet(half / TRUTH)
        (half / "manifest.json").write_text(json.dumps(wanted, indent=1) + "\n")


def phenotypes(rng: np.random.Generator, stays: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """i64[stays]: the phenotype that each stay follows, by number."""
    candidates = [i for i, stay in enumerate(stays) if all(stay[table] for table in TABLES)] or list(range(len(stays)))
    drawn = rng.permutation(candidates)[: max(1, len(stays) // STAYS)]
    shares = np.zeros((len(stays), len(drawn)))
    for table in TABLES:
        owners: dict[str, list[int]] = {}
        for number, i in enumerate(drawn):
            for code in set(stays[i][table] or ()):
                owners.setdefault(code, []).append(number)
        sizes = np.array([max(1, len(set(stays[i][table] or ()))) for i in drawn])
        for i, stay in enumerate(stays):
            for code in set(stay[table] or ()):
                own = owners.get(code, [])
                shares[i, own] += 1 / sizes[own]
    return np.round(shares, DECIMALS).argmax(axis=1)


def read_phenotypes(folder: Path) -> dict[int, int]:
    """Stay -> phenotype of the generated summaries in `folder`. For evaluation ONLY (see TRUTH)."""
    return dict(pl.read_parquet(folder / TRUTH, glob=False).iter_rows())


def pieces_of_advice() -> list[str]:
    """All that a phenotype may advise."""
    return [text.format(n=n) for text in ADVICE for n in range(*NUMBERS)]


def draw_habits(rng: np.random.Generator, vocabulary: WorldVocabulary, count: int) -> DischargeHabits:
    """The habits of one world with `count` phenotypes."""
    conditions, drugs, advice = vocabulary.conditions.height, vocabulary.drugs.height, len(pieces_of_advice())
    common = min(story.N_COMMON_DRUGS, drugs)
    return DischargeHabits(
        rng.random((count, conditions)) < NAMED,
        rng.random((count, drugs)) < KEPT,
        np.stack([rng.permutation(common)[:HOME] for _ in range(count)]),
        np.stack([rng.permutation(advice)[:OWN] for _ in range(count)]),
    )


def _stays(world: Path) -> list[dict[str, Any]]:
    """One row a stay, by patient and time: what its summary is made of."""

    def table(name: str) -> pl.DataFrame:
        return pl.read_csv(world / f"{name}.csv.gz", infer_schema_length=None, try_parse_dates=True, glob=False)

    def listed(name: str, column: str) -> pl.DataFrame:
        order = "pharmacy_id" if name == "hosp/prescriptions" else "seq_num"
        rows = table(name).with_columns(pl.col(column).cast(pl.String)).sort("hadm_id", order)
        return rows.group_by("hadm_id", maintain_order=True).agg(pl.col(column).alias(name))

    patients = table("hosp/patients").select("subject_id", "gender", "anchor_age", "anchor_year")
    stays = table("hosp/admissions").join(patients, on="subject_id").sort("subject_id", "admittime")
    for name, column in zip(TABLES, ("icd_code", "icd_code", "drug"), strict=True):
        stays = stays.join(listed(name, column), on="hadm_id", how="left", maintain_order="left")
    truth = pl.read_parquet(world / "truth.parquet", glob=False)
    grade = pl.col("tells_grade") if "tells_grade" in truth.columns else pl.lit(None, pl.Int64)
    stays = stays.join(truth.select(hadm_id="visit_id", grade=grade), on="hadm_id", how="left", maintain_order="left")
    return stays.rows(named=True)


def _row(
    rng: np.random.Generator, habits: DischargeHabits, words: _Lexicon, stay: dict[str, Any], number: int, follows: int
) -> dict[str, Any]:
    end: datetime = stay["dischtime"]
    return {
        "note_id": f"{stay['subject_id']}-DS-{number + 1}",
        "subject_id": stay["subject_id"],
        "hadm_id": stay["hadm_id"],
        "note_type": "DS",
        "note_seq": number + 1,
        "charttime": end.replace(hour=0, minute=0, second=0),
        "storetime": end + timedelta(minutes=int(rng.integers(60, 30 * 60))),
        "text": _text(rng, habits, words, stay, follows),
    }


def _text(
    rng: np.random.Generator, habits: DischargeHabits, words: _Lexicon, stay: dict[str, Any], follows: int
) -> str:
    """The summary, with MIMIC-IV-Note's headings in their order."""
    title, medicine = words.titles, words.medicines
    conditions = [words.condition[code] for code in stay["hosp/diagnoses_icd"] or [] if code not in POINTERS]
    drugs = [words.drug[name] for name in stay["hosp/prescriptions"] or []]
    done = [words.procedure[code] for code in stay["hosp/procedures_icd"] or []]
    holds = iter((rng.random(len(conditions) + len(drugs) + HOME + OWN) < HABIT).tolist())
    named = [i for i in conditions if habits.named[follows, i] == next(holds)]
    going_home = [i for i in drugs if habits.kept[follows, i] == next(holds)]
    going_home += [int(i) for i in habits.home[follows] if next(holds)]
    pieces = pieces_of_advice()
    advice = [pieces[i if next(holds) else int(rng.integers(len(pieces)))] for i in habits.advice[follows]]
    lines = [f"{n}. {medicine[i]} {5 * int(rng.integers(1, 20))} mg PO DAILY"
             for n, i in enumerate(dict.fromkeys(going_home), 1)]  # fmt: skip
    points = [*dict.fromkeys(advice), *(ANYBODY[i] for i in np.sort(rng.permutation(len(ANYBODY))[:2]))]
    sections = {
        "Chief Complaint": str(rng.choice(COMPLAINTS)),
        "Major Surgical or Invasive Procedure": "\n".join(done) or "None",
        "History of Present Illness": _history(rng, stay),
        "Past Medical History": "\n".join(f"- {title[i]}" for i in rng.permutation(conditions)) or "None",
        "Physical Exam": _exam(rng, "ADMISSION EXAM") + "\n" + _exam(rng, "DISCHARGE EXAM"),
        "Pertinent Results": "Laboratory values as in the tables.",
        "Brief Hospital Course": _course([title[i] for i in conditions], [medicine[i] for i in drugs]),
        "Medications on Admission": "The list on admission could not be confirmed.",
        "Discharge Medications": "\n".join(lines) or "None",
        "Discharge Disposition": "Home",
        "Discharge Diagnosis": "\n".join(title[i] for i in named) or "None",
        "Discharge Condition": "Stable, walking without help.",
        "Discharge Instructions": "\n".join(f"- {point}" for point in points),
        "Followup Instructions": "___",
    }
    if stay["grade"] is not None:
        sections["Brief Hospital Course"] += " " + SENTENCE.format(grade=stay["grade"])
    body = "\n\n".join(f"{heading}:\n{text}" for heading, text in sections.items())
    return f"{_head(stay)}\n\n{body}\n"


def _head(stay: dict[str, Any]) -> str:
    start, end = stay["admittime"].date(), stay["dischtime"].date()
    return (
        "GENERATED SUMMARY: this patient does not exist.\n"
        f"Name:  ___                Unit No:   ___\n \nAdmission Date:  {start}       Discharge Date:   {end}\n \n"
        f"Date of Birth:  ___        Sex:   {stay['gender']}\n \nService: MEDICINE\n \nAllergies:\nNone known"
    )


def _history(rng: np.random.Generator, stay: dict[str, Any]) -> str:
    age = min(stay["anchor_age"] + stay["admittime"].year - stay["anchor_year"], 90)
    person = {"F": "woman", "M": "man"}[stay["gender"]]
    return f"A {age} year old {person} who had felt unwell for {int(rng.integers(1, 12))} days before coming in."


def _exam(rng: np.random.Generator, title: str) -> str:
    return f"{title}:\nHeart rate {int(rng.integers(60, 110))}, breathing {int(rng.integers(12, 24))} a minute. Alert."


def _course(conditions: list[str], drugs: list[str]) -> str:
    given = f"Was given {', '.join(drugs)} on the ward." if drugs else "No drug was given on the ward."
    return f"Looked after for {', '.join(conditions) or 'observation'}. {given}"


def _write(path: Path, table: pl.DataFrame) -> None:
    text = BytesIO()
    table.write_csv(text, datetime_format="%Y-%m-%d %H:%M:%S")
    path.write_bytes(gzip.compress(text.getbuffer(), compresslevel=3, mtime=0))  # same seed, same bytes
