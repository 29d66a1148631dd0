"""Static shovels: defined in the configuration file, one section [shovel:NAME] each.

Keys are those of a shovel parameter; numbers, booleans, lists of URIs (separated by commas) and objects
(JSON) are written as text. ``vhost``: where it is shown, and the virtual host of a URI without one.
"""
import json

from gomq_py.shovel.definition import (
    NUMBER, OBJECT, OLD_NAMES, TRUTH, URIS, Definition, DefinitionError, read_as,
)

VHOST = "vhost"
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def values_of(section):
    """(name of the vhost, value as of a parameter) from {key: text}. Raises DefinitionError naming the key.
    """
    value = {}
    for key, text in section.items():
        if key != VHOST:
            value[key] = _value(OLD_NAMES.get(key, key), text)
    Definition(value)
    return section.get(VHOST, "/"), value


def _value(key, text):
    wanted = read_as(key)
    if wanted == URIS:
        uris = [uri.strip() for uri in text.split(",") if uri.strip()]
        return uris if len(uris) != 1 else uris[0]
    if wanted == OBJECT:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise DefinitionError(f"{key} is an object as JSON writes it") from None
    if wanted == TRUTH:
        return _WORDS.get(text.lower(), text)
    if wanted == NUMBER and len(text) < 20:
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                pass
    return text
