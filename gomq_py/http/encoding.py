"""Message bodies in JSON: text if they are UTF-8, base64 if they are not or if the request asks for it."""
import base64

from gomq_py.content.properties import Properties
from gomq_py.errors import Malformed


def encoded(payload, encoding):
    """(text, ``string`` or ``base64``) of a body; ``encoding`` is ``auto`` or ``base64``."""
    if encoding == "auto":
        try:
            return payload.decode("utf-8"), "string"
        except UnicodeDecodeError:
            pass  # not UTF-8: "auto" means base64 then
    return base64.b64encode(payload).decode(), "base64"


def content_shown(message, encoding, most):
    """Properties of a Message and up to ``most`` octets of its body; of malformed content the reason instead
    of the properties.
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
