"""Cohorts, tasks, splits and text views of electronic health records."""
