"""Promises: callbacks for confirms, which wait until every required follower has flushed a position.

Used by the acknowledger when the local disk has the changes. ``in_sync.InSync`` says which nodes are
required. Never switches greenlets.
"""
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

Callback = Callable[[Exception | None], Any]
# Above every position: without required followers the local disk is enough.
EVERYTHING = float("inf")


class Promises:
    """Callbacks of confirms that wait, in the order of ``ask``.

    Callbacks neither switch greenlets nor raise, and may call ``ask``. ``promised``: highest position that
    was confirmed.
    """

    __slots__ = (
        "promised", "_waiting", "_flushed", "_required", "_safe", "_is_held", "_is_keeping",
        "_error",
    )

    def __init__(self) -> None:
        self.promised = 0
        self._waiting: deque[tuple[int, Callback]] = deque()
        self._flushed: dict[str, int] = {}  # node id -> position that it has flushed
        self._required: frozenset[str] = frozenset()
        self._safe: float = EVERYTHING  # position that all required nodes have flushed
        self._is_held = True
        self._is_keeping = False
        self._error: Exception | None = None

    def ask(self, position: int, callback: Callback) -> None:
        """Call ``callback(None)`` once every required node has flushed the first ``position`` events.

        The callback may be called before this method returns. If this leader is deposed first, the call is
        ``callback(error)``. Positions must not decrease.
        """
        if self._error is not None:
            callback(self._error)
            return
        self._waiting.append((position, callback))
        self._keep()

    def acknowledged(self, node: str, position: int) -> None:
        """Note that a node has flushed the first ``position`` events of this run.

        Ignores a lower position.
        """
        if position > self._flushed.get(node, 0):
            self._flushed[node] = position
            if node in self._required:
                self._measure()

    def require(self, nodes: Iterable[str]) -> None:
        """Make all confirms that are not sent yet wait for these nodes (InSync.required)."""
        # Called after each method of InSync that may change it, before anything switches.
        self._required = frozenset(nodes)
        self._measure()

    def hold(self, is_held: bool) -> None:
        """Hold back all confirms, or release them. They are held until the first call."""
        # While the node is fenced, or too few nodes are in sync.
        self._is_held = is_held
        self._keep()

    def refuse(self, error: Exception) -> None:
        """Answer all present and later callbacks with this error, because the node is deposed."""
        if self._error is None:
            self._error = error
        while self._waiting:
            self._waiting.popleft()[1](self._error)

    @property
    def asked(self) -> int | None:
        """Highest position that a callback waits for; None without callbacks."""
        return self._waiting[-1][0] if self._waiting else None

    def __len__(self) -> int:
        return len(self._waiting)

    # helpers

    def _measure(self) -> None:
        flushed = self._flushed
        self._safe = min((flushed.get(node, 0) for node in self._required), default=EVERYTHING)
        self._keep()

    def _keep(self) -> None:
        if self._is_keeping:  # a callback has asked again
            return
        self._is_keeping = True
        waiting = self._waiting
        try:
            while waiting and waiting[0][0] <= self._safe and not self._is_held:
                position, callback = waiting.popleft()
                self.promised = max(self.promised, position)
                callback(None)
        finally:
            self._is_keeping = False
