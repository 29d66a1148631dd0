"""``gomq-py-perf`` against a real broker: every option of throughput with order and count checked, the other
scenarios, JSON, exit codes, Ctrl-C.
"""
import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed
from gomq_py.perf.cli import main
from tests.support import certificates
from tests.support.broker_process import BrokerProcess
from tests.support.command import ROOT, gomq_py_perf
from tests.support.waiting import in_time, wait_until

COUNT = 3000


def throughput(broker, *arguments):
    """The figures of a run that must succeed."""
    finished = gomq_py_perf("amqp", "throughput", "--uri", broker.amqp_url, "-j", *arguments)
    assert (finished.returncode, finished.stderr) == (0, ""), finished.stdout + finished.stderr
    return json.loads(finished.stdout)


def waiting(broker, queue):
    """How many messages a queue has ready."""
    with Connection(broker.amqp_url) as connection:
        return connection.channel().queue_declare(queue, passive=True).message_count


@pytest.mark.parametrize("arguments", [
    "", "-x 3 -y 3", "-x 2 -y 1 --processes 1", "-s 1024", "-s 200000 -C 50", "-s 8-700", "-c 100",
    "-c 100 -p", "-c 1", "-a 1", "-a 100 -P 200", "-a 10 -P 10 -c 1000 -p", "-t 100", "-a 10 -T 100",
    "-t 70 -a 1 -T 1", "-g", "-g -a 1", "--write-octets 1",
    "--write-octets 1 --mergeable", "--mandatory", "--random-bodies",
    "--properties {\"priority\":3,\"headers\":{\"a\":1}}", "--header-count 5",
    "--queue-args {\"x-max-length\":1000000}", "--consumer-args {\"x-priority\":5}",
    "-e perf-x --exchange-type topic --key-count 200 --binding-count 100",
    "-e perf-y --exchange-type topic --binding-count 5", "-e perf-d --exchange-type direct -k key",
    "--transient-queue",
    "--queue-pattern perf-%-queue --queue-pattern-from 3 --queue-pattern-to 5 -x 2", "-r 20000", "-R 20000",
    "-r 20000 --burst 7", "-l -s 16", "-s 16,700,64 --header-count 3 --header-every 2",
    "-e perf-a --exchange-type direct --exchange-args {\"alternate-exchange\":\"amq.fanout\"}",
])
def test_what_is_published_is_consumed_in_order(shared_broker, arguments, request):
    queue = f"perf-{abs(hash(request.node.name))}"
    limit = () if "-C" in arguments else ("-C", COUNT)

    figures = throughput(shared_broker, "-u", queue, "-V", *limit, *arguments.split())

    assert figures["faults"] == []
    assert figures["published"] == figures["consumed"] >= 50
    assert figures["confirmed"] in (0, figures["published"])


@pytest.fixture(scope="module")
def tls_broker(tmp_path_factory):
    """A broker with a TLS port; ``authority`` is the file of who signed its certificate."""
    files = certificates.make(tmp_path_factory.mktemp("tls"))
    with BrokerProcess(
        tmp_path_factory.mktemp("perf-tls"), amqps_port=0, tls_cert=files.certificate, tls_key=files.key
    ) as process:
        process.authority = str(files.authority)
        yield process


@pytest.mark.parametrize("arguments", ["", "--write-octets 1 -a 1", "-c 100 -s 40000"])
def test_tls_port_is_loaded_as_well(tls_broker, arguments):
    uri = f"amqps://guest:guest@127.0.0.1:{tls_broker.ports['amqps']}"

    finished = gomq_py_perf(
        "amqp", "throughput", "--uri", uri, "-j", "-V", "-C", 500, *arguments.split(),
        SSL_CERT_FILE=tls_broker.authority,
    )

    figures = json.loads(finished.stdout)
    assert (figures["faults"], figures["published"], figures["consumed"]) == ([], 500, 500)


def test_publishing_alone_leaves_the_messages_and_consuming_alone_takes_them(shared_broker):
    published = throughput(shared_broker, "-u", "perf-alone", "-y", 0, "-C", COUNT)
    left = waiting(shared_broker, "perf-alone")
    consumed = throughput(shared_broker, "-u", "perf-alone", "-x", 0, "-a", 1, "-D", COUNT)

    assert (published["published"], published["consumed"], left) == (COUNT, 0, COUNT)
    assert (consumed["published"], consumed["consumed"]) == (0, COUNT)
    assert waiting(shared_broker, "perf-alone") == 0


def test_unacked_messages_go_back_only_when_nothing_was_to_be_acked(shared_broker):
    """``-a`` with more than came: the rest is acked at the end,
    so that the queue is as empty as the load made it.
    """
    throughput(shared_broker, "-u", "perf-rest", "-C", 100, "-a", 1000)

    assert waiting(shared_broker, "perf-rest") == 0


def test_messages_of_an_earlier_run_are_noticed_and_purged_when_asked(shared_broker):
    throughput(shared_broker, "-u", "perf-old", "-y", 0, "-C", 10)

    purged = throughput(shared_broker, "-u", "perf-old", "-C", 100, "--purge", "-V")
    throughput(shared_broker, "-u", "perf-old", "-y", 0, "-C", 10)
    finished = gomq_py_perf(
        "amqp", "throughput", "--uri", shared_broker.amqp_url, "-u", "perf-old", "-C", 100, "-V"
    )

    assert purged["consumed"] == 100
    assert finished.returncode == 1
    assert "FAULT: " in finished.stdout


def test_what_is_predeclared_is_used_as_it_is(shared_broker):
    with Connection(shared_broker.amqp_url) as connection:
        channel = connection.channel()
        channel.queue_declare("perf-there", exclusive=True)
        channel.queue_bind("perf-there", "amq.fanout")

        published = throughput(
            shared_broker, "-e", "amq.fanout", "-u", "perf-none", "-y", 0, "-C", 10, "--predeclared")

        assert published["published"] == 10
        wait_until(lambda: channel.queue_declare("perf-there", passive=True).message_count == 10)
        with pytest.raises(ChannelClosed, match="no queue 'perf-none'"):
            channel.queue_declare("perf-none", passive=True)


def test_refused_publishes_are_counted(shared_broker):
    arguments = '{"x-max-length":10,"x-overflow":"reject-publish"}'

    figures = throughput(
        shared_broker, "-u", "perf-full", "-y", 0, "-C", 100, "-c", 10, "--queue-args", arguments
    )

    assert (figures["confirmed"], figures["refused"]) == (100, 90)


def test_returned_publishes_are_counted(shared_broker):
    figures = throughput(
        shared_broker, "-u", "perf-returned", "-k", "nowhere", "-C", 100, "-c", 10, "--mandatory", "-V"
    )

    assert (figures["returned"], figures["confirmed"], figures["consumed"]) == (100, 100, 0)


def test_a_run_lasts_as_long_as_asked_and_tells_rates_latencies_and_costs(shared_broker):
    def is_in_time(figures):
        """As asked: which takes a machine that does not stand still in this very second."""
        assert figures["elapsed_seconds"] >= 1
        return (
            figures["elapsed_seconds"] < 10 and 500 < figures["published"] < 1100
            and figures["avg_pub_rate"] == pytest.approx(1000, rel=0.5)
        )

    runs = (
        throughput(
            shared_broker, "-u", "perf-timed", "-z", 1, "-r", 1000, "-l", "--broker-pid", shared_broker.pid
        )
        for _ in range(5)
    )
    figures = next(filter(is_in_time, runs))

    assert figures["latency_count"] == figures["latency_sample_size"] == figures["consumed"]
    assert (
        0 < figures["latency_min_ms"] <= figures["latency_median_ms"] <= figures["latency_p99_ms"]
        <= figures["latency_max_ms"]
    )
    assert figures["broker_cpu_us_per_message"] >= 0
    assert figures["broker_memory"]["rss"] > 1e6
    assert figures["generator_cpu_us_per_message"] > 0


def test_confirms_are_timed_with_the_messages(shared_broker):
    figures = throughput(shared_broker, "-u", "perf-confirmed", "-C", COUNT, "-l", "-c", 100, "-p")

    assert figures["latency_count"] == COUNT
    assert (
        0 < figures["confirm_latency_min_ms"] <= figures["confirm_latency_median_ms"]
        <= figures["confirm_latency_p99_ms"]
    )


def test_the_share_that_came_meanwhile_and_the_most_memory_are_told(shared_broker):
    figures = throughput(
        shared_broker, "-u", "perf-share", "-C", 100, "-R", 50, "-a", 1, "-P", 1, "--broker-pid",
        shared_broker.pid)

    assert figures["consumed"] == 100 and 0 <= figures["delivered_share_while_publishing"] < 1
    assert figures["broker_memory"]["most_anonymous"] >= figures["broker_memory"]["anonymous"] > 0


def test_a_summary_and_a_line_each_second_are_for_people(shared_broker):
    finished = gomq_py_perf(
        "amqp", "throughput", "--uri", shared_broker.amqp_url, "-u", "perf-text", "-z", "1.5", "-r", 100
    )

    assert finished.stdout.startswith("Publish rate: ")
    assert "Summary:" in finished.stdout


def test_the_first_interrupt_ends_the_run_with_its_summary(shared_broker):
    command = [
        sys.executable, "-m", "gomq_py.perf", "amqp", "throughput", "--uri", shared_broker.amqp_url, "-u",
        "perf-interrupted", "-r", "100",
    ]
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    first = child.stdout.readline()
    child.send_signal(signal.SIGINT)
    rest = child.communicate(timeout=in_time(60))[0]

    assert first.startswith("Publish rate")
    assert "Summary:" in rest
    assert child.returncode == 0


def started(broker, queue, *arguments):
    """A run that has begun, and its workers."""
    command = [
        sys.executable, "-m", "gomq_py.perf", "throughput", "--uri", broker.amqp_url, "-u", queue, "-r",
        "100", *arguments,
    ]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert child.stdout.readline().startswith("Publish rate")
    return child, psutil.Process(child.pid).children()


def test_sigterm_ends_the_run_as_an_interrupt_does(shared_broker):
    child, _ = started(shared_broker, "perf-terminated")
    child.terminate()

    assert "Summary:" in child.communicate(timeout=in_time(60))[0] and child.returncode == 0


def test_workers_do_not_outlive_a_parent_that_is_killed(shared_broker):
    child, workers = started(shared_broker, "perf-killed")
    child.kill()
    child.communicate(timeout=in_time(60))

    assert len(workers) == 2
    assert psutil.wait_procs(workers, timeout=in_time(60))[1] == []


@pytest.mark.parametrize("arguments", ["-V -c 10 -p", "-j -a 10 -y 2", "-y 0"])
def test_a_broker_that_is_killed_meanwhile_is_a_failure_at_once(tmp_path, arguments):
    with BrokerProcess(tmp_path / "data") as broker:
        child, _ = started(broker, "perf-cut", *arguments.replace("-j ", "").split())
        broker.kill()
        said = child.communicate(timeout=in_time(60))[0]

    assert child.returncode == 1 and "FAULT: " in said and "Traceback" not in said


def test_verify_fails_when_messages_are_lost(shared_broker):
    """A queue of one message at most drops what its slow consumer has not got yet."""
    finished = gomq_py_perf(
        "throughput", "--uri", shared_broker.amqp_url, "-u", "perf-lossy", "-V", "-C", 2000, "-R", 50, "-a",
        1, "-P", 1, "--drain", 1, "--queue-args", '{"x-max-length":1}',
    )

    assert finished.returncode == 1
    assert "FAULT: publisher 0: 2000 messages published, " in finished.stdout


def test_refused_arguments_of_a_queue_are_told_as_such(shared_broker):
    finished = gomq_py_perf(
        "throughput", "--uri", shared_broker.amqp_url, "-u", "perf-bad", "--queue-args", '{"x-max-length":-4}'
    )

    assert finished.returncode == 1 and "invalid arg 'x-max-length' for queue 'perf-bad'" in finished.stderr


def test_the_brokers_reason_is_told_when_it_refuses(shared_broker):
    finished = gomq_py_perf(
        "amqp", "throughput", "--uri", shared_broker.amqp_url, "-u", "perf-x", "-e", "no-such-exchange", "-C",
        10,
    )

    assert finished.returncode == 1
    assert "404 NOT_FOUND" in finished.stdout + finished.stderr


def test_nobody_listening_is_one_line():
    finished = gomq_py_perf("amqp", "throughput", "--uri", "amqp://user:secret@127.0.0.1:1")

    assert finished.returncode == 1
    assert finished.stderr.startswith("gomq-py-perf: 127.0.0.1:1: ")
    assert finished.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [
    "-s 4 -V", "-s 8 -V -l", "-c 5 -t 5", "-T 5", "-P 5 -a 10", "-x -1", "-s 9-1", "--queue-args []",
    "--key-count 5", "-z nan", "-z -1", "-r -5", "-r inf", "-s 99999999999", "-x 99999999",
    "-x 60000 --queue-pattern q% --queue-pattern-to 9", "-c 99999999999", "-P 65536", "--queue-args {",
    "--properties {\"nope\":1}", "--properties {\"delivery_mode\":\"x\"}", "--queue-pattern none",
    "--queue-pattern q% --queue-pattern-from 9 --queue-pattern-to 3", "--uri http://x", "-s 16,", "-s 9,4 -V",
    "--header-every 0", "--exchange-args []", "--key-count 5 -e x --exchange-type direct",
    "--key-count 5 -e amq.direct",
])
def test_options_that_make_no_sense_are_refused_in_two_lines(arguments, capsys):
    with pytest.raises(SystemExit, match="^2$"):
        main(["throughput", *arguments.split()])

    assert capsys.readouterr().err.count("\n") == 2


@pytest.mark.parametrize("scenario", [
    "connection-churn", "channel-churn", "queue-churn", "bind-churn", "consumer-churn"
])
def test_churn_tells_iterations_and_leaves_nothing(shared_broker, scenario):
    finished = gomq_py_perf("amqp", scenario, "--uri", shared_broker.amqp_url, "-z", "0.3", "-j")

    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["iterations"] > 0


@pytest.mark.parametrize("arguments", ["", "-n", "-D --arguments {\"x-max-length\":5}"])
def test_queue_count_declares_queues(shared_broker, arguments):
    finished = gomq_py_perf(
        "amqp", "queue-count", "--uri", shared_broker.amqp_url, "-q", 20, "-u", "perf-many", "--delete", "-j",
        "--broker-pid", shared_broker.pid, *arguments.split())

    assert finished.returncode == 0, finished.stderr
    figures = json.loads(finished.stdout)
    assert figures["queues"] == 20
    assert figures["queues_per_second"] > 0
    assert "octets_per_queue" in figures


def test_connection_count_holds_connections_with_channels_and_consumers(shared_broker):
    finished = gomq_py_perf(
        "amqp", "connection-count", "--uri", shared_broker.amqp_url, "-x", 5, "-c", 2, "-C", 2, "-u",
        "perf-held", "-z", "0.1", "-k", "30:5:3", "-j", "--broker-pid", shared_broker.pid)

    assert finished.returncode == 0, finished.stderr
    figures = json.loads(finished.stdout)
    assert figures["connections"] == 5
    assert figures["broker_cpu_us_per_connection"] >= 0


def test_connections_may_go_to_many_loopback_addresses(broker_process):
    broker = broker_process(bind="0.0.0.0").start()
    uri = broker.amqp_url.replace("0.0.0.0", "127.0.0.1")

    assert gomq_py_perf("amqp", "connection-count", "--uri", uri, "-x", 5, "-l", "-z", "0.1").returncode == 0
