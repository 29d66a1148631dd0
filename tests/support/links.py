"""What tests of links share: a client on gevent's sockets, numbered messages, what is in a queue."""
import gevent
from gevent import socket as gevent_socket

from gomq_py.client.backoff import Backoff
from gomq_py.client.connection import Connection
from tests.support.waiting import TIMEOUT_S, wait_until

QUICK = Backoff(first_s=0.01, most_s=0.2)


def connect(uri, **options):
    """A client's connection; may switch."""
    return Connection(uri, socket_module=gevent_socket, **options)


def until(predicate, **options):
    """Wait for it while greenlets run."""
    return wait_until(predicate, sleep=gevent.sleep, **options)


def ended(link):
    """Stop a link and wait for its end."""
    link.stop()
    until(lambda: link.has_ended)


def fill(channel, queue, count, properties=None, body=b"%d", first=0):
    """Publish numbered messages and wait for their confirms."""
    if not channel.confirming:
        channel.confirm_select()
    channel.publish_many(
        ("", queue, body % number, properties) for number in range(first, first + count))
    assert channel.wait_for_confirms()


def depth(channel, queue):
    """How many messages wait there."""
    return channel.queue_declare(queue, passive=True).message_count


def consumers(channel, queue):
    """How many consumers it has."""
    return channel.queue_declare(queue, passive=True).consumer_count


def take_all(channel, queue, count=None):
    """The next ``count`` messages, or every message there is, in order."""
    least = depth(channel, queue) if count is None else count
    tag = channel.consume(queue, no_ack=True)
    taken = []
    while len(taken) != count:
        # what waits there comes, however long that takes; only for more nobody waits long
        delivery = channel.next_delivery(TIMEOUT_S if len(taken) < least else 0.3)
        if delivery is None:
            break
        taken.append(delivery)
    channel.cancel(tag)
    return taken


def numbers(deliveries):
    """Which of the numbered messages these are."""
    return [int(delivery.body.split()[0]) for delivery in deliveries]
