"""One `Case` for all systems and one `Sample` for all tasks of patients: no second class stands beside them."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

from ghar.data.cohort import Sample, Task
from ghar.envs.case import Case

ROOT = Path(__file__).resolve().parents[2]
KINDS = {
    "Case", "Sample", "TextSample",  # of episodes; of tasks of patients; of files of questions and texts
    "DischargeQuestion", "OrderQuestion",  # histories of their own making, which a case reads
    "Patient", "Demonstration",  # pieces of GraphWalker's prompts
}  # fmt: skip


def test_nothing_else_has_the_id_and_the_label_of_a_sample() -> None:
    found: set[str] = set()
    for folder in ("ghar/data", "envs", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    names = {
                        n.target.id
                        for n in node.body
                        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
                    }
                    names |= {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
                    if {"sample_id", "label"} <= names:
                        found.add(node.name)
    assert found == KINDS


def test_a_case_reads_nothing_but_its_text_where_a_system_asks_no_more() -> None:
    case = Case("s", 1, 2, "now: gout", ("disease gout",), Task("t", "Die?", ("no", "yes")), 1)
    assert case.reads is None and case.credentialed
    shared = {field.name for field in fields(Case)} & {field.name for field in fields(Sample)}
    assert shared == {"sample_id", "subject_id", "visit_id", "label", "credentialed"}
