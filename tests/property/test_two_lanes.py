"""The two lanes of publish give equal answers: what one stores, confirms, returns or refuses,
the other does, octet for octet.

The same publishes go to a running broker twice. In the first pass the frames of each follow one another, so
that the fast lane may take it; in the second a heartbeat stands between method and header, which is legal on
channel 0 and hands the publish to the slow lane. Compared are every frame the broker sends on the channel (or
the connection's end), confirms by the tags they cover, and what basic.get then finds in each queue.
"""
import struct
from datetime import datetime, timezone

import pytest
from hypothesis import given, strategies as st

from gomq_py.content.properties import Properties
from tests.support import wire_encoding as encoding
from tests.support.lanes import content_header, frame, publish_method
from tests.support.waiting import wait_until
from tests.support.wire_encoding import METHOD, decode_method
from tests.support.wire_script import Wire

HEARTBEAT = frame(8, 0, b"")
QUEUES = ("lanes.one", "lanes.two", "lanes.transient")
FULL = "lanes.full"
STREAM = "lanes.stream"
LATER = "lanes.later"
DECLARE = encoding.method_frame(2, "queue.declare", queue="lanes.one", durable=True)
END = ("the end",)


@pytest.fixture(scope="module")
def address(shared_broker):
    wire = Wire.open(("127.0.0.1", shared_broker.port))
    channel = wire.channel()
    for queue in QUEUES:
        channel.declare(queue, durable=queue != "lanes.transient", auto_delete=queue == "lanes.transient")
    channel.declare(FULL, durable=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    channel.declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
    for type_ in ("direct", "fanout", "topic", "headers"):
        channel.call("exchange.declare", exchange=f"lanes.{type_}", type=type_)
        for queue, key in zip((*QUEUES[:2], FULL), ("a.b", "#", "full"), strict=True):
            if type_ != "fanout" or queue != FULL:
                channel.call(
                    "queue.bind", queue=queue, exchange=f"lanes.{type_}", routing_key=key,
                    arguments={"a": 1} if type_ == "headers" else {},
                )
        channel.call(
            "queue.bind", queue=STREAM, exchange=f"lanes.{type_}", routing_key="a.b",
            arguments={"a": 1} if type_ == "headers" else {},
        )
    channel.declare(LATER, durable=True)
    channel.call("exchange.declare", exchange="lanes.delayed", type="x-delayed-message",
                 arguments={"x-delayed-type": "topic"})
    channel.call("queue.bind", queue=LATER, exchange="lanes.delayed", routing_key="#")
    channel.call("exchange.declare", exchange="lanes.internal", type="fanout", internal=True)
    # as a broker downstream declares and binds them
    channel.call("exchange.declare", exchange="lanes.federated", type="fanout")
    channel.call("exchange.declare", exchange="lanes.between", type="x-federation-upstream", arguments={
        "x-max-hops": 2, "x-downstream-name": "there", "x-downstream-vhost": "/"})
    channel.call("exchange.bind", destination="lanes.between", source="lanes.federated")
    channel.call("queue.bind", queue=QUEUES[0], exchange="lanes.between")
    yield "127.0.0.1", shared_broker.port
    for queue in (*QUEUES, FULL, STREAM, LATER):
        channel.call("queue.delete", queue=queue)
    channel.call("exchange.delete", exchange="lanes.delayed")
    wire.close()


class Pass:
    """One connection with its publishes in one of the lanes.

    ``outcome`` holds what the broker said, in order, ``confirmed`` its answer to each publish.
    """

    def __init__(self, address, slow):
        self.address = address
        self.wire = None
        self.slow = slow
        self.outcome = []
        self.confirmed = {}
        self.is_cut_short = False  # the channel or the connection was closed by an error

    def run(self, confirming, publishes):
        self.wire = Wire.open(self.address)
        channel = self.wire.channel(1)
        if confirming:
            channel.call("confirm.select")
        for publish in publishes:
            self.wire.send(self.frames(**publish))
        # Declaring something durable is answered once the disk has all that was marked before. Confirms of
        # the same read may come just behind the first answer; nothing comes behind the second.
        self.wire.send(encoding.method_frame(2, "channel.open") + DECLARE)
        self.read_until_declared()
        self.read_until_declared()
        return self.outcome, self.drain()

    def frames(self, exchange, routing_key, bits, properties, body, announced, parts):
        between = HEARTBEAT if self.slow else b""
        size = len(body) if announced is None else announced
        at = len(body) // parts if parts else 0
        bodies = [body] if parts == 1 else [body[:at], body[at:]]
        return (
            publish_method(exchange, routing_key, bits) + between + content_header(size, properties)
            + b"".join(frame(3, 1, part) for part in bodies if part))

    def read_until_declared(self):
        while self.outcome[-1:] != [END]:
            try:
                type_, number, payload = self.wire.next_frame()
            except Exception as end:
                self.outcome += [("end", type(end).__name__), END]
                break
            method = decode_method(payload) if type_ == METHOD else None
            if number == 2 and method.name == "queue.declare-ok":
                self.wire.send(DECLARE)
                break
            if number == 2:
                continue
            if method is not None and method.name in ("basic.ack", "basic.nack") and number == 1:
                first = 1 if method.multiple else method.delivery_tag
                for tag in range(first, method.delivery_tag + 1):
                    self.confirmed.setdefault(tag, method.name)
            elif method is not None and number == 0:
                self.outcome.append((
                    "closed", method.reply_code, method.reply_text, method.failing_class,
                    method.failing_method,
                ))
                self.outcome.append(END)
            else:
                self.is_cut_short |= method is not None and method.name == "channel.close"
                self.outcome.append((type_, number, payload))
        self.is_cut_short |= END in self.outcome

    def drain(self):
        """What is in the queues, and the queues empty again."""
        self.wire.abort()
        wire = Wire.open(self.address)
        channel = wire.channel()
        found = {}
        for queue in (*QUEUES, FULL):
            found[queue] = []
            while (content := channel.get(queue)) is not None:
                method = content.method
                found[queue].append((
                    method.exchange, method.routing_key, method.redelivered, content.property_octets,
                    content.body,
                ))
        found[LATER] = self.drain_later(channel)
        found[STREAM] = self.drain_stream(channel)
        wire.close()
        return found

    def drain_later(self, channel):
        """What was delayed and not delayed, in no order: the time between two publishes is not the same in
        both passes. What is to wait for long is not among it.
        """
        # It goes on behind all that are to wait for as long or less.
        channel.publish("lanes.delayed", "last", b"", encoding.properties(headers={"x-delay": 2}))
        found = []
        while (content := wait_until(lambda: channel.get(LATER))).method.routing_key != "last":
            found.append((
                content.method.exchange, content.method.routing_key, content.method.redelivered,
                content.property_octets, content.body))
        return sorted(found)

    def drain_stream(self, channel):
        """What is in the stream, with offsets from the first of them on:
        in the header they are the last nine octets of the table.
        """
        count = channel.call("queue.declare", queue=STREAM, passive=True).message_count
        channel.call("basic.qos", prefetch_count=1000)
        if count:
            channel.consume(STREAM, arguments={"x-stream-offset": "first"})
        found, first = [], 0
        for number in range(count):
            content = channel.expect_content("basic.deliver")
            offset = Properties.decode(content.property_octets).headers["x-stream-offset"]
            first = offset if number == 0 else first
            described = content.property_octets.replace(
                struct.pack(">cq", b"l", offset), struct.pack(">cq", b"l", offset - first)
            )
            found.append((content.method.exchange, content.method.routing_key, described, content.body))
        channel.call("queue.purge", queue=STREAM)
        return found


TEXT = st.sampled_from(["", "x", "guest", "5", "amq.rabbitmq.reply-to", "é" * 20])
BEEN = st.dictionaries(
    st.sampled_from(["cluster-name", "vhost", "uri"]), st.sampled_from(["there", "/", "x"]), max_size=3)
HEADERS = st.dictionaries(
    st.sampled_from(["a", "b", "CC", "BCC", "cc", "x-match", "x-received-from"]),
    st.one_of(
        st.integers(-2 ** 40, 2 ** 40), st.just(1), st.text(max_size=5),
        st.lists(st.sampled_from(["a.b", "full", "zz"]), max_size=2), st.lists(BEEN, max_size=3),
    ),
    max_size=3)
# None that would come while another example runs.
DELAYS = st.dictionaries(
    st.sampled_from(["x-delay", "x-deliver-at"]),
    st.sampled_from([
        2, 1, 0, -5, 10 ** 10, "1", "-1", 1.5, True, [1], datetime(2001, 2, 3, tzinfo=timezone.utc)]),
    max_size=2)
PROPERTIES = st.one_of(
    st.just(b"\0\0"),
    st.fixed_dictionaries({}, optional={
        "content_type": TEXT, "headers": st.builds(lambda one, other: {**one, **other}, HEADERS, DELAYS),
        "delivery_mode": st.sampled_from([0, 1, 2, 2, 3, 255]),
        "priority": st.integers(0, 255),
        "correlation_id": TEXT, "reply_to": TEXT,
        "expiration": st.sampled_from(["60000", "0x", "-1", "", "99999999999999999"]), "message_id": TEXT,
        "timestamp": st.integers(0, 2 ** 63), "type": TEXT,
        "user_id": st.sampled_from(["guest", "mallory", ""]), "app_id": TEXT,
        "cluster_id": TEXT,
    }).map(lambda values: encoding.properties(**values)),
    # flags and octets that may or may not fit together
    st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=12)).map(
        lambda pair: struct.pack(">H", pair[0]) + pair[1]
    ),
    st.binary(max_size=3),
)
PUBLISH = st.fixed_dictionaries({
    "exchange": st.sampled_from([
        b"", b"", b"lanes.direct", b"lanes.topic", b"lanes.fanout", b"lanes.headers", b"lanes.internal",
        b"lanes.federated", b"lanes.delayed", b"lanes.delayed",
        b"amq.direct", b"missing", b"\xff", b"lanes.topic\r\n"]),
    "routing_key": st.sampled_from([
        b"lanes.one", b"lanes.transient", b"lanes.stream", b"a.b", b"full", b"", b"nowhere", b"k" * 255,
        b"\xfe\xff", b"lanes.one\n", b"a..b"]),
    "bits": st.sampled_from([0, 0, 0, 0, 1, 2, 3, 0xFC]),
    "properties": PROPERTIES,
    "body": st.one_of(st.binary(max_size=10), st.just(b"x" * 5000)),
    "announced": st.sampled_from([None] * 8 + [0, 3, 2 ** 40, 2 ** 63]),
    "parts": st.sampled_from([1, 1, 1, 2]),
})


@given(confirming=st.booleans(), publishes=st.lists(PUBLISH, min_size=1, max_size=4))
def test_both_lanes_answer_alike(address, confirming, publishes):
    fast, slow = Pass(address, False), Pass(address, True)

    assert fast.run(confirming, publishes) == slow.run(confirming, publishes)

    # whether a confirm is still sent before an error is a matter of time, what it says is not
    if fast.is_cut_short:
        both = fast.confirmed.keys() & slow.confirmed.keys()
        assert {tag: fast.confirmed[tag] for tag in both} == {tag: slow.confirmed[tag] for tag in both}
    else:
        assert fast.confirmed == slow.confirmed
