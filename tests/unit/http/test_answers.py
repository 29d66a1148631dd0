"""JSON of answers: whatever is shown, no list fails for it."""
import json

import pytest

from gomq_py.http import answers
from gomq_py.http.answers import json_octets


@pytest.mark.parametrize("value, shown", [
    ({"a\udc80": 1}, {"a?": 1}), (["\ud800"], ["?"]),
    ([1 << 64, -1 << 70, (1 << 64) - 1], [hex(1 << 64), hex(-1 << 70), (1 << 64) - 1]),
    ({"a": (1 << 80, b"\xff")}, {"a": [hex(1 << 80), "\ufffd"]}),
    ([float("inf"), float("nan")], [None, None]), ({5: {7}}, {"5": [7]}),
])
def test_what_json_cannot_say_is_shown_as_it_can_be(value, shown):
    assert json.loads(json_octets(value)) == shown


@pytest.mark.parametrize("depth", [200, 300, 5000])
def test_what_is_nested_very_deep_is_shown_to_some_depth(depth):
    value = []
    for _ in range(depth):
        value = [value]

    assert json_octets(value).strip(b"[]") in (b"", b'"..."')


def test_part_of_a_long_answer_is_freed_when_it_is_written(monkeypatch):
    """600 parts that were freed together, at the end of 40 MB, held everybody up for 13 ms."""
    monkeypatch.setattr(answers, "give_way", lambda: None)
    parts = [bytes(answers.WRITTEN_OCTETS)] * 5

    left = [len(parts) for _ in answers._paced(parts)]

    assert left == [4, 3, 2, 1, 0, 0]
