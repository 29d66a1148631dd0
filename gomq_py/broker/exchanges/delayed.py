"""Delayed message exchange, RabbitMQ's ``x-delayed-message``: routes a message after its ``x-delay`` (ms).

The argument ``x-delayed-type`` names the inner type, whose rules and bindings apply. Delayed messages lie in
``delayed_store``, a broker.transfer.delayed.DelayQueue. The header ``x-deliver-at`` (a timestamp, or Unix
milliseconds) gives the due time itself. Both headers of a due message are negated, as by RabbitMQ's plugin,
so that no exchange delays the message again. The header ``x-schedule`` repeats a message (schedule.py here).
"""
from datetime import datetime

from gomq_py.broker.envelope import expiration_ms
from gomq_py.broker.exchanges import schedule
from gomq_py.broker.exchanges.direct import DirectExchange
from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.exchanges.fanout import FanoutExchange
from gomq_py.broker.exchanges.headers import HeadersExchange
from gomq_py.broker.exchanges.topic import TopicExchange
from gomq_py.broker.features.feature import ExchangeArgument
from gomq_py.content.fields import Seconds, decode_table, get_key, set_key
from gomq_py.content.forms import BASIC
from gomq_py.content.properties import LARGEST_INTEGER, MAX_DELAY_MS, X_DELAY, X_DELIVER_AT, PropertyEdit
from gomq_py.errors import PreconditionFailed
from gomq_py.storage.message import Message

INNER_TYPE = "x-delayed-type"
INNER_TYPES = {kind.type: kind for kind in (DirectExchange, FanoutExchange, HeadersExchange, TopicExchange)}
TYPE = "x-delayed-message"
DESCRIBED = (
    ExchangeArgument(
        argument=INNER_TYPE, kinds=frozenset((TYPE,)), default="none: it is required",
        value="`topic`: `direct`, `fanout`, `headers` or `topic`",
        effect="Rules by which messages are routed once they are due ([delays.md](delays.md)).",
        others="RabbitMQ: a plugin.",
    ),
)


class DelayedExchange(Exchange):
    """Puts messages with a delay into its ``delayed_store``, and routes all other messages at once.
    ``inner``: an exchange of the type named by ``x-delayed-type``, with the same bindings; its rules route
    the messages.
    """

    type = TYPE
    needs_headers = True
    delays = True

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.inner = INNER_TYPES[self.arguments.get(INNER_TYPE, "direct")](*args, **options)

    @staticmethod
    def check_arguments(entity, arguments):
        inner = arguments.get(INNER_TYPE)
        if not isinstance(inner, str) or inner not in INNER_TYPES:
            raise PreconditionFailed(f"Invalid argument, '{INNER_TYPE}' must be an existing exchange type")

    def set_defaults(self, defaults):
        self.inner.set_defaults(defaults)

    def check_binding(self, routing_key, arguments):
        self.inner.check_binding(routing_key, arguments)

    def match(self, routing_key, headers, targets):
        has_time = headers and (X_DELAY in headers or X_DELIVER_AT in headers)
        if has_time and self.delayed_store is not None and is_delayed(headers):
            targets[self.delayed_store] = None
        else:
            self.inner.match(routing_key, headers, targets)

    def _added(self, binding):
        self.inner.bind(binding)

    def _removed(self, binding):
        self.inner.unbind(binding)


def delay_of(headers):
    """Return the delay from the header ``x-delay`` in ms; 0 if the header is absent or invalid."""
    value = headers.get(X_DELAY)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = _whole(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return int(min(value, MAX_DELAY_MS)) if value > 0 else 0


def time_of(headers):
    """Return the due time from the header ``x-deliver-at`` in Unix ms; 0 if it is absent or invalid."""
    value = headers.get(X_DELIVER_AT)
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, Seconds):
        return int(value) * 1000
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def is_delayed(headers):
    """True if the message must be stored: its headers have a delay or a due time, even one in the past."""
    return delay_of(headers) > 0 or time_of(headers) > 0


def due_ms_of(message):
    """Return when a message in the delayed store is due, in Unix milliseconds."""
    headers = decode_table(PropertyEdit(message.get_properties()).headers)[0]
    arrived_ms = message.describe()["timestamp_ms"]
    at_ms = time_of(headers)
    return min(at_ms, arrived_ms + MAX_DELAY_MS) if at_ms else arrived_ms + delay_of(headers)


def gone_on(message, now_ms):
    """Return (copy of a due message, the copy's headers as a dict) for routing. Delay headers are negated, so
    that no exchange delays the copy again. If the message has a schedule, headers tell the schedule's name
    and time. The expiration counts from ``now_ms``.
    """
    edit, fields = PropertyEdit(message.get_properties()), message.describe()
    persistent = fields["persistent"]
    if fields["kind"] == BASIC and fields["flags"] & schedule.SCHEDULED:
        persistent = schedule.as_sent(edit)
    for key in (X_DELAY, X_DELIVER_AT):
        value = get_key(edit.headers, key)
        if value is not None:
            edit.headers = set_key(edit.headers, key, _negated(value))
    expires_ms = expiration_ms(edit.expiration)
    released = Message()
    released.assign(
        message.get_exchange(), message.get_routing_key(), edit.octets(), message.get_body(), now_ms,
        expires_at_ms=0 if expires_ms is None else now_ms + expires_ms, priority=fields["priority"],
        persistent=persistent)
    return released, decode_table(edit.headers)[0]


def _negated(value):
    if isinstance(value, datetime):
        return -int(value.timestamp() * 1000)
    if isinstance(value, str):
        return -_whole(value) if value.isascii() and value.isdigit() else value
    if isinstance(value, int) and not isinstance(value, bool):
        return -min(abs(value), LARGEST_INTEGER)  # a timestamp may be larger than an integer field holds
    return -abs(value) if isinstance(value, float) else value


def _whole(digits):
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) < len(str(LARGEST_INTEGER)) else LARGEST_INTEGER
