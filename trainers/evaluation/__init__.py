"""Test samples played with the weights of a run, their numbers, predictions and report; runs compared."""
