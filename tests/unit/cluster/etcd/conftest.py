"""Servers that a test tells what to answer in etcd's place, and clients of them."""
import json
import socket

import pytest

from gomq_py.cluster.etcd.client import Etcd
from tests.support.hook_server import HookServer, answer

HEADER = {"cluster_id": "1", "member_id": "2", "revision": "9"}
EMPTY_VIEW = {"header": HEADER}
DONE = {"header": HEADER, "succeeded": True, "responses": [{"response_range": {"header": {"revision": "9"}}}]}


def said(found, status=200):
    """The octets of an answer with this JSON."""
    return answer(status, "Content-Type: application/json", body=json.dumps(found).encode())


def refusal(code, text, status=400):
    """The octets of an error, as etcd 3.4 writes it."""
    return said({"error": text, "message": text, "code": code}, status)


@pytest.fixture
def served():
    """Starts servers: ``served(answer)`` with HookServer's ``answer``."""
    servers = []

    def serve(answer=lambda request: said(EMPTY_VIEW), **options):
        server = HookServer(answer, **options).__enter__()
        servers.append(server)
        return server

    yield serve
    for server in servers:
        server.__exit__()


@pytest.fixture
def client():
    """Makes clients of servers or endpoints, which are closed at the end."""
    clients = []

    def make(*servers, **options):
        endpoints = [
            server if isinstance(server, str) else server.url("")
            for server in servers]
        made = Etcd(endpoints, "gomq", **options)
        clients.append(made)
        return made

    yield make
    for made in clients:
        made.close()


@pytest.fixture
def nobody():
    """An endpoint that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def mute():
    """An endpoint that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
