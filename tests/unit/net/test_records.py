"""Several TLS records in one read, where there are several."""
from ssl import SSLWantReadError

import pytest

from gomq_py.net.records import READS_BETWEEN_LOOKS, RECORDS_MAX, RecordReader

ROOM = 100


class Scripted:
    """What OpenSSL would read: octets, or an error that it raises. Like it, one record in a call."""

    def __init__(self):
        self.records = []
        self.asked = 0

    def read(self, most, view):
        self.asked += 1
        if not self.records:
            raise SSLWantReadError
        record = self.records.pop(0)
        if isinstance(record, Exception):
            raise record
        part, left = record[:most], record[most:]
        if left:
            self.records.insert(0, left)
        view[:len(part)] = part
        return len(part)

    @staticmethod
    def pending():
        """Of a record that was read whole nothing is left; of the others it knows nothing."""
        return 0


@pytest.fixture
def scripted():
    return Scripted()


@pytest.fixture
def reader(scripted):
    """One that looks for more with the next read."""
    reader = RecordReader(scripted)
    scripted.records += [b"x"] * READS_BETWEEN_LOOKS
    for _ in range(READS_BETWEEN_LOOKS):
        reader.receive_into(memoryview(bytearray(ROOM)))
    assert scripted.records == []
    scripted.asked = 0
    return reader


def read(reader):
    room = bytearray(ROOM)
    return bytes(room[:reader.receive_into(memoryview(room))])


def test_all_records_that_are_there_come_with_one_read(scripted, reader):
    scripted.records += [b"one", b"two", b"three"]

    assert read(reader) == b"onetwothree"
    with pytest.raises(SSLWantReadError):
        read(reader)


def test_a_read_takes_no_more_than_there_is_room_for(scripted, reader):
    scripted.records += [b"a" * 60, b"b" * 60]

    assert read(reader) == b"a" * 60 + b"b" * 40
    assert read(reader) == b"b" * 20


def test_a_read_takes_no_more_records_than_others_can_wait_for(scripted, reader):
    scripted.records += [b"r"] * (RECORDS_MAX + 1)

    assert read(reader) == b"r" * RECORDS_MAX
    assert read(reader) == b"r"


def test_who_sends_one_record_at_a_time_is_seldom_asked_for_more(scripted, reader):
    for number in range(2 * READS_BETWEEN_LOOKS):
        scripted.records.append(b"%d" % number)
        assert read(reader) == b"%d" % number

    assert scripted.asked - 2 * READS_BETWEEN_LOOKS == 2


@pytest.mark.parametrize("end", [b"", ConnectionResetError("gone")])
def test_what_came_before_the_end_is_read_first(scripted, reader, end):
    scripted.records += [b"last", b"words", end, end]

    assert read(reader) == b"lastwords"
    if end == b"":
        assert read(reader) == b""
    else:
        with pytest.raises(ConnectionResetError):
            read(reader)


@pytest.mark.parametrize("end", [b"", ConnectionResetError("gone")])
def test_an_end_that_was_read_with_what_came_before_is_kept_and_pending(scripted, reader, end):
    scripted.records += [b"last", end]

    assert reader.pending() == 0
    assert read(reader) == b"last"
    assert reader.pending()  # the socket has no more, and does not call
    for _ in range(2):
        if end == b"":
            assert read(reader) == b""
        else:
            with pytest.raises(ConnectionResetError):
                read(reader)
