"""``gomq-py-ctl migrate``: a broker that is in use moves over, and back, and nothing confirmed is lost.

From another gomq-py here, as from a RabbitMQ: the APIs are the same.
"""
import json
from functools import partial

import pika
import pytest
import requests

from gomq_py import Broker
from tests.ctl.running import Runner, data, done, in_process
from tests.support import certificates
from tests.support.waiting import in_time, wait_until

MESSAGES = 500
CONNECTIONS = []


@pytest.fixture
def brokers(tmp_path):
    """The old one, with a port for TLS, and the new one, which knows its authority by a file."""
    files = certificates.make(tmp_path / "old")
    with (
        Broker(http_port=0, sync=False, amqps_port=0, tls_cert=str(files.certificate),
               tls_key=str(files.key)) as old,
        Broker(http_port=0, sync=False, links_tls_folder=str(tmp_path)) as new,
    ):
        yield old, new
        # or the brokers wait for clients to answer their farewell
        while CONNECTIONS:
            CONNECTIONS.pop().close()


@pytest.fixture
def migrate(brokers):
    """Runs the command; without the address of the old broker, which it knows."""
    old, new = brokers
    runner = Runner(new.http_url)
    where = "amqp://{}:{}".format(*old.addresses["amqp"])
    return lambda *options: runner(
        "-f", "json", "migrate", "--from", old.http_url, "--amqp", where, *options)


class Client:
    """A publisher with confirms and a consumer, at either broker."""

    def __init__(self, broker):
        self.connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
        CONNECTIONS.append(self.connection)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def publish(self, numbers):
        for number in numbers:
            self.channel.basic_publish("", "jobs", b"%d" % number, pika.BasicProperties(delivery_mode=2))

    def take(self, count):
        taken = []
        for method, _, body in self.channel.consume("jobs", inactivity_timeout=in_time(30)):
            assert method is not None, taken
            self.channel.basic_ack(method.delivery_tag)
            taken.append(int(body))
            if len(taken) == count:
                break
        self.channel.cancel()
        return taken

    def waiting(self):
        return self.channel.queue_declare("jobs", passive=True).method.message_count


def make_queue(broker):
    client = Client(broker)
    client.channel.queue_declare("jobs", durable=True)
    return client


def rows_of(finished):
    """The rows of the last table."""
    return {row["queue"]: row for row in json.loads(finished.stdout.splitlines()[-1])}


def test_broker_does_not_migrate_from_itself(brokers):
    _, new = brokers
    make_queue(new)

    refused = Runner(new.http_url)(
        "migrate", "--from", new.http_url, "--amqp", "amqp://{}:{}".format(*new.addresses["amqp"]), "--once")

    assert refused.returncode == 1 and "the broker of --from is this broker" in refused.stderr
    assert data(Runner(new.http_url)("-f", "json", "list_shovels")) == []


def test_publishers_move_then_consumers_and_every_message_is_handled(brokers, migrate):
    old, new = brokers
    there = make_queue(old)
    there.publish(range(MESSAGES))
    handled = there.take(20)

    done(migrate("--once"))
    here = Client(new)
    there.publish(range(MESSAGES, MESSAGES + 100))  # publishers are still there
    here.publish(range(MESSAGES + 100, MESSAGES + 200))  # and move
    handled += here.take(MESSAGES + 200 - 20)  # so do consumers

    assert set(handled) == set(range(MESSAGES + 200))
    assert len(handled) == MESSAGES + 200, "duplicates, though nothing failed"
    wait_until(lambda: there.waiting() == 0)
    wait_until(lambda: migrate("--finish").returncode == 0)
    assert data(Runner(new.http_url)("-f", "json", "list_parameters")) == []


def test_it_goes_back_until_the_old_broker_is_given_up(brokers, migrate):
    old, new = brokers
    there = make_queue(old)
    there.publish(range(MESSAGES))
    done(migrate("--once"))
    here = Client(new)
    wait_until(lambda: here.waiting() == MESSAGES)
    here.publish([MESSAGES])

    row = rows_of(migrate("--back", "--once"))["jobs"]
    assert row["vhost"] == "/"
    assert sorted(there.take(MESSAGES + 1)) == list(range(MESSAGES + 1))


def test_shovels_stay_while_something_is_left_and_no_password_is_told(brokers, migrate):
    old, new = brokers
    there = make_queue(old)
    there.publish([1])
    done(migrate("--once"))
    Runner(new.http_url)("set_policy", "full", "jobs", '{"max-length": 0, "overflow": "reject-publish"}')
    there.publish([2])

    wait_until(lambda: there.waiting() == 0)
    finished = migrate("--finish")
    assert finished.returncode == 1 and "not empty yet" in finished.stderr
    shown = migrate("--once", "--no-import")
    assert "guest:guest" not in finished.stdout + finished.stderr + shown.stdout + shown.stderr


def publish(broker, queue, count, **declared):
    client = Client(broker)
    client.channel.queue_declare(queue, **declared)
    for _ in range(count):
        client.channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2))
    wait_until(lambda: counted(broker, queue) == count)
    return client


def counted(broker, queue):
    """The messages of a queue as lists show them, which count now and then."""
    return requests.get(
        f"{broker.http_url}/api/queues/%2F/{queue}", auth=("guest", "guest"), timeout=in_time(30)
    ).json().get("messages")


def test_what_is_not_moved_is_named_by_the_table_and_at_the_end(brokers, migrate):
    old, _ = brokers
    publish(old, "log", 3, durable=True, arguments={"x-queue-type": "stream"})
    publish(old, "passing", 2, auto_delete=True)

    rows = rows_of(migrate("--once"))
    assert {name: row["state"] for name, row in rows.items()} == {"log": "not moved", "passing": "not moved"}
    assert rows["log"]["error"] == "a stream is read, not emptied" and rows["log"]["there"] == 3

    finished = migrate("--finish")
    assert rows_of(finished).keys() == {"log", "passing"}
    assert "nothing is left" not in finished.stdout + finished.stderr


def test_a_queue_that_is_only_here_is_made_there_on_the_way_back(brokers, migrate):
    old, new = brokers
    make_queue(old)
    done(migrate("--once"))
    publish(new, "late", 1, durable=True, arguments={"x-max-length": 10})
    publish(new, "news", 1, durable=True, arguments={"x-queue-type": "stream"})

    left = migrate("--back", "--finish")
    assert left.returncode == 1 and rows_of(left)["late"]["state"] == "only here"
    planned = rows_of(migrate("--back", "--dry-run"))
    assert planned["late"]["here"] == 1 and planned["late"]["state"] == "only here"
    assert planned["news"]["state"] == "not moved"

    done(migrate("--back", "--once"))
    wait_until(lambda: counted(old, "late") == 1)
    wait_until(lambda: migrate("--finish").returncode == 0)
    made, = [one for one in data(Runner(old.http_url)("-f", "json", "list_queues", "name", "arguments"))
             if one["name"] == "late"]
    assert made["arguments"] == {"x-max-length": 10}


def names_of(command):
    """The names of a broker's parameters, without those of the move."""
    names = {one["name"] for one in data(command("-f", "json", "list_parameters"))}
    return {name for name in names if not name.startswith("migrate: ")}


def test_the_old_brokers_shovels_and_upstreams_run_here_from_the_end_on(brokers, migrate):
    """An import starts them at once; so a dry run says."""
    old, new = brokers
    there, here = Runner(old.http_url), Runner(new.http_url)
    client = publish(old, "jobs", 1, durable=True)
    value = {"src-uri": "amqp:///%2F", "dest-uri": "amqp:///%2F", "src-queue": "a", "dest-queue": "b"}
    done(there("set_parameter", "shovel", "mine", json.dumps(value)))
    done(there("set_parameter", "federation-upstream", "up", '{"uri": "amqp://127.0.0.1:1"}'))
    done(there("set_policy", "copies", "^f\\.", '{"federation-upstream": "up"}'))

    would = data(here("-f", "json", "import", "--from", old.http_url, "--dry-run"))
    assert {row["name"] for row in would if "would run at once" in row["note"]} == {"mine", "up", "copies"}
    done(migrate("--once"))
    assert names_of(here) == set()

    client.channel.queue_purge("jobs")
    wait_until(lambda: migrate("--finish").returncode == 0)
    assert names_of(here) == {"mine", "up"}


@pytest.mark.parametrize("uri", [
    "http://h", "amqp://", "amqp://h/v", "amqp://u:hush@h/v?heartbeat=1", "amqp://u:hush@[h",
    "amqp://u:hush@h:x", "amqp://u:hush@h#x",
])
def test_what_is_no_address_of_a_broker_is_refused(uri):
    finished = in_process("http://127.0.0.1:1", "migrate", "--from", "http://127.0.0.1:1", "--amqp", uri)

    assert finished.exit_code == 2 and "--amqp" in finished.output and "hush" not in finished.output


def test_query_of_the_uri_counts_for_every_queue_and_its_secrets_are_told_to_nobody(brokers):
    """Over TLS, by the authority that the query names: without it the old broker is not trusted."""
    old, new = brokers
    there = make_queue(old)
    there.publish(range(10))
    query = "cacertfile=old%2Fauthority.pem&heartbeat=20&auth_mechanism=PLAIN"
    command = Runner(new.http_url)
    command = partial(command, "-f", "json", "migrate", "--from", old.http_url, "--once", "--amqp")
    place = f"amqps://guest:guest@127.0.0.1:{old.addresses['amqps'][1]}"

    refused = command(f"{place}?cacertfile=old/authority.pem&heartbit=5")
    moved = command(f"{place}/?{query}")
    here = Client(new)
    wait_until(lambda: here.waiting() == 10)
    (entry,) = requests.get(
        f"{new.http_url}/api/definitions", auth=("guest", "guest"), timeout=in_time(30)).json()["parameters"]
    back = command(f"{place}?{query}", "--back", "--no-import")
    wait_until(lambda: there.waiting() == 10)

    assert entry["value"]["src-uri"] == f"{place}/%2F?{query}"
    assert refused.returncode == 1 and "src-uri: 'heartbit' is not a query key" in refused.stderr
    shown = done(Runner(new.http_url)("shovel_status"))
    for finished in (refused, moved, back):
        shown += finished.stdout + finished.stderr
    assert "guest:guest" not in shown and "auth_mechanism=PLAIN" not in shown
    # the key's password is the only secret of a query
    told = command(f"{place}?certfile=none.pem&keyfile=none.pem&password=hush")
    told = told.stdout + told.stderr + done(Runner(new.http_url)("list_parameters"))
    assert "none.pem" in told and "hush" not in told
