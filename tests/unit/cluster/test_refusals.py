"""Refusals: an address that refuses twice is reported, at most once a minute."""
import gevent
import pytest
from gevent import socket

from gomq_py.cluster import refusals
from gomq_py.cluster.refusals import Refusals
from gomq_py.net.listener import bind_tcp
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(refusals, "AGAIN_S", 0.01)


@pytest.fixture
def address():
    """One that refuses: bound, and nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()


@pytest.fixture
def reported():
    return []


@pytest.fixture
def watch(reported):
    made = Refusals(reported.append)
    yield made
    made.close()


def wait(watch):
    wait_until(lambda: watch._trying is None, sleep=gevent.sleep)


def test_second_refusal_is_reported(watch, reported, address):
    watch.refused(address)
    watch.refused(address)
    assert not reported
    wait(watch)

    assert reported == [address]


def test_report_is_not_repeated_within_a_minute(watch, reported, address, monkeypatch):
    for _ in range(2):
        watch.refused(address)
        wait(watch)
    assert reported == [address]

    monkeypatch.setattr(refusals, "REPORT_S", 0.0)
    watch.refused(address)
    wait(watch)
    assert reported == [address, address]


def test_listener_that_is_back_is_not_reported(watch, reported):
    with bind_tcp("127.0.0.1", 0, 1) as listening:
        watch.refused(listening.getsockname())
        wait(watch)

    assert not reported


@pytest.mark.parametrize("host", ["no.host.invalid", "x" * 64])
def test_address_that_is_none_is_not_reported(watch, reported, host):
    watch.refused((host, 1))
    wait(watch)

    assert not reported


def test_closed_one_reports_nothing(watch, reported, address):
    watch.refused(address)
    watch.close()
    watch.refused(address)
    wait(watch)

    assert not reported
