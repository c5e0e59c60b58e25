"""The encoders as predictors in their own right: the rows of GraphWalker's Table 3."""

from __future__ import annotations

from ghar.data.cohort import Sample, Task
from ghar.data.tasks.samples import TimeSeries
from ghar.data.tasks.splits import Splits
from ghar.envs.graphwalker.encoders.embeddings import Embeddings
from ghar.metrics.bootstrap import RESAMPLES, BootstrapSpread
from ghar.metrics.clinical import best_threshold, length_of_stay, risk


def predictor_scores(
    embeddings: Embeddings, task: Task, splits: Splits[Sample[TimeSeries]], *, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, BootstrapSpread]:
    """Numbers on the test samples: as `ghar.metrics.clinical.risk` for two labels, with the threshold that is best on
    the validation samples, as `length_of_stay` for more."""
    row = embeddings.row_of
    valid, test = (
        embeddings.probabilities[[row[sample.sample_id] for sample in part]] for part in (splits.valid, splits.test)
    )
    labels, patients = [s.label for s in splits.test], [s.subject_id for s in splits.test]
    if len(task.labels) > 2:
        draw = {"seed": seed, "resamples": resamples}
        return length_of_stay(labels, test.tolist(), len(task.labels), patients=patients, **draw)
    threshold = best_threshold([sample.label for sample in splits.valid], valid[:, 1].tolist())
    return risk(labels, test[:, 1].tolist(), threshold, patients=patients, seed=seed, resamples=resamples)
