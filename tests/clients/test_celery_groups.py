"""Celery with message groups, as docs/groups.md shows it: one task of a customer at a time, in order, however
many the worker runs at once and takes ahead.
"""
import contextlib
import re
import subprocess
import sys

import pytest

from tests.clients.celery_worker import PATIENCE_S
from tests.support.waiting import wait_until
from tests.unit.source_tree import ROOT

EXAMPLES = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "groups.md").read_text(encoding="utf-8"), re.DOTALL
)
# What the page's task does not do: stay for a moment, and tell when it begins and ends; and a task that is
# retried.
TASK = '''
import threading
running, lock = [], threading.Lock()

def charge(customer, number):
    with lock:
        running.append(customer)
        assert running.count(customer) == 1, running
    gone.wait(0.01)
    with lock:
        running.remove(customer)
    print(f"{customer} {number}", flush=True)

gone = threading.Event()
app.tasks["charge"].run = charge

@app.task(name="again", bind=True)
def again(self):
    if not self.request.retries:
        raise self.retry(countdown=0)
    print(f"{self.request.headers['customer']} {self.request.retries}", flush=True)
'''


@pytest.fixture
def module(tmp_path, broker_url):
    """The page's application as a module, whose functions are returned; the worker imports it by name."""
    source = EXAMPLES[1].replace("amqp://guest:guest@127.0.0.1:5672/%2f", broker_url)
    assert broker_url in source
    (tmp_path / "shop.py").write_text(source + TASK, encoding="utf-8")
    names: dict = {"__name__": "shop"}  # Celery tells every later app of this process of its tasks
    exec(source + EXAMPLES[2], names)
    yield names
    names["app"].close()


@contextlib.contextmanager
def working(tmp_path):
    """A worker while it runs, as a function: [(customer, number)] of the lines that it has printed."""
    log = tmp_path / "log"
    with log.open("w") as out:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "shop", "worker", "--pool", "threads",
             "--concurrency", "8", "--loglevel", "WARNING", "--without-gossip", "--without-mingle",
             "--without-heartbeat"],
            cwd=tmp_path, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield lambda: re.findall(r"\b(acme|other|third) (\d+)$", log.read_text(), re.MULTILINE)
    finally:
        worker.kill()
        worker.wait()
    assert "AssertionError" not in log.read_text()


def test_tasks_of_one_customer_run_in_order(module, tmp_path):
    app, send = module["app"], module["send"]
    for number in range(20):
        for customer in ("acme", "other", "third"):
            send(app, customer, number)

    with working(tmp_path) as done:
        wait_until(lambda: len(done()) == 60, PATIENCE_S, what="60 tasks")

    for customer in ("acme", "other", "third"):
        assert [int(number) for name, number in done() if name == customer] == list(range(20))


def test_a_task_that_is_retried_keeps_its_customer(module, tmp_path):
    module["app"].send_task("again", headers={"customer": "acme"})

    with working(tmp_path) as done:
        wait_until(lambda: ("acme", "1") in done(), PATIENCE_S, what="the second attempt")
