"""GHAR: reinforcement learning for agents that retrieve before they predict on health records.

Importing the package loads neither torch nor vllm; every submodule imports what it needs itself.
"""

__version__ = "0.1.0"
