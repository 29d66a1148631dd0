"""Upgrades: what serves a WebSocket, and for whose end is waited when it is over."""
from email.message import Message
from types import SimpleNamespace

import gevent
import pytest
from gevent import socket

from gomq_py.hub.scheduler import Scheduler
from gomq_py.http.upgrades import LINGERING_MAX, UpgradeRefused, Upgrades
from gomq_py.hub.turns import SlowTurns
from tests.support.waiting import in_time


class Lingering:
    """So many linger already; notes who is to."""

    def __init__(self, count):
        self.count, self.ended = count, []

    def __len__(self):
        return self.count

    def end(self, websocket):
        self.ended.append(websocket)


def begun(handle, lingering, is_closing=False):
    """Which protocols were asked for, once an upgrade was served by ``handle``."""
    asked = []

    def serving(protocol):
        asked.append(protocol)
        return handle, SimpleNamespace(has_room=lambda host: True, is_pending=bool)

    hub = SimpleNamespace(
        clients=SimpleNamespace(is_closing=False), lingering=lingering, slow_turns=SlowTurns(Scheduler()))
    upgrades = Upgrades(
        SimpleNamespace(
            mqtt_websocket=True, websocket_origins=[], mqtt_max_octets_before_login=65536,
            oauth_mgmt_base_url=""), serving, hub,
        SimpleNamespace(apply=lambda socket: None))
    headers = Message()
    for name, value in (
        ("Host", "h"), ("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), ("Sec-WebSocket-Protocol", "mqtt"),
    ):
        headers[name] = value
    ours, theirs = socket.socketpair()
    accepted = upgrades.answer("/", headers, "HTTP/1.1", "127.0.0.1")
    hub.clients.is_closing = is_closing

    upgrades.begin(accepted, ours, ("127.0.0.1", 1), b"")

    with gevent.Timeout(in_time(10)), theirs:
        while ours.fileno() >= 0:
            gevent.sleep(0)
    return asked


def test_upgrade_is_served_by_what_there_was_when_it_was_agreed_on():
    """The node may close in between, and serve nothing anew."""
    served = []

    assert begun(lambda _, address: served.append(address), Lingering(0), is_closing=True) == ["mqtt"]

    assert served == [("127.0.0.1", 1)]


@pytest.mark.parametrize("is_heard, count, lingers", [
    (False, LINGERING_MAX - 1, 1), (False, LINGERING_MAX, 0), (True, LINGERING_MAX, 1),
])
def test_who_was_turned_away_unheard_lingers_while_few_do(is_heard, count, lingers):
    """Such ones count against no limit of connections."""
    lingering = Lingering(count)

    def handle(websocket, _address):
        if is_heard:
            websocket.sendall(b"said")

    begun(handle, lingering)

    assert len(lingering.ended) == lingers


def test_page_of_another_origin_is_told_to_the_operator(caplog):
    """Its author sees no reason: browsers show none."""
    upgrades = Upgrades(
        SimpleNamespace(websocket_origins=[]), None,
        SimpleNamespace(clients=None), None)
    headers = Message()
    headers["Host"], headers["Origin"] = "h", "http://localhost:3000"

    with caplog.at_level("WARNING"), pytest.raises(UpgradeRefused):
        upgrades.answer("/", headers, "HTTP/1.1", "10.0.0.7")

    assert (
        "WebSocket from 10.0.0.7 refused: a page of http://localhost:3000 may not connect "
        "([mgmt] websocket_origins)") in caplog.text
