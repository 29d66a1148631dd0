"""Gate: stops and resumes all deliveries of a broker.

While the gate is shut, queues deliver nothing, and webhooks post nothing. Gets (basic.get, management API)
wait. Transfers (of shovels, federation, dead letters, delayed messages) pause. Connections stay open,
and their frames are handled. An elected leader shuts the gate while it may have a successor
(cluster.leadership).
"""
from gevent.event import Event


class Gate:
    """Stops and resumes all deliveries of one broker. ``scheduler`` does the deliveries and transfers."""

    def __init__(self, scheduler):
        self._scheduler = scheduler
        self._is_open = Event()
        self._is_open.set()

    def shut(self):
        """Deliver nothing until open(). Does not switch greenlets."""
        self._is_open.clear()
        self._scheduler.shut()

    def open(self):
        """Resume all deliveries. Does not switch greenlets."""
        self._is_open.set()
        self._scheduler.open()

    def wait(self):
        """Wait until the gate is open. May switch greenlets."""
        self._is_open.wait()
