"""Messages that end a link, wherever they do: each is found, counted and rejected at its source after the
limit, and those around it arrive.
"""
from itertools import count

import gevent
import pytest
from gevent import socket
from gevent.server import StreamServer

from gomq_py.content.fields import Int64
from gomq_py.content.properties import Properties
from gomq_py.links.ends import TargetEnd
from tests.e2e.links.test_refusals import TOO_LARGE, dead_letters
from tests.e2e.links.test_webhooks import server, webhook  # noqa: F401 (fixtures)
from tests.support.links import depth, fill, numbers, take_all, until

MARK = b"which-ends-connections"


@pytest.fixture
def moved_but_one(queues):
    """Messages 0 to 39 around one of number 99; ``check(link)`` waits until all have gone where they should.
    """
    queue, source, target = queues
    dead = dead_letters(source, queue)

    def put(properties=None, body=b"99"):
        fill(source, queue, 20)
        source.publish("", queue, body, properties)
        fill(source, queue, 20, first=20)

        def check(link, arriving=target):
            until(lambda: link.status.set_aside == 1 and link.status.moved == 40)
            assert depth(source, queue) == 0
            assert [delivery.body for delivery in take_all(source, dead, 1)] == [body]
            if arriving is not None:
                arrived = numbers(take_all(arriving, queue, depth(arriving, queue)))
                assert sorted(set(arrived)) == list(range(40))
            until(lambda: link.status.state == "running")
        return check
    return put


class Unwritable:
    """No table can hold it."""


@pytest.mark.parametrize("bad", [
    lambda properties: {}["missing"], lambda properties: setattr(properties, "type", "x" * 300),
    lambda properties: setattr(properties, "priority", 1000),
    lambda properties: setattr(properties, "headers", {"a": Unwritable()}),
    lambda properties: setattr(properties, "headers", {"a": Int64(1 << 64)}),
    lambda properties: setattr(properties, "headers", {"a": "x" * 200_000}),
], ids=["raises", "long", "octet", "type", "integer", "large"])
def test_edit_that_fails_on_one_message(moved_but_one, make_link, bad):
    def edit(properties, delivered):
        if properties.message_id == "bad":
            bad(properties)
        return properties

    check = moved_but_one(Properties(message_id="bad"))
    link = make_link(edit=edit, refusals=2)
    link.start()

    check(link)
    assert link.status.reconnects == 2


def test_edit_that_fails_is_told_and_the_message_stays_where_there_is_no_limit(queues, make_link):
    queue, source, _ = queues
    fill(source, queue, 1)

    link = make_link(edit=lambda properties, delivered: {}["missing"])
    link.start()
    until(lambda: link.status.reconnects >= 3)

    assert link.status.error == (
        "destination: the properties of a message cannot be read or changed: 'missing'")
    assert link.status.set_aside == 0


def test_message_that_is_changed_otherwise_at_each_attempt_is_known_again(moved_but_one, make_link):
    times = count()

    def edit(properties, delivered):
        properties.headers = {"at": next(times)}
        return properties

    check = moved_but_one(body=TOO_LARGE)
    link = make_link(edit=edit, refusals=2)
    link.start()

    check(link)


def test_message_at_which_the_destination_closes_the_socket_without_a_word(
    moved_but_one, make_link, pair, name,
):
    """As some brokers do, and proxies in front of them."""
    def serve(near, _address):
        with socket.create_connection(("127.0.0.1", pair[1].port)) as far:
            back = gevent.spawn(_pass_on, far, near)
            _pass_on(near, far, until_mark=True)
            back.kill()
        near.close()

    listening = StreamServer(("127.0.0.1", 0), serve)
    listening.start()
    uri = pair[1].amqp_url.replace(f":{pair[1].port}", f":{listening.server_port}")
    check = moved_but_one(body=MARK)
    link = make_link(target=TargetEnd(uri, "", name), refusals=2)
    link.start()
    try:
        check(link)
    finally:
        link.stop()
        until(lambda: link.has_ended)
        listening.stop()


def _pass_on(source, target, until_mark=False):
    try:
        while octets := source.recv(65536):
            if until_mark and MARK in octets:
                return
            target.sendall(octets)
    except OSError:
        pass


def test_message_of_an_exchange_that_the_destination_does_not_have(queues, make_link, pair):
    """Where each message keeps its own, this is a matter of that message."""
    queue, source, target = queues
    dead = dead_letters(source, queue)
    for channel, names in ((source, ("here", "both")), (target, ("both",))):
        for name in names:
            channel.exchange_declare(name, "fanout", durable=False)
            channel.queue_bind(queue, name)
    for number in range(40):
        source.publish("both", "", b"%d" % number)
        if number == 20:
            source.publish("here", "", b"99")

    link = make_link(target=TargetEnd(pair[1].amqp_url), refusals=2)
    link.start()
    until(lambda: link.status.set_aside == 1 and link.status.moved == 40)

    assert numbers(take_all(source, dead, 1)) == [99]
    assert sorted(set(numbers(take_all(target, queue, depth(target, queue))))) == list(range(40))


def test_edit_that_fails_on_the_way_to_a_webhook(moved_but_one, make_link, webhook, server):  # noqa: F811
    def edit(properties, delivered):
        if properties.message_id == "bad":
            raise KeyError("missing")
        return properties

    webhook.edit = edit
    check = moved_but_one(Properties(message_id="bad"))
    link = make_link(target=webhook, refusals=2)
    link.start()

    check(link, arriving=None)
    assert sorted(set(map(int, server.bodies))) == list(range(40))


def test_message_that_the_post_cannot_be_made_of_for_a_fault_of_ours(
    moved_but_one, make_link, webhook, server, monkeypatch,  # noqa: F811
):
    from gomq_py.links.webhook import Poster
    send = Poster.send

    def failing(self, message):
        if message.body == b"99":
            raise RuntimeError("ours")
        send(self, message)

    monkeypatch.setattr(Poster, "send", failing)
    check = moved_but_one()
    link = make_link(target=webhook, refusals=2)
    link.start()

    check(link, arriving=None)


def test_web_server_that_is_away_is_no_messages_fault(
    moved_but_one, make_link, webhook, server, queues,  # noqa: F811
):
    """Though one message is on its way alone."""
    def edit(properties, delivered):
        if properties.message_id == "bad":
            raise KeyError("missing")
        return properties

    queue, source, _ = queues
    webhook.edit = edit
    check = moved_but_one(Properties(message_id="bad"))
    server.answer = lambda body, seen: "503 Later" if body == b"20" and seen < 30 else "200 OK"
    link = make_link(target=webhook, refusals=1)
    link.start()

    check(link, arriving=None)
    assert sorted(set(map(int, server.bodies))) == list(range(40))
