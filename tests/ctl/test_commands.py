"""``gomq-py-ctl`` against a broker: every kind of command, what it prints, its exit codes."""
import pika
import pytest

from tests.ctl.running import Runner, data, done
from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("ctl") / "data", http_port=0) as process:
        yield process


@pytest.fixture(scope="module")
def ctl(broker):
    """Runs one command; returns the finished process."""
    return Runner(f"http://127.0.0.1:{broker.ports['http']}")


def test_queues_are_made_with_arguments_and_listed(ctl):
    done(ctl("create_queue", "jobs", "--max-length", "5", "--message-ttl", "60000", "--reject-on-overflow"))

    rows = data(ctl("-f", "json", "list_queues", "name", "arguments"))

    assert {"name": "jobs", "arguments": {"x-max-length": 5, "x-message-ttl": 60000, "x-overflow": "reject-publish"}} in rows
    assert "jobs\t0" in done(ctl("-f", "text", "list_queues"))
    assert done(ctl("-f", "text", "-q", "list_queues", "name")).splitlines().count("jobs") == 1
    done(ctl("delete_queue", "jobs", "--if-empty"))
    assert "jobs" not in done(ctl("list_queues"))


def test_users_permissions_and_tags(ctl):
    done(ctl("add_user", "joe", given="secret\n"))
    done(ctl("set_user_tags", "joe", "monitoring", "policymaker"))
    done(ctl("set_permissions", "joe", "^joe", ".*", ""))

    assert {"name": "joe", "tags": ["monitoring", "policymaker"]} in data(ctl("-f", "json", "list_users"))
    assert {"user": "joe", "configure": "^joe", "write": ".*", "read": ""} in data(ctl("-f", "json", "list_permissions"))
    assert done(ctl("-u", "joe", "list_queues", GOMQ_CTL_PASSWORD="secret")) is not None
    done(ctl("change_password", "joe", given="other\n"))
    assert ctl("-u", "joe", "list_queues", GOMQ_CTL_PASSWORD="secret").returncode == 1
    done(ctl("clear_permissions", "joe"))
    assert data(ctl("-f", "json", "list_user_permissions", "joe")) == []
    done(ctl("delete_user", "joe"))


def test_exchanges_bindings_policies_and_limits(ctl):
    done(ctl("add_vhost", "v"))
    done(ctl("-p", "v", "create_exchange", "topic", "x", "--alternate-exchange", "amq.fanout"))
    done(ctl("-p", "v", "set_policy", "p", "^q", '{"max-length": 3}', "--priority", "2", "--apply-to", "queues"))
    done(ctl("-p", "v", "set_operator_policy", "o", "^q", '{"expires": 1000}'))
    done(ctl("-p", "v", "set_vhost_limits", '{"max-queues": 7}'))

    assert {"name": "x", "type": "topic"} in data(ctl("-p", "v", "-f", "json", "list_exchanges"))
    assert data(ctl("-p", "v", "-f", "json", "list_policies"))[0]["definition"] == {"max-length": 3}
    assert data(ctl("-p", "v", "-f", "json", "list_operator_policies"))[0]["name"] == "o"
    done(ctl("-p", "v", "clear_policy", "p"))
    done(ctl("-p", "v", "clear_operator_policy", "o"))
    done(ctl("-p", "v", "delete_exchange", "x", "--if-unused"))
    assert data(ctl("-p", "v", "-f", "json", "list_bindings")) == []
    done(ctl("delete_vhost", "v"))


def test_messages_are_looked_at_moved_and_replayed(broker, ctl):
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    for queue in ("from", "to", "dead"):
        channel.queue_declare(queue, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"} if queue == "from" else None)
    channel.confirm_delivery()
    for number in range(3):
        channel.basic_publish("", "from", b"%d" % number)

    seen = data(ctl("-f", "json", "peek", "from", "--offset", "1", "--count", "1"))
    dry = data(ctl("-f", "json", "move", "from", "to", "--count", "2", "--dry-run"))
    moved = data(ctl("-f", "json", "move", "from", "to", "--count", "2"))
    method, _, _ = channel.basic_get("from")
    channel.basic_reject(method.delivery_tag, requeue=False)
    channel.queue_declare("dead", passive=True)
    replayed = data(ctl("-f", "json", "replay", "dead", "--clean"))

    assert [one["payload"] for one in seen] == ["1"]
    assert (dry["moved"], moved["moved"], moved["dry_run"]) == (2, 2, False)
    assert replayed["targets"] == {"queue 'from'": 1}
    assert [channel.basic_get(queue, auto_ack=True)[2] for queue in ("to", "to", "from")] == [b"0", b"1", b"2"]
    connection.close()


def test_connections_are_listed_and_closed(broker, ctl):
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    channel = connection.channel()
    channel.queue_declare("watched", exclusive=True)
    channel.basic_consume("watched", lambda *_: None, consumer_tag="watcher")

    assert [row["consumer_tag"] for row in data(ctl("-f", "json", "list_consumers", "consumer_tag"))] == ["watcher"]
    assert data(ctl("-f", "json", "list_channels", "consumer_count")) == [{"consumer_count": 1}]
    done(ctl("close_all_connections", "enough"))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="enough"):
        connection.process_data_events(10)


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


def test_a_paused_queue_is_found_by_the_doctor(ctl):
    done(ctl("create_queue", "lazy"))
    done(ctl("pause_queue", "lazy"))

    rows = data(ctl("-f", "json", "doctor"))

    assert ("warning", "queue lazy") in {(row["level"], row["subject"]) for row in rows}
    assert rows[0]["subject"] == "broker" and rows[0]["level"] == "ok"
    done(ctl("resume_queue", "lazy"))
    done(ctl("delete_queue", "lazy"))


def test_status_tells_totals(ctl):
    assert "Queues: " in done(ctl("status"))


@pytest.mark.parametrize("arguments, code, text", [
    (("delete_queue", "nobody-made-this"), 1, "404"),
    (("create_queue",), 2, "Missing argument"),
    (("set_policy", "p", "^q", "no json"), 2, "is no JSON"),
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

    assert finished.returncode == 2 and "no broker answers at http://127.0.0.1:1" in finished.stderr and "hush" not in finished.stderr


def test_shells_get_their_completion(ctl):
    assert "_GOMQ_PY_CTL_COMPLETE" in done(ctl("completion", "bash"))


def test_every_command_has_help(ctl):
    listed = done(ctl("--help"))

    for command in ("list_queues", "list_bindings", "clear_permissions", "peek", "move", "replay", "fsck", "doctor", "import", "hash_password"):
        line = next(line for line in listed.splitlines() if line.split()[:1] == [command])
        assert len(line.split()) > 2, line
