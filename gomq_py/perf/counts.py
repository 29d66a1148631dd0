"""Creates many queues or connections; measures the time, and the broker's memory for each."""
import math
import random
import socket
import time
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

from gomq_py.amqp.wire.methods import QueueDeclare
from gomq_py.client.connection import Connection
from gomq_py.perf import process

_SETTLE_S = 0.5  # before memory is read: lets the broker finish


def queue_count(options):
    """Declare ``count`` queues; delete them, if the option ``delete`` is set. Return a dict of results."""
    names = [f"{options.queue}-{number}" for number in range(options.count)]
    with Connection(options.uri, name="perf queue-count", timeout_s=options.timeout_s) as connection:
        channel = connection.channel()
        with _measured(options, "queue") as figures:
            for name in names:
                if options.no_wait:
                    channel.send(
                        QueueDeclare(
                            queue=name, durable=options.durable, no_wait=True, arguments=options.arguments))
                else:
                    channel.queue_declare(name, durable=options.durable, arguments=options.arguments)
            if options.no_wait and names:
                # the broker answers this after all earlier methods
                channel.queue_declare(names[len(names) - 1], passive=True)
        if options.delete:
            for name in names:
                channel.queue_delete(name)
    return figures


def connection_count(options):
    """Open ``count`` connections, wait ``seconds`` (0: until Ctrl-C), close. Return a dict of results."""
    process.raise_descriptor_limit()
    with ExitStack() as stack:
        with Connection(options.uri, timeout_s=options.timeout_s) as connection:
            if options.consumers:
                connection.channel().queue_declare(options.queue, durable=True)
        with _measured(options, "connection") as figures:
            for number in range(options.count):
                connection = Connection(
                    _address(options, number), heartbeat_s=0, name=f"perf connection-count {number}",
                    timeout_s=options.timeout_s)
                stack.callback(connection.abort)
                _keep_alive(connection.socket, options.keepalive)
                for _ in range(options.channels):
                    channel = connection.channel()
                    for _ in range(options.consumers):
                        channel.consume(options.queue)
        if not options.json:
            print(f"{options.count} connections are open", flush=True)
        ends = time.monotonic() + (options.seconds or math.inf)
        with suppress(KeyboardInterrupt):
            while time.monotonic() < ends:
                time.sleep(0.1)
    return figures


@contextmanager
def _measured(options, noun):
    """Context manager: yields a dict; at the end adds the time taken and the broker's CPU time and memory."""
    figures: dict = {f"{noun}s": options.count}
    before = process.memory_octets(options.broker_pid) if options.broker_pid else None
    cpu_s = process.cpu_seconds(options.broker_pid) if options.broker_pid else 0
    started = time.monotonic()
    yield figures
    figures["elapsed_seconds"] = round(time.monotonic() - started, 3)
    figures[f"{noun}s_per_second"] = round(options.count / max(figures["elapsed_seconds"], 0.001))
    if before is not None:
        cpu_s = process.cpu_seconds(options.broker_pid) - cpu_s
        figures[f"broker_cpu_us_per_{noun}"] = round(cpu_s * 1e6 / max(options.count, 1), 1)
        time.sleep(_SETTLE_S)
        after = process.memory_octets(options.broker_pid)
        figures["broker_memory"] = after
        figures[f"octets_per_{noun}"] = round(
            (after["anonymous"] - before["anonymous"]) / max(options.count, 1))


def _address(options, number):
    """Return the broker's URL. With the option ``localhost``, its host is 127.0.x.y, made from ``number``."""
    # One address allows only 28 000 connections.
    if not options.localhost:
        return options.uri
    chance = random.Random(number)
    parts = urlsplit(options.uri)
    login, at, address = parts.netloc.rpartition("@")
    _, colon, port = address.partition(":")
    local = f"127.0.{chance.randint(0, 255)}.{chance.randint(1, 254)}"
    return urlunsplit(parts._replace(netloc=f"{login}{at}{local}{colon}{port}"))


def _keep_alive(sock, text):
    """Set TCP keepalive. ``text`` is "idle:interval:count" (seconds, seconds, probes) or empty."""
    if text:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        for name, value in zip(names, text.split(":"), strict=True):
            sock.setsockopt(socket.IPPROTO_TCP, name, int(value))
