"""Gone: in the place of a passage that has ended, for what still calls it: a slice of the transfer that was
asked for before, a greenlet that is being killed.

A leaf. The ends of a passage let go of it by this. So neither holds the other, and what they keep goes with
the last who needs it: a process of the broker's own may freeze what the cycle collector would find
(observability.garbage), and each passage keeps up to some megabytes.
"""
from typing import Any


class Gone:
    """Takes nothing and hears nothing."""

    __slots__ = ()

    def may_take(self) -> bool:
        """Nothing."""
        return False

    def may_send(self) -> bool:
        """Nothing."""
        return False

    def paused(self) -> None:
        """Nobody goes on."""

    def fail(self, end: str, error: BaseException) -> None:
        """It has ended."""

    def target_turn(self, act: Any) -> None:
        """Nobody acts."""

    def target_methods(self, wire: Any, methods: Any) -> None:
        """Nobody hears them."""

    def refused(self, count: int, error: Any) -> None:
        """Nobody counts."""


GONE = Gone()
