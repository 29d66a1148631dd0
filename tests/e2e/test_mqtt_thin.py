"""The MQTT door from outside: paho-mqtt on its port, and what the management API says of it."""
import threading
from functools import partial
from urllib.parse import quote

import paho.mqtt.client as paho
import pytest
import requests

from gomq_py import Broker
from tests.support.waiting import in_time, wait_until

VERSIONS = {paho.MQTTv31: "MQTT 3.1", paho.MQTTv311: "MQTT 3.1.1", paho.MQTTv5: "MQTT 5.0"}


@pytest.fixture(scope="module")
def broker():
    with Broker(mqtt_port=0, http_port=0) as broker:
        yield broker


class Client:
    """A client of paho's, whose network thread runs."""

    def __init__(self, broker, version, password="guest", **connect):
        self.answered, self.left = threading.Event(), threading.Event()
        self.reason = self.end = None
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=f"paho-{version}", protocol=version
        )
        self.paho.username_pw_set("guest", password)
        self.paho.on_connect = self._connected
        self.paho.on_disconnect = self._disconnected
        self.paho.connect("127.0.0.1", broker.call(mqtt_port), **connect)
        self.paho.loop_start()
        assert self.answered.wait(in_time(30))

    def _connected(self, _client, _data, _flags, reason, _properties):
        self.reason = reason
        self.answered.set()

    def _disconnected(self, _client, _data, _flags, reason, _properties):
        self.end = reason
        self.left.set()

    def close(self):
        self.paho.disconnect()
        self.paho.loop_stop()


def mqtt_port(launcher):
    return next(listener.port for listener in launcher.listeners if listener.protocol == "mqtt")


def count(broker):
    return broker.call(lambda launcher: len(launcher.hub.clients))


@pytest.mark.parametrize("version", VERSIONS)
def test_paho_logs_in_pings_and_leaves(broker, version):
    client = Client(broker, version, keepalive=3)

    assert not client.reason.is_failure
    wait_until(
        lambda: broker.call(
            lambda launcher: [one.stream.received_octets for one in launcher.hub.clients]
        ) >= [2]
    )
    client.close()
    wait_until(lambda: not count(broker))
    assert not client.end.is_failure


@pytest.mark.parametrize("version, text", [
    (paho.MQTTv311, "Not authorized"), (paho.MQTTv5, "Bad user name or password")
])
def test_paho_with_a_wrong_password_is_told_so(broker, version, text):
    client = Client(broker, version, password="wrong")

    assert client.reason.is_failure and str(client.reason) == text
    client.paho.loop_stop()


@pytest.mark.parametrize("version", VERSIONS)
def test_connection_is_seen_by_the_management_api_and_closed_by_it(broker, version):
    client = Client(broker, version)
    api = partial(requests.request, auth=("guest", "guest"), timeout=in_time(60))

    (shown,) = api("GET", f"{broker.http_url}/api/connections").json()
    assert (shown["protocol"], shown["user"], shown["client_properties"]) == (
        VERSIONS[version], "guest", {"client_id": f"paho-{version}"}
    )
    assert (
        api("DELETE", f"{broker.http_url}/api/connections/{quote(shown['name'], safe='')}").status_code == 204
    )

    assert client.left.wait(in_time(30))
    client.paho.loop_stop()
    if version == paho.MQTTv5:
        assert str(client.end) == "Administrative action"
    wait_until(lambda: not count(broker))
