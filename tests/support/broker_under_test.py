"""Which broker the black-box tests talk to, and the fixtures they share.

By default our own, started once per session. `GOMQ_TEST_AMQP_URL=amqp://guest:guest@host:port/` names a
broker that already runs (tests that restart it are skipped); `GOMQ_TEST_BROKER=rabbitmq` starts Debian's
RabbitMQ 3.10 instead, `rabbitmq-4` the current one (rabbitmq_of_sid), which is how expectations are checked
against the originals. Tests marked `deviates` hold what we do differently on purpose: they do not run against
the RabbitMQ that differs, and docs/compatibility.md names each.
"""
import os
import re
import uuid
from urllib.parse import urlsplit

import pytest

from tests.support import rabbitmq_of_sid
from tests.support.broker_process import BrokerProcess
from tests.support.ports import reserve
from tests.support.rabbitmq_process import RabbitMQProcess
from tests.support.wire_encoding import FieldOctets, PropertyOctets
from tests.support.wire_script import Wire

FOREIGN_URL = os.environ.get("GOMQ_TEST_AMQP_URL")
KIND = os.environ.get("GOMQ_TEST_BROKER", "foreign" if FOREIGN_URL else "gomq-py")
# {kind: options of RabbitMQProcess}
RABBITMQ = {"rabbitmq": {}, "rabbitmq-4": {"root": rabbitmq_of_sid.FOLDER}}
# The versions that a test may deviate from alone.
VERSIONS = {"rabbitmq": "3.10", "rabbitmq-4": "4.3"}
if KIND == "rabbitmq-4":
    Wire.as_properties, Wire.as_field = PropertyOctets, FieldOctets


def make_broker(folder, **options):
    """A broker of the kind under test, not started, whose port survives a restart.

    Options are our broker's and mean nothing to RabbitMQ.
    """
    if KIND in RABBITMQ:
        return RabbitMQProcess(folder, **RABBITMQ[KIND])
    options.setdefault("port", reserve())
    return BrokerProcess(folder / "data", **options)


@pytest.fixture(scope="session")
def broker_url(request, tmp_path_factory):
    """The URL of a broker shared by all tests of the session:
    names that outlive a connection must be unique, see `name`.
    """
    if FOREIGN_URL:
        yield FOREIGN_URL
    elif KIND in RABBITMQ:
        with make_broker(tmp_path_factory.mktemp("rabbitmq")) as broker:
            yield broker.amqp_url
    else:
        yield request.getfixturevalue("shared_broker").amqp_url


@pytest.fixture
def own_broker(tmp_path):
    """A running broker for this test alone, which may be stopped,
    killed and started again on the same port.
    """
    if FOREIGN_URL:
        pytest.skip("a foreign broker is not ours to restart")
    with make_broker(tmp_path) as broker:
        yield broker


@pytest.fixture(scope="session")
def broker_address(broker_url):
    """Host and port of the shared broker."""
    parts = urlsplit(broker_url)
    return parts.hostname, parts.port


@pytest.fixture
def name(request):
    """A name no other test uses: the test's own, and a random end.

    Short, because reply texts have room for 255 octets.
    """
    return f"{re.sub('[^a-z0-9_]', '-', request.node.name)[5:25]}.{uuid.uuid4().hex[:6]}"


@pytest.fixture
def open_wire(broker_address):
    """Opens connections past open-ok, and closes them after the test."""
    wires = []

    def open_(**options):
        wires.append(Wire.open(broker_address, **options))
        return wires[-1]
    yield open_
    for wire in wires:
        wire.close()


@pytest.fixture
def bare_wire(broker_address):
    """Opens sockets to the broker that have said nothing yet, and drops them after the test."""
    wires = []

    def connect():
        wires.append(Wire.connect(broker_address))
        return wires[-1]
    yield connect
    for wire in wires:
        wire.abort()


@pytest.fixture
def wire(open_wire):
    """A connection past open-ok."""
    return open_wire()


@pytest.fixture
def channel(wire):
    """Channel 1 of `wire`."""
    return wire.channel(1)


def deviates(item, of=None, cases=()):
    """Whether a test with this marker differs from the RabbitMQ under test."""
    case = item.callspec.id if cases else ""
    return of in (None, VERSIONS.get(KIND)) and (not cases or case.endswith(tuple(cases)))


def pytest_configure(config):
    """Register the marker of deliberate differences."""
    config.addinivalue_line(
        "markers", "deviates(reason, of=None, cases=()): differs from RabbitMQ on purpose, from its version "
        "`of` alone where there is one, and in these cases alone; documented in docs/compatibility.md"
    )


def pytest_runtest_setup(item):
    """Run deviations against our broker only, and against a RabbitMQ that they do not deviate from."""
    for marker in item.iter_markers("deviates"):
        if KIND != "gomq-py" and deviates(item, **marker.kwargs):
            pytest.skip(f"gomq-py differs on purpose: {marker.args[0]}")
    if KIND == "rabbitmq-4" and rabbitmq_of_sid.reason_against():
        pytest.skip(rabbitmq_of_sid.reason_against())
