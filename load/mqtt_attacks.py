"""Attacks over MQTT, of load.attacks' shape: each takes an MQTT URL, the monotonic time at which to end, and
a scale, and answers with a few words on what became of it.
"""
import contextlib
import socket
import time

from gomq_py.client.errors import ClientError
from gomq_py.client.mqtt import MQTTClient
from gomq_py.client.url import parse_mqtt_url
from load.flood import ready, write_until

FILTERS = 10_000
# The largest packet that the protocol has words for, as a PUBLISH to one topic.
LARGEST = b"\x30\xff\xff\xff\x7f\x00\x07hostile"


def client(url, name, version=5, receive_buffer_bytes=0, **properties):
    """A client that is logged in and handles nothing by itself."""
    one = MQTTClient(
        url, version=version, client_identifier=name, automatic=False,
        properties=properties if version == 5 else None)
    if receive_buffer_bytes:
        one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    return one


def packet(head, body):
    """A packet with its remaining length."""
    length, octets = len(body), bytearray([head])
    while True:
        length, low = length >> 7, length & 0x7F
        octets.append(low | (0x80 if length else 0))
        if not length:
            return bytes(octets) + body


def string(text):
    """A length, and the text."""
    return len(text).to_bytes(2, "big") + text.encode()


def mqtt_before_connect(url, ends_at, scale):
    """2000 connections that send one octet of a large PUBLISH or CONNECT a second, and have not logged in."""
    address = parse_mqtt_url(url)
    kinds = (b"\x10\xff\xff\xff\x7f\x00\x04MQTT\x05" + bytes(4096), LARGEST + bytes(4096))
    ours, closed, at = [], 0, 0
    for number in range(int(2000 * scale)):
        with contextlib.suppress(OSError):
            one = socket.create_connection((address.host, address.port), timeout=5)
            ours.append((one, kinds[number % 2]))
    while time.monotonic() < ends_at:
        alive = []
        for one, octets in ours:
            try:
                one.sendall(octets[at:at + 1])
                alive.append((one, octets))
            except OSError:
                closed += 1
        ours, at = alive, at + 1
        time.sleep(max(0.0, min(1.0, ends_at - time.monotonic())))
    return f"{len(ours) + closed} connections, {closed} closed by the broker meanwhile"


def mqtt_largest_packets(url, ends_at, scale):
    """Publishers that begin packets of 256 MB and send all but their last octets."""
    ours = [client(url, f"hostile-{number}") for number in range(max(4, int(20 * scale)))]
    for one in ours:
        one.socket.setblocking(False)
        one.socket.send(LARGEST)
    sent, closed = write_until([one.socket for one in ours], bytes(65536), ends_at, 268_000_000)
    return f"{len(ours)} publishers, {sent / 1e6:.0f} MB taken, {closed} closed by the broker"


def mqtt_qos_2_without_pubrel(url, ends_at, scale):
    """Publishers at QoS 2 that use every packet identifier, and never send a PUBREL."""
    count, closed, sent = max(2, int(10 * scale)), 0, 0
    body = string("hostile") + b"%b\x00" + bytes(200)
    while time.monotonic() < ends_at:
        for number in range(count):
            one = client(url, f"hostile-{number}", session_expiry_interval=600)
            octets = b"".join(
                packet(0x34, body % identifier.to_bytes(2, "big")) for identifier in range(1, 65536))
            with contextlib.suppress(OSError):
                one.socket.settimeout(max(0.1, ends_at - time.monotonic()))
                one.socket.sendall(octets)
                sent += len(octets)
                continue
            closed += 1
    return f"{count} publishers, {sent / 1e6:.0f} MB taken, {closed} stopped or closed by the broker"


def mqtt_many_filters(url, ends_at, scale):
    """Clients that subscribe to 10 000 filters with wildcards in one packet, again and again."""
    clients, accepted, refused, rounds = max(2, int(20 * scale)), 0, 0, 0
    while time.monotonic() < ends_at and rounds < clients:
        rounds += 1
        body = b"\x00\x01\x00" + b"".join(
            string(f"hostile/{rounds}/+/{number}/#") + b"\x01" for number in range(FILTERS))
        try:
            one = client(url, f"filters-{rounds}")
            one.send(packet(0x82, body))
            answer = one.next_packet(20)
            codes = answer.reason_codes if answer is not None else ()
            accepted += sum(code < 0x80 for code in codes)
            refused += sum(code >= 0x80 for code in codes)
        except ClientError:
            refused += FILTERS
    return f"{rounds} clients, {accepted} subscriptions made, {refused} refused"


def mqtt_unread_messages(url, ends_at, scale):
    """Subscribers that take nothing from their sockets, beside somebody who publishes to them without end."""
    dead = []
    for number in range(max(3, int(30 * scale))):
        one = client(url, f"dead-{number}", receive_buffer_bytes=4096)
        one.subscribe("hostile", qos=number % 3)
        dead.append(one)
    publisher = client(url, "hostile")
    publisher.socket.setblocking(False)
    sent, closed = write_until(
        [publisher.socket], packet(0x30, string("hostile") + b"\x00" + bytes(1024)) * 50, ends_at)
    return (
        f"{len(dead)} subscribers, {sent / 1e6:.0f} MB published to them, publisher "
        f"{'closed' if closed else 'served'}"
    )


def mqtt_unread_answers(url, ends_at, scale):
    """Clients that ask for answers of every kind without end, and read none."""
    ours = []
    for number in range(max(2, int(10 * scale))):
        one = client(url, f"unread-{number}", receive_buffer_bytes=4096)
        one.socket.setblocking(False)
        ours.append(one)
    octets = (
        b"\xc0\x00" * 20 + packet(0x82, b"\x00\x01\x00" + string("hostile/a") + b"\x00")
        + packet(0x32, string("hostile/b") + b"\x00\x02\x00x")
        + packet(0xA2, b"\x00\x03\x00" + string("hostile/a"))
    ) * 100
    sent, closed = write_until([one.socket for one in ours], octets, ends_at)
    return f"{len(ours)} clients, {sent / 1e6:.0f} MB taken, {closed} closed by the broker"


def mqtt_take_overs(url, ends_at, scale):
    """Clients that log in one after the other under one client identifier, with a will each."""
    count = 0
    login = packet(0x10, (
        string("MQTT") + b"\x05\xc6\x00\x00\x00" + string("taken") + b"\x00" + string("hostile/will")
        + string("x") + string("guest") + string("guest")
    ))
    address, alive = parse_mqtt_url(url), []
    while count < 10_000 * scale and time.monotonic() < ends_at:
        count += 1
        one = socket.create_connection((address.host, address.port), timeout=20)
        one.sendall(login)
        alive.append(one)
        if len(alive) > 20:
            alive.pop(0).close()
    for one in alive:
        one.close()
    return f"{count} logged in"


def mqtt_retained_topics(url, ends_at, scale):
    """A publisher that retains messages under 100 000 topics, and a subscriber of all who reads nothing."""
    publisher = client(url, "retains")
    for number in range(int(100_000 * scale)):
        publisher.send(packet(0x31, string(f"hostile/{number}") + b"\x00" + bytes(100)))
    publisher.ping()
    dead = []
    for number in range(max(2, int(10 * scale))):
        one = client(url, f"dead-{number}", receive_buffer_bytes=4096)
        one.send(packet(0x82, b"\x00\x01\x00" + string("hostile/#") + b"\x01"))
        dead.append(one)
    while time.monotonic() < ends_at:
        ready([one.socket for one in dead], 0, 0.1)
        time.sleep(0.05)
    return f"{len(dead)} subscribers of {int(100_000 * scale)} retained messages"


ATTACKS = {
    function.__name__: function
    for function in (
        mqtt_before_connect, mqtt_largest_packets, mqtt_qos_2_without_pubrel, mqtt_many_filters,
        mqtt_unread_messages, mqtt_unread_answers, mqtt_take_overs, mqtt_retained_topics,
    )
}
