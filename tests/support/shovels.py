"""Shovels of Peers (tests.support.federated): set, looked at, fed and emptied; one of an embedded broker."""
from urllib.parse import quote

import pika
import requests

from gomq_py.client.connection import Connection
from gomq_py.content.properties import Properties
from tests.support.federated import LOGIN, bodies
from tests.support.waiting import in_time, wait_until

# Between attempts: short, for brokers come back within a second.
DELAY_S = 0.1
PERSISTENT = Properties(delivery_mode=2)


def value_of(source, target, vhost, **more):
    """A shovel from queue ``a`` of one broker to queue ``b`` of another; further keys with underscores."""
    value = {
        "src-uri": source.uri(vhost), "src-queue": "a", "dest-uri": target.uri(vhost), "dest-queue": "b",
        "reconnect-delay": DELAY_S, **{key.replace("_", "-"): item for key, item in more.items()}}
    return {key: item for key, item in value.items() if item is not None}


def put(peer, vhost, value, name="s"):
    """Set a shovel over the API."""
    peer.call("PUT", "parameters", "shovel", vhost, name, value=value)


def shovel(peer, vhost, name="s"):
    """What the API shows of it."""
    return peer.call("GET", "shovels", vhost, name)


def wait_for(peer, vhost, name="s", **fields):
    """The shovel once each of the fields shown of it is as said."""
    def is_so():
        one = shovel(peer, vhost, name)
        return one if all(one.get(key) == value for key, value in fields.items()) else None
    try:
        return wait_until(is_so)
    except AssertionError:
        raise AssertionError(f"no {fields} in {shovel(peer, vhost, name)}") from None


def publish(peer, vhost, numbers, queue="a", exchange="", arguments=None):
    """Publish numbered messages, confirmed."""
    with Connection(peer.uri(vhost)) as connection:
        channel = connection.channel()
        if not exchange:
            channel.queue_declare(queue, durable=True, arguments=arguments)
        channel.confirm_select()
        channel.publish_many((exchange, queue, b"%d" % number, PERSISTENT) for number in numbers)
        assert channel.wait_for_confirms()


def arrived(peer, vhost, count, queue="b"):
    """Numbers of so many messages that arrived, in order."""
    channel = peer.channel(vhost)
    channel.queue_declare(queue, durable=True)
    return [int(body) for _, _, body in bodies(channel, queue, count)]


class Shovelled:
    """A queue of an embedded broker, named after the test, and a shovel from it to where ``start`` says."""

    def __init__(self, broker, name):
        self.broker, self.name = broker, name
        self.session = requests.Session()
        self.session.auth = LOGIN
        self.connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
        self.channel = self.connection.channel()
        self.dead = f"{name}-dead"
        self.channel.queue_declare(self.dead, durable=True)
        self.channel.queue_declare(name, durable=True, arguments={
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dead})
        self.channel.confirm_delivery()

    def call(self, verb, *path, **body):
        url = "/".join([self.broker.http_url, "api", *(quote(part, safe="") for part in path)])
        return self.session.request(verb, url, json=body or None, timeout=in_time(30))

    def start(self, uri, **more):
        """Set the shovel, from the queue to the URI; further keys with underscores."""
        said = self.put(uri, **more)
        assert said.ok, said.text
        return self

    def put(self, uri, **more):
        """The same; the answer."""
        value = {
            "src-uri": "amqp://", "src-queue": self.name, "dest-uri": uri, "reconnect-delay": 0.05,
            **{key.replace("_", "-"): said for key, said in more.items()}}
        return self.call("PUT", "parameters", "shovel", "/", self.name, value=value)

    def publish(self, *bodies, **properties):
        for body in bodies:
            self.channel.basic_publish("", self.name, body, pika.BasicProperties(**properties))

    def numbers(self, count):
        self.publish(*(b"%d" % number for number in range(count)))

    def shown(self):
        return self.call("GET", "shovels", "/", self.name).json()

    def wait_for(self, **values):
        """Until the shovel is shown so."""
        try:
            wait_until(lambda: values.items() <= self.shown().items())
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.shown()}") from None

    def waiting(self, queue=None):
        return self.channel.queue_declare(queue or self.name, passive=True).method.message_count

    def close(self):
        self.call("DELETE", "shovels", "/", self.name)
        self.channel.queue_delete(self.name)
        self.channel.queue_delete(self.dead)
        self.connection.close()
