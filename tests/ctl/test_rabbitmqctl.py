"""Commands of rabbitmqctl and rabbitmq-diagnostics, under their names, with their columns and exit codes."""
import json
import os
import pty
import re
import socket
import subprocess
import threading
import time

import pika
import pytest

from tests.ctl.running import Runner, commands, environment, in_process
from tests.management.conftest import API
from tests.support import certificates
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.waiting import in_time, wait_until

FAILED = 69


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("ctl") / "data", http_port=0) as process:
        yield process


@pytest.fixture
def run(broker):
    """Runs one command; returns what it has printed on standard output. ``run.shown`` is the list as JSON."""

    class Run:
        uri = f"http://127.0.0.1:{broker.ports['http']}"

        def __call__(self, *words, code=0):
            finished = in_process(self.uri, *words)
            assert finished.exit_code == code, finished.output
            self.said = finished.stderr
            return finished.stdout

        def shown(self, *words):
            return json.loads(self("-f", "json", *words))

    return Run()


def connected(broker, **options):
    return pika.BlockingConnection(pika.ConnectionParameters(
        "127.0.0.1", broker.ports["amqp"], connection_attempts=1, **options))


# users

def test_limits_of_a_user_are_set_enforced_listed_and_cleared(broker, run):
    run("set_user_limits", "guest", '{"max-connections": 0, "max-channels": 7}')

    listed = run.shown("list_user_limits")
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        connected(broker)
    run("clear_user_limits", "guest", "max-connections")
    connected(broker).close()
    left = run.shown("list_user_limits", "--user", "guest")
    run("clear_user_limits", "guest", "all")

    assert listed == [{"user": "guest", "limits": {"max-connections": 0, "max-channels": 7}}]
    assert left == [{"user": "guest", "limits": {"max-channels": 7}}]
    assert run.shown("list_user_limits", "--global") == []
    run("set_user_limits", "nobody", '{"max-channels": 7}', code=1)
    assert "no user 'nobody'" in run.said


def test_channels_of_a_user_are_limited_from_the_next_that_opens(broker, run):
    run("set_user_limits", "guest", '{"max-channels": 1}')
    connection = connected(broker)
    connection.channel()

    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        connection.channel()

    run("clear_user_limits", "guest", "all")


def test_limits_of_a_virtual_host_are_cleared(run):
    run("add_vhost", "limited")
    run("set_vhost_limits", "-p", "limited", '{"max-queues": 1, "max-connections": 5}')

    listed = run.shown("list_vhost_limits", "-p", "limited")
    run("clear_vhost_limits", "-p", "limited")

    assert listed == [{"vhost": "limited", "limits": {"max-queues": 1, "max-connections": 5}}]
    assert run.shown("list_vhost_limits") == run.shown("list_vhost_limits", "-p", "limited") == []
    run("delete_vhost", "limited")


def test_password_is_tried_and_cleared(run):
    run("add_user", "joe", "secret")
    run("set_user_tags", "joe", "monitoring")

    run("authenticate_user", "joe", "secret")
    run("authenticate_user", "joe", "wrong", code=1)
    said = run.said
    run("clear_password", "joe")
    run("authenticate_user", "joe", "secret", code=1)

    assert "failed to authenticate: user 'joe' gave a wrong password" in said and "secret" not in said
    assert {"name": "joe", "tags": ["monitoring"]} in run.shown("list_users")
    run("delete_user", "joe")


def test_topic_permissions_of_a_user_are_listed(run):
    run("set_topic_permissions", "guest", "amq.topic", "^a", "^b")

    assert run.shown("list_user_topic_permissions", "guest") == [
        {"vhost": "/", "exchange": "amq.topic", "write": "^a", "read": "^b"}]
    run("clear_topic_permissions", "guest")


def test_connections_of_one_user_are_closed(broker, run):
    run("add_user", "ann", "ann")
    run("set_permissions", "ann", ".*", ".*", ".*")
    hers = connected(broker, credentials=pika.PlainCredentials("ann", "ann"))
    other = connected(broker)

    run("close_all_user_connections", "ann", "enough")

    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="enough"):
        hers.process_data_events(30)
    other.channel().close()
    other.close()
    run("delete_user", "ann")


# messages

def test_message_is_published_and_taken(run):
    run("create_queue", "letters")
    run("publish", "letters", "héllo", "--properties", '{"delivery_mode": 2}')
    said = run.said

    requeued, taken = run.shown("get", "letters"), run.shown(
        "get", "letters", "--ackmode", "ack_requeue_false", "--count", "5")

    assert said == "Message published\n"
    assert [(one["payload"], one["redelivered"]) for one in requeued + taken] == [
        ("héllo", False), ("héllo", True)]
    assert taken[0]["properties"] == {"delivery_mode": 2} and run.shown("get", "letters") == []
    run("delete_queue", "letters")


def test_message_that_no_queue_takes_is_told(run):
    run("publish", "nobody", "x", "--exchange", "amq.topic", code=1)

    assert "NOT routed" in run.said
    run("publish", "nobody", "x", "--exchange", "missing", code=1)
    assert "no exchange 'missing'" in run.said


def test_octets_of_a_pipe_are_published_as_they_are(run):
    run("create_queue", "letters")

    subprocess.run(
        Runner(run.uri).command("publish", "letters"), input=b"\0\xff", check=True, timeout=in_time(60),
        cwd=ROOT, env=environment())

    assert run.shown("get", "letters")[0]["payload"] == "AP8="
    run("delete_queue", "letters")


# the broker

def test_tracing_is_switched(run):
    def tracing():
        return {one["name"]: one["tracing"] for one in run.shown("list_vhosts", "name", "tracing")}["/"]

    run("trace_on")
    on = tracing()
    run("trace_off")

    assert (on, tracing()) == (True, False)
    run("trace_on", "-p", "mistyped", code=1)
    assert "no virtual host 'mistyped'" in run.said and run.shown("list_vhosts") == [{"name": "/"}]


def test_global_parameters(run):
    run("set_global_parameter", "mine", '{"a": 1}')

    listed = run.shown("list_global_parameters")
    run("clear_global_parameter", "mine")

    assert {"name": "mine", "value": {"a": 1}} in listed
    run("clear_global_parameter", "mine", code=1)
    assert "no global parameter 'mine'" in run.said
    run("set_global_parameter", "mine", "no json", code=2)


def test_cluster_gets_a_name(run):
    run("set_cluster_name", "shop")

    assert run.shown("cluster_status")["Cluster"] == "shop"
    run("clear_global_parameter", "cluster_name")


def test_suspended_listeners_refuse_new_clients_and_keep_the_connected(broker, run):
    with connected(broker) as connection:
        run("suspend_listeners")
        try:
            connection.channel().queue_declare("suspended", exclusive=True)
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                connected(broker)
            run("check_port_listener", str(broker.ports["amqp"]), code=FAILED)
            run("check_port_listener", str(broker.ports["http"]))
        finally:
            run("resume_listeners")
        connected(broker).close()
        run("check_port_listener", str(broker.ports["amqp"]))
    told = [line for line in broker.log if "listeners of AMQP and MQTT" in line]
    assert [" suspended by user 'guest' (HTTP" in told[0], " resumed by user 'guest' (HTTP" in told[1]] == [
        True, True]


@pytest.mark.parametrize("words, setting, value", [
    (("set_log_level", "warning"), "log_level", "warn"),
    (("set_vm_memory_high_watermark", "0.5"), "memory_high_watermark", "0.5"),
    (("set_vm_memory_high_watermark", "1"), "memory_high_watermark", "1.0"),
    (("set_vm_memory_high_watermark", "absolute", "32GB"), "memory_high_watermark", "32000000000"),
    (("set_disk_free_limit", "32MiB"), "free_disk_min", "33554432"),
    (("set_disk_free_limit", "1000"), "free_disk_min", "1000"),
])
def test_settings_are_changed_while_the_broker_runs(run, words, setting, value):
    before = environment_of(run)[setting]["value"]

    run(*words)

    assert environment_of(run)[setting] == {
        "section": "main", "key": setting, "value": value, "origin": "management API"}
    in_process(run.uri, *(
        ("set_vm_memory_high_watermark", before) if setting == "memory_high_watermark" else
        ("set_log_level", before) if setting == "log_level" else ("set_disk_free_limit", before)))


def environment_of(run):
    return {one["key"]: one for one in run.shown("environment")}


@pytest.mark.parametrize("words", [
    ("set_vm_memory_high_watermark", "5"), ("set_vm_memory_high_watermark", "absolute"),
    ("set_vm_memory_high_watermark", "absolute", "0.4"), ("set_vm_memory_high_watermark", "0.4", "0.5"),
    ("set_vm_memory_high_watermark", "half"), ("set_disk_free_limit", "0.5"), ("set_disk_free_limit", "all"),
])
def test_amount_that_is_none_is_wrong_usage(run, words):
    run(*words, code=2)


def test_queues_that_a_fault_closed_are_opened_again(run, monkeypatch):
    """The API's own answers, but for the one queue that it says is closed."""
    from gomq_py.ctl.api import API
    sent = []
    monkeypatch.setattr(API, "get", lambda self, *path, **query: [
        {"name": "sound", "state": "running"}, {"name": "ill", "state": "stopped"}])
    monkeypatch.setattr(API, "put", lambda self, *path, **options: sent.append(path))

    run("restart_vhost", "-p", "v")

    assert sent == [("queues", "v", "ill", "restart")] and "1 queues opened again" in run.said


def test_report_has_no_secret_of_arguments_bindings_and_parameters(broker, run):
    api = API(run.uri)
    api.put("exchanges/%2F/x", {"type": "fanout"})
    api.put("queues/%2F/q")
    api.post("bindings/%2F/e/x/q/q", {"routing_key": "amqp://u:Sekret1@h", "arguments": {
        "password": "Sekret2", "uri": "https://hooks/Sekret3", "more": [{"token": "Sekret4"}]}})
    api.put("global-parameters/password", {"value": "Sekret5"})
    api.put("global-parameters/seen", {"value": {"uri": "amqp://u:Sekret6@h", "api-key": "Sekret7"}})
    api.put("vhosts/told", {"description": "amqp://u:Sekret8@h"})
    api.put("parameters/shovel/%2F/s", {"value": {
        "src-uri": "amqp://u:Sekret9@127.0.0.1:1", "src-queue": "a", "dest-uri": "amqp://",
        "dest-queue": "b"}})

    told = run("report")

    assert "Sekret" not in told and "amqp://u:***@h" in told and "guest" in told
    for path in ("parameters/shovel/%2F/s", "vhosts/told", "global-parameters/password",
                 "global-parameters/seen", "exchanges/%2F/x", "queues/%2F/q"):
        api.delete(path)


def test_secret_of_a_global_parameters_name_is_kept_when_it_is_written_back(run):
    api = API(run.uri)
    api.put("global-parameters/my_password", {"value": "Sekret"})

    assert api.get("global-parameters/my_password").json()["value"] == "***"
    api.put("global-parameters/my_password", {"value": "***"})
    exported = {one["name"]: one["value"] for one in api.get("definitions").json()["global_parameters"]}
    assert exported["my_password"] == "Sekret"
    api.delete("global-parameters/my_password")


@pytest.mark.parametrize("words", [
    ("-t", "nan", "ping"), ("-t", "inf", "ping"), ("-t", "1e300", "ping"), ("watch", "--interval", "nan"),
    ("watch", "--interval", "inf"), ("await_startup", "--timeout", "nan"), ("delete_user", ""),
    ("await_startup", "--timeout", "-1"), ("clear_password", ""), ("close_all_user_connections", "", "why"),
    ("set_user_limits", "guest", '{"": 5}'), ("set_vm_memory_high_watermark", "nan"),
    ("set_disk_free_limit", ""), ("check_certificate_expiration", "--within", "-1"),
])
def test_number_or_name_that_is_none_is_wrong_usage(run, words):
    run(*words, code=2)

    assert "Traceback" not in run.said


@pytest.mark.parametrize("address", ["x" * 300, ".."])
def test_host_that_is_no_name_is_a_failed_check(run, address):
    run("check_port_connectivity", "--address", address, code=FAILED)

    assert "no name of a host" in run.said


def test_await_startup_has_its_own_time_where_something_accepts_and_says_nothing():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began_s = time.monotonic()
        done = in_process(
            f"http://127.0.0.1:{silent.getsockname()[1]}", "await_startup", "--timeout", "0.5")

    assert done.exit_code == 2 and "timed out" in done.output
    assert time.monotonic() - began_s < 30  # a request may take 60


def test_report_has_every_part_of_every_virtual_host(run):
    run("add_vhost", "second")
    run("create_queue", "-p", "second", "deep")

    told = run("report")

    for part in ("status", "environment", "list_users", "doctor", "list_queues of virtual host second"):
        assert f"\n== {part}\n" in told
    assert "Listing queues ...\nname  messages\ndeep  0\n" in told
    run("delete_vhost", "second")


def test_status_names_listeners(broker, run):
    told, listed = run.shown("status"), run.shown("listeners")

    assert f"amqp 127.0.0.1:{broker.ports['amqp']}" in told["Listeners"] and told["Alarms"] == []
    assert {
        "interface": "127.0.0.1", "port": broker.ports["amqp"], "protocol": "amqp", "purpose": "AMQP 0-9-1",
    } in listed


def test_last_lines_of_the_log_are_printed(run):
    run("set_disk_free_limit", "1")
    run("set_disk_free_limit", "0")

    line, = run("log_tail", "-N", "1").splitlines()

    assert " info audit: setting free_disk_min: 1 -> 0 by user 'guest' (HTTP from 127.0.0.1:" in line


def test_request_has_a_time_and_lists_have_rabbitmqctls_formatters():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        finished = in_process(uri, "list_queues", "--timeout", "0.01", "--formatter=json")

    assert finished.exit_code == 2 and "timed out" in finished.stderr


# checks

@pytest.mark.parametrize("words", [
    ("ping",), ("await_startup",), ("check_running",), ("check_alarms",), ("check_local_alarms",),
    ("check_virtual_hosts",), ("check_port_connectivity",), ("check_protocol_listener", "amqp"),
    ("check_certificate_expiration", "--within", "3", "--unit", "months"),
    ("check_if_node_is_quorum_critical",),
])
def test_sound_broker_passes(run, words):
    assert run(*words) == ""


def test_ports_are_checked(broker, run):
    run("check_port_listener", str(broker.ports["amqp"]))
    run("check_port_listener", "1", code=FAILED)
    assert run.said == "Error: 503: No active listener\n"
    run("check_protocol_listener", "mqtt", code=FAILED)
    run("check_port_listener", "port", code=1)


def test_alarm_fails_its_checks(run):
    run("set_vm_memory_high_watermark", "absolute", "1")
    wait_until(lambda: in_process(run.uri, "check_alarms").exit_code == FAILED, what="the alarm")

    run("check_local_alarms", code=FAILED)
    told = run.shown("status")["Alarms"]
    watched = run("watch", "--count", "1")
    run("check_running")
    run("set_vm_memory_high_watermark", "0.6")

    assert told == ["memory"] and "; ALARM: memory\n" in watched
    wait_until(lambda: in_process(run.uri, "check_alarms").exit_code == 0, what="the end of the alarm")


def test_certificate_that_ends_fails_its_check(broker_process, tmp_path):
    files = certificates.make(tmp_path / "tls", ends_in_days=10)
    broker = broker_process(http_port=0, https_port=0, tls_cert=files.certificate, tls_key=files.key).start()

    def code(*words):
        uri = f"http://127.0.0.1:{broker.ports['http']}"
        return in_process(uri, "check_certificate_expiration", *words).exit_code

    assert (code(), code("--within", "9", "--unit", "days")) == (FAILED, 0)


def test_port_that_takes_no_connection_fails_the_check(run, monkeypatch):
    def refuse(address, *_):
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("gomq_py.ctl.diagnostics.socket.create_connection", refuse)
    monkeypatch.setattr("gomq_py.ctl.api.API.get", lambda *_: {
        "listeners": [{"ip_address": "::", "port": 5672}, {"ip_address": "/run/amqp.sock", "port": 0}]})

    run("check_port_connectivity", code=FAILED)

    assert run.said == "Error: no connection to 127.0.0.1:5672 (Connection refused)\n"


def test_start_is_awaited(tmp_path):
    """The command runs before there is a broker, which comes at the port then."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    waiting = subprocess.Popen(
        Runner(f"http://127.0.0.1:{port}").command("await_startup", "--timeout", "100"), cwd=ROOT,
        env=environment())
    with BrokerProcess(tmp_path / "data", http_port=port):
        assert waiting.wait(in_time(100)) == 0


def test_nobody_there_ends_a_ping_and_a_wait(run):
    for words in (("ping",), ("await_startup", "--timeout", "0"), ("check_running",)):
        assert in_process("http://127.0.0.1:1", *words).exit_code == 2


def test_wrong_password_is_an_answer_to_a_ping(run):
    run("--user", "nobody", "ping")
    run("--user", "nobody", "await_startup")


# watch

def test_watch_shows_the_deepest_queues_first(run):
    for queue, messages in (("shallow", 1), ("deep", 3), ("empty", 0)):
        run("create_queue", queue)
        for _ in range(messages):
            run("publish", queue, "x")
    wait_until(
        lambda: [row["ready"] for row in run.shown("watch", "--count", "1")][:2] == [3, 1], what="the depths")

    told = run("watch", "--count", "2", "--interval", "0")
    by_name = run.shown("watch", "--count", "1", "--sort", "name")

    assert told.count("name     ready  unacked  consumers  in/s  out/s  ack/s\ndeep     3") == 2
    assert "4 ready, 0 unacked" in told
    assert [row["name"] for row in by_name] == ["deep", "empty", "shallow"]
    for queue in ("shallow", "deep", "empty"):
        run("delete_queue", queue)


def test_watch_draws_over_itself_on_a_terminal_until_ctrl_c(run):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        Runner(run.uri).command("watch", "--interval", "0.01"), stdin=theirs, stdout=theirs, stderr=theirs,
        cwd=ROOT, env=environment(TERM="xterm"), start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0))
    os.close(theirs)
    read = b""
    while read.count(b"\x1b[H\x1b[J") < 3:
        read += os.read(ours, 4096)
    drain = threading.Thread(target=_read_all, args=(ours,), daemon=True)
    drain.start()

    os.write(ours, b"\x03")

    assert process.wait(in_time(60)) == 0
    drain.join(in_time(60))
    os.close(ours)


def _read_all(descriptor):
    try:
        while os.read(descriptor, 4096):
            pass
    except OSError:
        pass  # the other end is closed


def test_watch_goes_on_when_the_broker_comes_back(run, monkeypatch):
    from gomq_py.ctl import watch
    from gomq_py.ctl.api import APIError
    heads = iter(["one", APIError("no broker answers"), "three"])

    def head(_api):
        found = next(heads)
        if isinstance(found, APIError):
            raise found
        return found

    monkeypatch.setattr(watch, "_head", head)

    told = run("watch", "--count", "3", "--interval", "0")

    assert "one\n" in told and "gomq-py-ctl: no broker answers\n" in told and "three\n" in told


# the page

def test_commands_that_the_page_lists_are_there():
    page = (ROOT / "docs" / "management.md").read_text(encoding="utf-8")
    table = page.partition("| command | effect |")[2].partition("\n\n")[0]
    named = {words.split()[0] for line in table.splitlines()[2:] for words in
             re.findall("`([^`]+)`", line.split("|")[1])}

    assert len(named) > 30 and named <= set(commands)
