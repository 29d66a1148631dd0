"""What lies in etc/ works: unit files for systemd's own eyes, container files for what they copy and start,
and all of it as the broker reads it.
"""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request

import pika
import pytest
import yaml

from gomq_py import cli
from gomq_py.auth.passwords import hash_password
from gomq_py.config import control
from gomq_py.config.settings import OPTIONS, PASSWORD_FILE, PLAIN_PASSWORD
from gomq_py.config.sources import flag_parser, load
from tests.support.command import ROOT
from tests.support.ports import reserve
from tests.support.waiting import in_time, wait_until

ETC = ROOT / "etc"
ENVIRONMENT = {f"GOMQ_{name}" for option in OPTIONS for name in option.environment} | {
    "GOMQ_CONFIGURATION_DIRECTORY", PLAIN_PASSWORD, PASSWORD_FILE
}
ANALYZE = shutil.which("systemd-analyze")
# systemd's scale from 0 (nothing is exposed) to 10.
EXPOSURE_MAX = 2.0


def entries(unit, key):
    """Every value of a key in a unit file."""
    return re.findall(rf"^{key}=(.*)$", (ETC / unit).read_text(), re.MULTILINE)


def instructions():
    """(name, rest) of every instruction of the Dockerfile, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ETC / "Dockerfile").read_text(), flags=re.MULTILINE)
    return [tuple(line.split(None, 1)) for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def values(name):
    return [rest for given, rest in instructions() if given == name]


@pytest.fixture
def units(tmp_path):
    """The unit files with a program that exists."""
    for name in ("gomq-py.service", "gomq-py.socket"):
        (tmp_path / name).write_text(
            (ETC / name).read_text().replace("/opt/gomq/bin/gomq-py", sys.executable)
        )
    return tmp_path


@pytest.mark.skipif(not ANALYZE, reason="systemd-analyze is not installed")
def test_systemd_understands_every_line_of_the_units(units):
    done = subprocess.run(
        [ANALYZE, "verify", units / "gomq-py.service", units / "gomq-py.socket"],
        capture_output=True, text=True, timeout=in_time(60))

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not ANALYZE, reason="systemd-analyze is not installed")
def test_service_exposes_little(units):
    command = [ANALYZE, "security", "--offline=true", "--no-pager", units / "gomq-py.service"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=in_time(60))

    assert float(re.search(r"Overall exposure level .*?: ([\d.]+)", done.stdout)[1]) <= EXPOSURE_MAX


def test_broker_boots_with_what_the_unit_sets(broker_process, tmp_path):
    """The folders that systemd would make, the environment that it would set, and the flags of ExecStart,
    of which there are none.
    """
    (command,) = entries("gomq-py.service", "ExecStart")
    assert shlex.split(command) == ["/opt/gomq/bin/gomq-py"]
    configuration = tmp_path / "etc"
    configuration.mkdir()
    (configuration / "gomq.ini").write_text("[amqp]\nheartbeat = 33\n")
    set_by_unit = dict(entry.split("=", 1) for entry in entries("gomq-py.service", "Environment"))
    assert set(set_by_unit) <= ENVIRONMENT

    flags = flag_parser().parse_args([])
    environment = {
        "STATE_DIRECTORY": str(tmp_path / "state"), "CONFIGURATION_DIRECTORY": str(configuration),
        **set_by_unit,
    }
    settings, warnings = load(flags, environment)

    assert (settings.data_dir, settings.heartbeat, warnings) == (str(tmp_path / "state"), 33, [])
    assert (settings.control_unix_path, control.SYSTEM_FOLDER) == (control.AUTO, "/run/gomq-py")
    lines = (ETC / "gomq-py.service").read_text().splitlines()
    assert {"RuntimeDirectory=gomq-py", "StateDirectory=gomq", "ConfigurationDirectory=gomq"} <= set(lines)


def test_service_does_not_start_again_what_a_mistake_in_the_configuration_ended():
    """It would for ever: nobody corrects a typing error between two starts."""
    assert entries("gomq-py.service", "RestartPreventExitStatus") == [str(cli.EXIT_USAGE)]


def test_socket_unit_names_what_the_broker_serves():
    assert entries("gomq-py.socket", "FileDescriptorName") == [
        load(flag_parser().parse_args([]), {})[0].amqp_systemd_socket_name
    ]


def test_image_copies_what_there_is():
    copied = [word for rest in values("COPY") if not rest.startswith("--from=") for word in rest.split()[:-1]]

    assert [name for name in copied if not (ROOT / name).exists()] == []
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert [name for name in copied if name in ignored] == []
    # What an installation reads beside the package itself.
    assert {"setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "gomq_py"} <= set(copied)


def test_image_starts_the_broker_as_nobody_special():
    environment = dict(word.split("=", 1) for rest in values("ENV") for word in rest.split())
    assert {name for name in environment if name.startswith("GOMQ_")} <= ENVIRONMENT
    (entry,), (command,) = values("ENTRYPOINT"), values("CMD")
    assert json.loads(entry) == ["gomq-py"]

    settings, warnings = load(
        flag_parser().parse_args(json.loads(command)), {"GOMQ_DATADIR": environment["GOMQ_DATADIR"]}
    )

    assert (settings.data_dir, warnings) == ("/var/lib/gomq", [])
    assert (settings.amqp_bind, settings.http_bind, settings.metrics_http_bind) == ("0.0.0.0",) * 3, (
        "what EXPOSE names is open"
    )
    assert values("VOLUME") == [settings.data_dir]
    assert values("USER") == ["gomq"]
    assert values("STOPSIGNAL") == ["SIGTERM"]
    assert {
        str(port)
        for port in (
            settings.amqp_port, settings.amqps_port, settings.mqtt_port, settings.mqtts_port,
            settings.http_port, settings.https_port, settings.metrics_http_port,
        )
    } == set(values("EXPOSE")[0].split())


def healthy(ports):
    """What the image's health check says of a broker on these ports."""
    (check,) = values("HEALTHCHECK")
    command = check[check.index("["):]
    for port, protocol in (("5672", "amqp"), ("15692", "metrics")):
        assert f"/{port}" in command
        command = command.replace(f"/{port}", f"/{ports[protocol]}")
    return subprocess.run(
        json.loads(command), timeout=in_time(30), stderr=subprocess.DEVNULL).returncode == 0


def test_health_check_tells_a_broker_from_none(broker_process):
    broker = broker_process(metrics_http_port=0).start()
    ports = {"amqp": broker.port, "metrics": broker.ports["metrics"]}

    # It gives up after seconds, and is asked again.
    wait_until(lambda: healthy(ports))
    assert "handshake" not in broker.log_text
    broker.stop()
    assert not healthy(ports)


def test_health_check_fails_while_amqp_is_closed(broker_process):
    broker = broker_process(metrics_http_port=0).start()

    assert not healthy({"amqp": reserve(), "metrics": broker.ports["metrics"]})


def test_compose_starts_what_the_image_has(tmp_path):
    compose = yaml.safe_load((ETC / "compose.yaml").read_text())
    (service,) = compose["services"].values()
    build = service["build"]
    assert (ETC / build["context"] / build["dockerfile"]).samefile(ETC / "Dockerfile")
    assert set(service["environment"]) <= ENVIRONMENT
    # No password that everybody knows: the file is the operator's, and neither in the image nor in the tree.
    (secret,) = service["secrets"]
    assert service["environment"][PASSWORD_FILE] == f"/run/secrets/{secret}"
    file = ETC / compose["secrets"][secret]["file"]
    kept_out = f"etc/{file.name}"
    assert file.parent == ETC
    assert kept_out in (ROOT / ".dockerignore").read_text().split()
    assert kept_out in (ROOT / ".gitignore").read_text().split()

    (tmp_path / secret).write_text("x")
    settings, warnings = load(flag_parser().parse_args(service["command"]), {
        "GOMQ_DEFAULT_USER": "admin", PASSWORD_FILE: str(tmp_path / secret)
    })

    assert (settings.default_user_only_loopback, settings.default_user, warnings) == (False, "admin", [])
    assert (settings.amqp_bind, settings.http_bind, settings.metrics_http_bind) == ("0.0.0.0",) * 3
    (volume,) = service["volumes"]
    assert volume.split(":") == ["data", "/var/lib/gomq"]
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert service["hostname"], "the name of the node stays when the container is made anew"
    assert {entry.partition(":")[0] for entry in service["tmpfs"]} == {"/tmp", control.SYSTEM_FOLDER}


@pytest.mark.parametrize("given", [
    {"GOMQ_DEFAULT_PASSWORD": "a-Secret word"},
    {"GOMQ_DEFAULT_PASSWORD_FILE": "a-Secret word"},
    {"GOMQ_DEFAULT_PASSWORD_HASH": hash_password("a-Secret word")},
    {"LAVINMQ_DEFAULT_PASSWORD": hash_password("a-Secret word")},
])
def test_first_user_of_a_container_is_the_one_that_was_asked_for(broker_process, tmp_path, given):
    """Name and password by environment, or the password in a file, as the compose file hands it over, or a
    hash; guest is not there then.
    """
    if PASSWORD_FILE in given:
        (tmp_path / "password").write_text(given[PASSWORD_FILE] + "\n")
        given = {PASSWORD_FILE: str(tmp_path / "password")}
    broker = broker_process(
        environment={"GOMQ_DEFAULT_USER": "admin", **given}, default_user_only_loopback="no"
    ).start()

    pika.BlockingConnection(pika.URLParameters(broker.url("admin", "a-Secret%20word"))).close()
    broker.signal(signal.SIGHUP)
    broker.wait_for_log("configuration reloaded: no change$")
    with pytest.raises(pika.exceptions.AMQPError):
        pika.BlockingConnection(pika.URLParameters(broker.url("guest", "guest")))


def test_data_folder_of_a_stopped_broker_is_a_backup(broker_process, tmp_path):
    """Copied while it is stopped, or as a snapshot of the file system at any moment,
    which is no more than a crash.
    """
    broker = broker_process(http_port=0).start()
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    channel.queue_declare("kept", durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", "kept", b"x", pika.BasicProperties(delivery_mode=2))
    connection.close()
    request = urllib.request.Request(
        f"http://127.0.0.1:{broker.ports['http']}/api/definitions",
        headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="},
    )
    assert "kept" in [
        queue["name"] for queue in json.load(urllib.request.urlopen(request, timeout=in_time(60)))["queues"]
    ]
    broker.stop()
    shutil.copytree(broker.data_dir, tmp_path / "restored")

    restored = broker_process(data_dir=tmp_path / "restored").start()

    connection = pika.BlockingConnection(pika.URLParameters(restored.amqp_url))
    assert connection.channel().basic_get("kept", auto_ack=True)[2] == b"x"
    connection.close()
    assert os.path.exists(broker.data_dir)
