"""The engine that is a function."""

from __future__ import annotations

import pytest

from ghar.llm.engine import Request
from ghar.llm.scripted import ScriptedEngine


def test_it_replies_in_order_and_counts_words():
    replies = ScriptedEngine(str.upper).generate([Request("a b", 4), Request("c", 4, ("C", "D"))])
    assert [reply.text for reply in replies] == ["A B", "C"]
    assert [reply.tokens for reply in replies] == [(2, 2), (1, 1)]
    assert all(not reply.token_ids for reply in replies)


def test_it_has_no_model_and_keeps_to_choices():
    engine = ScriptedEngine(str.upper)
    with pytest.raises(ValueError, match="none of"):
        engine.generate([Request("a", 4, ("yes", "no"))])
    with pytest.raises(ValueError, match="cannot score"):
        engine.score([])
    with pytest.raises(ValueError, match="cannot take weights"):
        engine.sync(None, 0)
    engine.close()
