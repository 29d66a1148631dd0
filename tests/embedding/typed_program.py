"""A program that uses the public names, which type checkers must find fully typed; never run."""
from concurrent.futures import Future
from pathlib import Path

import pytest

import gomq_py
from gomq_py.client.connection import Connection
from gomq_py.client.delivery import Delivery
from gomq_py.client.errors import ChannelClosed
from gomq_py.client.mqtt import MQTTClient
from gomq_py.content.properties import Properties
from gomq_py.dispatcher import Dispatcher, Float32, Retry, UInt8, TaskContext, current_task
from gomq_py.testing.brokers import ChildBroker

LIMIT_S = 30.0
app = Dispatcher("amqp://localhost", queue="pictures", unique_s=60)


@app.task(retries=3, timeout_s=LIMIT_S, backoff=0.5)
def resize(path: str, width: UInt8, quality: Float32 = 0.9) -> list[str]:
    context = current_task()
    if context is not None and context.attempt < 2:
        raise Retry(delay_s=1.5)
    return [path] * width


@app.task
async def announce(text: str) -> None:
    print(text)


@app.task(with_uuid=True)
def log(uuid: str, text: str) -> int:
    return len(uuid + text)


@app.before
def begun(context: TaskContext) -> None:
    print(context.name.upper(), context.args)


def send() -> str:
    sent: Future[str] = resize.submit("cat.png", width=640)
    announced = announce.send(("hello",), delay_s=5) + log.delay("without a uuid")
    return resize.delay("cat.png", 640) + sent.result() + announced + resize("cat.png", 2)[0]


def consume(connection: Connection) -> int:
    with connection.channel() as channel:
        channel.publish("", "jobs", b"x", Properties(delivery_mode=2, headers={"x-delay": 10}))
        received: list[Delivery] = []
        tag = channel.consume("jobs", received.append)
        try:
            connection.drain(LIMIT_S)
        except ChannelClosed as error:
            return error.reply_code
        channel.cancel(tag.lower())
        delivery = channel.get("jobs")
        headers = delivery.properties.headers if delivery is not None else None
        return channel.queue_declare("jobs").message_count + len(headers or {})


def test_with_brokers(gomq: ChildBroker, tmp_path: Path) -> None:
    gomq.nack_confirms(every=2)
    with gomq_py.Broker(tmp_path, heartbeat=10) as broker, Connection(broker.amqp_url) as connection:
        assert consume(connection) == broker.addresses["amqp"][1]
    with MQTTClient(gomq.mqtt_url) as client, pytest.raises(ValueError):
        message = client.next_message(LIMIT_S)
        assert message is None or message.topic_name
