"""Brokers that federate: processes, each with a name of its own, set up over their management APIs."""
from urllib.parse import quote

import pika
import requests

from tests.support import certificates
from tests.support.broker_process import BrokerProcess
from tests.support.ports import reserve
from tests.support.rabbitmq_process import RabbitMQProcess
from tests.support.waiting import in_time, wait_until

LOGIN = ("guest", "guest")
TIMEOUT_S = in_time(30)


class Peer:
    """A broker, ours or RabbitMQ, with its management API. ``name`` is what it calls itself."""

    def __init__(self, process, http_url, name, login=LOGIN):
        self.process = process
        self.http_url = http_url
        self.session = requests.Session()
        self.session.auth = login
        self.connections = []
        if name:
            self.call("PUT", "cluster-name", name=name)
        self.name = self.call("GET", "cluster-name")["name"]

    def as_user(self, name, password):
        """The same, to another user."""
        return Peer(self.process, self.http_url, "", (name, password))

    def request(self, verb, *path, **body):
        """The answer."""
        url = "/".join([self.http_url, "api", *(quote(part, safe="") for part in path)])
        return self.session.request(
            verb, url, json=body or ({} if verb in ("PUT", "POST") else None), timeout=TIMEOUT_S)

    def call(self, verb, *path, **body):
        """The JSON of the answer, None where it has none."""
        answer = self.request(verb, *path, **body)
        assert answer.ok, f"{verb} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def make_vhost(self, vhost):
        self.call("PUT", "vhosts", vhost)
        self.call("PUT", "permissions", vhost, "guest", configure=".*", write=".*", read=".*")

    def uri(self, vhost):
        return f"amqp://guest:guest@127.0.0.1:{self.process.port}/{quote(vhost, safe='')}"

    def federate(self, vhost, *peers, **more):
        """Take what is published to exchanges, and waits in queues, called fed... from the same of others."""
        for peer in peers:
            value = {key.replace("_", "-"): said for key, said in more.items()}
            self.call("PUT", "parameters", "federation-upstream", vhost, peer.name, value={
                "uri": peer.uri(vhost), "reconnect-delay": 0.2, **value})
        self.call("PUT", "policies", vhost, "federated", pattern="^fed", definition={
            "federation-upstream-set": "all"})

    def links(self, vhost):
        return self.call("GET", "federation-links", vhost)

    def wait_for_links(self, vhost, count, status="running"):
        """The links of the vhost, once there are so many and all are so."""
        def are_there():
            links = self.links(vhost)
            return len(links) == count and all(link["status"] == status for link in links)
        wait_until(are_there, TIMEOUT_S, lambda: f"{count} links {status} in {self.links(vhost)}")
        return self.links(vhost)

    def channel(self, vhost):
        connection = pika.BlockingConnection(pika.URLParameters(self.uri(vhost)))
        self.connections.append(connection)
        return connection.channel()

    def bindings(self, vhost, source):
        """Keys of the bindings from an exchange."""
        return sorted(
            one["routing_key"] for one in self.call("GET", "bindings", vhost) if one["source"] == source)

    def ready(self, vhost, queue):
        """Messages in a queue, counted by a client: the API's numbers may be of a moment ago."""
        channel = self.channel(vhost)
        count = channel.queue_declare(queue, passive=True).method.message_count
        self.connections.pop().close()
        return count

    def hang_up(self):
        """Close what tests have opened."""
        for connection in self.connections:
            if connection.is_open:
                connection.close()
        self.connections.clear()


def start_gomq(folder, name, **options):
    """One of ours. The caller stops ``process``."""
    process = BrokerProcess(folder, **{"http_port": 0, **options}).start()
    return Peer(process, f"http://127.0.0.1:{process.ports['http']}", name)


def bodies(channel, queue, count, within_s=TIMEOUT_S):
    """The bodies of so many messages of a queue, taken as they come."""
    got = []
    for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=within_s):
        if method is None:
            raise AssertionError(f"{len(got)} of {count} messages came: {got[:10]}")
        got.append((method, properties, body))
        if len(got) == count:
            break
    channel.cancel()
    return got


RABBITMQ_PLUGINS = (
    "rabbitmq_shovel", "rabbitmq_shovel_management", "rabbitmq_federation", "rabbitmq_federation_management")
RABBITMQ_CONFIGURATION = """
max_message_size = 1048576
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {files.authority}
ssl_options.certfile = {files.certificate}
ssl_options.keyfile = {files.key}
"""


def start_rabbitmq(folder):
    """A RabbitMQ with its plugins, and a port of TLS: ``tls_port``, ``certificates``. The caller stops
    ``process``.
    """
    port, files = reserve(), certificates.make(folder / "certificates")
    process = RabbitMQProcess(
        folder, plugins=RABBITMQ_PLUGINS,
        configuration=RABBITMQ_CONFIGURATION.format(port=port, files=files)).start()
    peer = Peer(process, process.http_url, "rabbit")
    peer.tls_port, peer.certificates = port, files
    return peer
