"""A recipe is imported without transformers, and transformers without scikit-learn and scipy.optimize, which are there
when they are called. An evaluation of rules loads no model library."""

from __future__ import annotations

import json

import pytest

from tests.running import run_python

CODE = """
import json, sys
import ghar.trainers.recipe
early = [name for name in ("transformers", "peft", "trl", "sympy", "sklearn", "pandas") if name in sys.modules]
import ghar.llm.kv_cache
light = early + [name for name in ("sklearn", "pandas", "scipy.optimize", "scipy.stats") if name in sys.modules]
from transformers.generation import candidate_generator
from transformers.loss import loss_for_object_detection
fpr, tpr, _ = candidate_generator.roc_curve([0, 1, 0, 1], [0.1, 0.9, 0.2, 0.8])
rows, columns = loss_for_object_detection.linear_sum_assignment([[1.0, 2.0], [3.0, 0.5]])
from sklearn.metrics import roc_auc_score
from scipy.optimize import minimize_scalar
print(json.dumps([light, tpr.tolist()[-1], columns.tolist(), roc_auc_score([0, 1], [0.1, 0.9])]))
"""


@pytest.mark.slow
def test_a_training_imports_no_scikit_learn_and_both_work_when_called():
    done = run_python("-c", CODE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[], 1.0, [0, 1], 1.0]


RULES = """
import sys
sys.argv = ["evaluate.py", "system=exprag", "task=read", "eval.variants=[scripted]", "data.patients=20", "run_dir={}"]
from ghar.launch import evaluate
from ghar.launch.entry import launch
try:
    launch(evaluate.run)
finally:
    print([name for name in ("transformers", "peft", "trl", "sympy") if name in sys.modules])
"""


@pytest.mark.slow
def test_an_evaluation_of_rules_loads_no_model_library(tmp_path):
    done = run_python("-c", RULES.format(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
