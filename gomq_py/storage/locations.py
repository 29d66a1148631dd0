"""Locations: where a message lies in a store, as one number.

A leaf; the compiled twin is inline in ``locations.pxd``.

Level of priority (8 bits) << 56 | number of the segment (28 bits) << 28 | position (28 bits): octets from the
start of the msgs file. Locations of one level grow from older to younger messages, so that they sort as their
messages came. A location holds for one run: after a restart another message may lie there. Who keeps one on
disk (mqtt.model.qos2_records) keeps beside it when its message was stored.
"""
NUMBER_BITS = 28
POSITION_BITS = 28


def level_bits(level):
    """The part of a location that is the same for all of a level."""
    return level << NUMBER_BITS + POSITION_BITS


def pack(bits, number, position):
    """The location of a record; ``bits`` are its level's."""
    return bits | number << POSITION_BITS | position


def level_of(location):
    """The level of priority."""
    return location >> NUMBER_BITS + POSITION_BITS


def number_of(location):
    """The number of the segment."""
    return location >> POSITION_BITS & (1 << NUMBER_BITS) - 1


def position_of(location):
    """Where in the segment the record begins."""
    return location & (1 << POSITION_BITS) - 1
