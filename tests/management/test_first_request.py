"""The first request to a management listener, which imports Flask and the routes, in a thread."""
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import gevent
import pika
import pytest
import requests

import gomq_py
from gomq_py.http import door
from gomq_py.launcher import BootError
from tests.support.broker_process import BrokerProcess
from tests.support.command import ROOT
from tests.support.waiting import in_time, wait_until

GUEST = ("guest", "guest")


def ask(broker, path="/api/overview"):
    return requests.get(f"{broker.http_url}{path}", auth=GUEST, timeout=in_time(60))


def printed(source):
    """What a Python program prints."""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=in_time(60), cwd=ROOT)
    return done.stdout.strip() or done.stderr


def test_first_requests_wait_for_one_import_while_other_clients_are_served(monkeypatch):
    """The import cannot end before a client of AMQP has published and got a message."""
    made, served, make = [], threading.Event(), door._import_and_make

    def make_late(kind, node):
        made.append(kind)
        assert served.wait(in_time(60))
        return make(kind, node)

    monkeypatch.setattr(door, "_import_and_make", make_late)
    with gomq_py.Broker(http_port=0) as broker, ThreadPoolExecutor(5) as threads:
        answers = [threads.submit(ask, broker) for _ in range(5)]
        wait_until(lambda: made)
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            channel = connection.channel()
            channel.queue_declare("q")
            channel.basic_publish("", "q", b"meanwhile")
            got = channel.basic_get("q", auto_ack=True)[2]
        assert not any(answer.done() for answer in answers)
        served.set()
        statuses = [answer.result().status_code for answer in answers]

    assert (got, statuses, made) == (b"meanwhile", [200] * 5, ["http"])


def test_first_request_does_not_wait_for_the_pool_whose_threads_are_all_busy(monkeypatch):
    """They may wait for a slow disk."""
    freed, busy, make_app = threading.Event(), [], door.Management._make_app

    def make_app_beside(management, kind):
        pool = gevent.get_hub().threadpool
        busy.extend(pool.spawn(freed.wait, in_time(10)) for _ in range(pool.maxsize))
        make_app(management, kind)

    monkeypatch.setattr(door.Management, "_make_app", make_app_beside)
    with gomq_py.Broker(http_port=0) as broker:
        status = ask(broker).status_code
        are_done = [one.ready() for one in busy]
        freed.set()

    assert (status, set(are_done)) == (200, {False})


def test_listeners_of_all_kinds_answer_their_first_requests_at_the_same_time(tmp_path):
    control = str(tmp_path / "control.sock")
    with BrokerProcess(
        tmp_path / "data", http_port=0, metrics_http_port=0, control_unix_path=control,
    ) as broker, ThreadPoolExecutor(6) as threads:
        http, metrics = (f"http://127.0.0.1:{broker.ports[name]}" for name in ("http", "metrics"))

        def ask_control():
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(in_time(60))
                client.connect(control)
                client.sendall(b"GET /api/whoami HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return int(client.recv(100).split()[1])

        answers = [threads.submit(ask_control) for _ in range(2)] + [
            threads.submit(lambda url: requests.get(url, auth=GUEST, timeout=in_time(60)).status_code, url)
            for url in (f"{http}/api/overview", f"{http}/", f"{metrics}/metrics",
                        f"{metrics}/api/health/checks/is-alive")]

        assert [answer.result() for answer in answers] == [200] * 6


def test_broker_stops_in_order_while_the_first_request_imports(tmp_path):
    with BrokerProcess(tmp_path / "data", http_port=0) as broker:
        with socket.create_connection(("127.0.0.1", broker.ports["http"])) as client:
            client.sendall(b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\n\r\n")
            broker.process.send_signal(signal.SIGTERM)

            assert broker.process.wait(in_time(30)) == 0


@pytest.fixture
def broken(monkeypatch):
    """An embedded broker whose first request cannot import the routes; and the attempts to do so."""
    attempts = []

    def fail(kind, node):
        attempts.append(kind)
        raise ImportError("no module of this name")

    monkeypatch.setattr(door, "_import_and_make", fail)
    with gomq_py.Broker(http_port=0) as broker:
        yield broker, attempts


def test_import_that_fails_is_answered_with_503_and_not_repeated_for_each_request(broken):
    broker, attempts = broken

    answers = [ask(broker), ask(broker)]

    assert [answer.status_code for answer in answers] == [503, 503]
    assert answers[0].json() == {
        "error": "service_unavailable",
        "reason": "the management API could not be imported: see the broker's log"}
    assert attempts == ["http"]


def test_import_that_fails_is_answered_without_a_body_to_head(broken):
    """A body would be the answer to the connection's next request."""
    broker, _ = broken
    with requests.Session() as session:
        statuses = [
            session.request(method, f"{broker.http_url}/", timeout=in_time(60)).status_code
            for method in ("HEAD", "HEAD", "GET")]

    assert statuses == [503, 503, 503]


def test_import_that_failed_is_tried_again(broken, monkeypatch):
    broker, _ = broken
    monkeypatch.setattr(door, "RETRY_S", 0.0)
    refused = ask(broker).status_code
    monkeypatch.undo()

    assert (refused, ask(broker).status_code) == (503, 200)


@pytest.mark.parametrize("name", door.LATE_PACKAGES)
def test_broker_without_a_package_of_the_first_request_does_not_start(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed

    with pytest.raises(BootError, match=f"need the package {name}: install it, or switch"):
        gomq_py.Broker(http_port=0).start()


def test_packages_that_the_boot_looks_for_are_all_that_the_first_request_imports():
    assert printed(
        "import sys, gomq_py.__main__, gomq_py.launcher, gomq_py.http.door; there = set(sys.modules); "
        "import gomq_py.http.app; print(sorted({name.partition('.')[0] for name in set(sys.modules) - there} "
        "- sys.stdlib_module_names - {'gomq_py'}))") == str(sorted(door.LATE_PACKAGES))


def test_modules_that_the_core_may_import_are_there_before_the_thread_imports():
    assert printed(
        "import sys, gomq_py.__main__, gomq_py.launcher, importlib; from gomq_py.http import door; "
        "list(map(importlib.import_module, door.SHARED)); there = set(sys.modules); "
        "import gomq_py.http.app; print([name for name in set(sys.modules) - there "
        "if name in ('decimal', 'unicodedata') or name.startswith('gomq_py.') "
        "and name.split('.')[1] not in ('http', 'diagnosis')])") == "[]"
