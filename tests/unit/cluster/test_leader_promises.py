"""The leader's side of promises: what followers have flushed, in which epoch, and how far they are behind."""
import os

import gevent
import pytest

from gomq_py.cluster import leader, publisher_holds
from gomq_py.cluster.acknowledger import Acknowledger
from gomq_py.cluster.core.in_sync import Progress
from gomq_py.cluster.core.promises import Promises
from gomq_py.cluster.publisher_holds import FOLLOWER_THROUGHPUT, IN_SYNC_FOLLOWERS, PublisherHolds
from gomq_py.cluster.wire import frames, messages
from tests.unit.cluster.test_leader import World, put, put_short_ones, wait

COPY = b"copy".ljust(16, b"\0").hex()
MIB = 1 << 20


class PromisingWorld(World):
    """A World whose promises wait for a follower."""

    def __init__(self, root, counts_received=False):
        self.promises = Promises()
        super().__init__(root, acknowledger=Acknowledger(
            self.promises, lambda *arguments: self.stream.want(*arguments), counts_received))
        self.promises.require([COPY])
        self.promises.hold(False)
        self.kept = []

    def promise(self):
        """Ask for what was told until now."""
        position = self.stream.position
        self.leader._acknowledger.when_safe(position, lambda error: self.kept.append(error or position))
        return position


@pytest.fixture
def world(tmp_path):
    world = PromisingWorld(tmp_path / "leader")
    world.leader.open()
    yield world
    world.close()


class Alarms:
    def __init__(self):
        self.raised = {}

    def set(self, source, resource, detail=""):
        self.raised[source] = resource, detail

    def clear(self, source, detail=""):
        self.raised.pop(source, None)


def silent(world, **options):
    """A follower that acknowledges nothing by itself."""
    follower = world.follower(**options)
    follower.acknowledges = False
    return follower


def acknowledge(follower, received, flushed):
    follower.send(frames.ACK, messages.Ack(received, flushed).encode())


def test_promise_waits_for_what_the_follower_has_flushed(world):
    follower = silent(world)
    put(world, "msgs", b"before")
    follower.wait_for(world.stream.position)
    acknowledge(follower, follower.position, follower.position)
    wait(lambda: COPY in world.leader.progress and world.leader.progress[COPY].is_synced)

    put(world, "later", b"later")
    position = world.promise()
    follower.wait_for(position)
    acknowledge(follower, position, position - 1)
    wait(lambda: world.leader.links[0].acked.received == position)
    assert not world.kept

    acknowledge(follower, position, position)
    wait(lambda: world.kept)

    assert world.kept == [position] and world.promises.promised == position
    assert world.leader.progress == {COPY: Progress(position, True, True)}


def test_follower_that_begins_to_stream_is_told_once(world):
    """The in-sync set changes at once then, because promises wait for it."""
    heard = []
    world.leader.on_streaming = lambda: heard.append(world.leader.progress[COPY].is_streaming)
    follower = silent(world)
    put(world, "msgs", b"before")
    follower.wait_for(world.stream.position)
    assert not heard

    for _ in range(2):
        acknowledge(follower, follower.position, follower.position)
        wait(lambda: world.leader.links[0].acked.flushed == follower.position)

    assert heard == [True]


def test_acknowledgement_before_the_sync_is_whole_counts_for_nothing(world, monkeypatch):
    """Such as that of a follower in the middle of it, whose folder has another state."""
    put(world, "msgs", os.urandom(MIB))
    go_on = gevent.event.Event()
    monkeypatch.setattr(leader.FollowerLink, "_wait_for_room", lambda link: go_on.wait())
    follower = silent(world)
    position = world.promise()

    acknowledge(follower, position, position)
    wait(lambda: world.leader.progress.get(COPY) == Progress(position, False, True))
    assert not world.kept and world.promises.promised == 0

    go_on.set()
    follower.wait_for(position)
    acknowledge(follower, position, position)

    wait(lambda: world.kept == [position])


def test_where_the_leader_flushes_nothing_what_is_received_counts(tmp_path):
    world = PromisingWorld(tmp_path / "leader", counts_received=True)
    world.leader.open()
    follower = silent(world)
    put(world, "msgs", b"x")
    follower.wait_for(world.stream.position)
    acknowledge(follower, follower.position, follower.position)
    wait(lambda: world.leader.links and world.leader.links[0].is_streaming)
    put(world, "more", b"x")
    position = world.promise()
    follower.wait_for(position)

    acknowledge(follower, position, 2)
    acknowledge(follower, position, follower.position - 2)

    wait(lambda: world.kept == [position])
    world.close()


def test_acknowledgements_that_advance_are_read_without_a_rest(world, monkeypatch):
    """A publisher that waits for each confirm sends no more than a follower acknowledges."""
    follower = silent(world)
    for number in range(50):
        put(world, str(number), b"x")
    follower.wait_for(world.stream.position)
    monkeypatch.setattr("gomq_py.cluster.follower_link.ACK_REST_S", 3600.0)

    for position in range(1, world.stream.position + 1):
        acknowledge(follower, position, position)

    wait(lambda: world.leader.links[0].acked.flushed == world.stream.position)


def test_followers_go_on_in_a_later_epoch_without_a_sync(world):
    put(world, "msgs", b"before")
    first = world.follower()
    world.check(first)
    wait(lambda: world.leader.progress[COPY].is_synced)
    put(world, "of epoch 3", b"not sent yet")

    world.leader.lead_on(4)
    assert world.leader.progress == {}
    first.wait_for_end()
    first.close()
    put(world, "of epoch 4", b"later")
    second = silent(world, resume=first)

    assert not second.is_sync and (first.epoch, second.epoch) == (3, 4)
    assert first.refused == "epoch 4 has begun: log in again"
    second.wait_for(world.stream.position)
    assert second.content()["of epoch 4"] == b"later"
    assert world.leader.progress == {COPY: Progress(0, False, True)}, "its folder may be of epoch 3 yet"
    acknowledge(second, second.position, second.position)
    wait(lambda: world.leader.progress == {COPY: Progress(second.position, True, True)})


def test_promises_of_the_epoch_before_are_kept_in_the_later_one(world):
    first = world.follower()
    put(world, "msgs", b"x")
    world.check(first)
    first.acknowledges = False
    put(world, "more", b"x")
    position = world.promise()

    world.leader.lead_on(4)
    first.wait_for_end()
    first.close()
    world.follower(resume=first)

    wait(lambda: world.kept == [position])


def test_acknowledgement_of_a_lower_epoch_ends_the_link(world):
    follower = silent(world)
    put(world, "msgs", b"x")
    follower.wait_for(world.stream.position)

    follower.epoch = 2
    acknowledge(follower, follower.position, follower.position)
    follower._greenlet.kill()

    wait(lambda: not world.leader.links)
    assert world.promises.promised == 0


@pytest.mark.parametrize("place", ["checks", "runs"])
def test_login_during_the_beginning_of_an_epoch_is_for_nothing(world, place, monkeypatch):
    def begins(*arguments):
        if world.leader.epoch == 3:
            world.leader.lead_on(4)

    if place == "checks":
        world.leader.why_no_sync = lambda: begins() or ""
    else:
        monkeypatch.setattr(leader.Leader, "_replace_older", begins)

    follower = world.follower()
    follower.wait_for_end()

    assert follower.refused == "another epoch has begun meanwhile: log in again"
    assert not world.leader.progress


def test_follower_that_leaves_is_named_once(world, caplog):
    follower = world.follower()
    follower.send(frames.REFUSED, messages.Refused("no space left").encode())
    follower.wait_for_end()
    wait(lambda: not world.leader.links)

    assert world.leader.take_leavers() == {COPY}
    assert world.leader.take_leavers() == set()
    assert "it leaves: 'no space left'" in caplog.text


def test_behind_is_what_the_slowest_lacks_connected_or_not(world):
    assert world.leader.behind([]) == (0, 0)
    follower = silent(world)
    put(world, "msgs", b"x")
    follower.wait_for(world.stream.position)
    acknowledge(follower, follower.position, follower.position)
    wait(lambda: world.leader.behind([COPY]) == (0, 0))

    put_short_ones(world, MIB)
    octets, made = world.leader.behind([COPY])
    assert MIB < octets < made < 1.1 * MIB
    follower.close()
    wait(lambda: not world.leader.links)

    assert world.leader.behind([COPY]) == (octets, made)
    assert world.leader.behind(["another"]) == (world.stream.octets, world.stream.made)


def test_publishers_are_held_while_a_follower_is_far_behind(world):
    alarms = Alarms()
    holds = PublisherHolds(alarms, world.leader, world.stream, lambda: [COPY], MIB)
    follower = silent(world)
    put(world, "msgs", b"x")
    follower.wait_for(world.stream.position)
    acknowledge(follower, follower.position, follower.position)
    put_short_ones(world, MIB // 2)
    assert not alarms.raised

    put(world, "long", os.urandom(MIB))
    wait(lambda: alarms.raised)
    assert alarms.raised == {
        FOLLOWER_THROUGHPUT: (FOLLOWER_THROUGHPUT, "a follower in sync is 1 MB of changes behind")}

    follower.wait_for(world.stream.position)
    acknowledge(follower, follower.position, follower.position)
    wait(lambda: not alarms.raised)
    put_short_ones(world, 2 * MIB, "more")
    wait(lambda: alarms.raised)
    holds.close()
    assert not alarms.raised


def test_publishers_are_held_before_frames_are_dropped(world):
    """Short frames take more memory than what is in them."""
    world.stream.kept_most = 100_000
    alarms = Alarms()
    holds = PublisherHolds(alarms, world.leader, world.stream, lambda: [COPY], 1 << 40)
    follower = silent(world)
    put(world, "msgs", b"x")
    follower.wait_for(world.stream.position)
    acknowledge(follower, follower.position, follower.position)
    place = world.leader.links[0]._at

    while not alarms.raised:
        put(world, str(world.stream.position), b"x")
        world.stream.close_frame()
        gevent.sleep(0)

    assert world.leader.links and not place.is_dropped
    holds.close()


def test_publishers_go_on_when_the_slow_follower_is_not_waited_for_any_more(world, monkeypatch):
    monkeypatch.setattr(publisher_holds, "LOOK_S", 0.001)
    alarms, required = Alarms(), [COPY]
    holds = PublisherHolds(alarms, world.leader, world.stream, lambda: required, MIB)
    silent(world)
    wait(lambda: world.leader.links)
    put_short_ones(world, 2 * MIB)
    wait(lambda: alarms.raised)

    required.clear()

    wait(lambda: not alarms.raised)
    holds.close()


def test_publishers_are_held_while_too_few_nodes_are_in_sync(world):
    alarms = Alarms()
    holds = PublisherHolds(alarms, world.leader, world.stream, lambda: [], MIB)

    holds.count(1, 2)
    assert alarms.raised == {
        IN_SYNC_FOLLOWERS: (IN_SYNC_FOLLOWERS, "1 of the 2 nodes that min_isr asks for are in sync")}

    holds.count(2, 2)
    assert not alarms.raised
    holds.close()
