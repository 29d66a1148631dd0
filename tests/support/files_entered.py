"""Which modules of the broker work on one thing that a client asks for, from the socket to the disk and back.
A profiler tells it, in the interpreted mode.

``python -m tests.support.files_entered`` prints them as JSON:

    {what was asked for: {module: [function, ...]}}

The broker is an embedded one with flushes, so its thread and those of its pool hold nothing but the broker;
the clients are in the main thread, which is not profiled. Each thing is done several times. A module counts
that most of these times entered, so that a timer which came between does not.
"""
import json
import os
import socket
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import gomq_py
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicGet, BasicGetOk, BasicReject, ChannelClose, ChannelCloseOk, ChannelOpen, ChannelOpenOk,
    ConfirmSelect, ConfirmSelectOk, QueueBind, QueueBindOk, QueueDeclare, QueueDeclareOk,
)
from tests.support.door import Client
from tests.support.mqtt_wire import octets
from tests.support.shovels import Shovelled
from tests.support.waiting import in_time, wait_until

PACKAGE = os.path.dirname(gomq_py.__file__) + os.sep
# What lets this module into the broker's thread.
NOT_COUNTED = {"embedded"}
TIMES = 5
DURABLE = b"\x10\0\2"


class Journeys:
    """A broker, its clients, and what its threads enter while one thing is done."""

    def __init__(self, folder):
        self.broker = gomq_py.Broker(folder, http_port=0, mqtt_port=0)
        self.entered = set()

    def __enter__(self):
        self.broker.start()
        return self

    def __exit__(self, *_):
        self.broker.close()

    def client(self):
        """A logged-in AMQP client with a channel."""
        client = Client(self._connected("amqp"))
        client.log_in()
        client.call(ChannelOpen(), ChannelOpenOk)
        return client

    def mqtt_client(self):
        """The socket of a connected MQTT client."""
        connected = self._connected("mqtt")
        connected.sendall(octets("10 LL 00 04 'MQTT' 04 C2 00 00 00 01 'c' 00 05 'guest' 00 05 'guest'"))
        assert received(connected, 4) == octets("20 02 00 00")
        return connected

    def _connected(self, protocol):
        connected = socket.create_connection(self.broker.addresses[protocol])
        connected.settimeout(in_time(30))
        return connected

    def queue(self, name):
        """The broker's queue, to be looked at only."""
        return self.broker.call(lambda launcher: launcher.broker.vhosts["/"].queues[name])

    def measured(self, act, prepare=lambda: None):
        """{module: functions} of what doing it enters; ``act`` returns when a client has seen that it is
        done. The first time is not counted.
        """
        every = []
        for _ in range(TIMES + 1):
            prepared = prepare()
            self._settle()
            self.entered = set()
            self._profile(self._called)
            act(prepared)
            self._settle()
            self._profile(None)
            every.append(self.entered)
        times = Counter(module for entered in every[1:] for module in {module for module, _ in entered})
        functions = set().union(*every[1:])
        return {
            module: sorted(function for of, function in functions if of == module)
            for module in sorted(times) if 2 * times[module] > TIMES
        }

    def _settle(self):
        """Until the disk has all that was asked for, acks that nobody waits for among it."""
        disk = self.broker.call(lambda launcher: launcher._node.durability.disk)
        wait_until(lambda: disk.is_idle and disk.background.is_idle)

    def _profile(self, function):
        threading.setprofile(function)  # the pool's threads ask for it before each piece of work
        self.broker.call(lambda _: sys.setprofile(function))

    def _called(self, frame, event, _argument):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE):
            name = path[len(PACKAGE):].removesuffix(".py").replace(os.sep, ".")
            if name not in NOT_COUNTED:
                self.entered.add((name, frame.f_code.co_qualname))


def received(connected, size):
    """So many octets."""
    taken = b""
    while len(taken) < size:
        more = connected.recv(size - len(taken))
        assert more, "the broker has closed the socket"
        taken += more
    return taken


def declare(client, name, arguments):
    client.send_method(QueueDeclare(queue=name, durable=True, arguments=arguments))


def publish(client, queue):
    """Publish a durable message and wait for its confirm."""
    client.publish(queue, b"x", properties=DURABLE)
    client.expect(BasicAck)


def publish_by_mqtt(client):
    """Publish at QoS 1 and wait for the PUBACK."""
    client.sendall(octets("32 LL 00 01 't' 00 01 'x'"))
    assert received(client, 4) == octets("40 02 00 01")


def another_channel(client):
    """The broker has closed the channel: open it again."""
    client.send_method(ChannelCloseOk())
    client.call(ChannelOpen(), ChannelOpenOk)


def measure(folder):
    """All of them."""
    with Journeys(folder) as journeys:
        client, publisher, mqtt = journeys.client(), journeys.client(), journeys.mqtt_client()
        publisher.call(ConfirmSelect(), ConfirmSelectOk)
        dead_lettering = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        for name in ("published", "acked", "dying", "dead", "by-mqtt", "shovelled"):
            declare(client, name, dead_lettering if name == "dying" else {})
            client.expect(QueueDeclareOk)
        client.call(QueueBind(queue="by-mqtt", exchange="amq.topic", routing_key="t"), QueueBindOk)
        acked, dying, dead, shovelled = map(journeys.queue, ("acked", "dying", "dead", "shovelled"))

        def take(queue):
            publish(publisher, queue)
            client.send_method(BasicGet(queue=queue))
            return client.expect_message(BasicGetOk)[0].delivery_tag

        def ack(tag):
            client.send_method(BasicAck(delivery_tag=tag))
            wait_until(lambda: acked.unacked_count == 0)

        def reject(tag):
            count = dead.ready_count
            client.send_method(BasicReject(delivery_tag=tag, requeue=False))
            wait_until(lambda: dead.ready_count > count and dying.unacked_count == 0)

        def shovel(_):
            count = shovelled.ready_count
            publish(publisher, "source")
            wait_until(
                lambda: shovelled.ready_count > count and source.ready_count == source.unacked_count == 0)

        def ask_without_permission(_):
            declare(client, "refused", {})
            client.expect(ChannelClose)

        found = {
            "publish with confirm": journeys.measured(lambda _: publish(publisher, "published")),
            "ack": journeys.measured(ack, lambda: take("acked")),
            "dead letter": journeys.measured(reject, lambda: take("dying")),
            "MQTT QoS 1 to a queue": journeys.measured(lambda _: publish_by_mqtt(mqtt)),
        }
        link = Shovelled(journeys.broker, "source").start("amqp://", dest_queue="shovelled")
        link.wait_for(state="running")
        source = journeys.queue("source")
        found["shovelled message"] = journeys.measured(shovel)
        link.close()
        journeys.broker.call(
            lambda launcher: launcher.broker.users.set_permission("guest", "/", "^allowed", "", ""))
        ask_without_permission(None)
        found["permission check"] = journeys.measured(
            ask_without_permission, lambda: another_channel(client))
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder) / "data"), indent=1))
