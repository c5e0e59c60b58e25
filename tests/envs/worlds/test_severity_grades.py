"""What rules read of a grade: over a target, from either side of the sentence, and never of a side effect."""

from __future__ import annotations

import pytest

from ghar.envs.worlds.severity_grades import StatedGrade, grade_in, mean_labels, reading, reading_of

DRUG = "tarnopi pellannib"
BEHIND = "corlanu wenmekase associated with grade 3 course."
DECOY = f"{DRUG} side effect grade 9 course."


@pytest.mark.parametrize("told, expected", [
    (f"{DECOY} {DRUG} target corlanu wenmekase. {BEHIND}", StatedGrade(3, "corlanu wenmekase")),
    (f"{DECOY} corlanu wenmekase is a target of {DRUG}. {BEHIND}", StatedGrade(3, "corlanu wenmekase")),
    (f"{DECOY} {DRUG} target corlanu wenmekase.", StatedGrade(None, "corlanu wenmekase")),
    (f"{DECOY} {DRUG} carrier corlanu wenmekase. {BEHIND}", StatedGrade(None)),
    (f"corlanu wenmekase is a target of helnopi barmekmab. {DRUG} and others. {BEHIND}", StatedGrade(None)),
    (DECOY, StatedGrade(None)),
    ("", StatedGrade(None)),
])  # fmt: skip
def test_a_drugs_grade_stands_behind_its_target(told: str, expected: StatedGrade) -> None:
    assert reading_of(f"drug {DRUG}", told) == expected


def test_a_diseases_grade_is_its_own() -> None:
    told = "gout phenotype absent grade 8 course. gout phenotype present grade 4 course. gouty grade 9 course."
    assert reading_of("disease gout", told) == reading("gout", told) == StatedGrade(4) and grade_in("gout", told) == 4


def test_a_mean_label_leaves_the_patients_own_out() -> None:
    seen = [(1, ["disease gout", "disease flu"], 2), (2, ["disease gout"], 0), (2, ["disease gout"], 0)]
    known = mean_labels(seen, top=2, least=2)
    assert known.grades == {"disease gout": 3}  # (2 + 0 + 0) / 3 of the labels 0 to 2, as grades 0 to 9
    assert known.about(1).grades == {"disease gout": 0} and known.about(2).grades == {}
    assert known.about(3).grades == known.grades
    assert known.label_of(0) == 0 and known.label_of(9) == 2
