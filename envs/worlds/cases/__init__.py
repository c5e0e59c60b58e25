"""A generated cohort in which only other patients' cases tell an outcome: examples inform."""
