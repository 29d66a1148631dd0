"""Nodes of a cluster that elects its leader: processes on ports of their own, beside a real etcd."""

import pika
import requests
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from tests.support.broker_process import BrokerProcess
from tests.support.ports import reserve
from tests.support.waiting import in_time, wait_until

# Short, so that tests do not wait for long; etcd's shortest lease is 2 s. On a busy machine a node that lives
# may stand still for longer, and is not to be deposed, nor to leave the nodes in sync.
LEASE_TTL_S, ACK_TIMEOUT_S = round(in_time(2)), round(in_time(1))
SECRET = "a secret of the cluster"
ELECTION_S = in_time(30)
FAULTS = (pika.exceptions.AMQPError, AMQPConnectorException, OSError)


class ElectedNode(BrokerProcess):
    """One node. Its ports stay when it is started again."""

    def __init__(self, folder, etcd, environment=(), **options):
        cluster_port = reserve()
        limits = {"clustering_lease_ttl": LEASE_TTL_S, "clustering_ack_timeout": ACK_TIMEOUT_S}
        super().__init__(
            folder, environment={"GOMQ_CLUSTER_PASSWORD": SECRET, **dict(environment)}, clustering=True,
            port=reserve(), http_port=reserve(),
            control_unix_path=f"{folder}.sock", clustering_port=cluster_port,
            clustering_advertised_uri=f"127.0.0.1:{cluster_port}",
            clustering_etcd_endpoints=etcd.endpoint if hasattr(etcd, "endpoint") else etcd,
            **limits | options)

    @property
    def arguments(self):
        arguments = super().arguments
        arguments[arguments.index("gomq_py")] = "tests.support.elected_node"
        return arguments

    @property
    def amqp_url(self):
        return f"amqp://guest:guest@127.0.0.1:{self._options['port']}/%2F"

    @property
    def figures(self):
        """What the node says of itself and the cluster; {} while it does not answer."""
        try:
            answer = requests.get(
                f"http://127.0.0.1:{self._options['http_port']}/api/cluster", auth=("guest", "guest"),
                timeout=in_time(5))
            return answer.json() if answer.ok else {}
        except (OSError, ValueError):
            return {}

    def is_leading(self):
        """Whether it leads, with open doors."""
        figures = self.figures
        return figures.get("role") == "leader" and not figures.get("fenced", True) and figures

    def leads_in_sync(self, count):
        """Whether it leads, and so many nodes are in sync, of which each other one streams."""
        figures = self.is_leading()
        return figures and len(figures["in_sync"]) == count and set(figures["in_sync"]) <= {
            figures["node_id"],
            *(one["node"] for one in figures["followers"] if one["state"] == "streaming")}


class Cluster:
    """Nodes that share one etcd. ``nodes``: all, also those that are not running; ``kind``: their class."""

    def __init__(self, folder, etcd, count=3, kind=ElectedNode, **options):
        self.nodes = [kind(folder / f"node-{number}", etcd, **options) for number in range(count)]

    def __enter__(self):
        for node in self.nodes:
            node.spawn()
        self.leader()
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            node.kill()

    @property
    def running(self):
        return [node for node in self.nodes if node.is_running]

    def describe(self):
        """The figures and logs of all nodes, for the message of a failed test."""
        return "\n".join(f"{node.figures}\n{node.log_text}" for node in self.nodes)

    def leader(self, but=None):
        """The node that leads, another one than ``but``. Waits for it."""
        return wait_until(
            lambda: next((node for node in self.running if node is not but and node.is_leading()), None),
            ELECTION_S, lambda: f"a leader: {self.describe()}")

    def wait_in_sync(self, count):
        """Wait until so many nodes are in sync, and connected: after an election the set names some that are
        not. Returns the leader.
        """
        return wait_until(
            lambda: next((node for node in self.running if node.leads_in_sync(count)), None), ELECTION_S,
            lambda: f"{count} nodes in sync: {self.describe()}")


class Client:
    """A publisher of numbered messages, which knows which were confirmed; it goes from node to node."""

    def __init__(self, cluster, queue="q"):
        self._cluster, self._queue = cluster, queue
        self._channel = self._connection = None
        self.confirmed = []
        self.number = 0

    def connect(self, timeout_s=ELECTION_S):
        """Connect to whoever serves clients."""
        def attempt():
            for node in self._cluster.running:
                try:
                    parameters = pika.URLParameters(node.amqp_url)
                    parameters.socket_timeout = parameters.stack_timeout = 3
                    parameters.blocked_connection_timeout, parameters.heartbeat = in_time(30), 4
                    connection = pika.BlockingConnection(parameters)
                    channel = connection.channel()
                    channel.confirm_delivery()
                    channel.queue_declare(self._queue, durable=True)
                    self._connection, self._channel = connection, channel
                    return True
                except FAULTS:
                    continue
            return False

        wait_until(attempt, timeout_s, lambda: f"a node that serves clients: {self._cluster.describe()}")
        return self

    def publish(self, count):
        """Publish so many messages that are confirmed, each again and again until it is."""
        done = 0
        while done < count:
            try:
                if self._channel is None:
                    self.connect()
                self._channel.basic_publish(
                    "", self._queue, str(self.number).encode(), pika.BasicProperties(delivery_mode=2))
                self.confirmed.append(self.number)
                done += 1
                self.number += 1
            except FAULTS:
                self._channel = None

    def take_all(self):
        """The numbers in the queue, which is emptied."""
        self.connect()
        numbers = []
        while (got := self._channel.basic_get(self._queue, auto_ack=True))[0] is not None:
            numbers.append(int(got[2]))
        return numbers

    def close(self):
        if self._connection is not None and self._connection.is_open:
            self._connection.close()
