"""Alarms: report that the broker is short of memory or disk. During an alarm doors hold publishers and serve
all other clients.

The resource watch (or a test) raises and lifts alarms; doors act on them. Publishers resume when the last
alarm is lifted. Never switches.
"""
from gomq_py.observability.log import logger

LOG = logger("alarm")
MEMORY, DISK = "memory", "disk"
LOW_ON = "low on "


class Alarms:
    """Keeps the alarms of one broker, one for each source, and tells listeners about them."""

    def __init__(self):
        self._raised = {}
        self._listeners = []

    def subscribe(self, listener):
        """Call ``listener(reason)`` when publishers must be held (at once if an alarm is on), and
        ``listener(None)`` when they may resume.
        """
        self._listeners.append(listener)
        if self.reason is not None:
            listener(self.reason)

    def set(self, source, resource, detail=""):
        """Raise the alarm of ``source``, a name, about ``resource`` (MEMORY, DISK...); log ``detail``."""
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
        """Lift the alarm of ``source``, if it is on."""
        resource = self._raised.pop(source, None)
        if resource is None:
            return
        LOG.warning("%s alarm is over%s", resource, f": {detail}" if detail else "")
        if not self._raised:
            self._tell()

    def is_on(self, resource=None):
        """True if an alarm is on: about this resource, or with None about any resource."""
        return bool(self._raised) if resource is None else resource in self._raised.values()

    @property
    def resources(self):
        """List the resources that have alarms, each once, in order of the alarms."""
        return list(dict.fromkeys(self._raised.values()))

    @property
    def reason(self):
        """RabbitMQ's connection.blocked text during an alarm; otherwise None."""
        return LOW_ON + " & ".join(self.resources) if self._raised else None

    def _tell(self):
        for listener in self._listeners:
            listener(self.reason)
