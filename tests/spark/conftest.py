"""Tests of what runs in Spark: left out where SPARK=0, or where the extra spark-test is not installed.

Two workers (make test-spark): one for the tests that share a session, which takes longer to start than most
of them, and one for those that start Spark as a process.
"""
import base64
import http.client
import importlib.util
import json
import os
from pathlib import Path

import pytest

from gomq_py.spark.files_transport import folder_id
from tests.support import programs
from tests.support.stores import INCARNATION
from tests.support.streams import StreamBench

PERSISTENT = b"\x10\x00\x02"
MISSING = [name for name in ("pyarrow", "pyspark") if importlib.util.find_spec(name) is None]
FOLDER = Path(__file__).parent
# Modules whose tests start Spark themselves.
PROCESSES = {"test_cluster", "test_kills", "test_wheel"}
IS_LEFT_OUT = os.environ.get("SPARK") == "0" or bool(MISSING) and not programs.skips_are_forbidden()
if IS_LEFT_OUT:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    """All of them are a step of their own."""
    for item in items:
        if item.path.parent == FOLDER:
            item.add_marker(pytest.mark.spark)


def pytest_xdist_make_scheduler(config, log):
    """One worker for each group.

    Not by --dist loadgroup, which pytest-xdist 3.8 cannot do with pytest 9.2: it writes into Item._nodeid,
    where nobody looks any more.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path = Path(nodeid.partition("::")[0])
            if path.parent.parts[-2:] != FOLDER.parts[-2:]:
                return nodeid
            return "processes" if path.stem in PROCESSES else "session"

    return Groups(config, log)


@pytest.fixture
def data_dir(tmp_path):
    """A function that makes a data folder with one stream of a StreamBench in it: (its folder, the bench)."""

    def make(name="orders", **options):
        (tmp_path / "bench").mkdir()
        bench = StreamBench(tmp_path / "bench", **options)
        queues = tmp_path / "data" / "queues"
        queues.mkdir(parents=True, exist_ok=True)
        (queues / f"{folder_id('/', name)}.{INCARNATION[:8].hex()}").symlink_to(tmp_path / "bench" / "stream")
        return str(tmp_path / "data"), bench

    return make


@pytest.fixture(scope="session")
def broker():
    """A broker with a management API for the tests of this folder, which name their own streams;
    nobody kills it.
    """
    from gomq_py.testing.brokers import ChildBroker
    with ChildBroker(http_port=0, sync=True) as child:
        yield Reached(child)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One session for all: it takes longer to start than most tests."""
    from tests.spark.sessions import make_session
    session = make_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


class Reached:
    """A broker as a pipeline reaches it."""

    def __init__(self, child):
        self.child = child

    @property
    def url(self):
        """Of the management API."""
        return "http://{}:{}".format(*self.child.addresses["http"])

    @property
    def amqp_url(self):
        """Without a login."""
        return "amqp://{}:{}".format(*self.child.addresses["amqp"])

    def connect(self):
        """A Connection of the blocking client."""
        from gomq_py.client.connection import Connection
        return Connection(self.child.amqp_url, heartbeat_s=0)

    def stream(self, name, bodies=(), **arguments):
        """Declare a stream and publish to it."""
        with self.connect() as connection:
            channel = connection.channel()
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream", **arguments})
        self.publish(name, bodies)

    def publish(self, queue, bodies):
        """Publish to a queue or stream, and wait until all is confirmed, and therefore flushed:
        readers see no other.
        """
        with self.connect() as connection:
            channel = connection.channel()
            channel.confirm_select()
            channel.publish_many(("", queue, body, PERSISTENT) for body in bodies)
            assert channel.wait_for_confirms()

    def take(self, queue):
        """All messages of a queue, as Deliveries."""
        with self.connect() as connection:
            channel = connection.channel()
            return list(iter(lambda: channel.get(queue, no_ack=True), None))


def allow(broker, user, read, write="", password=None):
    """A user without tags who may read and write what the patterns say; the password is the name by default.
    """
    host, port = broker.child.addresses["http"]
    login = {
        "Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(),
        "Content-Type": "application/json",
    }
    for path, body in ((f"users/{user}", {"password": password or user, "tags": ""}),
                       (f"permissions/%2F/{user}", {"configure": "", "write": write, "read": read})):
        connection = http.client.HTTPConnection(host, port)
        connection.request("PUT", f"/api/{path}", json.dumps(body), login)
        assert connection.getresponse().status in (201, 204)
        connection.close()
