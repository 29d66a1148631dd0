"""Secrets: passwords inside texts and values that are shown to people, as asterisks; and back again where
somebody returns what was shown.

For the log, the management door and events. Definitions are exported with their passwords, for they are what
a broker is made of again.
"""
import re
from typing import Any

HIDDEN = "***"
# user:password@ in a URI. A password may hold "@", as people write it, and, unless it looks like a port, "/",
# "?" or "#" too, which cannot be told from a path: better to hide some of that. Schemes and the second search
# are bounded, or a long text that looks like very many would take its length squared: 3 s for 32 KB of
# "a.a.a."
_IN_URI = re.compile(
    r"(\b[a-z][a-z0-9+.-]{0,31}://(?!\[)[^\s:/?#@]*:)(?:[^\s/?#]+|(?!\d+(?:[/?#]|$))[^\s,;\"']{1,512})(@)",
    re.IGNORECASE,
)
# What some URIs have in their query.
_IN_QUERY = re.compile(
    r"([?&](?:password|passphrase|passwd|secret|client_secret|token)=)[^&#\s]+", re.IGNORECASE
)
# How names of fields end whose texts are secrets.
_FIELDS = ("password", "password_hash", "passphrase", "passwd", "secret", "token")


def _is_secret(field: Any) -> bool:
    return isinstance(field, str) and field.lower().endswith(_FIELDS)


def without_passwords(text: str) -> str:
    """The text with passwords of URIs hidden."""
    if "://" not in text:
        return text
    return _IN_QUERY.sub(r"\1" + HIDDEN, _IN_URI.sub(r"\1" + HIDDEN + r"\2", text))


def shown(value: Any) -> Any:
    """A value of JSON with every secret hidden; the value itself stays as it is."""
    if isinstance(value, dict):
        return {
            key: HIDDEN if _is_secret(key) and isinstance(item, str) and item else shown(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [shown(item) for item in value]
    return without_passwords(value) if isinstance(value, str) else value


def restored(value: Any, before: Any) -> Any:
    """A value that was made of ``shown(before)``: what is as it was shown becomes what it was, so that
    reading and writing back loses no password.
    """
    if isinstance(value, dict) and isinstance(before, dict):
        return {
            key: restored(item, before[key]) if key in before and not _is_shown(key, item, before[key])
            else before.get(key, item) for key, item in value.items()
        }
    if isinstance(value, list) and isinstance(before, list) and len(value) == len(before):
        return [restored(item, old) for item, old in zip(value, before)]
    return (
        before if isinstance(value, str) and isinstance(before, str) and value == without_passwords(before)
        else value
    )


def _is_shown(key: str, item: Any, before: Any) -> bool:
    return _is_secret(key) and item == HIDDEN and isinstance(before, str)
