"""``gomq-py-perf mqtt throughput`` against Debian's Mosquitto: nothing lost, doubled or out of order with any
option, and told where something is.
"""
import json
import os
import signal
import subprocess
import sys

import pytest

from gomq_py.client.mqtt import MQTTClient
from gomq_py.perf.cli import main
from tests.support import certificates
from tests.support.command import ROOT, gomq_py_perf
from tests.support.mosquitto_process import MosquittoProcess
from tests.support.waiting import in_time

COUNT = 500


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory):
    with MosquittoProcess(tmp_path_factory.mktemp("mosquitto")) as process:
        yield process


def run(process, *arguments, **environment):
    """The finished run."""
    return gomq_py_perf("mqtt", "throughput", "--uri", process.url, "-j", *arguments, **environment)


def throughput(process, *arguments):
    """The figures of a run that must succeed."""
    finished = run(process, *arguments)
    assert (finished.returncode, finished.stderr) == (0, ""), finished.stdout + finished.stderr
    return json.loads(finished.stdout)


@pytest.mark.needs_program("mosquitto")
@pytest.mark.parametrize(("arguments", "copies"), [
    ("--qos 0 -l -s 16", 1), ("--qos 1", 1), ("--qos 2 -m 5", 1),
    ("--qos 2 --subscribe-qos 1 -m 3.1 -x 2", 1),
    ("--qos 1 -c 1 --write-octets 1 -s 8-3000", 1), ("--qos 0 --write-octets 1 --mergeable", 1),
    ("--qos 1 -p -c 100", 1), ("--qos 2 -p -m 5 -P 10", 1),
    ("-y 4 --qos 1 --random-bodies", 4), ("-x 3 -y 3 --qos 1 -m 5 --share group", 1),
    ("--topic-pattern perf/%/x --topic-pattern-to 3 --qos 1", 1),
    ("--own-topics -x 20 --qos 1 -r 1000 --processes 2", 1),
    ("-u perf/wild --filter perf/+ --qos 1", 1), ("--qos 1 -R 5000", 1),
    (
        (
            "-m 5 --qos 1 --properties {\"content_type\":\"text/plain\",\"user_property\":[[\"a\",\""
            + 200 * "b" + "\"]]}"
        ),
        1,
    ),
])
def test_what_is_published_is_received_once_and_in_order(mosquitto, arguments, copies):
    figures = throughput(mosquitto, "-V", "-C", COUNT, *arguments.split())

    assert (figures["faults"], figures["lost"], figures["doubled"]) == ([], 0, 0)
    assert (figures["published"], figures["consumed"]) == (COUNT, COUNT * copies)
    assert figures["confirmed"] == (COUNT if "--qos 0" not in arguments else 0)


@pytest.mark.needs_program("mosquitto")
def test_tls_port_is_loaded_as_well(tmp_path):
    files = certificates.make(tmp_path / "tls")
    with MosquittoProcess(tmp_path, tls=files) as process:
        finished = run(process, "-V", "-C", COUNT, "--qos", 1, SSL_CERT_FILE=str(files.authority))

    assert json.loads(finished.stdout)["consumed"] == COUNT, finished.stderr


@pytest.mark.needs_program("mosquitto")
def test_loss_at_qos_1_is_a_fault_and_ends_in_time(tmp_path):
    """A broker that keeps ten messages for a slow consumer, and drops what comes beyond."""
    with MosquittoProcess(tmp_path, "max_queued_messages 10", "max_inflight_messages 1") as process:
        finished = run(process, "-C", 2000, "--qos", 1, "-R", 20, "-p", "-c", 1000, "--drain", 0.5)

    figures = json.loads(finished.stdout)
    assert finished.returncode == 1
    assert figures["lost"] == 2000 - figures["consumed"] > 0
    assert f"{figures['lost']} messages lost" in figures["faults"]


@pytest.mark.needs_program("mosquitto")
def test_loss_at_qos_0_is_told_and_no_fault(mosquitto):
    """Nobody is subscribed to what is published."""
    finished = run(mosquitto, "-C", 10, "--filter", "elsewhere", "--drain", 0.1)

    figures = json.loads(finished.stdout)
    assert (finished.returncode, figures["published"], figures["lost"], figures["faults"]) == (0, 10, 10, [])


@pytest.mark.needs_program("mosquitto")
def test_overlapping_subscriptions_are_noticed_as_doubles(tmp_path):
    """A client that is no part of the run publishes what the run has published again."""
    with MosquittoProcess(tmp_path) as process, MQTTClient(process.url) as other:
        other.subscribe("perf/test", qos=1)
        first = run(process, "-V", "-C", 1, "--qos", 1, "-s", 8)
        again = other.next_message(in_time(20))
        other.publish("perf/test", again.payload, qos=1, retain=True)
        finished = run(process, "-V", "-C", 1, "--qos", 1, "-s", 8)

    assert first.returncode == 0 and finished.returncode == 1
    assert "1 messages more than once" in json.loads(finished.stdout)["faults"]


@pytest.mark.needs_program("mosquitto")
def test_kept_sessions_are_gone_when_the_run_is_over(mosquitto):
    throughput(mosquitto, "-C", 10, "--qos", 1, "-p")

    with MQTTClient(
        mosquitto.url, client_identifier="perf-perf/test-consumer-0", clean_start=False
    ) as connection:
        assert not connection.connack.session_present


@pytest.mark.needs_program("mosquitto")
def test_cost_of_the_broker_and_latencies_are_told(mosquitto):
    figures = throughput(mosquitto, "-C", COUNT, "-l", "--broker-pid", mosquitto.pid)

    assert figures["latency_count"] == COUNT
    assert 0 < figures["latency_min_ms"] <= figures["latency_median_ms"] <= figures["latency_max_ms"]
    assert figures["broker_cpu_us_per_message"] >= 0
    assert figures["broker_memory"]["rss"] > 0
    assert figures["generator_cpu_us_per_message"] > 0


@pytest.mark.needs_program("mosquitto")
def test_the_first_interrupt_ends_the_run_with_its_summary(mosquitto):
    command = [
        sys.executable, "-m", "gomq_py.perf", "mqtt", "throughput", "--uri", mosquitto.url, "-r", "100"
    ]
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    first = child.stdout.readline()
    child.send_signal(signal.SIGINT)
    rest = child.communicate(timeout=in_time(60))[0]

    assert first.startswith("Publish rate") and "Summary:" in rest
    assert child.returncode == 0


@pytest.mark.needs_program("mosquitto")
def test_broker_that_is_killed_meanwhile_is_a_failure_at_once(tmp_path):
    with MosquittoProcess(tmp_path) as process:
        command = [
            sys.executable, "-m", "gomq_py.perf", "mqtt", "throughput", "--uri", process.url, "-r", "100",
            "--qos", "1",
        ]
        child = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"})
        assert child.stdout.readline().startswith("Publish rate")
        process.kill()
        said = child.communicate(timeout=in_time(60))[0]

    assert child.returncode == 1 and "FAULT: " in said and "Traceback" not in said


def test_nobody_listening_is_one_line():
    finished = gomq_py_perf("mqtt", "throughput", "--uri", "mqtt://user:secret@127.0.0.1:1")

    assert finished.returncode == 1
    assert finished.stderr.startswith("gomq-py-perf: 127.0.0.1:1: ")
    assert finished.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [
    "-s 4 -V", "--qos 3", "-c 0", "-c 70000", "-P 5", "--properties {\"content_type\":\"x\"}", "-m 4",
    "-u a/#", "--filter a#", "-u a -y 60000 -x 99999", "-m 5 --properties {\"nope\":1}",
    "-m 5 --properties {\"content_type\":1}", "--share a+b", "--topic-pattern none", "--uri http://x",
    "-s 268435455",
])
def test_options_that_make_no_sense_are_refused_in_two_lines(arguments, capsys):
    with pytest.raises(SystemExit, match="^2$"):
        main(["mqtt", "throughput", *arguments.split()])

    assert capsys.readouterr().err.count("\n") == 2
