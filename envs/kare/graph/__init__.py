"""KARE's knowledge graph from three sources, its communities and their summaries."""
