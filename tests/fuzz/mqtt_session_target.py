"""Fuzz target of the MQTT door: one client behind its login publishes, acknowledges and releases, in any
order and cut anywhere, while queues fill up, alarms come and go, and the disk is done, or refuses.
"""
import errno
import os
import shutil
import tempfile
from functools import cache

from gomq_py.content import forms
from gomq_py.mqtt.server.server import MQTTServer
from gomq_py.mqtt.wire import crossing
from gomq_py.mqtt.wire.codec import PacketReader
from gomq_py.mqtt.wire.constants import MQTT_3_1_1, MQTT_5, SERVER
from tests.fuzz.target import Draw, Target, errors_logged
from tests.support.door import Door, poll_the_loop
from tests.support.mqtt_bench import MQTTBench
from tests.support.mqtt_publishing import bound, publish

forms.register(crossing.MQTTForm())

REFUSAL = "the disk refuses"
FAULT = "a fault of the broker"
VERSIONS = (MQTT_5, MQTT_3_1_1)
TOPICS = (b"a/b", b"full", b"none", b"$SYS/x", b"", b"a/#", b"\xff", b"t" * 256, b"h/x")
PROPERTIES = (
    b"", b"\x02\x00\x00\x00\x3c", b"\x01\x01", b"\x23\x00\x01", b"\x23\x00\x11", b"\x26\x00\x01k\x00\x01v",
    b"\x0b\x01", b"\x08\x00\x01r\x09\x00\x01\xff")
BODIES = (b"", b"x", b"\xff", b"y" * 300, b"z" * 200_000)
PUBLISH, ACKNOWLEDGE, RAW, SUBSCRIBE, READ, CUT, TURN, FLUSHED, REFUSED, STUCK, ALARM, OVER = range(12)


@cache
def _server():
    """A broker of this process, which every input finds as the one before did."""
    import atexit
    folder = tempfile.mkdtemp(prefix="gomq-fuzz.", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    atexit.register(shutil.rmtree, folder, True)
    door = Door(folder, manual=True, max_unfinished_bodies=300_000)
    return MQTTServer(door.broker, door.settings, door.hub), door


def run_session(data):
    """Every answer is a packet of the protocol, no fault of ours is among the errors, and at the end nothing
    of the session is left.
    """
    server, door = _server()
    draw = Draw(data)
    version = draw.choice(VERSIONS)
    with errors_logged() as errors:
        bound(door, "a.#", "kept", durable=True)
        bound(door, "full", "full", x_max_length=1, x_overflow="reject-publish")
        bench = MQTTBench(server, version, is_slow=bool(draw.octet() & 1))
        _play(server, door, bench, draw)
        bench.socket.stuck = False
        server.hub.clients.alarmed(None)
        _settle(door)
        answers = bench.take()
        bench.close()
        _settle(door)
        for name in list(door.vhost.queues):
            door.vhost.delete_queue(name, owner=door.vhost.queues[name].exclusive_owner)
        for topic, _ in list(door.vhost.extras["mqtt"].retained.topics(0)):
            door.vhost.extras["mqtt"].retained.delete(topic)
        _settle(door)
    reader = PacketReader(version, SERVER)
    reader.feed(answers)
    while reader.next_packet() is not None:
        pass
    assert FAULT not in bench.connection.why, (bench.connection.why, errors)
    assert not [text for text in errors if REFUSAL not in text], errors
    assert not door.hub.clients and not door.hub.bodies.held and not door.committer.waiting


def _play(server, door, bench, draw):
    pending, steps = bytearray(), 0
    while draw and steps < 200:
        steps += 1
        what = draw.octet() % (OVER + 1)
        if what == PUBLISH:
            flags = draw.octet()
            qos = flags & 3
            pending += publish(
                draw.choice(TOPICS), draw.choice(BODIES), qos, draw.octet() % 4, bench.connection.version,
                bool(flags & 4), bool(flags & 8), draw.choice(PROPERTIES))
        elif what == ACKNOWLEDGE:
            kind = draw.choice((0x62, 0x40, 0x50, 0x70))
            pending += bytes((kind, 2, 0, draw.octet() % 4))
        elif what == RAW:
            pending += draw.octets(draw.octet() % 16)
        elif what == SUBSCRIBE:
            no_properties = b"\x00" if bench.connection.version == MQTT_5 else b""
            body = b"\x00\x09" + no_properties + b"\x00\x01#" + bytes((draw.octet() % 3,))
            pending += b"\x82" + bytes((len(body),)) + body
        else:
            size = max(1, draw.octet() * 32) if what == CUT else len(pending)
            while pending and bench.read(bytes(pending[:min(size, 65536)])):
                del pending[:min(size, 65536)]
            _world(server, door, bench, what)


def _world(server, door, bench, what):
    if what == TURN:
        poll_the_loop()
    elif what == FLUSHED:
        door.committer.finish()
    elif what == REFUSED:
        door.committer.finish(OSError(errno.EIO, REFUSAL))
    elif what == STUCK:
        bench.socket.stuck = not bench.socket.stuck
    elif what == ALARM:
        server.hub.clients.alarmed(REFUSAL)
    elif what == OVER:
        server.hub.clients.alarmed(None)


def _settle(door):
    """Let the loop and the disk do what is left to do."""
    for _ in range(200):
        poll_the_loop()
        if not door.committer.finish() and not door.broker.scheduler.is_armed():
            return
    raise AssertionError("the broker does not come to rest")


def _publish(topic=b"a/b", body=b"x", flags=0, identifier=1, properties=b""):
    return bytes((
        PUBLISH, flags, TOPICS.index(topic), BODIES.index(body), identifier, PROPERTIES.index(properties)))


def sample_sessions():
    """Each kind of step, in both versions and both lanes."""
    for head in (b"\x00\x00", b"\x00\x01", b"\x01\x00", b"\x01\x01"):
        for qos in range(3):
            yield head + _publish(flags=qos) * 2 + bytes(
                (READ, FLUSHED, TURN, ACKNOWLEDGE, 0, 1, READ, FLUSHED))
            yield head + _publish(flags=qos | 4) + _publish(b"none", flags=qos) + bytes((READ, REFUSED))
            yield head + _publish(b"full", flags=qos) * 2 + bytes((CUT, 0, TURN, FLUSHED))
            yield head + bytes((SUBSCRIBE, qos)) + _publish(flags=qos) + bytes(
                (READ, FLUSHED, TURN, ALARM)) + _publish(flags=qos) + bytes(
                (READ, OVER, TURN, STUCK, READ, STUCK))
            yield head + _publish(body=BODIES[-1], flags=qos) + bytes((CUT, 255, TURN, READ, FLUSHED))
        for topic in TOPICS:
            yield head + _publish(topic, flags=1) + bytes((READ, FLUSHED))
        for properties in PROPERTIES:
            yield head + _publish(properties=properties, flags=2) * 2 + bytes((READ, FLUSHED))
        yield head + bytes((RAW, 4, 0x30, 2, 0, 0, READ))


TARGETS = {"mqtt_session": Target(run_session, sample_sessions, 600)}
