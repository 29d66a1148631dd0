"""A stranger's first hour, by the installed commands: a first client, Celery, the page, metrics, an alert, a
backup, a container, and the folder of an older version.

GOMQ_INSTALLED is the folder of the commands: .ci/wheel gives that of an environment which has nothing but
the wheel, and finds no compiler. Otherwise they are those of the environment that the tests run in.
"""
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pika
import pytest
import requests

from tests.clients.celery_worker import Worker, result_of
from tests.golden.make import HERE, PASSWORD
from tests.golden.test_golden import SAFELY
from tests.support.broker_process import BrokerProcess
from tests.support.command import ROOT
from tests.support.container import Container, Image
from tests.support.prometheus_process import PrometheusProcess, shipped
from tests.support.waiting import in_time, wait_until

COMMANDS = Path(os.environ.get("GOMQ_INSTALLED") or Path(sys.executable).parent)
# Of nothing but the commands: no compiler, and no source beside them.
ENVIRONMENT = {"PATH": str(COMMANDS), "LANG": "C.UTF-8"}
GUEST = ("guest", "guest")


class InstalledBroker(BrokerProcess):
    """The command ``gomq-py`` with a page, metrics and a control socket."""

    def __init__(self, data_dir, **options):
        options = {
            "http_port": 0, "metrics_http_port": 0, "control_unix_path": f"{data_dir}.socket", **options}
        super().__init__(data_dir, **options)
        self._environment.update(ENVIRONMENT)
        del self._environment["PYTHONPATH"]

    @property
    def arguments(self):
        """The command line of the child."""
        return [str(COMMANDS / "gomq-py"), *super().arguments[3:]]

    def get(self, path, port="http"):
        """What the page's or the metrics' port answers."""
        answer = requests.get(
            f"http://127.0.0.1:{self.ports[port]}{path}", auth=GUEST, timeout=in_time(30))
        answer.raise_for_status()
        return answer

    def ctl(self, *arguments):
        """What ``gomq-py-ctl`` prints, which asks the control socket; AssertionError where it fails."""
        return ctl("--control-unix-path", f"{self.data_dir}.socket", *arguments)


def ctl(*arguments):
    """What ``gomq-py-ctl`` prints; AssertionError where it fails."""
    finished = subprocess.run(
        [COMMANDS / "gomq-py-ctl", *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True,
        timeout=in_time(60))
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def run_python(program):
    """The lines that a program prints in the Python of the commands."""
    return subprocess.check_output(
        [COMMANDS / "python", "-I", "-c", program], env=ENVIRONMENT, text=True, timeout=in_time(60),
    ).splitlines()


def publish(url, *bodies):
    """Durable messages in the queue "jobs"; returns when they are confirmed."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs", durable=True)
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", "jobs", body, pika.BasicProperties(delivery_mode=2), mandatory=True)


def drained(url, queue="jobs"):
    """The bodies that are in a queue; they are acknowledged."""
    bodies = []
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        while (got := channel.basic_get(queue))[0]:
            channel.basic_ack(got[0].delivery_tag)
            bodies.append(got[2])
    return bodies


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with InstalledBroker(tmp_path_factory.mktemp("hour") / "data") as started:
        yield started


def test_confirmed_messages_are_there_after_a_restart(broker):
    publish(broker.amqp_url, b"dig a hole", b"fill it")

    broker.restart()

    assert drained(broker.amqp_url) == [b"dig a hole", b"fill it"]


def test_celery_runs_a_task(broker, tmp_path):
    worker = Worker(tmp_path, broker.amqp_url).start()
    try:
        assert result_of(worker.jobs.add.delay(2, 3)) == 5
    finally:
        worker.close()


def test_page_and_metrics_answer(broker):
    assert "<title>gomq-py" in broker.get("/").text
    assert broker.get("/api/overview").json()["product_name"]
    assert "\nrabbitmq_identity_info{" in broker.get("/metrics", "metrics").text


@pytest.mark.needs_program("prometheus")
def test_alert_of_the_shipped_rules_fires_while_the_disk_is_short(broker, tmp_path):
    def firing():
        return {
            alert["labels"]["alertname"]
            for alert in prometheus.api("alerts")["alerts"] if alert["state"] == "firing"}

    with PrometheusProcess(tmp_path / "prometheus", shipped([broker.ports["metrics"]])) as prometheus:
        wait_until(lambda: prometheus.query("rabbitmq_alarms_free_disk_space_watermark == 0"))
        assert firing() == set()

        broker.ctl("set_disk_free_limit", "1000000GB")
        wait_until(lambda: firing() == {"GomqDiskAlarm"})
        broker.ctl("set_disk_free_limit", "0")
        wait_until(lambda: firing() == set())


def test_copy_of_a_stopped_brokers_folder_is_a_backup(tmp_path):
    with InstalledBroker(tmp_path / "data") as broker:
        publish(broker.amqp_url, b"kept")
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    shutil.rmtree(tmp_path / "data")

    with InstalledBroker(tmp_path / "backup") as broker:
        assert drained(broker.amqp_url) == [b"kept"]


def test_backup_of_a_running_broker_is_restored(broker, tmp_path):
    publish(broker.amqp_url, b"kept")

    broker.ctl("backup", tmp_path / "backup")
    ctl("restore", tmp_path / "backup", tmp_path / "restored")

    assert drained(broker.amqp_url) == [b"kept"]
    with InstalledBroker(tmp_path / "restored") as restored:
        assert drained(restored.amqp_url) == [b"kept"]


@pytest.fixture
def sources(tmp_path):
    """What etc/Dockerfile copies, with the installed package for gomq_py: nothing is left to compile."""
    version, package = run_python(
        "import sys, gomq_py; print(sys.version_info[:2], gomq_py.__path__[0], sep='\\n')")
    if version != str(sys.version_info[:2]):
        pytest.skip("the image has the Python of the tests")
    shutil.copytree(package, tmp_path / "sources" / "gomq_py", ignore=shutil.ignore_patterns("__pycache__"))
    for name in "etc/Dockerfile etc/gomq.ini setup.cfg pyproject.toml MANIFEST.in README.md LICENSE".split():
        (tmp_path / "sources" / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "sources" / name)
    (tmp_path / "sources" / "setup.py").write_text("from setuptools import setup; setup()")
    with open(tmp_path / "sources" / "MANIFEST.in", "a") as manifest:
        manifest.write("recursive-include gomq_py *.so *.pxd\n")
    return tmp_path / "sources"


@pytest.mark.needs_program("buildah")
@pytest.mark.skipif(os.geteuid() != 0, reason="buildah without a daemon is root")
def test_container_of_the_shipped_file_serves_a_client(sources, tmp_path):
    (tmp_path / "image").mkdir()
    image = Image(tmp_path / "image", sources)

    with Container(image, "hour", environment={"GOMQ_PURE_PYTHON": "0"}) as broker:
        assert "hot modules: compiled\n" in broker.execute("gomq-py", "--build-info")[1]
        publish(broker.amqp_url, b"contained")
        assert drained(broker.amqp_url) == [b"contained"]


def test_folder_of_the_first_version_serves_its_messages(tmp_path):
    """What else is in such folders: tests/golden."""
    expected = json.loads((HERE / "v1.killed.json").read_text())["queues"]["/ ready"]
    with tarfile.open(HERE / "v1.tar.gz") as archive:
        archive.extractall(tmp_path, **SAFELY)

    with InstalledBroker(tmp_path / "killed") as broker:
        listed = broker.ctl("-f", "text", "list_queues", "name", "messages")
        url = broker.url("plain", PASSWORD.replace(" ", "%20"))
        found = drained(url, "ready")

    assert f"ready\t{len(expected)}" in listed
    assert [body[:20].decode() for body in found] == [entry[2] for entry in expected]
