"""The stream of events: which frames a leader's changes become, and how long they are kept."""
import os

import gevent
import pytest

from gomq_py.cluster import stream as module
from gomq_py.cluster.chain import ENTRY_OCTETS, FRAME_OCTETS, PIECE_OCTETS
from gomq_py.cluster.former_run import FormerRun
from gomq_py.cluster.stream import EventStream
from gomq_py.cluster.wire import events, frames
from gomq_py.storage.disk.files import Files
from tests.support.no_switch import no_switch
from tests.support.waiting import TIMEOUT_S, wait_until

MIB = 1 << 20


class Heard:
    """Writes down what decode() calls."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, *(
                bytes(one) if isinstance(one, memoryview) else one for one in arguments)))

        return call


@pytest.fixture
def stream(tmp_path):
    stream = EventStream(tmp_path)
    stream.epoch = 7
    stream.attach()
    yield stream
    stream.close()


@pytest.fixture
def files(stream):
    return Files((stream,))


def frames_behind(stream, entry):
    """The frames of epoch 7 that a link at ``entry`` would send."""
    found = sent_behind(stream, entry)
    assert {frame.epoch for frame in found} <= {7}
    return found


def sent_behind(stream, entry):
    """The frames that a link at ``entry`` would send."""
    reader, found = frames.FrameReader(), []
    while entry.next is not None:
        entry = entry.next
        reader.feed(stream.octets_of(entry))
        found.append(reader.next())
        assert found[-1].kind == frames.EVENTS
        assert found[-1].position == entry.position
    return found


def calls_of(*found):
    heard = Heard()
    for frame in found:
        events.decode(frame.payload, heard)
    return heard.calls


def test_changes_until_a_flush_are_one_frame(stream, files, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "HELD_S", TIMEOUT_S)
    place = stream.end()
    file = files.create(tmp_path / "msgs", 4096)
    files.make_folder(tmp_path / "folder")
    files.write(file, 10, b"octets")
    file.map[0:4] = b"head"
    files.overwritten(file, 0, 4)
    files.extend(file, 8192)
    files.rename(file.path, tmp_path / "folder" / "msgs", file)
    files.unlink(file.path)
    files.remove_folder(tmp_path / "folder")
    gevent.sleep(0)
    assert place.next is None

    with no_switch():
        files.register.flushing()

    frame, = frames_behind(stream, place)
    assert (frame.position, stream.position, files.register.told) == (8, 8, 8)
    assert calls_of(frame) == [
        ("created", 1, 4096, "msgs"), ("folder_created", "folder"), ("written", 1, 10, b"octets"),
        ("written", 1, 0, b"head"), ("resized", 1, 8192), ("renamed", 1, "msgs", "folder/msgs"),
        ("unlinked", 1, "folder/msgs"), ("folder_removed", "folder"), ("hurry",),
    ]


def test_frame_ends_where_a_flush_begins(stream, files, tmp_path):
    """A follower acknowledges positions of frames: a promise must not wait for what comes behind its flush.
    """
    place = stream.end()
    files.make_folder(tmp_path / "one")
    files.register.flushing()
    files.make_folder(tmp_path / "two")
    files.register.flushed()
    files.make_folder(tmp_path / "three")
    files.register.flushing()

    found = frames_behind(stream, place)

    assert [(frame.position, calls_of(frame)) for frame in found] == [
        (1, [("folder_created", "one"), ("hurry",)]),
        (4, [("folder_created", "two"), ("flushed",), ("folder_created", "three"), ("hurry",)])]


def test_flush_of_what_was_sent_is_told_alone(stream, files, tmp_path):
    files.make_folder(tmp_path / "one")
    place = stream.end()

    files.register.flushing()

    assert [(frame.position, calls_of(frame)) for frame in frames_behind(stream, place)] == [
        (1, [("hurry",)])]


@pytest.mark.parametrize("hurries", [True, False])
def test_what_a_promise_waits_for_is_sent_unless_it_was(stream, files, tmp_path, hurries):
    """Such as a record of a log, which is told of behind the flush."""
    place = stream.end()
    files.make_folder(tmp_path / "one")

    stream.want(1, hurries)
    stream.want(1, hurries)

    assert [calls_of(frame) for frame in frames_behind(stream, place)] == [
        [("folder_created", "one"), ("hurry",)][:1 + hurries]]


def test_changes_that_nothing_waits_for_are_sent_soon(stream, files, tmp_path):
    first = stream.end()
    files.make_folder(tmp_path / "one")
    second = wait_until(lambda: first.next, sleep=gevent.sleep)
    files.make_folder(tmp_path / "two")
    third = wait_until(lambda: second.next, sleep=gevent.sleep)

    assert [second.position, third.position] == [1, 2]


def test_frame_is_closed_when_it_is_large(stream, files, tmp_path):
    place = stream.end()
    file = files.create(tmp_path / "msgs", MIB)
    for at in range(0, MIB, 1 << 15):
        files.write(file, at, os.urandom(1 << 15))
    stream.close_frame()

    found = frames_behind(stream, place)

    assert len(found) == 4
    assert all(len(frame.payload) <= FRAME_OCTETS + (1 << 15) + 100 for frame in found)
    assert len(calls_of(*found)) == 33


def test_overwritten_content_is_that_of_the_event(stream, files, tmp_path):
    file = files.create(tmp_path / "acks", MIB)
    place = stream.end()
    for octets in (b"1" * MIB, b"2" * MIB):
        file.map[:] = octets
        files.overwritten(file, 0, MIB)

    found = frames_behind(stream, place)

    assert [frame.position for frame in found] == [1, 1, 1, 2, 2, 2, 2, 3]
    assert {octets[:1] for _, _, _, octets in calls_of(*found[:4])} == {b"1"}
    assert {octets[:1] for _, _, _, octets in calls_of(*found[4:])} == {b"2"}


def test_long_range_is_read_in_pieces_when_a_link_needs_it(stream, files, tmp_path):
    content = os.urandom(2 * PIECE_OCTETS + 1)
    file = files.create(tmp_path / "msgs", MIB)
    place = stream.end()
    files.write(file, 5, content)
    files.make_folder(tmp_path / "behind")
    end = stream.end()
    assert stream.unread == len(content) and stream.kept < 10_000 and file.is_retained

    found = frames_behind(stream, place)

    assert [frame.position for frame in found] == [1, 1, 2, 3] and end.position == 3
    calls = calls_of(*found)
    assert b"".join(call[3] for call in calls[:3]) == content
    assert [call[2] for call in calls[:3]] == [5, 5 + PIECE_OCTETS, 5 + 2 * PIECE_OCTETS]
    assert stream.unread == 0 and stream.kept > len(content) and not file.is_retained


@pytest.mark.parametrize("octets", [PIECE_OCTETS - 1, PIECE_OCTETS, PIECE_OCTETS + 1])
def test_follower_gets_every_octet_of_a_range(stream, files, tmp_path, octets):
    content = os.urandom(octets)
    file = files.create(tmp_path / "msgs", MIB)
    place = stream.end()
    files.write(file, 0, content)
    files.overwritten(file, 0, octets)
    stream.close_frame()

    calls = calls_of(*frames_behind(stream, place))

    assert b"".join(call[3] for call in calls) == 2 * content


def test_link_goes_on_behind_the_event_that_its_follower_has(stream, files, tmp_path):
    file = files.create(tmp_path / "msgs", MIB)
    stream.close_frame()
    files.write(file, 0, os.urandom(2 * PIECE_OCTETS))
    files.make_folder(tmp_path / "behind")
    stream.close_frame()

    assert [len(frames_behind(stream, stream.entry_at(stream.run, at))) for at in range(4)] == [4, 3, 1, 0]
    assert stream.entry_at(os.urandom(16), 1) is None
    assert stream.entry_at(stream.run, 4) is None


def test_position_within_a_frame_is_no_place(stream, files, tmp_path):
    files.make_folder(tmp_path / "one")
    files.make_folder(tmp_path / "two")
    stream.close_frame()

    assert stream.entry_at(stream.run, 1) is None


def test_oldest_frames_are_dropped(stream, files, tmp_path):
    stream.kept_most = 100_000
    place = stream.end()
    file = files.create(tmp_path / "msgs", MIB)
    for at in range(20):
        files.write(file, at * 10_000, os.urandom(10_000))
        stream.close_frame()

    assert place.is_dropped and place.next is None
    assert 90_000 - ENTRY_OCTETS < stream.kept <= 100_000
    assert stream.entry_at(stream.run, 5) is None
    assert len(frames_behind(stream, stream.entry_at(stream.run, 15))) == 6


def test_range_that_nobody_reads_is_given_back(stream, files, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "UNREAD_OCTETS", MIB)
    file, other = (files.create(tmp_path / name, MIB) for name in ("msgs", "other"))
    files.write(file, 0, bytes(MIB))
    stream.close_frame()
    assert file.is_retained

    files.write(other, 0, bytes(MIB))

    assert not file.is_retained and other.is_retained and stream.unread <= MIB
    stream.close()
    assert not other.is_retained and stream.unread == stream.kept == 0


def test_without_followers_nothing_is_kept_after_a_while(stream, files, tmp_path, monkeypatch):
    files.make_folder(tmp_path / "one")
    place = stream.end()
    monkeypatch.setattr(module, "ALONE_S", 0)
    stream.detach()
    assert stream.entry_at(stream.run, 1) is place

    wait_until(lambda: place.is_dropped, sleep=gevent.sleep)
    files.make_folder(tmp_path / "two")

    assert stream.kept == 0 and stream.position == 2
    assert stream.entry_at(stream.run, 1) is None
    stream.attach()
    assert stream.entry_at(stream.run, 2) is not None


def test_follower_that_comes_back_soon_finds_the_frames(stream, files, tmp_path):
    stream.detach()
    files.make_folder(tmp_path / "meanwhile")
    stream.attach()

    assert len(frames_behind(stream, stream.entry_at(stream.run, 0))) == 1


def test_storage_hears_of_no_fault_and_followers_begin_anew(stream, files, tmp_path, monkeypatch, caplog):
    file = files.create(tmp_path / "msgs", MIB)
    place = stream.end()
    woken = []
    stream.wakes.add(lambda: woken.append(1))
    monkeypatch.setattr(type(file), "read_into", lambda *_: 1 / 0)

    files.appended(file, 0, 10)
    files.overwritten(file, 0, 10)
    files.overwritten(file, 0, MIB)
    monkeypatch.undo()

    assert place.is_dropped and woken
    assert caplog.text.count("followers, which begin anew") == 1
    place = stream.entry_at(stream.run, stream.position)
    files.make_folder(tmp_path / "later")
    stream.close_frame()
    assert calls_of(*frames_behind(stream, place)) == [("folder_created", "later")]


def test_long_range_that_cannot_be_read_makes_followers_begin_anew(stream, files, tmp_path, monkeypatch):
    file = files.create(tmp_path / "msgs", MIB)
    place = stream.end()
    files.write(file, 0, bytes(MIB))
    monkeypatch.setattr(type(file), "read_into", lambda *_: 5)

    assert stream.octets_of(place.next) is None

    assert place.is_dropped and not file.is_retained and stream.unread == 0


def test_change_that_cannot_be_told_makes_every_link_begin_anew(stream, files, tmp_path):
    places = []
    for name in ("one", "two"):
        files.make_folder(tmp_path / name)
        places.append(stream.end())
    woken = []
    stream.wakes.add(lambda: woken.append(1))

    stream.diverged()

    assert all(place.is_dropped for place in places) and woken
    assert stream.position == 3
    assert [stream.entry_at(stream.run, position) for position in (1, 2)] == [None, None]
    files.make_folder(tmp_path / "later")
    assert len(frames_behind(stream, stream.entry_at(stream.run, 3))) == 1


def test_follower_that_was_away_during_a_change_that_cannot_be_told_finds_no_place(tmp_path):
    stream = EventStream(tmp_path)
    stream.diverged()
    stream.attach()

    assert stream.entry_at(stream.run, 0) is None
    stream.close()


def test_telling_never_switches(stream, files, tmp_path):
    with no_switch():
        file = files.create(tmp_path / "msgs", MIB)
        files.write(file, 0, bytes(MIB))
        stream.octets_of(stream.end())


def test_octets_count_all_events(stream, files, tmp_path):
    files.make_folder(tmp_path / "one")
    file = files.create(tmp_path / "msgs", MIB)
    files.write(file, 0, bytes(PIECE_OCTETS + 1))

    end = stream.end()

    payload = len(events.folder_created("one") + events.created(1, MIB, "msgs"))
    assert end.end == stream.octets == payload + 2 * events.WRITTEN_OVERHEAD + PIECE_OCTETS + 1


class Told:
    """A file of which 60 octets are told at a time."""

    @staticmethod
    def read_into(target, start, end):
        target[:end - start] = b"x" * (end - start)
        return end - start


def fill(stream, count):
    """Tell of many short changes, each in a frame of its own. Returns the entries."""
    entries = [stream.end()]
    for _ in range(count):
        stream.appended(1, Told, 0, 60)
        entries.append(stream.end())
    return entries


@pytest.mark.parametrize("kept_most", [module.KEPT_OCTETS, 300_000])
def test_every_kept_position_is_found(stream, kept_most):
    stream.kept_most = kept_most

    entries = fill(stream, 3000)

    assert entries[0].is_dropped == (kept_most == 300_000) and not entries[-500].is_dropped
    for entry in entries:
        assert stream.entry_at(stream.run, entry.position) is (None if entry.is_dropped else entry)


def test_place_is_found_without_a_walk_of_the_whole_chain(stream):
    entries = fill(stream, 3000)

    entries[1000].next = None  # such a walk ends here

    assert stream.entry_at(stream.run, 2000) is entries[2000]


def test_dropped_chain_is_freed_in_slices_and_dropped_at_once(stream, files, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FREE_S", 0)
    entries = fill(stream, 100)
    file = files.create(tmp_path / "msgs", MIB)
    files.write(file, 0, bytes(MIB))
    entries.append(stream.end())

    with no_switch():
        stream.diverged()

    assert all(entry.is_dropped for entry in entries)
    assert entries[50].next is not None and file.is_retained
    assert stream.kept == stream.unread == 0
    stream.diverged()  # which adds to what is being freed
    wait_until(lambda: entries[50].next is None and not file.is_retained, sleep=gevent.sleep)


def test_close_returns_when_all_is_freed(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FREE_S", 0)
    stream = EventStream(tmp_path)
    stream.attach()
    entries = fill(stream, 100)

    stream.close()

    assert all(entry.next is None for entry in entries)


def test_followers_of_the_former_run_find_their_place(tmp_path):
    """A copy at position 9, whose last frames begin behind 3; the second one of position 7 is a part of the
    next event.
    """
    stream = EventStream(tmp_path)
    kept = [frames.Frame(frames.EVENTS, 6, position, b"%d" % position) for position in (5, 7, 7, 9)]
    former = FormerRun(9, {}, 3, kept, True, {b"former": 9, b"earlier": 4})

    stream.succeed(former, 7)
    try:
        stream.folder_created(str(tmp_path / "f"))

        places = {position: stream.entry_at(b"former", position) for position in range(12)}
        assert [position for position, entry in places.items() if entry is not None] == [3, 5, 7, 9]
        for position, behind in ((3, [5, 7, 7, 9, 10]), (7, [7, 9, 10]), (9, [10])):
            assert [frame.position for frame in sent_behind(stream, places[position])] == behind
        assert stream.entry_at(b"earlier", 3) is places[3] and stream.entry_at(b"earlier", 5) is None
        assert stream.entry_at(b"another", 5) is None and stream.entry_at(stream.run, 9) is places[9]
        assert [frame.epoch for frame in sent_behind(stream, places[7])] == [6, 6, 7]
    finally:
        stream.close()
