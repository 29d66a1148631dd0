"""gomq_py.Broker as an embedder uses it."""
import socket
import subprocess
import sys
import threading
import time

import pika
import pytest

import gomq_py
from tests.support.waiting import in_time, wait_until

PROGRAM_DEADLINE_S = in_time(100)


def round_trip(url, queue="embedded", body=b"hello"):
    """Publish with a confirm and get it back."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
    got = channel.basic_get(queue, auto_ack=True)[2]
    connection.close()
    return got


def run_program(source):
    """Run a program of its own, which a test must not be part of: it patches, forks or dies.

    Returns what it printed.
    """
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=PROGRAM_DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_broker_serves_inside_a_with_block():
    with gomq_py.Broker() as broker:
        assert round_trip(broker.amqp_url) == b"hello"


def test_it_is_up_in_well_under_a_second():
    def boot_s():
        began = time.monotonic()
        with gomq_py.Broker() as broker:
            assert "amqp" in broker.addresses
            return time.monotonic() - began

    assert any(boot_s() < 1 for _ in range(5))  # under a tenth of a second when the machine is idle


def test_what_was_confirmed_is_there_when_the_same_folder_is_opened_again(tmp_path):
    with gomq_py.Broker(tmp_path / "data") as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
        channel = connection.channel()
        channel.queue_declare("kept", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "kept", b"still here", pika.BasicProperties(delivery_mode=2))
        connection.close()

    with gomq_py.Broker(tmp_path / "data") as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
        assert connection.channel().basic_get("kept", auto_ack=True)[2] == b"still here"
        connection.close()


def test_several_brokers_live_in_one_process():
    with gomq_py.Broker() as one, gomq_py.Broker() as other:
        connection = pika.BlockingConnection(pika.URLParameters(one.amqp_url))
        connection.channel().queue_declare("only-here")

        elsewhere = pika.BlockingConnection(pika.URLParameters(other.amqp_url))
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            elsewhere.channel().queue_declare("only-here", passive=True)

        assert refused.value.reply_code == 404
        elsewhere.close()
        connection.close()


def test_a_temporary_folder_goes_with_the_broker():
    import os
    with gomq_py.Broker() as broker:
        folder = broker.data_dir
        assert os.path.isdir(folder)

    assert not os.path.exists(folder)


def test_closing_twice_and_starting_again_are_fine(tmp_path):
    broker = gomq_py.Broker(tmp_path / "data")
    broker.start()
    broker.close()
    broker.close()

    broker.start()

    assert round_trip(broker.amqp_url) == b"hello"
    broker.close()


def test_starting_twice_is_refused():
    with gomq_py.Broker() as broker, pytest.raises(RuntimeError):
        broker.start()


def test_a_port_in_use_is_said_in_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(Exception, match=f"port {port} on 127.0.0.1 is in use"):
            gomq_py.Broker(amqp_port=port).start()


def test_node_that_elects_and_follows_at_once_is_refused_in_one_line():
    with pytest.raises(Exception, match="`enabled` of .clustering. excludes"):
        gomq_py.Broker(clustering=True, cluster=True).start()


def test_a_folder_in_use_is_said_in_one_line(tmp_path):
    with gomq_py.Broker(tmp_path), pytest.raises(Exception, match="(?i)lock|in use"):
        gomq_py.Broker(tmp_path).start()


def test_serve_takes_a_listening_socket():
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    broker = gomq_py.Broker()
    thread = threading.Thread(target=broker.serve, args=(listener,))
    thread.start()
    wait_until(lambda: broker.addresses, in_time(30))

    assert broker.addresses["amqp"] == (host, port)
    assert round_trip(broker.amqp_url) == b"hello"
    broker.close()
    thread.join(in_time(30))
    assert not thread.is_alive()


def test_serve_forever_ends_when_another_thread_closes():
    broker = gomq_py.Broker()
    thread = threading.Thread(target=broker.serve_forever)
    thread.start()
    wait_until(lambda: broker.addresses, in_time(30))

    broker.close()

    thread.join(in_time(30))
    assert not thread.is_alive()


def test_the_management_api_is_there_when_asked_for():
    import requests
    with gomq_py.Broker(http_port=0) as broker:
        assert requests.get(
            f"{broker.http_url}/api/whoami", auth=("guest", "guest"), timeout=in_time(60)
        ).json()["name"] == "guest"


def test_call_runs_in_the_brokers_thread():
    with gomq_py.Broker() as broker:
        there = broker.call(lambda launcher: (threading.get_ident(), sorted(launcher.broker.vhosts)))

    assert there[0] != threading.get_ident()
    assert there[1] == ["/"]


def test_a_monkey_patched_program_can_embed_a_broker():
    printed = run_program("""
from gevent import monkey; monkey.patch_all()
import gevent, gomq_py, pika
def work(url):
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"patched")
    got = channel.basic_get("q", auto_ack=True)[2]
    connection.close()
    return got
with gomq_py.Broker() as broker:
    jobs = [gevent.spawn(work, broker.amqp_url) for _ in range(3)]
    gevent.joinall(jobs, raise_error=True)
    print(sorted({job.value for job in jobs}))
""")

    assert printed == "[b'patched']"


def test_what_a_patched_program_may_import_too_is_there_before_there_are_two_threads():
    """Its import locks are gevent's, and none of the broker's loop can wait for another thread's."""
    assert run_program("""
from gevent import monkey; monkey.patch_all()
import sys, gomq_py
with gomq_py.Broker():
    print([name for name in ("ssl", "gevent.ssl", "gomq_py.client.connection") if name not in sys.modules])
""") == "[]"


def test_importing_the_package_imports_nothing_else_of_it():
    # The switch to the interpreted twins is there where they are asked for; it has to come first.
    printed = run_program(
        "import sys, gomq_py; print([m for m in sys.modules if m.startswith(('gomq_py.', "
        "'gevent')) and m != 'gomq_py.purepython'])")

    assert printed == "[]"


def test_a_connected_client_does_not_hold_up_the_close():
    broker = gomq_py.Broker().start()
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    closer = threading.Thread(target=broker.close)
    closer.start()

    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        while True:
            connection.process_data_events(time_limit=0.1)

    closer.join(in_time(30))
    assert closed.value.reply_code == 320
    assert not closer.is_alive()


@pytest.mark.parametrize("options, error, says", [
    ({"heartbeat": "x"}, ValueError, "heartbeat: 'x' is not a whole number from 0 to 65535"),
    ({"log_level": "loud"}, ValueError, "log_level: 'loud' is not a log level"),
    ({"amqp_port": "abc"}, ValueError, "amqp_port: 'abc' is not a port"),
    ({"data_dir": 5}, ValueError, "data_dir: 5 is not a folder"),
    ({"heartbaet": 5}, TypeError, "no such setting: heartbaet; is heartbeat meant"),
])
def test_wrong_arguments_are_refused_at_construction(options, error, says):
    with pytest.raises(error, match=says):
        gomq_py.Broker(**options)


def test_a_broker_that_does_not_run_says_that_it_has_no_address():
    broker = gomq_py.Broker()

    with pytest.raises(RuntimeError, match="the broker is not running"):
        broker.amqp_url  # noqa: B018
    with broker, pytest.raises(RuntimeError, match="the broker has no http: its http_port is -1"):
        broker.http_url  # noqa: B018


NEVER_CLOSED = """
import gomq_py, socket, warnings
broker = gomq_py.Broker().start()
client = socket.create_connection(broker.addresses["amqp"])
client.sendall(b"GET / HTTP/1.1")
while client.recv(100):
    pass
"""


def test_a_broker_that_is_never_closed_is_a_warning_and_its_log_is_not_on_standard_error():
    """To whom asks for such warnings; and only what a program sets up to be logged is."""
    quiet, asked = (
        subprocess.run(
            [sys.executable, *flags, "-c", NEVER_CLOSED], capture_output=True, text=True,
            timeout=PROGRAM_DEADLINE_S,
        )
        for flags in ((), ("-W", "default"))
    )

    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert (
        "was never closed: use `with`, or close()" in asked.stderr
        and "ResourceWarning: <gomq_py.Broker in " in asked.stderr
    )
