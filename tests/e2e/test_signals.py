"""SIGHUP and SIGUSR1 at a real broker: what a reload changes, what it leaves, what it says;
and what a dump shows.
"""
import json
import os
import pty
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading

import pika
import pytest
import requests
import trustme

from tests.support import certificates
from tests.support.command import ROOT
from tests.support.waiting import in_time, wait_until


@pytest.fixture
def config(tmp_path):
    """The INI file of this test's broker."""
    file = tmp_path / "gomq.ini"
    file.write_text("")
    return file


def reload(broker, config, text, says="configuration reloaded: "):
    """Write the file, send SIGHUP, and return the line that the broker answers with."""
    config.write_text(text)
    seen = len(broker.log)
    broker.signal(signal.SIGHUP)
    return wait_until(
        lambda: next((line for line in broker.log[seen:] if says in line), None), what=broker.log
    )


# what a reload changes

def test_level_changes_and_is_told(broker_process, config):
    config.write_text("[main]\nlog_level = warn\n")
    broker = broker_process(config=config)
    broker.spawn()
    wait_until(lambda: os.path.exists(broker.data_dir / ".lock"))

    line = wait_until(lambda: reload_quietly(broker, config, "[main]\nlog_level = info\n"))

    assert "log_level: warn -> info" in line


def reload_quietly(broker, config, text):
    """A broker at level warn says nothing of being ready: ask until it answers."""
    config.write_text(text)
    broker.signal(signal.SIGHUP)
    return next((line for line in broker.log if "configuration reloaded: log_level" in line), None)


def test_limits_count_for_connections_to_come(broker_process, config):
    broker = broker_process(config=config).start()
    before = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))

    line = reload(
        broker, config,
        "[amqp]\nheartbeat = 7\nchannel_max = 3\nlogin_timeout = 30\nmax_connections_per_address = 2\n"
        "[main]\ntcp_keepalive = no\n")

    for told in (
        "heartbeat: 60 -> 7", "channel_max: 2047 -> 3", "login_timeout: 10 -> 30",
        "tcp_keepalive: 60:10:3 -> false",
    ):
        assert told in line
    after = pika.BlockingConnection(pika.ConnectionParameters(port=broker.port, heartbeat=None))
    for _ in range(3):
        after.channel()
    with pytest.raises((pika.exceptions.NoFreeChannels, pika.exceptions.AMQPError)):
        after.channel()
    with pytest.raises(pika.exceptions.AMQPError):  # the third from one address
        pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    before.channel().queue_declare("still-served", auto_delete=True)
    before.close()


def test_trusted_proxies_change(broker_process, config):
    broker = broker_process(config=config).start()

    reload(broker, config, "[amqp]\ntcp_proxy_protocol = true\n")

    with socket.create_connection(("127.0.0.1", broker.port), timeout=in_time(60)) as client:
        client.sendall(b"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\nAMQP\x00\x00\x09\x01")
        assert client.recv(100)[7:11] == b"\x00\x0a\x00\x0a"


def test_key_that_is_taken_out_of_the_file_has_its_default_again(broker_process, config):
    config.write_text("[amqp]\nheartbeat = 7\n")
    broker = broker_process(config=config).start()

    assert "heartbeat: 7 -> 60" in reload(broker, config, "")


def test_flag_still_wins_over_the_file(broker_process, config):
    broker = broker_process(config=config, log_level="info").start()

    assert "no change" in reload(broker, config, "[main]\nlog_level = debug\n")


def test_what_needs_a_restart_is_named_and_left(broker_process, config, tmp_path):
    broker = broker_process(config=config).start()

    line = reload(
        broker, config,
        f"[main]\nsegment_size = 1048576\npidfile = {tmp_path}/x.pid\n[amqp]\nframe_max = 8192\n",
        "need a restart",
    )

    assert line.endswith(
        "these changes need a restart: pidfile in [main], segment_size in [main], frame_max in [amqp]"
    )
    assert not (tmp_path / "x.pid").exists()


@pytest.mark.parametrize("text, says", [
    (
        "[amqp]\nheartbeat = 7\nchannel_max = many\n",
        "gomq.ini:3: channel_max: 'many' is not a whole number from 1 to 65535",
    ),
    ("[amqp]\nheartbeat = 7\n[ampq]\n", "gomq.ini:3: unknown section [ampq]"),
    ("[amqp]\nheartbeat = 7\nnonsense\n", "gomq.ini:3: 'nonsense' is not a key = value line"),
    (
        "[amqp]\nheartbeat = 7\n[main]\nlog_file = /absent/folder/broker.log\n",
        "cannot write the log to /absent/folder/broker.log",
    ),
])
def test_bad_file_keeps_the_whole_old_configuration(broker_process, config, text, says):
    broker = broker_process(config=config).start()

    assert says in reload(broker, config, text, "error reload: the old configuration stays: ")

    with socket.create_connection(("127.0.0.1", broker.port), timeout=in_time(60)) as client:
        client.sendall(b"AMQP\x00\x00\x09\x01")
        assert client.recv(100)[7:11] == b"\x00\x0a\x00\x0a"
    assert "heartbeat: 60 -> 8" in reload(broker, config, "[amqp]\nheartbeat = 8\n")  # and not 7 -> 8


def test_file_that_has_gone_keeps_the_old_configuration(broker_process, config):
    broker = broker_process(config=config).start()
    config.unlink()
    seen = len(broker.log)

    broker.signal(signal.SIGHUP)

    wait_until(
        lambda: any("the old configuration stays: cannot read" in line for line in broker.log[seen:]),
        what=broker.log,
    )


def test_unknown_key_is_a_warning_of_the_reload(broker_process, config):
    broker = broker_process(config=config).start()

    reload(
        broker, config, "[amqp]\nheartbaet = 7\n",
        "gomq.ini:2: unknown key 'heartbaet' in section [amqp] is ignored",
    )


def test_many_signals_at_once_do_no_harm(broker_process, config):
    broker = broker_process(config=config).start()

    for _ in range(50):
        broker.signal(signal.SIGHUP)
    assert "heartbeat: 60 -> 9" in reload(broker, config, "[amqp]\nheartbeat = 9\n", "heartbeat")

    pika.BlockingConnection(pika.URLParameters(broker.amqp_url)).close()


def test_service_manager_hears_of_a_reload(broker_process, config, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(in_time(60))
        broker = (
            broker_process(config=config, environment={"NOTIFY_SOCKET": str(tmp_path / "notify")}).start()
        )
        assert manager.recv(1000).startswith(b"READY=1\n")

        reload(broker, config, "[amqp]\nheartbeat = 9\n")
        assert manager.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert manager.recv(1000).startswith(b"READY=1\nSTATUS=amqp on ")
        reload(broker, config, "[amqp]\nheartbeat = x\n", "the old configuration stays")
        assert manager.recv(1000).startswith(b"RELOADING=1")
        assert b"the last reload failed" in manager.recv(1000)


@pytest.mark.parametrize("closed", [True, False])
def test_broker_goes_with_the_terminal_that_it_was_started_in(tmp_path, closed):
    """And reloads when the signal comes while the terminal is there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [
            sys.executable, "-m", "gomq_py", "--data-dir", tmp_path / "data", "--port", "0", "--mqtt-port",
            "-1", "--http-port", "-1", "--metrics-http-port", "-1",
        ],
        stdin=theirs, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)})
    os.close(theirs)
    lines = iter(process.stderr)
    next(line for line in lines if "ready after" in line)
    if closed:
        os.close(ours)

    process.send_signal(signal.SIGHUP)

    says = next(
        line for line in lines if "boot: SIGHUP: stopping" in line or "configuration reloaded" in line
    )
    assert ("stopping" in says) == closed
    if not closed:
        process.terminate()
        os.close(ours)
    process.stderr.read()
    assert process.wait(in_time(60)) == 0
    process.stderr.close()


# certificates

def connect_tls(broker, files):
    options = pika.SSLOptions(ssl.create_default_context(cafile=files.authority), "localhost")
    return pika.BlockingConnection(pika.ConnectionParameters(port=broker.ports["amqps"], ssl_options=options))


def test_new_certificate_is_shown_to_connections_to_come(broker_process, config, tmp_path):
    files = certificates.make(tmp_path / "files")
    broker = (
        broker_process(config=config, amqps_port=0, tls_cert=files.certificate, tls_key=files.key).start()
    )
    old = connect_tls(broker, files)
    shutil.copy(files.authority, tmp_path / "old-authority.pem")
    certificates.make(tmp_path / "files", authority=trustme.CA())

    assert "certificates read anew" in reload(broker, config, "")

    connect_tls(broker, files).close()
    files.authority = tmp_path / "old-authority.pem"
    with pytest.raises(ssl.SSLCertVerificationError):
        connect_tls(broker, files)
    old.channel().queue_declare("still-served", auto_delete=True)
    old.close()


def test_certificate_without_its_key_keeps_the_old_pair(broker_process, config, tmp_path):
    """As when a renewal has written one file and not yet the other."""
    files = certificates.make(tmp_path / "files")
    broker = (
        broker_process(config=config, amqps_port=0, tls_cert=files.certificate, tls_key=files.key).start()
    )
    other = certificates.make(tmp_path / "other")
    shutil.copy(other.key, files.key)

    assert "cannot use the certificate" in reload(
        broker, config, "[amqp]\nheartbeat = 9\n", "the old configuration stays: "
    )

    connect_tls(broker, files).close()


# the log file

def test_log_goes_on_in_a_new_file_after_it_was_moved(broker_process, config, tmp_path):
    path = tmp_path / "broker.log"
    text = f"[main]\nlog_file = {path}\n"
    config.write_text(text)
    broker = broker_process(config=config)
    broker.spawn()
    wait_until(lambda: path.exists() and "ready after" in path.read_text())

    path.rename(tmp_path / "broker.log.1")
    broker.signal(signal.SIGHUP)

    wait_until(lambda: path.exists() and "configuration reloaded" in path.read_text())
    assert "configuration reloaded" not in (tmp_path / "broker.log.1").read_text()
    config.write_text(text + "log_format = json\n")
    broker.signal(signal.SIGHUP)
    assert wait_until(
        lambda: [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    )[0]["source"] == "reload"


def test_logrotate_rotates_without_losing_a_line(broker_process, config, tmp_path):
    """The shipped snippet with this test's paths, run by logrotate itself."""
    program = shutil.which("logrotate") or shutil.which("logrotate", path="/usr/sbin")
    if not program:
        pytest.skip("logrotate is not installed")
    path, pidfile = tmp_path / "log" / "gomq.log", tmp_path / "gomq.pid"
    path.parent.mkdir(mode=0o755)
    config.write_text(f"[main]\nlog_file = {path}\npidfile = {pidfile}\n")
    broker = broker_process(config=config)
    broker.spawn()
    wait_until(lambda: path.exists() and "ready after" in path.read_text())
    snippet = re.sub(
        r"systemctl reload gomq-py\S*", f"kill -HUP $(cat {pidfile})", open("etc/logrotate.d/gomq-py").read()
    )
    snippet = snippet.replace("/var/log/gomq/*.log", str(path)).replace("delaycompress", "").replace(
        "compress", "nocompress"
    )
    rules = tmp_path / "rules"
    rules.write_text(re.sub(r"\n\s*su .*", "", re.sub(r"create .*", "create 0640", snippet)))
    rules.chmod(0o644)

    done = subprocess.run(
        [program, "-f", "-s", tmp_path / "state", rules], capture_output=True, text=True, timeout=in_time(60)
    )

    assert done.returncode == 0, done.stderr
    wait_until(lambda: "configuration reloaded" in path.read_text())
    (rotated,) = [name for name in path.parent.iterdir() if name != path]
    assert "ready after" in rotated.read_text()


# the dump

def dump(broker):
    """The lines of one dump."""
    seen = len(broker.log)
    broker.signal(signal.SIGUSR1)
    wait_until(lambda: any("end of the dump" in line for line in broker.log[seen:]), what=broker.log)
    return "\n".join(line.partition(" dump: ")[2] for line in broker.log[seen:] if " dump: " in line)


def test_dump_shows_what_the_broker_is_doing(broker_process):
    broker = broker_process(http_port=0).start()
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(port=broker.port, client_properties={"connection_name": "my private name"})
    )
    channel = connection.channel()
    channel.queue_declare("jobs", durable=True)
    channel.confirm_delivery()
    for _ in range(3):
        channel.basic_publish(
            "", "jobs", b"classified", pika.BasicProperties(delivery_mode=2, headers={"token": "hidden"})
        )
    channel.basic_get("jobs")
    silent = socket.create_connection(("127.0.0.1", broker.port), timeout=in_time(30))
    silent.sendall(b"AMQP\x00\x00\x09\x01")
    # it is there, and not only in the queue of the system
    assert silent.recv(100)[7:11] == b"\x00\x0a\x00\x0a"

    shown = dump(broker)

    assert re.search(rf"process {broker.pid}: \d+ MiB of memory", shown)
    assert re.search(r"loop: the slowest of \d+ turns took [\d.]+ ms", shown)
    assert re.search(r"sync: (idle|waiting for more|syncing), \d+ so far", shown)
    assert re.search(r"segments: \d+ pairs", shown)
    assert "alarms: none" in shown
    assert "connections: 1, and 1 that have not logged in yet" in shown
    assert re.search(
        r"connection 127\.0\.0\.1:\d+ -> \S+: guest@/, open, 1 channels, 0 consumers, 1 unacked, "
        r"waits for the client",
        shown,
    )
    assert "queue 'jobs' in '/': 2 ready (20 bytes), 1 unacked, 0 consumers, running" in shown
    assert re.search(r"greenlets: 1 x listener amqp N in listener\.py:\d+ _wait_for_more", shown)
    for secret in ("classified", "hidden", "my private name", "token"):
        assert secret not in shown
    silent.close()
    connection.close()


def test_dump_is_bounded_and_leaves_others_their_turn(broker_process):
    """1500 queues: the largest are shown, and a client is served meanwhile."""
    broker = broker_process(http_port=0).start()
    entities = [
        {"name": f"queue-{number}", "vhost": "/", "durable": False, "auto_delete": False, "arguments": {}}
        for number in range(1500)
    ]
    answer = requests.post(
        f"http://127.0.0.1:{broker.ports['http']}/api/definitions", json={"queues": entities},
        auth=("guest", "guest"), timeout=in_time(60))
    assert answer.status_code in (200, 201, 204)
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    channel.basic_publish("", "queue-777", b"x")
    channel.queue_declare("queue-777", passive=True)

    shown = []
    dumping = threading.Thread(target=lambda: shown.append(dump(broker)))
    dumping.start()
    while dumping.is_alive():
        channel.queue_declare("queue-1", passive=True)
    dumping.join()

    assert "queues: 1500, the 200 with the most messages:" in shown[0]
    assert "queue 'queue-777' in '/': 1 ready" in shown[0]
    assert len(shown[0].splitlines()) < 320
    connection.close()


def test_dump_says_what_a_connection_waits_for(broker_process, config):
    """A client that does not read its deliveries."""
    broker = broker_process(config=config).start()
    publisher = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = publisher.channel()
    channel.queue_declare("many")
    for _ in range(40):
        channel.basic_publish("", "many", bytes(1_000_000))
    consumer = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    consumer.channel().basic_consume("many", lambda *_: None)

    wait_until(
        lambda: re.search(r"1 consumers, \d+ unacked, waits for the client to read \d+ bytes", dump(broker))
    )
    publisher.close()


def test_first_certificate_is_looked_at_before_it_needs_a_restart(broker_process, config, tmp_path):
    broker = broker_process(config=config).start()

    line = reload(
        broker, config, f"[main]\ntls_cert = {tmp_path}/none.pem\ntls_key = {tmp_path}/none.key\n",
        "the old configuration stays: ")

    assert f"{tmp_path}/none." in line


def test_hangup_before_the_launcher_listens_to_it_ends_nothing():
    program = "import os, signal, gomq_py.__main__; os.kill(os.getpid(), signal.SIGHUP); print('lives')"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)

    assert (done.returncode, done.stdout) == (0, "lives\n")
