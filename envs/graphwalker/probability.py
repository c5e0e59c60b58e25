"""The probability of the second of two labels as a number in the reply (the paper's 0.XX, Appendix K)."""

from __future__ import annotations

import re

from ghar.episode import Act, Options, Parsed, Prediction, ReasoningStep

AGENT, MAX_TOKENS = "top", 16
PROBABILITIES = Options(tuple(f"{percent / 100:.2f}" for percent in range(101)), alone=True)
PROBABILITY = (
    'How probable is the answer "{label}"? Reply with one number from 0 to 1 such as 0.27, and nothing else.\n'
    "Probability:"
)


def probability_act(prompt: str, labels: tuple[str, ...], step: int = 0) -> Act:
    """Ask for the probability of the second label, after all that `prompt` says."""
    ask = prompt + PROBABILITY.format(label=labels[1])
    return Act(AGENT, "predict", ask, (), MAX_TOKENS, step, parse_probability, options=PROBABILITIES)


def probability_prediction(
    probability: float | None, history: tuple[ReasoningStep, ...] = (), truncated: bool = False
) -> Prediction:
    """The second label from 0.5 on; no label for a reply without a probability."""
    if probability is None:
        return Prediction(None, history, truncated=truncated)
    shares = (1 - probability, probability)
    return Prediction(int(probability >= 0.5), history, truncated=truncated, probabilities=shares)


def parse_probability(reply: str) -> Parsed:
    """A number from 0 to 1, which may be a share of 100, alone on the reply's first line."""
    line = reply.strip().split("\n")[0].strip()
    match = re.fullmatch(r"[*\"']{0,8}(\d{0,3}(?:\.\d{1,12})?)[ \t]?(%?)[.*\"']{0,4}", line)
    if match is None or not match[1].strip("."):
        return Parsed(None, "no_probability")
    value = float(match[1]) / (100 if match[2] else 1)
    return Parsed(value) if value <= 1 else Parsed(None, "no_probability")
