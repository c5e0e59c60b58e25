"""Reward terms as pure functions, and their composition."""
