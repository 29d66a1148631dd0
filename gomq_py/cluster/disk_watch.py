"""Disk watch: detects that a flush, or the broker's check of its file system, hangs.

A leader with a hanging disk sends no more keepalives, so that another node is elected. Otherwise it would
lead forever without serving any client, because its event loop still runs.
"""
import time
from typing import Any

# A flush hangs when none has ended for so long.
HANGS_S = 10.0


class DiskWatch:
    """Watches one broker's flushes and its checks of the file system. ``clock()`` returns seconds."""

    def __init__(self, clock: Any = time.monotonic):
        self._clock = clock
        self._flushes: Any = None
        self._probe: Any = None
        self._seen = -1
        self._since_s = 0.0

    def watch_flushes(self, group_commit: Any) -> None:
        self._flushes = group_commit

    def watch_probe(self, resource_watch: Any) -> None:
        self._probe = resource_watch

    @property
    def has_failed(self) -> bool:
        """Whether a flush has failed."""
        return self._flushes is not None and self._flushes.has_failed

    def hangs(self) -> bool:
        """Return whether a flush or a check of the file system hangs. Must be called every few seconds.

        The duration of a flush counts from the first call during that flush.
        """
        return self._probe is not None and self._probe.is_silent or self._is_flush_late()

    def _is_flush_late(self) -> bool:
        flushes, now_s = self._flushes, self._clock()
        if flushes is None or flushes.is_idle or flushes.syncs != self._seen:
            self._seen = -1 if flushes is None else flushes.syncs
            self._since_s = now_s
        return now_s - self._since_s >= HANGS_S
