"""A broker with its management door open, and a client for it that holds every answer
against the OpenAPI description.
"""
import contextlib

import pika
import pika.exceptions
import pytest
import requests

from tests.management.description import check
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import in_time


class API:
    """Requests to /api as one user; ``api.get("queues/%2F")`` returns the response."""

    def __init__(self, base, user="guest", password="guest"):
        self.base = base
        self._auth = (user, password)

    def as_user(self, user, password):
        return API(self.base, user, password)

    def request(self, verb, path, **options):
        response = requests.request(
            verb, f"{self.base}/api/{path}", auth=self._auth, timeout=in_time(60), **options
        )
        check(response)
        return response

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def put(self, path, json=None):
        return self.request("PUT", path, json={} if json is None else json)

    def post(self, path, json=None):
        return self.request("POST", path, json={} if json is None else json)

    def delete(self, path, **options):
        return self.request("DELETE", path, **options)


@pytest.fixture(scope="session")
def managed(tmp_path_factory):
    """A broker process with the management door on a free port."""
    with BrokerProcess(tmp_path_factory.mktemp("managed") / "data", http_port=0) as process:
        yield process


@pytest.fixture
def api(managed):
    """The API as guest."""
    return API(f"http://127.0.0.1:{managed.ports['http']}")


@pytest.fixture
def channel(managed):
    """A pika channel of a connection of its own."""
    connection = pika.BlockingConnection(pika.URLParameters(managed.amqp_url))
    yield connection.channel()
    with contextlib.suppress(pika.exceptions.AMQPError):  # a test may have closed it from the other side
        connection.close()


@pytest.fixture
def name(request):
    """A name of this test's own."""
    return request.node.name.removeprefix("test_")[:100]


@pytest.fixture(scope="session")
def busy(tmp_path_factory):
    """A broker with one of everything and traffic, for tests that only look."""
    from tests.management.busy import Busy
    with BrokerProcess(tmp_path_factory.mktemp("busy") / "data", http_port=0) as process:
        one = Busy(process)
        yield one
        one.close()
