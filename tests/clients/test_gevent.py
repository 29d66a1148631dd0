"""Blocking clients under gevent: patched pika and kombu in a process of their own,
and pika's gevent adapter, which needs no patching.
"""
import subprocess
import sys

import gevent
import gevent.event
import pika
from pika.adapters.gevent_connection import GeventConnection

from tests.support.command import ROOT
from tests.support.waiting import in_time

PATIENCE_S = in_time(30)


def test_patched_pika_and_kombu_in_greenlets(broker_url):
    command = [sys.executable, "-m", "tests.clients.foreign.gevent_clients", broker_url]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=in_time(100), check=False, cwd=ROOT
    )

    assert done.stdout == "all done\n", done.stderr


def test_pikas_gevent_adapter(broker_url):
    received = gevent.event.AsyncResult()

    def on_open(connection):
        connection.channel(on_open_callback=on_channel)

    def on_channel(channel):
        channel.queue_declare("", exclusive=True, callback=lambda frame: on_queue(channel, frame))

    def on_queue(channel, frame):
        queue = frame.method.queue
        channel.basic_consume(queue, lambda _, __, ___, body: received.set(body), auto_ack=True)
        channel.basic_publish("", queue, b"through greenlets")
    connection = GeventConnection(pika.URLParameters(broker_url), on_open_callback=on_open)
    loop = gevent.spawn(connection.ioloop.start)

    assert received.get(timeout=PATIENCE_S) == b"through greenlets"
    connection.add_on_close_callback(lambda *_: connection.ioloop.stop())
    connection.close()
    loop.join(PATIENCE_S)
    assert connection.is_closed
