"""Sessions: what of a client outlives its connection, restarts and take-overs, and what ends it."""
import tracemalloc

import pytest

from gomq_py.broker.queues.consumers import Consumer
from gomq_py.broker.routing.route import Destination
from gomq_py.broker.topology.definitions import exported
from gomq_py.broker.topology.kinds import Kinds
from gomq_py.errors import AccessRefused, NotFound, OutOfResources, PreconditionFailed, ResourceLocked
from gomq_py.mqtt.model import exchange, sessions
from gomq_py.mqtt.model.kinds import register
from gomq_py.mqtt.model.session import Subscription
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.model.sessions import NEVER
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import Message
from tests.support.mqtt_outbound import mqtt_message
from tests.support.node import Node


class Connection:
    """Says what it heard. ``consumer`` is attached to the queue of its session, if that has one."""

    wants_will = False

    def __init__(self):
        self.heard = []
        self.consumer = None

    def attach(self, session):
        if session.queue is not None:
            self.consumer = Consumer("")
            session.queue.add_consumer(self.consumer)
        return self

    def detach(self):
        if self.consumer is not None and self.consumer.queue is not None:
            self.consumer.queue.remove_consumer(self.consumer)

    def taken_over(self):
        self.heard.append("taken over")
        self.detach()

    def session_ended(self, reason):
        self.heard.append(reason)


class Sink(Destination):
    """What is not kept, of one session."""

    def __init__(self, session):
        super().__init__("")
        self.session = session

    def room(self):
        return 1


def mqtt_kinds():
    kinds = Kinds()
    register(kinds)
    return kinds


@pytest.fixture
def nodes(tmp_path):
    """A function that boots a node over the same folder, after the one before has stopped;
    at the end the last one stops.
    """
    running = []

    def boot():
        if running:
            running.pop().stop()
        running.append(Node(tmp_path / "data", kinds=mqtt_kinds()))
        return running[0]

    yield boot
    running.pop().stop()


@pytest.fixture
def node(nodes):
    return nodes()


def sessions_of(node):
    return node.vhost.extras[EXTRA]


def connect(node, client_id="c", clean_start=False, expiry_s=NEVER, user="guest", version=5, sink=False):
    """(session, whether it was there, connection)."""
    connection = Connection()
    session, was_there, _ = sessions_of(node).connect(
        connection, client_id, user, clean_start, expiry_s, version
    )
    if sink:
        session.sink = Sink(session)
    return session, was_there, connection.attach(session)


def disconnect(node, session, connection, expiry_s=None):
    connection.detach()
    sessions_of(node).disconnect(session, connection, expiry_s)


def destinations(node, routing_key):
    return list(node.vhost.route(node.vhost.exchange("amq.topic"), routing_key))


def test_queue_of_a_session_is_bound_to_the_exchange_of_subscriptions_alone(node):
    session, *_ = connect(node)

    with pytest.raises(AccessRefused) as refused:
        node.vhost.bindings.bind_queue("mqtt.c", "amq.fanout", "")
    node.vhost.bindings.bind_queue("mqtt.c", "mqtt.default", "a/+")

    assert refused.value.text == (
        "cannot bind queue 'mqtt.c' in vhost '/', of an MQTT session, to exchange 'amq.fanout' in vhost '/': "
        "its client gets what it has subscribed to")
    assert destinations(node, "a.b") == [session.queue]


# durable sessions

def test_session_outlives_its_connection_with_its_subscriptions_and_messages(node):
    session, was_there, connection = connect(node)
    session.subscribe(Subscription("a/+", 1))
    disconnect(node, session, connection)
    node.publish("amq.topic", "a.b", b"kept")

    again, is_there, _ = connect(node)

    assert (was_there, is_there, again is session) == (False, True, True)
    assert again.queue.ready_count == 1 and again.subscriptions == {"a/+": Subscription("a/+", 1)}


def test_session_outlives_a_restart_with_its_subscriptions_and_messages(nodes):
    node = nodes()
    wanted = [
        Subscription(
            "a/+", 2, no_local=True, retain_as_published=True, retain_handling=2, identifier=268_435_455
        ),
        Subscription("$SYS/#", 0),
        Subscription("v1.2/#", 1),
    ]
    session, _, connection = connect(node, expiry_s=3600, user="device", version=4)
    for subscription in wanted:
        session.subscribe(subscription)
    node.publish("amq.topic", "a.b", b"kept", persistent=True)
    disconnect(node, session, connection)

    node = nodes()

    session = sessions_of(node).by_client["c"]
    assert (session.user, session.version, session.expiry_s, session.is_durable) == ("device", 4, 3600, True)
    assert session.subscriptions == {subscription.topic_filter: subscription for subscription in wanted}
    assert destinations(node, "v1/2.x") == [session.queue] and session.queue.ready_count == 1
    assert connect(node)[1]


def test_user_has_as_many_kept_sessions_as_its_limit(nodes):
    """Sessions that are there may be taken up and begun anew; those of others do not count."""
    node = nodes()

    def comes(client_id, expiry_s=NEVER, **how):
        connection = Connection()
        session = sessions_of(node).connect(
            connection, client_id, how.pop("user", "device"), how.pop("clean_start", False), expiry_s, 5,
            kept_max=how.pop("kept_max", 2), **how).session
        sessions_of(node).disconnect(session, connection)

    comes("a")
    comes("b")
    comes("other", user="other")
    comes("of token", of_token=True)
    for _ in range(2):  # the second time after a restart
        with pytest.raises(PreconditionFailed, match="user .device. has 2 .*of 2 it may have"):
            comes("c")
        with pytest.raises(PreconditionFailed):
            comes("other")
        assert "c" not in sessions_of(node).by_client
        assert sessions_of(node).by_client["other"].owner == ("other", False)
        comes("not kept", 0)
        comes("a")
        comes("a", clean_start=True)
        comes("b", clean_start=True, kept_max=1)
        node = nodes()

    comes("b", 0)
    comes("c", kept_max=2)
    comes("c", user="other")
    comes("d")
    comes("e", kept_max=0)


def test_session_whose_record_makes_no_sense_is_there(node):
    node.vhost.create_queue("mqtt.c", True, False, {
        "x-queue-type": "mqtt", "x-expires": "soon", "x-mqtt-user": 7, "x-mqtt-version": "5"})

    session = sessions_of(node).by_client["c"]

    assert (session.user, session.version, session.expiry_s) == ("", 4, NEVER)
    assert connect(node)[0] is session


def test_clean_start_ends_the_session_that_was_there(node):
    session, _, connection = connect(node)
    session.subscribe(Subscription("a", 1))
    disconnect(node, session, connection)

    again, was_there, _ = connect(node, clean_start=True)

    assert not was_there and again is not session and again.subscriptions == {}
    assert destinations(node, "a") == []


@pytest.mark.parametrize("expiry_s, expires_ms", [
    (1, 1000), (NEVER, None), (NEVER - 1, 10 * 365 * 24 * 3600 * 1000)
])
def test_time_without_a_connection_is_that_of_the_latest_connect(node, expiry_s, expires_ms):
    connect(node, expiry_s=60)

    session, _, _ = connect(node, expiry_s=expiry_s)

    assert session.queue.arguments.get("x-expires") == expires_ms


def test_session_that_nobody_takes_up_in_time_is_gone(node):
    session, _, connection = connect(node, expiry_s=1)
    node.vhost.redefine_queue(session.queue, {**session.queue.arguments, "x-expires": 1})
    disconnect(node, session, connection)

    node.wait(lambda: not node.vhost.queues, what="the session has not expired")

    assert sessions_of(node).by_client == {} and session.subscriptions == {}


def test_disconnect_may_say_another_time(node):
    session, _, connection = connect(node, expiry_s=60)

    disconnect(node, session, connection, expiry_s=5)

    assert (session.expiry_s, session.queue.arguments["x-expires"]) == (5, 5000)


def test_disconnect_that_asks_for_no_time_ends_the_session(node):
    session, _, connection = connect(node, expiry_s=60)

    disconnect(node, session, connection, expiry_s=0)

    assert sessions_of(node).by_client == {} and node.vhost.queues == {}
    assert connection.heard == []


def test_client_that_connects_again_as_before_writes_nothing(node, monkeypatch):
    """A fleet may come back all at once."""
    session, _, connection = connect(node, expiry_s=60)
    session.subscribe(Subscription("a", 1))
    disconnect(node, session, connection)
    written = []
    monkeypatch.setattr(node.vhost._log, "append", written.append)

    session, _, connection = connect(node, expiry_s=60)
    session.subscribe(Subscription("a", 1))
    disconnect(node, session, connection)

    assert written == []


# sessions that end with their connection

def test_session_that_is_not_kept_makes_no_queue_for_what_is_not_kept(node):
    session, _, connection = connect(node, expiry_s=0, sink=True)
    session.subscribe(Subscription("a", 0))
    found = destinations(node, "a")

    disconnect(node, session, connection)

    assert (found[0].session, node.vhost.queues, destinations(node, "a")) == (session, {}, [])
    assert sessions_of(node).by_client == {} and session.subscriptions == {}


def test_first_filter_that_is_kept_makes_a_queue_of_the_connection(node):
    session, _, connection = connect(node, expiry_s=0, sink=True)
    session.subscribe(Subscription("a", 0))
    session.subscribe(Subscription("b", 1))
    found = destinations(node, "a"), destinations(node, "b")
    queue = session.queue

    disconnect(node, session, connection)

    assert found == ([found[0][0]], [queue]) and found[0][0] is not queue
    assert (bool(queue.durable), queue.exclusive_owner, node.vhost.queues, destinations(node, "b")) == (
        False, connection, {}, []
    )


def test_filter_that_is_kept_now_leads_to_the_queue_alone(node):
    session, _, _ = connect(node, expiry_s=0, sink=True)
    session.subscribe(Subscription("a", 0))

    assert not session.subscribe(Subscription("a", 2))

    assert destinations(node, "a") == [session.queue]
    assert session.subscriptions == {"a": Subscription("a", 2)}


# subscriptions

def test_subscribing_again_with_other_options_changes_the_one_subscription(node):
    session, _, _ = connect(node)

    assert session.subscribe(Subscription("a/#", 1, identifier=7))
    assert not session.subscribe(Subscription("a/#", 2))

    assert session.subscriptions == {"a/#": Subscription("a/#", 2)}
    assert [binding.arguments for binding in node.vhost.bindings.to(session.queue)] == [{"x-mqtt-qos": 2}]


def test_subscribing_again_as_before_changes_nothing(node):
    session, _, _ = connect(node)
    session.subscribe(Subscription("a/#", 1))
    before = sessions_of(node).exchange.state.revision

    assert not session.subscribe(Subscription("a/#", 1))

    assert sessions_of(node).exchange.state.revision == before


def test_unsubscribing_ends_a_subscription_once(node):
    session, _, _ = connect(node)
    session.subscribe(Subscription("a/#", 1))

    assert (session.unsubscribe("a/#"), session.unsubscribe("a/#")) == (True, False)

    assert session.subscriptions == {} and destinations(node, "a") == []


def test_options_of_no_sense_in_a_log_are_taken_as_usual_ones(node):
    session, _, _ = connect(node)

    node.vhost.bindings.attach(sessions_of(node).exchange, session.queue, "a", {
        "x-mqtt-qos": 9, "x-mqtt-nl": 1, "x-mqtt-id": "7", "x-mqtt-rh": True
    })

    assert session.subscriptions == {"a": Subscription("a", 0)}


def test_subscription_that_a_kill_left_twice_is_one(nodes):
    """The broker was killed after the new one was recorded and before the end of the old one was."""
    node = nodes()
    session, _, connection = connect(node)
    session.subscribe(Subscription("a", 1, identifier=7))
    arguments = Subscription("a", 2).arguments()
    node.vhost.bindings.attach(sessions_of(node).exchange, session.queue, "a", arguments)
    disconnect(node, session, connection)

    node = nodes()
    session = sessions_of(node).by_client["c"]
    found = dict(session.subscriptions)
    is_new = session.subscribe(Subscription("a", 0))
    changed, bindings = dict(session.subscriptions), len(node.vhost.bindings.to(session.queue))
    session.unsubscribe("a")

    assert (found, is_new) == ({"a": Subscription("a", 2)}, False)
    assert (changed, bindings) == ({"a": Subscription("a", 0)}, 1)
    assert session.subscriptions == {} and destinations(node, "a") == []


@pytest.mark.parametrize("topic_filter", ["a/{}/+", "devices/{}/state", "kept/{}"])
def test_subscriptions_by_the_thousand_are_small(node, topic_filter):
    """What is the same for most of them is there once, and a dict only where it holds more than one thing.
    On 548c53e5 they took 1360 to 1690 octets each.
    """
    session = connect(node)[0]
    session.subscribe(Subscription("a/+", 0))
    filters = [topic_filter.format(number) for number in range(3000)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]

    for each in filters:
        session.subscribe(Subscription(each, 0))

    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown / len(filters) < 1000


def test_one_that_was_left_behind_can_be_what_is_wanted_again(node):
    session, _, _ = connect(node)
    wanted = Subscription("a", 1, identifier=7)
    session.subscribe(wanted)
    arguments = Subscription("a", 2).arguments()
    node.vhost.bindings.attach(sessions_of(node).exchange, session.queue, "a", arguments)

    assert not session.subscribe(wanted)

    assert session.subscriptions == {"a": wanted} and len(node.vhost.bindings.to(session.queue)) == 1


def with_plus_at(places):
    """A filter of twelve levels."""
    return "/".join("+" if place in places else "" for place in range(12))


def test_filters_of_one_user_leave_room_for_those_of_others(node, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_COSTLY_LEVELS_OF_USER", 24)
    first, *_ = connect(node, "c", user="greedy")
    first.subscribe(Subscription(with_plus_at([0]), 1))
    first.subscribe(Subscription("$share/g/" + with_plus_at([1]), 1))
    second, _, connection = connect(node, "d", user="greedy")
    third, *_ = connect(node, "e", user="modest")
    check = sessions_of(node).check_room

    with pytest.raises(OutOfResources) as refused:
        check(second, "$share/g/" + with_plus_at([2]))
    check(second, with_plus_at([1]))
    check(second, "a/b/#")
    check(third, with_plus_at([2]))
    first.unsubscribe(with_plus_at([0]))
    check(second, with_plus_at([2]))

    assert refused.value.text == (
        "topic filters of the sessions of user 'greedy' have their + in too many different places "
        "(limit of 24 levels)")


def test_filters_count_for_the_user_who_has_the_session_now_also_after_a_restart(nodes, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_COSTLY_LEVELS_OF_USER", 12)
    node = nodes()
    session, _, connection = connect(node, user="first")
    session.subscribe(Subscription(with_plus_at([0]), 1))
    disconnect(node, session, connection)
    disconnect(node, *connect(node, user="second")[::2])

    node = nodes()
    first, *_ = connect(node, "d", user="first")
    second, *_ = connect(node, "e", user="second")

    sessions_of(node).check_room(first, with_plus_at([2]))
    with pytest.raises(OutOfResources, match="user 'second'"):
        sessions_of(node).check_room(second, with_plus_at([2]))


def test_room_of_the_vhost_is_no_fault_of_a_filter(node, monkeypatch):
    monkeypatch.setattr(exchange, "MAX_COSTLY_LEVELS", 11)
    session, *_ = connect(node)

    with pytest.raises(OutOfResources, match="topic filters of virtual host '/' have"):
        sessions_of(node).check_room(session, with_plus_at([0]))


# shared subscriptions

def member(node, client_id, topic_filter="$share/g/a/+", **options):
    session, _, connection = connect(node, client_id, **options)
    session.subscribe(Subscription(topic_filter, 1))
    return session, connection


def counts(sessions):
    return [session.queue.ready_count for session, _ in sessions]


def test_members_that_are_connected_have_turns(node):
    members = [member(node, client_id) for client_id in "cde"]

    for _ in range(7):
        assert node.publish("amq.topic", "a.b") == [1]

    assert counts(members) == [3, 2, 2]


def test_members_that_are_absent_get_what_no_other_takes(node):
    members = [member(node, client_id) for client_id in "cde"]
    for session, connection in members[:2]:
        disconnect(node, session, connection)
    for _ in range(4):
        node.publish("amq.topic", "a.b")
    disconnect(node, *members[2])
    for _ in range(3):
        node.publish("amq.topic", "a.b")

    assert sorted(counts(members)) == [1, 1, 5]


def test_member_without_room_is_passed_over(node):
    members = [member(node, client_id) for client_id in "cd"]
    queue = members[0][0].queue
    members[0][1].detach()  # as a client whose window is full
    node.vhost.redefine_queue(queue, {**queue.arguments, "x-max-length": 1, "x-overflow": "reject-publish"})

    answers = [node.publish("amq.topic", "a.b") for _ in range(4)]

    assert (answers, counts(members)) == ([[1]] * 4, [1, 3])


def test_members_whose_rights_were_withdrawn_are_passed_over(node):
    members = [member(node, client_id) for client_id in "cd"]
    members[0][0].may_get = lambda topic_filter: topic_filter != "$share/g/a/+"
    members[0][0].interests.rights_changed()

    for _ in range(2):
        node.publish("amq.topic", "a.b")

    assert counts(members) == [0, 2]


def test_share_whose_members_may_have_nothing_refuses_nothing(node):
    """The publisher hears of full queues, and not of who is about to go, or was to get nothing anyway."""
    session, _ = member(node, "c")
    (share,) = destinations(node, "a.b")
    message = mqtt_message("a/b", b"x", 1)
    departed = sessions_of(node).exchange.departed

    departed[session.queue] = 1
    answers = [share.publish(message)]
    del departed[session.queue]
    session.queue.close()
    answers.append(share.publish(message))

    assert answers == [1, 0] and session.queue.ready_count == 0


def test_shares_of_other_names_and_filters_get_copies_of_their_own(node):
    members = [
        member(node, "c"), member(node, "d", "$share/h/a/+"), member(node, "e", "$share/g/a/#"),
        member(node, "f", "a/b"),
    ]

    assert node.publish("amq.topic", "a.b") == [1, 1, 1, 1]

    assert counts(members) == [1, 1, 1, 1]


def test_member_that_leaves_or_ends_has_no_turn(node):
    members = [member(node, client_id) for client_id in "cde"]
    members[0][0].unsubscribe("$share/g/a/+")
    node.vhost.delete_queue("mqtt.d")

    for _ in range(3):
        node.publish("amq.topic", "a.b")
    members[2][0].unsubscribe("$share/g/a/+")

    assert members[2][0].queue.ready_count == 3 and destinations(node, "a.b") == []


def test_shares_outlive_a_restart(nodes):
    node = nodes()
    for client_id in "cd":
        disconnect(node, *member(node, client_id))

    node = nodes()
    for _ in range(4):
        node.publish("amq.topic", "a.b")

    assert [sessions_of(node).by_client[one].queue.ready_count for one in "cd"] == [2, 2]


def counting_rights(session, asked):
    """Have a session note in a list each question for its rights."""
    session.may_get = lambda topic_filter: asked.append(session.client_id) or True
    session.interests.rights_changed()


def test_rights_of_members_are_asked_for_when_it_is_their_turn_and_once_for_each_change(node):
    asked, sessions = [], []
    for number in range(30):
        session, *_ = connect(node, f"c{number}")
        counting_rights(session, asked)
        session.subscribe(Subscription("$share/g/a/+", 1))
        sessions.append(session)
    for session in sessions:
        session.interests.rights_changed()
    before = list(asked)

    for _ in range(40):
        node.publish("amq.topic", "a.b")

    assert (before, asked) == ([], [session.client_id for session in sessions])


def test_members_that_are_absent_are_not_looked_at_while_one_is_connected(node):
    asked = []
    for number in range(10):
        session, connection = member(node, f"c{number}")
        disconnect(node, session, connection)
        counting_rights(session, asked)
    session, connection = member(node, "d")
    absent, _ = member(node, "e")
    disconnect(node, absent, _)
    again, *_ = connect(node, "e")

    for _ in range(4):
        node.publish("amq.topic", "a.b")

    assert (asked, session.queue.ready_count, again.queue.ready_count) == ([], 2, 2)


def test_share_is_on_disk_where_a_member_is(node):
    transient, _, _ = connect(node, "c", expiry_s=0, sink=True)
    transient.subscribe(Subscription("$share/g/a", 0))
    (share,) = destinations(node, "a")
    found = [bool(share.durable)]
    session, _ = member(node, "d", "$share/g/a")
    found.append(bool(share.durable))
    session.unsubscribe("$share/g/a")
    found.append(bool(share.durable))

    assert found == [False, True, False]


def test_failure_of_a_member_is_one_of_what_the_share_took_before_it(node):
    """What is published afterwards goes to the other members."""
    members = [member(node, client_id) for client_id in "cde"]
    (before,) = destinations(node, "a.b")
    found = bool(before.failed)

    members[0][0].queue.store.fence(OSError(5, "the disk failed"))
    (after,) = destinations(node, "a.b")
    answers = [node.publish("amq.topic", "a.b") for _ in range(4)]
    members[1][0].unsubscribe("$share/g/a/+")
    node.publish("amq.topic", "a.b")

    assert (found, bool(before.failed), bool(after.failed), bool(after.durable)) == (False, True, False, True)
    assert answers == [[1]] * 4 and counts(members[1:]) == [2, 3]


def test_member_whose_queue_is_opened_again_has_its_turn(node):
    members = [member(node, client_id) for client_id in "cd"]
    queue = members[0][0].queue
    queue.store.fence(OSError(5, "the disk failed"))

    node.vhost.restart_queue(queue)
    for _ in range(4):
        node.publish("amq.topic", "a.b")

    assert counts(members) == [2, 2]


# policies

def test_policies_apply_to_session_queues_but_those_that_mean_nothing_there(node):
    node.broker.parameters.set(node.vhost, "policy", "p", {
        "pattern": "^mqtt[.]", "definition": {"max-length": 2, "delivery-limit": 1}
    })
    session, _, connection = connect(node)
    session.subscribe(Subscription("a", 1))
    disconnect(node, session, connection)

    for _ in range(3):
        node.publish("amq.topic", "a")

    assert session.queue.ready_count == 2 and session.queue.limits.settings.delivery_limit is None


# take-over

@pytest.mark.parametrize("expiry_s, was_there", [(60, True), (0, False)])
def test_second_connection_of_a_client_takes_over_what_is_kept(node, expiry_s, was_there):
    session, _, first = connect(node, expiry_s=expiry_s, sink=not expiry_s)
    session.subscribe(Subscription("a", 1))

    again, there, second = connect(node, expiry_s=expiry_s, sink=not expiry_s)

    assert (there, again is session, first.heard, second.heard) == (was_there, was_there, ["taken over"], [])
    assert again.connection is second and (first.consumer is None or first.consumer.queue is None)
    assert list(again.subscriptions) == (["a"] if was_there else [])


def test_connection_that_was_taken_over_ends_nothing(node):
    session, _, first = connect(node, expiry_s=60)
    _, _, second = connect(node, expiry_s=60)

    disconnect(node, session, first, expiry_s=0)

    assert session.connection is second and sessions_of(node).by_client == {"c": session}


# what others do to it

def test_queue_that_is_deleted_ends_the_session_and_its_connection_hears_of_it(node):
    session, _, connection = connect(node)
    session.subscribe(Subscription("a", 1))

    node.vhost.delete_queue("mqtt.c")

    assert connection.heard == ["queue 'mqtt.c' in vhost '/' deleted"]
    assert (sessions_of(node).by_client, session.connection, session.subscriptions) == ({}, None, {})
    assert connect(node)[1] is False


def test_queue_that_is_opened_again_is_the_sessions_own_with_its_subscriptions(node):
    session, _, connection = connect(node)
    session.subscribe(Subscription("a", 1))
    before = session.queue
    before.store.fence(OSError(5, "the disk failed"))
    connection.heard.clear()
    with pytest.raises(NotFound, match="is closed after a fault"):
        connect(node)

    node.vhost.restart_queue(before)

    assert session.queue is node.vhost.queue("mqtt.c") is not before
    assert session.subscriptions == {"a": Subscription("a", 1)} and connect(node)[1]


def test_messages_of_a_session_are_for_its_client_alone(node):
    session, _, _ = connect(node)

    with pytest.raises(AccessRefused, match="queue 'mqtt.c' in vhost '/' belongs to an MQTT session"):
        session.queue.check_taking()


def test_client_id_whose_name_another_queue_has_is_refused_and_leaves_nothing(node):
    node.vhost.create_queue("mqtt.c", True, False, {})

    for expiry_s in (0, 60):
        with pytest.raises(ResourceLocked, match="queue 'mqtt.c' in vhost '/' is no MQTT session"):
            connect(node, expiry_s=expiry_s)

    assert sessions_of(node).by_client == {}


def test_session_that_cannot_be_made_leaves_nothing(node):
    node.vhost.limits["max-queues"] = 0

    with pytest.raises(PreconditionFailed, match="queue limit in vhost"):
        connect(node)

    assert sessions_of(node).by_client == {} and node.vhost.queues == {}


def test_time_that_cannot_be_recorded_leaves_the_earlier_one(node, monkeypatch):
    session, _, connection = connect(node, expiry_s=60)

    def full(record):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(node.vhost._log, "append", full)
    with pytest.raises(OutOfResources):
        disconnect(node, session, connection, expiry_s=5)
    monkeypatch.undo()

    assert (session.expiry_s, session.queue.arguments["x-expires"], session.connection) == (60, 60_000, None)


def log_of(room, append):
    """An append that takes ``room`` records and no more."""
    taken = []

    def append_if_room(record):
        if len(taken) == room:
            raise OSError(28, "No space left on device")
        taken.append(record)
        return append(record)

    return append_if_room


@pytest.mark.parametrize("room, qos", [(0, 1), (1, 2), (2, 2)])
def test_subscription_changes_whole_or_not_at_all_where_the_disk_is_full(node, monkeypatch, room, qos):
    """Two records; with room for one of them it has changed, and the old binding goes later."""
    session, _, _ = connect(node, expiry_s=60)
    session.subscribe(Subscription("a", 1))
    monkeypatch.setattr(node.vhost._log, "append", log_of(room, node.vhost._log.append))

    refused = None
    try:
        session.subscribe(Subscription("a", 2))
    except OutOfResources as error:
        refused = error
    monkeypatch.undo()

    assert (refused is None, session.subscriptions) == (room > 0, {"a": Subscription("a", qos)})
    assert not session.subscribe(Subscription("a", 0))
    assert session.subscriptions == {"a": Subscription("a", 0)}
    assert len(node.vhost.bindings.to(session.queue)) == 1
    assert session.unsubscribe("a") and session.subscriptions == {}
    assert node.vhost.bindings.to(session.queue) == []


def test_store_that_cannot_be_recorded_is_closed_again(node, monkeypatch):
    opened, open_own = [], node.vhost._factory.open_own
    monkeypatch.setattr(node.vhost._log, "append", log_of(0, None))
    monkeypatch.setattr(
        node.vhost._factory, "open_own", lambda *told: opened.append(open_own(*told)) or opened[-1])
    message = Message()
    message.assign(b"", b"t", b"", b"x", 1)

    with pytest.raises(OutOfResources):
        node.vhost.stores.make("mqtt.wills")

    node.wait(lambda: node.committer.wait() or opened[0][0].failure is not None)
    with pytest.raises(StoreError):
        opened[0][0].append(message)
    monkeypatch.undo()
    made = node.vhost.stores.make("mqtt.wills")
    made.append(message)
    assert (made.failure, made.ready_count) == (None, 1)


def test_sessions_are_in_no_export_and_their_names_are_nobodys_to_declare(node):
    session, _, _ = connect(node)
    session.subscribe(Subscription("a", 1))

    definitions = exported(node.broker)

    assert [definitions[key] for key in ("queues", "exchanges", "bindings")] == [[], [], []]
    with pytest.raises(AccessRefused, match="reserved prefix 'mqtt.*'"):
        node.vhost.declare_queue("mqtt.d")


def test_deleted_vhost_ends_its_sessions(node):
    vhost = node.broker.create_vhost("v")
    connection = Connection()
    session, _, _ = vhost.extras[EXTRA].connect(connection, "c", "guest", False, NEVER, 5)

    node.broker.delete_vhost("v")
    node.wait(lambda: not node.broker.leaving, what="the vhost is not gone")

    assert (connection.heard, session.connection) == (["vhost 'v' deleted"], None)
