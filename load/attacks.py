"""Attacks: what hostile or broken clients do to a broker, each for a bounded time.

Run by load.hostile in a process of its own.

Every attack takes an AMQP URL (those of ``MANAGEMENT`` the management API's, of load.mqtt_attacks MQTT's),
the monotonic time at which it has to end, and a scale (1 is the full attack), and answers with a few words on
what became of it. They speak
with plain sockets behind the login, because our client reads what it is sent.
"""
import contextlib
import json
import resource
import select
import socket
import sys
import time
from urllib.parse import urlsplit

from gomq_py.amqp.wire.frames import (
    FRAME_BODY, FRAME_HEADER, PROTOCOL_HEADER, content_frames, frame, header_payload, method_frame,
)
from gomq_py.amqp.wire.methods import BasicPublish, QueueDeclare
from gomq_py.client.connection import Connection
from gomq_py.client.url import parse_url
from load import mqtt_attacks
from load.flood import ready, write_until

NO_PROPERTIES = b"\x00\x00"
PART_OCTETS = 131064


def publish(queue, body):
    """A publish to a queue, as frames on channel 1."""
    return method_frame(1, BasicPublish(routing_key=queue)) + content_frames(1, NO_PROPERTIES, body, 131072)


def logged_in(url, receive_buffer_bytes=0):
    """(socket, connection) with channel 1 open; the connection is kept so that its socket lives."""
    connection = Connection(url, heartbeat_s=0)
    channel = connection.channel(1)
    if receive_buffer_bytes:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    return connection, channel


def dead_consumers(url, ends_at, scale):
    """Consumers that take nothing from their sockets, beside a client that publishes to them without end."""
    publisher, channel = logged_in(url)
    channel.queue_declare("hostile", arguments={"x-max-length": 20_000})
    dead = []
    for _ in range(max(2, int(50 * scale))):
        connection, consuming = logged_in(url, 4096)
        consuming.consume("hostile", no_ack=True)
        dead.append(connection)
    sent, closed = write_until([publisher.socket], publish("hostile", bytes(1024)) * 50, ends_at)
    return (
        f"{len(dead)} consumers, {sent / 1e6:.0f} MB published to them, publisher "
        f"{'closed' if closed else 'served'}"
    )


def slowloris_before_login(url, ends_at, scale):
    """2000 connections that send one byte of their login a second."""
    address = parse_url(url)
    octets = PROTOCOL_HEADER + b"\x01\x00\x00\x00\x00\x10\x00" + bytes(4096)
    ours, at, closed = [], 0, 0
    for _ in range(int(2000 * scale)):
        with contextlib.suppress(OSError):
            ours.append(socket.create_connection((address.host, address.port), timeout=5))
    while time.monotonic() < ends_at:
        alive = []
        for one in ours:
            try:
                one.sendall(octets[at:at + 1])
                alive.append(one)
            except OSError:
                closed += 1
        ours, at = alive, at + 1
        time.sleep(max(0.0, min(1.0, ends_at - time.monotonic())))
    return f"{len(ours) + closed} connections, {closed} closed by the broker meanwhile"


def slowloris_after_login(url, ends_at, scale):
    """200 connections that send one byte of a publish a second."""
    octets = publish("nowhere", bytes(1000))
    ours = [logged_in(url)[0] for _ in range(int(200 * scale))]
    at = 0
    while time.monotonic() < ends_at:
        for one in ours:
            one.socket.send(octets[at:at + 1])
        at += 1
        time.sleep(max(0.0, min(1.0, ends_at - time.monotonic())))
    return f"{len(ours)} connections, none of them closed"


def connection_flood(url, ends_at, scale):
    """10 000 connections that open, greet and go, one after the other and as fast as they can."""
    address, count, refused = parse_url(url), 0, 0
    while count < 10_000 * scale and time.monotonic() < ends_at:
        count += 1
        try:
            with socket.create_connection((address.host, address.port), timeout=5) as one:
                one.sendall(PROTOCOL_HEADER)
        except OSError:
            refused += 1
    return f"{count} opened and closed, {refused} of them failed"


def login_flood(url, ends_at, scale):
    """The same with a whole login and a channel each."""
    count = 0
    while count < 10_000 * scale and time.monotonic() < ends_at:
        count += 1
        with Connection(url, heartbeat_s=0) as connection:
            connection.channel()
    return f"{count} logged in and left"


def unread_confirms(url, ends_at, scale):
    """Publishers in confirm mode that never read a confirm."""
    ours = []
    for _ in range(max(1, int(10 * scale))):
        connection, channel = logged_in(url, 4096)
        channel.queue_declare("hostile", arguments={"x-max-length": 1000})
        channel.confirm_select()
        ours.append(connection.socket)
        keep(connection)
    # One publish per write: else the broker answers a whole read with one octet string of a few confirms.
    sent, closed = write_until(ours, publish("hostile", b"x"), ends_at)
    return f"{len(ours)} publishers, {sent / 1e6:.0f} MB taken, {closed} closed by the broker"


def unread_answers(url, ends_at, scale):
    """Clients that declare a queue again and again and never read an answer."""
    ours = []
    for _ in range(max(1, int(10 * scale))):
        connection, channel = logged_in(url, 4096)
        channel.queue_declare("hostile")
        ours.append(connection.socket)
        keep(connection)
    sent, closed = write_until(
        ours, method_frame(1, QueueDeclare(queue="hostile", passive=True)) * 1000, ends_at
    )
    return f"{len(ours)} clients, {sent / 1e6:.0f} MB taken, {closed} closed by the broker"


def unfinished_bodies(url, ends_at, scale):
    """Publishers that begin messages of 128 MiB and send all but their last bytes."""
    size = 128 * 1024 * 1024
    ours = [logged_in(url)[0] for _ in range(max(4, int(20 * scale)))]
    for one in ours:
        one.socket.send(
            method_frame(1, BasicPublish(routing_key="nowhere"))
            + frame(FRAME_HEADER, 1, header_payload(NO_PROPERTIES, size))
        )
    sent, closed = write_until(
        [one.socket for one in ours], frame(FRAME_BODY, 1, bytes(PART_OCTETS)), ends_at,
        size // PART_OCTETS * (PART_OCTETS + 8))
    return f"{len(ours)} publishers, {sent / 1e6:.0f} MB taken, {closed} closed by the broker"


def unread_large_messages(url, ends_at, scale):
    """Consumers of messages of 16 MiB that take nothing from their sockets."""
    publisher, channel = logged_in(url)
    channel.queue_declare("large")
    channel.confirm_select()
    count = max(4, int(20 * scale))
    for _ in range(count):
        channel.publish("", "large", bytes(16 * 1024 * 1024))
        # so that what the publisher holds of the broker's memory is one message,
        # and gone when the consumers come
        channel.wait_for_confirms()
    dead = []
    for _ in range(count):
        connection, consuming = logged_in(url, 4096)
        consuming.qos(1)
        dead.append(connection)
        consuming.consume("large")
    while time.monotonic() < ends_at:
        time.sleep(0.1)
    return f"{count} consumers, as many messages"


def management_slowloris(url, ends_at, scale):
    """600 connections to the management API that send one byte of a request's head a second."""
    return besiege(
        url, ends_at, int(600 * scale), b"GET /api/overview HTTP/1.1\r\n" + b"X: y\r\n" * 10_000, at_once=1
    )


def unread_management_answers(url, ends_at, scale):
    """300 connections to the management API that ask without end and read no answer."""
    return besiege(
        url, ends_at, int(300 * scale), b"GET /api/overview HTTP/1.1\r\nHost: x\r\n\r\n" * 10_000,
        at_once=100_000,
    )


def besiege(url, ends_at, count, octets, at_once):
    """Send ``octets``, so many at once, on as many connections as the port gives us, again when it closes
    one; somebody else asks meanwhile.
    """
    address = urlsplit(url)
    ours, closed, turns, took = [], 0, 0, []
    while time.monotonic() < ends_at:
        while len(ours) < count and time.monotonic() < ends_at:
            try:
                one = socket.create_connection((address.hostname, address.port), timeout=0.2)
            except OSError:
                break  # those who wait in the kernel are as many as it holds
            one.setblocking(False)
            ours.append([one, 0])
        alive = []
        for pair in ours:
            one, at = pair
            try:
                if not ready([one], select.POLLIN) or at_once > 1 or one.recv(1, socket.MSG_PEEK):
                    pair[1] += one.send(octets[at:at + at_once])
                    alive.append(pair)
                else:
                    closed += 1
            except BlockingIOError:
                alive.append(pair)
            except OSError:
                closed += 1
        ours, turns = alive, turns + 1
        began = time.monotonic()
        took.append(time.monotonic() - began if asked_from_elsewhere(address) else float("inf"))
        time.sleep(max(0.0, min(1.0 - (time.monotonic() - began), ends_at - time.monotonic())))
    return (
        f"{count} connections, {closed} closed by the broker; another address was answered {len(took)} "
        f"times, in {1000 * max(took):.0f} ms at most"
    )


def asked_from_elsewhere(address):
    """Ask for something from another address of this machine, which waits its turn."""
    with contextlib.suppress(OSError):
        with socket.create_connection(
            (address.hostname, address.port), timeout=20, source_address=("127.0.0.2", 0)
        ) as one:
            one.sendall(b"GET /api/whoami HTTP/1.0\r\n\r\n")
            return one.recv(100).startswith(b"HTTP/1.1 401")
    return False


_KEPT = []


def keep(connection):
    """Let a connection live as long as the process."""
    _KEPT.append(connection)


ATTACKS = {
    function.__name__: function
    for function in (
        dead_consumers, slowloris_before_login, slowloris_after_login, connection_flood, login_flood,
        unread_confirms, unread_answers, unfinished_bodies, unread_large_messages, management_slowloris,
        unread_management_answers,
    )
} | mqtt_attacks.ATTACKS
MANAGEMENT = {"management_slowloris", "unread_management_answers"}


def main(arguments):
    """NAME URL SECONDS SCALE: attack, and print {"outcome": text}."""
    name, url, seconds, scale = arguments
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(
        json.dumps({"outcome": ATTACKS[name](url, time.monotonic() + float(seconds), float(scale))}),
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
