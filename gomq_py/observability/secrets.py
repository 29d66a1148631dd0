"""Replaces passwords with asterisks in texts and values that are shown, and restores them when a client sends
a shown value back.

For the log, the management API and events. Exported definitions keep their passwords, because a broker is
restored from them.
"""
import re
from typing import Any

HIDDEN = "***"
# user:password@ in a URI. A password may hold "@", as people write it, and, unless it looks like a port, "/",
# "?" or "#" too, which cannot be told from a path: hiding too much is better. Schemes and the second search
# are bounded: a long text of near matches would take its length squared, 3 s for 32 KB of "a.a.a."
_IN_URI = re.compile(
    r"(\b[a-z][a-z0-9+.-]{0,31}://(?!\[)[^\s:/?#@]*:)(?:[^\s/?#]+|(?!\d+(?:[/?#]|$))[^\s,;\"']{1,512})(@)",
    re.IGNORECASE,
)
# user@ and user:@: without a password the user's name may be a token.
_USER_ALONE = re.compile(r"(\b[a-z][a-z0-9+.-]{0,31}://)[^\s:/?#]+(:?@)", re.IGNORECASE)
# Secrets in the query of a URI.
_IN_QUERY = re.compile(
    r"([?&][\w.-]{0,64}?(?:password|passphrase|passwd|secret|token|api[-_]?key)=)[^&#\s]+", re.IGNORECASE
)
# A web hook's query may be a key to it, whatever its name.
_HTTP_QUERY = re.compile(r"(\bhttps?://[^\s?#\"']*\?)([^\s#\"']+)", re.IGNORECASE)
# A web hook's path may be a key to it, too (Slack, Discord).
_HTTP_PATH = re.compile(r"(\bhttps?://[^\s/?#]*/)[^\s?#]+", re.IGNORECASE)
# Ends of the names of fields with secrets; "-" counts as "_".
_FIELDS = (
    "password", "password_hash", "passphrase", "passwd", "secret", "token", "apikey", "api_key", "access_key",
    "secret_key", "private_key", "account_key", "subscription_key", "functions_key", "auth_key",
    "authorization", "credentials", "cookie",
)
# Ends of the names of fields with a URI.
_URIS = ("uri", "uris", "url", "urls")


def _is_secret(field: Any) -> bool:
    return isinstance(field, str) and field.lower().replace("-", "_").endswith(_FIELDS)


def _is_uri(field: Any) -> bool:
    return isinstance(field, str) and field.lower().endswith(_URIS)


def without_passwords(text: str) -> str:
    """Return a text with asterisks for secrets in URIs: passwords, lone user names, secrets in the query."""
    if "://" not in text:
        return text
    text = _USER_ALONE.sub(r"\1" + HIDDEN + r"\2", _IN_URI.sub(r"\1" + HIDDEN + r"\2", text))
    return _HTTP_QUERY.sub(_without_values, _IN_QUERY.sub(r"\1" + HIDDEN, text))


def without_keys(uri: str) -> str:
    """Return a URI with asterisks for its secrets and, over HTTP, for its path, which may be a key."""
    return _HTTP_PATH.sub(r"\1" + HIDDEN, without_passwords(uri))


def _without_values(query: re.Match[str]) -> str:
    parts = (part.partition("=") for part in query[2].split("&"))
    return query[1] + "&".join(f"{name}={HIDDEN}" if mark else HIDDEN for name, mark, _ in parts)


def shown(value: Any, field: Any = "") -> Any:
    """Return a copy of ``value``, JSON of a field named ``field``, with asterisks in place of secrets."""
    if isinstance(value, dict):
        return {
            key: HIDDEN if _is_secret(key) and isinstance(item, str) and item else shown(item, key)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [shown(item, field) for item in value]
    if not isinstance(value, str):
        return value
    return without_keys(value) if _is_uri(field) else without_passwords(value)


def restored(value: Any, before: Any, field: Any = "") -> Any:
    """Return a copy of ``value``, in which unchanged parts have the secrets of ``before`` again.

    A client made ``value`` from ``shown(before, field)``. Raises ValueError if a hidden secret would be used
    for another URI than before.
    """
    if isinstance(value, dict) and isinstance(before, dict):
        return {key: _restored_field(key, value, before) for key in value}
    if isinstance(value, list) and isinstance(before, list) and len(value) == len(before):
        return [restored(item, old, field) for item, old in zip(value, before)]
    return (
        before if isinstance(value, str) and isinstance(before, str) and value == shown(before, field)
        else value
    )


def _restored_field(key: str, value: dict[str, Any], before: dict[str, Any]) -> Any:
    item = value[key]
    if key not in before:
        return item
    if not (_is_secret(key) and item == HIDDEN and isinstance(before[key], str)):
        return restored(item, before[key], key)
    for place in {*value, *before}:
        if _is_uri(place):
            # with a web server's path, as far as that is shown
            if shown(restored(value.get(place), before.get(place), place)) != shown(before.get(place)):
                raise ValueError(f"{key}: give it anew, for {place} has changed")
    return before[key]
