"""The ways back of an operator whose data folder has lost a file: by the commands that the texts name."""
import os
import re
import shutil

import pika
import pytest

from gomq_py.ctl.offline import Definitions
from gomq_py.mqtt.model.session_kind import QOS2_STORE
from gomq_py.storage.disk.data_dir import queue_id
from gomq_py.storage.message import Message
from tests.ctl.running import Runner, commands, data, done, in_process
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.node import Node
from tests.support.reading import get
from tests.support.unflushed import Unflushed

COUNT = 3
PERSISTENT = pika.BasicProperties(delivery_mode=2)
EXPIRING = pika.BasicProperties(delivery_mode=2, expiration="1")
NAMED = re.compile(r"gomq-py-ctl (?:-\S+ )*([a-z]+_[a-z_]+)")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A data folder with messages of a queue, an MQTT session and a delayed exchange."""
    with BrokerProcess(tmp_path_factory.mktemp("made") / "data", mqtt_port=0) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("jobs", durable=True)
            channel.exchange_declare(
                "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
            channel.queue_bind("jobs", "later", "delayed")
            keep_session(broker.ports["mqtt"])
            properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 3_600_000})
            for exchange, key in (("", "jobs"), ("later", "delayed"), ("amq.topic", "session")):
                for _ in range(COUNT):
                    channel.basic_publish(exchange, key, key.encode(), properties)
    return broker.data_dir


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "data")


def keep_session(port):
    """Subscribe a client to ``session`` that stays away."""
    from paho.mqtt.client import CallbackAPIVersion, Client
    client = Client(CallbackAPIVersion.VERSION2, client_id="away", clean_session=False)
    client.username_pw_set("guest", "guest")
    client.on_connect = lambda *_: client.subscribe("session", qos=1)
    client.on_subscribe = lambda *_: client.disconnect()
    client.connect("127.0.0.1", port)
    client.loop_forever()


def test_lost_users_and_definitions_are_begun_anew_and_all_messages_come_back(folder):
    ctl = Runner("")
    (folder / "definitions").unlink()
    (folder / "users").write_bytes(b"")

    said = done(ctl("recover_users", str(folder), "rescue", given="secret\n", bare=True))
    assert said.strip() == f"the users of {folder} begin anew with the administrator rescue"
    said = done(ctl("recover_definitions", str(folder), bare=True))
    assert said.strip() == f"the definitions of {folder} begin anew with the virtual host /"
    Node(folder, Unflushed()).stop()
    identifiers = queue_id("/", QOS2_STORE)
    kept = sorted(name for name in os.listdir(folder / "set-aside") if not name.startswith(identifiers))
    for number, name in enumerate(kept):
        said = done(ctl("recover_queue", str(folder), name, f"found-{number}", bare=True))
        assert said.strip() == f"queue found-{number} in vhost / has the messages of {name}"

    node = Node(folder, Unflushed())
    user, = node.broker.users
    assert user.name == "rescue" and node.broker.users.matching_hash("rescue", "secret")
    bodies = set()
    for queue in node.vhost.queues.values():
        assert queue.ready_count == COUNT
        message = Message()
        assert get(queue, message)
        bodies.add(bytes(message.get_body()))
    assert bodies == {b"jobs", b"delayed", b"session"}
    node.stop()


def test_messages_in_set_aside_have_their_queues_name_and_go_to_a_queue_of_a_running_broker(folder):
    ctl = Runner("")
    (folder / "definitions").unlink()
    done(ctl("recover_definitions", str(folder), bare=True))
    with BrokerProcess(folder, http_port=0) as broker:
        ctl = Runner(f"http://127.0.0.1:{broker.ports['http']}")
        rows = data(ctl("-f", "json", "list_set_aside", str(folder)))
        row, = [row for row in rows if row["queue"] == "jobs"]
        done(ctl("create_queue", "found"))
        done(ctl("create_queue", "short", "--max-length", "2"))
        done(ctl("create_queue", "small"))
        done(ctl("set_policy", "small", "^small$", '{"max-length-bytes": 1}', "--apply-to", "queues"))
        for queue, limit in (("short", "max-length 2"), ("small", "max-length-bytes 1")):
            refused = ctl("recover", str(folder / "set-aside" / row["folder"]), "--to", queue)
            assert refused.returncode == 1 and f"queue {queue} has {limit}, and so room for" in refused.stderr

        finished = ctl("recover", str(folder / "set-aside" / row["folder"]), "--to", "found")

        assert finished.stderr.startswith(f"{COUNT} of {COUNT} messages of "), finished.stderr
        found = data(ctl("-f", "json", "get", "found", "--count", str(COUNT + 1)))
        assert [one["payload"] for one in found] == ["jobs"] * COUNT
        assert data(ctl("-f", "json", "list_shovels")) == []
    assert row["vhost"] == "/" and row["messages"] == COUNT
    assert {row["queue"] for row in rows} == {"jobs", "unknown"}
    assert (folder / "set-aside" / row["folder"]).is_dir()


def test_recover_ends_without_messages_that_are_damaged_or_have_expired(tmp_path):
    with BrokerProcess(tmp_path / "data", http_port=0) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for queue in ("damaged", "expired", "found"):
                channel.queue_declare(queue, durable=True)
            for number in range(COUNT):
                channel.basic_publish("", "damaged", b"number %d" % number, PERSISTENT)
            for properties in (PERSISTENT, EXPIRING):
                channel.basic_publish("", "expired", b"", properties)
        broker.stop()
        sources = {}
        for queue in ("damaged", "expired"):
            found, = (tmp_path / "data" / "queues").glob(f"{queue_id('/', queue)}.*")
            sources[queue] = shutil.copytree(found, tmp_path / f"{found.name}.0")
        segment, = sources["damaged"].glob("msgs.*")
        octets = segment.read_bytes()
        segment.write_bytes(octets.replace(b"number 1", b"number 7"))
        broker.start()
        ctl = Runner(f"http://127.0.0.1:{broker.ports['http']}")

        for queue, total in (("damaged", COUNT), ("expired", 2)):
            finished = ctl("recover", str(sources[queue]), "--to", "found")
            assert finished.returncode == 1
            told, why = finished.stderr.splitlines()
            assert told.startswith(f"{total - 1} of {total} messages of "), told
            assert why.endswith("the other messages have expired or are damaged")
        assert data(ctl("-f", "json", "list_shovels")) == []


def test_the_definitions_that_were_set_aside_name_queues_too(folder):
    kept = folder / "set-aside" / f"{queue_id('/', 'amq.delayed-later')}.0123456789abcdef.0"
    kept.mkdir(parents=True)
    (folder / "definitions").rename(folder / "set-aside" / "definitions.0")
    done(Runner("")("recover_definitions", str(folder), bare=True))

    row, = data(Runner("")("-f", "json", "list_set_aside", str(folder), bare=True))

    assert row == {"folder": kept.name, "vhost": "/", "queue": "amq.delayed-later", "messages": 0}


def test_what_the_commands_refuse_is_one_line_that_says_why(folder):
    for arguments, why in (
        (("recover_users", str(folder), "rescue", "secret"), "can be read: make the user while the broker"),
        (("recover_definitions", str(folder)), "definitions can be read: it is left as it is"),
        (("recover_queue", str(folder), "x", "jobs"), "set-aside/x is no folder"),
        (("recover_definitions", f"{folder}.not"), "is not a folder"),
    ):
        refused = in_process("", *arguments)

        assert refused.exit_code == 2
        line, = refused.output.splitlines()
        assert line.startswith("gomq-py-ctl: ") and why in line
    assert [queue["name"] for queue in Definitions(folder).exported()["queues"]].count("jobs") == 1


def test_commands_that_texts_name_are_there():
    sources = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "gomq_py").rglob("*.py"), *ROOT.glob("*.md")]

    named = {name for path in sources for name in NAMED.findall(path.read_text(encoding="utf-8"))}

    assert "recover_users" in named and not named - commands.keys()
