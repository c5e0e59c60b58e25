"""Entry points: each reads a configuration and calls one function."""
