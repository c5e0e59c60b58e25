"""Policy and value of RLlib's PPO on navigation: two hidden layers each, actions outside the mask impossible."""

# pyright: reportMissingImports=false
# ray is an extra that the linters' environment need not have

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

IMPOSSIBLE = -1e9  # a logit; minus infinity would make entropy NaN


class MaskedModule(TorchRLModule, ValueFunctionAPI):
    """model_config: {"hidden": width, "mean", "spread"}: the value learns by how many spreads a return differs from the
    mean. Observations: {"observation" [B, width], "action_mask" [B, actions]}."""

    def setup(self) -> None:
        width = self.observation_space["observation"].shape[0]  # type: ignore[index]
        hidden, actions = self.model_config["hidden"], int(self.action_space.n)  # type: ignore[union-attr, index]
        self.policy = _layers(width, hidden, actions)
        self.value = _layers(width, hidden, 1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self.logits(batch[Columns.OBS])}

    def logits(self, seen: dict[str, torch.Tensor]) -> torch.Tensor:
        """float32 [B, actions]."""
        logits = self.policy(seen["observation"].float())
        return logits.masked_fill(seen["action_mask"] == 0, IMPOSSIBLE)

    def compute_values(self, batch: dict[str, Any], embeddings: Any | None = None) -> torch.Tensor:
        scaled_value = self.value(batch[Columns.OBS]["observation"].float()).squeeze(-1)
        return self.model_config["mean"] + self.model_config["spread"] * scaled_value  # type: ignore[index]


def _layers(width: int, hidden: int, out: int) -> nn.Sequential:
    inner = [nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh()]
    return nn.Sequential(*inner, nn.Linear(hidden, out))
