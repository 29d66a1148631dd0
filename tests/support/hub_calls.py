"""HubCalls: a Files that notes which changes are asked of the system by the thread that everybody waits
for, and which by others.
"""
import threading

from tests.support.watched_files import ANNOUNCEMENTS, WatchedFiles


class HubCalls(WatchedFiles):
    """``begin()`` in the hub's thread; from there on each call stands in ``in_hub`` or in ``elsewhere``, by
    its name, with how often it came.
    """

    def __init__(self, listeners=()):
        super().__init__(listeners)
        self._hub = None
        self.in_hub, self.elsewhere, self.paths_in_hub = {}, {}, {}

    def begin(self):
        """Note from here on."""
        self._hub = threading.get_native_id()
        self.in_hub, self.elsewhere, self.paths_in_hub = {}, {}, {}

    def is_hub(self):
        """Whether what calls is the hub's thread."""
        return threading.get_native_id() == self._hub

    def about_to(self, call, subject):
        if self._hub is not None and call not in ANNOUNCEMENTS:
            calls = self.in_hub if self.is_hub() else self.elsewhere
            calls[call] = calls.get(call, 0) + 1
            if self.is_hub():
                self.paths_in_hub.setdefault(call, []).append(subject)
