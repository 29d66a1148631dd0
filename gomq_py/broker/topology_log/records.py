"""Makes the records of the definitions log (storage.logs.definition_log).

There is one function for each kind of change of a durable definition. broker.topology.recovery reads the
records. An *incarnation* is 16 random bytes, which distinguish the folder of a queue or other store from the
folder of an earlier one of the same name.
"""
from gomq_py.storage.logs.log_records import is_flag, is_str, is_table, is_text, is_texts, optional


def is_incarnation(value):
    """Return True if the value can be an incarnation: 16 bytes."""
    return isinstance(value, bytes) and len(value) == 16


REMOVAL = "removal"
_NAMED = {"vhost": is_text, "name": is_text}
_BINDING = {
    "vhost": is_text, "source": is_text, "destination": is_text, "to": is_str, "key": is_text,
    "arguments": is_table,
}
_PARAMETER = {"vhost": is_text, "component": is_text, "name": is_text}
_NOTE = {"vhost": is_text, "room": is_str, "name": is_text}

# Required fields of records: {op: {field: check}}.
SHAPES = {
    "exchange": {
        **_NAMED, "type": is_str, "auto_delete": is_flag, "internal": is_flag, "arguments": is_table,
        "incarnation": optional(lambda value: not value or is_incarnation(value)),
    },
    "exchange-delete": _NAMED,
    "queue": {
        **_NAMED, "auto_delete": is_flag, "arguments": is_table, "incarnation": is_incarnation,
        "by": optional(is_str),
    },
    "queue-delete": _NAMED,
    REMOVAL: {"incarnation": is_incarnation},
    "store": {**_NAMED, "incarnation": is_incarnation},
    "bind": _BINDING,
    "unbind": _BINDING,
    "vhost": {"name": is_text, "description": is_str, "tags": is_texts},
    "vhost-delete": {"name": is_text},
    "parameter": {**_PARAMETER, "value": is_str, "waits": optional(is_flag), "by": optional(is_str)},
    "parameter-clear": _PARAMETER,
    "note": {**_NOTE, "value": is_str},
    "note-clear": _NOTE,
    "global-parameter": {"name": is_text, "value": is_str},
    "global-parameter-clear": {"name": is_text},
}


def exchange_declared(exchange, incarnation=b""):
    """Return the record of an exchange. ``incarnation``: of a delayed exchange's store, or empty."""
    return {
        "op": "exchange", "vhost": exchange.vhost, "name": exchange.name, "type": exchange.type,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal, "arguments": exchange.arguments, "incarnation": incarnation,
    }


def exchange_deleted(exchange):
    return {"op": "exchange-delete", "vhost": exchange.vhost, "name": exchange.name}


def queue_declared(queue, incarnation):
    """Return the record of a queue that was declared, paused, resumed or redefined."""
    return {
        "op": "queue", "vhost": queue.vhost, "name": queue.name, "auto_delete": bool(queue.auto_delete),
        "arguments": queue.arguments, "incarnation": incarnation, "paused": bool(queue.paused),
        **({} if queue.declared_by is None else {"by": queue.declared_by}),
    }


def queue_deleted(queue):
    return {"op": "queue-delete", "vhost": queue.vhost, "name": queue.name}


def removal(incarnation):
    """Return the record of a deleted entity whose folder may still exist."""
    return {"op": REMOVAL, "incarnation": incarnation}


def store_made(vhost, name, incarnation):
    """Return the record of the message store ``name`` that belongs to the vhost and to no queue."""
    return {"op": "store", "vhost": vhost, "name": name, "incarnation": incarnation}


def bound(binding):
    return _binding("bind", binding)


def unbound(binding):
    return _binding("unbind", binding)


def _binding(op, binding):
    return {
        "op": op, "vhost": binding.source.vhost, "source": binding.source.name,
        "destination": binding.destination.name,
        "to": binding.destination_type, "key": binding.routing_key, "arguments": binding.arguments,
    }


def vhost_created(vhost):
    """Return the record of a vhost's current properties, which replaces earlier records of the vhost."""
    return {
        "op": "vhost", "name": vhost.name, "description": vhost.description, "tags": vhost.tags,
        "default_queue_type": vhost.default_queue_type, "protected": vhost.protected_from_deletion,
    }


def vhost_deleted(name):
    return {"op": "vhost-delete", "name": name}


def parameter_set(vhost, component, name, value, waits, by=None):
    """Return the record of a parameter. ``value``: JSON text. ``waits``: True if the value is *waiting* (see
    Parameters). ``by``: the user who set it, OPERATOR or None (see Parameters.set).
    """
    return {
        "op": "parameter", "vhost": vhost, "component": component, "name": name, "value": value,
        "waits": waits, **({} if by is None else {"by": by}),
    }


def parameter_cleared(vhost, component, name):
    return {"op": "parameter-clear", "vhost": vhost, "component": component, "name": name}


def note_set(vhost, room, name, value):
    """Return the record of one note (see Notes). ``room``: its package. ``value``: JSON text."""
    return {"op": "note", "vhost": vhost, "room": room, "name": name, "value": value}


def note_cleared(vhost, room, name):
    return {"op": "note-clear", "vhost": vhost, "room": room, "name": name}


def global_parameter_set(name, value):
    """Return the record of a parameter of the whole broker. ``value``: JSON text."""
    return {"op": "global-parameter", "name": name, "value": value}


def global_parameter_cleared(name):
    return {"op": "global-parameter-clear", "name": name}
