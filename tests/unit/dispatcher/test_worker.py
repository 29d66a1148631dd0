"""A worker without a broker: what becomes of a message that nothing can be made of."""

import logging
from concurrent.futures import Future
from types import SimpleNamespace

from gomq_py.content.properties import Properties
from gomq_py.dispatcher.worker import Worker, WorkerConfig


class Channel:
    """Takes every declaration, and keeps the consumer's callback."""

    closed, error = False, None

    def __getattr__(self, name):
        return lambda *args, **options: None

    def consume(self, queue, callback, **options):
        self.deliver = callback


class Refusing:
    """A server by which nothing can be sent: no frame holds what is given to it."""

    config = SimpleNamespace(exchange="x")
    revoked = ()
    logger = logging.getLogger("gomq_py.dispatcher")

    def __init__(self):
        self.link = SimpleNamespace(
            call=lambda function: function(), post=lambda function, *args: function(*args)
        )

    def send_copy(self, *_):
        future: Future = Future()
        future.set_exception(ValueError("half a character: \ud800"))
        return future


def test_a_message_that_cannot_even_be_a_bare_dead_letter_is_refused_and_told(caplog):
    channel = Channel()
    worker = Worker(Refusing(), WorkerConfig("jobs", "w"), {})
    worker.up(SimpleNamespace(channel=lambda: channel))
    worker.start()
    refused = []

    channel.deliver(
        SimpleNamespace(
            channel=channel, body=b"no task", properties=Properties(), raw_properties=b"\x00\x00",
            nack=lambda requeue: refused.append(requeue),
        )
    )

    assert refused == [False]
    *_, last = [record.getMessage() for record in caplog.records]
    assert (
        last == "a message of queue 'jobs' cannot be a dead letter and is refused: half a character: \\ud800"
    )


def test_an_acknowledged_message_is_work_that_begins_the_link_s_back_off_anew():
    server, channel, done = Refusing(), Channel(), []
    server.link.worked = lambda: done.append("worked")
    worker = Worker(server, WorkerConfig("jobs", "w"), {})

    worker._ack(SimpleNamespace(channel=channel, ack=lambda: done.append("acked")))

    assert done == ["acked", "worked"]
