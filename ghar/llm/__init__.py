"""Engines that sample from language models, the policies built on them, prompts and answer parsing."""
