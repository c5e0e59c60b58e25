"""Train an encoder as a predictor of the task's label, encode with it, keep it.

SMART is first pre-trained without labels, then its classifier alone is trained for a fifth of the epochs, then all of
it (Yu et al. 2024). The epoch with the lowest validation loss is kept. Nothing of a test sample is read in training.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ghar.data.cohort import Sample
from ghar.data.tasks.samples import TimeSeries
from ghar.disk import whole
from ghar.envs.graphwalker.encoders.adacare import AdaCare
from ghar.envs.graphwalker.encoders.batches import FeatureScale, Output, SeriesBatch, fit_scale, make_batch
from ghar.envs.graphwalker.encoders.concare import ConCare
from ghar.envs.graphwalker.encoders.labels import check_labels
from ghar.envs.graphwalker.encoders.smart import Pretraining, Smart, draw_hidden
from ghar.errors import BadInput
from ghar.progress import progress

Neural = Literal["smart", "concare", "adacare"]
MODELS = {"smart": Smart, "concare": ConCare, "adacare": AdaCare}
MOMENTS = ("mean", "deviation", "static_mean", "static_deviation")  # of a `FeatureScale`
MEASURED = MOMENTS[:2]  # what files from before encoders read age and sex have too
FROZEN = 0.2  # share of SMART's epochs that train the classifier alone


@dataclass(frozen=True)
class EncoderTraining:
    """How an encoder is trained. Adam; `patience`: epochs without a lower validation loss before it stops."""

    hidden: int
    epochs: int
    pretrain: int
    batch: int
    lr: float
    patience: int


# The authors' settings; patience is ours.
PUBLISHED: dict[Neural, EncoderTraining] = {
    "smart": EncoderTraining(hidden=32, epochs=25, pretrain=25, batch=64, lr=1e-3, patience=10),
    "concare": EncoderTraining(hidden=64, epochs=100, pretrain=0, batch=256, lr=1e-3, patience=10),
    "adacare": EncoderTraining(hidden=384, epochs=100, pretrain=0, batch=128, lr=1e-3, patience=10),
}


@dataclass(frozen=True, eq=False)
class TrainedEncoder:
    """A trained encoder: `model` in evaluation mode, and the scale its inputs are put on."""

    name: Neural
    model: nn.Module
    scale: FeatureScale
    classes: int
    training: EncoderTraining

    def encode(self, samples: Sequence[Sample[TimeSeries]]) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings float32 [n, d] and label probabilities float32 [n, classes]."""
        vectors, shares = [], []
        with torch.inference_mode():
            for start in range(0, len(samples), self.training.batch):
                batch = make_batch(samples[start : start + self.training.batch], self.scale)
                output: Output = self.model(batch.to(_device_of(self.model)))
                vectors.append(output.embedding.cpu())
                shares.append(output.logits.softmax(-1).cpu())
        return torch.cat(vectors).numpy(), torch.cat(shares).numpy()

    def save(self, path: Path) -> None:
        """Write one file, whole or not at all."""
        scale = {"features": list(self.scale.features)}
        scale |= {name: getattr(self.scale, name).tolist() for name in MOMENTS}
        about = {"name": self.name, "classes": self.classes, "training": asdict(self.training), "scale": scale}
        with whole(path) as half:
            torch.save({**about, "weights": {n: w.cpu() for n, w in self.model.state_dict().items()}}, half)

    @classmethod
    def load(cls, path: Path) -> TrainedEncoder:
        """Read what `save` wrote. Raises BadInput for a damaged file."""
        try:
            state = torch.load(path, weights_only=True, map_location="cpu")
            scale = state["scale"]
            moments = [np.array(scale[name] if name in MEASURED else scale.get(name, [])) for name in MOMENTS]
            scale = FeatureScale(tuple(scale["features"]), *moments)
            training = EncoderTraining(**state["training"])
            model = MODELS[state["name"]](
                len(scale.features), state["classes"], training.hidden, scale.static_width
            )
            model.load_state_dict(state["weights"])
        except (OSError, KeyError, TypeError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise BadInput(f"{path} is no trained encoder ({error}): delete it, it is trained again.") from error
        return cls(state["name"], model.eval().to(usual_device()), scale, state["classes"], training)


def usual_device() -> torch.device:
    """A GPU where torch sees one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def train_encoder(
    name: Neural,
    train: Sequence[Sample[TimeSeries]],
    valid: Sequence[Sample[TimeSeries]],
    classes: int,
    *,
    seed: int,
    training: EncoderTraining | None = None,
    device: torch.device | None = None,
) -> TrainedEncoder:
    """Train on `train`, keep the epoch that is best on `valid`. The same seed, the same weights on a CPU; torch's own
    generators are left as they were. training: by default what the encoder's authors published. device: by default
    `usual_device`.

    Raises BadInput when the training samples all have one label, and as `batches.observation_mask`.
    """
    check_labels([sample.label for sample in train])
    settings = training or PUBLISHED[name]
    scale, device = fit_scale(train), device or usual_device()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        made = MODELS[name](len(scale.features), classes, settings.hidden, scale.static_width)
        model = made.to(device)  # the same beginning everywhere
        data = _Data(train, valid, scale, settings, np.random.default_rng(seed), device)
        if isinstance(model, Smart) and settings.pretrain:
            _pretrain(model, data)
        _fit(name, model, data)
    return TrainedEncoder(name, model.eval(), scale, classes, settings)


@dataclass(frozen=True, eq=False)
class _Data:
    train: Sequence[Sample[TimeSeries]]
    valid: Sequence[Sample[TimeSeries]]
    scale: FeatureScale
    settings: EncoderTraining
    rng: np.random.Generator
    device: torch.device

    def epoch(self) -> Iterator[SeriesBatch]:
        """Training batches, shuffled afresh."""
        order, size = self.rng.permutation(len(self.train)), self.settings.batch
        for start in range(0, len(order), size):
            yield make_batch([self.train[i] for i in order[start : start + size]], self.scale).to(self.device)

    def validation(self) -> Iterator[SeriesBatch]:
        for start in range(0, len(self.valid), self.settings.batch):
            yield make_batch(self.valid[start : start + self.settings.batch], self.scale).to(self.device)


def _pretrain(model: Smart, data: _Data) -> None:
    stage = Pretraining(model.encoder, data.settings.hidden).to(data.device).train()
    learned = [weight for weight in stage.parameters() if weight.requires_grad]
    optimiser = torch.optim.Adam(learned, lr=data.settings.lr)
    steps = data.settings.pretrain * -(-len(data.train) // data.settings.batch)
    done = 0
    with progress(steps, "Pre-train smart") as advance:
        for _ in range(data.settings.pretrain):
            for batch in data.epoch():
                _step(stage.loss(batch, draw_hidden(batch)), optimiser)
                done += 1
                stage.follow(done / steps)
                advance()


def _fit(name: Neural, model: nn.Module, data: _Data) -> None:
    """Leaves the weights of the best epoch in `model`."""
    optimiser = torch.optim.Adam(model.parameters(), lr=data.settings.lr)
    best, kept, since = float("inf"), copy.deepcopy(model.state_dict()), 0
    frozen = round(FROZEN * data.settings.epochs) if data.settings.pretrain else 0
    with progress(data.settings.epochs, f"Train {name}") as advance:
        for epoch in range(data.settings.epochs):
            if isinstance(model, Smart):
                model.encoder.requires_grad_(epoch >= frozen)
            model.train()
            for batch in data.epoch():
                output: Output = model(batch)
                _step(F.cross_entropy(output.logits, batch.labels) + output.penalty, optimiser)
            advance()
            loss = _validation_loss(model, data)
            if loss < best:
                best, kept, since = loss, copy.deepcopy(model.state_dict()), 0
            else:
                since += 1
            if since >= data.settings.patience and epoch >= frozen:
                break
    model.load_state_dict(kept)
    model.requires_grad_(False)


def _step(loss: Tensor, optimiser: torch.optim.Optimizer) -> None:
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def _validation_loss(model: nn.Module, data: _Data) -> float:
    """Mean cross-entropy; the penalty belongs to training."""
    model.eval()
    total = 0.0
    with torch.inference_mode():
        for batch in data.validation():
            output: Output = model(batch)
            total += F.cross_entropy(output.logits, batch.labels, reduction="sum").item()
    return total / len(data.valid)
