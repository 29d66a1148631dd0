"""A cluster under load: nodes, etcd, network, clients, and what an operator sees of them."""
import contextlib
import threading
import time

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ClientError
from gomq_py.cluster.core.in_sync import LONGEST_S
from tests.cluster_rounds import clients
from tests.cluster_rounds.accounts import QueueAccount, SessionAccount, StreamAccount
from tests.cluster_rounds.coordinator import Coordinator
from tests.cluster_rounds.network import Network
from tests.cluster_rounds.nodes import Node
from tests.ctl.running import Runner, done
from tests.support.waiting import in_time, wait_until

NAMES = ("one", "two", "three")
WHOLE_S = in_time(30)
# A node that streams may have to wait for LONGEST_S, if it was removed often under this leader, on each
# machine. That the nodes stream has the bound WHOLE_S, as everything else: a sync that hangs is found.
ADMITTED_S = LONGEST_S + WHOLE_S
# Between two looks: each asks etcd and nodes, which have other things to do.
LOOK_S = 0.05
QUEUES = {"classic": {}, "quorum": {"x-queue-type": "quorum"}, "stream": {"x-queue-type": "stream"}}


class Cluster:
    """``with Cluster(folder) as cluster``: three nodes that serve clients, and nobody publishes yet.

    ``min_isr``: of the nodes. ``version``: of MQTT, 4 or 5. ``log``: what happened, by seconds.
    """

    def __init__(self, folder, min_isr=1, version=5):
        self._began = time.monotonic()
        self._never = threading.Event()
        self.log = []
        self.min_isr = min_isr
        self.account_s = in_time(30)  # within which all that was confirmed comes
        self.coordinator = Coordinator(folder)
        self.network = Network(self._name_of)
        self.nodes = [self.make_node(folder, name) for name in NAMES]
        classic, quorum, stream = (
            QueueAccount("classic"), QueueAccount("quorum"), StreamAccount("stream"))
        session_publisher = clients.SessionPublisher(version)
        session_subscriber = clients.SessionSubscriber(version)
        self.stream = stream
        self.queues = (classic, quorum)
        self.session = SessionAccount(session_publisher, session_subscriber)
        self.accounts = (*self.queues, stream, self.session)
        self._subscriber = clients.MQTTSubscriberThread(session_subscriber, self.doors)
        self.publishers = (
            *[clients.Publisher(account, self.doors) for account in (*self.queues, stream)],
            clients.MQTTPublisherThread(session_publisher, self.doors))
        self.consumers = (
            *[clients.Consumer(account, self.doors) for account in self.queues],
            clients.StreamConsumer(stream, self.doors), self._subscriber)

        for place, client in enumerate(self.all_clients):
            client.turn = place

    def make_node(self, folder, name):
        """A node that is not running."""
        return Node(
            name, folder / name, self.network, self.coordinator, min_isr=self.min_isr)

    def __enter__(self):
        try:
            self.coordinator.begin()
            for node in self.nodes:
                node.spawn()
            self.wait_whole()
            self._declare()
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def say(self, text):
        """Note what happens."""
        self.log.append(f"{time.monotonic() - self._began:7.2f} {text}")

    def close(self):
        """Kill everything."""
        for client in self.all_clients:
            client.stop()
        with contextlib.ExitStack() as ending:
            ending.callback(self.network.end)
            if self.coordinator.process is not None:
                ending.callback(self.coordinator.kill)
            for node in self.nodes:
                if node.process is not None:
                    ending.callback(node.kill)
        for client in self.all_clients:
            if client.thread.ident is not None:
                client.thread.join(in_time(20))

    def lose(self, node):
        """SIGKILL, and what the node has sent and nobody received is gone: its machine is."""
        node.process.kill()
        self.network.reset(*[
            way for name in (*NAMES, "etcd") if name != node.name
            for way in self.network.between(node.name, name)])
        node.kill()

    @property
    def all_clients(self):
        """Publishers and consumers."""
        return (*self.publishers, *self.consumers)

    def doors(self, protocol):
        """Where clients may come, at any node."""
        return [node.door(protocol) for node in self.nodes]

    # what an operator sees

    def leader(self):
        """The node that etcd names and that says so itself; None without."""
        record = self.coordinator.record("leader")
        found = record and self.node_of(bytes.fromhex(record["node"]))
        return found if found and found.figures().get("role") == "leader" else None

    def members(self):
        """Names of the nodes in the in-sync set; empty without an answer."""
        record = self.coordinator.record("isr") or {}
        found = [self.node_of(bytes.fromhex(node_id)) for node_id in record.get("members", {})]
        return {node.name for node in found if node is not None}

    def node_of(self, node_id):
        """The node with this id in its folder, or None."""
        return next((node for node in self.nodes if node.node_id == node_id), None)

    def _name_of(self, node_id):
        found = self.node_of(node_id)
        return found and found.name

    def followers(self):
        """The nodes that run and do not lead."""
        leader = self.leader()
        return [node for node in self.nodes if node is not leader and node.is_running]

    def ctl(self, node, *arguments):
        """Run gomq-py-ctl for a node; returns what it prints."""
        return done(Runner("")(
            "--control-unix-path", f"{node.folder}/control.sock", *arguments, bare=True))

    # waiting

    def wait(self, predicate, what, timeout_s=WHOLE_S):
        """Until ``predicate()`` is true; returns it. Says how long it took."""
        began = time.monotonic()
        found = wait_until(
            predicate, timeout_s, lambda: f"{what}; {self.state()}", lambda _: self._never.wait(LOOK_S))
        self.say(f"{what}, after {time.monotonic() - began:.2f} s")
        return found

    def wait_whole(self):
        """Until there is a leader, and all are connected to it and in the in-sync set."""
        self.wait(self._all_stream, "all nodes stream")
        return self.wait(
            lambda: len(self.members()) == len(NAMES) and self._all_stream(),
            "all nodes are in the in-sync set", ADMITTED_S)

    def _all_stream(self):
        leader = self.leader()
        return leader is not None and len([
            follower for follower in leader.figures().get("followers", ())
            if follower["state"] == "streaming"]) == len(NAMES) - 1

    def wait_another(self, than):
        """Until another node leads."""
        def other():
            return (found := self.leader()) is not None and found is not than and found

        found = self.wait(other, "another node leads")
        self.say(f"{found.name} leads")
        return found

    def wait_progress(self, count=20):
        """Until each publisher has so many more confirms, and each consumer something more."""
        counts = self._counts()
        self.wait(
            lambda: all(now >= before + count for now, before in zip(self._counts(), counts)),
            f"{count} more confirms of each kind")

    def _counts(self):
        party = self.publishers[-1].party
        return [
            *[len(account.confirmed) for account in (*self.queues, self.stream)],
            sum(party.published.values()) - len(party.session.outgoing)]

    def state(self):
        """For people."""
        figures = {node.name: node.figures() for node in self.nodes}
        lost = {client.name: str(client.last_loss) for client in self.all_clients}
        return f"members {sorted(self.members())}, figures {figures}, lost connections {lost}"

    # the account

    def check(self):
        """Publishers pause; all that was confirmed is there, in order. AssertionError tells what is not so.
        """
        for consumer in self.consumers:
            consumer.resume()
        for publisher in self.publishers:
            publisher.pause()
        self.wait(lambda: all(publisher.is_quiet for publisher in self.publishers), "publishers have paused")
        try:
            self.wait(
                lambda: not any(account.lacking() for account in self.queues), "all in queues has come",
                self.account_s)
            self.wait(lambda: not self.session.lacking(), "all of MQTT has come", self.account_s)
        except AssertionError:
            for account in self.queues:
                if lacking := sorted(account.lacking()):
                    account.problem(f"confirmed and lost: {lacking[:20]} of {len(lacking)}")
        self.session.check()
        self.stream.check(self.wait(self._read_stream, "the stream is read"))
        if lacking := sorted(self.stream.lacking()):
            self.stream.problem(f"confirmed and lost: {lacking[:20]} of {len(lacking)}")
        problems = [problem for account in self.accounts for problem in account.problems]
        problems += [fault for client in self.all_clients for fault in client.faults]
        problems += [
            f"a connection to {target} from a node that nobody knows: {octets!r}"
            for target, octets in self.network.strangers]
        assert not problems, "\n".join(problems)
        for publisher in self.publishers:
            publisher.resume()

    def summary(self):
        """How much was confirmed, in one line."""
        confirmed = {account.name: len(account.confirmed) for account in (*self.queues, self.stream)}
        published = self.publishers[-1].party.published
        again = sum(account.again for account in self.queues)
        return (
            f"confirmed {confirmed}, {again} of them delivered again; MQTT: {published[1]} at QoS 1, "
            f"{published[2]} at QoS 2")

    def _read_stream(self):
        for port in self.doors("amqp"):
            with contextlib.suppress(ClientError, OSError):
                return clients.whole_stream(port, self.stream.name) or [(0, 0)]
        return None

    def _declare(self):
        leader = self.leader()
        with Connection(f"amqp://guest:guest@127.0.0.1:{leader.door('amqp')}") as connection:
            channel = connection.channel()
            for name, arguments in QUEUES.items():
                channel.queue_declare(name, durable=True, arguments=arguments)

    def _begin(self):
        self._subscriber.thread.start()
        self.wait(lambda: self._subscriber.is_subscribed, "the subscriber of MQTT has its session")
        for client in self.all_clients:
            if client is not self._subscriber:
                client.thread.start()
        self.wait_progress()
