"""Counters: numbers that stay where they are."""
from gomq_py.observability.counters import Counters, counted


class Seen(Counters):
    _fields_ = counted("bright", "dark")


def test_they_begin_at_nothing_and_count_beyond_32_bits():
    seen = Seen()

    seen.bright += 1
    seen.bright += 1 << 40

    assert (seen.bright, seen.dark) == ((1 << 40) + 1, 0)


def test_a_number_is_kept_as_octets_and_not_as_an_object():
    seen = Seen()
    seen.dark = 1 << 40

    assert seen.dark is not seen.dark and bytes(seen) == bytes(8) + (1 << 40).to_bytes(8, "little")
