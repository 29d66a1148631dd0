"""Answers about changes while a disk is slow, hangs or fails."""
import socket
from types import SimpleNamespace

import gevent
import pytest

from gomq_py.http import durability
from gomq_py.http.answers import no_content
from gomq_py.http.app import create_app
from gomq_py.http.server import _has_gone
from tests.support.waiting import wait_until


class Disk:
    """One that has what it was asked for when the test says so."""

    def __init__(self):
        self.answer = None

    def when_safe(self, callback):
        self.answer = callback


@pytest.fixture
def disk():
    return Disk()


def client_of(disk):
    """A client of a node's app, in which POST /change and POST /cluster/change change something."""
    app = create_app(SimpleNamespace(
        broker=SimpleNamespace(durability=disk), settings=SimpleNamespace(oauth_client_id="")))
    app.post("/change")(no_content)
    app.add_url_rule("/cluster/change", "cluster.change", no_content, methods=["POST"])
    return app.test_client()


@pytest.fixture
def change(disk, monkeypatch):
    """A function: a request that changes something is made, in a greenlet."""
    monkeypatch.setattr(durability, "LOOK_S", 0.01)
    client = client_of(disk)
    return lambda is_gone: gevent.spawn(
        client.post, "/change", environ_overrides={"gomq.is_gone": is_gone})


@pytest.mark.parametrize("error, status", [(None, 204), (OSError("no disk"), 500)])
def test_answer_waits_for_the_disk_while_its_client_is_there(disk, change, error, status):
    looks = []
    answer = change(lambda: looks.append(1))
    wait_until(lambda: len(looks) > 2, sleep=gevent.sleep)
    assert not answer.ready()

    disk.answer(error)

    assert answer.get().status_code == status


def test_change_of_the_cluster_is_answered_by_a_node_that_leads_no_more(disk):
    assert client_of(disk).post("/cluster/change").status_code == 204
    assert disk.answer is None


def test_request_whose_client_has_gone_waits_no_longer(disk, change):
    assert change(lambda: True).get().status_code == 500
    disk.answer(None)


@pytest.mark.parametrize("unread", [b"", b"GET / HTTP/1.1\r\n\r\n"])
def test_client_has_gone_when_its_side_is_closed(unread):
    client, ours = socket.socketpair()
    with client, ours:
        client.sendall(unread)
        assert not _has_gone(ours)

        client.close()

        assert _has_gone(ours)
