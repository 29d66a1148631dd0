"""Answers that do not end: /api/events and /api/log as a browser's EventSource reads them."""
import contextlib
import json
import time

import pytest
import requests

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import in_time

STREAM = {"Accept": "text/event-stream"}


class Stream:
    """One stream, opened; ``next(event)`` reads up to the next event that is meant. A context manager."""

    def __init__(self, base, path, auth=("guest", "guest"), headers=None):
        self.response = requests.get(
            f"{base}/api/{path}", auth=auth, headers={**STREAM, **(headers or {})}, stream=True,
            timeout=in_time(60))
        assert self.response.status_code == 200, self.response.text
        assert self.response.headers["Content-Type"].startswith("text/event-stream")
        self._lines = self.response.iter_lines(chunk_size=1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.response.close()

    def events(self):
        """(name, id, data) one after the other."""
        fields = {}
        for line in self._lines:
            if line:
                key, _, value = line.decode().partition(": ")
                fields[key] = value
            elif "data" in fields:
                yield fields.get("event"), int(fields["id"]), json.loads(fields["data"])
                fields = {}

    def next(self, is_meant=lambda data: True):
        return next(one for one in self.events() if is_meant(one[2]))


def test_changes_are_told_as_they_come(api, name):
    with Stream(api.base, "events") as stream:
        api.put(f"queues/%2F/{name}")
        _, number, change = stream.next(lambda data: data.get("name") == name)
        api.delete(f"queues/%2F/{name}")
        _, later, gone = stream.next(lambda data: data.get("name") == name)

    assert (change["what"], gone["what"]) == ("queue.created", "queue.deleted")
    assert number == change["number"] < later
    # a browser that lost its connection goes on where it was
    with Stream(api.base, "events", headers={"Last-Event-ID": str(number)}) as stream:
        assert stream.next(lambda data: data.get("name") == name)[2]["what"] == "queue.deleted"


def test_whoever_comes_back_too_late_is_told_to_load_anew(api):
    with Stream(api.base, "events", headers={"Last-Event-ID": "7"}) as stream:
        kind, number, data = stream.next()

    assert (kind, data) == ("too_old", {"last": number})


def test_changes_are_told_to_whom_lists_would_show_them(api, name):
    api.put(f"vhosts/{name}")
    api.put("users/narrow", {"password": "narrow", "tags": "management"})
    api.put("permissions/%2F/narrow", {"configure": "", "write": "", "read": ""})
    with Stream(api.base, "events", ("narrow", "narrow")) as stream:
        api.put(f"queues/{name}/hidden")
        api.put(f"queues/%2F/{name}")

        seen = stream.next(lambda data: data.get("name") in ("hidden", name))[2]

    assert seen["name"] == name
    api.delete(f"vhosts/{name}")


def test_a_stream_ends_with_its_login(api, name):
    api.put("users/leaving", {"password": "leaving", "tags": "management"})
    with Stream(api.base, "events", ("leaving", "leaving")) as stream:
        api.delete("users/leaving")

        assert [one for one in stream.events() if one[2].get("user") != "leaving"] == []


def test_without_asking_for_a_stream_there_is_json(api):
    last = api.get("changes").json()["last"]

    assert api.get("events").json()["last"] >= last
    assert set(api.get("log?last=2").json()) == {"last", "lines"}


def test_log_lines_are_told_as_they_come_and_hold_no_password(api):
    with Stream(api.base, "log?last=0") as stream:
        api.as_user("nobody-known", "sesame-open").get("whoami")
        line = stream.next(lambda data: data["source"] == "http")[2]

    assert line["level"] == "warn" and "nobody-known" in line["message"]
    answer = api.get("log?last=1000")  # connections of earlier tests may have written lines since
    assert line["message"] in [one["message"] for one in answer.json()["lines"]]
    assert "sesame-open" not in answer.text
    assert len(api.get("log?last=1").json()["lines"]) == 1


@pytest.mark.parametrize("path", ["log?last=1001", "log?last=x", "events?since=x"])
def test_what_is_no_number_is_refused(api, path):
    assert api.get(path).status_code == 400


@pytest.fixture
def small(tmp_path):
    """A broker whose port takes eight connections, and so two streams."""
    config = tmp_path / "gomq.ini"
    config.write_text("[mgmt]\nmax_connections = 8\n")
    with BrokerProcess(tmp_path / "data", http_port=0, config=config) as process:
        yield process


def test_there_are_so_many_streams_that_others_still_come_in_and_they_end_with_the_broker(small):
    base = f"http://127.0.0.1:{small.ports['http']}"
    with contextlib.ExitStack() as streams:
        opened = [streams.enter_context(Stream(base, "events")) for _ in range(2)]
        refused = requests.get(
            f"{base}/api/log", auth=("guest", "guest"), headers=STREAM, timeout=in_time(60))
        assert refused.status_code == 503
        assert requests.get(f"{base}/api/whoami", auth=("guest", "guest"), timeout=in_time(60)).ok

        opened[0].response.close()
        began_s = time.monotonic()
        small.stop()

        assert time.monotonic() - began_s < in_time(10)
        assert list(opened[1].events()) == []
