"""A connection of a broker to itself, as links have where their URI names no host, in a whole broker: seen in
the management API, and ended by what withdraws its user's rights.
"""
import contextlib
import threading

import gevent
import pytest
import requests

from gomq_py import Broker
from gomq_py.client.connection import Connection
from gomq_py.client.errors import ConnectionClosed
from tests.support.federated import start_gomq
from tests.support.waiting import in_time, wait_until

NAME = "Shovel jobs in vhost '/', source"
LOGIN = ("guest", "guest")


@pytest.fixture(scope="module")
def broker():
    with Broker(http_port=0) as broker:
        yield broker


@pytest.fixture
def api(broker):
    with requests.Session() as session:
        session.auth = LOGIN
        session.put(f"{broker.http_url}/api/users/ann", json={"password": "secret", "tags": ""})
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        session.put(f"{broker.http_url}/api/permissions/%2F/ann", json=rights)
        yield session


class Linked:
    """A link's connection in the broker's thread, and what ended it."""

    def __init__(self, broker, uri="amqp://"):
        self.connection = self.error = None
        broker.call(self._begin, uri)

    def _begin(self, launcher, uri):
        self.connection = launcher.connector.connect(uri, launcher.broker.users.get("ann"), NAME)
        gevent.spawn(self._drain)

    def _drain(self):
        try:
            while True:
                self.connection.drain()
        except ConnectionClosed as error:
            self.error = error


def connections(broker, api):
    return api.get(f"{broker.http_url}/api/connections").json()


def test_it_is_listed_and_says_which_link_it_is(broker, api):
    linked = Linked(broker)

    (shown,) = connections(broker, api)
    assert (shown["user_provided_name"], shown["user"], shown["vhost"]) == (NAME, "ann", "/")
    assert (shown["protocol"], shown["auth_mechanism"], shown["peer_port"], shown["timeout"]) == (
        "AMQP 0-9-1", "EXTERNAL", 0, 0)

    api.delete(f"{broker.http_url}/api/connections/{shown['name']}", headers={"X-Reason": "enough"})
    wait_until(lambda: linked.error)
    assert str(linked.error) == "320 CONNECTION_FORCED - enough"
    wait_until(lambda: not connections(broker, api))


@pytest.mark.parametrize("what, why", [
    ("/api/users/ann", "user 'ann' was deleted"),
    ("/api/permissions/%2F/ann", "user 'ann' has no permission for vhost '/'"),
])
def test_it_ends_when_the_rights_of_its_user_do(broker, api, what, why):
    linked = Linked(broker)

    api.delete(broker.http_url + what)

    wait_until(lambda: linked.error)
    assert str(linked.error) == f"320 CONNECTION_FORCED - {why}"
    wait_until(lambda: not connections(broker, api))


def test_a_client_of_the_network_gets_nothing_of_it(broker, api):
    """EXTERNAL, which lets local clients in, is not offered to others, nor taken from them."""
    linked = Linked(broker)
    host, port = broker.addresses["amqp"]

    with pytest.raises(ConnectionClosed) as raised:
        Connection(f"amqp://{host}:{port}/?auth_mechanism=EXTERNAL", timeout_s=in_time(30))

    assert raised.value.reply_code == 403
    assert len(connections(broker, api)) == 1
    broker.call(lambda _: linked.connection.close())


def test_stop_of_a_broker_with_links_and_clients_is_worth_no_warning(tmp_path):
    """They end in order, or with the broker: nothing is wrong."""
    peer = start_gomq(tmp_path, "one")
    for vhost in ("here", "there"):
        peer.make_vhost(vhost)
        peer.channel(vhost).queue_declare("fed.q", durable=True)
        peer.channel(vhost).exchange_declare("fed.x", "fanout", durable=True)
    peer.call("PUT", "parameters", "federation-upstream", "here", "u", value={"uri": "amqp:///there"})
    peer.call("PUT", "policies", "here", "p", pattern="^fed", definition={"federation-upstream": "u"})
    peer.call("PUT", "parameters", "shovel", "here", "s", value={
        "src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"})
    peer.wait_for_links("here", 2)
    wait_until(lambda: peer.call("GET", "shovels", "here", "s")["state"] == "running")
    peer.hang_up()
    client = threading.Thread(target=drained, args=(Connection(peer.uri("here")),))
    client.start()

    assert peer.process.stop() == 0

    client.join()
    log = peer.process.log
    stop, = [number for number, line in enumerate(log) if "SIGTERM: stopping" in line]
    assert [line for line in log[stop:] if " info " not in line] == []
    assert any("(guest@here) closed: 320 CONNECTION_FORCED" in line for line in log[stop:])


def drained(connection):
    """A client, up to its end."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            connection.drain()
