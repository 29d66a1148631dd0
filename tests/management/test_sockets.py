"""The management API on unix sockets: one that asks for a login, one whose owner may do everything."""
import http.client
import json
import os
import socket
import stat

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import in_time

BASIC = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}


class UnixConnection(http.client.HTTPConnection):
    """HTTP to the socket at a path."""

    def __init__(self, path):
        super().__init__("localhost", timeout=in_time(60))
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def ask(path, verb, target, body=None, headers=None):
    """(status, JSON or None) of one request."""
    connection = UnixConnection(path)
    connection.request(verb, f"/api/{target}", None if body is None else json.dumps(body), headers or {})
    answer = connection.getresponse()
    octets = answer.read()
    connection.close()
    return answer.status, json.loads(octets) if octets else None


@pytest.fixture
def sockets(tmp_path, broker_process):
    """(path of the API's socket, path of the control socket,
    the broker) without any TCP port of the management.
    """
    process = broker_process(
        http_unix_path=tmp_path / "http.sock", control_unix_path=tmp_path / "control.sock"
    ).start()
    return tmp_path / "http.sock", tmp_path / "control.sock", process


def test_the_apis_socket_asks_for_a_login(sockets):
    assert ask(sockets[0], "GET", "whoami")[0] == 401
    assert ask(sockets[0], "GET", "whoami", headers=BASIC)[1]["name"] == "guest"
    assert stat.S_IMODE(os.stat(sockets[0]).st_mode) == 0o660


def test_the_owner_of_the_control_socket_may_do_everything(sockets):
    control = sockets[1]

    made = [
        ask(control, "PUT", "vhosts/made", {})[0], ask(control, "PUT", "queues/made/q", {})[0],
        ask(control, "PUT", "users/made", {"password": "x", "tags": ""})[0],
        ask(control, "PUT", "permissions/made/made", {
            "configure": "", "write": "", "read": ""})[0],
    ]
    message = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}

    assert made == [201] * 4
    assert ask(control, "POST", "exchanges/made/amq.default/publish", message) == (200, {"routed": True})
    assert ask(control, "GET", "queues/made/q")[1]["messages"] == 1
    assert ask(control, "GET", "whoami")[1]["tags"] == ["administrator"]
    assert [user["name"] for user in ask(control, "GET", "users")[1]] == ["guest", "made"]
    assert stat.S_IMODE(os.stat(control).st_mode) == 0o600


def test_listeners_name_the_sockets_and_they_go_with_the_broker(sockets):
    protocols = [one["protocol"] for one in ask(sockets[1], "GET", "overview")[1]["listeners"]]

    sockets[2].stop()

    assert sorted(protocols) == ["amqp", "control", "http"]
    assert not sockets[0].exists() and not sockets[1].exists()


def test_a_second_broker_needs_no_control_socket(tmp_path, broker_process):
    """The default path may be another broker's; a path that somebody names may not."""
    path = tmp_path / "control.sock"
    broker_process(control_unix_path=path).start()
    second = BrokerProcess(tmp_path / "other", control_unix_path=path)
    second.spawn()

    second.wait_for_log("another process listens there")
    assert second.wait(in_time(20)) != 0
    assert ask(path, "GET", "whoami")[0] == 200
