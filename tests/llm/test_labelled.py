"""1,000 replies whose meaning is known, and hostile ones of any length, through all readers."""

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.hostile import LIMIT, READERS, hostile
from tests.llm import labelled
from tests.llm.labelled import Labelled, by_hand, scripted

SET = [*scripted(), *by_hand()]


def read(case: Labelled) -> object:
    found = labelled.READERS[case.kind](case.reply)
    assert found.error is None or found.value in (None, ""), case
    return None if found.error else found.value


def test_the_set_is_what_it_is_called():
    assert len({(case.kind, case.reply) for case in SET}) >= 1000
    assert scripted() == scripted() and {case.kind for case in SET} == set(labelled.READERS)
    assert 300 < sum(case.clear for case in SET) < 700


def test_no_label_is_read_wrongly_in_silence():
    wrong = [(case, found) for case in SET if (found := read(case)) is not None and found != case.means]
    assert not wrong


def test_clear_replies_are_read():
    lost = Counter(case.kind for case in SET if case.clear and read(case) is None)
    assert lost.total() <= 0.05 * sum(case.clear for case in SET), lost


@pytest.mark.parametrize("case", [case for case in SET if case.kind == "yes or no" and "\n" not in case.reply][::9])
def test_decoration_changes_nothing(case):
    for reply in (
        f"\n\n{case.reply}\n",
        f"  {case.reply}  ",
        case.reply.upper(),
        f"{'thinking. ' * 5000}\n\n{case.reply}",
    ):
        if reply.startswith("thinking") and "answer" not in case.reply.lower():
            continue
        found = read(Labelled(case.kind, reply, case.means))
        assert found == read(case), reply[-100:]


@pytest.mark.slow
def test_hostile_replies(tmp_path: Path):
    """0.2% of `python benchmarks/run.py hostile`."""
    found = hostile(share=0.002, seed=1)
    assert found["replies"] == 2000 and found["readers"] == len(READERS) >= 25
    assert found["exceptions"] == 0, json.dumps(found["raised"], indent=1)
    slow = {name: ms for name, ms in found["longest reading, ms"].items() if ms > 1000 * LIMIT}
    assert not slow
