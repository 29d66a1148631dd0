"""Run by test_gevent: blocking clients under gevent's patched sockets, twenty at a time,
against the broker at the URL given.
"""
from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402  everything else comes after patching

import gevent  # noqa: E402
import kombu  # noqa: E402
import pika  # noqa: E402

from tests.support.waiting import in_time  # noqa: E402


def use_pika(url, number):
    """A message of one's own, there and back, ten times."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        queue = channel.queue_declare("", exclusive=True).method.queue
        for n in range(10):
            channel.basic_publish("", queue, f"{number}-{n}")
        received = []
        for method, _, body in channel.consume(queue, inactivity_timeout=in_time(30)):
            received.append(body.decode())
            channel.basic_ack(method.delivery_tag)
            if len(received) == 10:
                break
        assert received == [f"{number}-{n}" for n in range(10)], received
        channel.cancel()


def use_kombu(url, number):
    """The same with SimpleBuffer."""
    with kombu.Connection(url) as connection:
        buffer = connection.SimpleBuffer(f"gevent-{number}")
        for n in range(10):
            buffer.put(n)
        assert [buffer.get(timeout=in_time(30)).payload for _ in range(10)] == list(range(10))
        buffer.close()


greenlets = [gevent.spawn(use, sys.argv[1], number) for number in range(10) for use in (use_pika, use_kombu)]
gevent.joinall(greenlets, timeout=in_time(90), raise_error=True)
assert all(greenlet.successful() for greenlet in greenlets)
print("all done")
