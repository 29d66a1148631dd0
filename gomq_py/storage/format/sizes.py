"""Sizes: how many octets of a segment a record takes.

A leaf; the compiled twin is inline in ``sizes.pxd``.
"""


def record_size(routing_length, properties_length, body_length):
    """A header of 40 octets, the three parts, a checksum of 4, and zeros up to a multiple of 8: see
    format.record.
    """
    return (44 + routing_length + properties_length + body_length + 7) & ~7
