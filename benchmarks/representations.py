"""How far apart the representations of replies are, by the label that they name (GHAR, Fig. 10c).

The representation of a reply is the mean last hidden state of its tokens behind its prompt, scaled to 1. That of a
label is the mean over the test samples whose final reply names it. Distances are Euclidean. The paper names neither
layer nor mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ghar.errors import BadInput
from ghar.metrics.charts import INK, panels
from ghar.metrics.runfolder import RunFolder

FEWEST = 2  # replies that a label needs to be shown
DOTS = 150  # per inch, of PNG


def representations(overrides: Sequence[str], folder: Path) -> dict[str, Any]:
    """Distances between the labels that a run's replies name, as numbers and as folder/representations.svg and .png.

    overrides: run_dir=RUN of a trained run, and eval.variants=[NAME] for another variant than ghar_rl that the weights
    after RL answered. BadInput where they did not, or are not the best of the run by now.
    """
    given = {key: value for key, _, value in (text.partition("=") for text in overrides)}
    run, variant = Path(given.get("run_dir", "")), given.get("eval.variants", "[ghar_rl]").strip("[]")
    summary = RunFolder(run).summary()
    if "run_dir" not in given or summary is None:
        raise BadInput("Name a finished run with run_dir=RUN.")
    model, tokenizer = who_answered(run, summary, variant)
    rows = [row for row in RunFolder(run).episodes(variant) if row["prediction"] is not None and row["turns"]]
    if not rows:
        raise BadInput(f"{run} has no readable replies of {variant}: evaluate it with eval.variants=[{variant}].")
    vectors = vectors_of(model, tokenizer, [row["turns"][-1] for row in rows])
    labels, apart = distances(summary["task"]["labels"], [row["prediction"] for row in rows], vectors)
    for end, content in draw(labels, apart).items():
        (folder / f"representations.{end}").write_bytes(content)
    return {"labels": labels, "distances": apart.tolist(), "replies": len(rows), "by steps": by_steps(apart)}


def who_answered(run: Path, summary: Mapping[str, Any], variant: str) -> tuple[Any, Any]:
    """The model after RL that answered a variant, and its tokenizer."""
    from ghar.trainers.agent import config_of
    from ghar.trainers.evaluation.weights import find
    from ghar.trainers.export import load_trained, merge
    from ghar.trainers.runs.checkpoint import step_number

    stage = (summary.get("answered_by") or {}).get(variant)
    if stage != "trained":
        by = "nothing" if stage is None else f"stage {stage}"
        raise BadInput(f"{variant} was answered by {by} in {run}, not by the weights after RL: name another variant.")
    config = config_of(run)
    step = find(replace(config, eval=replace(config.eval, checkpoint=None))).step
    update = None if step is None else step_number(step)
    if step is None or update != summary.get("weights_step"):
        raise BadInput(
            f"{run} was evaluated at update {summary.get('weights_step')}, its best weights are of {update}: evaluate "
            "it again."
        )
    actor, tokenizer = load_trained(config, step)
    return merge(actor).eval(), tokenizer


def vectors_of(model: Any, tokenizer: Any, turns: Sequence[dict[str, Any]]) -> np.ndarray:
    """f64[turns, d]: the representation of each turn's reply."""
    import torch

    from ghar.llm.tokens import encode_prompt, encode_reply

    vectors = []
    with torch.inference_mode():
        for turn in turns:
            prompt, reply = encode_prompt(tokenizer, turn["prompt"]), encode_reply(tokenizer, turn["reply"])
            out = model(input_ids=torch.tensor([[*prompt, *reply]]), output_hidden_states=True)
            state = out.hidden_states[-1][0, len(prompt) :].double().mean(dim=0)
            vectors.append((state / state.norm()).numpy())
    return np.stack(vectors)


def distances(labels: Sequence[str], named: Sequence[str], vectors: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The labels that enough replies name, in the task's order, and the distances between their means."""
    who = np.array(named)
    kept = [label for label in labels if (who == label).sum() >= FEWEST]
    if len(kept) < 2:
        raise BadInput(f"fewer than two labels are named by {FEWEST} replies or more: evaluate more patients.")
    means = np.stack([vectors[who == label].mean(axis=0) for label in kept])
    return kept, np.linalg.norm(means[:, None] - means[None], axis=-1)


def by_steps(apart: np.ndarray) -> dict[str, float]:
    """Steps between two labels -> the mean distance of such labels: the paper's claim is that it grows."""
    size = len(apart)
    return {str(steps): float(np.diagonal(apart, steps).mean()) for steps in range(1, size)}


def draw(labels: Sequence[str], apart: np.ndarray) -> dict[str, bytes]:
    """The matrix as a heat map, "svg" and "png"."""
    import io

    name = "Distance between representations of replies"
    with panels(name, 4.6, 4.0) as (figure, [axes], svg):
        image = axes.imshow(apart, cmap="Blues", vmin=0.0)
        axes.grid(False)
        axes.set_xticks(range(len(labels)), list(labels), color=INK)
        axes.set_yticks(range(len(labels)), list(labels), color=INK)
        axes.set(xlabel="Label that a reply names", ylabel="Label that a reply names")
        for (row, column), value in np.ndenumerate(apart):
            color = "white" if value > 0.6 * apart.max() else INK
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=6.5, color=color)
        figure.colorbar(image, ax=axes, label="Euclidean distance")
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=DOTS, metadata={"Software": None})
    return {"svg": svg[0].encode(), "png": out.getvalue()}
