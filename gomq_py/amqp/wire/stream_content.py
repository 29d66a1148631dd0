"""Stream content: the header and body frames of a message delivered from a stream, which tells its offset in
the header ``x-stream-offset``.

Beside delivery. The properties are stored as the publisher sent them; the offset goes to the end of the
header table while they are copied out. One that came with the message, which then was read from a stream
before, gives way to it. A leaf, no I/O.

    0F "x-stream-offset" | 6C | offset i64
"""
from gomq_py import octets
from gomq_py.amqp.wire import delivery
from gomq_py.content import fields, properties

HEADERS = 0x2000  # the flag of properties that have headers (content.properties)

KEY = b"\x0fx-stream-offset"
KEY_BYTES = 16
ENTRY_BYTES = 25
# What the properties grow by at most: the entry, and a table for it.
GROWTH_BYTES = 29


def write_stream_content(
    out, at, channel, source, properties_at, properties_length, body_at, body_length, frame_max, offset,
):
    """Write the header frame, with the offset, and the body frames at ``at``; returns the offset behind them.

    The properties were checked when they were published. Where a frame of ``frame_max`` has no room for the
    header it is left out.
    """
    if properties_length + 20 + GROWTH_BYTES > frame_max:
        return delivery.write_content(
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
    return delivery.write_body(out, at + 1, channel, source, body_at, body_length, frame_max)
