"""The pytest plugin and its child broker, from outside; and the guide's example project as it is printed."""
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pika
import pytest

from gomq_py.client.errors import ConnectionClosed, Refused
from gomq_py.client.mqtt import MQTTClient
from gomq_py.testing.brokers import ChildBroker
from tests.support.waiting import in_time

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "testing-with-gomq.md"


@pytest.fixture
def child(tmp_path):
    with ChildBroker(tmp_path / "data") as broker:
        yield broker


def connect(broker):
    return pika.BlockingConnection(pika.URLParameters(broker.amqp_url))


@pytest.mark.timeout(400)
def test_the_guides_example_project_passes_its_own_tests(tmp_path):
    """The files of the guide's example are written out and run by a pytest of their own,
    with nothing but the plugin.
    """
    files = dict(
        re.findall(r"```python\n# (\w+\.py)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    )
    for name, source in files.items():
        (tmp_path / name).write_text(source, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "gomq_py.testing.plugin", "-p", "no:cacheprovider",
            str(tmp_path),
        ],
        capture_output=True, text=True, timeout=in_time(360), cwd=tmp_path, env=environment)

    assert done.returncode == 0, done.stdout
    assert re.search(r"^14 passed", done.stdout, re.MULTILINE), done.stdout


def test_a_killed_broker_comes_back_on_its_port_with_its_messages(child):
    connection = connect(child)
    channel = connection.channel()
    channel.queue_declare("kept", durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", "kept", b"here", pika.BasicProperties(delivery_mode=2))
    before = child.addresses

    child.kill()
    assert not child.is_running
    child.start()

    assert child.addresses == before
    assert connect(child).channel().basic_get("kept", auto_ack=True)[2] == b"here"


def test_ports_of_a_broker_that_is_down_are_given_to_nobody_else(tmp_path):
    with ChildBroker(tmp_path / "data", http_port=0) as child:
        before = child.addresses
        child.kill()

        with socket.socket() as other:
            for _, port in before.values():
                with pytest.raises(OSError, match="in use"):
                    other.bind(("127.0.0.1", port))
        child.start()

        assert child.addresses == before and set(before) == {"amqp", "http", "mqtt"}
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", before["amqp"][1]))
        other.listen()


def test_delayed_confirms_arrive_after_the_delay(child):
    channel = connect(child).channel()
    channel.queue_declare("slow")
    channel.confirm_delivery()
    child.delay_confirms(0.3)
    began = time.monotonic()

    channel.basic_publish("", "slow", b"x")

    assert time.monotonic() - began >= 0.29
    child.calm()


def test_nacked_publishes_are_every_nth_one(child):
    child.nack_confirms(3)
    channel = connect(child).channel()
    channel.queue_declare("thirds")
    channel.confirm_delivery()
    refused = []
    for number in range(1, 8):
        try:
            channel.basic_publish("", "thirds", b"x")
        except pika.exceptions.NackError:
            refused.append(number)

    assert refused == [3, 6]


@pytest.mark.parametrize("version", [4, 5])
def test_delayed_answers_of_mqtt_arrive_after_the_delay(child, version):
    with MQTTClient(child.mqtt_url, version=version) as client:
        client.publish("t", b"x", qos=1)
        child.delay_confirms(0.3)
        began = time.monotonic()

        client.publish("t", b"x", qos=1)

        between = time.monotonic()
        client.publish("t", b"x", qos=2)  # PUBREC and PUBCOMP, both of them
        assert between - began >= 0.29 and time.monotonic() - between >= 0.59


def test_delayed_answers_of_mqtt_keep_their_order_when_it_is_over(child):
    with MQTTClient(child.mqtt_url, version=5) as client:
        child.delay_confirms(300)
        early = [client.begin_publish("t", b"x", qos=1) for _ in range(3)]
        client.ping()
        assert list(client.session.outgoing) == early
        child.calm()

        client.publish("t", b"x", qos=1)

        assert not client.session.outgoing


@pytest.mark.parametrize("qos", [1, 2])
def test_every_nth_publish_of_mqtt_5_is_refused(child, qos):
    child.nack_confirms(3)
    refused = []
    with MQTTClient(child.mqtt_url, version=5) as client:
        client.subscribe("t", qos=2)
        for number in range(1, 8):
            try:
                client.publish("t", b"%d" % number, qos=qos)
            except Refused:
                refused.append(number)

        assert refused == [3, 6]
        assert [client.next_message().payload for _ in range(7)] == [b"%d" % number for number in range(1, 8)]


def test_refused_publish_of_mqtt_3_ends_the_connection(child):
    child.nack_confirms(2)
    with MQTTClient(child.mqtt_url) as client:
        client.publish("t", b"1", qos=1)
        with pytest.raises(ConnectionClosed):
            client.publish("t", b"2", qos=1)


def test_alarm_holds_publishers_of_mqtt(child):
    with MQTTClient(child.mqtt_url, version=5) as client, MQTTClient(child.mqtt_url) as other:
        other.subscribe("t")
        child.trip_alarm()

        client.begin_publish("t", b"x", qos=1)
        other.ping()
        assert other.next_message(0.2) is None
        child.trip_alarm(None)

        client.wait_acknowledged()
        assert other.next_message().payload == b"x"


def test_an_operators_close_reaches_the_client_with_its_reason(child):
    connection = connect(child)

    assert child.close_connections("maintenance") == 1

    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="maintenance"):
        connection.channel()


def test_logins_work_again_when_calm(child):
    child.refuse_logins()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(child)

    child.calm()

    assert connect(child).is_open


def test_a_broker_that_cannot_start_says_why(tmp_path):
    (tmp_path / "file").write_text("no folder")

    with pytest.raises(RuntimeError, match="file"):
        ChildBroker(tmp_path / "file").start()


@pytest.mark.parametrize("switch, wrong", [
    ("delay_confirms", ("x",)), ("delay_confirms", (-1,)), ("delay_confirms", (float("nan"),)),
    ("delay_confirms", (True,)),
    ("nack_confirms", (-1,)), ("nack_confirms", (1.5,)), ("nack_confirms", ("3",)), ("trip_alarm", (5,)),
    ("trip_alarm", ("",)),
    ("close_connections", (None,)), ("refuse_logins", ("no",)),
])
def test_a_switch_says_what_is_wrong_and_leaves_the_broker_as_it_was(child_of_this_module, switch, wrong):
    with pytest.raises(ValueError, match=f"^{switch}: "):
        getattr(child_of_this_module, switch)(*wrong)

    assert connect(child_of_this_module).is_open


@pytest.fixture(scope="module")
def child_of_this_module(tmp_path_factory):
    with ChildBroker(tmp_path_factory.mktemp("child") / "data") as broker:
        yield broker


def test_a_broker_that_is_down_says_so_to_every_switch(child):
    child.kill()

    for ask in (child.calm, child.drop_connections, child.kill, lambda: child.nack_confirms(3)):
        with pytest.raises(RuntimeError, match="^the broker is not running"):
            ask()


def test_a_broker_that_died_by_itself_says_so(child):
    os.kill(child._process.pid, signal.SIGKILL)
    child._process.wait()

    with pytest.raises(RuntimeError, match="^the broker is not running: its process ended with -9"):
        child.calm()
    child.close()


def test_a_child_brokers_options_are_checked_before_it_is_made():
    with pytest.raises(ValueError, match="heartbeat: -1 is not a whole number"):
        ChildBroker(heartbeat=-1)
    with pytest.raises(RuntimeError, match="the broker is not running"):
        ChildBroker().amqp_url  # noqa: B018


def test_a_test_that_fails_shows_what_its_broker_logged(tmp_path):
    (tmp_path / "test_failing.py").write_text(
        "def test_it(gomq_fresh):\n    gomq_fresh.refuse_logins()\n    assert gomq_fresh.amqp_url == 5\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "gomq_py.testing.plugin", "-p", "no:cacheprovider",
            str(tmp_path),
        ],
        capture_output=True, text=True, timeout=in_time(100), cwd=tmp_path, env=environment)

    assert re.search(r"-+ log of the broker gomq_fresh -+\n\S+Z info  boot: gomq-py ", done.stdout), (
        done.stdout
    )


def test_a_child_brokers_log_is_kept_over_its_starts(tmp_path):
    broker = ChildBroker(tmp_path / "data", log_level="debug").start()
    broker.kill()
    broker.start()
    broker.close()

    assert [line.count("ready after") for line in broker.log_text.splitlines() if "ready after" in line] == [
        1, 1
    ]


def test_mqtt_clients_meet_the_same_switches(child):
    client = MQTTClient(child.mqtt_url, version=5)

    assert child.close_connections("maintenance") == 1
    with pytest.raises(ConnectionClosed) as closed:
        client.next_packet()
    assert closed.value.reply_code == 0x98
    client = MQTTClient(child.mqtt_url, version=5)
    assert child.drop_connections() == 1
    with pytest.raises(ConnectionClosed):
        client.next_packet()
    child.refuse_logins()
    with pytest.raises(ConnectionClosed) as closed:
        MQTTClient(child.mqtt_url, version=5)
    assert closed.value.reply_code == 0x86
    child.calm()
    MQTTClient(child.mqtt_url, version=5).close()
    assert child.mqtt_url == f"mqtt://guest:guest@127.0.0.1:{child.mqtt_port}"
