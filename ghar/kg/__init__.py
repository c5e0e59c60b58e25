"""Typed biomedical knowledge graphs and their meta-path partitions."""
