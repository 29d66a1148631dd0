"""The command ``gomq-py`` as an operator meets it: what it says, its exit codes, its signals."""
import base64
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time

import bcrypt
import pika
import pika.exceptions
import psutil
import pytest

import gomq_py
from tests.support import certificates
from tests.support.broker_process import BrokerProcess
from tests.support.command import ROOT
from tests.support.command import gomq_py as run
from tests.support.waiting import in_time, wait_until


def complaint(finished):
    """The one line that a command which failed has said."""
    lines = finished.stderr.strip().splitlines()
    assert len(lines) == 1, finished.stderr
    return lines[0]


def can_talk_amqp(port):
    """True when a protocol header is answered with connection.start."""
    with socket.create_connection(("127.0.0.1", port), timeout=in_time(30)) as client:
        client.sendall(b"AMQP\x00\x00\x09\x01")
        return client.recv(11)[7:11] == b"\x00\x0a\x00\x0a"


def test_version_is_printed():
    finished = run("--version")

    assert (finished.returncode, finished.stdout) == (0, f"{gomq_py.__version__}\n")


def test_build_info_says_which_twin_runs():
    assert "hot modules: interpreted" in run("--build-info", GOMQ_PURE_PYTHON="1").stdout


@pytest.mark.parametrize("arguments, says", [
    (("--port", "seventy"), "gomq-py: --port: 'seventy' is not a port"),
    (("--unheard-of",), "gomq-py: unrecognized arguments: --unheard-of"),
    (("--config", "/nowhere/gomq.ini"), "gomq-py: cannot read /nowhere/gomq.ini: No such file or directory"),
])
def test_usage_mistake_is_one_line_and_exit_2(arguments, says):
    finished = run(*arguments)

    assert finished.returncode == 2
    assert complaint(finished).startswith(says)


def test_mistake_in_the_file_names_file_and_line(tmp_path):
    file = tmp_path / "gomq.ini"
    file.write_text("[main]\nlog_level = loud\n")

    finished = run("--config", file)

    assert finished.returncode == 2
    assert complaint(finished).startswith(f"gomq-py: {file}:2: log_level: 'loud' is not a log level")


@pytest.mark.parametrize("how", ["flag", "environment", "file"])
def test_node_that_elects_and_follows_at_once_ends_the_boot_in_one_line(tmp_path, how):
    """Whoever turns it on believes in a copy on another node."""
    file = tmp_path / "gomq.ini"
    file.write_text("[clustering]\nenabled = true\nreplicate = true\n")
    arguments, environment, place = {
        "flag": (("--clustering", "--cluster"), {}, "--clustering"),
        "environment": ((), {"GOMQ_CLUSTERING": "true", "GOMQ_CLUSTER": "true"}, "GOMQ_CLUSTERING"),
        "file": (("--config", file), {}, f"{file}:2"),
    }[how]

    finished = run(*arguments, **environment)

    assert finished.returncode == 2
    assert complaint(finished).startswith(f"gomq-py: {place}: `enabled` of [clustering] excludes")


def test_port_in_use_is_named_with_what_to_do(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        finished = run("--data-dir", tmp_path / "data", "--port", port, "--log-level", "none")

    assert finished.returncode == 1
    assert f"gomq-py: port {port} on 127.0.0.1 is in use" in complaint(finished)


def test_data_folder_in_use_names_its_holder(broker):
    finished = run("--data-dir", broker.data_dir, "--port", 0, "--log-level", "none")

    assert finished.returncode == 1
    assert f"in use by PID {broker.pid}" in complaint(finished)


@pytest.mark.parametrize(
    "text, code, says",
    [
        ("[main]\npidfile = /dev/full\n", 1, "cannot use /dev/full: No space left on device"),
        ("[amqp]\nbind = " + "x" * 300 + "\n", 1, ": this is no host name"),
        ("[amqp]\nbind = \u00fc\u00fc..\n", 1, "cannot listen on \u00fc\u00fc..: this is no host name"),
        ("[main]\nload_definitions = {folder}/deep.json\n", 1, "deep.json are no JSON: "),
        (
            "[main]\nfree_disk_min = " + "9" * 400 + "\n", 2,
            "is not a whole number from 0 to 9007199254740992",
        ),
        (
            "[main]\nmemory_high_watermark = " + "9" * 400 + "GB\n", 2,
            "is not an amount of memory that a machine can have",
        ),
        ("[main]\nstats_interval = " + "9" * 400 + "\n", 2, "is not a whole number from 100 to 86400000"),
        (
            "[main]\ntcp_keepalive = 99999999999:1:1\n", 2,
            "is not a keepalive (idle:interval:probes in seconds",
        ),
        ("[main]\ntcp_recv_buffer_size = 4294967296\n", 2, "is not a whole number from 0 to 1073741823"),
        ('{{"amqp-port": ' + "9" * 8000 + "}}", 2, "numbers too long or objects too deep"),
        ('{{"users": ' * 100000, 2, "numbers too long or objects too deep"),
    ],
    ids=range(11),
)
def test_what_no_system_could_do_is_one_line(tmp_path, text, code, says):
    (tmp_path / "deep.json").write_text("[" * 200_000)
    config = tmp_path / "gomq.ini"
    config.write_text(text.format(folder=tmp_path), encoding="utf-8")

    done = run(
        "-c", str(config), "-D", str(tmp_path / "data"), "--port", "0", "--mqtt-port", "-1",
        "--http-port", "-1", "--metrics-http-port", "-1",
    )

    assert (done.returncode, says in done.stderr.splitlines()[-1]) == (code, True), done.stderr[-2000:]
    assert "Traceback" not in done.stderr


def test_mark_that_editors_put_in_front_of_a_file_is_no_mistake(tmp_path):
    config = tmp_path / "gomq.ini"
    config.write_text("\ufeff[amqp]\nheartbeat = x\n", encoding="utf-8")

    assert "gomq.ini:2: heartbeat: 'x' is not" in run("-c", str(config)).stderr


def test_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")

    finished = run("--data-dir", tmp_path, "--port", 0, "--log-level", "none")

    assert finished.returncode == 1
    assert "is not a gomq-py data folder" in complaint(finished)


def test_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")

    finished = run("--data-dir", tmp_path / "file" / "data", "--port", 0, "--log-level", "none")

    assert finished.returncode == 1
    assert str(tmp_path / "file") in complaint(finished)


def test_log_file_that_cannot_be_written_is_one_line(tmp_path):
    file = tmp_path / "gomq.ini"
    file.write_text(f"[main]\nlog_file = {tmp_path}/absent/broker.log\n")

    assert "cannot write the log to" in complaint(run("--config", file, "--data-dir", tmp_path / "data"))


def test_broker_says_where_it_listens_and_answers_there(broker):
    assert can_talk_amqp(broker.port)
    assert f"amqp on 127.0.0.1:{broker.port}, data in {broker.data_dir}" in broker.log_text


def test_shipped_configuration_boots(broker_process):
    broker = broker_process(config="etc/gomq.ini").start()

    assert can_talk_amqp(broker.port)
    assert "warn" not in broker.log_text or os.environ.get("GOMQ_PURE_PYTHON")


def test_port_minus_one_opens_no_port(broker_process):
    broker = broker_process(port=-1).start()

    assert broker.ports == {}
    assert [
        entry for entry in psutil.Process(broker.pid).net_connections() if entry.status == psutil.CONN_LISTEN
    ] == []


def test_unix_socket_answers(broker_process, tmp_path):
    path = tmp_path / "amqp.sock"
    broker_process(port=-1, amqp_unix_path=path).start()

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"AMQP\x00\x00\x09\x01")
        assert client.recv(11)[7:11] == b"\x00\x0a\x00\x0a"


def test_interpreted_run_is_said_at_boot(broker_process):
    broker = broker_process(environment={"GOMQ_PURE_PYTHON": "1"}).start()

    assert "run interpreted: about 30 times slower" in broker.log_text


def test_no_sync_is_said_at_boot(broker_process):
    assert "running without sync" in broker_process(no_sync=True).start().log_text


def test_setting_without_effect_is_said_at_boot(broker_process, tmp_path):
    file = tmp_path / "gomq.ini"
    file.write_text("[main]\nset_timestamp = yes\n")

    assert "has no effect yet" in broker_process(config=file).start().log_text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_in_order_with_exit_0(broker, number):
    broker.signal(number)

    assert broker.wait() == 0
    assert broker.log[-1].endswith("boot: stopped")


def test_clients_are_told_why_they_are_closed_on_stop(broker):
    import pika
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))

    broker.signal(signal.SIGTERM)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        while True:
            connection.process_data_events(time_limit=5)

    assert closed.value.reply_code == 320
    assert broker.wait() == 0


def test_second_signal_stops_at_once(broker):
    """A client that never answers connection.close holds up the first one, for a second:
    both come while the broker stands still.
    """
    import pika
    silent = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))

    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        broker.signal(number)

    assert broker.wait() == 1
    assert ": stopping" in broker.log_text
    assert "stopped at once" in broker.log_text
    del silent


def test_stop_that_takes_too_long_ends_though_the_hub_stands_still():
    program = """if True:
        import signal, time
        from gevent.event import Event
        from gomq_py.config.settings import Settings
        from gomq_py.launcher import Launcher
        launcher = Launcher(Settings.checked(stop_timeout=1))
        launcher._asked_to_stop = Event()
        launcher._on_stop_signal(signal.SIGTERM)
        time.sleep(3600)
    """

    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=in_time(60))

    assert done.returncode == 1
    assert "Timeout (0:00:02)" in done.stderr and 'File "<string>", line 9' in done.stderr


def test_folder_is_free_again_after_a_kill(broker):
    broker.kill()

    broker.start()

    assert can_talk_amqp(broker.port)


def test_pidfile_holds_the_process_and_goes_with_it(broker_process, tmp_path):
    pidfile = tmp_path / "gomq.pid"
    broker = broker_process(pidfile=pidfile).start()
    wait_until(pidfile.exists)
    assert pidfile.read_text() == f"{broker.pid}\n"

    broker.stop()

    assert not pidfile.exists()


def test_log_goes_to_a_file_as_json(broker_process, tmp_path):
    file = tmp_path / "gomq.ini"
    path = tmp_path / "broker.log"
    file.write_text(f"[main]\nlog_file = {path}\nlog_format = json\n")
    broker = broker_process(config=file)
    broker.spawn()
    wait_until(lambda: path.exists() and "ready after" in path.read_text(), timeout_s=in_time(60))
    broker.stop()

    assert [json.loads(line)["level"] for line in path.read_text().splitlines()].count("info") >= 3


def test_boot_takes_less_than_a_second(broker):
    """The best of a few, because other tests boot beside it."""
    def ready_s():
        found = float(re.search(r"ready after ([\d.]+) s", broker.log_text)[1])
        broker.restart()
        return found

    assert any(ready_s() < 1 for _ in range(8)), broker.log_text


def test_idle_broker_uses_no_cpu(broker):
    """Over two seconds with an idle client: less than 1 % of a core,
    as soon as what the boot has left to do is done.
    """
    import pika
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    connection.channel()
    process = psutil.Process(broker.pid)

    def used_s():
        before, began = process.cpu_times(), time.monotonic()
        wait_until(lambda: time.monotonic() - began > 2)
        after = process.cpu_times()
        return after.user + after.system - before.user - before.system

    assert any(used_s() <= 0.02 for _ in range(5))
    connection.close()


def test_idle_broker_is_small(broker):
    """38 MB is the promise for AMQP alone: what only some use is imported for the first of them."""
    assert psutil.Process(broker.pid).memory_info().rss < 38_000_000


def test_modules_that_amqp_alone_does_not_need_are_not_there():
    """Among them OpenSSL: 5 MB; what importlib.metadata brings in: 3 MB; what some queues and sessions need
    alone: 3 MB; what a command line without mistakes and an address that is no name need not: 1 MB.
    """
    source = (
        "import gomq_py.__main__, gomq_py.launcher; "
        "gomq_py.config.sources.flag_parser().parse_args(['-b', '127.0.0.1']); "
        "gomq_py.net.listener.bind_tcp('127.0.0.1', 0, 1)"
    )

    assert imported_by(source, [
        "_hashlib", "_ssl", "bcrypt", "bz2", "decimal", "difflib", "email", "encodings.idna", "flask",
        "gomq_py.amqp.server.stream_consumer", "gomq_py.broker.queues.stream_queue",
        "gomq_py.broker.topology.definitions", "gomq_py.broker.transfer.delayed",
        "gomq_py.client.connection", "gomq_py.mqtt.model.qos2_records", "gomq_py.mqtt.model.interests",
        "gomq_py.mqtt.model.session_queue", "gomq_py.mqtt.model.shared_subscriptions", "gomq_py.net.openssl",
        "gomq_py.net.records", "gomq_py.storage.stores.browser", "gomq_py.storage.stores.priority_store",
        "gomq_py.storage.stores.stream_store", "importlib.metadata", "jwt", "lzma", "prometheus_client",
        "stringprep", "wsproto", "zipfile", "zlib",
    ]) == "[]"


@pytest.mark.parametrize("module, name", [
    ("gomq_py.launcher", "gomq_py.broker.queues.limits"),  # which a policy may bring to any queue
    *(("gomq_py.mqtt.server.server", f"gomq_py.mqtt.model.{name}")
      for name in ("qos2_records", "replays", "session", "session_queue", "shared_subscriptions")),
])
def test_modules_whose_import_might_fail_in_the_middle_of_a_change_are_there(module, name):
    assert imported_by(f"import gomq_py.__main__, {module}", [name]) == f"['{name}']"


@pytest.mark.parametrize("listeners", [
    {"mqtt_port": 0, "http_port": 0, "metrics_http_port": 0},
    {"mqtt_port": -1, "http_port": -1, "metrics_http_port": -1},
])
def test_modules_that_only_requests_need_are_not_there_when_the_broker_is_ready(tmp_path, listeners):
    """14 MB and more than half of the CPU time from start to ready."""
    source = f"""
import os, gomq_py.__main__
from gomq_py.config.settings import Settings
from gomq_py.launcher import Launcher
os.chdir({str(tmp_path)!r})
launcher = Launcher(Settings.checked(data_dir="data", amqp_port=0, control_unix_path="sock", **{listeners!r}))
launcher.start()
print(len(launcher.listeners))
launcher.stop()
"""

    assert imported_by(source, [
        "_hashlib", "asyncio", "bcrypt", "bz2", "click", "decimal", "difflib", "flask",
        "gomq_py.broker.queues.quorum", "gomq_py.broker.queues.stream_queue", "gomq_py.client.connection",
        "gomq_py.cluster", "gomq_py.diagnosis", "gomq_py.http.answers", "gomq_py.http.app",
        "gomq_py.http.errors", "gomq_py.http.shapes", "h11", "hashlib", "html", "http.server",
        "importlib.metadata", "jinja2", "jwt", "lzma", "mimetypes", "pickle", "prometheus_client", "secrets",
        "sqlite3", "tempfile", "urllib.request", "werkzeug", "wsgiref", "wsproto", "zipfile", "zlib",
    ]) == f"{5 if listeners['http_port'] == 0 else 2}\n[]"


def test_modules_that_few_users_of_the_management_api_need_are_not_there():
    """They come with the first WebSocket, and the first look at the API's description."""
    source = "import gomq_py.__main__, gomq_py.http.door"

    assert imported_by(source, ["gomq_py.http.openapi.document", "h11", "jwt", "wsproto"]) == "[]"


@pytest.mark.parametrize("first", ["ssl", "gevent.ssl", "urllib.request"])
def test_ssl_is_patched_by_its_first_import(first):
    """For those that know nothing of gevent, as urllib."""
    source = (
        f"import gomq_py.__main__; assert 'ssl' not in sys.modules; import {first}, ssl; "
        "from gevent.ssl import SSLContext; from gevent import monkey; "
        "assert monkey.is_module_patched('ssl'); "
        "print(ssl.SSLContext is SSLContext, isinstance(ssl.create_default_context(), SSLContext), "
        "[finder for finder in sys.meta_path if 'Ssl' in repr(finder)])"
    )

    assert imported_by(f"import sys; {source}", []) == "True True []\n[]"


@pytest.mark.parametrize("broken", ["ssl", "_ssl", "gevent.ssl"])
@pytest.mark.parametrize("first", ["ssl", "gevent.ssl"])
def test_ssl_is_patched_where_its_first_import_fails(first, broken):
    """As in a broker that has no descriptor left; and somebody had asked where it is."""
    source = f"""
import gomq_py.__main__, importlib.util, sys
assert importlib.util.find_spec("ssl").name == "ssl"
class Broken:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "{broken}":
            raise OSError("no descriptors")
sys.meta_path.insert(0, Broken)
try:
    import {first}
except OSError:
    sys.meta_path.remove(Broken)
    import {first}, ssl
    from gevent.ssl import SSLContext
    print(ssl.SSLContext is SSLContext)
"""

    assert imported_by(source, []) == "True\n[]"


def test_ssl_that_was_imported_before_the_broker_is_patched():
    source = (
        "import ssl, gomq_py.__main__; from gevent.ssl import SSLContext; "
        "print(ssl.SSLContext is SSLContext)"
    )

    assert imported_by(source, []).startswith("True\n")


def imported_by(source, names):
    """Which of these modules are there after these statements, as a list in text."""
    source = f"{source}\nimport sys; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=in_time(60), cwd=ROOT
    )
    return done.stdout.strip() or done.stderr


def test_amqps_serves_clients_that_trust_its_certificate(broker_process, tmp_path):
    import pika
    files = certificates.make(tmp_path)
    broker = broker_process(amqps_port=0, tls_cert=files.certificate, tls_key=files.key).start()
    context = ssl.create_default_context(cafile=files.authority)

    connection = pika.BlockingConnection(pika.ConnectionParameters(
        port=broker.ports["amqps"], ssl_options=pika.SSLOptions(context, "localhost")
    ))
    channel = connection.channel()
    channel.queue_declare("over-tls")
    channel.basic_publish("", "over-tls", b"x" * 300_000)

    assert channel.basic_get("over-tls", auto_ack=True)[2] == b"x" * 300_000
    connection.close()


def test_certificate_that_cannot_be_read_is_one_line(tmp_path):
    finished = run(
        "--data-dir", tmp_path / "data", "--port", 0, "--amqps-port", 0, "--tls-cert",
        tmp_path / "absent.pem", "--log-level", "none",
    )

    assert finished.returncode == 1
    assert "absent.pem: No such file or directory" in complaint(finished)


def test_dispatchds_configuration_runs_the_broker(tmp_path):
    """Its users log in with their passwords, the default user is not made."""
    password = base64.b64encode(bcrypt.hashpw(b"password of joe", bcrypt.gensalt(4))).decode()
    config = tmp_path / "dispatchd.json"
    config.write_text(json.dumps(
        {"persist-dir": str(tmp_path / "elsewhere"), "users": {"joe": {"password_bcrypt_base64": password}}}
    ))

    with BrokerProcess(tmp_path / "data", config=config) as broker:
        pika.BlockingConnection(pika.URLParameters(broker.url("joe", "password of joe"))).close()
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            pika.BlockingConnection(pika.URLParameters(broker.url("guest", "guest")))


def test_a_wrong_type_in_dispatchds_configuration_is_one_line_and_exit_2(tmp_path):
    config = tmp_path / "dispatchd.json"
    config.write_text('{"amqp-port": "5672"}')

    ended = run("--config", str(config))

    assert ended.returncode == 2
    assert "amqp-port should be a port" in complaint(ended)
