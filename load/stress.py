"""``python -m load.stress``: a broker under random work that is killed again and again, and an account of
every message at the end.

From ``--seed`` come the topology, what publishers, consumers and an operator do, and when the broker gets
SIGKILL; threads and the disk make each run different all the same. Confirmed messages must be delivered or in
place; what was acked, and answered past, must not come back; what is delivered again must be marked; nothing
may be with two consumers at once; rejected messages are in their queue or among the dead letters. Exit code 1
on a breach.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ClosedError, Timeout
from gomq_py.content.properties import Properties
from load.brokers import ROOT
from load.ledger import Ledger, body_of

DEAD = "stress.dead"
KINDS = ({}, {}, {"x-max-priority": 4}, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD})
QUEUES = 5
KEYS = ("a", "a.b", "b.a", "c")
PATTERNS = ("#", "a.#", "*.a", "c")
SIZES = (0, 5, 100, 100, 1000, 9000, 200_000)
BACKLOG = 4000
BOOT_S = 60
PATIENCE_S = 60
LOST = (ClosedError, Timeout, OSError)


class Broker:
    """A broker process that is killed and started again on the same data.

    ``up`` is set while workers may come.
    """

    def __init__(self, folder):
        self._folder = Path(folder)
        (self._folder / "gomq.ini").write_text("[main]\nsegment_size = 262144\n")
        self._process = None
        self.up = threading.Event()
        self.uri = ""
        self.life = 0
        # life and uri, as one: whoever comes late with these sees that the broker has died since
        self.serving = (0, "")

    def start(self, kill_after_s=None):
        """Start it, or kill it on its way up. Returns whether it serves."""
        self.life += 1
        log = self._folder / f"log.{self.life}"
        with open(log, "wb") as file:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "gomq_py", "--config", str(self._folder / "gomq.ini"), "--data-dir",
                    str(self._folder / "data"), "--bind", "127.0.0.1", "--port", "0", "--mqtt-port", "-1",
                    "--http-port", "-1", "--metrics-http-port", "-1",
                ],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        began = time.monotonic()
        while b"ready after" not in log.read_bytes():
            if kill_after_s is not None and time.monotonic() - began > kill_after_s:
                self._process.kill()
            if self._process.poll() is not None:
                if kill_after_s is None:
                    raise AssertionError(
                        f"the broker does not boot\n{log.read_text(errors='replace')[-3000:]}"
                    )
                return False
            if time.monotonic() - began > BOOT_S:
                raise AssertionError("the broker does not boot in time")
            time.sleep(0.02)
        self.uri = (
            f"amqp://guest:guest@{re.search(r'listening amqp (127.0.0.1:[0-9]+)', log.read_text())[1]}/%2f"
        )
        self.serving = self.life, self.uri
        return True

    def kill(self):
        """SIGKILL."""
        self.up.clear()
        self._process.kill()
        self._process.wait()

    def stop(self):
        """An orderly end."""
        self.up.clear()
        self._process.terminate()
        code = self._process.wait(BOOT_S)
        if code:
            raise AssertionError(f"the broker left with {code}")

    def errors(self):
        """Lines of its logs that tell of a fault."""
        found = []
        for log in sorted(self._folder.glob("log.*")):
            found += [
                f"{log.name}: {line}"
                for line in log.read_text(errors="replace").splitlines()
                if " error " in line or "Traceback" in line
            ]
        return found[:10]


class Topology:
    """Queues, and exchanges that lead to them, drawn from a seed; knows where a message goes."""

    def __init__(self, random):
        self.queues = {f"stress.{number}": random.choice(KINDS) for number in range(QUEUES)}
        self.bindings = []  # (exchange, key, queue)
        for queue in self.queues:
            for exchange, keys in (
                ("stress.direct", KEYS), ("stress.topic", PATTERNS), ("stress.fanout", ("",))
            ):
                if random.random() < 0.5:
                    self.bindings.append((exchange, random.choice(keys), queue))

    def lettered(self):
        """The queues whose rejected messages go to DEAD."""
        return [name for name, arguments in self.queues.items() if "x-dead-letter-exchange" in arguments]

    def declare(self, channel, queues=None):
        """Everything, or these queues with their bindings."""
        if queues is None:
            channel.queue_declare(DEAD, durable=True)
            for type_ in ("direct", "topic", "fanout"):
                channel.exchange_declare(f"stress.{type_}", type=type_, durable=True)
        for name, arguments in self.queues.items():
            if queues is None or name in queues:
                channel.queue_declare(name, durable=True, arguments=arguments)
        for exchange, key, queue in self.bindings:
            if queues is None or queue in queues:
                channel.queue_bind(queue, exchange, key)

    def route(self, exchange, key):
        """The queues a message goes to."""
        if not exchange:
            return [key]
        return sorted({
            queue
            for source, pattern, queue in self.bindings
            if source == exchange and self._matches(exchange, pattern, key)
        })

    @staticmethod
    def _matches(exchange, pattern, key):
        if exchange == "stress.fanout":
            return True
        if exchange == "stress.direct":
            return pattern == key
        return {
            "#": True, "a.#": key == "a" or key.startswith("a."), "*.a": key == "b.a", "c": key == "c"
        }[pattern]


class Worker:
    """One thread's work on connections of its own, which go with the broker and are made anew.

    ``turn`` is one session's step.
    """

    def __init__(self, stress, name, random):
        self.stress, self.ledger, self.topology = stress, stress.ledger, stress.topology
        self.name, self.random = name, random
        self.thread = threading.Thread(target=self._run, name=name)
        self.connection = None
        self.life = 0

    def _run(self):
        stress = self.stress
        while not stress.over.is_set():
            if not stress.broker.up.wait(0.2):
                continue
            life, uri = stress.broker.serving
            self.life = life
            try:
                with Connection(uri, timeout_s=PATIENCE_S) as self.connection:
                    self.session()
            except LOST as error:
                if stress.broker.life == life and stress.broker.up.is_set() and not self.expects(error):
                    stress.odd.append(f"{self.name}: {type(error).__name__}: {error}")
            except Exception as error:
                stress.odd.append(f"{self.name}: {type(error).__name__}: {error}")
                return
            finally:
                self.left()

    def going_on(self):
        """Whether to take another step on this connection."""
        return not self.stress.over.is_set() and self.random.random() > 0.01

    def session(self):
        """Work on ``connection`` for a while."""
        raise NotImplementedError

    def left(self):
        """The connection has gone, one way or another."""

    def expects(self, _error):
        """Whether that may happen to it while the broker is well."""
        return False


class Publisher(Worker):
    """Publishes with confirms or in transactions, to all exchanges, in windows."""

    def session(self):
        self.channel = self.connection.channel()
        self.numbers = {}
        in_transactions = self.random.random() < 0.2
        if in_transactions:
            self.channel.tx_select()
        else:
            self.channel.confirm_select()
        while self.going_on():
            if self.stress.backlog() > BACKLOG:
                time.sleep(0.05)
                continue
            numbers = [self._publish() for _ in range(self.random.choice((1, 3, 30)))]
            if in_transactions:
                self.channel.tx_commit()
                self.ledger.confirmed(numbers)
            elif self.random.random() < 0.7:
                self.channel.wait_for_confirms(PATIENCE_S)
                self._note_confirms()
        if not in_transactions:
            self.channel.wait_for_confirms(PATIENCE_S)

    def _publish(self):
        random = self.random
        exchange = random.choice(("", "stress.direct", "stress.topic", "stress.fanout"))
        key = random.choice(list(self.topology.queues)) if not exchange else random.choice(KEYS)
        number = self.ledger.sent(self.topology.route(exchange, key))
        properties = Properties(delivery_mode=2, priority=random.randrange(6))
        self.numbers[self.channel.published + 1] = number
        self.channel.publish(exchange, key, body_of(number, random.choice(SIZES)), properties)
        return number

    def _note_confirms(self):
        channel = self.channel
        answered = [sequence for sequence in self.numbers if sequence not in channel.unconfirmed]
        self.ledger.confirmed([self.numbers.pop(sequence) for sequence in answered])

    def expects(self, error):
        return "partial tx completion" in str(error)  # a queue of the transaction was deleted under it

    def left(self):
        """What the broker said before it died counts."""
        if (
            self.connection is not None and getattr(self, "channel", None) is not None
            and self.channel.confirming
        ):
            self.numbers = {
                sequence: number
                for sequence, number in self.numbers.items() if sequence <= self.channel.published
            }
            self._note_confirms()
        self.channel = None


class Consumer(Worker):
    """Takes messages of one queue at a time: acks, rejects, gives back, keeps;
    goes in order or without a word.
    """

    def session(self):
        random = self.random
        queue = random.choice(list(self.topology.queues))
        channel = self.connection.channel()
        prefetch = random.choice((1, 5, 50))
        channel.qos(prefetch)
        channel.consume(queue, consumer_tag="c")
        fresh, kept = [], []
        while self.going_on() and not channel.cancelled:
            delivery = channel.next_delivery(0.2)
            if delivery is None:
                self._give_back(queue, kept)
                continue
            number = self.ledger.delivered(self.name, queue, delivery.body, delivery.redelivered, self.life)
            draw = random.random()
            if draw < 0.6:
                self.ledger.will_settle(queue, number)
                fresh.append(number)
                delivery.ack()
            elif draw < 0.65:
                self.ledger.will_settle(queue, number, rejected=True)
                delivery.reject(requeue=False)
            elif draw < 0.8:
                self.ledger.will_return(queue, number)
                delivery.nack(requeue=True)
            else:
                kept.append((number, delivery))
            if len(kept) >= prefetch:
                self._give_back(queue, kept)
            if random.random() < 0.1:
                channel.qos(prefetch)
                self.ledger.settled(queue, fresh)
                fresh = []
        self.left()  # before the broker hears of it and gives to others what was in hand
        if random.random() < 0.5:
            self.connection.abort()

    def _give_back(self, queue, kept):
        for number, delivery in kept:
            self.ledger.will_return(queue, number)
            delivery.nack(requeue=True)
        kept.clear()

    def left(self):
        self.ledger.left(self.name)

    def expects(self, error):
        return "NOT_FOUND" in str(error)  # the operator has deleted the queue and not made it again yet


class Operator(Worker):
    """Purges queues, and deletes them and makes them again."""

    def session(self):
        channel = self.connection.channel()
        while self.going_on():
            self.stress.over.wait(self.random.uniform(0.2, 3))
            queue = self.random.choice(list(self.topology.queues))
            self.stress.to_be_made.add(queue)
            self.ledger.emptying(queue)
            try:
                if self.random.random() < 0.5:
                    channel.queue_purge(queue)
                else:
                    channel.queue_delete(queue)
                    self.topology.declare(channel, (queue,))
                self.stress.to_be_made.discard(queue)
            finally:
                self.ledger.emptied(queue)


class Stress:
    """One run."""

    def __init__(self, folder, options):
        self.random = Random(options.seed)
        self.options = options
        self.topology = Topology(self.random)
        self.ledger = Ledger(DEAD, self.topology.lettered())
        self.broker = Broker(folder)
        self.over = threading.Event()
        self.odd = []  # what workers met that a kill does not explain
        self.to_be_made = set()  # queues that a kill may have left deleted
        self.kills = 0

    def run(self):
        """Work, kills, the account. Returns its figures."""
        self._start(None)
        kinds = [Publisher] * 2 + [Consumer] * 4 + [Operator]
        workers = [
            kind(self, f"{kind.__name__} {number}", Random(f"{self.options.seed} {number}"))
            for number, kind in enumerate(kinds)
        ]
        for worker in workers:
            worker.thread.start()
        try:
            self._kill_now_and_then(time.monotonic() + self.options.minutes * 60)
        finally:
            self.over.set()
            for worker in workers:
                worker.thread.join(2 * PATIENCE_S)
        found = self._everything()
        self.broker.stop()
        figures = self.ledger.close(found)
        return {
            "seed": self.options.seed, "kills": self.kills, **figures, "breaches": self.ledger.breaches,
            "odd": self.odd[:10], "errors logged": self.broker.errors(),
        }

    def backlog(self):
        """About how many messages wait: what publishers slow down for."""
        counts = self.ledger.counts
        return counts["confirmed"] - counts["delivered"]

    def _kill_now_and_then(self, until):
        while (
            time.monotonic() < until
            and not self.over.wait(self.random.uniform(0.3, 4) if self.options.kills else 1)
        ):
            if not self.options.kills:
                continue
            self._kill()
            if self.random.random() < 0.3:
                served = self.broker.start(kill_after_s=self.random.uniform(0.05, 1))
                if served:
                    self._kill()
            self._start(set(self.to_be_made))

    def _kill(self):
        self.broker.kill()
        self.kills += 1
        self.ledger.broker_died(self.broker.life + 1)

    def _start(self, queues):
        """Start the broker, and make these queues again before anybody comes: a kill may have left them
        deleted. None: everything.
        """
        self.broker.start()
        self.ledger.broker_died(self.broker.life)
        with Connection(self.broker.uri, timeout_s=PATIENCE_S) as connection:
            self.topology.declare(connection.channel(), queues)
        self.broker.up.set()

    def _everything(self):
        """{queue: numbers} of what a last kill and a boot leave."""
        if self.options.kills:
            self._kill()
            self._start(None)
        found = {}
        with Connection(self.broker.uri, timeout_s=PATIENCE_S) as connection:
            channel = connection.channel()
            self.topology.declare(channel)
            for queue in (*self.topology.queues, DEAD):
                found[queue] = []
                while (delivery := channel.get(queue)) is not None:
                    found[queue].append(self.ledger.delivered(
                        "the account", queue, delivery.body, delivery.redelivered, self.broker.life
                    ))
                    self.ledger.will_return(queue, found[queue][-1])
        return found


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m load.stress", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--no-kills", dest="kills", action="store_false", help="without SIGKILL")
    parser.add_argument("--keep", help="a folder for data and logs that stays")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gomq-stress-") as folder:
        if options.keep:
            Path(options.keep).mkdir(parents=True)
        stress = Stress(options.keep or folder, options)
        figures = stress.run()
    print(json.dumps(figures, indent=1))
    return 1 if figures["breaches"] or figures["odd"] else 0


if __name__ == "__main__":
    sys.exit(main())
