"""HubCalls: a Files that notes which changes are asked of the system by the thread that everybody waits for, and which by others."""
import threading

from tests.support.watched_files import ANNOUNCEMENTS, WatchedFiles


class HubCalls(WatchedFiles):
    """``begin()`` in the hub's thread; from there on each call stands in ``in_hub`` or in ``elsewhere``, by its name, with how often it came."""

    def __init__(self, listeners=()):
        super().__init__(listeners)
        self._hub = None
        self.in_hub, self.elsewhere = {}, {}

    def begin(self):
        """Note from here on."""
        self._hub = threading.get_native_id()
        self.in_hub, self.elsewhere = {}, {}

    def about_to(self, call, subject):
        if self._hub is not None and call not in ANNOUNCEMENTS:
            calls = self.in_hub if threading.get_native_id() == self._hub else self.elsewhere
            calls[call] = calls.get(call, 0) + 1
