"""A relay on loopback that writes some octets of its own before it passes on a client's:
what a proxy does.
"""
import socket
import threading
from contextlib import contextmanager

from tests.support.waiting import TIMEOUT_S


@contextmanager
def relay(port, preface):
    """Relays one connection to ``port`` of this machine, ``preface`` first.

    Yields the port that a client connects to.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threads = [threading.Thread(target=_serve, args=(listening, port, preface), daemon=True)]
        threads[0].start()
        yield listening.getsockname()[1]
        threads[0].join(TIMEOUT_S)


def _serve(listening, port, preface):
    client, _ = listening.accept()
    with client, socket.create_connection(("127.0.0.1", port)) as broker:
        broker.sendall(preface)
        back = threading.Thread(target=pump, args=(broker, client), daemon=True)
        back.start()
        pump(client, broker)
        back.join(TIMEOUT_S)


def pump(source, target):
    """Pass on what comes until the end, and the end. For any kind of socket."""
    try:
        while octets := source.recv(65536):
            target.sendall(octets)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass
