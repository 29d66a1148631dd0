"""Alarms: report that the broker is short of memory or disk.

During an alarm, protocol servers stop reading from publishers and serve all other clients. The resource watch
(or a test) raises and lifts alarms. Publishers resume when the last alarm is lifted. Never switches
greenlets.
"""
from gomq_py.observability.log import logger

LOG = logger("alarm")
MEMORY, DISK = "memory", "disk"
LOW_ON = "low on "


class Alarms:
    """The alarms of one broker, at most one for each source; reports to listeners."""

    def __init__(self):
        self._raised = {}
        self._listeners = []

    def subscribe(self, listener):
        """Have ``listener(reason)`` called when the first alarm is raised, and ``listener(None)`` when the
        last one is lifted. In between, publishers must wait. If an alarm is on already, call
        ``listener(reason)`` at once. ``reason``: the text of Alarms.reason.
        """
        self._listeners.append(listener)
        if self.reason is not None:
            listener(self.reason)

    def set(self, source, resource, detail=""):
        """Raise the alarm of ``source``, a name, about ``resource`` (MEMORY or DISK), and log ``detail``."""
        if self._raised.get(source) == resource:
            return
        was = self.reason
        self._raised[source] = resource
        LOG.warning(
            "%s alarm: publishers are held until it is over%s", resource, f": {detail}" if detail else ""
        )
        if was is None:
            self._tell()

    def clear(self, source, detail=""):
        """Lift the alarm of ``source``, if it is on, and log ``detail``."""
        resource = self._raised.pop(source, None)
        if resource is None:
            return
        LOG.warning("%s alarm is over%s", resource, f": {detail}" if detail else "")
        if not self._raised:
            self._tell()

    def is_on(self, resource=None):
        """Return True if an alarm about this resource is on; for None, if any alarm is on."""
        return bool(self._raised) if resource is None else resource in self._raised.values()

    @property
    def resources(self):
        """The resources with alarms, each once, in the order in which the alarms were raised."""
        return list(dict.fromkeys(self._raised.values()))

    @property
    def reason(self):
        """The text for RabbitMQ's connection.blocked, such as "low on memory"; None without an alarm."""
        return LOW_ON + " & ".join(self.resources) if self._raised else None

    def _tell(self):
        for listener in self._listeners:
            listener(self.reason)
