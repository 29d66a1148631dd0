"""The two lanes of publishing give equal answers: stored octets, returns, confirms, codes, texts and frames.

The same frames go to two doors. In one of them the fast lane finds no route and so hands everything to the
slow lane; nothing else differs. What is drawn holds ordinary messages as well as odd and malformed ones.
"""
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gomq_py.amqp.wire.frames import FRAME_METHOD, frame, header_payload, method_frame
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicNack, BasicPublish, ChannelClose, ConfirmSelect, ConfirmSelectOk, ConnectionClose,
    ExchangeDeclare, ExchangeDeclareOk, QueueBind, QueueBindOk, QueueDeclare, QueueDeclareOk, TxCommit,
    TxCommitOk, decode_method,
)
from gomq_py.content.properties import Properties
from gomq_py.hub import turns
from gomq_py.storage.message import Message
from tests.support.door import Door

QUEUES = ("q", "long", "topical", "fan", "heads")
EXCHANGES = ("", "", "amq.topic", "amq.fanout", "amq.headers", "amq.direct")
KEYS = ("q", "q", "long", "nowhere", "a.b", "a.b.c", "", "k" * 255)

texts = st.sampled_from(["", "x", "60000", "\u00fc" * 20])
odd_texts = st.sampled_from(["amq.", "amq.rabbitmq.reply-to", "-1", "1.5", "guest", "bob"])
header_values = st.recursive(
    st.none() | st.booleans() | st.integers(
        -2**63, 2**63 - 1
    ) | st.floats(allow_nan=False) | texts | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
headers = st.dictionaries(st.sampled_from(["kind", "x", "x-delay"]), header_values, max_size=3)
copies = st.dictionaries(
    st.sampled_from(["CC", "BCC", "kind"]), st.just(["q", "fan"]) | st.just(["long", 1]) | header_values,
    min_size=1,
)
ordinary = {
    "content_type": texts, "headers": headers, "delivery_mode": st.sampled_from([1, 2]),
    "priority": st.integers(0, 255), "correlation_id": texts,
    "reply_to": texts, "message_id": texts, "timestamp": st.integers(0, 2**64 - 1), "type": texts,
    "app_id": texts, "cluster_id": texts,
}
odd = {
    "headers": copies, "delivery_mode": st.sampled_from([0, 2, 3]),
    "expiration": st.just("60000") | odd_texts,
    "user_id": st.just("guest") | odd_texts, "reply_to": odd_texts,
}


def wire_form(fields):
    return st.fixed_dictionaries({}, optional=fields).map(lambda values: Properties(**values).encode())


damaged = st.tuples(wire_form(ordinary), st.integers(0, 30), st.binary(max_size=2)).map(
    lambda drawn: drawn[0][:drawn[1]] + drawn[2]
)


@st.composite
def good_publishes(draw):
    """The frames of one publish that has nothing wrong with it."""
    bits = draw(st.sampled_from([{}, {}, {"mandatory": True}]))
    method = BasicPublish(
        exchange=draw(st.sampled_from(EXCHANGES)), routing_key=draw(st.sampled_from(KEYS)), **bits
    )
    body = draw(st.binary(max_size=40) | st.just(bytes(5000)))
    properties = draw(st.just(b"\0\0") | wire_form(ordinary))
    return join(method, properties, body, cut=draw(st.sampled_from([4088, 4088, 3000])))


@st.composite
def odd_publishes(draw):
    """The frames of one publish with something unusual or wrong in it."""
    method = BasicPublish(
        exchange=draw(st.sampled_from((*EXCHANGES, "inner", "nope"))),
        routing_key=draw(st.sampled_from((*KEYS, "amq.rabbitmq.reply-to.x"))),
        immediate=draw(st.sampled_from([False] * 7 + [True])))
    properties = draw(wire_form(odd) | wire_form(odd) | damaged)
    body = draw(st.just(b"") | st.just(b"body"))
    wrong = draw(st.sampled_from(["", "", "", "long", "short", "class", "drop", "swap", "channel"]))
    frames = join(
        method, properties, body, cut=draw(st.sampled_from([4088, 3])),
        size=len(body) + {"long": 1, "short": -1}.get(wrong, 0), class_id=50 if wrong == "class" else 60,
        whole=False)
    if wrong == "drop":
        del frames[draw(st.integers(0, len(frames) - 1))]
    elif wrong == "swap":
        frames.reverse()
    elif wrong == "channel":
        frames[-1] = frames[-1][:1] + b"\0\7" + frames[-1][3:]
    return b"".join(frames)


def join(method, properties, body, cut, size=None, class_id=60, whole=True):
    """A publish's frames, the body in pieces of ``cut`` octets; as octets, or (not ``whole``) one by one."""
    size = len(body) if size is None else max(size, 0)
    frames = [method_frame(1, method), frame(2, 1, header_payload(properties, size, class_id))]
    frames.extend(frame(3, 1, body[at:at + cut]) for at in range(0, len(body), cut))
    return b"".join(frames) if whole else frames


publishes = st.tuples(
    st.lists(good_publishes(), max_size=6), st.lists(odd_publishes(), max_size=2),
    st.lists(good_publishes(), max_size=2),
).map(
    lambda drawn: b"".join(part for parts in drawn for part in parts))


def set_up(door):
    """Exchanges, queues and bindings for every kind of route."""
    client = door.client()
    client.call(ExchangeDeclare(exchange="inner", type="fanout", internal=True), ExchangeDeclareOk)
    for queue in QUEUES:
        client.call(QueueDeclare(queue=queue, durable=queue == "long"), QueueDeclareOk)
    for queue, exchange, key, arguments in (
        ("topical", "amq.topic", "a.#", {}), ("q", "amq.topic", "*.b", {}), ("fan", "amq.fanout", "", {}),
        ("long", "amq.fanout", "", {}),
        ("heads", "amq.headers", "", {"x-match": "any", "kind": "x"}), ("q", "amq.direct", "q", {}),
    ):
        client.call(
            QueueBind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments), QueueBindOk
        )
    client.close()


def outcome(door, octets, slow):
    """What the publisher hears and what the queues hold after ``octets``; every publish's answer by its
    number, whatever was coalesced.
    """
    client = door.client(frame_max=4096)
    connection = list(door.hub.clients)[-1]
    if slow:
        connection.route = lambda exchange, routing_key, entry=b"": None
    client.call(ConfirmSelect(), ConfirmSelectOk)
    # commit on a channel without a transaction is refused, which ends every run that nothing else has ended,
    # and marks that all was heard
    client.send(octets, method_frame(1, TxCommit()))
    heard, confirmed = [], {}
    while True:
        kind, number, payload = client.frame()
        if kind != FRAME_METHOD:
            heard.append((kind, number, payload))
            continue
        method = decode_method(payload)
        if isinstance(method, (BasicAck, BasicNack)):
            first = max(confirmed, default=0) + 1 if method.multiple else method.delivery_tag
            confirmed.update((tag, type(method)) for tag in range(first, method.delivery_tag + 1))
            continue
        heard.append((kind, number, payload))
        if isinstance(method, (ChannelClose, ConnectionClose, TxCommitOk)):
            break
    client.close()
    return heard, confirmed, {queue: drain(door.queue(queue)) for queue in QUEUES}


def drain(queue):
    """Every message of a queue, without what depends on time and place."""
    found, message = [], Message()
    while queue.get(message, True):
        described = message.describe()
        if described["expires_at_ms"]:
            described["expires_at_ms"] -= described["timestamp_ms"]
        del described["timestamp_ms"], described["location"]
        found.append((
            message.get_exchange(), message.get_routing_key(), message.get_properties(), message.get_body(),
            described,
        ))
    return found


def test_both_lanes_answer_and_store_the_same(tmp_path, monkeypatch):
    # Where a walk breaks off for others' sake, confirms leave earlier,
    # and so before an error that would swallow them.
    monkeypatch.setattr(turns, "WALK_S", 60)
    with Door(tmp_path / "fast") as fast, Door(tmp_path / "slow") as slow:
        set_up(fast)
        set_up(slow)

        @settings(max_examples=300)
        @given(publishes)
        @example(method_frame(1, BasicPublish(routing_key="q")) * 2)
        @example(method_frame(1, BasicPublish(routing_key="q")) + frame(3, 1, b"x"))
        @example(method_frame(1, BasicPublish(routing_key="q")) + frame(2, 1, bytes(4)))
        def compare(octets):
            assert outcome(fast, octets, slow=False) == outcome(slow, octets, slow=True)

        compare()
