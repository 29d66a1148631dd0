"""Federation links whose other end is wrong, out of reach, or dies: what they say, and what others notice."""
from contextlib import ExitStack
from urllib.parse import quote

import pika
import pytest

from tests.support.federated import bodies, start_gomq
from tests.support.ports import reserve
from tests.support.stalling_proxy import StallingProxy
from tests.support.waiting import TIMEOUT_S, wait_until

VHOST = "v"


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    """(upstream, downstream), with a topic exchange and a queue downstream that all of it comes to."""
    with ExitStack() as stack:
        started = []
        for name in ("up", "down"):
            peer = start_gomq(tmp_path_factory.mktemp(name), name, http_port=reserve())
            stack.callback(peer.process.stop)
            stack.callback(peer.hang_up)
            peer.make_vhost(VHOST)
            started.append(peer)
        yield started


@pytest.fixture
def channel(peers, request):
    """A channel downstream, where exchange fed.x and queue q are."""
    up, down = peers
    channel = down.channel(VHOST)
    channel.exchange_declare("fed.x", "topic", durable=True)
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "fed.x", "#")
    yield channel
    down.call("DELETE", "policies", VHOST, "p")
    for one in down.call("GET", "parameters", "federation-upstream", VHOST):
        down.call("DELETE", "parameters", "federation-upstream", VHOST, one["name"])
    wait_until(lambda: not down.links(VHOST), TIMEOUT_S)
    for queue in up.call("GET", "queues", VHOST):
        up.call("DELETE", "queues", VHOST, queue["name"])
    down.hang_up()
    up.hang_up()


def define(down, policy="all", **uris):
    for name, value in uris.items():
        down.call("PUT", "parameters", "federation-upstream", VHOST, name, value={
            "reconnect-delay": 0.2, **(value if isinstance(value, dict) else {"uri": value})})
    down.call("PUT", "policies", VHOST, "p", pattern="^fed", definition={"federation-upstream-set": policy})


def link_of(down, upstream):
    link, = [one for one in down.links(VHOST) if one["upstream"] == upstream]
    return link


def wait_for(down, upstream, status):
    wait_until(
        lambda: link_of(down, upstream)["status"] == status, TIMEOUT_S, lambda: str(down.links(VHOST)))
    return link_of(down, upstream)


def test_each_link_says_what_is_wrong_with_its_other_end_and_holds_up_no_other(peers, channel):
    up, down = peers
    up.call("PUT", "users", "limited", password="secret", tags="")
    up.call("PUT", "permissions", VHOST, "limited", configure="^nothing", write="", read="")
    upstream = up.channel(VHOST)
    upstream.exchange_declare("of.other.type", "fanout", durable=True)
    here = f"127.0.0.1:{up.process.port}"
    define(
        down, good=up.uri(VHOST), password=f"amqp://guest:wrong-secret@{here}/{VHOST}",
        vhost=f"amqp://guest:guest@{here}/nowhere", port=f"amqp://guest:guest@127.0.0.1:{reserve()}/{VHOST}",
        rights=f"amqp://limited:secret@{here}/{VHOST}", name="amqp://guest:guest@no-such-host.invalid/v",
        tls=f"amqps://guest:guest@{here}/{VHOST}", itself=down.uri(VHOST),
        type={"uri": up.uri(VHOST), "exchange": "of.other.type"},
    )

    wait_for(down, "good", "running")
    errors = {
        name: wait_for(down, name, "error")["error"]
        for name in ("password", "vhost", "port", "rights", "name", "tls", "itself")}
    other_type = wait_for(down, "type", "running")
    upstream.basic_publish("fed.x", "k", b"good")
    upstream.basic_publish("of.other.type", "k", b"of other type")
    got = {body for _, _, body in bodies(channel, "q", 2)}
    listed_down = {one["upstream"] for one in down.call("GET", "federation-links", "state", "down")}

    assert got == {b"good", b"of other type"}
    assert all(error.startswith("source: ") for error in errors.values()), errors
    for name, words in {
        "password": "ACCESS_REFUSED", "vhost": "nowhere", "port": "Connection refused",
        "rights": "access to queue 'federation: fed.x -> down' in vhost 'v' refused for user 'limited'",
        "itself": "as this one is",
    }.items():
        assert words in errors[name], errors
    assert listed_down == set(errors)
    assert "inequivalent arg 'type' for exchange 'of.other.type'" in other_type["note"]
    assert "wrong-secret" not in f"{down.links(VHOST)} {down.process.log_text}"


def test_what_an_earlier_run_has_made_upstream_goes_with_a_link_that_was_not_up_in_this_one(peers, channel):
    up, down = peers
    up.call("PUT", "users", "fed", password="right", tags="")
    up.call("PUT", "permissions", VHOST, "fed", configure=".*", write=".*", read=".*")
    define(down, cleaned={
        "uri": f"amqp://fed:right@127.0.0.1:{up.process.port}/{VHOST}", "reconnect-delay": 300})
    wait_for(down, "cleaned", "running")
    up.call("PUT", "users", "fed", password="other", tags="")
    down.hang_up()
    down.process.restart()
    wait_for(down, "cleaned", "error")
    up.call("PUT", "users", "fed", password="right", tags="")
    assert up.call("GET", "queues", VHOST)

    down.call("DELETE", "parameters", "federation-upstream", VHOST, "cleaned")

    wait_until(lambda: not up.call("GET", "queues", VHOST), TIMEOUT_S)
    assert not [one for one in up.call("GET", "exchanges", VHOST) if one["name"].startswith("federation")]


def test_binding_that_the_upstream_cannot_be_sent_is_told_and_ends_no_other(peers, channel):
    up, down = peers
    define(down, large=up.uri(VHOST))
    wait_for(down, "large", "running")

    channel.queue_bind("q", "fed.x", "large", {"a": "x" * 131_000})
    wait_until(lambda: "do not fit into a frame" in link_of(down, "large").get("note", ""), TIMEOUT_S)
    channel.queue_bind("q", "fed.x", "more")
    link_id = link_of(down, "large")["id"]
    down.call("DELETE", "federation-links", "vhost", VHOST, link_id, "node", "restart")
    wait_for(down, "large", "running")
    wait_until(
        lambda: "a binding with key 'large' is not made" in link_of(down, "large").get("note", ""), TIMEOUT_S)
    up.channel(VHOST).basic_publish("fed.x", "k", b"goes on")
    assert [body for _, _, body in bodies(channel, "q", 1)] == [b"goes on"]
    channel.queue_unbind("q", "fed.x", "large", {"a": "x" * 131_000})


def test_link_goes_on_where_it_was_when_its_upstream_was_killed_and_has_come_again(peers, channel, tmp_path):
    up = start_gomq(tmp_path, "killed", http_port=reserve(), port=reserve())
    down = peers[1]
    try:
        up.make_vhost(VHOST)
        define(down, killed=up.uri(VHOST), good=peers[0].uri(VHOST))
        wait_for(down, "killed", "running")
        wait_for(down, "good", "running")
        upstream = up.channel(VHOST)
        upstream.confirm_delivery()
        for number in range(50):
            upstream.basic_publish("fed.x", "k", str(number).encode(), mandatory=True)
        up.process.kill()
        error = wait_for(down, "killed", "error")["error"]
        channel.queue_bind("q", "fed.x", "more")
        peers[0].channel(VHOST).basic_publish("fed.x", "k", b"meanwhile")
        wait_until(lambda: down.ready(VHOST, "q") > 0, TIMEOUT_S)
        up.process.start()
        wait_for(down, "killed", "running")
        up.connections.clear()
        up.channel(VHOST).basic_publish("fed.x", "k", b"last")

        got = []

        def take():
            body = channel.basic_get("q", auto_ack=True)[2]
            got.extend([body] if body is not None else ())
            return body == b"last"

        wait_until(take, TIMEOUT_S, lambda: f"got {got}")
        assert error.startswith("source: ")
        assert {str(number).encode() for number in range(50)} <= set(got)  # at least once
        up.hang_up()
    finally:
        for name in ("killed", "good"):
            down.call("DELETE", "parameters", "federation-upstream", VHOST, name)
        wait_until(lambda: not down.links(VHOST), TIMEOUT_S)
        up.process.stop()


def test_orderly_stop_downstream_settles_what_is_on_its_way_so_nothing_comes_twice(peers, tmp_path):
    up = peers[0]
    down = start_gomq(tmp_path, "stopped", http_port=reserve(), port=reserve())
    try:
        down.make_vhost(VHOST)
        channel = down.channel(VHOST)
        channel.exchange_declare("fed.once", "topic", durable=True)
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "fed.once", "#")
        down.hang_up()
        define(down, u=up.uri(VHOST))
        wait_for(down, "u", "running")
        upstream = up.channel(VHOST)
        for number in range(2000):
            upstream.basic_publish(
                "fed.once", "k", str(number).encode(), pika.BasicProperties(delivery_mode=2))
        wait_until(lambda: link_of(down, "u")["moved"] > 0, TIMEOUT_S)
        down.process.stop()
        down.process.start()
        wait_for(down, "u", "running")
        got = [body for _, _, body in bodies(down.channel(VHOST), "q", 2000)]
        wait_until(lambda: up.ready(VHOST, "federation: fed.once -> stopped") == 0, TIMEOUT_S)

        assert got == [str(number).encode() for number in range(2000)]
        assert down.ready(VHOST, "q") == 0
        down.hang_up()
    finally:
        down.process.stop()
        up.hang_up()


def test_upstream_that_does_not_answer_any_more_is_noticed_and_nothing_is_lost(peers, channel):
    up, down = peers
    with StallingProxy(up.process.port) as proxy:
        define(down, held=f"amqp://guest:guest@127.0.0.1:{proxy.port}/{VHOST}?heartbeat=1")
        wait_for(down, "held", "running")
        upstream = up.channel(VHOST)
        proxy.hold()
        upstream.basic_publish("fed.x", "k", b"while nobody answers")
        error = wait_for(down, "held", "error")["error"]
        proxy.cut()
        proxy.release()
        wait_for(down, "held", "running")
        got = [body for _, _, body in bodies(channel, "q", 1)]

    assert error == "source: nothing heard from the broker for 2 s"
    assert got == [b"while nobody answers"]


def test_link_connects_anew_where_what_it_has_made_upstream_is_deleted(peers, channel):
    up, down = peers
    define(down, u=up.uri(VHOST))
    wait_for(down, "u", "running")

    up.call("DELETE", "queues", VHOST, "federation: fed.x -> down")
    wait_until(lambda: link_of(down, "u")["reconnects"] > 0, TIMEOUT_S)
    wait_for(down, "u", "running")
    up.channel(VHOST).basic_publish("fed.x", "k", b"m")

    assert bodies(channel, "q", 1)[0][2] == b"m"


def test_links_to_a_vhost_that_is_deleted_upstream_or_here_end_or_say_so(peers):
    up, down = peers
    for peer in peers:
        peer.make_vhost("short")
    there = down.channel("short")
    there.exchange_declare("fed.x", "topic", durable=True)
    down.federate("short", up)
    down.wait_for_links("short", 1)

    up.call("DELETE", "vhosts", "short")
    link, = down.wait_for_links("short", 1, "error")
    down.call("DELETE", "vhosts", "short")

    assert link["error"].startswith("source: ") and quote("short") in link["error"]
    assert [one for one in down.call("GET", "federation-links") if one["vhost"] == "short"] == []
    down.connections.clear()
