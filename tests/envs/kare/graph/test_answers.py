import pytest

from ghar.envs.kare.graph.answers import read_triples
from ghar.envs.kare.graph.triples import Triple
from ghar.llm.cached_llm import UnreadableAnswer

GOUT, JOINT = Triple("gout", "is caused by", "urate"), Triple("urate", "harms", "joints")


@pytest.mark.parametrize(
    "text",
    [
        '[["Gout", "is caused by", "urate"], ["urate", "harms", "joints"]]',
        "Sure:\n```json\n[['gout', 'is caused by', 'urate'],\n ['urate', 'harms', 'joints']]\n```\nAnything else?",
        "[[gout, is caused by, urate], [urate, harms, joints]]",
        "[gout, is caused by, urate]\n[urate, harms, joints]\n[gout, is caused by, urate]",
    ],
)
def test_lists_in_the_ways_models_write_them(text: str) -> None:
    found = read_triples(text)
    assert found.triples == (GOUT, JOINT) and found.dropped == 0


def test_one_triple_without_its_list() -> None:
    assert read_triples('["gout", "is caused by", "urate"]').triples == (GOUT,)


def test_nothing_to_say_is_an_answer() -> None:
    assert read_triples("There are none: []").triples == ()


def test_items_that_are_no_triple_are_counted() -> None:
    text = '[["gout", "is caused by", "urate"], ["gout", "hurts"], ["gout", "is", "Gout"], 3, ["", "a", "b"]]'
    found = read_triples(text)
    assert found.triples == (GOUT,) and found.dropped == 4


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "nothing"),
        (" \n", "nothing"),
        ("Gout is caused by urate.", "no_list"),
        ('[["gout", "is caused by", "urate"], ["urate", "ha', "half_list"),
        ('[["gout", "is caused', "half_list"),
        ("]] what? [[", "half_list"),
        ("[[gout, urate], [1]]", "no_triple"),
        ("as shown before [1]", "no_triple"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, reason: str) -> None:
    with pytest.raises(UnreadableAnswer) as error:
        read_triples(text)
    assert error.value.reason == reason
