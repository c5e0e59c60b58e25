"""Encoders, indexes and retrievers behind the `Retrieve` effect."""
