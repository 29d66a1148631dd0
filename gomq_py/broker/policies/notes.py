"""Notes: what a room keeps in a vhost beside the definitions, in their log: that a shovel is paused, where it
is in a stream.

Beside parameters. A note goes with its vhost, is in no list and no export, and an earlier version of the
broker leaves it out. Never yields.
"""
from gomq_py.broker.policies.parameters import encoded
from gomq_py.broker.topology_log import records


class Notes:
    """The notes of one broker. Those of a vhost lie in ``vhost.notes``, {(room, name): value of JSON}."""

    def __init__(self, log):
        self._log = log

    def set(self, vhost, room, name, value):
        """Keep a value of JSON; nothing where the vhost is gone or it is kept already. Raises OSError."""
        if vhost.is_gone or vhost.notes.get((room, name)) == value:
            return
        self._log.append(records.note_set(vhost.name, room, name, encoded(value)))
        vhost.notes[room, name] = value

    def clear(self, vhost, room, name):
        """Keep nothing under this name any more. Raises OSError."""
        if vhost.is_gone or (room, name) not in vhost.notes:
            return
        self._log.append(records.note_cleared(vhost.name, room, name))
        del vhost.notes[room, name]
