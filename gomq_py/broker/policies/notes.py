"""Notes: state that a room keeps in a vhost, in the definitions log: a shovel is paused, its position in a
stream.

Beside parameters. A note is deleted with its vhost, is in no list and no export, and is ignored by earlier
versions of the broker. Never yields.
"""
from gomq_py.broker.policies.parameters import encoded
from gomq_py.broker.topology_log import records


class Notes:
    """The notes of one broker. Those of a vhost are in ``vhost.notes``, {(room, name): JSON value}."""

    def __init__(self, log):
        self._log = log

    def set(self, vhost, room, name, value):
        """Keep a JSON value; does nothing if the vhost is gone or has the value already. Raises OSError."""
        if vhost.is_gone or vhost.notes.get((room, name)) == value:
            return
        self._log.append(records.note_set(vhost.name, room, name, encoded(value)))
        vhost.notes[room, name] = value

    def clear(self, vhost, room, name):
        """Delete a value. Raises OSError."""
        if vhost.is_gone or (room, name) not in vhost.notes:
            return
        self._log.append(records.note_cleared(vhost.name, room, name))
        del vhost.notes[room, name]
