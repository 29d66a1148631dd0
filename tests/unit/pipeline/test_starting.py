"""Starting: "latest" means the end of a stream when a query was started first, whatever comes after."""
import json

import pytest

from gomq_py.pipeline import starting
from gomq_py.spark.transport import Segment, Shape


class Door:
    """A transport with one stream that grows."""

    end = 100

    def describe(self, name):
        return Shape("e", 0, self.end, (Segment(1, 0, self.end, 9999, 0, 1000 * self.end),))

    def offset_for_timestamp(self, name, timestamp_ms):
        return timestamp_ms // 1000

    def close(self):
        pass


@pytest.fixture
def door(monkeypatch):
    door = Door()
    monkeypatch.setattr(starting, "make_transport", lambda options: door)
    return door


@pytest.mark.parametrize("given, first", [
    ({}, 100), ({"startingOffsets": "latest"}, 100), ({"startingOffsets": "earliest"}, 0),
    ({"startingTimestamp": "7000"}, 7), ({"startingOffsetsByTimestamp": '{"s": 9000}'}, 9)])
def test_a_start_is_fixed_once(door, tmp_path, given, first):
    checkpoint = str(tmp_path / "a" / "checkpoint")

    found = starting.fixed_start({"subscribe": "s", **given}, checkpoint)
    door.end = 200
    again = starting.fixed_start({"subscribe": "s", **given}, checkpoint)

    assert json.loads(found["startingOffsets"]) == {"s": first}
    assert again == found and set(found) == {"subscribe", "startingOffsets"}
