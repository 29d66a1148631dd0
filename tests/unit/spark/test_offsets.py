"""Offsets: what a checkpoint holds is read back, and what is something else is told."""
import json

import pytest

from gomq_py.spark.errors import GomqError
from gomq_py.spark.offsets import Position, decode, encode

POSITIONS = {"orders": Position("0f" * 16, 4711, 3, 9216), "\u00e9": Position("aa" * 16, 0)}


def test_offsets_survive_the_checkpoint():
    assert decode(json.loads(json.dumps(encode(POSITIONS)))) == POSITIONS


def test_the_octets_of_a_checkpoint_stay_what_they_are():
    assert encode(POSITIONS) == {"v": 1, "streams": {
        "orders": {"epoch": "0f" * 16, "next": 4711, "segment": 3, "at": 9216},
        "\u00e9": {"epoch": "aa" * 16, "next": 0}}}


@pytest.mark.parametrize("given, words", [
    ({"v": 2, "streams": {}}, "version 2"), ({"topic": {"0": 5}}, "Is it another query's"),
    (None, "Is it another query's"),
    ({"v": 1, "streams": {"a": {"next": "x"}}}, "Is it another query's"),
])
def test_what_another_program_wrote_is_not_taken_for_ours(given, words):
    with pytest.raises(GomqError, match=words):
        decode(given)
