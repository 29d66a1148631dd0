"""Mosquitto as a bridge to our broker: six bridges of one Mosquitto, with its usual settings and others.

Topics cross both ways, nothing echoes, and they go on behind restarts of either.

What is published to our broker before a bridge has subscribed is not for it: each test waits until a retained
message has crossed, by the subscription that the bridge asks for last.
"""
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.mosquitto_process import MosquittoProcess
from tests.support.paho_client import PahoClient
from tests.support.ports import reserve

# By what their topics begin with.
BRIDGES = {
    "v31": ("bridge_protocol_version mqttv31",),
    "v311": (),
    "v5": ("bridge_protocol_version mqttv50",),
    "clean": ("cleansession true",),
    "quiet": ("notifications false",),
    "public": ("try_private false",),  # it does not say that it is a bridge: what it publishes comes back
}
QOS = {"v5": 2}
# Mosquitto keeps what these have not delivered, and so do we for those that ask for it. One of MQTT 5 asks
# for no session expiry.
KEPT = BRIDGES.keys() - {"clean"}
KEPT_HERE = KEPT - {"v5"}
PRIVATE = BRIDGES.keys() - {"public"}


def lines(port):
    """Of Mosquitto's configuration; it waits for a second before it connects again."""
    yield "max_inflight_messages 20"  # 0 would be a receive maximum that MQTT 5 does not know
    for name, settings in BRIDGES.items():
        qos = QOS.get(name, 1)
        yield from (
            f"connection {name}", f"address 127.0.0.1:{port}", "restart_timeout 1",
            "remote_username guest", "remote_password guest", f"remote_clientid {name}",
            f"local_clientid near-{name}", *settings, f"topic {name}/up/# out {qos}",
            f"topic {name}/down/# in {qos}", f"topic {name}/both/# both {qos}")


@pytest.fixture
def ours(tmp_path):
    with BrokerProcess(tmp_path / "ours", mqtt_port=reserve()) as broker:
        yield broker


@pytest.fixture
def mosquitto(ours, tmp_path):
    with MosquittoProcess(tmp_path, *lines(ours.ports["mqtt"])) as process:
        yield process


class Side:
    """A client of one of the two, subscribed to all that crosses."""

    def __init__(self, port, client_id):
        self.client = PahoClient(None, client_id, port=port)
        self.got = set()
        for name in BRIDGES:
            self.client.subscribe(f"{name}/#", 2)

    def publish(self, topic, payload, retain=False, names=BRIDGES):
        """To this topic of each of these bridges."""
        for name in names:
            self.client.publish(f"{name}/{topic}", payload, retain=retain)

    def next(self):
        """(topic, payload) of the next message."""
        message = self.client.next()
        self.got.add((message.topic, message.payload))
        return message.topic, message.payload

    def wait_for(self, topic, payload, names=BRIDGES):
        """This payload has come, or comes, to this topic of each of these bridges, among others."""
        missing = {(f"{name}/{topic}", payload) for name in names} - self.got
        while missing:
            missing.discard(self.next())

    def close(self):
        self.client.close()


def both_sides(ours, mosquitto, payload):
    """A Side of each, once every bridge has subscribed. ``payload`` tells one call from another."""
    here, there = Side(ours.ports["mqtt"], "here"), Side(mosquitto.port, "there")
    here.publish("both/ready", payload, retain=True)
    for side in (here, there):
        side.wait_for("both/ready", payload)
    return here, there


def wait_for_states(ours, wanted):
    """Bridges that tell their state have this one: they publish that they are connected; their wills, that
    they are not.
    """
    watching = PahoClient(None, "watch", port=ours.ports["mqtt"])
    missing = {f"$SYS/broker/connection/{name}/state" for name in BRIDGES if name != "quiet"}
    for topic in missing:
        watching.subscribe(topic)
    while missing:
        message = watching.next()
        if message.payload == wanted:
            missing.discard(message.topic)
    watching.close()


@pytest.mark.needs_program("mosquitto")
def test_bridges_of_mosquitto_cross_both_ways_without_an_echo(ours, mosquitto):
    wait_for_states(ours, b"1")
    here, there = both_sides(ours, mosquitto, b"0")

    for name in BRIDGES:
        for payload in (b"1", b"2") if name != "public" else ():  # what echoed would come before the next one
            for publisher in (here, there):
                publisher.publish("both/x", payload, names=[name])
                assert here.next() == there.next() == (f"{name}/both/x", payload)
        there.publish("up/x", b"3", names=[name])
        assert there.next() == here.next() == (f"{name}/up/x", b"3")
        here.publish("down/x", b"4", True, names=[name])
        assert here.next() == there.next() == (f"{name}/down/x", b"4")

    for name in PRIVATE:
        kept = there.client.subscribe(f"{name}/down/#").next()
        assert (kept.topic, kept.payload, kept.retain) == (f"{name}/down/x", b"4", True)
    here.close()
    there.close()


@pytest.mark.needs_program("mosquitto")
def test_bridges_of_mosquitto_go_on_behind_restarts_of_either(ours, mosquitto):
    here, there = both_sides(ours, mosquitto, b"0")

    here.close()
    ours.stop()
    there.publish("up/x", b"while ours is away", True, KEPT)
    ours.start()
    here = Side(ours.ports["mqtt"], "here")
    here.publish("down/x", b"before they are back", names=KEPT_HERE)
    here.wait_for("up/x", b"while ours is away", KEPT)
    there.wait_for("down/x", b"before they are back", KEPT_HERE)

    there.close()
    mosquitto.kill()
    wait_for_states(ours, b"0")
    here.publish("down/x", b"while theirs is away", True, PRIVATE)
    here.close()
    mosquitto.start()
    wait_for_states(ours, b"1")
    here, there = both_sides(ours, mosquitto, b"1")
    there.wait_for("down/x", b"while theirs is away", PRIVATE)
    there.publish("both/x", b"up again")
    here.wait_for("both/x", b"up again")
    here.close()
    there.close()
