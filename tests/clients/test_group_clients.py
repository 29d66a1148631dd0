"""The examples of docs/groups-clients.md: messages of one customer come one after the other, in dramatiq and
in Java.
"""
import os
import re
import subprocess
import sys
from collections import defaultdict

import pytest

from tests.support.maven import class_path
from tests.support.programs import find
from tests.support.waiting import in_time, wait_until
from tests.unit.source_tree import ROOT

PATIENCE_S = in_time(60)
PAGE = (ROOT / "docs" / "groups-clients.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
JAVA = re.findall(r"```java\n(.*?)```", PAGE, re.DOTALL)
CUSTOMERS = ("acme", "other", "third")
# The begin and the end of each, and nothing of this customer in between.
ONE_AT_A_TIME = {customer: [number for number in range(20) for _ in range(2)] for customer in CUSTOMERS}
# In place of what the page's actor and consumer do: stay for a moment, and tell when they begin and end.
ACTOR = '''
import os, threading
gone, log = threading.Event(), os.open(os.environ["GROUPS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(customer, number):
    os.write(log, f"begin {customer} {number}\\n".encode())
    gone.wait(0.01)
    os.write(log, f"end {customer} {number}\\n".encode())

charge.fn = note
'''
WORK = '''System.out.println("begin " + new String(delivery.getBody()));
            java.util.concurrent.locks.LockSupport.parkNanos(1_000_000);
            System.out.println(worker + " end " + new String(delivery.getBody()));'''


@pytest.fixture
def module(tmp_path, broker_url):
    """The names of the page's module, which the workers import as ``shop``."""
    pytest.importorskip("dramatiq")
    source = PYTHON[0].replace("amqp://guest:guest@127.0.0.1:5672/%2f", broker_url)
    assert broker_url in source
    (tmp_path / "shop.py").write_text(source + ACTOR, encoding="utf-8")
    names: dict = {"__name__": "shop"}
    exec(source + PYTHON[1], names)
    yield names
    names["broker"].close()


def numbers_of(lines):
    """{customer: numbers in the order in which they came} of lines such as ``begin acme 7``."""
    found = defaultdict(list)
    for customer, number in re.findall(r"\b(\w+) (\d+)$", lines, re.MULTILINE):
        found[customer].append(int(number))
    return found


def test_dramatiq_runs_the_messages_of_one_customer_in_order(module, tmp_path):
    for number in range(20):
        for customer in CUSTOMERS:
            module["send"](module["charge"], customer, number)
    log, output = tmp_path / "log", tmp_path / "output"
    with output.open("w") as out:
        worker = subprocess.Popen(
            [sys.executable, "-m", "dramatiq", "shop:broker", "--processes", "2", "--threads", "4"],
            cwd=tmp_path, env={**os.environ, "GROUPS_LOG": str(log)}, stdout=out, stderr=out)
    try:
        wait_until(
            lambda: log.exists() and log.read_text().count("end") == 60, PATIENCE_S, what=output.read_text)
    finally:
        worker.terminate()
        worker.wait(PATIENCE_S)

    assert numbers_of(log.read_text()) == ONE_AT_A_TIME


def test_dramatiq_sends_on_a_new_connection_when_the_old_one_is_gone(module):
    module["send"](module["charge"], "acme", 1)
    module["broker"].connection.close()

    module["send"](module["charge"], "acme", 2)


@pytest.mark.needs_program("java")
@pytest.mark.needs_program("mvn")
def test_java_consumers_get_the_messages_of_one_customer_in_order(broker_address, tmp_path):
    host, port = broker_address
    shown = 'System.out.println(worker + " " + new String(delivery.getBody()));'
    assert shown in JAVA[0]
    (tmp_path / "Orders.java").write_text(JAVA[0].replace(shown, WORK), encoding="utf-8")

    done = subprocess.run(
        [find("java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp",
         class_path("com.rabbitmq", "amqp-client", "5.35.0"), str(tmp_path / "Orders.java"),
         f"amqp://guest:guest@{host}:{port}/%2F"],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert numbers_of(done.stdout) == ONE_AT_A_TIME
    assert {"one", "two"} <= {line.split()[0] for line in done.stdout.splitlines()}
