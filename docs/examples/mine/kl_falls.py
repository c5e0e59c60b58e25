"""A schedule: the KL term keeps its weight for a tenth of the updates, then falls to a tenth of it."""


def kl(update: int, updates: int) -> float:
    """Share of trainer.rl.kl that an update takes; the first is 1, the last is `updates`."""
    done = (update - 1) / max(1, updates - 1)
    return max(0.1, min(1.0, 1.1 - done))
