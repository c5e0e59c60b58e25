"""Importing transformers takes neither scikit-learn nor scipy.optimize along; both are there when they are called."""

from __future__ import annotations

import json

import pytest

from tests.running import run_python

CODE = """
import json, sys
import ghar.trainers.recipe
light = [name for name in ("sklearn", "pandas", "scipy.optimize", "scipy.stats") if name in sys.modules]
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
