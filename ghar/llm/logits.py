"""How a family turns the product of head and state into logits: a factor, a soft cap, or neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FACTORS = ("logit_scale", "lm_head_multiplier")  # Cohere; Falcon-H1
DIVISORS = ("logits_scaling",)  # Granite
CAPS = ("final_logit_softcapping",)  # Gemma 2


@dataclass(frozen=True)
class LogitTransform:
    """logits = cap * tanh(scale * x / cap), without a cap scale * x, of the head's product x."""

    scale: float = 1.0
    cap: float | None = None

    def apply(self, product: Any) -> Any:
        """Logits of the head's product, a float tensor, which may be changed in place."""
        if self.scale != 1.0:
            product = product * self.scale
        return product if self.cap is None else (product / self.cap).tanh() * self.cap

    def rate(self, logits: Any) -> Any:
        """d logits / d product over `scale`, at the logits that `apply` gave; None without a cap, where it is 1."""
        return None if self.cap is None else 1 - (logits / self.cap) ** 2


IDENTITY = LogitTransform()


def transform_of(config: Any) -> LogitTransform:
    """The transform that a configuration of transformers names."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    scale = 1.0
    for name in FACTORS:
        scale *= getattr(text, name, None) or 1.0
    for name in DIVISORS:
        scale /= getattr(text, name, None) or 1.0
    cap = next((value for name in CAPS if (value := getattr(text, name, None))), None)
    return LogitTransform(float(scale), None if cap is None else float(cap))
