"""Reads the JSON configuration file of dispatchd, another AMQP broker, into settings.

Keys: ``amqp-port``, ``admin-port``, ``persist-dir``, ``strict-mode``, ``users``: {name:
{``password_bcrypt_base64``}}. Other keys and types are refused: if the name of a port is misspelled, the
broker must not use the default port.
"""
import base64
import binascii
import json
from typing import Any

from gomq_py.config.settings import Settings

_BCRYPT_PREFIXES = (b"$2a$", b"$2b$", b"$2y$")
_BCRYPT_LENGTH = 60


class DispatchdError(ValueError):
    """The file is unusable. The text names the key and the expected value."""


def read(settings: Settings, text: str, place: str) -> list[str]:
    """Set ``settings`` from dispatchd's JSON. Return warnings. ``place``: the file. Raises DispatchdError."""
    try:
        values = json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        raise DispatchdError(f"{place}:{error.lineno}: no JSON: {error.msg}") from None
    except DispatchdError as error:
        raise DispatchdError(f"{place}: {error}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or very deep nesting
        raise DispatchdError(
            f"{place}: no configuration: numbers too long or objects too deep to be read"
        ) from None
    if not isinstance(values, dict):
        raise DispatchdError(f"{place}: should be an object, not {_named(values)}")
    unknown = sorted(set(values) - set(_KEYS))
    if unknown:
        raise DispatchdError(f"{place}: unknown key {unknown[0]!r}; there are {', '.join(_KEYS)}")
    warnings: list[str] = []
    for key, value in values.items():
        warnings += _KEYS[key](settings, value, f"{place}: {key}")
    return warnings


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise DispatchdError(f"key {key!r} is given twice")
        found[key] = value
    return found


def _port(attribute: str) -> Any:
    def take(settings: Settings, value: Any, place: str) -> list[str]:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65535:
            raise DispatchdError(f"{place} should be a port, a number from 0 to 65535, not {_named(value)}")
        settings.set(attribute, value, place)
        return []

    return take


def _persist_dir(settings: Settings, value: Any, place: str) -> list[str]:
    if not isinstance(value, str) or not value:
        raise DispatchdError(f"{place} should be the path of a folder, not {_named(value)}")
    settings.set("data_dir", value, place)
    return []


def _strict_mode(_settings: Settings, value: Any, place: str) -> list[str]:
    if not isinstance(value, bool):
        raise DispatchdError(f"{place} should be true or false, not {_named(value)}")
    if value:
        return [f"{place} has no effect: field tables are read as RabbitMQ and its clients write them"]
    return []


def _users(settings: Settings, value: Any, place: str) -> list[str]:
    if not isinstance(value, dict):
        raise DispatchdError(f"{place} should be an object of users, not {_named(value)}")
    hashes = {}
    for name, entry in value.items():
        where = f"{place}: {name}"
        if not name:
            raise DispatchdError(f"{place}: a user without a name")
        if not isinstance(entry, dict) or set(entry) != {"password_bcrypt_base64"}:
            raise DispatchdError(f"{where} should be an object with the one key password_bcrypt_base64")
        hashes[name] = _bcrypt(entry["password_bcrypt_base64"], f"{where}: password_bcrypt_base64")
    if hashes:
        settings.first_users = hashes
    return []


def _bcrypt(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise DispatchdError(f"{place} should be a text, not {_named(value)}")
    try:
        octets = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise DispatchdError(f"{place} is not base64") from None
    if len(octets) != _BCRYPT_LENGTH or not octets.startswith(_BCRYPT_PREFIXES):
        raise DispatchdError(f"{place} does not hold a bcrypt hash")
    return octets.decode("ascii", "replace")


def _named(value: Any) -> str:
    """Return the JSON type of a value, in words for an error text: the value itself may be a secret."""
    names = {
        type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a text",
        list: "an array", dict: "an object",
    }
    return names[type(value)]


_KEYS = {
    "amqp-port": _port("amqp_port"), "admin-port": _port("http_port"), "persist-dir": _persist_dir,
    "strict-mode": _strict_mode, "users": _users,
}
