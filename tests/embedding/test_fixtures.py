"""What the plugin's fixtures and ChildBroker give to a test: URLs, options, TLS, vhosts, ports by a
container's names. Further projects are run by a pytest of their own.
"""
import os
import re
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pika
import pytest

from gomq_py.client.connection import Connection
from gomq_py.client.mqtt import MQTTClient
from gomq_py.testing.brokers import ChildBroker
from tests.support.waiting import in_time, wait_until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def secure():
    """A broker with all listeners."""
    with ChildBroker(tls=True, http_port=0) as broker:
        yield broker


def run_project(folder, *arguments, **files):
    """Write a project's files and run its tests by a pytest of their own, with nothing but the plugin."""
    for name, source in files.items():
        (folder / name.replace("__", ".")).write_text(source, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "gomq_py.testing.plugin", "-p", "no:cacheprovider",
            "--strict-markers", *arguments, str(folder),
        ],
        capture_output=True, text=True, timeout=in_time(200), cwd=folder, env=environment)


def test_a_broker_has_a_url_for_each_of_its_listeners(secure):
    for url in (secure.amqp_url, f"{secure.amqps_url}?cacertfile={secure.ca_file}"):
        with Connection(url) as connection:
            assert connection.channel().queue_declare("", exclusive=True).message_count == 0
    for url in (secure.mqtt_url, f"{secure.mqtts_url}?cacertfile={secure.ca_file}"):
        with MQTTClient(url) as client:
            client.ping()
    with urlopen(f"{secure.http_url}/", timeout=in_time(30)) as answer:
        assert answer.status == 200


def test_its_certificate_names_the_host_of_its_urls(secure):
    parameters = pika.URLParameters(secure.amqps_url)
    context = ssl.create_default_context(cafile=secure.ca_file)
    parameters.ssl_options = pika.SSLOptions(context, parameters.host)

    with pika.BlockingConnection(parameters) as connection:
        assert connection.is_open


def test_a_url_of_a_listener_that_is_not_open_names_the_option():
    with ChildBroker() as broker, pytest.raises(RuntimeError, match="no http: its http_port is -1"):
        broker.http_url  # noqa: B018


def test_ports_go_by_the_names_of_a_container(secure):
    with pika.BlockingConnection(secure.get_connection_params()) as connection:
        assert connection.is_open
    assert secure.get_container_host_ip() == "127.0.0.1"
    assert {port: secure.get_exposed_port(port) for port in (5672, 5671, 1883, 8883, 15672)} == dict(
        zip((5672, 5671, 1883, 8883, 15672), (
            secure.addresses[each][1] for each in ("amqp", "amqps", "mqtt", "mqtts", "http"))))
    with pytest.raises(ValueError, match="4369 is none of 5672, "):
        secure.get_exposed_port(4369)


def test_a_vhost_is_apart_from_others_and_ends_with_its_connections(secure):
    with secure.create_vhost("a b/c") as first, secure.create_vhost("second") as second:
        connection = Connection(first.amqp_url)
        connection.channel().queue_declare("jobs")
        with MQTTClient(first.mqtt_url) as here, MQTTClient(second.mqtt_url) as there:
            for client in (here, there):
                client.subscribe("#")
            there.publish("t", b"elsewhere", qos=1)
            here.publish("t", b"here", qos=1)
            assert here.next_message().payload == b"here"
        with Connection(second.amqp_url) as other:
            with pytest.raises(Exception, match="404 NOT_FOUND"):
                other.channel().queue_declare("jobs", passive=True)

    with pytest.raises(Exception, match="320|closed the socket"):
        connection.drain(in_time(30))
    with secure.create_vhost("second") as second, Connection(second.amqp_url) as again:
        assert again.channel().queue_declare("jobs").message_count == 0


def test_options_come_from_the_ini_file_and_markers(tmp_path):
    done = run_project(tmp_path, pytest__ini="""
[pytest]
gomq_options =
    heartbeat = 7
    http_port = 0
    tls = true
""", test_it__py="""
import pytest
from gomq_py.client.connection import Connection

def heartbeat_s(broker):
    with Connection(f"{broker.amqps_url}?cacertfile={broker.ca_file}") as connection:
        return connection.heartbeat_s

def test_the_sessions_broker(gomq):
    assert heartbeat_s(gomq) == 7 and gomq.http_url

def test_a_fresh_broker(gomq_fresh):
    assert heartbeat_s(gomq_fresh) == 7

@pytest.mark.gomq(heartbeat=9)
class TestMarked:
    def test_by_its_class(self, gomq_fresh):
        assert heartbeat_s(gomq_fresh) == 9 and gomq_fresh.http_url

    @pytest.mark.gomq(heartbeat=11)
    def test_by_itself(self, gomq_fresh):
        assert heartbeat_s(gomq_fresh) == 11
""")

    assert re.search(r"^4 passed", done.stdout, re.MULTILINE), done.stdout


def test_a_wrong_option_in_the_ini_file_is_named(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\ngomq_options =\n    hartbeat = 7\n")

    done = run_project(tmp_path, test_it__py="def test_it(gomq): pass\n")

    assert "no such setting: hartbeat; is heartbeat meant?" in done.stdout, done.stdout


def test_each_test_has_a_vhost_of_its_own_and_the_brokers_log_when_it_fails(tmp_path):
    done = run_project(tmp_path, "-n", "2", "-p", "xdist", test_it__py="""
import pika
import pytest

@pytest.mark.parametrize("number", range(20))
def test_it(gomq_vhost, number):
    with pika.BlockingConnection(pika.URLParameters(gomq_vhost.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs")
        channel.basic_publish("", "jobs", b"x")
        assert channel.queue_declare("jobs", passive=True).method.message_count == 1
    assert number != 3
""")

    assert re.search(r"^1 failed, 19 passed", done.stdout, re.MULTILINE), done.stdout
    assert "log of the broker gomq" in done.stdout


def test_a_temporary_folder_is_there_from_start_to_close(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    broker = ChildBroker(tls=True)
    assert not list(tmp_path.iterdir())

    for _ in range(2):
        with broker:
            assert Path(broker.data_dir).parent == Path(broker.ca_file).parent == next(tmp_path.iterdir())
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("forked", [False, True])
def test_a_killed_test_run_leaves_no_process_and_no_folder(tmp_path, forked):
    """Also where a process that the run has forked lives on, which holds the pipe to the child open."""
    program = (
        "import os, time\nfrom gomq_py.testing.brokers import ChildBroker\n"
        "broker = ChildBroker(tls=True).start()\n"
        f"heir = {forked} and os.fork()\n"
        "print(os.getpid() if heir is False or heir else 'heir', broker._process.pid, heir, flush=True)\n"
        "import signal; signal.pause()\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)})
    lines = [run.stdout.readline().split() for _ in range(1 + forked)]
    _, child, heir = next(line for line in lines if line[0] != "heir")
    assert len(list(tmp_path.iterdir())) == 1

    run.kill() if forked else os.killpg(run.pid, signal.SIGKILL)

    try:
        wait_until(lambda: not Path(f"/proc/{child}").exists() and not list(tmp_path.iterdir()))
    finally:
        if forked:
            os.kill(int(heir), signal.SIGKILL)
        run.wait()
        run.stdout.close()


def test_modules_of_the_project_take_no_place_of_the_childs(tmp_path):
    """The project runs in its own folder, which has names of the standard library and of libraries."""
    done = run_project(tmp_path, **{
        "queue__py": "raise SystemError('the projects own')", "flask__py": "raise SystemError('own')",
        "test_it__py": "def test_it(gomq): assert gomq.is_running\n"})

    assert re.search(r"^1 passed", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("ends", ["by itself", "Ctrl-C"])
def test_broker_that_does_not_start_leaves_no_process_and_no_folder(tmp_path, monkeypatch, ends):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    broker, answer, seen = ChildBroker(tls=True, amqp_bind="192.0.2.1"), ChildBroker._answer, []

    def interrupted(self):
        seen.append((self._process.pid, list(tmp_path.iterdir())))
        if ends == "Ctrl-C":
            raise KeyboardInterrupt
        return answer(self)

    monkeypatch.setattr(ChildBroker, "_answer", interrupted)
    with pytest.raises((RuntimeError, KeyboardInterrupt)):
        with broker:
            pass

    (child, folders), = seen
    assert folders and not list(tmp_path.iterdir())
    assert not broker._reserved and not Path(f"/proc/{child}").exists()


def test_end_that_is_interrupted_leaves_no_process_and_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    broker = ChildBroker().start()
    child = broker._process.pid

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(broker, "drop_connections", interrupted)
    with pytest.raises(KeyboardInterrupt):
        broker.close()

    assert not list(tmp_path.iterdir()) and not Path(f"/proc/{child}").exists()
