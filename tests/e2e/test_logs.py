"""The log tells an operator why each connection went, and never what it must not hold."""
import base64
import json
import re
import signal
import socket
import subprocess
import sys

import pika
import pytest
import trustme

from gomq_py.client.connection import Connection
from tests.support import telltale
from tests.support.command import ROOT
from tests.support.ports import reserve
from tests.support.waiting import in_time

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"


def raw(broker, octets):
    """Send octets on a connection of their own and wait until the broker has closed it."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=in_time(60)) as client:
        client.sendall(octets)
        while client.recv(4096):
            pass


def test_login_is_logged_with_user_and_vhost(broker):
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)):
        broker.wait_for_log(
            r"info  amqp: connection 127\.0\.0\.1:\d+ -> 127\.0\.0\.1:\d+: user 'guest' opened vhost '/'"
        )


def test_close_by_the_client_is_logged_with_its_words(broker):
    pika.BlockingConnection(pika.URLParameters(broker.amqp_url)).close(200, "had enough")

    broker.wait_for_log(r"closed: by the client: 200 had enough")


def test_lost_client_is_told_from_one_that_said_goodbye(broker):
    Connection(broker.amqp_url).abort()

    broker.wait_for_log("closed: the client closed the socket without connection.close")


def test_close_by_the_broker_is_logged_with_its_reason(broker):
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        connection.channel().queue_declare("absent", passive=True)

    broker.wait_for_log(r"channel 1: closing the channel with 404 NOT_FOUND - no queue 'absent' in vhost '/'")


def test_refused_login_is_logged_with_the_user_and_without_the_password(broker_process):
    broker = broker_process(log_level="debug").start()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(broker.url(password="s3cret-Pa55")))

    broker.wait_for_log("refused: user 'guest' gave a wrong password or does not exist")
    assert "s3cret" not in broker.log_text


def test_peer_of_another_protocol_is_logged_as_such(broker):
    raw(broker, b"GET / HTTP/1.1\r\n\r\n")

    broker.wait_for_log("refused: the peer does not speak AMQP")


def test_broken_frame_is_logged_with_what_was_wrong(broker):
    raw(broker, PROTOCOL_HEADER + b"\x01\x00\x00\x00\x00\x00\x04abcd\xff")

    broker.wait_for_log("501 FRAME_ERROR")


def test_user_name_cannot_forge_a_line(broker):
    name = "x\n2026-01-01T00:00:00.000Z info  boot: stopped"
    parameters = pika.ConnectionParameters(port=broker.port, credentials=pika.PlainCredentials(name, "x"))
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(parameters)

    broker.wait_for_log("gave a wrong password or does not exist")
    assert [line for line in broker.log if re.match(r"2026-01-01T00:00:00.000Z", line)] == []


@pytest.mark.parametrize("text", [
    "[main]\nlog_format = json\nlog_level = loud\n", "[main]\nlog_format = json\ntls_key = /absent.pem\n"
])
def test_a_reload_that_fails_is_one_object_without_the_environment(broker_process, tmp_path, text):
    """And without the flags: the default user's password may be among both."""
    config = tmp_path / "gomq.ini"
    certificate = tmp_path / "tls.pem"
    write_certificate(certificate)
    config.write_text("[main]\nlog_format = json\n")
    broker = broker_process(
        config=config, tls_cert=certificate, amqps_port=0, environment={"DB_PASSWORD": "t0p-of-the-tree"}
    ).start()
    before = len(broker.log)
    config.write_text(text)

    broker.signal(signal.SIGHUP)

    broker.wait_for_log("the old configuration stays: ")
    broker.stop()
    entries = [json.loads(line) for line in broker.log[before:]]
    assert [entry["message"].partition(":")[0] for entry in entries if entry["source"] == "reload"] == [
        "the old configuration stays"
    ]
    assert "t0p-of-the-tree" not in broker.log_text


def write_certificate(path):
    """A certificate and its key in one file."""
    issued = trustme.CA().issue_cert("localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(str(path))


def test_a_token_whose_issuer_is_away_costs_lines_and_no_traceback(broker_process, tmp_path):
    """Strangers may send as many as they like."""
    config = tmp_path / "gomq.ini"
    config.write_text("[main]\nlog_format = json\nauth_backends = oauth\n"
                      f"[oauth]\nissuer = http://127.0.0.1:{reserve()}\nresource_server_id = gomq\n")
    broker = broker_process(config=config).start()
    token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
                     for part in ({"alg": "RS256", "typ": "JWT", "kid": "1"}, {"sub": "joe"}, "no signature"))

    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(broker.url(password=token)))
    broker.wait_for_log("the keys of the token issuer .* cannot be had")
    broker.stop()

    assert all(json.loads(line) for line in broker.log)


def test_a_fault_at_boot_is_an_entry_of_the_log(tmp_path):
    """What nobody has thought of: a traceback of ours is for the log, in its format,
    and not for standard error.
    """
    program = (
        "import sys; from gomq_py import cli, node; node.Node.lead = lambda self: 1 / 0; "
        "sys.exit(cli.main(sys.argv[1:]))"
    )
    config = tmp_path / "gomq.ini"
    config.write_text("[main]\nlog_format = json\n")

    done = subprocess.run(
        [sys.executable, "-c", program, "-c", str(config), "-D", str(tmp_path / "data")], cwd=ROOT,
        capture_output=True, text=True, check=False, timeout=in_time(120),
    )

    entry = json.loads(done.stderr.splitlines()[-1])
    assert done.returncode == 1
    assert entry["message"] == "ended by a fault of the broker"
    assert "ZeroDivisionError" in entry["traceback"]


def test_the_check_of_logs_sees_a_traceback_the_environment_and_a_password(broker_process):
    """Of every broker process that tests start."""
    broker = broker_process().start()
    telltale.note_password("told-in-a-test-Pa55")
    for line in (telltale.TRACEBACK, telltale.CANARY, "password told-in-a-test-Pa55 was given"):
        broker.log.append(line)

        with pytest.raises(AssertionError, match="the broker's log tells "):
            broker.check_log()
