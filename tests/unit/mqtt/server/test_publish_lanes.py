"""The two lanes of publishing over MQTT give equal answers: stored octets, packets and ends.

The same octets go to two brokers. In one of them every PUBLISH goes to the slow lane; nothing else differs.
What is drawn holds ordinary publishes as well as odd and malformed ones, in any cut.
"""
import gevent
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gomq_py.content import forms
from gomq_py.mqtt.server.server import MQTTServer
from gomq_py.mqtt.wire import crossing
from gomq_py.mqtt.wire.codec import PacketReader
from gomq_py.mqtt.wire.constants import DISCONNECT, PUBACK, SERVER
from tests.support.door import Door
from tests.support.mqtt_bench import MQTTBench
from tests.support.mqtt_publishing import bound, drained, publish
from tests.support.waiting import wait_until

forms.register(crossing.MQTTForm())

QUEUES = ("kept", "all", "some", "full", "heads")
TOPICS = (
    b"a/b", b"a/b", b"a.b", b"a", b"full", b"h/x", b"\xc3\xa4/b", b"none", b"$SYS/x", b"t" * 255, b"t" * 256)
ODD_TOPICS = (b"a/#", b"", b"\xff", b"a\x00", b"a\x01")
PROPERTIES = (
    b"", b"", b"\x02\x00\x00\x00\x3c", b"\x02\x00\x00\x00\x00", b"\x02\xff\xff\xff\xff",
    b"\x26\x00\x01k\x00\x01v",
    b"\x01\x00", b"\x01\x01", b"\x03\x00\x01t", b"\x08\x00\x01r", b"\x09\x00\x01\xff", b"\x23\x00\x01",
    b"\x23\x00\x02")
ODD_PROPERTIES = (b"\x23\x00\x00", b"\x23\x00\x11", b"\x0b\x01", b"\x01\x02", b"\x02\x00", b"\x26\x00")
RELEASES = (b"\x62\x02\x00\x01", b"\x62\x02\x00\x02", b"\x40\x02\x00\x01")
# The largest that is taken, and one that is not.
LARGEST = 400
LARGE = (b"x" * LARGEST, b"x" * (LARGEST + 1))
END = 0xFFFF


@st.composite
def good_packets(draw, version):
    """A PUBLISH with nothing wrong with it, or a PUBREL."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from(RELEASES[:2]))
    properties = b"".join(dict.fromkeys(draw(st.lists(st.sampled_from(PROPERTIES), max_size=3))))
    qos = draw(st.integers(0, 2))
    return publish(
        draw(st.sampled_from(TOPICS[:8])), draw(st.binary(max_size=4) | st.sampled_from(LARGE)), qos,
        draw(st.integers(1, 3)), version, draw(st.booleans()) and draw(st.booleans()),
        qos > 0 and draw(st.booleans()), properties)


@st.composite
def odd_packets(draw, version):
    """One with something unusual or wrong in it."""
    properties = draw(st.sampled_from(PROPERTIES)) + draw(st.sampled_from((b"", *ODD_PROPERTIES)))
    octets = publish(
        draw(st.sampled_from((*TOPICS, *ODD_TOPICS))), draw(st.binary(max_size=4)), draw(st.integers(0, 3)),
        draw(st.integers(0, 3)), version, draw(st.booleans()), draw(st.booleans()), properties)
    return octets + draw(st.sampled_from((b"", b"", *RELEASES)))


def streams(version):
    """(version, parts): the octets of each read."""
    packets = st.tuples(
        st.lists(good_packets(version), max_size=8), st.lists(odd_packets(version), max_size=2),
        st.lists(good_packets(version), max_size=3),
    ).map(lambda drawn: b"".join(one for each in drawn for one in each))
    return st.tuples(st.just(version), packets, st.integers(1, 600))


class Broker:
    """With queues for every kind of route."""

    def __init__(self, folder, is_slow):
        self.door = Door(folder, max_message_size=LARGEST)
        self.server = MQTTServer(self.door.broker, self.door.settings, self.door.hub)
        self.is_slow = is_slow
        self.queues = [
            bound(self.door, "#", "all"), bound(self.door, "a.#", "kept", durable=True),
            bound(self.door, "*.b", "some"),
            bound(self.door, "full.#", "full", x_max_length=1, x_overflow="reject-publish")]
        vhost = self.door.vhost
        heads = vhost.create_queue("heads", False, False, {}, None)
        vhost.bindings.attach(vhost.exchange("amq.headers"), heads, "", {"x-match": "any", "k": "v"})
        vhost.bindings.attach(vhost.exchange("amq.topic"), vhost.exchange("amq.headers"), "h.#", {})
        self.queues.append(heads)

    def outcome(self, version, octets, size):
        """What a client hears, and what is stored."""
        bench = MQTTBench(self.server, version, self.is_slow)
        for at in range(0, len(octets), size):
            self.read(bench, octets[at:at + size])
        self.read(bench, publish(b"none", b"", 1, END, version))
        heard, ended = self.hear(bench, version)
        counts = (
            sum(one.publishes for one in bench.connection.publishers()),
            bench.connection.inbound.received.count)
        bench.close()
        retained = self.door.vhost.extras["mqtt"].retained
        kept = [list(retained.topics(0))]
        for topic, _ in kept[0]:
            retained.delete(topic)
        return heard, ended, counts, [drained(queue) for queue in self.queues], kept

    def read(self, bench, octets):
        """One read, and another of what a pause has left."""
        while True:
            wait_until(lambda: not bench.connection.stream.paused, sleep=gevent.sleep)
            if not bench.read(octets) or not bench.connection.stream.paused:
                return
            octets = b""

    def hear(self, bench, version):
        """Packets up to the answer to the last publish, or the end."""
        reader, heard = PacketReader(version, SERVER), []

        def is_answered():
            reader.feed(bench.take())
            while (packet := reader.next_packet()) is not None:
                heard.append(packet)
            last = heard[-1] if heard else None
            return bench.connection.state != "open" or (
                last is not None and last.TYPE == PUBACK and last.packet_identifier == END)

        wait_until(is_answered, what="the answer to the last publish", sleep=gevent.sleep)
        if bench.connection.state != "open":
            # what was to wait for the disk is heard or not
            return [repr(one) for one in heard if one.TYPE == DISCONNECT], bench.connection.why
        return [repr(one) for one in heard], False


def test_both_lanes_answer_and_store_the_same(tmp_path):
    fast, slow = Broker(tmp_path / "fast", False), Broker(tmp_path / "slow", True)

    @settings(max_examples=150)
    @given(streams(4) | streams(5))
    @example((5, publish(b"a/b", b"x", 1, 1, 5) * 2, 3))
    @example((4, publish(b"full", b"x", 1, 1) * 2, 100))
    @example((4, publish(b"a/b", LARGE[0]) + publish(b"a/b", LARGE[1]), 1000))
    @example((5, publish(b"a/b", LARGE[1], 2, 1, 5) * 2 + RELEASES[0], 1000))
    @example((5, publish(b"full", b"x", 2, 1, 5) * 2 + RELEASES[0], 100))
    def compare(stream):
        assert fast.outcome(*stream) == slow.outcome(*stream)

    with fast.door, slow.door:
        compare()
