"""Bring MEDS: a folder of events from any project becomes patients, visits, and samples with labels, split by patient.

python docs/tutorials/4_meds.py

A hospital's folder of two files, written here by hand, is read as `data=meds data.root=FOLDER` reads yours.
"""

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

import ghar

FOLDER = Path("tutorial-meds")
(FOLDER / "data").mkdir(parents=True, exist_ok=True)
(FOLDER / "metadata").mkdir(exist_ok=True)

# 1. Events: who, when, what. Thirty patients with two stays each; what is known before a stay is known at its time.
events = []
for patient in range(1, 31):
    for begin in (datetime(2130, 1, 1, 8), datetime(2130, 1, 20 + patient % 3, 9)):
        end = begin + timedelta(days=2 + patient % 5)
        events += [
            (patient, begin, "HOSPITAL_ADMISSION//EMERGENCY", None),
            (patient, begin + timedelta(hours=2), "LAB//50912//mg/dL", 0.8 + 0.1 * patient),
            (patient, end, "DIAGNOSIS//ICD//10//I50", None),
            (patient, end, "HOSPITAL_DISCHARGE//HOME", None),
        ]
table = pl.DataFrame(events, {"subject_id": pl.Int64, "time": pl.Datetime("us"), "code": pl.String,
                              "numeric_value": pl.Float32}, orient="row")  # fmt: skip
table.sort("subject_id", "time", maintain_order=True).write_parquet(FOLDER / "data" / "0.parquet")

# 2. Codes: their names, and the vocabularies that link them to a knowledge graph.
codes = [("LAB//50912//mg/dL", "Creatinine [Mass/volume] in Serum or Plasma", ["LOINC/2160-0"]),
         ("DIAGNOSIS//ICD//10//I50", "Heart failure", ["ICD10CM/I50"])]  # fmt: skip
pl.DataFrame(codes, {"code": pl.String, "description": pl.String, "parent_codes": pl.List(pl.String)},
             orient="row").write_parquet(FOLDER / "metadata" / "codes.parquet")  # fmt: skip

# 3. A task on them. What a task leaves out is counted.
task = ghar.open("meds", FOLDER).task("los")
print(task.task.question, "->", ", ".join(task.task.labels))
print({name: len(getattr(task.splits, name)) for name in ("train", "valid", "test")}, task.counts or "nothing left out")
sample = task.splits.test[0]
for visit in sample.history:
    print(sample.sample_id, visit.start, visit.diagnoses, "label:", task.task.labels[sample.label])
