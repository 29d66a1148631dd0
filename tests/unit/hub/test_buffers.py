"""The hub's buffers: room for a tail of the largest frame in front of every read."""
import pytest

from gomq_py.hub.buffers import FLOOD_OCTETS, FLOOD_OUTPUT_OCTETS, INPUT_OCTETS, HubBuffers


@pytest.mark.parametrize("frame_max", [4096, 131072, 1 << 20])
def test_the_largest_frame_fits_in_front_of_a_read(frame_max):
    buffers = HubBuffers(frame_max)

    assert buffers.reserve > frame_max
    assert len(buffers.input) == buffers.reserve + FLOOD_OCTETS
    assert len(buffers.output) == buffers.flood_output_octets == FLOOD_OUTPUT_OCTETS
    assert len(buffers.input_room) == INPUT_OCTETS and len(buffers.flood_room) == FLOOD_OCTETS


def test_the_views_show_the_buffers():
    buffers = HubBuffers(4096)

    buffers.input_view[:2] = b"in"
    buffers.output_view[:3] = b"out"

    assert buffers.input[:2] == b"in" and buffers.output[:3] == b"out"
