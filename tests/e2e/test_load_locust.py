"""Locust's users at a real broker: the account of a short run balances, a false one would fail,
and the page works in a browser.
"""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from types import SimpleNamespace

import pytest
import requests

from load.locust_run import Watch, _judge, confirmed_per_s, wanted_per_s
from tests.support.command import ROOT
from tests.support.ports import reserve
from tests.support.waiting import TIMEOUT_S, in_time, wait_until

# Locust patches the standard library when it is imported,
# so that its modules are looked at in processes of their own.


# All but who watches the management pages.
USERS = (
    "Producer", "Worker", "Device", "MqttDevice", "Listening", "StreamReader", "Caller", "Answering",
    "Visitor",
)


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def test_account_of_a_short_run_balances():
    """15 s, 30 users; rates and latencies are for machines that do nothing else. Three of them are devices
    that report over MQTT, at QoS 0 to a stream and at QoS 1 to a queue whose messages are in the account.
    """
    finished = subprocess.run(
        [sys.executable, "-m", "load.locust_run", "--account-only"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=in_time(280),
        env=environment(LOAD_USERS="30", LOAD_SECONDS="15"),
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    account = json.loads(re.search(r"^account: (\{.*\})$", finished.stdout, re.MULTILINE)[1])
    assert account["confirmed"] > 100 and account["missing"] == 0
    # Which of the others have had a turn within 15 s is a matter of chance, and of the machine.
    for line in (
        "AMQP     connect", "publish confirmed", "publish to delivery", "MQTT     connect", "report QoS 0",
        "report QoS 1", "MQTT report to delivery", "report to subscriber", "report to stream reader",
    ):
        assert line in finished.stdout + finished.stderr
    assert re.search(r"broker: [\d.]+ s of CPU .* anonymous memory .* loop lag up to", finished.stdout)


@pytest.mark.parametrize(
    "users, shape, wanted",
    [(300, "", 3000), (30, "", 188), (12, "", 0), (300, "soak", 3000), (300, "spike", None)],
)
def test_rate_that_is_wanted_goes_by_the_users_that_publish(users, shape, wanted):
    """Twelve of them consume, answer and watch, however many there are."""
    told = wanted_per_s(users, shape)

    assert told == wanted if told is None else round(told) == wanted


def test_rate_counts_from_the_middle_of_the_time_in_which_the_users_come():
    assert confirmed_per_s(750, 10) == 100 and confirmed_per_s(50, 1) == 100


@pytest.mark.parametrize("wrong", [{"LOAD_SHAPE": "square"}, {"LOAD_USERS": "many"}, {"LOAD_SECONDS": "0"}])
def test_size_that_is_none_is_said_before_anything_starts(wrong):
    finished = subprocess.run(
        [sys.executable, "-m", "load.locust_run"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=in_time(60),
        env=environment(**wrong),
    )

    assert (finished.returncode, finished.stdout) == (2, "") and next(iter(wrong)) in finished.stderr


def bursts(broker):
    """{process: messages published to its busiest work queue} of the Locust processes that are there."""
    answer = requests.get(
        f"http://127.0.0.1:{broker.ports['http']}/api/queues", auth=("guest", "guest"), timeout=TIMEOUT_S
    )
    found: dict = {}
    for queue in answer.json():
        if (named := re.match(r"load\.(\d+)\.\w+\.work\.", queue["name"])) is not None:
            published = queue.get("message_stats", {}).get("publish", 0)
            found[named[1]] = max(found.get(named[1], 0), published)
    return found


def test_several_processes_close_an_account_each(broker_process):
    """A master, which has the table, and two workers, which have the users.

    They are stopped once both have published several bursts to one queue, so that each has a confirm. What a
    single request met is the machine's affair (--exit-code-on-error 0): the accounts are judged.
    """
    broker = broker_process(http_port=0, mqtt_port=0).start()
    port = reserve()
    command = [sys.executable, "-m", "locust", "-f", "load/locustfile.py", "--host", "http://127.0.0.1",
               "--exit-code-on-error", "0"]
    # None of them starts before both workers are there.
    master = [
        *command, "--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", str(port),
        "--headless", "--expect-workers", "2", "-u", "26", "-r", "26", "--only-summary", *USERS,
    ]
    worker = [*command, "--worker", "--master-host", "127.0.0.1", "--master-port", str(port)]
    children = [
        subprocess.Popen(
            each, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment(
                LOAD_AMQP_URL=broker.amqp_url,
                LOAD_MQTT_URL=f"mqtt://guest:guest@127.0.0.1:{broker.ports['mqtt']}",
            ),
        )
        for each in (master, worker, worker)
    ]
    try:
        # A burst is ten messages, and the next is sent when it is confirmed; at most two users of a process
        # share a queue.
        wait_until(lambda: sum(count >= 50 for count in bursts(broker).values()) == 2, in_time(120))
        children[0].terminate()
        told = [child.communicate(timeout=in_time(120))[0] for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait(TIMEOUT_S)

    assert "publish confirmed" in told[0] and "publish to delivery" in told[0]
    accounts = [json.loads(re.search(r"^account: (\{.*\})$", text, re.MULTILINE)[1]) for text in told[1:]]
    assert all(account["confirmed"] > 0 and account["missing"] == 0 for account in accounts), told
    assert [child.returncode for child in children] == [0, 0, 0], told


def test_account_tells_what_was_confirmed_and_not_delivered():
    """Where the broker is away at the end, too: nobody can be asked for the rest, which is missing."""
    code = (
        "from types import SimpleNamespace\n"
        "import load.locustfile as file\n"
        "from load.amqp_user import Account\n"
        "account = Account()\n"
        "for each in (account, file.ACCOUNT):\n"
        "    each.confirmed(0, range(5)); each.confirmed(3, [0])\n"
        "    [each.delivered(0, number) for number in (0, 1, 2, 4, 4)]\n"
        "print(account.missing(), account.confirmed_count, account.delivered_count, account.again_count)\n"
        "environment = SimpleNamespace(host='http://127.0.0.1', process_exit_code=None)\n"
        "file.close_the_account(environment)\n"
        "print(environment.process_exit_code)"
    )

    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=in_time(60),
        env=environment(LOAD_AMQP_URL=f"amqp://127.0.0.1:{reserve()}", LOAD_ACCOUNT=""),
    )

    account = json.dumps({"confirmed": 6, "delivered": 4, "again": 1, "missing": 2})
    assert told.stdout == f"2 6 4 1\naccount: {account}\n1\n", told.stderr


def test_a_user_whose_connection_is_gone_makes_another(shared_broker):
    code = (
        "from types import SimpleNamespace\n"
        "from locust.env import Environment\n"
        "from load.amqp_user import PublishingUser, come_back\n"
        "class Till(PublishingUser):\n"
        "    host = 'http://127.0.0.1'\n"
        "till = Till(Environment())\n"
        "till.on_start()\n"
        "till.connection.abort()\n"
        "try: till.publish('amq.fanout', '')\n"
        "except Exception as error: come_back(SimpleNamespace(user=till), exception=error, tb=None)\n"
        "till.publish('amq.fanout', '')\n"
        "print(till.number, till._sent)"
    )

    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=in_time(60),
        env=environment(LOAD_AMQP_URL=shared_broker.amqp_url),
    )

    assert told.stdout == "1 1\n", told.stderr


def test_a_broker_that_ends_in_the_middle_and_a_locust_that_never_began_are_told(tmp_path, capsys):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as broker:
        watch = Watch(SimpleNamespace(pid=broker.pid, metrics_port=1))
        broker.kill()
        broker.wait(TIMEOUT_S)
        cpu_s, lasted_s = watch.end()

    code = _judge(tmp_path, watch, cpu_s, lasted_s, 15.0, 2, None, True)

    told = capsys.readouterr().out
    assert code == 1 and "FAILED: the broker ended before the run did" in told
    assert "FAILED: Locust ended with 2 and left no statistics" in told
    assert "FAILED: the account of confirmed messages does not balance: None" in told


def test_one_shape_is_chosen_by_its_name():
    code = (
        "import importlib, os\n"
        "import load.shapes as shapes\n"
        "for name in ('ramp', 'spike', 'soak', 'fanin', ''):\n"
        "    os.environ['LOAD_SHAPE'] = name\n"
        "    importlib.reload(shapes)\n"
        "    every = (shapes.Ramp, shapes.Spike, shapes.Soak, shapes.FanIn)\n"
        "    chosen = [each for each in every if not each.abstract]\n"
        "    print(name, *(each().share(part) for each in chosen for part in (0.2, 0.5, 0.8)))"
    )

    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=in_time(60),
        env=environment(),
    )

    expected = ["ramp 0.2 0.5 0.8", "spike 0.1 1.0 0.1", "soak 1.0 1.0 1.0", "fanin 0.4 0.6 1.0", ""]
    assert [line.strip() for line in told.stdout.splitlines()] == expected, told.stderr


@pytest.fixture
def page(tmp_path):
    """Locust's page, with a broker of its own."""
    port = reserve()
    child = subprocess.Popen(
        [sys.executable, "-m", "load.locust_run", "--ui", "--port", str(port)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: answers(url))
        yield url
    finally:
        os.killpg(child.pid, signal.SIGINT)
        child.wait(TIMEOUT_S)


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=TIMEOUT_S).status == 200
    except OSError:
        return False


@pytest.mark.needs_program("chromium")
def test_page_starts_five_users_and_shows_a_row(page):
    """As its user does, in Chromium: the form is filled and sent, and a row of the table read."""
    from tests.support.page import TIMEOUT_MS, Driver

    driver = Driver()
    try:
        driver.show()
        shown = driver.browser.new_page()
        shown.set_default_timeout(TIMEOUT_MS)
        shown.goto(page)
        shown.get_by_label("Number of users").fill("5")
        shown.get_by_label("Ramp up").fill("5")
        shown.get_by_role("button", name="Start", exact=True).click()
        row = shown.get_by_role("row").filter(has_text="connect").filter(has_text="AMQP").first
        row.wait_for()
        cells = row.get_by_role("cell").all_inner_texts()
    finally:
        driver.close()

    assert cells[:2] == ["AMQP", "connect"] and int(cells[2]) >= 1 and cells[3] == "0"


def test_example_of_the_page_runs(shared_broker, tmp_path):
    """Until its table shows both lines."""
    example = re.search(
        r"```python\n(.*?)```", (ROOT / "docs" / "load.md").read_text(encoding="utf-8"), re.DOTALL
    )[1]
    (tmp_path / "tills.py").write_text(example)
    command = [sys.executable, "-m", "locust", "-f", "tills.py", "--host", "http://127.0.0.1", "--headless",
               "--exit-code-on-error", "0", "-u", "4", "-r", "4"]

    child = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        env=environment(LOAD_AMQP_URL=shared_broker.amqp_url),
    )
    try:
        shown, wanted = "", ("publish confirmed", "publish to delivery")
        while not all(line in shown for line in wanted) and (line := child.stderr.readline()):
            shown += line
        child.terminate()
        shown += child.communicate(timeout=TIMEOUT_S)[1]
    finally:
        child.kill()
        child.wait(TIMEOUT_S)

    assert child.returncode == 0 and all(line in shown for line in wanted), shown
