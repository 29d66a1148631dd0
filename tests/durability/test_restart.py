"""What a consumer is told of a message's past survives a restart, an orderly one and a kill: redelivered,
x-delivery-count, and the order.
"""
import pytest

from gomq_py.amqp.wire import methods
from gomq_py.content.properties import Properties
from tests.durability.wire_client import WireClient
from tests.support.waiting import TIMEOUT_S

QUEUE = "jobs"
MESSAGES = 6
PREFETCH = 4


def delivered(client, count):
    """{body: (delivery tag, redelivered, x-delivery-count or 0)} of the next deliveries, in their order."""
    found = {}
    while len(found) < count:
        batch = client.receive(TIMEOUT_S)
        assert batch, f"only {found}"
        for method, properties, body in batch:
            headers = Properties.decode(properties).headers or {}
            found[body.decode()] = (
                method.delivery_tag, method.redelivered, headers.get("x-delivery-count", 0)
            )
    return found


def consumer(port):
    client = WireClient(port)
    client.call(methods.BasicQos(prefetch_count=PREFETCH), methods.BasicQosOk)
    client.call(methods.BasicConsume(queue=QUEUE), methods.BasicConsumeOk)
    return client


def fill(port):
    """Six confirmed messages in a queue that counts deliveries."""
    client = WireClient(port)
    client.call(methods.ConfirmSelect(), methods.ConfirmSelectOk)
    client.call(
        methods.QueueDeclare(queue=QUEUE, durable=True, arguments={"x-delivery-limit": 100}),
        methods.QueueDeclareOk,
    )
    for number in range(MESSAGES):
        client.send(
            methods.BasicPublish(routing_key=QUEUE), Properties(delivery_mode=2).encode(),
            str(number).encode(),
        )
    confirmed = 0
    while confirmed < MESSAGES:
        for method, _, _ in client.receive(TIMEOUT_S):
            confirmed = method.delivery_tag
    client.close()


def age(client):
    """Message 0 fails three times, 1 once, 3 is acked; then 0 to 2 and 4 are in the consumer's hands
    and 5 was never delivered.
    """
    delivered(client, PREFETCH)
    for tag in (1, 5, 6):
        client.send(methods.BasicNack(delivery_tag=tag, requeue=True))
        assert list(delivered(client, 1)) == ["0"]
    client.send(methods.BasicNack(delivery_tag=2, requeue=True))
    assert list(delivered(client, 1)) == ["1"]
    client.send(methods.BasicAck(delivery_tag=4))
    assert list(delivered(client, 1)) == ["4"]
    client.call(methods.BasicQos(prefetch_count=PREFETCH), methods.BasicQosOk)


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_redelivered_and_delivery_counts_survive_a_restart(broker_process, crash):
    broker = broker_process().start()
    fill(broker.port)
    client = consumer(broker.port)
    age(client)

    broker.kill() if crash else broker.stop()
    client.close()
    broker.start()
    first = delivered(consumer(broker.port), PREFETCH)
    broker.kill() if crash else broker.stop()
    broker.start()
    client = WireClient(broker.port)
    client.call(methods.BasicConsume(queue=QUEUE), methods.BasicConsumeOk)
    second = delivered(client, MESSAGES - 1)

    assert [(body, redelivered, count) for body, (_, redelivered, count) in first.items()] == [
        ("0", True, 4), ("1", True, 2), ("2", True, 1), ("4", True, 1)]
    assert [(body, redelivered, count) for body, (_, redelivered, count) in second.items()] == [
        ("0", True, 5), ("1", True, 3), ("2", True, 2), ("4", True, 2), ("5", False, 0)]


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_transient_messages_of_a_durable_queue_survive_what_the_process_survives_in_the_cache(
    broker_process, crash
):
    """Decided: transient messages in durable queues are kept over a graceful restart;
    a kill leaves them in the system's cache too.
    """
    broker = broker_process().start()
    client = WireClient(broker.port)
    client.call(methods.QueueDeclare(queue=QUEUE, durable=True), methods.QueueDeclareOk)
    client.send(methods.BasicPublish(routing_key=QUEUE), Properties(delivery_mode=1).encode(), b"0")
    client.call(methods.QueueDeclare(queue=QUEUE, durable=True), methods.QueueDeclareOk)

    broker.kill() if crash else broker.stop()
    client.close()
    broker.start()

    assert list(delivered(consumer(broker.port), 1)) == ["0"]
