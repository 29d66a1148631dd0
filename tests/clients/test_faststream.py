"""FastStream over AMQP (aio-pika below it) and over MQTT 5 (zmqtt): handlers that publish on."""
import asyncio

import pytest
from faststream.mqtt import MQTTBroker, QoS
from faststream.rabbit import RabbitBroker
from faststream.security import SASLPlaintext

from tests.support.broker_process import BrokerProcess
from tests.support.ports import reserve
from tests.support.waiting import TIMEOUT_S


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "data", port=reserve(), mqtt_port=reserve()) as process:
        yield process


def rabbit(broker):
    return RabbitBroker(f"{broker.amqp_url}?heartbeat=2"), {}, "."


def mqtt(broker):
    app = MQTTBroker(
        host="127.0.0.1", port=broker.ports["mqtt"], client_id="faststream",
        security=SASLPlaintext("guest", "guest"))
    return app, {"qos": QoS.AT_LEAST_ONCE}, "/"


@pytest.mark.parametrize("app_of", [rabbit, mqtt])
def test_handlers_of_faststream_publish_on(broker, app_of):
    async def go():
        app, options, separator = app_of(broker)
        orders, done = f"orders{separator}new", f"orders{separator}done"
        finished: asyncio.Queue = asyncio.Queue()

        @app.subscriber(orders, **options)
        @app.publisher(done, **options)
        async def handle(order: dict) -> dict:
            return {"number": order["number"] + 1}

        @app.subscriber(done, **options)
        async def note(order: dict):
            await finished.put(order["number"])

        await app.start()
        await app.publish({"number": 1}, orders, **options)
        assert await asyncio.wait_for(finished.get(), TIMEOUT_S) == 2
        await app.stop()

    asyncio.run(go())
