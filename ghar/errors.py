"""Errors a user can act on. Launchers print the sentence and exit with code 2."""


class BadInput(ValueError):
    """Input that cannot be used: the sentence names the file, row or key, and what to do."""
