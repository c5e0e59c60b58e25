"""KARE's knowledge graph from three sources: a biomedical graph, a corpus of abstracts, a language model."""
