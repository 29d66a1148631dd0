"""docs/migration.md, with a RabbitMQ that is in use: its commands are run as they stand there, while
publishers publish and consumers consume, and every message that was confirmed is handled.
"""
import re
import shlex
import signal
import subprocess
import sys
import threading

import pika
import pika.exceptions
import pytest

from tests.ctl.running import environment, in_process
from tests.support.broker_process import ROOT
from tests.support.federated import start_gomq
from tests.support.ports import reserve
from tests.support.shovels import publish
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.needs_program("rabbitmq-server")
PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"gomq-py-ctl (migrate .*)$", PAGE, re.MULTILINE)
DRY_RUN, MOVE, FINISH, BACK = COMMANDS
VHOST = "shop / eu"
# name: (arguments, what waits there)
QUEUES = {"jobs": ({}, 3000), "orders": ({"x-queue-type": "quorum"}, 300)}
PREFETCH = 50
PASSWORD = "admin's password"
# A line of the table, while the shovel works.
IN_TABLE = rf"{VHOST} +orders .*(running|starting)"
# What a shovel has on its way at most: that may come twice when a broker is killed.
SHOVELLED = 1000


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    """The broker that is moved to; it keeps its ports."""
    peer = start_gomq(tmp_path_factory.mktemp("new") / "data", "new", port=reserve(), http_port=reserve())
    yield peer
    peer.process.stop()


def has_no_queues(rabbitmq):
    """Delete those of other tests; some may go by themselves meanwhile. Whether there were none."""
    queues = rabbitmq.call("GET", "queues")
    for queue in queues:
        rabbitmq.request("DELETE", "queues", queue["vhost"], queue["name"])
    return not queues


@pytest.fixture
def old(shared_rabbitmq):
    """The RabbitMQ, with queues, a stream, and the user of the page."""
    rabbitmq = shared_rabbitmq
    rabbitmq.call("PUT", "users", "admin", password=PASSWORD, tags="administrator")
    wait_until(lambda: has_no_queues(rabbitmq), TIMEOUT_S)
    rabbitmq.make_vhost(VHOST)
    rabbitmq.call("PUT", "permissions", VHOST, "admin", configure=".*", write=".*", read=".*")
    channel = rabbitmq.channel(VHOST)
    channel.exchange_declare("work", "topic", durable=True)
    for name, (arguments, _) in QUEUES.items():
        channel.queue_declare(name, durable=True, arguments=arguments)
        channel.queue_bind(name, "work", f"{name}.#")
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    yield rabbitmq
    rabbitmq.hang_up()
    rabbitmq.call("DELETE", "vhosts", VHOST)
    rabbitmq.call("DELETE", "users", "admin")


def arguments_of(command, old):
    """The page's command, with the addresses of this test's brokers."""
    at = {"http://old:15672": old.http_url, "amqp://old:5672": f"amqp://127.0.0.1:{old.process.port}"}
    return [at.get(part, part) for part in shlex.split(command)]


@pytest.fixture
def run(old, new, tmp_path):
    """A command of the page, where somebody has written the password down."""
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    return lambda command, *more: in_process(
        new.http_url, *arguments_of(command, old), "--from-password-file", str(file), *more)


@pytest.fixture
def migrate(run):
    """Runs a command of the page that does what it should; what it prints."""
    def done(command, *more, code=0):
        finished = run(command, *more)
        assert finished.exit_code == code, finished.output
        assert "admin's" not in finished.output and "admin%27s" not in finished.output
        return finished.output

    return done


class Client:
    """Works in a thread at one broker, until it is told to go to another one or to stop."""

    def __init__(self, peer):
        self._peer = peer
        self._is_over = False
        self.failure = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def move(self, peer):
        self._peer = peer

    def stop(self):
        self._is_over = True
        self._thread.join(TIMEOUT_S)
        if self.failure is not None:
            raise self.failure

    def _run(self):
        try:
            while not self._is_over:
                peer = self._peer
                connection = pika.BlockingConnection(pika.URLParameters(peer.uri(VHOST)))
                self._work(connection.channel(), lambda peer=peer: self._is_over or self._peer is not peer)
                connection.close()
        except Exception as error:
            self.failure = error

    def _work(self, channel, is_to_leave):
        raise NotImplementedError


class Publisher(Client):
    """Publishes numbers from ``first`` on to one queue after the other; ``confirmed`` has those it may
    forget.
    """

    def __init__(self, peer, first):
        self.confirmed = []
        self._next = first
        super().__init__(peer)

    def _work(self, channel, is_to_leave):
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        while not is_to_leave():
            key = list(QUEUES)[self._next % 2] + ".new"
            channel.basic_publish("work", key, b"%d" % self._next, persistent, mandatory=True)
            self.confirmed.append(self._next)
            self._next += 1


class Consumer(Client):
    """Handles what comes, and acknowledges ten at a time: it leaves some unacknowledged when it moves."""

    def __init__(self, peer, queue):
        self.handled = []
        self._queue = queue
        super().__init__(peer)

    def _work(self, channel, is_to_leave):
        channel.basic_qos(prefetch_count=PREFETCH)
        taken = 0
        for method, _, body in channel.consume(self._queue, inactivity_timeout=0.01):
            if method is not None:
                self.handled.append(int(body))
                taken += 1
                if taken % 10 == 0:
                    channel.basic_ack(method.delivery_tag, multiple=True)
            if is_to_leave():
                return


class Business:
    """Publishers and consumers of all queues, and what is known of their messages."""

    def __init__(self, peer):
        self.filled = []
        for name, (arguments, count) in QUEUES.items():
            numbers = range(len(self.filled), len(self.filled) + count)
            publish(peer, VHOST, numbers, name, arguments=arguments)
            self.filled.extend(numbers)
        self.publishers = [Publisher(peer, 1_000_000), Publisher(peer, 2_000_000)]
        self.consumers = [Consumer(peer, name) for name in QUEUES]

    def publish_some(self):
        """Return when each publisher has published more."""
        for one in self.publishers:
            count = len(one.confirmed)
            wait_until(lambda one=one, count=count: one.failure or len(one.confirmed) >= count + 20)

    def consume_some(self):
        for one in self.consumers:
            count = len(one.handled)
            wait_until(lambda one=one, count=count: one.failure or len(one.handled) >= count + 20)

    def move_publishers(self, peer):
        for one in self.publishers:
            one.move(peer)
        self.publish_some()

    def move_consumers(self, peer):
        for one in self.consumers:
            one.move(peer)
        self.consume_some()

    def end(self):
        """(confirmed numbers, handled ones) once nothing that was confirmed is left to be handled."""
        for one in self.publishers:
            one.stop()
        confirmed = {*self.filled, *(number for one in self.publishers for number in one.confirmed)}

        def is_done():
            return any(one.failure for one in self.consumers) or confirmed <= {
                number for one in self.consumers for number in one.handled}
        try:
            wait_until(is_done, what=lambda: f"{len(confirmed)} were confirmed, not handled: " + str(
                sorted(confirmed - {number for one in self.consumers for number in one.handled})[:20]))
        finally:
            for one in self.consumers:
                one.stop()
        return confirmed, [number for one in self.consumers for number in one.handled]


@pytest.fixture
def at_work(old):
    """Begins to work at a broker; what is left of it ends with the test."""
    begun = []

    def begin(peer):
        begun.append(Business(peer))
        return begun[-1]

    yield begin
    for business in begun:
        for one in (*business.publishers, *business.consumers):
            one.stop()


def waiting(peer, queue):
    return peer.ready(VHOST, queue)


def test_a_rabbitmq_in_use_is_moved_by_what_the_page_says(old, new, at_work, migrate, run):
    """The new broker is killed in between; the duplicates are no more than what was on its way."""
    new.request("DELETE", "vhosts", VHOST)  # of the other test, where that came first
    business = at_work(old)

    shown = migrate(DRY_RUN)
    assert "jobs" in shown and "log" not in [line.split()[1:2] for line in shown.splitlines()]
    assert VHOST not in [vhost["name"] for vhost in new.call("GET", "vhosts")]

    with subprocess.Popen(
        [sys.executable, "-m", "gomq_py.ctl", "--uri", new.http_url, *arguments_of(MOVE, old)], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        env=environment(GOMQ_CTL_FROM_PASSWORD=PASSWORD),
    ) as table:
        lines = [next(line for line in table.stdout if re.search(IN_TABLE, line)) for _ in range(2)]
        table.send_signal(signal.SIGINT)
        assert "Traceback" not in table.stderr.read()
    assert all(lines)
    wait_until(lambda: waiting(new, "jobs") > 0)
    new.process.kill()
    new.process.start()
    business.publish_some()
    business.move_publishers(new)
    business.move_consumers(new)
    confirmed, handled = business.end()

    assert set(handled) >= confirmed
    duplicates = len(handled) - len(set(handled))
    assert duplicates <= len(QUEUES) * (SHOVELLED + PREFETCH), f"{duplicates} duplicates of {len(handled)}"
    wait_until(lambda: waiting(old, "jobs") == waiting(old, "orders") == 0)
    for one in business.consumers:  # what they had not acknowledged when they left
        assert waiting(new, one._queue) < PREFETCH
    wait_until(lambda: run(FINISH).exit_code == 0)
    assert new.call("GET", "parameters", "shovel", VHOST) == []
    assert new.call("GET", "queues", VHOST, "orders")["arguments"] == {"x-queue-type": "quorum"}


def test_it_is_rolled_back_while_clients_go_on(old, new, at_work, migrate, run):
    new.call("PUT", "vhosts", VHOST)
    business = at_work(old)
    migrate(MOVE, "--once")
    business.move_publishers(new)
    business.move_consumers(new)

    shown = migrate(BACK, "--once")
    business.publish_some()
    business.move_publishers(old)
    business.move_consumers(old)
    confirmed, handled = business.end()

    assert "jobs" in shown
    assert set(handled) >= confirmed
    # those that consumers had not acknowledged when they left, twice
    duplicates = len(handled) - len(set(handled))
    assert duplicates <= 2 * len(QUEUES) * PREFETCH, f"{duplicates} duplicates of {len(handled)}"
    wait_until(lambda: waiting(new, "jobs") == waiting(new, "orders") == 0)
    wait_until(lambda: run(FINISH).exit_code == 0)
