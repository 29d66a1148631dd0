"""Chaos: makes a broker misbehave as real brokers do, so that a program's reactions can be tested.

Runs in the broker's thread, and acts on parts of the launcher. Clients see the same as in a real failure;
confirmed messages survive. Only ``gomq_py.testing`` adds it to a broker.
"""
from collections import deque
from typing import Any

import gevent

from gomq_py.amqp.server.confirms import Confirms
from gomq_py.broker.signals.alarms import LOW_ON
from gomq_py.config.settings import shortened
from gomq_py.mqtt.server.flows import Inbound
from gomq_py.mqtt.wire import frames, reason_codes
from gomq_py.mqtt.wire.constants import MQTT_5, PUBACK, PUBREC
from gomq_py.mqtt.wire.errors import MQTTError

ALARM_SOURCE = "a test"
LONGEST_DELAY_S = 86400


class Chaos:
    """Makes one broker misbehave, for tests. No method waits. ``calm`` ends all misbehaviour."""

    def __init__(self, launcher: Any) -> None:
        self._clients = launcher.hub.clients
        self._alarms = launcher.broker.alarms
        self.confirm_delay_s = 0.0
        self.nack_every = 0
        self._publishes = 0
        launcher.amqp.make_confirms = self._confirms
        if launcher.mqtt is not None:
            launcher.mqtt.make_inbound = self._inbound

    def drop_connections(self) -> int:
        connections = self._clients.all()
        for connection in connections:
            connection.abort("dropped by a test")
        return len(connections)

    def close_connections(self, reason: str = "closed by a test") -> int:
        """Close all connections as an operator does. Returns their number. Over AMQP the close has code 320
        CONNECTION_FORCED and the reason, over MQTT 5 it is DISCONNECT 0x98.
        """
        _check_text("close_connections", reason)
        connections = self._clients.all()
        for connection in connections:
            connection.force_close(reason)
        return len(connections)

    def refuse_logins(self, refuse: bool = True) -> None:
        if not isinstance(refuse, bool):
            raise ValueError(f"refuse_logins: {shortened(refuse)} is not True or False")
        self._clients.refusing_logins = refuse

    def delay_confirms(self, seconds: float) -> None:
        """Delay every publisher confirm, PUBACK, PUBREC and PUBCOMP by ``seconds``; 0 ends this."""
        if (
            isinstance(seconds, bool) or not isinstance(seconds, (int, float))
            or not 0 <= seconds <= LONGEST_DELAY_S
        ):
            raise ValueError(
                f"delay_confirms: {shortened(seconds)} is not a number of seconds, from 0 to "
                f"{LONGEST_DELAY_S}")
        self.confirm_delay_s = float(seconds)

    def nack_confirms(self, every: int) -> None:
        """Refuse one in ``every`` publishes (0: none), although it is stored.

        Over AMQP the refusal is basic.nack, over MQTT 5 reason code 0x80. Clients of earlier MQTT versions
        are disconnected. Counts publishes on AMQP channels opened from now on, and MQTT publishes of QoS 1
        and 2.
        """
        if isinstance(every, bool) or not isinstance(every, int) or every < 0:
            raise ValueError(
                f"nack_confirms: {shortened(every)} is not a whole number: N refuses every Nth publish, 0 "
                "none")
        self.nack_every = int(every)
        self._publishes = 0

    def trip_alarm(self, reason: str | None = "low on memory") -> None:
        """Raise a resource alarm, which blocks publishers; AMQP clients get connection.blocked. ``reason``: a
        text such as "low on disk"; None ends the alarm.
        """
        if reason is not None:
            _check_text("trip_alarm", reason)
        self._alarms.clear(ALARM_SOURCE)
        if reason is not None:
            self._alarms.set(ALARM_SOURCE, reason.removeprefix(LOW_ON))

    def calm(self) -> None:
        self.refuse_logins(False)
        self.delay_confirms(0)
        self.nack_confirms(0)
        self.trip_alarm(None)

    def unlucky(self, first: int, last: int) -> list[int]:
        """Return a list of the publishes to refuse, out of those with the numbers ``first`` to ``last``.
        Counts all of them, so that one in ``nack_every`` is refused.
        """
        if not self.nack_every:
            return []
        unlucky = [
            number
            for number in range(first, last + 1)
            if (self._publishes + number - first + 1) % self.nack_every == 0
        ]
        self._publishes += last - first + 1
        return unlucky

    def _confirms(self, channel_id, write, when_safe):
        return ChaosConfirms(channel_id, self._delayed(write), when_safe, self)

    def _inbound(self, connection, when_safe, receive_maximum):
        return Inbound(ChaosConnection(connection, self), when_safe, receive_maximum)

    def _delayed(self, write):
        def write_later(octets):
            if self.confirm_delay_s:
                gevent.spawn_later(self.confirm_delay_s, write, octets)
            else:
                write(octets)

        return write_later


def _check_text(switch, given):
    if not isinstance(given, str) or not given:
        raise ValueError(f"{switch}: {shortened(given)} is not a reason, a text")


class ChaosConfirms(Confirms):
    """The Confirms of an AMQP channel, with basic.nack for the publishes that Chaos chooses."""

    __slots__ = ("_chaos", "_chosen_up_to")

    def __init__(self, channel_id, write, when_safe, chaos):
        super().__init__(channel_id, write, when_safe)
        self._chaos = chaos
        self._chosen_up_to = 0

    def published(self, last, refused, unsynced):
        """Confirm like Confirms.published, but nack the publishes that Chaos chooses."""
        unlucky = self._chaos.unlucky(self._chosen_up_to + 1, last)
        self._chosen_up_to = last  # an attribute of its own: the base has not counted these yet
        super().published(last, sorted({*refused, *unlucky}), unsynced)


class ChaosConnection:
    """Stand-in for a connection, for code that answers MQTT publishes. Delays answers, and refuses some."""

    def __init__(self, connection, chaos):
        self.output = self
        self._connection = connection
        self._chaos = chaos
        self._waiting = deque()
        self._count = 0

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def write(self, octets):
        """Send encoded acknowledgements in order, after the delay. Chaos turns some into refusals."""
        if not self._chaos.confirm_delay_s and not self._waiting:
            self._answer(octets)
            return
        self._count += 1
        self._waiting.append((self._count, octets))
        gevent.spawn_later(self._chaos.confirm_delay_s, self._time_has_come, self._count)

    def _time_has_come(self, number):
        while self._waiting and self._waiting[0][0] <= number:  # earlier answers are due, too
            self._answer(self._waiting.popleft()[1])

    def _answer(self, octets):
        at = 0
        while at < len(octets) and self._connection.is_open:
            end = at + 2 + octets[at + 1]
            self._answer_one(octets[at:end])
            at = end

    def _answer_one(self, answer):
        connection, kind, identifier = self._connection, answer[0] >> 4, int.from_bytes(answer[2:4], "big")
        is_taken = len(answer) == 4 or answer[4] < reason_codes.UNSPECIFIED_ERROR
        if kind not in (PUBACK, PUBREC) or not is_taken or not self._chaos.unlucky(1, 1):
            connection.output.write(answer)
        elif connection.version < MQTT_5:
            connection.fail(MQTTError("a publish refused by a test"))
        else:
            if kind == PUBREC:
                connection.inbound.received.discard(identifier)
            connection.output.write(frames.encode_acknowledgement(
                connection.version, kind, identifier, reason_codes.UNSPECIFIED_ERROR))
