"""Episodes of the systems and the rollout that keeps many of them in flight."""
