"""Shovels whose destination is not there, or takes nothing: messages stay at their source, and the state says
why.
"""
import pytest

from gomq_py import Broker
from gomq_py.client.mqtt import MQTTClient
from tests.support.shovels import Shovelled
from tests.support.waiting import in_time, wait_until


@pytest.fixture
def shovelled(tmp_path, request):
    """From a queue of this test's broker, which has MQTT, too."""
    with Broker(str(tmp_path / "data"), http_port=0, mqtt_port=0, sync=False) as broker:
        shovelled = Shovelled(broker, request.node.name)
        yield shovelled
        shovelled.close()


def test_messages_for_the_queue_of_an_mqtt_session_stay(shovelled):
    """Clients of AMQP may not publish to it: each message is returned."""
    with MQTTClient(
        shovelled.broker.mqtt_url, client_identifier="s", clean_start=False, timeout_s=in_time(30)
    ) as session:
        session.subscribe("x", qos=1)
    shovelled.numbers(5)

    shovelled.start("amqp://", dest_queue="mqtt.s")
    wait_until(lambda: "(basic.return)" in shovelled.shown()["error"])

    shown = shovelled.shown()
    assert (shown["state"], shown["moved"]) == ("running", 0)
    assert "queue 'mqtt.s' is not there, or takes none" in shown["error"]
    shovelled.call("DELETE", "shovels", "/", shovelled.name)
    wait_until(lambda: shovelled.waiting() == 5)


def test_messages_for_a_queue_that_is_deleted_are_dead_lettered_after_the_limit(shovelled, monkeypatch):
    monkeypatch.setattr("gomq_py.links.poison_detection.NACKED_S", 0.1)
    shovelled.start("amqp://", dest_queue="there", dest_refusal_limit=2)
    shovelled.wait_for(state="running")
    shovelled.channel.queue_delete("there")

    shovelled.numbers(1)

    wait_until(lambda: shovelled.waiting(shovelled.dead) == 1)
    assert shovelled.shown()["set_aside"] == 1


def test_an_exchange_that_is_missing_after_a_restart_is_waited_for(tmp_path):
    """It was transient, and its shovel has run before; one that is set now ends in error."""
    folder = str(tmp_path / "data")
    with Broker(folder, http_port=0, sync=False) as broker:
        before = Shovelled(broker, "from")
        before.start("amqp://", dest_exchange="x")
        before.wait_for(state="error")
        before.channel.exchange_declare("x", "fanout")
        before.start("amqp://", dest_exchange="x")
        before.wait_for(state="running")
        before.connection.close()

    with Broker(folder, http_port=0, sync=False) as broker:
        after = Shovelled(broker, "from")
        wait_until(lambda: "no exchange 'x'" in after.shown()["error"] and after.shown()["reconnects"] > 1)
        assert after.shown()["state"] == "starting"

        after.channel.exchange_declare("x", "fanout")

        after.wait_for(state="running")
        after.close()
