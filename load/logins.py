"""Logins and TLS handshakes, as many as a broker answers: of clients that do nothing else, so that what they
cost themselves is little.
"""
import contextlib
import selectors
import socket
import ssl
import threading
import time
from urllib.parse import parse_qs, urlsplit

from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.methods import (
    ConnectionClose, ConnectionOpen, ConnectionStartOk, ConnectionTuneOk,
)
from gomq_py.perf.process import cpu_seconds

CLIENTS, FEW = 32, 8
# What a client writes at first, and then whenever something has come.
STEPS = (
    b"AMQP\x00\x00\x09\x01",
    method_frame(0, ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US")),
    method_frame(0, ConnectionTuneOk(channel_max=2047, frame_max=131072, heartbeat=0))
    + method_frame(0, ConnectionOpen(virtual_host="/")),
    method_frame(0, ConnectionClose(reply_code=200, reply_text="")),
)


def logins(broker, seconds):
    """(logins a second, the broker's CPU microseconds for each): 32 clients at once that log in, close and
    come again.
    """
    address = urlsplit(broker.uri).hostname, urlsplit(broker.uri).port
    return _counted(broker, seconds, lambda ends_at: _log_in_until(address, ends_at))


def lasting(broker, count):
    """The broker's CPU microseconds for each of so many clients that log in and stay, FEW at once."""
    address = urlsplit(broker.uri).hostname, urlsplit(broker.uri).port
    cpu_s = cpu_seconds(broker.pid)
    with contextlib.ExitStack() as kept:
        left = iter(range(count - FEW))
        for client in _logged_in(address, FEW, STEPS[:-1], lambda: next(left, None) is not None):
            kept.callback(client.close)
        return (cpu_seconds(broker.pid) - cpu_s) * 1e6 / count


def handshakes(broker, seconds):
    """(handshakes a second, the broker's CPU microseconds for each): whole ones, no session is resumed."""
    parts = urlsplit(broker.amqps_uri)
    context = ssl.create_default_context(cafile=parse_qs(parts.query)["cacertfile"][0])
    counts = []

    def shake(ends_at):
        count = 0
        while time.monotonic() < ends_at:
            with socket.create_connection((parts.hostname, parts.port)) as raw:
                context.wrap_socket(raw, server_hostname=parts.hostname).close()
            count += 1
        counts.append(count)

    def work(ends_at):
        threads = [threading.Thread(target=shake, args=(ends_at,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts)

    return _counted(broker, seconds, work)


def _counted(broker, seconds, work):
    cpu_s, began = cpu_seconds(broker.pid), time.monotonic()
    count = max(1, work(began + seconds))
    return count / (time.monotonic() - began), (cpu_seconds(broker.pid) - cpu_s) * 1e6 / count


def _log_in_until(address, ends_at):
    """How many logins were answered and closed."""
    count = 0
    for client in _logged_in(address, CLIENTS, STEPS, lambda: time.monotonic() < ends_at):
        client.close()
        count += 1
    return count


def _logged_in(address, most, steps, goes_on):
    """Each client when its last step was answered: ``most`` at once, and another one for each while
    ``goes_on()``.
    """
    with selectors.DefaultSelector() as selector:
        def begin():
            client = socket.create_connection(address)
            client.sendall(steps[0])
            selector.register(client, selectors.EVENT_READ, 1)

        for _ in range(most):
            begin()
        while selector.get_map():
            for key, _ in selector.select(10):
                client, step = key.fileobj, key.data
                if not client.recv(65536) and step < len(steps):
                    raise ConnectionError("the broker closed a connection within a login")
                if step < len(steps):
                    client.sendall(steps[step])
                    selector.modify(client, selectors.EVENT_READ, step + 1)
                    continue
                selector.unregister(client)
                yield client
                if goes_on():
                    begin()
