"""GraphWalker's part of the report: who was chosen for whom, what each pick gained, what it cost, one walk.

"selection" in summary.json (`ghar.envs.graphwalker.rows`): variant, selector, k, cost {name: number}, clinical {metric:
[value, mean, deviation]}, rows [{sample_id, label, prediction, scored, shots: [{sample_id, label, gain or null}]}],
walk (null, or {"sample_id", "svg"}).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ghar.metrics.runfolder import RunFolder
from ghar.metrics.style import ReportSection, part_of, render_section

MAX_ROWS = 30
NAMES = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "f1": "F1, saying yes from probability 0.5 on",
    "best_f1": "F1, best threshold of the test patients themselves",
    "ma_roc": "ma-ROC",
    "mi_roc": "mi-ROC",
    "exact_match": "Exact match",
    "bleu_1": "BLEU-1 of the chosen option",
    "bleu_4": "BLEU-4 of the chosen option",
    "rouge_1": "ROUGE-1 of the chosen option",
    "rouge_2": "ROUGE-2 of the chosen option",
    "rouge_l": "ROUGE-L of the chosen option",
}


def sections(run: RunFolder, summary: Mapping[str, Any]) -> list[ReportSection]:
    """The part about demonstrations; none where the evaluation chose none."""
    content = summary.get("selection")
    if content is None:
        return []
    clinical = [
        (NAMES[name], f"{100 * value:.2f}", f"{100 * mean:.2f}±{100 * deviation:.2f}")
        for name, (value, mean, deviation) in content["clinical"].items()
    ]
    rows = content["rows"]
    section = {**content, "part": part_of(summary), "clinical": clinical, "rows": rows[:MAX_ROWS], "all": len(rows)}
    return [ReportSection("Demonstrations", render_section("ghar.envs.graphwalker", "report.html", **section))]
