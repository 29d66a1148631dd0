"""Alarms: the broker is short of memory or disk. While one is on, doors hold clients that publish and serve
all others.

The resource watch or a test raises an alarm, and lifts it itself; doors act on it. Publishers go on when the
last alarm is lifted. Never yields.
"""
from gomq_py.observability.log import logger

LOG = logger("alarm")
MEMORY, DISK = "memory", "disk"
LOW_ON = "low on "


class Alarms:
    """The alarms of one broker, each under the name of who raised it."""

    def __init__(self):
        self._raised = {}
        self._listeners = []

    def subscribe(self, listener):
        """Call ``listener(reason)`` when publishers are to be held, and ``listener(None)`` when they may go
        on.

        If an alarm is on it is called at once.
        """
        self._listeners.append(listener)
        if self.reason is not None:
            listener(self.reason)

    def set(self, source, resource, detail=""):
        """Raise the alarm of ``source`` about ``resource`` (MEMORY, DISK or another word). ``detail`` is for
        the log.
        """
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
        """Lift the alarm of ``source``, if it has raised one."""
        resource = self._raised.pop(source, None)
        if resource is None:
            return
        LOG.warning("%s alarm is over%s", resource, f": {detail}" if detail else "")
        if not self._raised:
            self._tell()

    def is_on(self, resource=None):
        """Whether an alarm about this resource is on, or any at all."""
        return bool(self._raised) if resource is None else resource in self._raised.values()

    @property
    def resources(self):
        """What the broker is short of, each once, in the order in which it was found."""
        return list(dict.fromkeys(self._raised.values()))

    @property
    def reason(self):
        """Why publishers are held, in the words of RabbitMQ's connection.blocked; None when they are not."""
        return LOW_ON + " & ".join(self.resources) if self._raised else None

    def _tell(self):
        for listener in self._listeners:
            listener(self.reason)
