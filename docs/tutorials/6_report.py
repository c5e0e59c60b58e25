"""Read a report: where its numbers come from, and how to make them again with a library of your own.

python docs/tutorials/3_training.py && python docs/tutorials/6_report.py
"""

import json
from collections import Counter
from pathlib import Path

from sklearn.metrics import accuracy_score, f1_score

import ghar
from ghar.metrics.runfolder import RunFolder

RUN = Path("runs/tutorial")

# 1. summary.json has what the page shows: a value and its 95% interval, which draws whole patients again.
summary = json.loads((RUN / "summary.json").read_text())
for name, numbers in summary["policies"].items():
    value, low, high = numbers["accuracy"][:3]
    print(f"{name}: accuracy {value:.3f} [{low:.3f}, {high:.3f}]")

# 2. Every number is made from rows of episodes, one a test sample: the same value from scikit-learn.
rows = list(RunFolder(RUN).episodes("ghar_rl"))
truth, given = [row["label"] for row in rows], [row["prediction"] or "none" for row in rows]
print("again:", round(accuracy_score(truth, given), 3), "macro F1", round(f1_score(truth, given, average="macro"), 3))
print("replies:", Counter(given).most_common(3), "usual label alone:", Counter(truth).most_common(1)[0][1] / len(truth))

# 3. A row tells why: who was asked what, what was retrieved, which term of the reward came from where.
row = rows[0]
for turn in row["turns"]:
    print(f"  {turn['agent']} {turn['role']}: {turn['reply'].strip()!r}")
print("  reward", {name: round(value, 2) for name, value in row["rewards"].items()})

# 4. The agent itself, asked about a patient of the test set. The page: report.html, "Can it be trusted?" first.
with ghar.load(RUN) as agent:
    prediction = agent.predict(agent.patients[0])
print(prediction.label, prediction.probabilities, prediction.evidence[:2])
