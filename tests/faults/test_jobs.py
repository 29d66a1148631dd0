"""Every job and every timer of a broker raises once; then dead letters, delays, expiry, back-offs, confirms
and heartbeats of others go on.

One broker takes all of the faults, one after the other,
so that what one of them leaves behind shows in the probes after it.
"""
import errno
import itertools
from functools import partial
from types import SimpleNamespace

import gevent
import pytest

from gomq_py.amqp.server import settling, tx
from gomq_py.amqp.server.withdrawals import Withdrawals
from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicGet, BasicGetOk, ConfirmSelect, ConfirmSelectOk, QueueDeclare, QueueDeclareOk, TxCommit,
    TxSelect, TxSelectOk,
)
from gomq_py.broker.features.retry import LOST
from gomq_py.broker.queues import cancelling
from gomq_py.broker.routing.route import Destination
from gomq_py.broker.topology import steps
from gomq_py.broker.topology.bindings import Binding
from gomq_py.broker.transfer import engine
from gomq_py.broker.transfer.moves import Move, to_queue
from gomq_py.content.properties import Properties
from gomq_py.federation.supervisor import Federation
from gomq_py.hub.scheduler import SliceClock, unix_ms
from gomq_py.hub import clients, context, timers, turns
from gomq_py.mqtt.model.kinds import all_kinds
from gomq_py.mqtt.model.session import Subscription
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.model.sessions import NEVER
from gomq_py.mqtt.server import broker_topics, subscribe
from gomq_py.mqtt.wire.crossing import KIND, record_flags
from gomq_py.observability.log import logger
from gomq_py.shovel.supervisor import Starting
from gomq_py.storage.message import Message
from tests.faults.saboteur import SabotagedScheduler, SabotagedTimers, job_names, timer_sites
from tests.support.clocks import StepClock
from tests.support.door import Door, publish_frames
from tests.support.mqtt_outbound import make_sure, note_received
from tests.support.queues import KeepingConsumer
from tests.support.waiting import in_time, wait_until

PERSISTENT = Properties(delivery_mode=2).encode()
SEGMENT = 1 << 20
numbers = itertools.count()
wait = partial(wait_until, sleep=gevent.sleep, timeout_s=in_time(10))


def short_slices(*_, **__):
    """Slices of one item."""
    return SliceClock(clock=StepClock(1))


class Watched:
    """Stands for a connection whose heartbeats are watched."""

    checks = 0

    def check_heartbeat(self):
        self.checks += 1


class NoRoom(Destination):
    """Has room at the second time."""

    seen = 0

    def publish(self, message):
        self.seen += 1
        self.unable = self.seen == 1
        return not self.unable


class Site:
    """A broker with its door, a client, and one thing to do for each job."""

    def __init__(self, door):
        self.door = door
        self.vhost = door.vhost
        self.scheduler = door.broker.scheduler
        self.client = door.client((1, 2))
        self.client.call(ConfirmSelect(), ConfirmSelectOk, 2)
        self.published = 0
        self.watched = Watched()
        door.hub.heartbeats.watch(self.watched, 0.1)
        self.vhost.declare_exchange(
            "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
        )
        self.vhost.declare_queue("arrived", durable=True)
        self.arrived = self.vhost.queue("arrived")
        self.vhost.bindings.bind_queue("arrived", "later", "arrived")
        self.vhost.bindings.bind_queue("arrived", "amq.rabbitmq.event", "told")
        self.vhost.bindings.bind_queue("arrived", "amq.rabbitmq.log", "error")

    def declare(self, durable=False, **arguments):
        name = f"q{next(numbers)}"
        arguments = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return self.vhost.declare_queue(name, durable=durable, arguments=arguments)[0]

    def publish(self, queue, count=1, exchange=None, headers=None):
        now_ms = unix_ms()
        for number in range(count):
            message = Message()
            properties = Properties(headers=headers).encode()
            message.assign((exchange or "").encode(), queue.name.encode(), properties, b"%d" % number, now_ms)
            if exchange is None:
                queue.publish(message)
            else:
                for destination in self.vhost.route(self.vhost.exchange(exchange), queue.name, headers):
                    destination.publish(message)
        return queue

    def arrives(self, count):
        """Wait until so many more messages are in the queue ``arrived``, and drop them."""
        wait(
            lambda: self.arrived.ready_count >= count,
            what=f"{count} messages, of which {self.arrived.ready_count} arrived",
        )
        self.arrived.purge()

    # jobs: what makes them run, and what must come of it although a slice raised

    def dead_letters(self):
        self.publish(
            self.declare(max_length=0, dead_letter_exchange="", dead_letter_routing_key="arrived"), 450
        )
        self.arrives(450)

    def letters_without_room(self):
        target = NoRoom("no room")
        exchange = self.vhost.declare_exchange(f"x{next(numbers)}", "fanout")
        self.vhost.bindings.add(Binding(exchange, target, "", {}))
        self.publish(self.declare(max_length=0, dead_letter_exchange=exchange.name), 3)
        wait(lambda: target.seen == 4)

    def delayed(self):
        self.publish(self.arrived, 450, "later", {"x-delay": 1})
        self.arrives(200)  # those that were handed over when it raised wait for the next boot

    def came_back(self):
        for _ in range(2):
            queue = self.declare(delayed_retry_type="all", delayed_retry_min=1)
            self.publish(queue)
            message = Message()
            queue.get(message, False)
            queue.give_back(message.describe()["location"], 2)
            wait(lambda queue=queue: queue.ready_count == 1)

    def too_much(self):
        queue = self.publish(self.declare(), 1200)
        self.set_policy(f"^{queue.name}$", {"max-length": 0})

    def set_policy(self, pattern, definition):
        self.door.broker.parameters.set(
            self.vhost, "policy", "p", {"pattern": pattern, "definition": definition}
        )

    def policies(self):
        queues = [self.declare() for _ in range(5)]
        self.set_policy("^q", {"max-length": 1000 + next(numbers)})
        wait(lambda: all(queue.in_force.policy for queue in queues))

    def vhost_deletion(self):
        name = f"v{next(numbers)}"
        vhost = self.door.broker.create_vhost(name)
        for number in range(4):
            vhost.declare_queue(f"{number}")
        self.door.broker.delete_vhost(name)
        self.door.broker.wait_until_gone(name)

    def parting(self):
        for _ in range(2):
            self.vhost.delete_queue(self.publish(self.declare(max_length=5)).name)
            self.settle()

    def moving(self):
        ended = []
        source = self.publish(self.declare(), 450)
        Move(
            source, to_queue(self.declare()), self.door.broker.durability, self.scheduler,
            lambda *end: ended.append(end),
        ).start()
        wait(lambda: ended)

    def events(self):
        for _ in range(450):
            self.door.broker.events.emit("told", lambda: {})
        self.arrives(450)

    def log_lines(self):
        for _ in range(2):
            logger("somewhere").error("a line")
            self.arrives(1)

    def compaction(self):
        # one that was given up begins again at twice the length
        for _ in range(60 if self.scheduler.step == 1 else 1):
            for _ in range(60):
                self.vhost.delete_queue(self.declare(durable=True).name)
            self.settle()
            if self.scheduler.hit:
                break

    def slow(self):
        client = self.door.client()
        client.send(method_frame(1, QueueDeclare(queue="arrived", durable=True)) * 50)
        for _ in range(50):
            client.expect(QueueDeclareOk)
        client.close()

    def settlements(self):
        client, queue = self.holding(30)
        channel = list(self.door.hub.clients)[-1].channels[1]
        channel.settlements(self.scheduler).order(30, LOST)
        wait(lambda: queue.ready_count == 30)
        message = Message()
        wait(lambda: queue.get(message, True), what="the queue is held no more")
        self.end(client)

    def transaction(self):
        client, _ = self.holding(30, transactional=True)
        for tag in range(1, 31):
            client.send_method(BasicAck(delivery_tag=tag))
        client.publish("arrived", properties=PERSISTENT)
        client.send_method(TxCommit())
        client.frame(10)  # it is answered, or closed with what failed
        self.end(client)

    def holding(self, count, transactional=False):
        """A client that holds messages unacked, and the queue they are of."""
        queue = self.publish(self.declare(), count)
        client = self.door.client()
        if transactional:
            client.call(TxSelect(), TxSelectOk)
        for _ in range(count):
            client.send_method(BasicGet(queue=queue.name))
            client.expect_message(BasicGetOk)
        return client, queue

    def end(self, client):
        """Whatever it is answered: the connection ends, and lets go of all it had."""
        self.settle()
        client.close()
        wait(lambda: len(self.door.hub.clients) == 1)

    def ends(self):
        for _ in range(2):
            self.end(self.door.client(range(1, 41)))

    def exclusive(self):
        client = self.door.client()
        names = [f"exclusive{number}" for number in range(5)]
        for name in names:
            client.call(QueueDeclare(queue=name, exclusive=True), QueueDeclareOk)
        self.end(client)
        wait(lambda: not self.vhost.queues.keys() & set(names))

    def bindings(self):
        exchange = self.vhost.declare_exchange(f"x{next(numbers)}", "direct")
        queues = [self.declare() for _ in range(5)]
        for queue in queues:
            self.vhost.bindings.bind_queue(queue.name, exchange.name, "")
        self.vhost.delete_exchange(exchange.name)
        wait(lambda: not any(self.vhost.bindings.to(queue)[1:] for queue in queues))

    def cancelling(self):
        queue = self.declare()
        consumers = [KeepingConsumer(f"c{number}") for number in range(cancelling.FEW + 1)]
        for consumer in consumers:
            queue.add_consumer(consumer)
        self.vhost.delete_queue(queue.name)
        wait(lambda: not any(consumer.queue for consumer in consumers))

    def alarm(self):
        others = [self.door.client() for _ in range(5)]
        for change in (
            lambda: self.door.broker.alarms.set("a test", "disk"),
            lambda: self.door.broker.alarms.clear("a test"),
        ):
            change()
            self.settle()
        assert not any(connection.stream.waits_for for connection in self.door.hub.clients)
        for other in others[1:]:
            other.close()
        self.end(others[0])

    def look(self):
        self.declare()
        self.set_policy("^q", {"consumer-timeout": 60_000 + next(numbers)})
        self.settle()

    def settle(self):
        """Let all jobs come to their end, and what is done beside the loop."""
        wait(lambda: self.door.committer.background.is_idle and not self.scheduler.is_armed())

    # others

    def probe(self):
        """What everybody relies on still works."""
        self.arrived.purge()
        checks = self.watched.checks
        # dead letters
        self.publish(
            self.declare(max_length=0, dead_letter_exchange="", dead_letter_routing_key="arrived"), 2
        )
        self.publish(self.arrived, 1, "later", {"x-delay": 1})  # delays
        expiring = self.publish(self.declare(message_ttl=1))
        unused = self.declare(expires=1)
        again = self.publish(self.declare(delayed_retry_type="all", delayed_retry_min=1))
        message = Message()
        again.get(message, False)
        again.give_back(message.describe()["location"], 2)
        self.published += 1
        self.client.send(publish_frames("arrived", b"x", properties=PERSISTENT, channel=2))
        assert self.client.expect(BasicAck, 2).delivery_tag == self.published  # confirms
        wait(lambda: self.arrived.ready_count >= 4, what="dead letters, delayed and confirmed messages")
        wait(lambda: expiring.ready_count == 0 and unused.name not in self.vhost.queues, what="expiry")
        wait(lambda: again.ready_count == 1, what="the end of a back-off")
        wait(lambda: self.watched.checks > checks, what="heartbeats")
        wait(lambda: not self.scheduler.is_armed(), what="the end of all jobs")

    # of MQTT

    @property
    def mqtt(self):
        return self.vhost.extras[EXTRA]

    def retain(self, topic, body=b"x", lives_ms=0):
        now_ms = unix_ms()
        message = Message()
        message.assign(
            b"amq.topic", topic.encode(), b"", body, now_ms, now_ms + lives_ms if lives_ms else 0,
            persistent=True)
        message.set_kind(KIND, record_flags(1, True))
        assert self.mqtt.retained.store(topic, message) == 1

    def session(self):
        """A session that is kept, of a client that is away."""
        client_id = f"c{next(numbers)}"
        session = self.mqtt.connect(Away(), client_id, "guest", False, NEVER, 5).session
        self.mqtt.disconnect(session, session.connection)
        return session

    def expiring(self):
        for number in range(3):
            self.retain(f"soon{number}", lives_ms=1)
        wait(lambda: self.mqtt.retained.index.count == 0, what="retained messages to expire")

    def replaying(self):
        self.retain("again")
        session = self.session()
        subscription = Subscription("again", 1)
        session.subscribe(subscription)
        for _ in range(2):  # the client does not get the rest of a replay that failed
            self.mqtt.retained.replay(session, subscription, True)
            wait(lambda: not self.mqtt.retained.replays, what="the end of a replay")
        assert session.queue.ready_count >= 1
        self.mqtt.end(session)
        self.mqtt.retained.delete("again")

    def subscribing(self):
        """A packet whose filters take longer than a slice."""
        told, holds = [], []
        connection = SimpleNamespace(
            scheduler=self.scheduler, is_open=True, fail=told.append, version=5,
            session=SimpleNamespace(queue=None, is_durable=False),
            answers=SimpleNamespace(done=lambda answer, _queues: told.append(answer.codes)),
            stream=SimpleNamespace(
                pause_reading=lambda _reason: SimpleNamespace(release=lambda: holds.append(1))))
        for _ in range(2):
            answer = subscribe._Suback(None, connection, 1)
            subscribe._Filters(connection, answer, "abc", lambda _each: 0).begin()
        wait(lambda: len(told) >= 2 and len(holds) >= 2, what="the answers to SUBSCRIBE")

    def redistributions(self):
        """Two share what is published; what the one has that ends is for the other."""
        sessions = [self.session(), self.session()]
        for session in sessions:
            session.subscribe(Subscription("$share/g/heir", 1))
        message = Message()
        message.assign(b"amq.topic", b"heir", b"", b"x", unix_ms(), persistent=True)
        message.set_kind(KIND, record_flags(1, False))
        for _ in range(4):
            for destination in self.vhost.route(self.vhost.exchange("amq.topic"), "heir", None):
                destination.publish(message)
        assert [session.queue.ready_count for session in sessions] == [2, 2]
        self.mqtt.end(sessions[0])
        wait(lambda: not self.vhost._factory.redistributions._transfers, what="the end of a session's queue")
        self.mqtt.end(sessions[1])
        wait(lambda: not self.vhost._factory.redistributions._transfers)

    def kept_anew(self):
        """Segments of which nothing but one small message is wanted."""
        retained, topics = self.mqtt.retained, [f"kept{number}" for number in range(12)]
        for topic in topics:
            self.retain(topic)
            for _ in range(4):
                self.retain("over and over", bytes(SEGMENT // 4))
            wait(lambda: self.door.committer.is_idle, what="what is outdated to go")
        for topic in (*topics, "over and over"):
            assert retained.look(topic, Message())
            retained.delete(topic)

    def delayed_again(self):
        """The disk fails the store of a delayed exchange, which is opened again."""
        exchange = self.vhost.declare_exchange(
            "later-again", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
        before = exchange.delayed_store
        before.store.fence(OSError(errno.EIO, "the disk failed"))
        wait(lambda: exchange.delayed_store is not before or None, what="an open store")
        self.vhost.delete_exchange("later-again")

    def kept_again(self):
        """The disk fails the store, which is opened again."""
        retained = self.mqtt.retained
        self.retain("kept")
        retained._store.fence(OSError(errno.EIO, "the disk failed"))
        wait(lambda: not retained.closed and not retained._reopening.running or None, what="an open store")
        assert retained.look("kept", Message())
        retained.delete("kept")

    def identifiers_anew(self):
        session = self.session()
        identifiers = session.received_ids()
        note_received(identifiers, 1)
        make_sure(identifiers)
        while self.mqtt.qos2_records.moving is None and not self.scheduler.hit:
            for _ in range(1000):
                identifiers.begin(2, (), Message())
                identifiers.add(2)
                identifiers.discard(2)
            gevent.sleep(0)
        wait(lambda: self.mqtt.qos2_records.moving is None, what="the end of writing anew")
        assert identifiers.has(1)
        self.mqtt.end(session)

    def identifiers_in_a_new_store(self):
        session = self.session()
        identifiers = session.received_ids()
        note_received(identifiers, 1)
        before = self.mqtt.qos2_records
        before.store.fence(OSError(errno.EIO, "the disk failed"))
        wait(
            lambda: self.mqtt.qos2_records is identifiers.records is not before
            and not self.mqtt._replacing.running or None, what="a new store")
        wait(lambda: not self.mqtt.qos2_records.failed or None, what="a store that works")
        self.mqtt.end(session)

    def returning(self):
        session, message = self.session(), Message()
        sent = session.sent_from(session.queue)
        message.assign(b"", b"t", b"", b"x", 1, persistent=True)
        message.set_kind(KIND, record_flags(1, False))
        for _ in range(6000):
            session.queue.publish(message)
        shown = Message()
        while session.queue.peek(shown):
            about = shown.describe()
            sent.add(about["location"], about["timestamp_ms"], 1)
            session.queue.take(shown, False)
        sent.end()
        wait(lambda: sent.returning is None, what="all to be back")
        assert session.queue.ready_count >= 5990
        self.mqtt.end(session)

    def telling(self):
        topics = broker_topics.BrokerTopics(SimpleNamespace(broker=self.door.broker, hub=self.door.hub))
        session = self.mqtt.connect(Away(self.vhost), "teller", "guest", False, NEVER, 5).session
        session.subscribe(Subscription("$SYS/#", 0))
        topics.subscribed(session)
        topics._publish()
        wait(lambda: topics._telling is None, what="the values of $SYS topics")
        topics._timer.stop()
        self.mqtt.end(session)

    def withdrawals(self):
        (client,) = self.door.hub.clients
        withdrawals = Withdrawals(self.door.hub.clients, self.scheduler)
        withdrawals.begin(client.user)
        wait(lambda: not withdrawals.running or None, what="a look at consumers")

    def federation_links(self):
        federation = Federation(all_kinds())
        federation.open(self.door.broker, self.door.hub, None)
        federation.start()
        federation._look(self.vhost, "exchange", "there is none")
        wait(lambda: not federation._look_at or None, what="a look at what is federated")
        federation.stop()

    def starting_shovels(self):
        started = []
        starting = Starting(SimpleNamespace(start_one=started.append), list(range(3)))
        starting._clock = short_slices()
        self.scheduler.start(starting)
        wait(lambda: started == [0, 1, 2] or None, what="all are started")


class Away:
    """Stands for the connection of a client."""

    wants_will = False

    def __init__(self, vhost=None):
        self.vhost = vhost

    def session_ended(self, reason):
        pass


# The name of each job, as the sources have it -> what makes it run.
JOBS = {
    "'dead letters'": Site.dead_letters,
    "'dead letters that wait for room'": Site.letters_without_room,
    "'delayed messages'": Site.delayed,
    "'messages that came back'": Site.came_back,
    "'what expires or is too much'": Site.too_much,
    "'applying policies'": Site.policies,
    "'deleting a vhost'": Site.vhost_deletion,
    "'parting queues from their limits'": Site.parting,
    "'moving messages'": Site.moving,
    "'cancelling consumers'": Site.cancelling,
    "'telling connections of an alarm'": Site.alarm,
    "'events'": Site.events,
    "'log lines'": Site.log_lines,
    "'compacting the definitions'": Site.compaction,
    "'slow connections'": Site.slow,
    "'settlements of a channel'": Site.settlements,
    "'settling what a transaction settles'": Site.transaction,
    "'freeing what a transaction held'": Site.transaction,
    "'looking at channels'": Site.look,
    "'ends of connections'": Site.ends,
    "'deleting exclusive queues'": Site.exclusive,
    "'removing bindings'": Site.bindings,
    "'expiring retained MQTT messages'": Site.expiring,
    "'replaying retained MQTT messages'": Site.replaying,
    "'subscribing MQTT clients'": Site.subscribing,
    "'messages of deleted queues'": Site.redistributions,
    "'writing kept MQTT messages anew'": Site.kept_anew,
    "'opening kept MQTT messages again'": Site.kept_again,
    "'opening a delayed store again'": Site.delayed_again,
    "'writing QoS 2 identifiers anew'": Site.identifiers_anew,
    "'noting QoS 2 identifiers in a new store'": Site.identifiers_in_a_new_store,
    "'putting back what MQTT clients have not acknowledged'": Site.returning,
    "'telling $SYS topics'": Site.telling,
    "'looking for consumers that may not read any more'": Site.withdrawals,
    "'federation links'": Site.federation_links,
    "'starting shovels'": Site.starting_shovels,
}
# Jobs that are not of every broker -> where they are made to raise.
ELSEWHERE = {"f'link {link.name}'": "tests/unit/links/test_source_reader.py: what raises ends the session"}

# Where timers are started: how many, and why what one callback raises takes nobody along.
TIMERS = {
    "gomq_py.hub.timers": (2, "logs what a callback raises; all below that are given timers have these"),
    "gomq_py.broker.transfer.engine": (1, "test_every_timer_raises_and_others_go_on"),
    "gomq_py.broker.queues.due_timer": (1, "test_every_timer_raises_and_others_go_on"),
    "gomq_py.broker.queues.limits": (4, "test_every_timer_raises_and_others_go_on"),
    "gomq_py.broker.queues.stream_pace": (1, "of one stream, and forgets its timer first"),
    "gomq_py.broker.queues.stream_retention": (1, "of one stream, and forgets its timer first"),
    "gomq_py.cluster.refusals": (1, "a greenlet of its own: its loop goes on"),
    "gomq_py.cluster.stream": (
        3, "two only forget frames that nobody has asked for; one catches what closing a frame "
        "raises, and all followers begin anew"),
    "gomq_py.hub.scheduler": (1, "catches what each turn and each job raises"),
    "gomq_py.hub.backpressure": (
        3, "test_backpressure: a look that raises lets all go on; a Turn is of one message, and forgets its "
        "callback first"),
    "gomq_py.hub.admission": (1, "forgets its timer first, and starts a greenlet"),
    "gomq_py.hub.lingering_close": (1, "of one client, and forgets its timer first"),
    "gomq_py.connections.login": (2, "of one client, forgets its timer first, and ends its stream"),
    "gomq_py.amqp.server.login": (1, "of one client, whose stream it ends"),
    "gomq_py.hub.buffers": (2, "forgets its timer first, and drops memory that nobody uses"),
    "gomq_py.hub.heartbeats": (1, "test_heartbeats: shared, catches what each check raises"),
    "gomq_py.amqp.server.consumer_timeouts": (
        1, "test_consumer_timeouts: shared, catches what each look raises"
    ),
    "gomq_py.hub.budget": (
        2, "one catches what resuming and giving up raise, one forgets its timer first: the next body that "
        "ends lets others go on, too"),
    "gomq_py.amqp.server.connection": (2, "of one connection"),
    "gomq_py.amqp.server.channel": (1, "of one channel of one connection"),
    "gomq_py.broker.verbs.token_life": (1, "of one connection"),
    "gomq_py.net.pump": (1, "of one client, and closes its sockets"),
    "gomq_py.net.stream": (1, "of one connection"),
    "gomq_py.http.clients": (1, "set anew by the next client"),
    "gomq_py.http.index": (3, "forgets its timer first; dropping what nobody asks for does not raise"),
    "gomq_py.mqtt.model.expiries": (1, "of one vhost, forgets its timer first, and starts a job"),
    "gomq_py.mqtt.model.keyed_store": (1, "of one store, and forgets its timer first"),
    "gomq_py.mqtt.model.moving": (1, "of one vhost, and asks when definitions are safe"),
    "gomq_py.mqtt.model.replays": (1, "of one client, forgets its timer first, and starts a job"),
    "gomq_py.mqtt.server.delivery": (1, "of one client, and forgets its timer first"),
    "gomq_py.mqtt.server.broker_topics": (1, "waits for the next time first"),
    "gomq_py.shovel.supervisor": (1, "forgets its timer first; what cannot be written is logged"),
    "gomq_py.federation.supervisor": (1, "of one link that has ended, by timers that log what is raised"),
    "gomq_py.launcher": (1, "the limit of a stop, which ends the process"),
    "gomq_py.links.session": (1, "of one link; what raises ends its session, which is made anew"),
    "gomq_py.storage.flush.flushing": (1, "forgets its time first, and wakes one greenlet"),
    "gomq_py.testing.chaos": (2, "faults on purpose"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "Scheduler", SabotagedScheduler)
        patch.setattr(context, "HubTimers", SabotagedTimers)
        patch.setattr(engine, "TRY_AGAIN_MS", 5)
        patch.setattr(timers, "FIRST_PAUSE_MS", 5)
        patch.setattr(timers, "LONGEST_PAUSE_MS", 5)
        for module in (steps, tx, clients, subscribe, broker_topics):
            patch.setattr(module, "SliceClock", short_slices)
        patch.setattr(tx, "DROPPED_AT_ONCE", 10)
        patch.setattr(settling, "AT_ONCE", 10)
        patch.setattr(turns, "WALK_S", 0)
        with Door(
            tmp_path_factory.mktemp("faults") / "data", event_exchange=True, log_exchange=True,
            max_deleted_definitions=20, segment_size=SEGMENT,
        ) as door:
            door.vhost.policies._clock = short_slices()
            door.hub.endings._slice_clock = short_slices
            yield Site(door)


def test_every_job_is_known_by_name_and_made_to_raise_here():
    """A new job needs a name, an owner that hears of its failure, and an entry in JOBS."""
    assert job_names().keys() == JOBS.keys() | ELSEWHERE.keys()


def test_every_timer_is_known_here():
    """A new timer needs a reason why a callback that raises takes nobody along."""
    assert timer_sites() == {module: count for module, (count, _) in TIMERS.items()}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("job", JOBS)
def test_a_job_raises_and_others_go_on(site, job, step, when):
    name = job.strip("'")
    failed = site.scheduler.failed_jobs[name]
    site.scheduler.aim(name, when, step)

    JOBS[job](site)
    wait(lambda: site.scheduler.hit or step > 1 or None, what=f"{name} runs")

    assert site.scheduler.failed_jobs[name] == failed + site.scheduler.hit
    site.scheduler.aim(None, when, step)
    site.probe()


def test_every_timer_raises_and_others_go_on(site, monkeypatch):
    monkeypatch.setattr(SabotagedTimers, "armed", True)

    for _ in range(3):
        site.letters_without_room()
        site.probe()

    assert {name.split(".")[0] for name in SabotagedTimers.fired} >= {"Transfer", "DueTimer", "QueueLimits"}
