"""Wills: when they are published, when they are not, and what outlives the broker."""
from types import SimpleNamespace

import pytest

from gomq_py.mqtt.model import wills as module
from gomq_py.mqtt.model.kinds import all_kinds
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.model.sessions import NEVER
from gomq_py.mqtt.model.wills import Will
from gomq_py.storage.disk.data_dir import FOLLOWED, KILLED, POWER_LOST
from tests.support.hand_timers import NodeClock
from tests.support.mqtt_outbound import mqtt_message
from tests.support.node import Node

GRACE_S = 10


class Connection:
    """Wants its will unless it has left."""

    wants_will = True

    def taken_over(self):
        pass

    def session_ended(self, reason):
        pass


class World:
    """A node whose time is the test's; ``published`` are the topics of wills in order, ``answers`` what the
    door says of the next ones, True without.
    """

    def __init__(self, folder):
        self.folder = folder
        self.published = []
        self.users = []
        self.answers = []
        self.now_ms = 1_700_000_000_000
        self.node = None
        self.boot()

    def boot(self, has_door=True):
        kinds = all_kinds()
        self.clock = NodeClock(kinds, self.now_ms)
        self.node = Node(self.folder, kinds=kinds)
        self.sessions = self.node.vhost.extras[EXTRA]
        if has_door:
            self.open_door()

    def open_door(self):
        self.sessions.wills.start(self.publish, GRACE_S * 1000)

    def restart(self, end="kill", **options):
        self.now_ms = self.clock.now_ms
        getattr(self.node, end)()
        self.boot(**options)

    def publish(self, will, user, begin):
        is_done = self.answers.pop(0) if self.answers else True
        if isinstance(is_done, Exception):
            raise is_done
        if is_done:
            self.published.append(will.topic)
            self.users.append(user)
        return is_done

    def connect(self, client_id="c", will="t", delay_s=0, expiry_s=NEVER, clean_start=False, **fields):
        connection = Connection()
        session, *_ = self.sessions.connect(connection, client_id, "guest", clean_start, expiry_s, 5)
        kept = None if will is None else Will(client_id, "guest", will, b"gone", delay_s=delay_s, **fields)
        assert self.sessions.wills.begin(client_id, "a user", kept)
        self.settle()
        return session, connection

    def lose(self, session, connection, wants_will=True):
        connection.wants_will = wants_will
        self.sessions.disconnect(session, connection)

    def settle(self):
        self.sessions.wills.kept.write_out()
        self.node.committer.wait()

    def pass_time(self, seconds):
        self.clock.advance(seconds * 1000)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path / "data")
    yield world
    world.node.stop()


def test_will_of_a_lost_connection_is_published_at_once_and_once(world):
    world.lose(*world.connect())

    assert world.published == ["t"] and world.users == ["a user"]
    world.settle()
    assert world.sessions.wills.count == 0
    world.restart()
    world.pass_time(100)
    assert world.published == ["t"]


def test_will_is_forgotten_where_the_client_says_so(world):
    world.lose(*world.connect(), wants_will=False)

    assert world.published == [] and world.sessions.wills.count == 0


def test_client_without_a_will_leaves_none_of_an_earlier_connection(world):
    session, connection = world.connect(delay_s=10)
    world.lose(session, connection)
    world.lose(*world.connect(will=None))
    world.pass_time(100)

    assert world.published == []


@pytest.mark.parametrize("delay_s", [0, 10])
def test_fault_in_publishing_a_will_costs_that_will_alone(world, delay_s):
    ends = [world.connect(client_id, client_id, delay_s=delay_s, expiry_s=60) for client_id in "ab"]
    world.answers = [ValueError("a fault")]
    for end in ends:
        world.lose(*end)

    world.pass_time(delay_s)

    world.settle()
    assert world.published == ["b"] and world.sessions.wills.count == 0
    assert ends[0][0].connection is None


def test_will_waits_for_its_delay(world):
    world.lose(*world.connect(delay_s=10))

    world.pass_time(9)
    assert world.published == []
    world.pass_time(1)
    assert world.published == ["t"]


def test_client_that_is_back_before_the_delay_is_over_has_lost_nothing(world):
    """[MQTT-3.1.3-9]"""
    world.lose(*world.connect(delay_s=10))
    world.pass_time(9)

    world.connect(will="second", delay_s=10)
    world.pass_time(100)

    assert world.published == []


def test_will_is_published_when_the_session_ends_before_the_delay_is_over(world):
    session, connection = world.connect(delay_s=10)
    world.lose(session, connection)

    world.sessions.end(session)

    assert world.published == ["t"]
    world.pass_time(100)
    assert world.published == ["t"]


@pytest.mark.parametrize("expiry_s", [0, NEVER])
def test_session_that_ends_with_its_connection_has_no_delay(world, expiry_s):
    world.lose(*world.connect(delay_s=10, expiry_s=expiry_s))

    assert world.published == ([] if expiry_s else ["t"])


@pytest.mark.parametrize("delay_s, clean_start, published", [
    (0, False, ["t"]), (0, True, ["t"]), (10, False, []), (10, True, ["t"]),
])
def test_take_over(world, delay_s, clean_start, published):
    """§3.1.4: the earlier connection is lost; its session ends where the new one wants a clean start."""
    world.connect(delay_s=delay_s)

    world.connect(will="second", delay_s=delay_s, clean_start=clean_start)

    assert world.published == published
    world.pass_time(100)
    assert world.published == published


def test_session_that_is_deleted_under_its_connection_leaves_its_will(world):
    session, _ = world.connect(delay_s=10)

    world.sessions.end(session)

    assert world.published == ["t"]


def test_wills_of_clients_that_were_connected_are_published_after_a_kill(world):
    world.connect("a", "of a")
    world.connect("b", "of b", delay_s=GRACE_S + 5, expiry_s=0)
    world.connect("c", "of c")
    world.restart()
    world.pass_time(GRACE_S - 1)
    assert world.published == []

    world.connect("c", None)
    world.pass_time(1)
    assert world.published == ["of a"] and world.users == [None]
    world.pass_time(5)

    assert world.published == ["of a", "of b"]


def test_wills_of_a_user_who_was_deleted_are_gone(world):
    """Of this run and of an earlier one: another may have the name after a restart."""
    user, other = SimpleNamespace(name="guest"), SimpleNamespace(name="guest")
    world.connect("earlier", "of earlier", delay_s=GRACE_S)
    world.connect("token", "of token", delay_s=GRACE_S, of_token=True)
    world.restart()
    for client_id, who in (("now", user), ("new", other)):
        world.connect(client_id, None)
        will = Will(client_id, "guest", f"of {client_id}", b"gone", delay_s=GRACE_S)
        assert world.sessions.wills.begin(client_id, who, will)

    world.sessions.wills.user_deleted(user)
    world.settle()
    world.restart()
    world.pass_time(2 * GRACE_S)

    assert sorted(world.published) == ["of new", "of token"]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_delay_goes_on_over_a_restart(world, end):
    world.lose(*world.connect(delay_s=GRACE_S + 20))
    world.settle()
    world.pass_time(10)

    world.restart(end)

    world.pass_time(GRACE_S + 9)
    assert world.published == []
    world.pass_time(1)
    assert world.published == ["t"]


@pytest.mark.parametrize("last_end, published", [(KILLED, ["t"]), (POWER_LOST, ["t", "t"])])
def test_will_that_was_published_is_not_published_again_unless_the_power_was_cut(
    world, last_end, published, monkeypatch
):
    """Its record says so until what was published is safe."""
    session, connection = world.connect()
    with monkeypatch.context() as patch:
        patch.setattr(type(world.node.vhost), "when_safe", lambda *_, **__: None)
        world.lose(session, connection)
        world.sessions.wills.kept.write_out()
    monkeypatch.setattr(
        "gomq_py.storage.disk.data_dir._last_end", lambda *_: last_end)

    world.restart()
    world.pass_time(GRACE_S)

    assert world.published == published


class Cut(BaseException):
    """The broker ends here."""


@pytest.mark.parametrize("last_end", [KILLED, FOLLOWED, POWER_LOST])
def test_will_whose_publication_was_cut_goes_to_those_that_lack_it(world, last_end, monkeypatch):
    """Also where those that have it are rid of it by the next boot. On 7675f4c1 it went to all again."""
    for name in ("has it", "lacks it"):
        world.node.vhost.declare_queue(name, durable=True)
    session, connection = world.connect()

    def cut(will, user, begin):
        message = mqtt_message("t", b"gone", 1)
        has_it, _ = begin([world.node.vhost.queue(name) for name in ("has it", "lacks it")], message)
        assert has_it.publish(message) == 1
        has_it.write_out()
        world.sessions.wills.kept.write_out()
        raise Cut

    world.sessions.wills._publish = cut
    with pytest.raises(Cut):
        world.lose(session, connection)
    monkeypatch.setattr("gomq_py.storage.disk.data_dir._last_end", lambda *_: last_end)
    world.restart()
    while world.node.take("has it") is not None:
        pass
    world.settle()
    world.restart()
    went_to = []
    world.sessions.wills._publish = lambda will, user, begin: went_to.extend(
        begin(list(world.node.vhost.queues.values()), mqtt_message("t", b"gone", 1))) or True
    world.pass_time(GRACE_S)

    assert [queue.name for queue in went_to if queue.name in ("has it", "lacks it")] == ["lacks it"]


def test_will_that_finds_no_room_is_tried_again(world):
    world.answers = [False, False]
    world.lose(*world.connect())
    assert world.published == []

    world.pass_time(1)
    assert world.published == []
    world.pass_time(2)

    assert world.published == ["t"]


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_will_that_finds_no_room_is_not_published_once_its_client_is_back(world, is_taken_over):
    """It would say that a client is gone that is there."""
    world.answers = [False]
    end = world.connect()
    if not is_taken_over:
        world.lose(*end)

    world.connect(will="second")
    world.pass_time(100)

    assert world.answers == world.published == []


def test_pauses_between_attempts_become_longer(world):
    """An exchange may never be there."""
    world.answers = [False] * 100
    world.lose(*world.connect())

    left = []
    for _ in range(300):
        world.pass_time(1)
        left.append(len(world.answers))

    assert [100 - left[at] for at in (0, 2, 6, 14, 30, 62)] == [2, 3, 4, 5, 6, 7] and left[-1] == 90
    world.answers = []
    world.pass_time(60)
    assert world.published == ["t"]


def test_will_that_is_tried_again_is_written_once(world, monkeypatch):
    world.answers = [False] * 5
    session, connection = world.connect()
    written, put = [], world.sessions.wills.kept.put
    monkeypatch.setattr(world.sessions.wills.kept, "put", lambda *told: written.append(told) or put(*told))

    world.lose(session, connection)
    for _ in range(20):
        world.pass_time(1)

    assert len(written) == 1


@pytest.mark.parametrize("expiry_s", [0, NEVER])
def test_will_that_is_published_and_cannot_be_noted_is_published_once(world, monkeypatch, expiry_s):
    """A full disk takes neither that it was published nor what deletes it: it goes when the message is safe.
    """
    session, connection = world.connect(expiry_s=expiry_s)
    kept = world.sessions.wills.kept
    with monkeypatch.context() as full:
        full.setattr(kept, "_put", lambda key, message, is_tombstone: 0)
        world.lose(session, connection)
        world.sessions.wills.session_ended("c")
        world.node.wait(lambda: world.sessions.wills.count == 0)
    world.restart()
    world.pass_time(GRACE_S)

    assert world.published == ["t"]


def test_client_that_is_back_before_its_will_is_safe_keeps_its_new_one(world, monkeypatch):
    session, connection = world.connect()
    told = []
    with monkeypatch.context() as patch:
        patch.setattr(type(world.node.vhost), "when_safe", lambda _, done, **__: told.append(done))
        patch.setattr(world.sessions.wills.kept, "_put", lambda key, message, is_tombstone: 0)
        world.lose(session, connection)
    session, connection = world.connect(will="new")

    told[-1](None)
    world.lose(session, connection)

    assert world.published == ["t", "new"]


def test_nothing_waits_for_a_vhost_that_is_gone(world):
    """Its timers would keep it in memory."""
    vhost = world.node.broker.create_vhost("v")
    world.sessions = vhost.extras[EXTRA]
    world.open_door()
    world.lose(*world.connect(delay_s=1000))
    message = mqtt_message("t", b"x", 1, True, expires_in_ms=10**9, now_ms=world.now_ms)
    assert world.sessions.retained.publish(message) == 1
    world.node.wait(lambda: world.sessions.retained._expiries._timer is not None)
    assert world.sessions.wills._due._timer is not None

    world.node.broker.delete_vhost("v")
    world.node.wait(lambda: world.sessions.wills.kept.closed)

    assert world.sessions.wills._due._timer is world.sessions.retained._expiries._timer is None


def test_wills_wait_for_a_door(world):
    world.lose(*world.connect(delay_s=1))
    world.settle()
    world.restart(has_door=False)
    world.pass_time(100)
    assert world.published == []

    world.open_door()
    world.pass_time(GRACE_S - 1)
    assert world.published == []
    world.pass_time(1)

    assert world.published == ["t"]


def test_many_that_are_due_together_are_all_published(world, monkeypatch):
    monkeypatch.setattr(module, "AT_ONCE", 3)
    for number in range(10):
        world.lose(*world.connect(f"c{number}", f"{number}", delay_s=5))

    for _ in range(4):
        world.pass_time(5)

    assert sorted(world.published) == [f"{number}" for number in range(10)]


@pytest.mark.parametrize("will", [
    Will("é" * 300, "ü", "t/é", bytes(65535), 2, True, 0xFFFFFFFF, b"\x26\0\1a\0\1b", 0xFFFFFFFF),
    Will("", "", "t", b""),
])
def test_all_of_a_will_is_kept(world, will):
    world.sessions.wills.begin(will.client_id, "user", will)
    world.settle()
    world.restart()

    assert world.sessions.wills._get(will.client_id) == will


def test_record_that_is_no_will_keeps_nothing_from_booting(world, caplog):
    kept = world.sessions.wills.kept
    message = module._message_of(Will("c", "u", "t", b""))
    message.assign(b"", b"c", b"\0\0", b"", 1, persistent=True)
    assert kept.put("c", message) == 1
    message = module._tombstone("d")
    message.set_kind(1, 0)
    assert kept.put("d", message) == 1
    world.settle()

    world.restart()

    assert world.sessions.wills.count == 0 and "are none of its own" in caplog.text
    world.pass_time(100)
    assert world.published == []


def test_wills_go_with_their_vhost(world, caplog):
    vhost = world.node.broker.create_vhost("v")
    world.sessions = vhost.extras[EXTRA]
    world.open_door()
    session, connection = world.connect()
    other = world.connect("other", delay_s=5)
    world.lose(*other)

    world.node.broker.delete_vhost("v")
    world.lose(session, connection)
    world.pass_time(100)

    assert world.published == []
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def failed_store(world, monkeypatch):
    """The disk fails the store of wills. Returns what opens it again."""
    vhost, held = world.node.vhost, []
    with monkeypatch.context() as patch:
        patch.setattr(vhost.stores, "reopen", lambda *arguments: held.append(arguments))
        world.sessions.wills.kept._store.fence(OSError(5, "the disk failed"))
        world.pass_time(0)

    def open_again():
        vhost.stores.reopen(*held[0])
        job = world.sessions.wills.kept._reopening
        world.node.wait(lambda: not world.sessions.wills.kept.closed and not job.running)
        world.settle()

    return open_again


def test_what_happens_to_clients_while_the_store_is_closed_counts_when_it_is_open_again(world, monkeypatch):
    """On 6805b4a2 it stayed closed, and none of these wills was published."""
    clients = {
        name: world.connect(name, will=name, delay_s=delay_s)
        for name, delay_s in (
            ("lost", 0), ("left", 0), ("due", 5), ("over", 100), ("back", 100), ("here", 0))}
    for name in ("due", "over", "back"):
        world.lose(*clients[name])
    open_again = failed_store(world, monkeypatch)

    world.lose(*clients["lost"])
    world.lose(*clients["left"], wants_will=False)
    world.pass_time(6)
    world.node.vhost.delete_queue("mqtt.over")
    world.sessions.connect(Connection(), "back", "guest", False, NEVER, 5)
    assert world.sessions.wills.begin("back", "a user") and world.published == []
    open_again()
    world.pass_time(200)

    assert sorted(world.published) == ["due", "lost", "over"]
    world.settle()
    assert world.sessions.wills.count == 1
    world.lose(*clients["here"])
    assert world.published[-1] == "here"


@pytest.mark.parametrize("error", [None, OSError(5, "the disk failed")])
@pytest.mark.parametrize("is_noted", [True, False])
def test_will_that_was_published_stays_while_that_is_not_safe(world, monkeypatch, is_noted, error):
    """Until a power cut, which may have taken it. On 99bdb8bf a store that was opened again forgot it."""
    told = []
    with monkeypatch.context() as patch:
        patch.setattr(type(world.node.vhost), "when_safe", lambda _, done, **__: told.append(done))
        end = world.connect()
        if not is_noted:
            patch.setattr(world.sessions.wills.kept, "_put", lambda key, message, is_tombstone: 0)
        world.lose(*end)
    open_again = failed_store(world, monkeypatch)

    told[-1](error)
    open_again()
    world.pass_time(100)

    assert world.published == ["t"] and world.sessions.wills.count == (0 if error is None else 1)


def test_client_whose_will_cannot_be_kept_leaves_none(world, monkeypatch):
    world.connect()
    open_again = failed_store(world, monkeypatch)
    connection = Connection()
    session, *_ = world.sessions.connect(connection, "c", "guest", False, NEVER, 5)
    assert not world.sessions.wills.begin("c", "a user", Will("c", "guest", "t", b"gone"))
    world.lose(session, connection, wants_will=False)

    open_again()
    world.pass_time(200)

    assert world.published == [] and world.sessions.wills.count == 0


def test_will_of_an_earlier_connection_is_not_published_for_a_client_that_came_back_and_was_lost(
    world, monkeypatch
):
    """At 8119bd64 it was: that its connection was lost stood in place of that it had come back."""
    world.lose(*world.connect(delay_s=100))
    open_again = failed_store(world, monkeypatch)
    connection = Connection()
    session, *_ = world.sessions.connect(connection, "c", "guest", False, NEVER, 5)
    assert world.sessions.wills.begin("c", "a user")
    world.lose(session, connection)

    open_again()
    world.pass_time(200)

    assert world.published == [] and world.sessions.wills.count == 0


@pytest.fixture
def unread(world):
    """Wills of two clients, in a store that could not be opened at boot. Returns what opens it."""
    for name in ("a", "b"):
        world.connect(name, will=name)
    world.restart("stop", has_door=False)
    wills = world.sessions.wills
    recovered, kept = wills.recovered, wills.kept
    kept.__init__(kept.vhost, module.STORE, kept._key_of, kept._tombstone)
    kept.when_open = wills._catch_up
    wills._recovered = []
    wills._names.clear()
    recovered(None)
    world.open_door()

    def open_it():
        world.pass_time(0)
        world.node.wait(lambda: not kept.closed and not kept._reopening.running)

    return open_it


def test_wills_of_a_store_that_could_not_be_opened_at_boot_are_published_when_it_can(world, unread):
    unread()
    assert world.published == []
    world.pass_time(GRACE_S)

    assert sorted(world.published) == ["a", "b"]


@pytest.mark.parametrize("is_lost", [False, True])
def test_client_that_is_back_before_the_wills_of_an_earlier_run_can_be_read_leaves_none(
    world, unread, is_lost
):
    """At 8119bd64 its will was published, with the client there."""
    connection = Connection()
    session, *_ = world.sessions.connect(connection, "a", "guest", False, NEVER, 5)
    assert world.sessions.wills.begin("a", "a user")
    if is_lost:
        world.lose(session, connection)
    unread()
    world.pass_time(GRACE_S)

    assert world.published == ["b"]


def test_will_of_a_user_who_is_deleted_before_it_can_be_read_is_gone(world, unread):
    """Another may have the name by then. On b83bb75a it was published by the rights of that one."""
    world.sessions.wills.user_deleted(SimpleNamespace(name="guest"))
    unread()
    world.pass_time(GRACE_S)

    assert world.published == [] and world.sessions.wills.count == 0
