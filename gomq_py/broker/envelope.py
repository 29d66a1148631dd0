"""Envelope: reads the message properties that the broker needs: sender, lifetime, persistence, routing keys.

The AMQP, MQTT and HTTP servers make an Envelope for each message that a client publishes; envelope_of() makes
one from basic properties. broker.verbs.publishing checks the message by its Envelope. An Envelope only reads
the bytes it is given.
"""
import re

from gomq_py.broker.values import MAX_TIMER_MS, type_name
from gomq_py.content import forms
from gomq_py.content.fields import encode_shortstr, remove_key
from gomq_py.content.properties import PERSISTENT, TRANSIENT, Properties, PropertyScan
from gomq_py.errors import Malformed, PreconditionFailed

EXTRA_KEYS, SECRET_KEYS = "CC", "BCC"
# Most words of all keys in CC and BCC of a message. With as many costly patterns as max_topic_words allows, a
# word takes some 10 us, and all keys of a message are matched without a break; ordinary exchanges take 1 us
# per key.
MAX_EXTRA_WORDS = 1024
_INTEGER = re.compile(r"[+-]?[0-9]+")


class Envelope:
    """A reader of the properties of one message. ``kind`` and ``flags``: their encoding (content.forms). The
    publish path calls the methods in the order of their definition. So if a message has several faults, every
    protocol reports the same one.
    """

    __slots__ = ()

    kind, flags = forms.BASIC, 0
    user_id = None
    priority = 0

    def lives_ms(self):
        """Return the message's time to live in ms; None: no limit. Raises PreconditionFailed."""
        return None

    def more_keys(self):
        """Return the message's further routing keys, such as those in CC. Raises PreconditionFailed."""
        return ()

    def is_persistent(self):
        """Return True if the message is persistent (kept over a restart). Raises PreconditionFailed."""
        return False

    def headers(self):
        """Return a dict of the headers by which headers exchanges route, or None."""
        return None

    def properties(self):
        """Return the message's properties as decoded basic properties, whatever its protocol."""
        return Properties()

    def octets(self):
        """Return the encoded properties that the broker stores; ``kind`` says in which encoding."""
        raise NotImplementedError


class BasicEnvelope(Envelope):
    """An Envelope of AMQP basic properties. ``raw``: their bytes. ``scan``: the PropertyScan of the bytes.
    ``decoded``: their Properties.
    """

    __slots__ = ("_raw", "_scan", "_decoded", "user_id", "priority")

    def __init__(self, raw, scan, decoded):
        self._raw = raw
        self._scan = scan
        self._decoded = decoded
        self.user_id = decoded.user_id
        self.priority = decoded.priority or 0

    def lives_ms(self):
        return expiration_ms(self._decoded.expiration)

    def more_keys(self):
        """Return the keys in CC and BCC, each once. Ignores entries other than strings, as RabbitMQ does."""
        headers = self._decoded.headers
        given = []
        for name in (EXTRA_KEYS, SECRET_KEYS):
            if not headers or name not in headers:
                continue
            values = headers[name]
            if not isinstance(values, list):
                raise PreconditionFailed(
                    f'invalid message: {{unacceptable_type_in_header,"{name}",{type_name(values)}}}'
                )
            given.extend(value for value in values if isinstance(value, str))
        if not given:
            return ()
        keys = tuple(dict.fromkeys(given))
        words = len(keys) + sum(key.count(".") for key in keys)
        if words > MAX_EXTRA_WORDS:
            raise PreconditionFailed(
                f"invalid message: the routing keys in CC and BCC have {words} words, more than "
                f"{MAX_EXTRA_WORDS}")
        return keys

    def is_persistent(self):
        delivery_mode = self._decoded.delivery_mode
        if delivery_mode not in (None, TRANSIENT, PERSISTENT):
            raise PreconditionFailed(f"invalid message: {{delivery_mode_unknown,{delivery_mode}}}")
        return delivery_mode == PERSISTENT

    def headers(self):
        return self._decoded.headers

    def properties(self):
        return self._decoded

    def octets(self):
        """Return the properties as received, but without the header BCC, which consumers must not see."""
        headers = self._decoded.headers
        if not headers or SECRET_KEYS not in headers:
            return self._raw
        raw, start = self._raw, self._scan.headers_at
        end = start + self._scan.headers_length
        return raw[:start] + remove_key(raw[start:end], SECRET_KEYS) + raw[end:]


def envelope_of(raw, tables, reply_to=None):
    """Make the Envelope of encoded basic properties. ``tables``: the TableLimits that the headers must keep.
    ``reply_to(name)`` is called with the property reply_to, if present; it returns the text to put in its
    place, or None to keep it. Raises Malformed, and the errors of ``reply_to``.
    """
    scan = PropertyScan()
    if not scan.scan_octets(raw):
        raise Malformed("malformed basic properties")
    decoded = Properties.decode(raw)
    if decoded.headers:
        tables.check(decoded.headers, len(raw))
    instead = None if reply_to is None or decoded.reply_to is None else reply_to(decoded.reply_to)
    if instead is not None:  # headers precede reply_to
        at = scan.reply_to_at
        raw = raw[:at] + encode_shortstr(instead) + raw[at + 1 + raw[at]:]
    return BasicEnvelope(raw, scan, decoded)


def check_user_id(user_id, user):
    """Raise PreconditionFailed if the User ``user`` may not publish messages with this property user_id."""
    if user_id is not None and not user.may_sign(user_id):
        came = ", who came with a token" if user.of_token else ""
        raise PreconditionFailed(
            f"user_id property set to '{user_id}' but authenticated user was '{user.name}'{came}"
        )


def expiration_ms(expiration):
    """Return the property expiration in milliseconds; None if it is absent. Raises PreconditionFailed."""
    if expiration is None:
        return None
    number = _INTEGER.match(expiration)
    if number is None:
        reason = "no_integer"
    elif number.end() < len(expiration):
        reason = f'{{leftover_string,"{expiration[number.end():]}"}}'
    elif int(number.group()) < 0:
        reason = f"{{value_negative,{int(number.group())}}}"
    elif int(number.group()) > MAX_TIMER_MS:
        reason = f"{{value_too_large,{int(number.group())}}}"
    else:
        return int(number.group())
    raise PreconditionFailed(f"invalid expiration '{expiration}': {reason}")
