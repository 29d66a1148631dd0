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
# A web hook's query may be a key to it, whatever its name.
_HTTP_QUERY = re.compile(r"(\bhttps?://[^\s?#\"']*\?)([^\s#\"']+)", re.IGNORECASE)
# How names of fields end whose texts are secrets.
_FIELDS = ("password", "password_hash", "passphrase", "passwd", "secret", "token")


def _is_secret(field: Any) -> bool:
    return isinstance(field, str) and field.lower().endswith(_FIELDS)


def without_passwords(text: str) -> str:
    """The text with passwords of URIs hidden."""
    if "://" not in text:
        return text
    text = _IN_QUERY.sub(r"\1" + HIDDEN, _IN_URI.sub(r"\1" + HIDDEN + r"\2", text))
    return _HTTP_QUERY.sub(_without_values, text)


def _without_values(query: re.Match[str]) -> str:
    parts = (part.partition("=") for part in query[2].split("&"))
    return query[1] + "&".join(f"{name}={HIDDEN}" if mark else HIDDEN for name, mark, _ in parts)


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

    Raises ValueError for a secret that would be told to another place than it was set for.
    """
    if isinstance(value, dict) and isinstance(before, dict):
        return {key: _restored_field(key, value, before) for key in value}
    if isinstance(value, list) and isinstance(before, list) and len(value) == len(before):
        return [restored(item, old) for item, old in zip(value, before)]
    return (
        before if isinstance(value, str) and isinstance(before, str) and value == without_passwords(before)
        else value
    )


def _restored_field(key: str, value: dict[str, Any], before: dict[str, Any]) -> Any:
    item = value[key]
    if key not in before:
        return item
    if not (_is_secret(key) and item == HIDDEN and isinstance(before[key], str)):
        return restored(item, before[key])
    for place in {*value, *before}:
        if isinstance(place, str) and place.lower().endswith("uri"):
            if shown(value.get(place)) != shown(before.get(place)):
                raise ValueError(f"{key}: give it anew, for {place} has changed")
    return before[key]
