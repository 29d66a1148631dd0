"""Direct reply-to: a request carries the requester's own address, and the answer goes straight there."""
import pytest

from gomq_py.amqp.wire.methods import (
    BasicCancel, BasicCancelOk, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetOk,
    BasicPublish, BasicReturn, ChannelClose, QueueBind, QueueDeclare, QueueDeclareOk, QueueDelete,
    QueueDeleteOk, QueuePurge,
)
from gomq_py.content.properties import Properties

PSEUDO = "amq.rabbitmq.reply-to"
CONSUME = BasicConsume(queue=PSEUDO, consumer_tag="answers", no_ack=True)
REQUEST = Properties(reply_to=PSEUDO, correlation_id="7").encode()


@pytest.fixture
def requester(door):
    """A client that consumes answers."""
    client = door.client()
    client.call(CONSUME, BasicConsumeOk)
    return client


@pytest.fixture
def responder(door):
    """A client with the queue that requests go to."""
    client = door.client()
    client.call(QueueDeclare(queue="requests"), QueueDeclareOk)
    return client


def address(requester, responder):
    """The reply_to that a request of the requester arrives with."""
    requester.publish("requests", b"question", properties=REQUEST)
    requester.call(QueueDeclare(queue="requests"), QueueDeclareOk)
    responder.send_method(BasicGet(queue="requests", no_ack=True))
    properties = Properties.decode(responder.expect_message(BasicGetOk)[1])
    assert properties.correlation_id == "7"
    return properties.reply_to


def refused(client, code, text):
    client.expect_error(ChannelClose, code, text)


def test_request_carries_an_address_of_its_own(requester, responder):
    name = address(requester, responder)

    assert name.startswith(PSEUDO + ".") and len(name) > len(PSEUDO) + 20


def test_answer_reaches_the_requester(requester, responder):
    name = address(requester, responder)

    responder.publish(name, b"answer", properties=Properties(correlation_id="7").encode())

    method, properties, body = requester.expect_message(BasicDeliver)
    assert (method.consumer_tag, method.delivery_tag, method.exchange, method.routing_key) == (
        "answers", 1, "", name
    )
    assert (Properties.decode(properties).correlation_id, body) == ("7", b"answer")


def test_responder_may_ask_whether_somebody_waits(requester, responder):
    name = address(requester, responder)

    answer = responder.call(QueueDeclare(queue=name, passive=True), QueueDeclareOk)

    assert (answer.queue, answer.message_count, answer.consumer_count) == (name, 0, 1)


@pytest.mark.parametrize("passive", [True, False])
def test_address_of_nobody_is_not_found(responder, passive):
    responder.send_method(QueueDeclare(queue=f"{PSEUDO}.nobody", passive=passive))

    refused(responder, 404, f"NOT_FOUND - no queue '{PSEUDO}.nobody' in vhost '/'")


def test_answer_to_a_requester_that_has_gone_is_unroutable(requester, responder):
    name = address(requester, responder)
    requester.call(BasicCancel(consumer_tag="answers"), BasicCancelOk)

    responder.publish(name, b"late", mandatory=True)

    assert responder.expect_message(BasicReturn)[0].reply_code == 312


def test_address_goes_with_its_channel(requester, responder, door):
    address(requester, responder)

    requester.send_method(ChannelClose())
    requester.frame()

    assert door.vhost.sinks == {}


def test_pseudo_queue_may_be_declared(responder):
    answer = responder.call(QueueDeclare(queue=PSEUDO), QueueDeclareOk)

    assert (answer.queue, answer.message_count, answer.consumer_count) == (PSEUDO, 0, 1)


def test_request_without_a_consumer_of_answers_is_refused(responder):
    responder.publish("requests", properties=REQUEST)

    responder.expect_error(
        ChannelClose, 406, "PRECONDITION_FAILED - fast reply consumer does not exist", blamed=BasicPublish
    )


def test_answers_cannot_be_acknowledged(responder):
    responder.send_method(BasicConsume(queue=PSEUDO))

    refused(responder, 406, "PRECONDITION_FAILED - reply consumer cannot acknowledge")


def test_channel_has_one_consumer_of_answers(requester):
    requester.send_method(BasicConsume(queue=PSEUDO, no_ack=True))

    refused(requester, 406, "PRECONDITION_FAILED - reply consumer already set")


def test_consumer_of_answers_may_be_cancelled_and_made_again(requester):
    requester.call(BasicCancel(consumer_tag="answers"), BasicCancelOk)

    requester.call(CONSUME, BasicConsumeOk)


@pytest.mark.parametrize("method", [
    BasicGet(queue=PSEUDO), QueuePurge(queue=PSEUDO), QueueBind(queue=PSEUDO, exchange="amq.direct")
])
def test_pseudo_queue_is_no_queue(responder, method):
    responder.send_method(method)

    refused(responder, 404, f"NOT_FOUND - no queue '{PSEUDO}' in vhost '/'")


def test_deleting_the_pseudo_queue_does_nothing(requester):
    assert requester.call(QueueDelete(queue=PSEUDO), QueueDeleteOk).message_count == 0
