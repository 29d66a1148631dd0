"""Message bodies as JSON can hold them: text where they are text, base64 where they are not or where that is
asked for.
"""
import base64

from gomq_py.content.properties import Properties
from gomq_py.errors import Malformed


def encoded(payload, encoding):
    """(text, ``string`` or ``base64``) of a body; ``encoding`` is ``auto`` or ``base64``."""
    if encoding == "auto":
        try:
            return payload.decode("utf-8"), "string"
        except UnicodeDecodeError:
            pass  # not text: shown as base64, as "auto" means
    return base64.b64encode(payload).decode(), "base64"


def content_shown(message, encoding, most):
    """Properties of a Message and up to ``most`` octets of its body; of content that is malformed, why it
    cannot be read in place of the properties.
    """
    text, used = encoded(message.get_body_start(most), encoding)
    shape = {
        "payload": text, "payload_bytes": message.get_body_length(), "payload_encoding": used,
        "properties": {},
    }
    try:
        shape["properties"] = Properties.decode(message.get_properties()).as_dict()
    except Malformed as error:
        shape["unreadable"] = error.text
    return shape
