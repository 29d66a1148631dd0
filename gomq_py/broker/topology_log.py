"""Topology log: every durable definition of the broker as a log of changes, replayed at boot.

Below vhosts and parameters, above storage.framed_log. A record is a field table (amqp.wire.fields) with a key ``op``; broker.recovery has the table
of them. An append is on disk when the committer has synced: whoever answers a client waits for that. Never yields.
"""
from gomq_py.amqp.wire.fields import decode_table, encode_table
from gomq_py.storage.framed_log import FramedLog


class TopologyLog:
    """The log of one broker. Exhaust ``replay`` before the first ``append``."""

    def __init__(self, files, path, committer):
        self._committer = committer
        self._log = FramedLog(files, path)

    @property
    def record_count(self):
        return self._log.record_count

    @property
    def damage(self):
        """What replay found broken, see storage.framed_log.Damage."""
        return self._log.damage

    def replay(self):
        """Every record in order, as dicts. For boot: blocks. Raises LogError."""
        for payload in self._log.replay():
            yield decode_table(payload)[0]

    def append(self, record):
        """Add a record. Raises OSError, and then nothing has changed."""
        self._log.append(encode_table(record))
        self._committer.mark_file(self._log.file)

    def rewrite(self, records):
        """Replace the log by these records. For boot: blocks. Raises OSError."""
        self._log.rewrite(encode_table(record) for record in records)

    def close(self):
        self._log.close()


class NullLog:
    """Keeps nothing: for vhosts in tests."""

    def append(self, record):
        pass
