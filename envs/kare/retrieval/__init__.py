"""Retrieval of communities, of abstracts and of similar patients."""
