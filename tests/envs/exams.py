"""A small examination whose answers a small graph holds: which drug is indicated for a disease."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kg.graphs import Edge, Node, frame

LETTERS = "ABCD"
DISEASES = [
    "gout", "asthma", "scurvy", "malaria", "cholera", "psoriasis", "epilepsy", "glaucoma", "leprosy", "angina pectoris",
]  # fmt: skip
DRUGS = [
    "Allopurinol", "Salbutamol", "Ascorbic acid", "Chloroquine", "Doxycycline", "Calcipotriol", "Valproate",
    "Latanoprost", "Dapsone", "Nitroglycerin",
]  # fmt: skip


def write_exam(folder: Path, count: int = 80) -> tuple[Path, Path]:
    """Write a file of questions in MedQA's format and the graph that answers them; return both paths."""
    rows = []
    for i in range(count):
        right, place = i % len(DRUGS), (i // len(DRUGS) + i) % 4
        wrong = [DRUGS[(right + step) % len(DRUGS)] for step in (1, 3, 7)]
        shown = [*wrong[:place], DRUGS[right], *wrong[place:]]
        text = f"A patient of {20 + i} years has {DISEASES[right]}. Which drug is indicated?"
        options = dict(zip(LETTERS, shown, strict=True))
        rows.append({"question": text, "answer": DRUGS[right], "options": options, "answer_idx": LETTERS[place]})
    questions, graph = folder / "exam.jsonl", folder / "exam-kg.csv"
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    frame(_edges()).write_csv(graph)
    return questions, graph


def exam_keys(folder: Path) -> list[str]:
    """Overrides that put the examination into a run."""
    questions, graph = write_exam(folder)
    return ["task=medqa", "data=medqa", f"data.root={questions}", f"kg.path={graph}"]


def _edges() -> list[Edge]:
    diseases: list[Node] = [(10 + i, "disease", name) for i, name in enumerate(DISEASES)]
    drugs: list[Node] = [(50 + i, "drug", name) for i, name in enumerate(DRUGS)]
    gene: Node = (90, "gene/protein", "XDH")
    pairs = zip(drugs, diseases, strict=True)
    treats: list[Edge] = [(drug, "indication", "indication", disease) for drug, disease in pairs]
    target: Edge = (drugs[0], "drug_protein", "target", gene)
    return [*treats, target, (diseases[0], "disease_protein", "associated with", gene)]
