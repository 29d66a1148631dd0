"""Delivery frames: writes the frames of a message into an output buffer, straight from where the message
lies, without an object per message. No I/O.

    basic.deliver   type 1, channel, size | 00 3C 00 3C, consumer tag, delivery tag u64, redelivered,
                    exchange, routing key | CE
    basic.get-ok    the same with 00 3C 00 47 and no consumer tag, and a message count u32 at the end (encoded
                    by frames.method_frame)
    header          type 2, channel, size | 00 3C 00 00, body size u64, properties | CE
                    (properties of content that came by another protocol are made by its Form)
    body            type 3, channel, size | up to frame_max - 8 bytes of the body | CE
                    (no such frame for an empty body)

Deliveries from a stream have their offset in an entry at the end of the header table:

    0F "x-stream-offset" | 6C | offset i64
"""
from gomq_py import octets
from gomq_py.content import fields, forms, properties

# Octets of a frame besides its payload: type, channel, size and the end octet.
FRAME_OVERHEAD = 8
# Octets of a header frame besides the properties: the same with class, weight and body size.
HEADER_OVERHEAD = 20

HEADERS = 0x2000  # the flag of properties that have headers (content.properties)
KEY = b"\x0fx-stream-offset"
KEY_BYTES = 16
ENTRY_BYTES = 25
# Most octets that a stream offset adds to the properties: the entry, and a table for it.
GROWTH_BYTES = 29


def delivery_size(prefix_length, routing_length, properties_length, body_length, frame_max):
    """Return the size in bytes of a delivery's frames. ``prefix_length``: as in write_delivery()."""
    # 3 frames with 8 octets around each, delivery tag and redelivered (9), class, weight and body size (12).
    size = 2 * FRAME_OVERHEAD + prefix_length + 9 + routing_length + 12 + properties_length
    if body_length:
        size += body_length + FRAME_OVERHEAD * (
            (body_length + frame_max - FRAME_OVERHEAD - 1) // (frame_max - FRAME_OVERHEAD)
        )
    return size


def write_delivery(
    out, at, channel, prefix, prefix_length, tag, redelivered, source, routing_at, routing_length
):
    """Write the method frame of a delivery at ``out[at]``. Returns the offset after it in ``out``.
    ``prefix``: class id, method id, and the consumer tag as a short string. At ``source[routing_at]`` are
    exchange and routing key, as short strings.
    """
    out[at] = 1
    octets.put_be16(out, at + 1, channel)
    octets.put_be32(out, at + 3, prefix_length + 9 + routing_length)
    octets.copy(out, at + 7, prefix, 0, prefix_length)
    at += 7 + prefix_length
    octets.put_be64(out, at, tag)
    out[at + 8] = 1 if redelivered else 0
    octets.copy(out, at + 9, source, routing_at, routing_length)
    at += 9 + routing_length
    out[at] = 0xCE
    return at + 1


def write_content(
    out, at, channel, source, properties_at, properties_length, body_at, body_length, frame_max
):
    """Write a message's header frame and body frames at ``out[at]``. Returns the offset after them."""
    at = write_header(out, at, channel, source, properties_at, properties_length, body_length)
    return write_body(out, at, channel, source, body_at, body_length, frame_max)


def write_header(out, at, channel, source, properties_at, properties_length, body_length):
    """Write a message's header frame at ``out[at]``. Returns the offset in ``out`` after it."""
    out[at] = 2
    octets.put_be16(out, at + 1, channel)
    octets.put_be32(out, at + 3, 12 + properties_length)
    octets.put_be32(out, at + 7, 0x003C0000)
    octets.put_be64(out, at + 11, body_length)
    octets.copy(out, at + 19, source, properties_at, properties_length)
    at += 19 + properties_length
    out[at] = 0xCE
    return at + 1


def write_stream_content(
    out, at, channel, source, properties_at, properties_length, body_at, body_length, frame_max, offset,
):
    """Write the header and body frames of a stream's message at ``out[at]``. Returns the offset after them.
    Sets the header ``x-stream-offset`` to ``offset``, if a frame has room. The properties must be valid.
    """
    # A publisher's own ``x-stream-offset`` is replaced. The header is left out if a frame of ``frame_max``
    # has no room for it.
    if properties_length + 20 + GROWTH_BYTES > frame_max:
        return write_content(
            out, at, channel, source, properties_at, properties_length, body_at, body_length, frame_max
        )
    start = at
    end = properties_at + properties_length
    headers = properties.headers_at(source, properties_at)
    out[at] = 2
    octets.put_be16(out, at + 1, channel)
    octets.put_be32(out, at + 7, 0x003C0000)
    octets.put_be64(out, at + 11, body_length)
    flags = octets.be16(source, properties_at)
    octets.put_be16(out, at + 19, flags | HEADERS)
    octets.copy(out, at + 21, source, properties_at + 2, headers - properties_at - 2)
    at += 19 + headers - properties_at
    table = at
    at += 4
    if flags & HEADERS:
        table_end = headers + 4 + octets.be32(source, headers)
        headers += 4
        found = fields.find_key(source, headers, table_end, KEY, KEY_BYTES)
        if found >= 0:
            octets.copy(out, at, source, headers, found - headers)
            at += found - headers
            headers = fields.skip_value(source, found + KEY_BYTES)
        octets.copy(out, at, source, headers, table_end - headers)
        at += table_end - headers
        headers = table_end
    octets.copy(out, at, KEY, 0, KEY_BYTES)
    out[at + 16] = 0x6C
    octets.put_be64(out, at + 17, offset)
    at += ENTRY_BYTES
    octets.put_be32(out, table, at - table - 4)
    octets.copy(out, at, source, headers, end - headers)
    at += end - headers
    out[at] = 0xCE
    octets.put_be32(out, start + 3, at - start - 7)
    return write_body(out, at + 1, channel, source, body_at, body_length, frame_max)


def write_translated(
    out, at, channel, form, source, routing_at, properties_at, properties_length, flags, body_at, body_length,
    frame_max
):
    """Write the header and body frames of a message of another protocol at ``out[at]``. ``form`` translates
    the properties. Returns the offset in ``out`` after the frames, or -1 for malformed properties. ``out``
    must have room for translated_bound() bytes of properties.
    """
    end = write_properties(
        out, at + 19, form, source, routing_at, properties_at, properties_length, flags, frame_max)
    if end < 0:
        return -1
    out[at] = 2
    octets.put_be16(out, at + 1, channel)
    octets.put_be32(out, at + 3, end - at - 7)
    octets.put_be32(out, at + 7, 0x003C0000)
    octets.put_be64(out, at + 11, body_length)
    out[end] = 0xCE
    return write_body(out, end + 1, channel, source, body_at, body_length, frame_max)


def write_properties(
    out, at, form, source, routing_at, properties_at, properties_length, flags, frame_max
):
    """Write properties translated by ``form`` at ``out[at]``. Returns their end; -1 if they are malformed."""
    most = frame_max - HEADER_OVERHEAD
    if most > forms.BASIC_MAX:
        most = forms.BASIC_MAX
    return form.write_basic(out, at, most, source, routing_at, properties_at, properties_length, flags)


def translated_bound(form, properties_length, frame_max):
    """Return the most bytes of AMQP properties that ``form`` makes of ``properties_length`` bytes."""
    bound = form.basic_bound(properties_length)
    return bound if bound < frame_max - HEADER_OVERHEAD else frame_max - HEADER_OVERHEAD


def write_body(out, at, channel, source, body_at, body_length, frame_max):
    """Write a message's body frames at ``out[at]``. Returns the offset in ``out`` after them."""
    while body_length > 0:
        part = body_length
        if part > frame_max - FRAME_OVERHEAD:
            part = frame_max - FRAME_OVERHEAD
        out[at] = 3
        octets.put_be16(out, at + 1, channel)
        octets.put_be32(out, at + 3, part)
        octets.copy(out, at + 7, source, body_at, part)
        at += 7 + part
        out[at] = 0xCE
        at += 1
        body_at += part
        body_length -= part
    return at
