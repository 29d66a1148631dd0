"""Former run: the last frames of a copy, which begin behind a whole event."""
import pytest

from gomq_py.cluster import former_run
from gomq_py.cluster.former_run import FRAME_OCTETS, Past
from gomq_py.cluster.wire.frames import EVENTS, Frame


@pytest.mark.parametrize("positions, begin, kept", [
    ((1, 2, 3), 1, [2, 3]),
    ((0, 0, 1, 2), 1, [2]),  # two parts of the first event are dropped, and the third one with them
    ((0, 0, 0), 0, []),
    ((0, 0, 0, 1, 2, 2, 3), 2, [2, 3]),
], ids=str)
def test_frames_of_an_event_that_is_dropped_in_part_are_all_dropped(monkeypatch, positions, begin, kept):
    """Two frames are kept. The position of each is that of the last whole event."""
    monkeypatch.setattr(former_run, "LAST_OCTETS", 2 * (FRAME_OCTETS + 1))
    past, before = Past(True), 0
    for position in positions:
        past.applied(Frame(EVENTS, 1, position, b"x"), before)
        before = position

    former = past.present(before, Copy())

    assert (former.begin, [frame.position for frame in former.frames]) == (begin, kept)


class Copy:
    """The part of a Replica that is asked."""

    flushes, paths = 0, {}
