"""Crossing: converts topics and PUBLISH properties of MQTT to routing keys and basic properties, and back.

In a topic "/" and "." are exchanged to get its routing key: sensors/v1.2/t <-> sensors.v1/2.t. A PUBLISH is
stored as an MQTT record (kind 2): its topic as routing key, its properties (of MQTT 5, without their length)
as received, QoS and RETAIN as flags. MQTTForm reads it as basic properties:

    QoS 0; 1 and 2           delivery_mode 1; 2, and the header x-mqtt-publish-qos
    RETAIN                   the header mqtt.retain, true
    topic                    the header mqtt.topic
    content type             content_type; over 255 bytes: the header mqtt.content-type
    payload format 1         the header mqtt.payload-format, 1
    message expiry, s        expiration, ms
    correlation data         correlation_id; no text, or over 255 bytes: the header mqtt.correlation-data
    response topic           the header mqtt.response-topic and, if it fits, reply_to "amq.topic.KEY", which
                             the default exchange routes to amq.topic; KEY: the topic's routing key
      "$default/TOPIC"       only reply_to, the routing key of TOPIC
    user property            a header, a text; not one named mqtt.* or x-mqtt-publish-qos

write_block() converts basic properties to those of a PUBLISH by the reverse of the table, and as follows:

    reply_to alone           the response topic $default/TOPIC or, for "amq.topic.KEY", the topic of KEY
    message_id, type, app_id, user_id, content_encoding, timestamp
                             the user properties amqp.message-id, amqp.type and so on
    headers                  user properties, if they are texts, numbers or booleans

Values that do not fit, or are no UTF-8 where text is required, are left out; earlier values have precedence.
``p``, ``out``: pointers to input and output. ``limit``: end of ``out``. An end: offset after the last byte.
"""
from gomq_py import octets
from gomq_py.content import fields, forms, properties
from gomq_py.content.fields import RETAIN_HEADER
from gomq_py.content.properties import PropertyScan
from gomq_py.mqtt.wire import topics
from gomq_py.mqtt.wire.constants import (
    CONTENT_TYPE, CORRELATION_DATA, MESSAGE_EXPIRY_INTERVAL, PAYLOAD_FORMAT_INDICATOR, RESPONSE_TOPIC,
    STRING_MAX, SUBSCRIPTION_IDENTIFIER, TOPIC_ALIAS, USER_PROPERTY, WILL_DELAY_INTERVAL,
)

KIND = 2

# Flags of a record of kind 2, beside bit 0. REPLAYED: a retained message for one subscription; its QoS and
# RETAIN are those of the delivery, and its properties hold the subscription identifier. NAMED: its last
# property is a user property with the publisher's client id. OWN: in a session's queue, published by the
# session's own client.
QOS_SHIFT, QOS_MASK, RETAIN, REPLAYED, NAMED, OWN = 1, 3, 8, 16, 32, 64
# The NAMED property up to its value, the publisher's client id.
PUBLISHER_KEY = b"\x26\x00\x0emqtt.publisher"

# Short strings: the names of the headers that are not user properties.
TOPIC_KEY, TOPIC_KEY_BYTES = b"\x0amqtt.topic", 11
QOS_KEY, QOS_KEY_BYTES = b"\x12x-mqtt-publish-qos", 19
_RETAIN_KEY = bytes((len(RETAIN_HEADER),)) + RETAIN_HEADER.encode()  # kept, because C points into it
RETAIN_KEY, RETAIN_KEY_BYTES = _RETAIN_KEY, len(_RETAIN_KEY)
TYPE_KEY, TYPE_KEY_BYTES = b"\x11mqtt.content-type", 18
FORMAT_KEY, FORMAT_KEY_BYTES = b"\x13mqtt.payload-format", 20
CORRELATION_KEY, CORRELATION_KEY_BYTES = b"\x15mqtt.correlation-data", 22
RESPONSE_KEY, RESPONSE_KEY_BYTES = b"\x13mqtt.response-topic", 20
PREFIX, PREFIX_BYTES = b"mqtt.", 5
DEFAULT_EXCHANGE, DEFAULT_EXCHANGE_BYTES = b"$default/", 9

# Prefix of a topic's routing key in an address (broker.names).
TOPIC_ADDRESS, TOPIC_ADDRESS_BYTES = b"amq.topic.", 10

LONGSTR, OCTETS, BOOLEAN, UINT8 = b"SxtB"
SLASH, DOT = b"/."
TRANSIENT, PERSISTENT = 1, 2
SHORT_MAX = 255

# Most octets behind the headers: delivery_mode, correlation_id, reply_to, an expiration of 10 digits.
TAIL_BYTES = 1 + 256 + 256 + 11
# 2^32 - 1, the longest expiration.
EXPIRATION_MAX_MS = 4294967295
# Flags, table and the headers that each message has, with a key of 255 octets.
FIXED_BYTES = 1024

# Most octets and user properties of a PUBLISH made from basic properties: our own side accepts 256 properties
# in all (constants.PacketLimits).
BLOCK_MAX = 65536
USER_PROPERTIES_MAX = 240
# Octets for names of the user properties that stand for basic properties, and for other fixed parts.
AMQP_BYTES = 256

_SWAPPED = bytes.maketrans(b"/.", b"./")


# topics and routing keys

def swap(name):
    """Exchange "/" and "." in bytes: a topic becomes its routing key, and a routing key its topic."""
    return name.translate(_SWAPPED)


def write_swapped(out, at, p, start, length):
    """Copy ``p[start:start + length]`` to ``out[at]``, with "/" and "." exchanged. Returns its end."""
    for place in range(length):
        octet = p[start + place]
        if octet == SLASH:
            octet = DOT
        elif octet == DOT:
            octet = SLASH
        out[at + place] = octet
    return at + length


def is_topic(p, at, length):
    """Return whether ``p[at:at + length]`` is a topic name, or the routing key of one."""
    return length > 0 and topics.scan_text(p, at, at + length) == 0


# properties of a PUBLISH

def skip_string(p, at, end):
    """Return the offset after the string or binary data at ``p[at]``; -1 if it extends beyond ``end``."""
    if end - at < 2:
        return -1
    after = at + 2 + octets.be16(p, at)
    return after if after <= end else -1


def skip_property(p, at, end):
    """Return the offset after the property at ``p[at]``; -1 if it is unknown or extends beyond ``end``."""
    identifier = p[at]
    at += 1
    if identifier == USER_PROPERTY:
        at = skip_string(p, at, end)
        return skip_string(p, at, end) if at >= 0 else -1
    if identifier == CONTENT_TYPE or identifier == RESPONSE_TOPIC or identifier == CORRELATION_DATA:
        return skip_string(p, at, end)
    if identifier == SUBSCRIPTION_IDENTIFIER:
        last = min(end, at + 4)
        while at < last:
            at += 1
            if p[at - 1] < 0x80:
                return at
        return -1
    if identifier == MESSAGE_EXPIRY_INTERVAL or identifier == WILL_DELAY_INTERVAL:
        at += 4
    elif identifier == TOPIC_ALIAS:
        at += 2
    elif identifier == PAYLOAD_FORMAT_INDICATOR:
        at += 1
    else:
        return -1
    return at if at <= end else -1


def is_block(p, at, end):
    """Return whether ``p[at:end]`` is a well-formed list of properties of a PUBLISH or a will."""
    while at < end:
        at = skip_property(p, at, end)
        if at < 0:
            return False
    return True


def find_property(p, at, end, identifier):
    """Return the offset of the value of a property's first occurrence in ``p[at:end]``; -1 if absent."""
    while 0 <= at < end:
        if p[at] == identifier:
            return at + 1
        at = skip_property(p, at, end)
    return -1


# to basic properties

class MQTTForm(forms.Form):
    """Converts the properties of a stored PUBLISH to basic properties."""

    __slots__ = ()

    def __init__(self):
        forms.Form.__init__(self, KIND)

    def basic_bound(self, properties_length):
        bound = FIXED_BYTES + 2 * properties_length
        return bound if bound < forms.BASIC_MAX else forms.BASIC_MAX

    def write_basic(self, out, at, most, p, routing_at, properties_at, properties_length, flags):
        end = properties_at + properties_length
        if not is_block(p, properties_at, end):
            return -1
        start = at
        limit = at + most - TAIL_BYTES
        given = properties.HEADERS | properties.DELIVERY_MODE
        content_type = correlation = response = expiry = -1
        if properties_length:
            content_type = find_property(p, properties_at, end, CONTENT_TYPE)
            correlation = find_property(p, properties_at, end, CORRELATION_DATA)
            response = find_property(p, properties_at, end, RESPONSE_TOPIC)
            expiry = find_property(p, properties_at, end, MESSAGE_EXPIRY_INTERVAL)
        at += 2
        if content_type >= 0 and octets.be16(p, content_type) <= SHORT_MAX:
            given |= properties.CONTENT_TYPE
            at = write_short(out, at, p, content_type + 2, octets.be16(p, content_type))
            content_type = -1
        table = at
        at = self.write_fixed(out, at + 4, p, routing_at, flags)
        if properties_length:
            at = self.write_headers(
                out, at, limit, p, properties_at, end, content_type, correlation, response)
        octets.put_be32(out, table, at - table - 4)
        out[at] = PERSISTENT if flags >> QOS_SHIFT & QOS_MASK else TRANSIENT
        at += 1
        if correlation >= 0 and is_short_text(p, correlation):
            given |= properties.CORRELATION_ID
            at = write_short(out, at, p, correlation + 2, octets.be16(p, correlation))
        if response >= 0:
            before = at
            at = write_reply_to(out, at, p, response)
            if at > before:
                given |= properties.REPLY_TO
        if expiry >= 0:
            given |= properties.EXPIRATION
            at = write_milliseconds(out, at, octets.be32(p, expiry))
        octets.put_be16(out, start, given)
        return at

    def write_fixed(self, out, at, p, routing_at, flags):
        """Write the headers for topic, QoS and RETAIN at ``out[at]``. Returns the offset after them."""
        key = routing_at + 1 + p[routing_at]
        octets.copy(out, at, TOPIC_KEY, 0, TOPIC_KEY_BYTES)
        at += TOPIC_KEY_BYTES
        out[at] = LONGSTR
        octets.put_be32(out, at + 1, p[key])
        at = write_swapped(out, at + 5, p, key + 1, p[key])
        octets.copy(out, at, QOS_KEY, 0, QOS_KEY_BYTES)
        at += QOS_KEY_BYTES
        out[at] = UINT8
        out[at + 1] = flags >> QOS_SHIFT & QOS_MASK
        at += 2
        if flags & RETAIN:
            octets.copy(out, at, RETAIN_KEY, 0, RETAIN_KEY_BYTES)
            at += RETAIN_KEY_BYTES
            out[at] = BOOLEAN
            out[at + 1] = 1
            at += 2
        return at

    def write_headers(self, out, at, limit, p, start, end, content_type, correlation, response):
        """Write the MQTT properties ``p[start:end]`` as headers at ``out[at]``. Returns their end."""
        payload_format = find_property(p, start, end, PAYLOAD_FORMAT_INDICATOR)
        if payload_format >= 0 and p[payload_format] == 1 and at + FORMAT_KEY_BYTES + 2 <= limit:
            octets.copy(out, at, FORMAT_KEY, 0, FORMAT_KEY_BYTES)
            at += FORMAT_KEY_BYTES
            out[at] = UINT8
            out[at + 1] = 1
            at += 2
        if content_type >= 0:
            at = write_header(out, at, limit, TYPE_KEY, 0, TYPE_KEY_BYTES, LONGSTR, p, content_type)
        if response >= 0 and not is_of_default_exchange(p, response):
            at = write_header(out, at, limit, RESPONSE_KEY, 0, RESPONSE_KEY_BYTES, LONGSTR, p, response)
        if correlation >= 0 and not is_short_text(p, correlation):
            at = write_header(
                out, at, limit, CORRELATION_KEY, 0, CORRELATION_KEY_BYTES, OCTETS, p, correlation)
        while start < end:
            after = skip_property(p, start, end)
            if p[start] == USER_PROPERTY:
                length = octets.be16(p, start + 1)
                if length <= SHORT_MAX and not is_reserved(p, start + 3, length):
                    # The low octet of its length is that of a short string.
                    at = write_header(
                        out, at, limit, p, start + 2, 1 + length, LONGSTR, p, start + 3 + length)
            start = after
        return at


def is_short_text(p, at):
    """Return whether the binary data at ``p[at]`` is UTF-8 text of at most 255 bytes (AMQP short string)."""
    length = octets.be16(p, at)
    return length <= SHORT_MAX and topics.scan_text(p, at + 2, at + 2 + length) >= 0


def is_of_default_exchange(p, at):
    """Return whether the response topic at ``p[at]`` is "$default/TOPIC", with a TOPIC of 1 to 255 bytes."""
    return (
        octets.be16(p, at) > DEFAULT_EXCHANGE_BYTES
        and octets.be16(p, at) <= SHORT_MAX + DEFAULT_EXCHANGE_BYTES
        and octets.same(p, at + 2, DEFAULT_EXCHANGE, 0, DEFAULT_EXCHANGE_BYTES)
    )


def write_reply_to(out, at, p, response):
    """Write the response topic at ``p[response]`` as reply_to. Returns its end; ``at`` if it does not fit."""
    length = octets.be16(p, response)
    if is_of_default_exchange(p, response):
        length -= DEFAULT_EXCHANGE_BYTES
        out[at] = length
        return write_swapped(out, at + 1, p, response + 2 + DEFAULT_EXCHANGE_BYTES, length)
    if length == 0 or length + TOPIC_ADDRESS_BYTES > SHORT_MAX:
        return at
    out[at] = TOPIC_ADDRESS_BYTES + length
    octets.copy(out, at + 1, TOPIC_ADDRESS, 0, TOPIC_ADDRESS_BYTES)
    return write_swapped(out, at + 1 + TOPIC_ADDRESS_BYTES, p, response + 2, length)


def is_reserved(p, at, length):
    """Return whether the header name ``p[at:at + length]`` is reserved: mqtt.* or x-mqtt-publish-qos."""
    if length >= PREFIX_BYTES and octets.same(p, at, PREFIX, 0, PREFIX_BYTES):
        return True
    return length + 1 == QOS_KEY_BYTES and octets.same(p, at, QOS_KEY, 1, length)


def write_short(out, at, p, start, length):
    """Write ``p[start:start + length]`` as a short string at ``out[at]``. Returns the offset after it."""
    out[at] = length
    octets.copy(out, at + 1, p, start, length)
    return at + 1 + length


def write_header(out, at, limit, key, key_at, key_length, kind, p, value):
    """Write a header of type ``kind`` with the data at ``p[value]``. Returns its end; ``at`` if too long."""
    length = octets.be16(p, value)
    if at + key_length + 5 + length > limit:
        return at
    octets.copy(out, at, key, key_at, key_length)
    at += key_length
    out[at] = kind
    octets.put_be32(out, at + 1, length)
    octets.copy(out, at + 5, p, value + 2, length)
    return at + 5 + length


def write_milliseconds(out, at, seconds):
    """Write ``seconds`` as an expiration in milliseconds at ``out[at]``. Returns the offset after it."""
    number = seconds * 1000
    if number > EXPIRATION_MAX_MS:
        number = EXPIRATION_MAX_MS
    digits = 1
    power = 10
    while number >= power:
        digits += 1
        power *= 10
    out[at] = digits
    place = at + digits
    while place > at:
        out[place] = 48 + number % 10
        number //= 10
        place -= 1
    return at + 1 + digits


# from basic properties

def block_bound(properties_length):
    """Return the most bytes that write_block() writes for basic properties of this length in bytes."""
    # The largest growth: a boolean without a name, from 3 octets to 10.
    bound = AMQP_BYTES + 4 * properties_length
    return bound if bound < BLOCK_MAX else BLOCK_MAX


def flags_of(p, at, length, persistent):
    """Return the flags (QoS, RETAIN) of an MQTT record for the valid basic properties at ``p[at]``."""
    qos = 1 if persistent else 0
    if not octets.be16(p, at) & properties.HEADERS:
        return qos << QOS_SHIFT
    table = properties.headers_at(p, at)
    end = table + 4 + octets.be32(p, table)
    found = fields.find_key(p, table + 4, end, QOS_KEY, QOS_KEY_BYTES)
    if found >= 0:
        value = integer_of(p, found + QOS_KEY_BYTES)
        if value >= 0 and value <= 2:
            qos = value
    flags = qos << QOS_SHIFT
    found = fields.find_key(p, table + 4, end, RETAIN_KEY, RETAIN_KEY_BYTES)
    if found >= 0 and p[found + RETAIN_KEY_BYTES] == BOOLEAN and p[found + RETAIN_KEY_BYTES + 1]:
        flags |= RETAIN
    return flags


def write_block(out, at, p, start, length, expiry_s):
    """Convert basic properties to properties of a PUBLISH, without their length, at ``out[at]``. ``out`` must
    have room for block_bound() bytes. ``expiry_s``: the message expiry in seconds, -1 if it is unlimited.
    Returns the offset after the properties; -1 if the basic properties are malformed.
    """
    scan = PropertyScan()
    if scan.scan(p, start, start + length) != 0:
        return -1
    limit = at + block_bound(length)
    if expiry_s >= 0:
        out[at] = MESSAGE_EXPIRY_INTERVAL
        octets.put_be32(out, at + 1, expiry_s)
        at += 5
    if not scan.flags & 0xFFFC:
        return at
    table = table_end = 0
    if scan.headers_at >= 0:
        table = scan.headers_at + 4
        table_end = scan.headers_at + scan.headers_length
        found = fields.find_key(p, table, table_end, FORMAT_KEY, FORMAT_KEY_BYTES)
        if found >= 0 and integer_of(p, found + FORMAT_KEY_BYTES) == 1:
            out[at] = PAYLOAD_FORMAT_INDICATOR
            out[at + 1] = 1
            at += 2
    response = at
    at = write_told(out, at, limit, RESPONSE_TOPIC, p, table, table_end, RESPONSE_KEY, RESPONSE_KEY_BYTES)
    has_response = at > response
    at = write_basics(out, at, limit, p, start + 2, scan, has_response)
    if not scan.flags & properties.CONTENT_TYPE:
        at = write_told(out, at, limit, CONTENT_TYPE, p, table, table_end, TYPE_KEY, TYPE_KEY_BYTES)
    if not scan.flags & properties.CORRELATION_ID:
        at = write_told(
            out, at, limit, CORRELATION_DATA, p, table, table_end, CORRELATION_KEY, CORRELATION_KEY_BYTES)
    return write_user_properties(out, at, limit, p, table, table_end)


def write_basics(out, at, limit, p, start, scan, has_response):
    """Write basic properties that have an MQTT form at ``out[at]``, but no headers. Returns their end."""
    flag = properties.CONTENT_TYPE
    while flag >= properties.CLUSTER_ID:
        if scan.flags & flag:
            if flag == properties.HEADERS:
                start += scan.headers_length
            elif flag == properties.DELIVERY_MODE or flag == properties.PRIORITY:
                start += 1
            elif flag == properties.TIMESTAMP:
                at = write_number(out, at, limit, b"amqp.timestamp", b"%d" % octets.be64(p, start))
                start += 8
            else:
                if flag == properties.CONTENT_TYPE:
                    at = write_string(out, at, limit, CONTENT_TYPE, p, start + 1, p[start])
                elif flag == properties.CORRELATION_ID:
                    at = write_string(out, at, limit, CORRELATION_DATA, p, start + 1, p[start])
                elif flag == properties.REPLY_TO:
                    if not has_response:
                        at = write_response_topic(out, at, limit, p, start + 1, p[start])
                elif flag in AMQP_NAMES:
                    at = write_amqp(out, at, limit, AMQP_NAMES[flag], p, start)
                start += 1 + p[start]
        flag >>= 1
    return at


AMQP_NAMES = {
    properties.CONTENT_ENCODING: b"amqp.content-encoding", properties.MESSAGE_ID: b"amqp.message-id",
    properties.TYPE: b"amqp.type", properties.USER_ID: b"amqp.user-id", properties.APP_ID: b"amqp.app-id",
}


def write_told(out, at, limit, identifier, p, table, table_end, key, key_length):
    """Write the header ``key`` of a table as an MQTT property. Returns its end; ``at`` if none is written."""
    found = fields.find_key(p, table, table_end, key, key_length) if table < table_end else -1
    if found < 0:
        return at
    found += key_length
    if p[found] != LONGSTR and (p[found] != OCTETS or identifier != CORRELATION_DATA):
        return at
    length = octets.be32(p, found + 1)
    if identifier == RESPONSE_TOPIC and not is_topic(p, found + 5, length):
        return at
    return write_string(out, at, limit, identifier, p, found + 5, length)


def write_response_topic(out, at, limit, p, start, length):
    """Write a reply_to as response topic at ``out[at]``. Returns its end; ``at`` if no topic or too long."""
    prefix = DEFAULT_EXCHANGE_BYTES
    if (
        length > TOPIC_ADDRESS_BYTES and octets.same(p, start, TOPIC_ADDRESS, 0, TOPIC_ADDRESS_BYTES)
    ):
        start += TOPIC_ADDRESS_BYTES
        length -= TOPIC_ADDRESS_BYTES
        prefix = 0
    if at + 3 + prefix + length > limit or not is_topic(p, start, length):
        return at
    out[at] = RESPONSE_TOPIC
    octets.put_be16(out, at + 1, prefix + length)
    octets.copy(out, at + 3, DEFAULT_EXCHANGE, 0, prefix)
    return write_swapped(out, at + 3 + prefix, p, start, length)


def write_string(out, at, limit, identifier, p, start, length):
    """Write an MQTT property at ``out[at]``. Returns its end; ``at`` if it is too long or not UTF-8."""
    if length > STRING_MAX or at + 3 + length > limit:
        return at
    if identifier != CORRELATION_DATA and topics.scan_text(p, start, start + length) < 0:
        return at
    out[at] = identifier
    octets.put_be16(out, at + 1, length)
    octets.copy(out, at + 3, p, start, length)
    return at + 3 + length


def write_amqp(out, at, limit, name, p, start):
    """Write short string ``p[start]`` as user property. Returns its end; ``at`` if too long or not UTF-8."""
    if topics.scan_text(p, start + 1, start + 1 + p[start]) < 0:
        return at
    return write_user_property(
        out, at, limit, octets.pointer(name), 0, len(name), p, start + 1, p[start])


def write_number(out, at, limit, name, text):
    """Write a user property with the value ``text`` at ``out[at]``. Returns its end; ``at`` if too long."""
    return write_user_property(
        out, at, limit, octets.pointer(name), 0, len(name), octets.pointer(text), 0, len(text))


def write_user_property(out, at, limit, name, name_at, name_length, p, start, length):
    """Write a user property at ``out[at]``. Returns the offset after it; ``at`` if it is too long."""
    if length > STRING_MAX or at + 5 + name_length + length > limit:
        return at
    out[at] = USER_PROPERTY
    octets.put_be16(out, at + 1, name_length)
    octets.copy(out, at + 3, name, name_at, name_length)
    at += 3 + name_length
    octets.put_be16(out, at, length)
    octets.copy(out, at + 2, p, start, length)
    return at + 2 + length


def write_user_properties(out, at, limit, p, table, table_end):
    """Write a table's headers (texts, numbers, booleans) as user properties. Returns their end."""
    count = 0
    while table < table_end and count < USER_PROPERTIES_MAX:
        length = p[table]
        value = table + 1 + length
        after = fields.skip_value(p, value)
        if not is_reserved(p, table + 1, length) and topics.scan_text(p, table + 1, value) >= 0:
            before = at
            if p[value] == LONGSTR:
                if topics.scan_text(p, value + 5, after) >= 0:
                    at = write_user_property(
                        out, at, limit, p, table + 1, length, p, value + 5, after - value - 5)
            else:
                text = text_of(p, value)
                if text:
                    at = write_user_property(
                        out, at, limit, p, table + 1, length, octets.pointer(text), 0, len(text))
            count += at > before
        table = after
    return at


def integer_of(p, at):
    """Return the value of a header, whose type byte is at ``p[at]``, if it is an integer, else -1."""
    # Values of other types are not decoded: an array may be long, and this runs once per recipient.
    if p[at] in b"bBsuIilL":
        return fields.read_value(p, at)
    return -1


def text_of(p, at):
    """Return a header's number or boolean at ``p[at]`` as text (bytes); b"" for a value of another type."""
    kind = p[at]
    if kind == BOOLEAN:
        return b"true" if p[at + 1] else b"false"
    if kind in b"bBsuIilLfd":
        return repr(fields.read_value(p, at)).encode()
    return b""


# for code that is not compiled against this module

FORM = MQTTForm()


def record_flags(qos, retain, replayed=False, named=False):
    """Return the flags of an MQTT record. ``named``: its properties end with the publisher's client id."""
    flags = qos << QOS_SHIFT | (RETAIN if retain else 0)
    return flags | (REPLAYED if replayed else 0) | (NAMED if named else 0)


def qos_of(flags):
    """Return the QoS in an MQTT record's flags: of the publish or, in a retained replay, of the delivery."""
    return flags >> QOS_SHIFT & QOS_MASK


def is_acknowledged(flags):
    """Return whether a record's flags say: published at QoS 1 or 2, and no replay of a retained message."""
    return qos_of(flags) > 0 and not flags & REPLAYED


def with_publisher(block, client_id):
    """Return a PUBLISH's properties (bytes), then a user property with the publisher's client id."""
    octets_ = client_id.encode()
    return b"".join((block, PUBLISHER_KEY, len(octets_).to_bytes(2, "big"), octets_))


def without_publisher(block, flags):
    """Split an MQTT record's properties. Returns (properties as published, publisher's client id or None)."""
    if not flags & NAMED:
        return block, None
    at = block.rfind(PUBLISHER_KEY)
    if at < 0:
        return block, None
    return block[:at], block[at + len(PUBLISHER_KEY) + 2:].decode("utf-8", "replace")


def basic_of(routing, raw, flags):
    """Return the basic properties of a stored PUBLISH, from the bytes of its record. Raises ValueError."""
    p = routing + raw
    data = bytearray(FORM.basic_bound(len(raw)))
    end = FORM.write_basic(
        octets.pointer(data), 0, forms.BASIC_MAX, octets.pointer(p), 0, len(routing), len(raw), flags)
    if end < 0:
        raise ValueError("malformed properties of a PUBLISH")
    return bytes(data[:end])


def block_of(raw, expiry_s=-1):
    """Convert basic properties to properties of a PUBLISH. Both are bytes. Raises ValueError if malformed."""
    data = bytearray(block_bound(len(raw)))
    end = write_block(octets.pointer(data), 0, octets.pointer(raw), 0, len(raw), expiry_s)
    if end < 0:
        raise ValueError("malformed basic properties")
    return bytes(data[:end])


def is_block_of(raw):
    """Return whether ``raw`` (bytes) is a well-formed list of properties of a PUBLISH or a will."""
    return is_block(octets.pointer(raw), 0, len(raw))


def flags_of_basic(raw, persistent):
    """Return the flags of an MQTT record for a message with well-formed basic properties ``raw`` (bytes)."""
    return flags_of(octets.pointer(raw), 0, len(raw), persistent)
