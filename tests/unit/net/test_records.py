"""Several TLS records in one read, where there are several."""
from ssl import SSLWantReadError

import pytest

from gomq_py.net import records
from gomq_py.net.records import RECORDS_MAX, RecordReader

ROOM = 100


class Scripted:
    """What OpenSSL would read: octets, or an error that it raises. Like it, one record in a call.

    Of those before ``behind`` it knows that they are there: it has read them ahead.
    """

    def __init__(self):
        self.records = []
        self.behind = []
        self.in_vain = 0

    def read(self, most, view):
        if not self.records:
            self.records, self.behind = self.behind, []
        if not self.records:
            self.in_vain += 1
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

    def has_pending(self):
        """Read ahead."""
        return int(bool(self.records))


@pytest.fixture
def scripted():
    return Scripted()


@pytest.fixture(params=["read ahead", "read one by one"])
def reader(scripted, request, monkeypatch):
    reads_ahead = request.param == "read ahead"
    monkeypatch.setattr(records, "read_ahead", lambda one: one.has_pending if reads_ahead else None)
    return RecordReader(scripted)


@pytest.fixture
def ahead(scripted, monkeypatch):
    """A reader of what is read ahead."""
    monkeypatch.setattr(records, "read_ahead", lambda one: one.has_pending)
    return RecordReader(scripted)


def read(reader, most=ROOM):
    room = bytearray(most)
    return bytes(room[:reader.receive_into(memoryview(room))])


def test_all_records_that_are_there_come_with_one_read(scripted, reader):
    scripted.records += [b"one", b"two", b"three"]

    assert read(reader) == b"onetwothree"
    with pytest.raises(SSLWantReadError):
        read(reader)


def test_a_read_takes_no_more_than_there_is_room_for(scripted, reader):
    scripted.records += [b"a" * 60, b"b" * 60]

    assert read(reader) == b"a" * 60 + b"b" * 40
    assert reader.pending()
    assert read(reader) == b"b" * 20


def test_a_read_takes_no_more_records_than_others_can_wait_for(scripted, reader):
    scripted.records += [b"r"] * (RECORDS_MAX + 1)

    assert read(reader, RECORDS_MAX + 1) == b"r" * RECORDS_MAX
    assert reader.pending()
    assert read(reader) == b"r"


def test_nothing_is_pending_where_all_was_read(scripted, reader):
    scripted.records += [b"one", b"two"]
    read(reader)

    assert not reader.pending()


def test_nothing_is_pending_of_a_record_for_whose_rest_the_socket_calls(scripted, reader):
    scripted.records += [b"one", SSLWantReadError()]

    assert read(reader) == b"one"
    assert not reader.pending()
    scripted.records += [SSLWantReadError()]
    with pytest.raises(SSLWantReadError):
        read(reader)
    assert not reader.pending()


def test_of_what_is_read_ahead_none_is_looked_for_in_vain(scripted, ahead):
    for number in range(5):
        scripted.records += [b"%d" % number, b"+"]
        assert read(ahead) == b"%d+" % number

    assert scripted.in_vain == 0


def test_what_was_not_read_ahead_waits_for_the_next_read(scripted, ahead):
    scripted.records += [b"one"]
    scripted.behind += [b"two"]

    assert read(ahead) == b"one"
    assert not ahead.pending()
    assert read(ahead) == b"two"


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
