"""Churn scenarios: make and remove one thing repeatedly, one round trip after the other, and count per
second.
"""
import time

from gomq_py.client.connection import Connection

_QUEUE, _EXCHANGE = "perf-churn", "amq.direct"


class Churn:
    """One scenario: ``step`` is one iteration. The constructor makes what it needs, and ``close`` removes it.
    """

    def __init__(self, options):
        self.options = options
        self.connection = Connection(options.uri, name="perf churn", timeout_s=options.timeout_s)
        self.channel = self.connection.channel()

    def step(self):
        """One iteration."""
        raise NotImplementedError

    def close(self):
        """Remove everything made."""
        self.connection.close()


class ConnectionChurn(Churn):
    """Log in, open a channel, close."""

    def step(self):
        """One connection."""
        with Connection(self.options.uri, timeout_s=self.options.timeout_s) as connection:
            connection.channel()


class ChannelChurn(Churn):
    """Open a channel, close it."""

    def step(self):
        """One channel."""
        self.connection.channel().close()


class QueueChurn(Churn):
    """Declare a queue, delete it."""

    def step(self):
        """One queue."""
        self.channel.queue_declare(_QUEUE, durable=self.options.durable)
        self.channel.queue_delete(_QUEUE)


class BindChurn(Churn):
    """Bind a queue, unbind it."""

    def __init__(self, options):
        super().__init__(options)
        self.channel.queue_declare(_QUEUE, durable=options.durable)

    def step(self):
        """One binding."""
        self.channel.queue_bind(_QUEUE, _EXCHANGE, "churn")
        self.channel.queue_unbind(_QUEUE, _EXCHANGE, "churn")

    def close(self):
        """Remove everything made."""
        self.channel.queue_delete(_QUEUE)
        super().close()


class ConsumerChurn(Churn):
    """Start a consumer, cancel it."""

    def __init__(self, options):
        super().__init__(options)
        self.channel.queue_declare(_QUEUE, durable=options.durable)

    def step(self):
        """One consumer."""
        self.channel.cancel(self.channel.consume(_QUEUE))

    def close(self):
        """Remove everything made."""
        self.channel.queue_delete(_QUEUE)
        super().close()


SCENARIOS = {
    "connection-churn": ConnectionChurn, "channel-churn": ChannelChurn, "queue-churn": QueueChurn,
    "bind-churn": BindChurn, "consumer-churn": ConsumerChurn,
}


def run(options, progress):
    """Iterate for ``seconds`` (0: until interrupted), calling ``progress(iterations per second)`` each
    second; returns figures.
    """
    scenario = SCENARIOS[options.scenario](options)
    iterations = 0
    started = told_at = time.monotonic()
    told = 0
    try:
        while not options.seconds or time.monotonic() - started < options.seconds:
            scenario.step()
            iterations += 1
            now = time.monotonic()
            if now - told_at >= 1:
                progress((iterations - told) / (now - told_at))
                told, told_at = iterations, now
    except KeyboardInterrupt:
        pass
    elapsed_s = time.monotonic() - started
    scenario.close()
    return {
        "iterations": iterations, "elapsed_seconds": round(elapsed_s, 3),
        "iterations_per_second": round(iterations / max(elapsed_s, 0.001)),
    }
