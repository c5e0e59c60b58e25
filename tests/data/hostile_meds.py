"""Hostile variants of a small MEDS folder as another project may have written it, and the account of what is read."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from ghar.data.cohort import Cohort

TIME = pl.Datetime("us")
SCHEMA = {
    "subject_id": pl.Int64, "time": TIME, "code": pl.String, "numeric_value": pl.Float32, "text_value": pl.String,
    "hadm_id": pl.Int64,
}  # fmt: skip
STRANGE_TIMES = (datetime(1, 1, 1), datetime(1600, 1, 1), datetime(1799, 12, 31, 23), datetime(9999, 12, 31, 23))
NO_NUMBERS = (float("nan"), float("inf"), float("-inf"))
ODD_CODES = ("", " ", "//", "DIAGNOSIS//ICD//10//", "x" * 2000, "LAB//RESULT//", "\u2028", "LAB//51222//g/dL//x",
             "MEDICATION//START//", "É//1", "HOSPITAL_ADMISSION//", "\x00", "GENDER//X", "MEDS_DEATH")  # fmt: skip


def events_of_others() -> pl.DataFrame:
    """Three patients with four stays, in the shapes of MIMIC_IV_MEDS."""
    begin, rows = datetime(2150, 1, 1, 10), []
    for subject, stay, day in ((1, 90, 0), (1, 20, 30), (2, 30, 5), (3, 40, 9)):
        at = begin + timedelta(days=day)
        told = [
            (0, "HOSPITAL_ADMISSION//EW EMER.//ER", None, None),
            (1, "LAB//SPECIMEN_COLLECTED//51222//STAT", None, None),
            (3, "LAB//RESULT//51222//g/dL", 9.5, None),
            (4, "MEDICATION//START//Aspirin//UNK", None, None),
            (5, "LAB//50912//mg/dL", 1.1, None),
            (70, "HOSPITAL_DISCHARGE//HOME", None, None),
            (70, "DIAGNOSIS//ICD//10//I214", None, None),
            (70, "PROCEDURE//ICD//9//3961", None, "open"),
        ]
        rows += [(subject, at + timedelta(hours=h), code, n, text, stay) for h, code, n, text in told]
    rows += [(subject, None, f"GENDER//{letter}", None, None, None) for subject, letter in ((1, "F"), (2, "M"))]
    return pl.DataFrame(rows, SCHEMA, orient="row").sort("subject_id", "time", maintain_order=True)


class Folder:
    """A variant: the frames of its files, broken, and what has been touched."""

    def __init__(self, sound: pl.DataFrame, rng: random.Random):
        self.rng, self.sound = rng, sound
        self.files = [sound.filter(pl.col("subject_id") < 3), sound.filter(pl.col("subject_id") == 3)]
        self.touched: set[int] = set()
        self.nonsense = 0
        self.damage = ""
        self.alone = rng.random() < 0.5
        for _ in range(1 if self.alone else rng.choice((2, 3))):
            rng.choice((self.cell, self.cell, self.cell, self.type, self.column, self.rows, self.beside))()
        if rng.random() < 0.1:
            self.damage = rng.choice(("cut", "byte", "empty", "text"))

    def cell(self) -> None:
        """A value that is missing, or that cannot be, in one or two rows."""
        k = self.rng.randrange(2)
        frame = self.files[k]
        if frame.is_empty() or frame.schema != pl.Schema(SCHEMA):
            return
        i = self.rng.randrange(frame.height)
        values: dict[str, tuple[object, ...]] = {
            "subject_id": (None, -1, 0, 2**63 - 1, 2),
            "time": (None, *STRANGE_TIMES, datetime(2150, 1, 1, 10)),
            "code": (None, *ODD_CODES),
            "numeric_value": (None, *NO_NUMBERS, 3e38, -0.0),
            "text_value": ("", "\x00", "x" * 5000, "___", None),
            "hadm_id": (None, -1, 20, 2**62),
        }
        name = self.rng.choice(list(values))
        value = self.rng.choice(values[name])
        self.touched |= {frame["subject_id"][i], *([value] if name == "subject_id" else [])}
        if name == "hadm_id" and value == 20:
            self.touched.add(1)
        self.nonsense += value in STRANGE_TIMES or any(value is number for number in NO_NUMBERS)
        changed = pl.when(pl.int_range(pl.len()) == i).then(pl.lit(value, SCHEMA[name])).otherwise(name)
        self.files[k] = frame.with_columns(changed.alias(name))

    def type(self) -> None:
        """A column of another type, which may hold the same."""
        k = self.rng.randrange(2)
        kinds = {
            "subject_id": (pl.Int32, pl.UInt64, pl.Float64, pl.String),
            "time": (pl.Datetime("ns"), pl.Datetime("ms"), pl.Date, pl.String, pl.Datetime("us", "UTC")),
            "code": (pl.Categorical, pl.Binary, pl.List(pl.String)),
            "numeric_value": (pl.Float64, pl.Int32, pl.String, pl.Null),
            "text_value": (pl.Categorical, pl.Null, pl.Binary),
            "hadm_id": (pl.String, pl.Float64, pl.Int32),
        }
        name = self.rng.choice(list(kinds))
        kind = self.rng.choice(kinds[name])
        if name not in self.files[k].columns:
            return
        if kind == pl.Null:
            new = pl.lit(None).alias(name)
        elif isinstance(kind, pl.List):
            new = pl.concat_list(name)
        else:
            new = pl.col(name).cast(kind, strict=False)
        self.files[k] = self.files[k].with_columns(new)
        self.touched |= {1, 2, 3}

    def column(self) -> None:
        """A column that is gone, renamed, moved or one too many."""
        k = self.rng.randrange(2)
        frame, done = self.files[k], self.rng.choice(("drop", "rename", "order", "more", "upper"))
        name = self.rng.choice(frame.columns)
        if done == "drop":
            frame = frame.drop(name)
        elif done in ("rename", "upper"):
            frame = frame.rename({name: name.upper() if done == "upper" else f"{name}_2"}, strict=False)
        elif done == "order":
            frame = frame.select(reversed(frame.columns))
        else:
            extra = self.rng.choice(("unit", "visit_id", "recorded", "end", "storetime", "table", "priority"))
            value = self.rng.choice((None, 1, "x", datetime(2150, 1, 1), 1.5))
            frame = frame.with_columns(pl.lit(value).alias(extra))
        self.files[k] = frame
        self.touched |= {1, 2, 3}

    def rows(self) -> None:
        """Rows in another order or number, a subject in two files, a file without rows."""
        k = self.rng.randrange(2)
        done = self.rng.choice(("shuffle", "twice", "half", "none", "reverse", "exchange"))
        frame = self.files[k]
        if done in ("shuffle", "reverse"):
            frame = (
                frame.sample(fraction=1, shuffle=True, seed=self.rng.randrange(99))
                if done == "shuffle"
                else frame[::-1]
            )
        elif done == "twice":
            frame = pl.concat([frame, frame[: frame.height // 2]])
        elif done in ("half", "none"):
            frame = frame[: frame.height // 2 if done == "half" else 0]
        else:
            self.files.append(frame[::2])
            frame = frame[1::2]
        self.files[k] = frame
        self.touched |= {1, 2, 3}

    def beside(self) -> None:
        """Something about the files beside the data, which is written last."""
        self.touched |= {1, 2, 3}
        self.metadata = self.rng.choice(("null code", "twice", "parents text", "no code", "no description", "broken"))

    metadata = "none"

    def write(self, root: Path) -> None:
        shutil.rmtree(root, ignore_errors=True)
        (root / "data").mkdir(parents=True)
        (root / "metadata").mkdir()
        for i, frame in enumerate(self.files):
            frame.write_parquet(root / "data" / f"{i}.parquet", compression="uncompressed")
        codes = pl.DataFrame({"code": ["LAB//50912//mg/dL", "MEDICATION//START//Aspirin//UNK"]})
        codes = codes.with_columns(description=pl.lit("name"), parent_codes=pl.lit(["LOINC/2160-0"]))
        path = root / "metadata" / "codes.parquet"
        if self.metadata == "null code":
            codes = pl.concat([codes, codes.with_columns(code=pl.lit(None, pl.String))])
        elif self.metadata == "twice":
            codes = pl.concat([codes, codes])
        elif self.metadata == "parents text":
            codes = codes.with_columns(parent_codes=pl.lit("LOINC/2160-0"))
        elif self.metadata in ("no code", "no description"):
            codes = codes.drop(self.metadata[3:])
        if self.metadata != "none":
            codes.write_parquet(path)
        if self.metadata == "broken":
            path.write_bytes(b"PAR1")
        if self.damage:
            self._damage(root / "data" / "0.parquet")

    def _damage(self, path: Path) -> None:
        whole = path.read_bytes()
        at = self.rng.randrange(len(whole))
        path.write_bytes({
            "cut": whole[:at], "byte": whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :], "empty": b"",
            "text": b"subject_id,time,code\n",
        }[self.damage])  # fmt: skip

    def check(self, cohort: Cohort) -> None:
        """Rows in = events + rows dropped by a counted rule; patients without a touched row have what they had."""
        counts = cohort.counts
        dropped = sum(n for rule, n in counts.items() if rule.startswith("dropped.meds."))
        rows = sum(frame.height for frame in self.files)
        assert counts["rows.meds"] == cohort.events.height + dropped, dict(counts)
        assert counts["rows.meds"] == rows, f"{rows} rows, {dict(counts)}"
        if self.nonsense and self.alone and not self.damage:
            said = ("date_out_of_range", "not_finite", "no_subject", "no_code")
            assert sum(n for rule, n in counts.items() if rule.endswith(said)), dict(counts)
        if self.damage:
            return
        for subject in {1, 2, 3} - self.touched:
            mine = Counter(self.sound.filter(pl.col("subject_id") == subject)["time"])
            found = cohort.events.filter(pl.col("subject_id") == subject)
            specimens = self.sound.filter(pl.col("subject_id") == subject, pl.col("code").str.contains("SPECIMEN"))
            assert found.height == mine.total() - specimens.height, f"subject {subject}: {found}"
