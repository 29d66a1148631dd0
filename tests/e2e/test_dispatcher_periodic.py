"""Periodic tasks: the broker sends them at their times, once for all workers, until the code says no more."""
import threading
from collections import Counter

import pytest
import requests

from gomq_py.dispatcher import BadArgument, Dispatcher, NotDelivered, current_task
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import in_time, wait_until


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("periodic") / "data", http_port=0) as broker:
        yield broker


@pytest.fixture
def make(broker, queue):
    """Another process's app of the same tasks."""
    made = []

    def app(**options):
        made.append(Dispatcher(broker.amqp_url, queue=queue, exchange=f"{queue}.x", **options))
        return made[-1]

    yield app
    for each in made:
        each.close(0)


def api(broker, verb, path, body=None):
    return requests.request(
        verb, f"http://127.0.0.1:{broker.ports['http']}/api/{path}", auth=("guest", "guest"), json=body,
        timeout=in_time(60))


def schedules(broker, queue):
    """{name: (cron, timezone, every)} of the app's."""
    return {
        row["name"]: (row["cron"], row["timezone"], row["every"])
        for row in api(broker, "get", "schedules").json() if row["exchange"] == f"{queue}.x.delayed"}


def test_task_runs_at_each_of_its_times_once_for_all_workers(make):
    lock, ran = threading.Lock(), Counter()
    for _ in range(3):
        app = make()

        @app.task(every_s=1)
        def tick():
            with lock:
                ran[current_task().headers["x-schedule-time"]] += 1

        app.workers()

    wait_until(lambda: len(ran) >= 3)
    times = sorted(ran)
    assert set(ran.values()) == {1}
    assert {later - earlier for earlier, later in zip(times, times[1:])} == {1000}


def test_start_sets_what_the_code_says_and_drops_what_it_says_no_more(broker, make, queue):
    app = make()
    app.task(lambda: None, name="hourly", every_s=3600)
    app.task(lambda: None, name="nightly", cron="0 3 * * *", timezone="Europe/Berlin")
    app.task(lambda: None, name="elsewhere", queue=f"{queue}.other", every_s=60)
    app.workers([queue])
    assert schedules(broker, queue) == {
        f"{queue}:hourly": (None, None, 3600_000), f"{queue}:nightly": ("0 3 * * *", "Europe/Berlin", None)}

    app = make()
    app.task(lambda: None, name="hourly", every_s=1800.5)
    app.task(lambda: None, name="nightly")
    app.workers()
    assert schedules(broker, queue) == {f"{queue}:hourly": (None, None, 1800_500)}

    make().drop_schedule("hourly")
    assert schedules(broker, queue) == {}


def test_start_of_another_worker_does_not_begin_the_interval_anew(broker, make, queue):
    def next_ms():
        return api(broker, "get", f"schedules/%2F/{queue}.x.delayed/{queue}:hourly").json()["next"]

    found = []
    for _ in range(3):
        app = make()
        app.task(lambda: None, name="hourly", every_s=3600)
        app.set_schedules()
        found.append(next_ms())

    assert len(set(found)) == 1


def test_worker_without_the_right_to_delay_starts_all_the_same(broker, make, queue, caplog):
    api(broker, "put", "users/plain", {"password": "plain", "tags": ""})
    api(broker, "put", "permissions/%2F/plain", {
        "configure": ".*", "write": "^(?!.*delayed$).*$", "read": ".*"})
    app, ran = make(), threading.Event()
    app.url = broker.amqp_url.replace("guest:guest", "plain:plain")
    task = app.task(ran.set, name="plain")
    app.workers()

    task.delay()

    assert ran.wait(in_time(60))
    assert "an earlier schedule may go on" in caplog.text


def test_line_that_the_broker_refuses_is_told_at_the_start(make):
    app = make()
    app.task(lambda: None, name="never", cron="0 0 31 2 *")

    with pytest.raises(NotDelivered, match="field 'cron'"):
        app.workers()


@pytest.mark.parametrize("options, text", [
    ({"every_s": 0.5}, "from 1 to"), ({"every_s": "5"}, "from 1 to"), ({"every_s": True}, "from 1 to"),
    ({"every_s": 1e300}, "from 1 to"), ({"every_s": float("nan")}, "from 1 to"),
    ({"every_s": 5, "cron": "* * * * *"}, "not by both"), ({"timezone": "UTC"}, "needs cron"),
    ({"cron": 5}, "cron is a text"), ({"cron": "* * * * *", "timezone": ""}, "timezone is a text"),
])
def test_times_that_are_none_are_refused_where_they_stand(options, text):
    with pytest.raises(ValueError, match=text):
        Dispatcher().task(lambda: None, name="t", **options)


def test_task_that_needs_arguments_is_not_periodic():
    with pytest.raises(BadArgument, match="customer"):
        @Dispatcher().task(every_s=60)
        def bill(customer: str): ...
