"""FastStream over AMQP (aio-pika below it) and over MQTT 5 (zmqtt): handlers that publish on, also behind a
restart.
"""
import asyncio

import pytest
from faststream.mqtt import MQTTBroker, QoS, ReconnectConfig
from faststream.rabbit import RabbitBroker
from faststream.security import SASLPlaintext

from tests.support.broker_process import BrokerProcess
from tests.support.ports import reserve
from tests.support.waiting import wait_until_async


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "data", port=reserve(), mqtt_port=reserve()) as process:
        yield process


def rabbit(broker):
    return RabbitBroker(f"{broker.amqp_url}?heartbeat=2", reconnect_interval=0.1), {}, "."


def mqtt(broker):
    app = MQTTBroker(
        host="127.0.0.1", port=broker.ports["mqtt"], client_id="faststream",
        security=SASLPlaintext("guest", "guest"),
        reconnect=ReconnectConfig(initial_delay=0.1, max_delay=0.1, max_attempts=None))
    return app, {"qos": QoS.AT_LEAST_ONCE}, "/"


@pytest.mark.parametrize("app_of", [rabbit, mqtt])
def test_handlers_of_faststream_publish_on_and_again_behind_a_restart(broker, app_of):
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

        async def is_answered(number):
            """Publish, and take the answer. A message is for nobody until FastStream has subscribed again."""
            try:
                async with asyncio.timeout(1):
                    await app.publish({"number": number}, orders, **options)
                    return await finished.get() == number + 1
            except Exception:  # as each library has them while there is no connection
                return False

        await app.start()
        assert await is_answered(1)
        await asyncio.to_thread(broker.restart)
        await wait_until_async(lambda: is_answered(3))
        await app.stop()

    asyncio.run(go())
