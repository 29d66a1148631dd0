"""Federation with RabbitMQ's plugin at the other end, either way round."""
import json
import re
from urllib.parse import quote

import pytest

from tests.support.federated import bodies, start_gomq
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.needs_program("rabbitmq-server")


@pytest.fixture(scope="module")
def both(tmp_path_factory, shared_rabbitmq):
    """(ours, RabbitMQ)."""
    ours = start_gomq(tmp_path_factory.mktemp("ours"), "ours")
    yield ours, shared_rabbitmq
    ours.process.stop()


@pytest.fixture
def vhost(both, request):
    """A virtual host of the test's own, in each broker."""
    name = request.node.name
    for peer in both:
        peer.make_vhost(name)
    yield name
    for peer in both:
        peer.hang_up()
        peer.call("DELETE", "vhosts", name)


@pytest.fixture(params=["we are upstream", "rabbitmq is upstream"])
def up_and_down(both, request):
    """(upstream, downstream), either way round."""
    return both if request.param == "we are upstream" else both[::-1]


def make_queue(peer, vhost, key="#", exchange="fed.x", queue="q"):
    """A topic exchange and a queue bound to it; the channel."""
    channel = peer.channel(vhost)
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, exchange, key)
    return channel


def test_exchange_gets_what_is_asked_for_as_bindings_come_and_go(up_and_down, vhost):
    up, down = up_and_down
    make_queue(up, vhost, queue="upstream.too")
    channel = make_queue(down, vhost, "a.#")
    down.federate(vhost, up)
    down.wait_for_links(vhost, 1)
    upstream = up.channel(vhost)

    upstream.basic_publish("fed.x", "b", b"not asked for")
    upstream.basic_publish("fed.x", "a.b", b"body")
    (method, properties, body), = bodies(channel, "q", 1)
    channel.queue_bind("q", "fed.x", "b")
    channel.queue_unbind("q", "fed.x", "a.#")
    wait_until(lambda: up.bindings(vhost, "fed.x") == ["#", "b"], TIMEOUT_S)
    upstream.basic_publish("fed.x", "a.b", b"not any more")
    upstream.basic_publish("fed.x", "b", b"now")

    assert (method.exchange, method.routing_key, body) == ("fed.x", "a.b", b"body")
    received, = properties.headers["x-received-from"]
    assert (received["exchange"], received["redelivered"]) == ("fed.x", False)
    assert (received["cluster-name"], received["vhost"]) == (up.name, vhost)
    assert received["uri"] == f"amqp://127.0.0.1:{up.process.port}/{quote(vhost)}"
    assert [body for _, _, body in bodies(channel, "q", 1)] == [b"now"]


def described_upstream(up, vhost):
    """Exchanges, queues and bindings that a link has made upstream, without the letter at the end of the
    names, of which two are used by turns.
    """
    found = []
    for kind, keys in (
        ("exchanges", ("name", "type", "durable", "auto_delete", "internal", "arguments")),
        ("queues", ("name", "durable", "auto_delete", "arguments")),
        ("bindings", ("source", "destination", "destination_type", "routing_key", "arguments")),
    ):
        found.append(sorted(
            ([one[key] for key in keys] for one in up.call("GET", kind, vhost)
             if "federation: " in one.get("name", one.get("destination")) and one.get("source") != ""),
            key=str))
    return json.loads(re.sub(r' [AB]"', '"', json.dumps(found)))


@pytest.mark.parametrize("exchange, suffix", [("fed.x", ""), ("elsewhere", ":fed.x")])
def test_what_is_made_upstream_is_the_same_as_rabbitmqs(up_and_down, vhost, exchange, suffix):
    """So either finds what the other has made for an exchange, where one broker takes another's place."""
    up, down = up_and_down
    make_queue(down, vhost, "a.#").queue_bind("q", "fed.x", "b", {"n": 1})
    make_queue(up, vhost, exchange=exchange, queue="upstream")
    down.federate(vhost, up, expires=3600000, message_ttl=50000, max_hops=2, exchange=exchange)
    down.wait_for_links(vhost, 1)
    wait_until(lambda: len(described_upstream(up, vhost)[2]) == 3, TIMEOUT_S)
    made = described_upstream(up, vhost)
    down.call("DELETE", "policies", vhost, "federated")
    wait_until(lambda: described_upstream(up, vhost) == [[], [], []], TIMEOUT_S)

    name = f"federation: {exchange} -> {down.name}{suffix}"
    purpose = {"x-internal-purpose": "federation"}
    bound_from = {"x-bound-from": [
        {"cluster-name": down.name, "vhost": vhost, "exchange": f"{vhost}:fed.x", "hops": 2}]}
    assert made == [
        [[name, "x-federation-upstream", True, True, True, {
            **purpose, "x-max-hops": 2, "x-downstream-name": down.name, "x-downstream-vhost": vhost}]],
        [[name, True, False, {**purpose, "x-expires": 3600000, "x-message-ttl": 50000}]],
        [[exchange, name, "exchange", "a.#", bound_from],
         [exchange, name, "exchange", "b", {"n": 1, **bound_from}],
         [name, name, "queue", "", {}]]]


def test_both_exchanges_of_two_get_each_message_once(both, vhost):
    for peer in both:
        make_queue(peer, vhost, queue="all")
    for peer, other in (both, both[::-1]):
        peer.federate(vhost, other)
    for peer in both:
        peer.wait_for_links(vhost, 1)
        wait_until(lambda peer=peer: len(peer.bindings(vhost, "fed.x")) == 2, TIMEOUT_S)

    for peer in both:
        channel = peer.channel(vhost)
        for number in range(20):
            channel.basic_publish("fed.x", "k", f"{peer.name} {number}".encode())
    sent = sorted(f"{peer.name} {number}".encode() for peer in both for number in range(20))
    for peer in both:
        assert sorted(body for _, _, body in bodies(peer.channel(vhost), "all", len(sent))) == sent
    for peer in both:
        peer.channel(vhost).basic_publish("fed.x", "k", b"last")
    for peer in both:
        assert [body for _, _, body in bodies(peer.channel(vhost), "all", 2)] == [b"last"] * 2
        assert peer.ready(vhost, "all") == 0


def test_queue_takes_from_the_other_while_somebody_consumes_here(up_and_down, vhost):
    up, down = up_and_down
    for peer in up_and_down:
        peer.channel(vhost).queue_declare("fed.q", durable=True)
    down.federate(vhost, up)
    down.wait_for_links(vhost, 1)
    upstream = up.channel(vhost)
    for number in range(10):
        upstream.basic_publish("", "fed.q", str(number).encode())

    got = bodies(down.channel(vhost), "fed.q", 10)

    assert [body for _, _, body in got] == [str(number).encode() for number in range(10)]
    received, = got[0][1].headers["x-received-from"]
    assert received["queue"] == "fed.q" and received["visit-count"] == 1
