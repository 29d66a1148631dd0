"""Federation between broker processes: exchange links in chains, rings and meshes, queue links, and what
becomes of them when brokers, links and definitions come and go.
"""
import json
from contextlib import ExitStack
from urllib.parse import quote

import pika
import pytest

from tests.ctl.running import in_process
from tests.support.federated import bodies, start_gomq
from tests.support.waiting import TIMEOUT_S, wait_until


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    """Three brokers; in the third everybody's links may lead to this machine."""
    with ExitStack() as stack:
        started = []
        for name in ("one", "two", "three"):
            folder, options = tmp_path_factory.mktemp(name), {}
            if name == "three":
                options["config"] = tmp_path_factory.mktemp("configuration") / "gomq.ini"
                options["config"].write_text("[links]\namqp_hosts_allowed = 127.0.0.0/8\n")
            peer = start_gomq(folder, name, **options)
            stack.callback(peer.process.stop)
            started.append(peer)
        yield started


@pytest.fixture
def vhost(peers, request):
    """A virtual host of the test's own, in each broker."""
    name = request.node.name
    for peer in peers:
        peer.make_vhost(name)
    yield name
    for peer in peers:
        peer.hang_up()
        peer.call("DELETE", "vhosts", name)


def make_queue(peer, vhost, key="#", exchange="fed.x", queue="q"):
    """A topic exchange and a queue bound to it; the channel."""
    channel = peer.channel(vhost)
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, exchange, key)
    return channel


def test_message_published_upstream_comes_to_the_exchange_downstream(peers, vhost):
    up, down, _ = peers
    channel = make_queue(down, vhost, "a.#")
    down.federate(vhost, up)
    link, = down.wait_for_links(vhost, 1)
    upstream = up.channel(vhost)

    upstream.basic_publish("fed.x", "b", b"not asked for")
    upstream.basic_publish("fed.x", "a.b", b"body")
    (method, properties, body), = bodies(channel, "q", 1)

    assert (method.exchange, method.routing_key, body) == ("fed.x", "a.b", b"body")
    received, = properties.headers["x-received-from"]
    assert received == {
        "uri": f"amqp://127.0.0.1:{up.process.port}/{vhost}", "exchange": "fed.x", "redelivered": False,
        "cluster-name": "one", "vhost": vhost}
    assert (link["type"], link["exchange"], link["upstream"]) == ("exchange", "fed.x", "one")
    assert "guest" not in link["uri"]


def confirming(peer, vhost):
    """A channel whose publishes return once the message is in its queues: the first one of a durable queue
    waits for its files, and clients on other connections do not see it meanwhile.
    """
    channel = peer.channel(vhost)
    channel.confirm_delivery()
    return channel


def between(name, exchange="fed.x"):
    """What the exchange in between upstream is called, up to its last letter."""
    return f"federation: {exchange} -> {name} "


def test_bindings_upstream_are_those_here_as_they_come_and_go(peers, vhost):
    up, down, _ = peers
    channel = make_queue(down, vhost, "first")
    channel.queue_bind("q", "fed.x", "second", {"n": 1})
    down.federate(vhost, up)
    down.wait_for_links(vhost, 1)
    at_first = up.bindings(vhost, "fed.x")

    channel.queue_declare("another")
    channel.queue_bind("another", "fed.x", "third")
    channel.queue_bind("another", "fed.x", "first")
    channel.queue_unbind("q", "fed.x", "first")
    channel.queue_unbind("q", "fed.x", "second", {"n": 1})
    wait_until(lambda: up.bindings(vhost, "fed.x") == ["first", "third"], TIMEOUT_S)
    channel.queue_delete("another")
    wait_until(lambda: up.bindings(vhost, "fed.x") == [], TIMEOUT_S)

    assert at_first == ["first", "second"]


def test_bindings_that_changed_while_the_upstream_was_away_are_right_after_a_reconnect(peers, vhost):
    up, down, _ = peers
    channel = make_queue(down, vhost, "old")
    down.federate(vhost, up)
    link, = down.wait_for_links(vhost, 1)
    names = {one["name"] for one in up.call("GET", "exchanges", vhost) if one["internal"]}

    for connection in up.call("GET", "connections"):
        if "federation link" in (connection["user_provided_name"] or ""):
            up.call("DELETE", "connections", connection["name"])
    channel.queue_unbind("q", "fed.x", "old")
    channel.queue_bind("q", "fed.x", "new")

    wait_until(lambda: up.bindings(vhost, "fed.x") == ["new"], TIMEOUT_S)
    down.wait_for_links(vhost, 1)
    now = {one["name"] for one in up.call("GET", "exchanges", vhost)
           if one["internal"] and one["type"] == "x-federation-upstream"}
    either = {between("two") + letter for letter in "AB"}
    assert len(now) == 1 and names & either and not now & names


def test_message_goes_along_a_chain_as_far_as_its_hops_allow(peers, vhost):
    one, two, three = peers
    for peer in peers:
        make_queue(peer, vhost, queue="all")
    two.federate(vhost, one, max_hops=2)
    three.federate(vhost, two, max_hops=2)
    two.wait_for_links(vhost, 1)
    three.wait_for_links(vhost, 1)
    wait_until(
        lambda: len(one.bindings(vhost, "fed.x")) == 3, TIMEOUT_S, "what three asks for is asked of one")

    confirming(one, vhost).basic_publish("fed.x", "k", b"m")
    (_, properties, _), = bodies(three.channel(vhost), "all", 1)

    assert [each["cluster-name"] for each in properties.headers["x-received-from"]] == ["two", "one"]
    wait_until(lambda: two.ready(vhost, "all") == 1, TIMEOUT_S)  # a new queue of two may still get its files
    assert one.ready(vhost, "all") == 1


def test_without_hops_nothing_goes_over_an_exchange_and_queues_are_federated(peers, vhost):
    """RabbitMQ takes max-hops 0, too, and binds nothing upstream."""
    one, two, _ = peers
    for peer in (one, two):
        make_queue(peer, vhost, queue="fed.queue")
    two.federate(vhost, one, max_hops=0)
    told = {link["type"]: link.get("note", "") for link in two.wait_for_links(vhost, 2)}

    confirming(one, vhost).basic_publish("fed.x", "k", b"m")
    channel, came = two.channel(vhost), []
    channel.basic_consume("fed.queue", lambda _channel, _method, properties, _body: came.append(properties))
    wait_until(lambda: channel.connection.process_data_events(0.05) or came, TIMEOUT_S)

    assert [each.get("queue") for each in came[0].headers["x-received-from"]] == ["fed.queue"]
    assert one.bindings(vhost, "fed.x") == ["#"]
    assert told == {"exchange": "max-hops is 0: no message of this exchange goes over the link", "queue": ""}


@pytest.mark.parametrize("around, max_hops", [("ring", 2), ("mesh", 1)])
def test_each_broker_of_a_ring_or_mesh_gets_each_message_once(peers, vhost, around, max_hops):
    for peer in peers:
        make_queue(peer, vhost, queue="all")
    for at, peer in enumerate(peers):
        others = [peers[at - 1]] if around == "ring" else [each for each in peers if each is not peer]
        peer.federate(vhost, *others, max_hops=max_hops)
    for peer in peers:
        peer.wait_for_links(vhost, 1 if around == "ring" else 2)
    # bindings have spread: each exchange is asked by every other broker, directly or through one
    wanted = 1 + 2
    wait_until(lambda: all(len(peer.bindings(vhost, "fed.x")) == wanted for peer in peers), TIMEOUT_S,
               lambda: f"bindings {[peer.bindings(vhost, 'fed.x') for peer in peers]}")

    for peer in peers:
        channel = peer.channel(vhost)
        for number in range(20):
            channel.basic_publish("fed.x", "k", f"{peer.name} {number}".encode())
    sent = sorted(f"{peer.name} {number}".encode() for peer in peers for number in range(20))
    for peer in peers:
        got = bodies(peer.channel(vhost), "all", len(sent))
        assert sorted(body for _, _, body in got) == sent
        for other in peers:  # in order, of each
            mine = [body for _, _, body in got if body.startswith(other.name.encode())]
            assert mine == [f"{other.name} {number}".encode() for number in range(20)]
    # what is still on its way would have come by now: a marker behind everything
    for peer in peers:
        peer.channel(vhost).basic_publish("fed.x", "k", f"last of {peer.name}".encode())
    for peer in peers:
        got = bodies(peer.channel(vhost), "all", len(peers))
        assert sorted(body for _, _, body in got) == sorted(f"last of {each.name}".encode() for each in peers)
        assert peer.ready(vhost, "all") == 0


def test_queue_link_takes_messages_while_a_consumer_here_waits_for_them(peers, vhost):
    up, down, _ = peers
    for peer in (up, down):
        peer.channel(vhost).queue_declare("fed.q", durable=True)
    down.federate(vhost, up)
    down.wait_for_links(vhost, 1)
    upstream = confirming(up, vhost)
    for number in range(5):
        upstream.basic_publish("", "fed.q", str(number).encode())

    waiting = up.ready(vhost, "fed.q"), down.ready(vhost, "fed.q")
    channel = down.channel(vhost)
    got = bodies(channel, "fed.q", 5)
    wait_until(lambda: up.call("GET", "queues", vhost, "fed.q")["consumers"] == 0, TIMEOUT_S,
               "the link has stopped consuming")
    upstream.basic_publish("", "fed.q", b"later")

    assert waiting == (5, 0)
    assert [body for _, _, body in got] == [b"0", b"1", b"2", b"3", b"4"]
    method, properties, _ = got[0]
    assert (method.exchange, method.routing_key) == ("", "fed.q")
    assert properties.headers["x-original-routing-key"] == "fed.q"
    received, = properties.headers["x-received-from"]
    assert (received["queue"], received["visit-count"]) == ("fed.q", 1)
    assert up.ready(vhost, "fed.q") == 1


def test_queue_link_goes_on_when_a_consumer_has_acked_what_it_may_hold(peers, vhost):
    up, down, _ = peers
    up.channel(vhost).queue_declare("fed.q", durable=True)
    channel = down.channel(vhost)
    channel.queue_declare("fed.q", durable=True)
    down.federate(vhost, up, prefetch_count=1)
    down.wait_for_links(vhost, 1)
    upstream = up.channel(vhost)
    for number in range(20):
        upstream.basic_publish("", "fed.q", str(number).encode())
    got = []

    def on_message(there, method, _properties, body):
        got.append(body)
        there.basic_ack(method.delivery_tag)
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume("fed.q", on_message)
    wait_until(
        lambda: channel.connection.process_data_events(0.05) or len(got) == 20, TIMEOUT_S,
        lambda: f"got {got}")

    assert got == [str(number).encode() for number in range(20)]


def test_two_queues_take_from_each_other_without_moving_messages_for_nobody(peers, vhost):
    one, two, _ = peers
    for peer in (one, two):
        peer.channel(vhost).queue_declare("fed.q", durable=True)
    one.federate(vhost, two)
    two.federate(vhost, one)
    for peer in (one, two):
        peer.wait_for_links(vhost, 1)
    confirming(one, vhost).basic_publish("", "fed.q", b"m")

    assert one.ready(vhost, "fed.q") == 1
    (_, properties, _), = bodies(two.channel(vhost), "fed.q", 1)
    assert len(properties.headers["x-received-from"]) == 1


def test_queues_in_a_chain_of_three_hand_on_what_a_consumer_at_its_end_waits_for(peers, vhost):
    """As in RabbitMQ a queue in the middle takes nothing for links: with their priority they are nobody."""
    one, two, three = peers
    for peer in peers:
        peer.channel(vhost).queue_declare("fed.q", durable=True)
    two.federate(vhost, one)
    three.federate(vhost, two, one)
    for peer, count in ((two, 1), (three, 2)):
        peer.wait_for_links(vhost, count)
    for peer in (one, two):
        channel = confirming(peer, vhost)
        for number in range(5):
            channel.basic_publish("", "fed.q", f"{peer.name} {number}".encode())
    before = [peer.ready(vhost, "fed.q") for peer in peers]

    got = sorted(body for _, _, body in bodies(three.channel(vhost), "fed.q", 10))

    assert before == [5, 5, 0]
    assert got == sorted(f"{name} {number}".encode() for name in ("one", "two") for number in range(5))


def test_queues_that_take_from_each_other_serve_a_consumer_at_each_and_nothing_goes_to_and_fro(peers, vhost):
    one, two, _ = peers
    for peer in (one, two):
        peer.channel(vhost).queue_declare("fed.q", durable=True)
    one.federate(vhost, two, prefetch_count=10)
    two.federate(vhost, one, prefetch_count=10)
    got = {}

    def serve(peer):
        channel = peer.channel(vhost)
        channel.basic_qos(prefetch_count=10)

        def on_message(there, method, properties, body):
            got.setdefault(body, []).append((peer.name, properties.headers))
            there.basic_ack(method.delivery_tag)
        channel.basic_consume("fed.q", on_message)
        return channel

    serving = [serve(peer) for peer in (one, two)]
    for peer in (one, two):
        peer.wait_for_links(vhost, 1)
        channel = peer.channel(vhost)
        for number in range(100):
            channel.basic_publish("", "fed.q", f"{peer.name} {number}".encode())

    def have_all():
        for channel in serving:
            channel.connection.process_data_events(0.01)
        return len(got) == 200
    wait_until(have_all, TIMEOUT_S, lambda: f"{len(got)} of 200")

    assert all(len(taken) == 1 for taken in got.values())
    moved = sum(peer.links(vhost)[0]["moved"] for peer in (one, two))
    assert moved <= 200, "messages went to and fro"


@pytest.mark.parametrize("ack_mode", ["on-confirm", "on-publish", "no-ack"])
def test_every_ack_mode_moves_all_in_order(peers, vhost, ack_mode):
    up, down, _ = peers
    channel = make_queue(down, vhost)
    down.federate(vhost, up, ack_mode=ack_mode, prefetch_count=10)
    down.wait_for_links(vhost, 1)
    upstream = up.channel(vhost)

    for number in range(100):
        upstream.basic_publish("fed.x", "k", str(number).encode())

    got = [body for _, _, body in bodies(channel, "q", 100)]
    assert got == [str(number).encode() for number in range(100)]
    wait_until(lambda: up.ready(vhost, "federation: fed.x -> two") == 0, TIMEOUT_S)


def test_thousands_of_bindings_are_made_upstream_and_taken_back(peers, vhost):
    up, down, _ = peers
    channel = down.channel(vhost)
    channel.exchange_declare("fed.x", "direct", durable=True)
    channel.queue_declare("q", durable=True)
    channel.exchange_declare("inner", "fanout")
    channel.exchange_bind("inner", "fed.x", "of an exchange")
    definitions = {"bindings": [
        {"vhost": vhost, "source": "fed.x", "destination": "q", "destination_type": "queue",
         "routing_key": f"k{number}", "arguments": {}} for number in range(3000)]}
    down.call("POST", "definitions", vhost, **definitions)
    down.federate(vhost, up, bind_nowait=True)
    down.wait_for_links(vhost, 1)
    many = len(up.bindings(vhost, "fed.x"))
    up.channel(vhost).basic_publish("fed.x", "k2999", b"last")
    got = bodies(channel, "q", 1)

    channel.queue_delete("q")
    wait_until(lambda: up.bindings(vhost, "fed.x") == ["of an exchange"], TIMEOUT_S)

    assert many == 3001
    assert got[0][2] == b"last"


def test_bindings_of_a_headers_exchange_are_made_with_their_arguments(peers, vhost):
    up, down, _ = peers
    channel = down.channel(vhost)
    channel.exchange_declare("fed.h", "headers", durable=True)
    channel.queue_declare("q")
    channel.queue_bind("q", "fed.h", "", {"x-match": "all", "kind": "a", "n": 1})
    down.federate(vhost, up)
    down.wait_for_links(vhost, 1)
    upstream = up.channel(vhost)

    for headers in ({"kind": "b", "n": 1}, {"kind": "a"}, {"kind": "a", "n": 1, "more": True}):
        upstream.basic_publish("fed.h", "", b"m", pika.BasicProperties(headers=headers))
    (_, properties, _), = bodies(channel, "q", 1)

    assert properties.headers["more"] is True
    assert down.ready(vhost, "q") == 0


def test_link_that_is_not_wanted_any_more_leaves_nothing_upstream_unless_it_is_told_to(peers, vhost):
    up, down, _ = peers
    make_queue(down, vhost)
    make_queue(down, vhost, exchange="fed.kept", queue="r")
    down.federate(vhost, up)
    down.call("PUT", "parameters", "federation-upstream-set", vhost, "kept", value=[
        {"upstream": up.name, "resource-cleanup-mode": "never"}])
    down.call("PUT", "policies", vhost, "kept", pattern="^fed.kept$", priority=1, definition={
        "federation-upstream-set": "kept"})
    down.wait_for_links(vhost, 2)

    down.call("DELETE", "parameters", "federation-upstream", vhost, up.name)

    wait_until(lambda: not down.links(vhost), TIMEOUT_S)
    wait_until(
        lambda: [queue["name"] for queue in up.call("GET", "queues", vhost)]
        == [between("two", "fed.kept")[:-1]], TIMEOUT_S)
    assert [one["name"][:-1] for one in up.call("GET", "exchanges", vhost)
            if one["type"] == "x-federation-upstream"] == [between("two", "fed.kept")]


def test_nothing_is_lost_while_a_link_is_defined_anew(peers, vhost):
    up, down, _ = peers
    channel = make_queue(down, vhost)
    down.federate(vhost, up)
    down.wait_for_links(vhost, 1)
    upstream = up.channel(vhost)
    upstream.confirm_delivery()
    for number in range(60):
        if number % 20 == 10:
            down.federate(vhost, up, prefetch_count=number, expires=60000 + number)
        upstream.basic_publish("fed.x", "k", str(number).encode())
    got = {body for _, _, body in bodies(channel, "q", 60)}

    assert got == {str(number).encode() for number in range(60)}
    link, = down.wait_for_links(vhost, 1)
    assert "stays as it was declared" in link["note"]


def test_messages_wait_upstream_while_the_broker_downstream_is_away(peers, vhost, tmp_path):
    up = peers[0]
    down = start_gomq(tmp_path, "four")
    try:
        down.make_vhost(vhost)
        make_queue(down, vhost).connection.close()
        down.federate(vhost, up)
        down.wait_for_links(vhost, 1)
        down.process.kill()
        upstream = up.channel(vhost)
        for number in range(10):
            upstream.basic_publish("fed.x", "k", str(number).encode())
        down = type(down)(down.process.start(), f"http://127.0.0.1:{down.process.ports['http']}", "")
        got = bodies(down.channel(vhost), "q", 10)
        down.hang_up()
    finally:
        down.process.stop()

    assert [body for _, _, body in got] == [str(number).encode() for number in range(10)]


def test_link_says_what_is_the_matter_and_begins_again_when_told_to(peers, vhost):
    up, down, _ = peers
    make_queue(down, vhost)
    down.call("PUT", "parameters", "federation-upstream", vhost, "bad", value={
        "uri": "amqp://guest:wrong-secret@127.0.0.1:%d/%s" % (up.process.port, vhost)})
    down.call("PUT", "policies", vhost, "p", pattern="^fed", definition={"federation-upstream": "bad"})
    link, = down.wait_for_links(vhost, 1, "error")
    listed_down = down.call("GET", "federation-links", vhost, "state", "down")
    down.call("DELETE", "federation-links", "vhost", vhost, link["id"], link["node"], "restart")

    assert link["error"].startswith("source: ") and "ACCESS_REFUSED" in link["error"]
    assert "wrong-secret" not in str(down.links(vhost))
    assert [one["id"] for one in listed_down] == [link["id"]]
    down.wait_for_links(vhost, 1, "error")


def test_upstream_that_cannot_be_told_from_this_broker_is_refused(peers, vhost):
    down = peers[1]
    make_queue(down, vhost)
    down.federate(vhost, down)

    link, = down.wait_for_links(vhost, 1, "error")

    assert "is called 'two', as this one is" in link["error"]


def test_link_works_with_the_rights_of_whoever_set_its_upstream_for_as_long_as_they_last(peers, vhost):
    up, _, down = peers
    channel = make_queue(down, vhost)
    name = f"setter of {vhost}"[:40]
    down.call("PUT", "users", name, password="of the setter", tags="policymaker")
    down.call("PUT", "permissions", vhost, name, configure="", write=".*", read="")
    setter = down.as_user(name, "of the setter")
    down.call("PUT", "policies", vhost, "federated", pattern="^fed", definition={
        "federation-upstream-set": "all"})

    setter.call("PUT", "parameters", "federation-upstream", vhost, "u", value={
        "uri": up.uri(vhost), "reconnect-delay": 0.2})
    down.wait_for_links(vhost, 1)
    states = []
    for withdraw, grant in (
        (lambda: down.call("PUT", "permissions", vhost, name, configure="", write="^other", read=""),
         lambda: down.call("PUT", "permissions", vhost, name, configure="", write="^fed", read="")),
        (lambda: down.call("DELETE", "permissions", vhost, name),
         lambda: down.call("PUT", "permissions", vhost, name, configure="", write="^fed", read="")),
        (lambda: down.call("PUT", "users", name, password="of the setter", tags="monitoring"),
         lambda: down.call("PUT", "users", name, password="of the setter", tags="policymaker")),
    ):
        withdraw()
        states.append(down.wait_for_links(vhost, 1, "error")[0]["error"])
        up.channel(vhost).basic_publish("fed.x", "k", str(len(states)).encode())
        grant()
        down.wait_for_links(vhost, 1)
        assert bodies(channel, "q", 1)[0][2] == str(len(states)).encode()
    down.call("DELETE", "users", name)
    wait_until(lambda: "or was deleted" in down.links(vhost)[0].get("error", ""), TIMEOUT_S)
    link, = down.links(vhost)
    down.federate(vhost, up)
    down.call("DELETE", "parameters", "federation-upstream", vhost, "u")

    assert states == [
        f"destination: write access to exchange 'fed.x' in vhost '{vhost}' refused for user '{name}'",
        f"destination: access to vhost '{vhost}' refused for user '{name}'",
        f"destination: user '{name}', who set upstream 'u', has not the tag policymaker"]
    assert "who set upstream 'u'" in link["error"] and link["error"].endswith("or was deleted")
    down.wait_for_links(vhost, 1)


NOBODY = {"configure": "", "write": "", "read": ""}


@pytest.mark.parametrize("kind", ["exchange", "queue"])
@pytest.mark.parametrize("rights, error", [
    ({}, "destination: write access to exchange '{target}' in vhost '{vhost}' refused for user '{user}'"),
    ({"write": ".*"},
     "source: read access to {kind} 'fed.x' in vhost '{vhost} too' refused for user '{user}'"),
    (None, "source: access to vhost '{vhost} too' refused for user '{user}'"),
], ids=["no write here", "no read there", "no rights there"])
def test_upstream_of_a_policymaker_without_rights_has_no_link_until_they_come(
    peers, vhost, kind, rights, error,
):
    """Both ends are in this broker: each works with the rights of whoever set the upstream."""
    down = peers[1]
    there, user = f"{vhost} too", f"setter of {vhost}"
    down.make_vhost(there)
    for one in (vhost, there):
        make_queue(down, one, queue="fed.x" if kind == "queue" else "q")
    down.call("PUT", "users", user, password="of the setter", tags="policymaker")
    everything = dict.fromkeys(NOBODY, ".*")
    down.call("PUT", "permissions", vhost, user, **(everything if rights is None else {**NOBODY, **rights}))
    if rights is not None:
        down.call("PUT", "permissions", there, user, **NOBODY)
    down.as_user(user, "of the setter").call("PUT", "parameters", "federation-upstream", vhost, "u", value={
        "uri": f"amqp:///{quote(there)}", "reconnect-delay": 0.2})
    down.call("PUT", "policies", vhost, "federated", pattern="^fed", definition={"federation-upstream": "u"},
              **{"apply-to": f"{kind}s"})

    shown = [down.wait_for_links(vhost, 1, "error")[0]["error"]]
    for one in (vhost, there):
        down.call("PUT", "permissions", one, user, **everything)
    down.wait_for_links(vhost, 1)
    if rights is None:
        down.call("DELETE", "permissions", there, user)
    else:
        down.call("PUT", "permissions", there if rights else vhost, user, **{**NOBODY, **rights})
    shown.append(down.wait_for_links(vhost, 1, "error")[0]["error"])
    if kind == "queue":
        confirming(down, there).basic_publish("", "fed.x", b"waits")
        assert down.ready(there, "fed.x") == 1
    down.call("DELETE", "users", user)
    down.hang_up()
    down.call("DELETE", "vhosts", there)

    target = "fed.x" if kind == "exchange" else "amq.default"
    assert shown == [error.format(kind=kind, target=target, vhost=vhost, user=user)] * 2


def test_upstream_is_set_by_policymakers_only_and_shown_to_them_without_its_password(peers, vhost):
    down = peers[1]
    name = f"reader of {vhost}"[:40]
    down.call("PUT", "users", name, password="of the setter", tags="monitoring")
    down.call("PUT", "permissions", vhost, name, configure=".*", write=".*", read=".*")
    value = {"uri": "amqp://u:hidden-secret@127.0.0.1:1"}
    make_queue(down, vhost)

    refused = down.as_user(name, "of the setter").request(
        "PUT", "parameters", "federation-upstream", vhost, "u", value=value)
    down.call("PUT", "parameters", "federation-upstream", vhost, "u", value=value)
    down.call("PUT", "policies", vhost, "p", pattern="^fed", definition={"federation-upstream": "u"})
    link, = down.wait_for_links(vhost, 1, "error")
    seen = down.as_user(name, "of the setter").links(vhost)

    assert refused.status_code == 401
    assert (link["error"], [one["id"] for one in seen]) == (
        "source: [Errno 111] Connection refused", [link["id"]])
    shown = down.call("GET", "parameters", "federation-upstream", vhost, "u")
    assert "hidden-secret" not in f"{shown} {seen} {down.process.log_text}"


def test_operator_sets_sees_restarts_and_deletes_federation_with_ctl(peers, vhost):
    up, down, _ = peers
    channel = make_queue(down, vhost)

    def ctl(*arguments, code=0):
        finished = in_process(down.http_url, *arguments)
        assert finished.exit_code == code, finished.output
        return finished.output if code else finished.stdout

    ctl("-p", vhost, "add_federation", "u", "--uri", up.uri(vhost), "--reconnect-delay", "0.2",
        "--max-hops", "2")
    ctl("-p", vhost, "set_policy", "p", "^fed", '{"federation-upstream": "u"}')
    link, = down.wait_for_links(vhost, 1)
    listed = ctl("--format", "json", "federation_status")
    connections = {one["name"] for one in up.call("GET", "connections")}
    ctl("-p", vhost, "restart_federation_link", link["id"])
    wait_until(lambda: {one["name"] for one in up.call("GET", "connections")} - connections, TIMEOUT_S)
    down.wait_for_links(vhost, 1)
    up.channel(vhost).basic_publish("fed.x", "k", b"m")
    got = bodies(channel, "q", 1)
    unknown = ctl("-p", vhost, "restart_federation_link", "nowhere", code=1)
    ctl("-p", vhost, "delete_federation", "u")

    row, = json.loads(listed)
    assert (row["id"], row["vhost"], row["exchange"], row["upstream"], row["status"]) == (
        link["id"], vhost, "fed.x", "u", "running")
    assert "guest:" not in listed
    assert got[0][2] == b"m"
    assert f"no federation link 'nowhere' in virtual host '{vhost}'" in unknown
    wait_until(lambda: not down.links(vhost), TIMEOUT_S)
