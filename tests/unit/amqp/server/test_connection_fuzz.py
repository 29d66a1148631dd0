"""Whatever a client sends, however it is cut, the server answers with a code of the protocol, lives, and
holds nothing of it afterwards.

Streams are drawn from whole methods with likely and unlikely fields, frames of any kind, and plain octets.
541 and errors in the log are faults of ours.
"""
import gevent
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gomq_py.amqp.wire.frames import (
    BIT, FRAME_METHOD, LONG, LONGLONG, LONGSTR, OCTET, SHORT, SHORTSTR, TABLE, frame, header_payload,
    method_frame,
)
from gomq_py.amqp.wire.methods import (
    METHODS, ChannelClose, ConnectionClose, QueueDeclare, QueueDeclareOk, decode_method,
)
from tests.support.door import Door, publish_frames
from tests.support.waiting import wait_until

INTERNAL_ERROR = 541
names = st.sampled_from([
    "", "q", "q", "amq.direct", "amq.topic", "amq.rabbitmq.reply-to", "direct", "topic", "#", "n\n", "\u00fc",
    "x" * 255,
])
keys = st.sampled_from([
    "x-message-ttl", "x-max-length", "x-max-priority", "x-priority", "alternate-exchange", "x-match",
    "x-expires", "a",
])
values = st.one_of(
    st.integers(-2, 2**40), names, st.booleans(), st.none(), st.lists(st.integers(0, 3), max_size=2)
)
arguments = st.dictionaries(keys, values, max_size=2)
VALUES = {
    OCTET: st.integers(0, 255), SHORT: st.sampled_from([0, 1, 2, 65535]),
    LONG: st.sampled_from([0, 0, 1, 2**32 - 1]),
    LONGLONG: st.sampled_from([0, 1, 2, 3, 2**64 - 1]), BIT: st.booleans(), SHORTSTR: names,
    LONGSTR: st.binary(max_size=4), TABLE: arguments,
}
CHANNELS = st.sampled_from([1, 1, 1, 1, 2, 0, 65535])
# Passing the connection's end is drawn seldom: behind it there is nothing to see.
CLASSES = [method for method in METHODS.values() if method.ID >> 16 != 10] * 3 + list(METHODS.values())


@st.composite
def methods(draw):
    """A method frame with fields of the right kinds."""
    method_class = draw(st.sampled_from(CLASSES))
    return method_frame(
        draw(CHANNELS), method_class(**{name: draw(VALUES[kind]) for name, kind in method_class.FIELDS})
    )


exchanges = st.sampled_from(["", "amq.direct", "amq.topic", "nope"])
contents = st.tuples(names, st.binary(max_size=20), exchanges).map(lambda drawn: publish_frames(*drawn))
headers = st.tuples(st.integers(0, 10), st.binary(max_size=6)).map(
    lambda drawn: frame(2, 1, header_payload(drawn[1], drawn[0]))
)
frames = st.tuples(st.sampled_from([1, 1, 2, 3, 8, 9, 0]), CHANNELS, st.binary(max_size=30)).map(
    lambda drawn: frame(*drawn)
)
cut_methods = st.tuples(methods(), st.integers(1, 20)).map(
    lambda drawn: frame(1, 1, drawn[0][7:-1][:-drawn[1]])
)
streams = st.tuples(
    st.lists(methods() | methods() | contents, max_size=12),
    st.lists(methods() | headers | frames | cut_methods | st.binary(max_size=20), max_size=4),
).map(lambda drawn: b"".join(drawn[0] + drawn[1]))


def converse(door, octets, cuts):
    """Send a stream in pieces from a new client that then hangs up;
    returns the codes of the closes it was told.
    """
    client = door.client()
    at = 0
    for cut in sorted(cuts):
        client.send(octets[at:cut])
        gevent.sleep(0)
        at = max(at, cut)
    client.send(octets[at:])
    client.socket.shutdown(1)
    codes = []
    while (heard := client.frame()) is not None:
        if heard[0] == FRAME_METHOD:
            method = decode_method(heard[2])
            if isinstance(method, (ChannelClose, ConnectionClose)):
                codes.append(method.reply_code)
    client.close()
    return codes


def test_any_stream_is_answered_by_the_protocol(tmp_path, caplog):
    with Door(tmp_path) as door:
        other = door.client()

        @settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(streams, st.lists(st.integers(0, 400), max_size=3))
        def compare(octets, cuts):
            codes = converse(door, octets, cuts)

            assert INTERNAL_ERROR not in codes
            assert not [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
            other.call(QueueDeclare(queue="the other's"), QueueDeclareOk)
            wait_until(lambda: len(door.hub.clients) == 1, sleep=gevent.sleep)
            assert not door.hub.bodies.held

        compare()
