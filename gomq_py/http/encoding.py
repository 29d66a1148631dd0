"""Message bodies as JSON can hold them: text where they are text, base64 where they are not or where that is
asked for.
"""
import base64


def encoded(payload, encoding):
    """(text, ``string`` or ``base64``) of a body; ``encoding`` is ``auto`` or ``base64``."""
    if encoding == "auto":
        try:
            return payload.decode("utf-8"), "string"
        except UnicodeDecodeError:
            pass  # not text: shown as base64, as "auto" means
    return base64.b64encode(payload).decode(), "base64"
