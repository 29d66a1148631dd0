"""``gomq-py-ctl`` against a broker: every kind of command, what it prints, its exit codes."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pika
import pytest
import requests

from gomq_py import salted_hash
from gomq_py.ctl.listings import LISTS
from tests.ctl.running import Runner, commands, data, done, environment, in_process
from tests.support import certificates
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.waiting import in_time, wait_until


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ctl")
    with BrokerProcess(folder / "data", http_port=0, control_unix_path=folder / "control.sock") as process:
        process.control = str(folder / "control.sock")
        yield process


@pytest.fixture(scope="module")
def ctl(broker):
    """Runs one command; returns the finished process."""
    return Runner(f"http://127.0.0.1:{broker.ports['http']}")


def test_queues_are_made_with_arguments_and_listed(ctl):
    done(ctl("create_queue", "jobs", "--max-length", "5", "--message-ttl", "60000", "--reject-on-overflow"))

    rows = data(ctl("-f", "json", "list_queues", "name", "arguments"))

    assert {
        "name": "jobs",
        "arguments": {"x-max-length": 5, "x-message-ttl": 60000, "x-overflow": "reject-publish"},
    } in rows
    assert "jobs\t0" in done(ctl("-f", "text", "list_queues"))
    assert done(ctl("-f", "text", "-q", "list_queues", "name")).splitlines().count("jobs") == 1
    done(ctl("delete_queue", "jobs", "--if-empty"))
    assert "jobs" not in done(ctl("list_queues"))


@pytest.mark.parametrize("words", [
    ("create_queue", "-p", "behind", "jobs"),
    ("create_queue", "jobs", "--vhost", "behind"),
    ("create_queue", "jobs", "--vhost=behind", "--max-length", "5"),
    ("create_queue", "--max-length", "5", "-pbehind", "jobs"),
    ("-q", "-p", "behind", "create_queue", "jobs"),
])
def test_options_of_all_commands_may_stand_behind_the_command(ctl, words):
    url = ctl.uri
    in_process(url, "add_vhost", "behind")

    result = in_process(url, *words)

    assert result.exit_code == 0, result.output
    listed = in_process(url, "list_queues", "name", "arguments", "-p", "behind", "-f", "json", "--quiet")
    assert [row["name"] for row in json.loads(listed.stdout)] == ["jobs"]
    assert json.loads(listed.stdout)[0]["arguments"] == ({"x-max-length": 5} if "5" in words else {})
    in_process(url, "delete_vhost", "behind")


def test_options_of_the_command_itself_and_what_follows_two_dashes_stay_where_they_are(ctl):
    assert in_process(ctl.uri, "create_queue", "--", "-p").exit_code == 0

    assert "-p" in in_process(ctl.uri, "list_queues", "name", "-f", "text", "-q").stdout.split()
    assert in_process(ctl.uri, "delete_queue", "--if-empty", "--", "-p").exit_code == 0
    assert "No such option" in in_process(ctl.uri, "list_queues", "--bogus").output
    assert "requires an argument" in in_process(ctl.uri, "list_queues", "-p").output


def test_users_permissions_and_tags(ctl):
    done(ctl("add_user", "joe", given="secret\n"))
    done(ctl("set_user_tags", "joe", "monitoring", "policymaker"))
    done(ctl("set_permissions", "joe", "^joe", ".*", ""))

    assert {"name": "joe", "tags": ["monitoring", "policymaker"]} in data(ctl("-f", "json", "list_users"))
    assert {"user": "joe", "configure": "^joe", "write": ".*", "read": ""} in data(
        ctl("-f", "json", "list_permissions")
    )
    assert done(ctl("-u", "joe", "list_queues", GOMQ_CTL_PASSWORD="secret")) is not None
    done(ctl("change_password", "joe", given="other\n"))
    assert ctl("-u", "joe", "list_queues", GOMQ_CTL_PASSWORD="secret").returncode == 1
    done(ctl("clear_permissions", "joe"))
    assert data(ctl("-f", "json", "list_user_permissions", "joe")) == []
    done(ctl("delete_user", "joe"))


def test_exchanges_bindings_policies_and_limits(ctl):
    done(ctl("add_vhost", "v"))
    done(ctl("-p", "v", "create_exchange", "topic", "x", "--alternate-exchange", "amq.fanout"))
    done(ctl(
        "-p", "v", "set_policy", "p", "^q", '{"max-length": 3}', "--priority", "2", "--apply-to", "queues"
    ))
    done(ctl("-p", "v", "set_operator_policy", "o", "^q", '{"expires": 1000}'))
    done(ctl("-p", "v", "set_vhost_limits", '{"max-queues": 7}'))

    for command in (("set_user_limits", "guest"), ("-p", "v", "set_vhost_limits")):
        refused = ctl(*command, '{"max-connections": 9, "max-conections": 1}')
        assert refused.returncode == 2
        assert "no limit is set: max-conections is not a recognised limit" in refused.stderr
    assert data(ctl("-f", "json", "list_user_limits", "--user", "guest")) == []
    assert data(ctl("-p", "v", "-f", "json", "list_vhost_limits")) == [
        {"vhost": "v", "limits": {"max-queues": 7}}]

    assert {"name": "x", "type": "topic"} in data(ctl("-p", "v", "-f", "json", "list_exchanges"))
    assert data(ctl("-p", "v", "-f", "json", "list_policies"))[0]["definition"] == {"max-length": 3}
    assert data(ctl("-p", "v", "-f", "json", "list_operator_policies"))[0]["name"] == "o"
    done(ctl("-p", "v", "clear_policy", "p"))
    done(ctl("-p", "v", "clear_operator_policy", "o"))
    done(ctl("-p", "v", "delete_exchange", "x", "--if-unused"))
    assert data(ctl("-p", "v", "-f", "json", "list_bindings")) == []
    done(ctl("delete_vhost", "v"))


def test_schedules(ctl):
    done(ctl("create_exchange", "direct", "timed", "--delayed"))
    nightly = {"name": "nightly", "cron": "0 3 * * *"}
    requests.post(
        f"{ctl.uri}/api/exchanges/%2F/timed/publish", auth=("guest", "guest"), timeout=in_time(10), json={
            "routing_key": "k", "payload": "x", "payload_encoding": "string",
            "properties": {"headers": {"x-schedule": nightly}}}).raise_for_status()

    assert [(row["exchange"], row["name"], row["cron"], row["user"]) for row in data(
        ctl("-f", "json", "list_schedules"))] == [("timed", "nightly", "0 3 * * *", "guest")]
    done(ctl("delete_schedule", "timed", "nightly"))
    assert data(ctl("-f", "json", "list_schedules")) == []
    assert ctl("delete_schedule", "timed", "nightly").returncode == 1
    done(ctl("delete_exchange", "timed"))


def test_virtual_host_is_described_with_the_options_of_rabbitmqctl(ctl):
    """A second call changes what it names, and nothing else."""
    def add(*options):
        assert in_process(ctl.uri, "add_vhost", "told", *options).exit_code == 0
        vhost = (
            requests.get(f"{ctl.uri}/api/vhosts/told", auth=("guest", "guest"), timeout=in_time(10)).json()
        )
        return vhost["description"], vhost["tags"], vhost["default_queue_type"]

    assert add("--description", "for tests", "--tags", "a,b", "--default-queue-type", "quorum") == (
        "for tests", ["a", "b"], "quorum"
    )
    assert add("--tags", "c") == ("for tests", ["c"], "quorum")
    assert in_process(ctl.uri, "add_vhost", "other", "--default-queue-type", "bogus").exit_code == 1


def test_messages_are_looked_at_moved_and_replayed(broker, ctl):
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    for queue in ("from", "to", "dead"):
        channel.queue_declare(
            queue,
            arguments=(
                {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"} if queue == "from"
                else None
            ),
        )
    channel.confirm_delivery()
    for number in range(3):
        channel.basic_publish("", "from", b"%d" % number)

    seen = data(ctl("-f", "json", "peek", "from", "--offset", "1", "--count", "1"))
    dry = data(ctl("-f", "json", "move", "from", "to", "--count", "2", "--dry-run"))
    moved = data(ctl("-f", "json", "move", "from", "to", "--count", "2"))
    method, _, _ = channel.basic_get("from")
    channel.basic_reject(method.delivery_tag, requeue=False)
    wait_until(
        lambda: channel.queue_declare("dead", passive=True).method.message_count == 1, what="the dead letter"
    )
    replayed = data(ctl("-f", "json", "replay", "dead", "--clean"))

    assert [one["payload"] for one in seen] == ["1"]
    assert (dry["moved"], moved["moved"], moved["dry_run"]) == (2, 2, False)
    assert replayed["targets"] == {"queue 'from'": 1}
    assert (
        [channel.basic_get(queue, auto_ack=True)[2] for queue in ("to", "to", "from")] == [b"0", b"1", b"2"]
    )
    connection.close()


def test_connections_are_listed_and_closed(broker, ctl):
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    channel.queue_declare("watched", exclusive=True)
    channel.basic_consume("watched", lambda *_: None, consumer_tag="watcher")

    assert [row["consumer_tag"] for row in data(ctl("-f", "json", "list_consumers", "consumer_tag"))] == [
        "watcher"
    ]
    assert data(ctl("-f", "json", "list_channels", "consumer_count")) == [{"consumer_count": 1}]
    done(ctl("close_all_connections", "enough"))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="enough"):
        connection.process_data_events(30)


def test_definitions_go_out_and_in(ctl, tmp_path):
    done(ctl("create_queue", "kept"))
    file = tmp_path / "definitions.json"
    done(ctl("export_definitions", str(file)))
    done(ctl("delete_queue", "kept"))

    dry = data(ctl("-f", "json", "import_definitions", "--dry-run", str(file)))
    done(ctl("import_definitions", "-", given=file.read_text(encoding="utf-8")))

    assert [(row["action"], row["kind"], row["name"]) for row in dry] == [("new", "queues", "kept")]
    assert {"name": "kept"} in data(ctl("-f", "json", "list_queues", "name"))
    done(ctl("delete_queue", "kept"))


@pytest.mark.parametrize("mode", [None, 0o644])
def test_exports_are_for_their_owner_alone(ctl, tmp_path, mode):
    """They have hashes of passwords. Also where the file is there already, for others to read."""
    file = tmp_path / "definitions.json"
    if mode is not None:
        file.touch(mode)

    assert in_process(ctl.uri, "export_definitions", str(file)).exit_code == 0

    assert file.stat().st_mode & 0o777 == 0o600 and json.loads(file.read_text(encoding="utf-8"))["users"]


def test_a_paused_queue_is_found_by_the_doctor(ctl):
    done(ctl("create_queue", "lazy"))
    done(ctl("pause_queue", "lazy"))

    rows = data(ctl("-f", "json", "doctor"))

    assert ("warning", "queue lazy") in {(row["level"], row["subject"]) for row in rows}
    assert rows[0]["subject"] == "broker" and rows[0]["level"] == "ok"
    done(ctl("resume_queue", "lazy"))
    done(ctl("delete_queue", "lazy"))


def test_files_that_are_kept_are_named_by_the_doctor(broker, ctl):
    kept = Path(broker.data_dir) / "set-aside" / "of-a-queue"
    kept.mkdir(parents=True)

    # what an earlier test has asked for is told again for a while
    wait_until(lambda: str(kept) in done(ctl("doctor")), what="the finding")

    kept.rmdir()


@pytest.mark.parametrize("days_left, finding", [
    (-1, ("BAD", "has ended")), (3, ("warning", "ends within 14 days")), (60, None)
])
def test_a_certificate_that_ends_is_found_by_the_doctor(broker_process, ctl, tmp_path, days_left, finding):
    files = certificates.make(tmp_path / "tls", ends_in_days=days_left)
    broker = broker_process(http_port=0, https_port=0, tls_cert=files.certificate, tls_key=files.key).start()

    finished = ctl("-f", "json", "doctor", uri=f"http://127.0.0.1:{broker.ports['http']}")

    rows = json.loads(finished.stdout)
    assert finished.returncode == (1 if days_left < 0 else 0)
    found = [(row["level"], row["text"]) for row in rows if row["subject"] == "certificate"]
    assert [(level, finding[1] in text) for level, text in found] == ([(finding[0], True)] if finding else [])


def test_a_brokers_certificate_is_held_against_the_authorities_that_are_named(broker_process, ctl, tmp_path):
    files = certificates.make(tmp_path / "tls")
    broker = broker_process(http_port=0, https_port=0, tls_cert=files.certificate, tls_key=files.key).start()
    uri = f"https://localhost:{broker.ports['https']}"

    named, system, absent, wrong = (
        ctl(*flags, "-q", "list_vhosts", "name", uri=uri)
        for flags in (
            ("--cacert", str(files.authority)), (), ("--cacert", str(tmp_path / "absent")),
            ("--cacert", str(files.key)))
    )

    assert done(named) == "/\n"
    assert system.returncode == 2 and "certificate verify failed" in system.stderr.lower().replace("_", " ")
    assert absent.returncode == wrong.returncode == 2
    assert (
        "cannot use the authorities in " in absent.stderr and "cannot use the authorities in " in wrong.stderr
    )
    assert len(wrong.stderr.splitlines()) == 1


def test_a_protected_vhost_is_not_deleted(ctl):
    done(ctl("add_vhost", "kept"))
    done(ctl("enable_vhost_deletion_protection", "kept"))

    refused = ctl("delete_vhost", "kept")

    assert (
        refused.returncode == 1
        and "virtual host 'kept' because it is protected from deletion" in refused.stderr
    )
    assert {"name": "kept", "protected_from_deletion": True} in data(
        ctl("list_vhosts", "name", "protected_from_deletion", "-f", "json")
    )
    done(ctl("disable_vhost_deletion_protection", "kept"))
    done(ctl("delete_vhost", "kept"))


def test_status_tells_totals(ctl):
    assert "Queues: " in done(ctl("status"))


@pytest.mark.parametrize("arguments, code, text", [
    (("delete_queue", "nobody-made-this"), 1, "no queue 'nobody-made-this' in virtual host '/'"),
    (("move", "nobody-made-this", "q"), 1, "404: no queue 'nobody-made-this' in virtual host '/'"),
    (("delete_shovel", "nobody-made-this"), 1, "404: no shovel 'nobody-made-this' in virtual host '/'"),
    (("-p", "nowhere", "list_queues"), 1, "no virtual host 'nowhere'"),
    (("-p", "", "list_queues"), 2, "--vhost is empty"),
    (("add_user", "guest", "x"), 1, "user 'guest' is there already"),
    (("add_shovel", "s", "--src-uri", "amqp://", "--dest-uri", "amqp://"), 1, "src-exchange is missing"),
    (("set_parameter", "shovel", "s", '{"src-uri": 5}'), 1, "400: Validation failed"),
    (("set_parameter", "nothing", "s", "{}"), 1, "400: Validation failed: component nothing not found"),
    (("set_parameter", "shovel", "s", "no json"), 2, "is no JSON"),
    (("clear_parameter", "shovel", "nobody-made-this"), 1, "404"),
    (("--uri", "http://localhost:99999", "list_queues"), 2, "is not a URI"),
    (("--uri", "http://[::1", "list_queues"), 2, "is not a URI"),
    (
        ("set_policy", "p", "(", '{"max-length": 1}'), 1,
        "400: Validation failed: pattern should be regular expression",
    ),
    (
        ("set_permissions", "nobody-made-this", "", "", ""), 1,
        "no user 'nobody-made-this' or no virtual host '/'",
    ),
    (("create_queue",), 2, "Missing argument"),
    (("set_policy", "p", "^q", "no json"), 2, "is no JSON"),
    (("set_policy", "p", "^q", '{"max-length": 1e400}'), 2, "is no JSON"),
    (("create_queue", "q", "--max-length", "many"), 2, "not a valid integer"),
])
def test_errors_are_one_clear_line_and_an_exit_code(ctl, arguments, code, text):
    finished = ctl(*arguments)

    assert finished.returncode == code and text in finished.stderr and "Traceback" not in finished.stderr


def test_a_wrong_password_is_said_and_never_shown(ctl):
    finished = ctl("list_queues", GOMQ_CTL_PASSWORD="hush-hush")

    assert finished.returncode == 1 and "not authorised" in finished.stderr
    assert "hush" not in finished.stderr + finished.stdout


def test_nobody_there_is_exit_2(ctl):
    finished = ctl("list_queues", uri="http://user:hush-hush@127.0.0.1:1")

    assert (
        finished.returncode == 2 and "no broker answers at http://127.0.0.1:1" in finished.stderr
        and "hush" not in finished.stderr
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_the_names_that_the_broker_knows(broker, ctl, shell):
    """What the shell's function does: the command itself, with the words so far in its environment."""
    uri = f"http://127.0.0.1:{broker.ports['http']}"
    for queue in ("fit.one", "fit.two", "other", "fit; reboot"):
        in_process(uri, "create_queue", queue)

    script = done(ctl("completion", shell))
    # A broker that does not answer within two seconds has nothing to offer.
    offered = wait_until(
        lambda: ctl(
            GOMQ_CTL_URI=uri, _GOMQ_PY_CTL_COMPLETE=f"{shell}_complete",
            COMP_WORDS="gomq-py-ctl purge_queue fit", COMP_CWORD="fit" if shell == "fish" else "2", bare=True,
        ).stdout
    )
    nobody = ctl(
        GOMQ_CTL_URI="http://127.0.0.1:1", _GOMQ_PY_CTL_COMPLETE=f"{shell}_complete",
        COMP_WORDS="gomq-py-ctl purge_queue fit", COMP_CWORD="fit" if shell == "fish" else "2", bare=True,
    )

    assert "_GOMQ_PY_CTL_COMPLETE" in script and f"{shell}_complete" in script
    assert "fit.one" in offered and "fit.two" in offered and "other" not in offered
    assert ("reboot" in offered) == (shell != "bash"), "bash pastes what it is offered as it is"
    assert (nobody.stdout.strip(), nobody.stderr) == ("", "")


@pytest.mark.parametrize("command", sorted(commands))
def test_every_command_has_help_that_says_something(command):
    shown = in_process("http://127.0.0.1:1", command, "--help")

    assert shown.exit_code == 0 and len(shown.stdout.partition("\n\n")[2].split()) > 1


@pytest.mark.parametrize("form", ["table", "text", "json"])
def test_every_list_has_its_columns_in_every_form(broker, form):
    uri = f"http://127.0.0.1:{broker.ports['http']}"
    in_process(uri, "create_queue", "listed")

    for command, (_, _, named) in LISTS.items():
        columns = tuple(named.split())
        shown = in_process(uri, "-f", form, command)
        assert shown.exit_code == 0, (command, shown.output)
        if form == "json":
            assert all(tuple(row) == columns for row in json.loads(shown.stdout))
        else:
            assert shown.stdout.splitlines()[0].split() == list(columns)


@pytest.mark.parametrize("name", ["a/b", "ü", "two words", "100%", "?x=1#y", "../..", "-", "a&b"])
def test_a_virtual_host_and_a_queue_may_be_called_anything(broker, name):
    uri = f"http://127.0.0.1:{broker.ports['http']}"

    def run(*arguments):
        finished = in_process(uri, "-f", "json", "-p", name, *arguments)
        assert finished.exit_code == 0, (arguments, finished.output)
        return finished.stdout

    run("add_vhost", "--", name)
    run("create_queue", "--", name)
    run("set_policy", "--", name, ".*", '{"max-length": 5}')
    rows = json.loads(run("list_queues", "name", "policy"))
    run("purge_queue", "--", name)
    run("clear_policy", "--", name)
    run("delete_queue", "--", name)
    run("delete_vhost", "--", name)

    assert rows == [{"name": name, "policy": name}]


def test_the_control_socket_takes_no_password(broker, ctl):
    reached = ctl(
        "--control-unix-path", broker.control, "-f", "json", "list_vhosts", bare=True,
        GOMQ_CTL_PASSWORD="wrong",
    )
    missing = ctl("--control-unix-path", broker.control + "x", "list_vhosts", bare=True)

    assert {"name": "/"} in data(reached)
    assert missing.returncode == 2 and "no control socket at" in missing.stderr


def test_a_password_is_hashed_without_a_broker(ctl):
    away = "http://127.0.0.1:1"

    told, quiet, piped = (
        ctl("hash_password", "a-Secret", uri=away), ctl("-q", "hash_password", "a-Secret", uri=away),
        ctl(
            "-q", "hash_password", given="a-Secret\n", uri=away),
    )

    assert done(told).startswith("password_hash: ")
    assert all(salted_hash.verify("a-Secret", done(finished).strip()) for finished in (quiet, piped))


@pytest.mark.parametrize("words, text", [
    (("hash_password", "a-Secret"), "password_hash: "),
    (("completion", "bash"), "complete"),
    (("fsck", "{folder}"), "all sound"),
    (("definitions", "{folder}"), '"vhosts"'),
    (("recover_users", "{folder}", "rescue", "a-Secret"), "can be read"),
])
def test_commands_that_need_no_broker_ask_for_no_socket(ctl, tmp_path, words, text):
    """GOMQ_CONTROL_UNIX_PATH, which the broker reads too, names a socket that is gone with it."""
    with BrokerProcess(tmp_path / "data"):
        pass

    finished = ctl(
        *(word.format(folder=tmp_path / "data") for word in words), bare=True,
        GOMQ_CONTROL_UNIX_PATH=str(tmp_path / "gone.sock"))

    assert "no control socket" not in finished.stderr and text in finished.stdout + finished.stderr


IMPOSTOR = """
import os, socket, sys
listening = socket.socket(socket.AF_UNIX)
os.setuid(65534)
listening.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
listening.listen()
print("listening", flush=True)
client = listening.accept()[0]
print(client.recv(1000), flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to be another user for a while")
@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_whoever_listens_in_a_folder_of_everybody_is_sent_nothing(ctl, mode):
    """As /tmp is: another user was there before the broker."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, mode)
        path = f"{folder}/ctl.sock"
        with subprocess.Popen(
            [sys.executable, "-c", IMPOSTOR, path], stdout=subprocess.PIPE, text=True
        ) as impostor:
            assert impostor.stdout.readline() == "listening\n"

            finished = ctl("--control-unix-path", path, "add_user", "joe", "t0pSecretPassword", bare=True)

            received = impostor.stdout.read()
    assert finished.returncode == 2
    assert "'nobody' (process " in finished.stderr and "nothing was sent to it" in finished.stderr
    assert received == "b''\n"


def test_the_node_is_told_alone_in_its_cluster(ctl):
    told = data(ctl("-f", "json", "cluster_status"))

    assert len(told["Nodes"]) == 1 and told["Running nodes"] == told["Nodes"] and told["Alarms"] == []


def test_commands_that_do_nothing_here_say_so(broker, ctl):
    for command in ("stop_app", "start_app"):
        finished = ctl(command)
        assert finished.returncode == 0 and "does nothing" in finished.stderr
    done(ctl("gc_collect"))
    assert broker.is_running


def test_unknown_columns_are_wrong_usage_and_an_answer_names_the_columns_there_are(ctl):
    unknown = ctl("list_vhosts", "name", "nmae", "message_stats.nmae")

    assert unknown.returncode == 2 and unknown.stdout == ""
    assert "no such column: nmae, message_stats.nmae; there are cluster_state, default_queue_type" in (
        unknown.stderr
    )


def test_columns_that_nothing_has_now_are_empty(ctl):
    columns = "name", "policy", "arguments.x-max-length"
    done(ctl("create_queue", "plain"))

    listed = data(ctl("-f", "json", "list_queues", *columns))

    assert {**dict.fromkeys(columns), "name": "plain"} in listed
    done(ctl("delete_queue", "plain"))


def test_rabbitmqctls_names_of_columns_are_known(ctl):
    done(ctl("create_queue", "bound"))

    listed = data(ctl("-f", "json", "list_bindings", "source_name", "destination_name", "destination_kind"))

    assert {"source_name": "", "destination_name": "bound", "destination_kind": "queue"} in listed
    done(ctl("delete_queue", "bound"))


def test_an_empty_list_is_told(ctl):
    assert "Listing shovels ... none" in ctl("list_shovels").stderr
    assert ctl("list_shovels", "-q").stderr == "" == ctl("list_shovels", "-f", "json").stderr
    assert "none" not in ctl("list_vhosts").stderr


def test_what_is_no_management_api_is_told(ctl):
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(
            target=_answer_once, args=(server, b"HTTP/1.0 200 OK\r\n\r\n<html>hello</html>"), daemon=True
        ).start()
        finished = ctl("list_queues", uri=f"http://127.0.0.1:{server.getsockname()[1]}")

    assert (
        finished.returncode == 2 and "is no management API" in finished.stderr
        and "Traceback" not in finished.stderr
    )


def _answer_once(server, answer):
    peer, _ = server.accept()
    with peer:
        peer.recv(65536)
        peer.sendall(answer)


def test_a_reader_that_has_seen_enough_is_no_error(broker, ctl):
    """A list longer than a pipe holds, and a reader that leaves."""
    queues = [{"name": f"queue {number}" * 9, "vhost": "long", "durable": False} for number in range(1500)]
    definitions = {"vhosts": [{"name": "long"}], "queues": queues}
    done(ctl("import_definitions", "-", given=json.dumps(definitions)))
    process = subprocess.Popen(
        ctl.command("-p", "long", "list_queues"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(), cwd=ROOT,
    )

    process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()

    process.stderr.close()
    assert process.wait(in_time(60)) in (0, 1) and "Traceback" not in said and "rror" not in said
    done(ctl("delete_vhost", "long"))


def test_ctrl_c_leaves_without_a_traceback(ctl):
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = subprocess.Popen(
            ctl.command("list_queues", uri=f"http://127.0.0.1:{server.getsockname()[1]}"),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(), cwd=ROOT)
        peer, _ = server.accept()
        assert peer.recv(65536).startswith(b"GET ")
        # In the very moment before a read begins a signal is seen after it only:
        # Python's way, and a user would press again.
        state = Path(f"/proc/{process.pid}/stat")
        wait_until(
            lambda: state.read_text().rpartition(")")[2].split()[0] == "S",
            what="the command to wait for its answer",
        )
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=in_time(60))[1]
        peer.close()

    assert process.returncode not in (0, None) and "Traceback" not in said


def test_definitions_of_a_stopped_broker_are_read_from_its_folder(tmp_path):
    with BrokerProcess(tmp_path / "data", http_port=0) as broker:
        uri = f"http://127.0.0.1:{broker.ports['http']}"
        for arguments in (
            ("create_queue", "q"), ("create_queue", "s", "--stream-queue"), ("add_user", "ann", "secret"),
            ("add_vhost", "v"),
        ):
            assert in_process(uri, *arguments).exit_code == 0
        running = json.loads(in_process(uri, "export_definitions").stdout)
        held = in_process(uri, "definitions", str(tmp_path / "data"))

    offline = in_process(uri, "definitions", str(tmp_path / "data"))

    assert held.exit_code == 2 and "in use by PID" in held.stderr
    assert running.pop("original_cluster_name")  # a name that nobody has set is the running broker's alone
    assert offline.exit_code == 0 and json.loads(offline.stdout) == running
