"""Which patients' cases a language model is shown before it predicts."""
