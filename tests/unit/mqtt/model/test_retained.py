"""Retained: what is retained, for whom it is replayed, and what outlives the broker (MQTT 5 §3.3.1.3)."""
import pytest

from gomq_py.broker.routing.route import LATER, Destination
from gomq_py.broker.transfer.moves import Move, to_origin
from gomq_py.content import forms
from gomq_py.content.properties import Properties
from gomq_py.mqtt.model import replays
from gomq_py.mqtt.model.kinds import all_kinds
from gomq_py.mqtt.model.retained import STORE
from gomq_py.mqtt.model.session import Subscription
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.wire import crossing
from gomq_py.storage.message import Message
from tests.support.door import poll_the_loop, poll_until
from tests.support.hand_timers import NodeClock
from tests.support.mqtt_outbound import mqtt_message
from tests.support.node import Node

forms.register(crossing.MQTTForm())

REPLAYED = 0x10  # of wire.crossing, whose flags are C's


class World:
    """A node whose time is the test's."""

    def __init__(self, folder):
        self.folder, self.now_ms = folder, 1_700_000_000_000
        self.boot()

    def boot(self):
        kinds = all_kinds()
        self.clock = NodeClock(kinds, self.now_ms)
        self.node = Node(self.folder, kinds=kinds)
        self.retained = self.node.vhost.extras[EXTRA].retained

    def restart(self):
        self.now_ms = self.clock.now_ms
        self.retained.write_out()
        self.node.kill()
        self.boot()

    def publish(self, topic, body=b"x", qos=1, block=b"", expires_in_ms=0):
        message = Message()
        now_ms = self.clock.now_ms
        message.assign(
            b"amq.topic", crossing.swap(topic.encode()), block, body, now_ms,
            now_ms + expires_in_ms if expires_in_ms else 0, persistent=qos > 0)
        message.set_kind(crossing.KIND, crossing.record_flags(qos, True))
        return self.retained.publish(message)

    def advance(self, ms):
        """Let time pass, when all that has come was seen to."""
        self.node.wait(lambda: not self.retained.touched)
        self.clock.advance(ms)

    def wait(self, predicate):
        """Let the hub run, and time pass, until the predicate is true."""
        def is_true():
            self.clock.advance(replays.LATER_MS)
            return predicate()
        self.node.wait(is_true)

    def there(self):
        """{topic: octets} of all that is retained."""
        return {
            topic: octets for topic, octets in self.retained.topics(self.clock.now_ms) if octets is not None}

    def subscribe(self, topic_filter, qos=2, session=None, is_new=True, **options):
        """What is replayed: [(topic, body, qos, properties)], in order."""
        session = session or Session()
        subscription = Subscription(topic_filter, qos, **options)
        session.subscriptions[topic_filter] = subscription
        self.retained.replay(session, subscription, is_new)
        replay = self.retained.replays.get(session)
        if replay is not None and replay._timer is not None:
            self.clock.advance(replays.LATER_MS)
        self.node.wait(lambda: not self.retained.replays)
        return session.sink.take()


class Sink(Destination):
    """Notes what it gets; ``room()`` says how much that may be at a time."""

    def __init__(self, most):
        super().__init__("sink")
        self.got, self.most, self.asked = [], most, 0

    def room(self):
        self.asked += 1
        return max(0, self.most - len(self.got))

    def publish(self, message):
        flags = message.describe()["flags"]
        assert flags & REPLAYED and flags & 8, flags
        topic = crossing.swap(message.get_routing_key()).decode()
        self.got.append((topic, message.get_body(), flags >> 1 & 3, message.get_raw()))
        return 1

    def take(self):
        got, self.got = self.got, []
        return got


class Session:
    """As much of one as a replay sees."""

    is_durable, queue = False, None
    connection = "its own"

    def __init__(self, most=1000):
        self.sink = Sink(most)
        self.subscriptions = {}


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path / "data")
    yield world
    world.node.stop()


def topics(replayed):
    return [topic for topic, *_ in replayed]


def test_last_message_of_a_topic_is_replayed_and_outlives_the_broker(world):
    for body in (b"1", b"2", b"3"):
        assert world.publish("a/b", body) == 1
    world.publish("v1.2/c", b"dots")

    for _ in range(2):
        assert world.subscribe("a/b") == [("a/b", b"3", 1, b"")]
        assert world.subscribe("#") == [("a/b", b"3", 1, b""), ("v1.2/c", b"dots", 1, b"")]
        world.restart()


def test_empty_payload_deletes_and_is_not_retained(world):
    """[MQTT-3.3.1-6], [MQTT-3.3.1-7]"""
    world.publish("a", b"1")
    world.publish("b", b"1")

    assert world.publish("a", b"") == 1 and world.publish("never", b"") == 1

    for _ in range(2):
        assert world.there() == {"b": 1}
        world.restart()


@pytest.mark.parametrize("topic_filter, expected", [
    ("#", ["a", "a/b", "a/b/c", "b/b"]), ("+", ["a"]), ("a/#", ["a", "a/b", "a/b/c"]),
    ("+/b", ["a/b", "b/b"]),
    ("$SYS/#", ["$SYS/x"]), ("$SYS/+", ["$SYS/x"]), ("+/x", []), ("a/b", ["a/b"]), ("a/+/c", ["a/b/c"]),
    ("x", []),
])
def test_wildcards(world, topic_filter, expected):
    for topic in ("a/b", "b/b", "a", "$SYS/x", "a/b/c"):
        world.publish(topic)

    assert topics(world.subscribe(topic_filter)) == expected


@pytest.mark.parametrize("handling, is_new, is_replayed", [
    (0, True, True), (0, False, True), (1, True, True), (1, False, False), (2, True, False),
    (2, False, False),
])
def test_retain_handling(world, handling, is_new, is_replayed):
    """[MQTT-3.3.1-9], [MQTT-3.3.1-10], [MQTT-3.3.1-11]"""
    world.publish("a")

    replayed = world.subscribe("a", is_new=is_new, retain_handling=handling)

    assert topics(replayed) == ["a"] * is_replayed


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_qos_is_the_lower_one(world, published, wanted):
    world.publish("a", qos=published)
    world.restart()

    assert world.subscribe("a", wanted) == [("a", b"x", min(published, wanted), b"")]


def test_properties_are_kept_and_the_identifier_of_the_subscription_is_added(world):
    block = b"\x03\0\4text\x26\0\1k\0\1v"
    world.publish("a", block=block)

    assert world.subscribe("a", identifier=300) == [("a", b"x", 1, block + b"\x0b\xac\x02")]
    assert world.subscribe("a") == [("a", b"x", 1, block)]


def test_expired_message_is_not_replayed_and_goes(world):
    """[MQTT-3.3.2-5]"""
    world.publish("a", expires_in_ms=5000)
    world.publish("b", expires_in_ms=9000)
    world.publish("c")
    world.advance(4999)
    assert world.there().keys() == {"a", "b", "c"}
    world.advance(1)
    assert topics(world.subscribe("#")) == ["b", "c"]
    world.node.wait(lambda: world.retained.index.count == 2)

    world.now_ms = world.clock.now_ms + 4000
    world.restart()
    world.advance(4000)

    assert topics(world.subscribe("#")) == ["c"]
    world.node.wait(lambda: world.retained.index.count == 1)


def test_message_that_was_replaced_takes_its_time_with_it(world):
    world.publish("a", expires_in_ms=5000)
    world.publish("a", b"later", expires_in_ms=50_000)
    world.publish("b", expires_in_ms=5000)
    world.publish("b", b"for ever")

    world.advance(10_000)
    world.node.wait(lambda: not world.retained._expiring.running)
    assert world.there() == {"a": 5, "b": 8}
    world.advance(40_000)

    world.node.wait(lambda: world.retained.index.count == 1)
    assert world.there() == {"b": 8}


def test_what_amqp_publishes_with_the_header_is_retained(world):
    headers = {"mqtt.retain": True, "k": "v"}
    properties = Properties(
        headers=headers, content_type="text", delivery_mode=2, expiration="60000").encode()
    vhost = world.node.vhost
    destinations = vhost.route(vhost.exchange("amq.topic"), "a.b", headers)
    message = Message()
    now_ms = world.clock.now_ms
    message.assign(b"amq.topic", b"a.b", properties, b"body", now_ms, now_ms + 60_000, 3, True)

    assert [destination.publish(message) for destination in destinations] == [1]

    expected = [("a/b", b"body", 1, b"\x02\0\0\0\x3c\x03\0\4text\x26\0\1k\0\1v")]
    for _ in range(2):
        assert world.subscribe("a/b") == expected
        world.restart()
    world.advance(60_000)
    assert world.subscribe("a/b") == []


def test_delete_over_amqp_and_what_is_no_topic(world):
    world.publish("a/b")
    message = Message()
    message.assign(b"amq.topic", b"a.b", b"\0\0", b"", 1)

    assert world.retained.publish(message) == 1
    for routing_key in (b"", b"a.#", b"\xff", b"a\0b"):
        message.assign(b"amq.topic", routing_key, b"\0\0", b"x", 1)
        assert world.retained.publish(message) == 1

    assert world.there() == {}


def test_limits_refuse_what_is_more_and_nothing_else(world):
    world.retained.max_messages, world.retained.max_octets = 2, 10
    assert [world.publish(topic, b"1234") for topic in ("a", "b", "c")] == [1, 1, 0]
    assert not world.retained.unable

    assert [world.publish("a", body) for body in (b"123456", b"1234567", b"1")] == [1, 0, 1]
    world.publish("b", b"")

    assert world.publish("c", b"1234") == 1 and world.there() == {"a": 1, "c": 4}


def test_slow_client_gets_it_all_and_never_more_than_its_room(world):
    expected = [f"t/{number:03}" for number in range(100)]
    for topic in expected:
        world.publish(topic)
    session = Session(most=7)
    subscription = Subscription("t/#", 1)
    session.subscriptions["t/#"] = subscription
    world.retained.replay(session, subscription, True)

    got = []

    def has_all():
        assert len(session.sink.got) <= 7
        got.extend(session.sink.take())
        world.clock.advance(replays.LATER_MS)
        return not world.retained.replays

    poll_until(has_all)
    got += session.sink.take()

    assert topics(got) == expected


def absent_in_a_replay(world):
    """A session whose client has gone while five of eight messages waited for it."""
    for number in range(8):
        world.publish(f"{number}")
    session = Session(most=5)
    subscription = session.subscriptions["#"] = Subscription("#", 1)
    world.retained.replay(session, subscription, True)
    world.node.wait(lambda: session.sink.got)
    session.connection = None
    world.clock.advance(replays.LATER_MS)
    poll_the_loop()
    return session


def test_client_that_is_absent_is_not_asked_again_and_gets_the_rest_when_it_is_back(world):
    session = absent_in_a_replay(world)
    asked = session.sink.asked

    for _ in range(5):
        world.clock.advance(replays.LATER_MS)
        poll_the_loop()
    found = session.sink.asked - asked, len(session.sink.got)
    session.connection, session.sink.most = "its next", 100
    world.retained.session_connected(session)
    world.node.wait(lambda: not world.retained.replays)

    assert found == (0, 5) and topics(session.sink.got) == [f"{number}" for number in range(8)]


def test_session_that_ends_while_it_is_absent_ends_its_replay(world):
    session = absent_in_a_replay(world)

    world.retained.session_ended(session)

    assert not world.retained.replays


def test_subscription_that_ends_ends_its_replay(world):
    for number in range(20):
        world.publish(f"{number}")
    session = Session(most=5)
    subscription = session.subscriptions["#"] = Subscription("#", 1)
    world.retained.replay(session, subscription, True)
    world.node.wait(lambda: session.sink.got)

    del session.subscriptions["#"]

    world.wait(lambda: not world.retained.replays)
    assert len(session.sink.got) == 5


def test_who_subscribes_again_gets_it_again_from_the_beginning(world):
    for number in range(8):
        world.publish(f"{number}")
    session = Session(most=5)
    subscription = session.subscriptions["#"] = Subscription("#", 1)
    world.retained.replay(session, subscription, True)
    world.node.wait(lambda: session.sink.got)
    session.sink.take()

    session.sink.most = 100
    assert topics(world.subscribe("#", 0, session)) == [f"{number}" for number in range(8)]


@pytest.mark.parametrize("later_ms", [1, 0, -10_000])
def test_what_comes_after_the_subscription_is_not_replayed(world, later_ms):
    """It came to the subscriber by itself, whatever the clock says."""
    world.publish("a")
    session = Session()
    subscription = session.subscriptions["#"] = Subscription("#", 1)
    world.retained.replay(session, subscription, True)
    world.clock.now_ms += later_ms
    world.publish("b")
    world.publish("a", b"newer")

    world.node.wait(lambda: not world.retained.replays)

    assert session.sink.got == []


@pytest.mark.parametrize("is_under_way", [False, True])
def test_what_was_routed_before_the_subscription_and_waited_for_files_is_replayed(world, is_under_way):
    """It went where there were subscriptions before it waited, and it replaces what was there."""
    world.publish("a", b"older")
    world.restart()
    held, stored = mqtt_message("a", b"newer", 1, retain=True), []
    held.may_wait = True
    assert world.retained.publish(held) == LATER
    held.lacking(lambda error: stored.append(world.retained.publish(held)))
    session, mark = Session(0 if is_under_way else 1000), world.retained.mark()
    subscription = session.subscriptions["a"] = Subscription("a", 1)
    if is_under_way:
        world.retained.replay(session, subscription, True, mark)

    world.node.wait(lambda: stored)
    session.sink.most = 1000
    if not is_under_way:
        world.retained.replay(session, subscription, True, mark)

    assert stored == [1]
    world.wait(lambda: not world.retained.replays)
    assert [body for _, body, *_ in session.sink.take()] == [b"newer"]


@pytest.mark.parametrize("older", [None, b"older"])
@pytest.mark.parametrize("is_refused", [False, True])
def test_replay_waits_for_what_waited_for_files_before_the_subscription(world, older, is_refused):
    """It had been routed, and the replay was over before it was kept: a subscriber that met the first message
    that a vhost retained, or the first of a segment, never got it. Fails on 6805b4a2.
    """
    if older:
        world.publish("a", older)
        world.restart()
    held, gone_on = mqtt_message("a", b"newer", 1, retain=True), []
    held.may_wait = True
    assert world.retained.publish(held) == LATER
    wait, held.lacking.wait = held.lacking.wait, gone_on.append
    held.lacking(lambda error: error or world.retained.publish(held))
    sessions = {name: Session() for name in ("a", "#", "b")}
    for name, session in sessions.items():
        subscription = session.subscriptions[name] = Subscription(name, 1)
        world.retained.replay(session, subscription, True)
    poll_the_loop()
    assert not any(session.sink.got for session in sessions.values())

    ready = []
    wait(ready.append)
    world.node.wait(lambda: ready)
    gone_on[0](OSError("no room") if is_refused else None)
    world.wait(lambda: not world.retained.replays)

    expected = older if is_refused else b"newer"
    for name, session in sessions.items():
        assert [body for _, body, *_ in session.sink.take()] == (
            [expected] if expected and name != "b" else [])


def test_step_of_the_clock_backwards_hides_nothing(world):
    world.publish("a")

    world.clock.now_ms -= 3_600_000

    assert topics(world.subscribe("#")) == ["a"]


def test_what_is_written_anew_is_replayed_and_what_replaces_it_is_not(world):
    """Segments that hold little are written anew at any time: before a SUBACK leaves, and during a replay."""
    for topic in "abc":
        world.publish(topic)
    kept, session = world.retained, Session(most=0)
    subscription = session.subscriptions["#"] = Subscription("#", 1)
    mark = kept.mark()
    kept.write_anew("a", kept.index.get("a"))
    kept.replay(session, subscription, True, mark)
    for topic in "bab":
        kept.write_anew(topic, kept.index.get(topic))
    world.publish("c", b"newer")

    session.sink.most = 100
    world.wait(lambda: not kept.replays)

    assert topics(session.sink.got) == ["a", "b"] and not kept._moved


def test_several_filters_are_replayed_one_after_the_other(world):
    for topic in ("a", "b"):
        world.publish(topic)
    session = Session()
    for topic_filter in ("#", "b", "a"):
        subscription = session.subscriptions[topic_filter] = Subscription(topic_filter, 1)
        world.retained.replay(session, subscription, True)

    world.node.wait(lambda: not world.retained.replays)

    assert topics(session.sink.got) == ["a", "b", "b", "a"]


def test_topics_in_order(world):
    for number in range(5):
        world.publish(f"{number}", bytes(number + 1), expires_in_ms=10 if number == 2 else 0)

    now_ms = world.clock.now_ms
    assert list(world.retained.topics(now_ms)) == [("0", 1), ("1", 2), ("2", 3), ("3", 4), ("4", 5)]
    assert list(world.retained.topics(now_ms + 10, "1", lambda topic: topic != "3")) == [
        ("2", None), ("3", None), ("4", 5)]
    topics = world.retained.topics(now_ms)
    assert next(topics) == ("0", 1)
    world.retained.delete("1")  # while others have their turn
    assert next(topics) == ("2", 3)
    message = Message()
    assert world.retained.look("3", message) and message.get_body_length() == 4
    assert not world.retained.look("x", message)


def test_record_whose_key_is_no_topic_keeps_nothing_from_booting(world, caplog):
    world.publish("a")
    message = Message()
    message.assign(b"", b"a.#", b"", b"x", 1, persistent=True)
    world.node.vhost.stores.make(STORE).append(message)

    world.restart()

    assert world.there() == {"a": 1} and world.retained.set_aside == 1


@pytest.mark.parametrize("kind, block", [(2, b"\xff"), (2, b"\x02\0"), (1, b"\0\0")])
def test_record_that_is_malformed_is_replayed_to_nobody(world, kind, block):
    world.publish("a")
    world.publish("c")
    message = Message()
    message.assign(b"amq.topic", b"b", block, b"x", 1, persistent=True)
    message.set_kind(kind, 2)

    world.retained.put("b", message)

    assert topics(world.subscribe("#")) == ["a", "c"]


RETAINED = {"mqtt.retain": True}


def _publish_to_retain(world, routing_key):
    """Over AMQP, as its door does: to all that the message reaches."""
    message = Message()
    message.assign(
        b"amq.topic", routing_key.encode(), Properties(headers=RETAINED).encode(), b"x", world.clock.now_ms)
    vhost = world.node.vhost
    for destination in vhost.route(vhost.exchange("amq.topic"), routing_key, RETAINED):
        assert destination.publish(message) == 1


@pytest.fixture
def looked_into(world):
    """A world in which routes from amq.topic depend on headers."""
    vhost = world.node.vhost
    vhost.declare_exchange("h", "headers")
    vhost.bindings.bind_exchange("h", "amq.topic", "#", {})
    return world


def test_dead_letters_are_not_retained(looked_into):
    vhost = looked_into.node.vhost
    vhost.declare_queue("q", arguments={
        "x-max-length": 0, "x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": "dead.letter"})
    vhost.bindings.bind_queue("q", "amq.topic", "a.*")
    vhost.declare_queue("dead")
    vhost.bindings.bind_queue("dead", "amq.topic", "dead.*")

    _publish_to_retain(looked_into, "a.b")

    looked_into.node.wait(lambda: vhost.queue("dead").ready_count == 1)
    assert looked_into.there() == {"a/b": 1}


def test_what_an_operator_brings_back_is_not_retained_again(looked_into):
    vhost = looked_into.node.vhost
    vhost.declare_queue("q", arguments={
        "x-max-length": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    vhost.bindings.bind_queue("q", "amq.topic", "a.*")
    dead, _ = vhost.declare_queue("dead")
    _publish_to_retain(looked_into, "a.b")
    looked_into.node.wait(lambda: dead.ready_count == 1)
    looked_into.retained.delete("a/b")
    vhost.delete_queue("q")
    vhost.declare_queue("other")
    vhost.bindings.bind_queue("other", "amq.topic", "a.*")
    results = []
    broker = looked_into.node.broker

    Move(
        dead, to_origin(vhost, dead, lambda _: True, lambda *_: True, "exchange"), broker.durability,
        broker.scheduler, lambda *result: results.append(result)).start()

    looked_into.node.wait(lambda: results)
    assert vhost.queue("other").ready_count == 1 and looked_into.there() == {}
