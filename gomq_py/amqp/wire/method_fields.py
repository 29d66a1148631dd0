"""Method fields: the octets of a method's fields, one after the other, to the attributes of a method.

Below method, which says which fields a method has and what is told of those that cannot be read. A leaf, no
I/O; compiled, for a login and a declare are little else.
"""
from gomq_py import octets
from gomq_py.content import fields

OCTET, SHORT, LONG, LONGLONG, BIT, SHORTSTR, LONGSTR, TABLE = (
    "octet", "short", "long", "longlong", "bit", "shortstr", "longstr", "table"
)


def read_fields(method, kinds, data, at, any_octets):
    """Set the fields of ``kinds``, (name, kind) in their order, which begin at ``at``. False unless they fill
    the octets exactly.

    ``any_octets``: short strings need be no UTF-8. Raises UnicodeDecodeError for one that is none, and
    Malformed for a table.
    """
    p = octets.pointer(data)
    length = len(data)
    bits = bit = 0
    for name, kind in kinds:
        if kind is BIT:
            if not bit & 0xFF:
                if at >= length:
                    return False
                bits, bit = p[at], 1
                at += 1
            setattr(method, name, bits & bit != 0)
            bit <<= 1
            continue
        bit = 0
        if kind is TABLE:
            value, at = fields.decode_table(data, at)
            setattr(method, name, value)
            continue
        size = (
            1 if kind is SHORTSTR or kind is OCTET else 2 if kind is SHORT else 8 if kind is LONGLONG else 4)
        if size > length - at:
            return False
        if kind is SHORTSTR or kind is LONGSTR:
            start = at + size
            size = p[at] if kind is SHORTSTR else octets.be32(p, at)
            if size > length - start:
                return False
            at = start + size
            raw = bytes(p[start:at])
            if kind is LONGSTR:
                setattr(method, name, raw)
            else:
                setattr(method, name, raw.decode("utf-8", "surrogateescape" if any_octets else "strict"))
            continue
        if kind is OCTET:
            setattr(method, name, int(p[at]))
        elif kind is SHORT:
            setattr(method, name, int(octets.be16(p, at)))
        elif kind is LONG:
            setattr(method, name, int(octets.be32(p, at)))
        else:
            setattr(method, name, int(octets.be64(p, at)))
        at += size
    return at == length
