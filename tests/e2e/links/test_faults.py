"""Networks that fail between a link and its brokers: black holes, cuts in the middle of a message, nobody
there.
"""
import logging

import pytest

from gomq_py.client.backoff import Backoff
from gomq_py.links.ends import SourceEnd, TargetEnd
from tests.support.links import connect, consumers, fill, numbers, take_all, until
from tests.support.ports import reserve
from tests.support.stalling_proxy import StallingProxy

SIDES = ("source", "destination")


def via(proxy, broker):
    """A URI that leads through the proxy, with a heartbeat of a second."""
    return broker.amqp_url.replace(f":{broker.port}", f":{proxy.port}") + "?heartbeat=1"


@pytest.fixture
def proxied(pair, make_link, queues):
    """(proxy, a started link with a proxy on one side), by the side."""
    proxies = []

    def make(side):
        proxies.append(StallingProxy(pair[SIDES.index(side)].port))
        uris = [broker.amqp_url for broker in pair]
        uris[SIDES.index(side)] = via(proxies[0], pair[SIDES.index(side)])
        queue = queues[0]
        link = make_link(SourceEnd(uris[0], queue), TargetEnd(uris[1], "", queue))
        link.start()
        return proxies[0], link

    yield make
    for proxy in proxies:
        proxy.__exit__()


@pytest.mark.parametrize("side", SIDES)
def test_black_hole_is_found_by_heartbeats_and_nothing_is_lost(queues, proxied, side):
    queue, source, target = queues
    proxy, link = proxied(side)
    until(lambda: link.status.state == "running")

    proxy.hold()
    fill(source, queue, 3000, body=b"%d " + b"x" * 1000)
    until(lambda: link.status.error)
    status = link.status
    proxy.cut()
    proxy.release()
    until(lambda: link.status.state == "running" and link.status.moved >= 3000)

    assert status.error == f"{side}: nothing heard from the broker for 2 s"
    assert sorted(set(numbers(take_all(target, queue)))) == list(range(3000))


@pytest.mark.parametrize("side", SIDES)
def test_cuts_in_the_middle_of_large_messages_tear_none(queues, proxied, side):
    queue, source, target = queues
    proxy, link = proxied(side)
    body = b"%d " + b"x" * 900_000
    fill(source, queue, 30, body=body)

    for moved in (3, 9, 15):
        until(lambda: link.status.moved >= moved)  # noqa: B023
        reconnects = link.status.reconnects
        proxy.hold()
        proxy.cut()
        # what a source has given a consumer whose end it has not seen yet comes behind the rest
        until(lambda: side == "destination" or not consumers(source, queue))
        proxy.release()
        until(lambda: link.status.reconnects > reconnects or link.status.moved >= 30)  # noqa: B023
    until(lambda: link.status.moved >= 30)

    arrived = take_all(target, queue)
    assert all(delivery.body == body % int(delivery.body.split()[0]) for delivery in arrived)
    firsts = list(dict.fromkeys(numbers(arrived)))
    assert firsts == list(range(30))


@pytest.mark.parametrize("side", SIDES)
def test_nobody_there_is_said_once_in_a_while(pair, queues, make_link, caplog, side):
    uris = [broker.amqp_url for broker in pair]
    uris[SIDES.index(side)] = f"amqp://me:secret@127.0.0.1:{reserve()}"
    link = make_link(
        SourceEnd(uris[0], queues[0]), TargetEnd(uris[1], "", queues[0]), backoff=Backoff(0.01, 0.02))

    with caplog.at_level(logging.INFO):
        link.start()
        until(lambda: link.status.reconnects >= 20)

    status = link.status
    lines = [line for line in caplog.messages if link.name in line]
    assert status.state == "starting"
    assert status.error.startswith(f"{side}: ") and "refused" in status.error.lower()
    assert len(lines) == 1
    assert "secret" not in repr(status) + "".join(caplog.messages)


def test_password_that_is_refused_ends_the_link(pair, queues, make_link):
    uri = pair[1].amqp_url.replace("guest:guest", "guest:wrong")
    link = make_link(target=TargetEnd(uri, "", queues[0]))
    link.start()
    until(lambda: link.has_ended)

    assert link.status.state == "error"
    assert link.status.error.startswith("destination: 403 ")
    assert "wrong" not in repr(link.status)


def test_peer_that_never_answers_is_given_up_in_time(pair, queues, make_link):
    with StallingProxy(pair[1].port) as proxy:
        proxy.hold()
        link = make_link(
            target=TargetEnd(via(proxy, pair[1]), "", queues[0]),
            connect_target=lambda uri: connect(uri + "&connection_timeout=300"))
        link.start()
        until(lambda: link.status.reconnects >= 2)

        assert link.status.state == "starting"
        assert link.status.error.startswith("destination: ")
