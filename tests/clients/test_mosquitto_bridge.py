"""Mosquitto as a bridge to our broker, with its usual settings: both ways, nothing echoes, and restarts of
either.
"""
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.mosquitto_process import MosquittoProcess
from tests.support.paho_client import PahoClient
from tests.support.ports import reserve

STATE = "$SYS/broker/connection/{}/state"


def bridge_to(port, version):
    """Lines of Mosquitto's configuration; what is not said is as usual, but for how long it waits before it
    connects again.
    """
    return (
        "max_inflight_messages 20",  # 0 would be a receive maximum that MQTT 5 does not know
        "connection to-us", f"address 127.0.0.1:{port}", "remote_username guest", "remote_password guest",
        "local_clientid near", "remote_clientid far", "restart_timeout 1",
        f"bridge_protocol_version {version}", "topic up/# out 1", "topic down/# in 1", "topic both/# both 1")


@pytest.fixture
def ours(tmp_path):
    with BrokerProcess(tmp_path / "ours", mqtt_port=reserve()) as broker:
        yield broker


@pytest.fixture
def mosquitto(request, ours, tmp_path):
    version = getattr(request, "param", "mqttv311")
    with MosquittoProcess(tmp_path, *bridge_to(ours.ports["mqtt"], version)) as process:
        yield process


def state_of(broker, wanted):
    """The bridge's state, kept at our broker, is this one, at once or soon."""
    watching = PahoClient(None, "watch", port=broker.ports["mqtt"]).subscribe(STATE.format("far"))
    while watching.next().payload != wanted:
        pass
    watching.close()


def both(ours, mosquitto):
    """A client of each, subscribed to everything that crosses."""
    here = PahoClient(None, "at-ours", port=ours.ports["mqtt"])
    there = PahoClient(None, "at-theirs", port=mosquitto.port)
    for side in (here, there):
        for topic_filter in ("both/#", "up/#", "down/#"):
            side.subscribe(topic_filter)
    return here, there


def shown(message):
    return message.topic, message.payload


def wait_for(client, *wanted):
    """This message comes, behind others that are retained."""
    while shown(client.next()) != wanted:
        pass


@pytest.mark.needs_program("mosquitto")
@pytest.mark.parametrize("mosquitto", ["mqttv31", "mqttv311", "mqttv50"], indirect=True)
def test_bridge_of_mosquitto_crosses_both_ways_without_an_echo(ours, mosquitto):
    state_of(ours, b"1")
    here, there = both(ours, mosquitto)

    for payload in (b"1", b"2"):  # what echoed would come in front of the next one
        for publisher in (here, there):
            publisher.publish("both/x", payload)
            assert shown(here.next()) == shown(there.next()) == ("both/x", payload)
    there.publish("up/x", b"3")
    assert shown(there.next()) == shown(here.next()) == ("up/x", b"3")
    here.publish("down/x", b"4", retain=True)
    assert shown(here.next()) == shown(there.next()) == ("down/x", b"4")

    late = PahoClient(None, "late", port=mosquitto.port).subscribe("down/#").next()
    assert shown(late) == ("down/x", b"4") and late.retain
    here.close()
    there.close()


@pytest.mark.needs_program("mosquitto")
def test_bridge_of_mosquitto_goes_on_behind_a_restart_of_either(ours, mosquitto):
    state_of(ours, b"1")

    ours.stop()
    there = PahoClient(None, "at-theirs", port=mosquitto.port)
    there.publish("up/x", b"while ours is away", retain=True)
    there.close()
    ours.start()
    here = PahoClient(None, "at-ours", port=ours.ports["mqtt"]).subscribe("up/#")
    wait_for(here, "up/x", b"while ours is away")
    here.close()

    mosquitto.kill()
    state_of(ours, b"0")  # its will
    mosquitto.start()
    state_of(ours, b"1")
    here, there = both(ours, mosquitto)
    here.publish("both/x", b"down again")
    there.publish("both/x", b"up again")
    wait_for(there, "both/x", b"down again")
    wait_for(here, "both/x", b"up again")
    here.close()
    there.close()
