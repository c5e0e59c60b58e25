"""Train one of PyHealth's models on exported samples and write its answers to the test samples (docs/studies.md).

It runs in an environment of its own, which has PyHealth 1.1.6 and none of this project. benchmarks/pyhealth_rows.py
starts it: python benchmarks/pyhealth_models.py SAMPLES.json StageNet SEED ANSWERS.csv
"""

from __future__ import annotations

import csv
import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FEATURES = ("conditions", "procedures", "drugs")
KEYWORDS: Mapping[str, Mapping[str, Any]] = {  # what a model wants besides PyHealth's defaults
    "GRASP": {"use_embedding": [True] * len(FEATURES)},
    "ConCare": {"use_embedding": [True] * len(FEATURES)},
    "AdaCare": {"use_embedding": [True] * len(FEATURES)},
    "Agent": {"use_embedding": [True] * len(FEATURES)},
}
BATCH, FEWEST = 64, 12  # samples; GRASP finds 12 clusters in each batch
EPOCHS, PATIENCE, RATE = 50, 5, 1e-3
NO_LOSS = 3  # exit code: no epoch had a validation loss that is a number


def main(samples: Path, name: str, seed: int, answers: Path) -> None:
    """Fit to the training samples, keep the epoch with the lowest validation loss, answer the test samples."""
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    content = json.loads(samples.read_text())
    parts: dict[str, list[dict[str, Any]]] = {"train": [], "valid": [], "test": []}
    for sample in content["samples"]:
        parts[sample["split"]].append(_as_pyhealth(sample))
    every = [sample for part in parts.values() for sample in part]
    dataset = importlib.import_module("pyhealth.datasets").SampleEHRDataset(every, dataset_name="exported")
    kind = getattr(importlib.import_module("pyhealth.models"), name)
    keywords = dict(KEYWORDS.get(name, {}))
    model = kind(dataset=dataset, feature_keys=list(FEATURES), label_key="label", mode="multiclass", **keywords)
    epoch = _fit(torch, model, parts["train"], parts["valid"])
    seen = sorted({sample["label"] for sample in every})  # PyHealth's order of the classes
    model.eval()
    with torch.no_grad():
        shares = torch.cat([model(**batch)["y_prob"] for batch in _batches(parts["test"], None)]).tolist()
    _write(answers, content["labels"], parts["test"], shares, seen)
    print(f"{name}, seed {seed}: {len(parts['train'])} training samples, epoch {epoch} kept", flush=True)


def _as_pyhealth(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Visits of code lists; an empty list is a token of its own, for PyHealth pads nothing with nothing."""
    codes = {kind: [visit or ["none"] for visit in sample[kind]] for kind in FEATURES}
    return {"patient_id": sample["patient"], "visit_id": sample["sample_id"], "label": sample["label"], **codes}


def _fit(torch: Any, model: Any, train: Sequence[Any], valid: Sequence[Any]) -> int:
    """The epoch whose weights the model ends with. Exits with `NO_LOSS` where there is none."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    generator = torch.Generator().manual_seed(torch.initial_seed())
    best, kept, at = float("inf"), {}, 0
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for batch in _batches(train, torch.randperm(len(train), generator=generator).tolist()):
            optimizer.zero_grad()
            model(**batch)["loss"].backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses = [(float(model(**b)["loss"]), len(b["label"])) for b in _batches(valid or train, None)]
        loss = sum(loss * count for loss, count in losses) / sum(count for _, count in losses)
        if loss < best:
            best, at = loss, epoch
            kept = {key: value.clone() for key, value in model.state_dict().items()}
        elif epoch - at >= PATIENCE:
            break
    if at == 0:
        raise SystemExit(NO_LOSS)
    model.load_state_dict(kept)
    return at


def _batches(samples: Sequence[Any], order: Sequence[int] | None) -> Iterator[dict[str, list[Any]]]:
    """Batches of `BATCH` samples; a last one with fewer than `FEWEST` joins the one before it."""
    rows = list(range(len(samples))) if order is None else list(order)
    starts = list(range(0, len(rows), BATCH))
    if len(starts) > 1 and len(rows) - starts[-1] < FEWEST:
        starts.pop()
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        chosen = [samples[row] for row in rows[start:end]]
        yield {key: [sample[key] for sample in chosen] for key in chosen[0]}


def _write(path: Path, labels: Sequence[str], test: Sequence[Any], shares: Sequence[Any], seen: Sequence[int]) -> None:
    """A row a test sample: the probability of every label, 0 for one that no sample has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["sample_id", *(f"probability_{label}" for label in labels)])
        for sample, row in zip(test, shares, strict=True):
            probabilities = dict(zip(seen, row, strict=True))
            writer.writerow([sample["visit_id"], *(probabilities.get(number, 0.0) for number in range(len(labels)))])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
