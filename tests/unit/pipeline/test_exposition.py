"""Exposition: counts for Prometheus, in a file and at an address."""
import contextlib
import http.client
import socket

import pytest

from gomq_py.pipeline import exposition
from gomq_py.pipeline.exposition import Endpoint, address_of, text_of, write
from gomq_py.spark.errors import OptionError
from tests.support.ports import reserve
from tests.support.waiting import TIMEOUT_S, wait_until


@pytest.fixture
def endpoint():
    endpoint = Endpoint("0")
    yield endpoint
    endpoint.close()


def ask(endpoint, path="/metrics", method="GET"):
    """(status, type, body) of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=TIMEOUT_S)
    connection.request(method, path)
    answer = connection.getresponse()
    found = answer.status, answer.headers["Content-Type"], answer.read().decode()
    connection.close()
    return found


def test_jobs_have_their_rows_and_their_lag_where_it_is_known():
    assert text_of({"b": 3, "a": 5}, {"a": 7, "b": None}, 12.3) == (
        "# TYPE gomq_pipeline_rows_total counter\n"
        'gomq_pipeline_rows_total{job="a"} 5\ngomq_pipeline_rows_total{job="b"} 3\n'
        '# TYPE gomq_pipeline_lag_rows gauge\ngomq_pipeline_lag_rows{job="a"} 7\n'
        "# TYPE gomq_pipeline_updated_seconds gauge\ngomq_pipeline_updated_seconds 12\n")


def test_name_of_a_job_cannot_break_out_of_its_label():
    text = text_of({'a"} 1\nb\\': 1}, {}, 0)

    assert 'gomq_pipeline_rows_total{job="a\\"} 1\\nb\\\\"} 1\n' in text


def test_file_is_replaced_whole(tmp_path):
    path = tmp_path / "counts.prom"
    path.write_text("older and longer")

    write(str(path), "new\n")

    assert path.read_text() == "new\n" and [one.name for one in tmp_path.iterdir()] == ["counts.prom"]


def test_text_of_the_moment_is_served(endpoint):
    first = ask(endpoint)
    endpoint.text = "x 1\n"

    assert first[:2] == (200, exposition.CONTENT_TYPE) and "gomq_pipeline_updated_seconds 0" in first[2]
    assert ask(endpoint, "/metrics?x=1")[2] == "x 1\n"


@pytest.mark.parametrize("method, path, status", [
    ("GET", "/", 404), ("GET", "/metrics/x", 404), ("POST", "/metrics", 501)
])
def test_nothing_else_is_served(endpoint, method, path, status):
    assert ask(endpoint, path, method)[0] == status


def test_client_that_says_nothing_or_nonsense_does_not_keep_others_out(endpoint, monkeypatch):
    monkeypatch.setattr(exposition, "CLIENT_S", 0.05)
    silent = socket.create_connection(("127.0.0.1", endpoint.port))
    assert silent.recv(1) == b""  # it is cut off
    monkeypatch.undo()
    rude = socket.create_connection(("127.0.0.1", endpoint.port))
    rude.sendall(b"\0\xff\r\n\r\n")
    rude.close()

    assert ask(endpoint)[0] == 200
    silent.close()


def test_client_that_sends_an_octet_now_and_then_has_no_longer_than_others(endpoint, monkeypatch):
    monkeypatch.setattr(exposition, "CLIENT_S", 0.05)
    slow = socket.create_connection(("127.0.0.1", endpoint.port))
    slow.settimeout(0.01)

    def is_cut_off():
        with contextlib.suppress(ConnectionError):
            slow.send(b"x")
            try:
                return slow.recv(1) == b""
            except TimeoutError:
                return False
        return True

    wait_until(is_cut_off)
    slow.close()


def test_address_that_is_taken_is_said(endpoint):
    with pytest.raises(
        OptionError, match=f"metrics cannot be served at 127.0.0.1:{endpoint.port}: Address already in use"
    ):
        Endpoint(str(endpoint.port))


def test_port_is_free_again_when_it_is_closed():
    port = str(reserve())
    first = Endpoint(port)
    first.close()

    second = Endpoint(port)

    assert ask(second)[0] == 200
    second.close()


@pytest.mark.parametrize("given, address", [
    ("9190", ("127.0.0.1", 9190)), ("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:9190", ("::1", 9190))
])
def test_addresses_are_understood(given, address):
    assert address_of(given) == address


@pytest.mark.parametrize("given", ["", "host", "host:", "1:2:x", "70000", "-1", "٣"])
def test_what_is_no_address_is_said(given):
    with pytest.raises(OptionError, match="is no address such as 9190 or 0.0.0.0:9190"):
        address_of(given)
