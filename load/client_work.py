"""Client work: what many clients bring about together, or one of them before its login; of load.long_work's
shape, with which load.hostile measures it.

Over MQTT, WebSockets, TLS and HTTP, with plain sockets: the clients stay as cheap as they can be.
"""
import json
import os
import signal
import socket
import ssl
import struct
import time

from load.flood import ready, write_until
from load.mqtt_attacks import packet, string

CONNACK_OCTETS, AT_ONCE = 5, 100
FILTERS_MAX = 1000
RESET = struct.pack("ii", 1, 0)
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)
PINGREQ = b"\xc0\x00"
SESSION_S = b"\x05\x11\x00\x00\x0e\x10"  # properties: the session lives for an hour
SECONDS = 5


def connect(name, will="", properties=b"\x00"):
    """A CONNECT of MQTT 5 as guest; ``will`` is the topic of one."""
    flags = 0xC2 | (0x04 if will else 0)
    body = string("MQTT") + bytes((5, flags, 0, 0)) + properties + string(name)
    if will:
        body += b"\x00" + string(will) + string("lost")
    return packet(0x10, body + string("guest") + string("guest"))


def subscribe(filters, qos=0):
    """SUBSCRIBE of MQTT 5, in packets of as many filters as one may have."""
    return in_packets(0x82, [string(one) + bytes((qos,)) for one in filters])


def in_packets(kind, parts):
    """Packets of so many of these parts, behind an identifier and no properties."""
    return b"".join(
        packet(kind, b"\x00\x01\x00" + b"".join(parts[first:first + FILTERS_MAX]))
        for first in range(0, len(parts), FILTERS_MAX))


def opened(port, octets=b"", answer=0):
    """A connection that has sent these octets, and has so many of the answer."""
    one = socket.create_connection(("127.0.0.1", port), timeout=60)
    if octets:
        one.sendall(octets)
    while answer > 0:
        answer -= len(one.recv(answer)) or answer
    return one


def logged_in(client, size, prefix="c", **options):
    """So many MQTT clients."""
    clients = []
    for first in range(0, size, AT_ONCE):
        some = [
            opened(client.mqtt_port, connect(f"{prefix}{number}", **options))
            for number in range(first, min(size, first + AT_ONCE))
        ]
        for one in some:
            one.recv(CONNACK_OCTETS)
            one.setblocking(False)
        clients += some
    return clients


def reset(clients):
    """All of them go without a word."""
    for one in clients:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        one.close()


def send(one, octets):
    """All of the octets, however long the broker takes them; what it answers is thrown away."""
    left = memoryview(octets)
    one.setblocking(False)
    while left:
        ready([one], 4, 5)
        try:
            left = left[one.send(left):]
        except BlockingIOError:
            pass
        drain(one)


def drain(one):
    """Throw away what has come."""
    try:
        while one.recv(1 << 20):
            pass
    except BlockingIOError:
        pass


def lost_clients(client, size):
    """N MQTT connections that are reset while the broker is stopped (SIGSTOP), so that a poll finds all
    """
    clients = logged_in(client, size)
    yield
    os.kill(client.pid, signal.SIGSTOP)
    try:
        reset(clients)
    finally:
        os.kill(client.pid, signal.SIGCONT)


def wills(client, size):
    """N MQTT clients with wills that are lost together"""
    clients = logged_in(client, size, will="gone")
    yield
    reset(clients)


def shared_members(client, size):
    """N members of a shared subscription that leave together with 20 unacknowledged messages each"""
    members = logged_in(client, size, "member")
    for one in members:
        one.send(subscribe(["$share/group/work"], 1))
    time.sleep(2)
    publisher, = logged_in(client, 1, "publisher")
    for first in range(0, 20 * size, 1000):
        send(publisher, b"".join(
            packet(0x32, string("work") + (1 + number % 1000).to_bytes(2, "big") + b"\x00x")
            for number in range(first, min(first + 1000, 20 * size))))
    time.sleep(2)
    yield
    reset(members)


def subscriptions_deleted(client, size):
    """a session of N subscriptions, whose client unsubscribes from all of them in one write"""
    one, = logged_in(client, 1, "subscriber")
    filters = [f"a/{number}/+" for number in range(size)]
    send(one, subscribe(filters))
    yield
    send(one, in_packets(0xA2, list(map(string, filters))))


def sessions_ended(client, size):
    """N subscriptions of 20 sessions that end together"""
    clients = logged_in(client, 20, "subscriber")
    for number, one in enumerate(clients):
        send(one, subscribe([f"a/{number}/{topic}/+" for topic in range(size // 20)]))
    yield
    reset(clients)


def kept_sessions_ended(client, size):
    """N sessions with a subscription at QoS 1 that are kept and then taken up with a clean start"""
    reset_after = logged_in(client, size, "kept", properties=SESSION_S)
    for number, one in enumerate(reset_after):
        one.send(subscribe([f"kept/{number}"], 1))
    time.sleep(2)
    reset(reset_after)
    yield
    logged_in(client, size, "kept")


def retained(client, size):
    """N retained messages, and a subscription whose filter compares all and matches none"""
    one, = logged_in(client, 1, "retains")
    for first in range(0, size, 1000):
        send(one, b"".join(
            packet(0x31, string(f"kept/{number}/state") + b"\x00x")
            for number in range(first, min(first + 1000, size))))
    yield
    one.send(subscribe(["+/+/absent", "#"]))
    time.sleep(1)
    drain(one)


def unread_flood(client, size):
    """five seconds of a flood at QoS 1 to N subscribers that read nothing"""
    readers = logged_in(client, size, "unread")
    for one in readers:
        one.send(subscribe(["flood"], 1))
    publisher, = logged_in(client, 1, "publisher")
    octets = b"".join(
        packet(0x32, string("flood") + (1 + number).to_bytes(2, "big") + b"\x00" + bytes(100))
        for number in range(500))
    yield
    ends_at = time.monotonic() + SECONDS
    while time.monotonic() < ends_at:
        send(publisher, octets)


def tiny_frames(client, size):
    """N WebSockets that send 32 KiB in frames of one byte"""
    clients = [websocket(client.http_port) for _ in range(size)]
    for number, one in enumerate(clients):
        one.sendall(frames(connect(f"ws{number}"), whole=True))
    time.sleep(1)
    octets = frames(PINGREQ * 2340)
    yield
    for one in clients:
        one.setblocking(False)
        one.send(octets)
    time.sleep(SECONDS)


def pings_before_login(client, size):
    """N WebSockets that send pings for five seconds and do not log in"""
    clients = [websocket(client.http_port) for _ in range(size)]
    octets = frames(b"", opcode=0x89) * 1000
    yield
    ends_at = time.monotonic() + SECONDS
    while time.monotonic() < ends_at:
        write_until(clients, octets, time.monotonic() + 1)
        clients = [websocket(client.http_port) for _ in clients]


def websocket(port):
    """One that has not logged in."""
    one = opened(port, UPGRADE)
    octets = b""
    while b"\r\n\r\n" not in octets:
        octets += one.recv(4096) or b"\r\n\r\n"
    return one


def frames(octets, opcode=0x82, whole=False):
    """Masked frames of one octet each, or one; of no octets one empty frame."""
    parts = [octets] if whole or not octets else [octets[at:at + 1] for at in range(len(octets))]
    return b"".join(_frame(part, opcode) for part in parts)


def _frame(part, opcode):
    size = bytes((0x80 | len(part),)) if len(part) < 126 else b"\xfe" + len(part).to_bytes(2, "big")
    return bytes((opcode,)) + size + bytes(4) + part


def hellos(client, size):
    """N clients that begin a TLS handshake together"""
    clients = [opened(client.amqps_port) for _ in range(size)]
    hello = client_hello()
    time.sleep(1)
    yield
    for one in clients:
        one.send(hello)


def client_hello():
    """The first octets of a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def pipelined(client, size):
    """N connections that ask for /docs without end, and have not logged in"""
    octets = b"GET /docs HTTP/1.1\r\nHost: x\r\n\r\n" * 200
    yield
    ends_at = time.monotonic() + SECONDS
    clients = [opened(client.http_port) for _ in range(size)]
    while time.monotonic() < ends_at:
        for at, one in enumerate(clients):
            one.setblocking(False)
            try:
                one.send(octets)
                drain(one)
            except OSError:
                one.close()
                clients[at] = opened(client.http_port)


def difference(client, size):
    """definitions of N queues, compared with N existing ones"""
    client.declare(size)
    value = json.dumps({
        "queues": [
            {"name": f"other{number}", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
            for number in range(size)
        ]}).encode()
    yield
    client.request("POST", "definitions/difference", value)


def large_object(client, size):
    """one request whose body is an object of N keys"""
    value = json.dumps({f"{number:x}": 0 for number in range(size)}).encode()
    yield
    client.request("PUT", "queues/%2F/large", value)


WORKS = {
    lost_clients: 140, wills: 30, shared_members: 15, subscriptions_deleted: 90, sessions_ended: 2000,
    kept_sessions_ended: 30, retained: 1000, unread_flood: 1, tiny_frames: 2, pings_before_login: 1,
    hellos: 4, pipelined: 1, difference: 2000, large_object: 800,
}
