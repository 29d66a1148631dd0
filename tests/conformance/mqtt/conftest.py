"""Connections to the MQTT server under test: ours, or with GOMQ_TEST_BROKER=mosquitto Debian's Mosquitto, by
which expectations are checked.
"""
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.broker_under_test import KIND
from tests.support.mosquitto_process import MosquittoProcess
from tests.support.mqtt_wire import MQTTWire


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "mosquitto_differs(reason): what Mosquitto 2.0.11 does otherwise; for ours only"
    )


def pytest_runtest_setup(item):
    marker = item.get_closest_marker("mosquitto_differs")
    if marker and KIND == "mosquitto":
        pytest.skip(f"Mosquitto differs: {marker.args[0]}")


@pytest.fixture(scope="session")
def mqtt_server(tmp_path_factory):
    """A server that all tests of a process share: client identifiers and topics are each test's own."""
    folder = tmp_path_factory.mktemp("mqtt")
    if KIND == "mosquitto":
        with MosquittoProcess(folder) as process:
            yield process
    else:
        with BrokerProcess(folder / "data", mqtt_port=0, http_port=0) as process:
            yield process


@pytest.fixture(scope="session")
def mqtt_address(mqtt_server):
    """Its host and port."""
    return "127.0.0.1", mqtt_server.port if KIND == "mosquitto" else mqtt_server.ports["mqtt"]


@pytest.fixture(params=[4, 5], ids=["mqtt3", "mqtt5"])
def version(request):
    """The protocol level: a test that takes this runs with 3.1.1 and with 5.0."""
    return request.param


@pytest.fixture
def open_socket(mqtt_address):
    """Opens connections that have said nothing yet, and drops them after the test."""
    opened = []

    def open_(version):
        opened.append(MQTTWire(mqtt_address, version))
        return opened[-1]
    yield open_
    for wire in opened:
        wire.abort()


@pytest.fixture
def connect(open_socket):
    """Opens connections past CONNACK: ``connect(version, "client", clean=False)``."""
    def connect_(version, client, **options):
        wire = open_socket(version)
        wire.connected = wire.connect(client, **options)
        return wire
    return connect_
