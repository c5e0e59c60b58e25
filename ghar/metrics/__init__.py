"""Metrics with confidence intervals, run folders and reports."""
