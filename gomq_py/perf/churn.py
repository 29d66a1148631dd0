"""Churn scenarios: create and remove a queue, connection or similar again and again, and count the rounds."""
import time
from collections.abc import Callable
from typing import NamedTuple

from gomq_py.client.connection import Connection

_QUEUE, _EXCHANGE = "perf-churn", "amq.direct"


class Scenario(NamedTuple):
    """A kind of churn. ``step(options, connection, channel)`` creates and removes one object.

    ``has_queue``: the steps need a queue, which ``run()`` declares and deletes. ``help``: text for --help.
    """

    help: str
    step: Callable
    has_queue: bool = False


def _connection(options, *_):
    with Connection(options.uri, timeout_s=options.timeout_s) as connection:
        connection.channel()


def _queue(options, _, channel):
    channel.queue_declare(_QUEUE, durable=options.durable)
    channel.queue_delete(_QUEUE)


def _bind(_options, _connection, channel):
    channel.queue_bind(_QUEUE, _EXCHANGE, "churn")
    channel.queue_unbind(_QUEUE, _EXCHANGE, "churn")


SCENARIOS = {
    "connection-churn": Scenario("log in, open a channel, close", _connection),
    "channel-churn": Scenario(
        "open a channel, close it", lambda _options, connection, _channel: connection.channel().close()),
    "queue-churn": Scenario("declare a queue, delete it", _queue),
    "bind-churn": Scenario("bind a queue, unbind it", _bind, True),
    "consumer-churn": Scenario(
        "start a consumer, cancel it",
        lambda _options, _connection, channel: channel.cancel(channel.consume(_QUEUE)), True),
}


def run(options, progress):
    """Repeat the scenario's step for ``seconds`` (0: until Ctrl-C). Return a dict of results.

    Calls ``progress(steps per second)`` each second.
    """
    scenario = SCENARIOS[options.scenario]
    connection = Connection(options.uri, name="perf churn", timeout_s=options.timeout_s)
    channel = connection.channel()
    if scenario.has_queue:
        channel.queue_declare(_QUEUE, durable=options.durable)
    iterations = 0
    started = told_at = time.monotonic()
    told = 0
    try:
        while not options.seconds or time.monotonic() - started < options.seconds:
            scenario.step(options, connection, channel)
            iterations += 1
            now = time.monotonic()
            if now - told_at >= 1:
                progress((iterations - told) / (now - told_at))
                told, told_at = iterations, now
    except KeyboardInterrupt:
        pass
    elapsed_s = time.monotonic() - started
    if scenario.has_queue:
        channel.queue_delete(_QUEUE)
    connection.close()
    return {
        "iterations": iterations, "elapsed_seconds": round(elapsed_s, 3),
        "iterations_per_second": round(iterations / max(elapsed_s, 0.001)),
    }
