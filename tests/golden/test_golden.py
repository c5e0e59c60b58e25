"""A few golden sums with the suite; `make golden` compares all of them."""

from __future__ import annotations

import pytest

from tests.golden.canonical import as_text, report_text
from tests.golden.golden import compare, differs


@pytest.mark.parametrize("name", ["cases/baselines/demo_cases", "traces/comparators/demo/read/rule_pair"])
def test_some_golden_sums_are_equal(name: str):
    assert compare((name,)) == []


def test_numbers_are_compared_within_rounding_and_a_difference_is_named():
    kept = {"loss": 0.5, "some": [1.0, -2.0], "n": 3}
    assert differs(kept, {"loss": 0.50001, "some": [1.0, -2.0], "n": 3}) == ""
    assert differs(kept, {"loss": 0.501, "some": [1.0, -2.0], "n": 3}) == "loss: 0.5 is 0.501 now"
    assert differs(kept, {"loss": 0.5, "some": [1.0, -2.1], "n": 3}) == "some: value 1: -2.0 is -2.1 now"
    assert differs(kept, {"loss": 0.5, "some": [1.0], "n": 3}) == "some: 2 values are 1 now"
    assert differs(kept, {"loss": 0.5, "some": [1.0, -2.0]}) == "keys n stand on one side only"


def test_a_canonical_text_rounds_floats_and_names_no_class():
    assert as_text({"a": [0.1 + 0.2, (1, None)], "b": {"c": True}}) == 'a:\n"0.3"\n[1, null]\nb:\nc:\ntrue\n'
    with pytest.raises(TypeError, match="object has no canonical form"):
        as_text(object())


def test_a_report_is_read_without_times_scripts_and_configuration():
    page = (
        "<h1>Run</h1><script>x</script><pre>threads: 1</pre><footer>Made by a module.</footer>"
        "<table><tr><th>Metric</th><th>rule</th></tr><tr><th>Tokens</th><td>3<small>2 to 4</small></td></tr>"
        "<tr><th>Seconds</th><td>0.1</td></tr></table>"
        "<table><tr><th>Variant</th><th>Calls</th><th>Seconds</th></tr><tr><th>rule</th><td>7</td><td>0.2</td></tr></table>"
    )
    assert report_text(page) == "Run\nMetric | rule\nTokens | 3 2 to 4\nVariant | Calls\nrule | 7\n"
