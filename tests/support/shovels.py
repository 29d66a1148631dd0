"""Shovels of Peers (tests.support.federated): set, looked at, fed and emptied."""
from gomq_py.client.connection import Connection
from gomq_py.content.properties import Properties
from tests.support.federated import bodies
from tests.support.waiting import wait_until

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
