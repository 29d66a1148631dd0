"""The leader's side over real sockets: a follower gets what the leader's files hold and what happens to them.
"""
import os
from random import Random

import gevent
import pytest
from gevent import socket

from gomq_py.cluster import follower_link, leader, sync_source
from gomq_py.cluster.leader import Leader
from gomq_py.cluster.login import LoginRefused
from gomq_py.cluster.stream import EventStream
from gomq_py.cluster.wire import frames, messages
from gomq_py.hub.turns import give_way
from gomq_py.storage.disk.files import Files
from tests.support.mirror import folder_content
from tests.support.plain_follower import PlainFollower
from tests.support.waiting import in_time, wait_until

SECRET = b"a secret of sixteen octets"
CLUSTER = b"c" * 16
MIB = 1 << 20


class World:
    """A data folder, the Files that change it, and a leader that tells of it."""

    def __init__(self, root, **options):
        self.root = os.fspath(root)
        self.stream = EventStream(self.root)
        self.files = Files((self.stream,))
        os.mkdir(self.root)
        self.leader = Leader(
            SECRET, CLUSTER, 3, self.stream, self.files.register, self.root, "127.0.0.1", 0, **options)
        self._followers = []

    def path(self, *names):
        return os.path.join(self.root, *names)

    def follower(self, **options):
        """Connect another one, once the leader has seen the end of those that were closed."""
        wait(lambda: len(self.leader.links) <= sum(one.socket.fileno() >= 0 for one in self._followers))
        follower = PlainFollower(self.leader.port, options.pop("secret", SECRET), **options)
        self._followers.append(follower)
        return follower

    def check(self, follower):
        """The follower has what the leader's folder holds."""
        follower.wait_for(self.stream.position)
        self.check_content(follower)

    def check_content(self, follower):
        assert follower.content() == folder_content(self.root)

    def close(self):
        for follower in self._followers:
            follower.close()
        self.leader.close()


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path / "leader")
    world.leader.open()
    yield world
    world.close()


def put(world, name, octets, size=None):
    file = world.files.create(world.path(name), len(octets) if size is None else size)
    world.files.write(file, 0, octets)
    return file


def put_short_ones(world, octets, name="short"):
    """Many writes that are told at once, and not read when they are sent."""
    file = world.files.create(world.path(name), octets)
    for at in range(0, octets, 1 << 15):
        world.files.write(file, at, os.urandom(1 << 15))
        give_way()
    world.stream.close_frame()


def wait(condition, **options):
    return wait_until(condition, sleep=gevent.sleep, **options)


def test_flush_that_no_change_follows_is_told_in_the_next_beat(world):
    put(world, "msgs", b"x")
    follower = world.follower()
    world.check(follower)

    world.files.register.flushed()

    wait(lambda: follower.flushed_count == 1)
    assert follower.position == world.stream.position


def test_new_follower_gets_what_is_there_and_then_what_happens(world):
    world.files.make_folder(world.path("queues"))
    file = put(world, "queues/msgs", b"before" * 1000, size=3 * MIB)
    follower = world.follower()
    world.check(follower)

    world.files.write(file, 2 * MIB, b"later")
    log = world.files.open_log(world.path("log"))
    world.files.append(log, b"record")
    world.files.rename(world.path("log"), world.path("queues", "renamed"), log)
    world.files.truncate(file, 5)

    world.check(follower)
    assert follower.is_sync
    assert follower.received_octets < 2 * 65536, "zeros are not sent"


def test_blocks_that_the_follower_has_are_not_sent(world):
    put(world, "msgs", os.urandom(3 * MIB))
    first = world.follower()
    world.check(first)
    first.close()
    with open(world.path("msgs"), "r+b") as file:
        file.seek(MIB + 5)
        file.write(b"changed")

    second = world.follower(copy=first.content())

    world.check(second)
    assert MIB < second.received_octets < 1.1 * MIB


def test_follower_whose_file_is_longer_or_shorter_gets_the_leaders(world):
    for name in ("longer", "shorter", "zeros", "same"):
        put(world, name, name.encode() * 300_000 if name != "zeros" else bytes(2 * MIB))
    copy = {
        "longer": b"longer" * 400_000, "shorter": b"shorter" * 200_000, "zeros": b"x" * 1000,
        "same": b"same" * 300_000, "not there any more": b"x",
    }

    world.check(world.follower(copy=copy))


def test_follower_that_comes_back_soon_needs_no_sync(world):
    first = world.follower()
    world.check(first)
    first.close()
    wait(lambda: not world.leader.followers)
    put(world, "msgs", b"meanwhile")

    second = world.follower(resume=first)

    assert not second.is_sync
    world.check(second)


def test_follower_that_comes_back_too_late_syncs(world):
    world.stream.kept_most = 1 << 20
    first = world.follower()
    world.check(first)
    first.close()
    wait(lambda: not world.leader.followers)
    put_short_ones(world, 2 * MIB)

    second = world.follower(resume=first)

    assert second.is_sync
    world.check(second)


def test_long_range_comes_in_pieces(world):
    follower = world.follower()
    world.check(follower)

    put(world, "msgs", os.urandom(3 * MIB))
    put(world, "other", b"behind")

    world.check(follower)


def test_follower_joins_while_files_change(world):
    """A writer changes, renames and removes files in every turn of the loop; slices are short."""
    def write():
        for number in range(300):
            file = put(world, f"msgs.{number}", os.urandom(1000), size=200_000)
            world.files.write(file, 100_000, os.urandom(80_000))
            if number % 3 == 0:
                world.files.rename(file.path, world.path(f"renamed.{number % 7}"), file)
            if number % 3 == 1:
                world.files.unlink(world.path(f"msgs.{number}"))
            if number % 10 == 0:
                world.files.make_folder(world.path(f"folder.{number}"))
            if number % 10 == 5:
                world.files.rename(world.path(f"folder.{number - 5}"), world.path(f"moved.{number - 5}"))
            give_way()
    for number in range(100):
        world.files.make_folder(world.path(f"old.{number}"))
        put(world, f"old.{number}/file", os.urandom(100_000))
    writer = gevent.spawn(write)
    wait(lambda: os.path.exists(world.path("msgs.50")) or os.path.exists(world.path("msgs.51")))

    followers = [world.follower(name=name) for name in ("one", "two")]

    writer.get()
    for follower in followers:
        world.check(follower)


def test_figures_show_what_a_follower_lacks(world):
    put(world, "msgs", os.urandom(MIB))
    follower = world.follower(name="behind")
    world.check(follower)
    wait(lambda: world.leader.followers[0].flushed == world.stream.position)
    figures, = world.leader.followers
    assert (figures.name, figures.state, figures.lag_octets, figures.lag_s) == ("behind", "streaming", 0, 0)
    assert figures.sync_done_octets == figures.sync_total_octets == MIB

    follower.is_reading = False
    put(world, "more", b"x" * 1000)

    wait(lambda: world.leader.followers[0].lag_octets > 1000 and world.leader.followers[0].lag_s > 0)
    follower.is_reading = True
    wait(lambda: world.leader.followers[0].lag_octets == 0)


def test_heartbeats_tell_the_position(world, monkeypatch):
    monkeypatch.setattr(follower_link, "BEAT_S", 0.01)
    put(world, "msgs", b"x")
    follower = world.follower()
    world.check(follower)

    wait(lambda: follower.heartbeats > 3)
    assert follower.leader_position == world.stream.position


def test_silent_follower_is_disconnected(world, monkeypatch, caplog):
    monkeypatch.setattr(follower_link, "SILENT_S", 0.05)
    follower = world.follower()
    world.check(follower)

    follower.acknowledges = False
    follower.wait_for_end()

    wait(lambda: not world.leader.followers)
    assert "was silent for" in caplog.text


def test_follower_that_is_too_far_behind_is_disconnected(world, caplog):
    world.stream.kept_most = 1 << 20
    follower = world.follower()
    world.check(follower)
    follower.is_reading = False

    put_short_ones(world, 40 * MIB)

    wait(lambda: not world.leader.followers)
    assert "too far behind" in caplog.text
    follower.is_reading = True


def test_wrong_secret_is_refused(world, caplog):
    with pytest.raises((LoginRefused, AssertionError)):
        world.follower(secret=b"another secret of many octets")

    wait(lambda: "another secret" in caplog.text)
    assert world.leader.followers == []


@pytest.mark.parametrize("octets", [
    b"GET / HTTP/1.1\r\n\r\n" * 3, frames.encode(frames.HELLO, bytes(900)),
    frames.encode(frames.ACK, bytes(16)), bytes(2000),
])
def test_stranger_is_disconnected(world, octets):
    connection = socket.create_connection(("127.0.0.1", world.leader.port))
    connection.sendall(octets)

    with connection:
        while connection.recv(4096):
            pass
    world.check(world.follower())


def test_login_must_be_done_in_time(world, monkeypatch, caplog):
    monkeypatch.setattr(leader, "LOGIN_S", 0.05)

    with socket.create_connection(("127.0.0.1", world.leader.port)) as connection:
        assert connection.recv(10) == b""

    assert "has not logged in within" in caplog.text


def strangers_of(world, *hosts):
    """Connections from these addresses that say nothing, in this order."""
    strangers = []
    for host in hosts:
        strangers.append(socket.create_connection(("127.0.0.1", world.leader.port), 5, (host, 0)))
        own = strangers[-1].getsockname()
        wait(lambda: any(own == other for other in peers(world)))  # noqa: B023
    return strangers


def peers(world):
    return [greenlet.args[1] for greenlet in world.leader._pending]


def test_oldest_stranger_gives_way_to_a_follower(world, monkeypatch):
    monkeypatch.setattr(leader, "PENDING_MOST", 3)
    first, *others = strangers_of(world, "127.0.0.1", "127.0.0.2", "127.0.0.3")

    world.check(world.follower())

    assert first.recv(10) == b""
    assert sorted(peers(world)) == sorted(stranger.getsockname() for stranger in others)
    for stranger in (first, *others):
        stranger.close()
    wait(lambda: not world.leader._pending)


def test_strangers_of_one_address_displace_each_other(world, monkeypatch):
    monkeypatch.setattr(leader, "PENDING_PER_ADDRESS", 2)
    other, first, *later = strangers_of(world, "127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.3")

    assert first.recv(10) == b""
    assert set(peers(world)) == {stranger.getsockname() for stranger in (other, *later)}
    for stranger in (other, first, *later):
        stranger.close()


@pytest.mark.parametrize("kind, payload, text", [
    (frames.EVENTS, b"\x08", "EVENTS is not expected"),
    (frames.ACK, messages.Ack(99, 0).encode(), "position 99"),
    (frames.ACK, b"short", "ACK has 5 bytes"),
    (frames.HASHES, bytes(5), "HASHES"),
])
def test_follower_that_breaks_the_protocol_is_disconnected(world, caplog, kind, payload, text):
    follower = world.follower()
    world.check(follower)

    follower.send(kind, payload)
    follower.wait_for_end()

    wait(lambda: text in caplog.text)
    world.check(world.follower())


@pytest.mark.parametrize("count, text", [(2, ""), (3, "3 checksums of a file of 2 blocks")])
def test_follower_with_more_checksums_than_blocks_is_disconnected(world, caplog, monkeypatch, count, text):
    put(world, "msgs", bytes(2 * MIB))
    monkeypatch.setattr(PlainFollower, "listed", lambda self, file_id, *_: self.send(
        frames.HASHES, messages.Hashes(file_id, (1,) * count).encode()))

    follower = world.follower()

    wait(lambda: text in caplog.text if text else follower.is_synced)


def test_compressed_frame_of_a_follower_disconnects(world, caplog):
    """A leader decompresses nothing: 4 KiB would be a MiB of checksums."""
    follower = world.follower()
    world.check(follower)
    squeezed = frames.encode(frames.HASHES, bytes(1000), follower.epoch, compress=True)
    assert len(squeezed) < 100

    follower.socket.sendall(squeezed)
    follower.wait_for_end()

    wait(lambda: "compressed frames are not expected" in caplog.text)


def test_damaged_frame_disconnects(world, caplog):
    follower = world.follower()
    world.check(follower)
    damaged = bytearray(frames.encode(frames.ACK, messages.Ack(0, 0).encode(), follower.epoch))
    damaged[-1] ^= 1

    follower.socket.sendall(damaged)
    follower.wait_for_end()

    wait(lambda: "wrong checksum" in caplog.text)


def test_random_octets_cost_a_follower_its_connection_at_most(world, caplog):
    """From followers that are logged in: frames whose payload is wrong, and damaged ones."""
    randomly = Random(39)
    put(world, "msgs", os.urandom(1000))
    for number in range(60):
        follower = world.follower(name=f"follower {number}")
        follower.acknowledges = False
        payload = randomly.randbytes(randomly.choice((0, 11, 12, 16, 1000)))
        octets = bytearray(frames.encode(randomly.randrange(1, 10), payload, follower.epoch))
        if randomly.random() < 0.5:
            octets[randomly.randrange(len(octets))] ^= 1 << randomly.randrange(8)
        follower.socket.sendall(octets)
        follower.socket.shutdown(socket.SHUT_WR)
        follower.wait_for_end()

    wait(lambda: not world.leader.followers)
    assert "fault" not in caplog.text
    world.check(world.follower())


def test_follower_of_another_epoch_is_disconnected(world, caplog):
    follower = world.follower()
    world.check(follower)

    follower.epoch = 2
    follower.wait_for_end()

    wait(lambda: "it is in epoch 2, not in 3" in caplog.text)


def test_same_node_replaces_its_silent_connection(world, monkeypatch):
    first = world.follower()
    world.check(first)
    first.acknowledges = False
    monkeypatch.setattr(follower_link, "ALIVE_S", 0)

    second = world.follower()

    first.wait_for_end()
    assert first.refused == "the same node has connected again"
    monkeypatch.undo()
    world.check(second)
    wait(lambda: len(world.leader.followers) == 1)


def test_id_of_a_node_that_is_there_is_refused(world, caplog):
    first = world.follower()
    world.check(first)

    for _ in range(3):
        with pytest.raises(LoginRefused, match="another node has this id: a copied data folder"):
            world.follower()

    put(world, "msgs", b"goes on")
    world.check(first)
    assert caplog.text.count("another node has this id") == 1


def test_follower_that_needs_a_sync_is_refused_where_the_leader_refuses_syncs(world, caplog):
    first, second = world.follower(name="first"), world.follower(name="second")
    for follower in (first, second):
        world.check(follower)
    second.close()
    wait(lambda: len(world.leader.followers) == 1)

    world.leader.why_no_sync = lambda: "this node has met damage"

    for _ in range(3):
        with pytest.raises(LoginRefused, match="this node has met damage"):
            world.follower(name="third")
    put(world, "msgs", b"goes on")
    world.check(first)
    world.check(world.follower(name="second", resume=second))
    assert caplog.text.count("this node has met damage") == 1


def test_follower_of_a_former_leader_goes_on_unless_the_boot_has_met_damage(world):
    """It would repeat in its own, sound, folder what the boot did to damaged messages."""
    one = world.follower()
    world.check(one)
    one.close()
    wait(lambda: not world.leader.followers)
    world.stream._runs = {b"later run".ljust(16): float("inf"), one.run: one.position}

    world.leader.why_no_sync = lambda: "this node has met damage"
    with pytest.raises(LoginRefused, match="this node has met damage"):
        world.follower(resume=one)

    world.leader.why_no_sync = str
    put(world, "msgs", b"goes on")
    again = world.follower(resume=one)
    world.check(again)
    assert not again.is_sync and again.run == world.stream.run


def test_leader_whose_file_is_damaged_ends_the_sync_and_refuses_the_next(world, monkeypatch):
    monkeypatch.setattr(sync_source, "lost_in", lambda path: "bytes 128 to 200 do not check")
    put(world, "msgs.1", b"damaged")
    heard = []

    def found_damage(what):
        heard.append(what)
        world.leader.why_no_sync = lambda: "this node has met damage"
        return True

    world.leader._found_damage = found_damage

    follower = world.follower(copy={"msgs.1": b"sound.."})
    follower.wait_for_end()

    assert heard == [follower.refused] and "msgs.1 is damaged (bytes 128 to 200" in follower.refused
    assert not follower.is_synced
    with pytest.raises(LoginRefused, match="this node has met damage"):
        world.follower()


def test_follower_that_does_not_take_its_sync_loses_its_turn(world, monkeypatch, caplog):
    monkeypatch.setattr(follower_link, "STUCK_S", 0.05)
    monkeypatch.setattr(follower_link, "ROOM_OCTETS", MIB)
    put(world, "msgs", os.urandom(40 * MIB))
    stuck = world.follower(name="stuck")
    stuck.listed_all = lambda: setattr(stuck, "is_reading", False)
    wait(lambda: not stuck.is_reading)

    second = world.follower(name="second")

    wait(lambda: "it has taken nothing of its sync for" in caplog.text)
    monkeypatch.setattr(follower_link, "STUCK_S", 30)
    world.check(second)
    stuck.is_reading = True


def test_follower_is_told_why_its_link_ends(world):
    follower = world.follower()
    world.check(follower)

    follower.send(frames.EVENTS, b"\x08")
    follower.wait_for_end()

    assert follower.refused == "a frame EVENTS is not expected"


def test_follower_is_told_of_a_fault_without_its_words(world, monkeypatch):
    follower = world.follower()
    world.check(follower)

    monkeypatch.setattr(follower_link.messages.Ack, "decode", None)
    follower.wait_for_end()

    assert follower.refused == "a fault of the leader"


def test_fault_costs_the_follower_its_connection_alone(world, monkeypatch, caplog):
    follower = world.follower()
    world.check(follower)

    monkeypatch.setattr(follower_link.messages.Ack, "decode", None)
    follower.wait_for_end()
    monkeypatch.undo()

    put(world, "msgs", b"goes on")
    world.check(world.follower())
    assert "disconnected by a fault" in caplog.text


def test_close_sends_what_is_told(world):
    follower = world.follower()
    world.check(follower)
    put(world, "msgs", os.urandom(3 * MIB))
    put(world, "last", b"of this turn")

    world.leader.close()

    follower.wait_for_end()
    world.check_content(follower)
    assert follower.refused == "the leader closes"


def test_close_does_not_wait_for_a_follower_that_takes_nothing(world, monkeypatch):
    monkeypatch.setattr(leader, "CLOSING_S", 0.05)
    follower = world.follower()
    world.check(follower)
    follower.is_reading = False
    put(world, "msgs", os.urandom(40 * MIB))

    world.leader.close()

    assert world.leader.followers == []
    follower.is_reading = True


def test_close_ends_everything(world):
    follower = world.follower()
    world.check(follower)

    world.leader.close()

    follower.wait_for_end()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", world.leader.port or 1))


def test_follower_that_is_to_lead_is_let_in_no_more(world):
    """It would hear this leader again, and let others be elected first."""
    follower = world.follower()
    world.check(follower)
    (link,) = world.leader.links

    world.leader.hang_up(link.node)
    follower.wait_for_end()
    follower.close()

    with pytest.raises(LoginRefused, match="this node is to lead"):
        world.follower()


def late_follower(world):
    """A follower that acknowledges no more, behind a change; its link."""
    follower = world.follower()
    world.check(follower)
    (link,) = world.leader.links
    follower.acknowledges = False
    put(world, "late", b"late")
    return follower, link


def test_drain_ends_when_nodes_have_everything(world):
    follower, link = late_follower(world)
    draining = gevent.spawn(world.leader.drain, [link.node], 60)
    follower.wait_for(world.stream.position)
    assert not draining.ready()

    follower.acknowledges = True

    assert draining.get() == frozenset()


def test_drain_does_not_wait_for_what_is_told_meanwhile(world):
    """Consumers go on to acknowledge, and so some of it is always under way."""
    _, link = late_follower(world)
    position = world.stream.position
    draining = gevent.spawn(world.leader.drain, [link.node], 60)
    give_way()
    put(world, "later", b"later")

    link._acknowledged(messages.Ack(position, position))

    with gevent.Timeout(in_time(20)):
        assert draining.get() == frozenset()


def test_drain_ends_with_its_leader(world):
    """Which is deposed meanwhile."""
    follower = world.follower()
    world.check(follower)
    draining = gevent.spawn(world.leader.drain, ["gone"], 60)
    give_way()

    world.leader.close()

    with gevent.Timeout(in_time(20)):
        assert draining.get() == {"gone"}


def test_drain_names_the_nodes_that_lack_something(world):
    _, link = late_follower(world)

    assert world.leader.drain([link.node, "gone"], 0.01) == {link.node, "gone"}
