"""Turns: limits how fast the links of one broker connect, so that ten thousand links that start at boot or
lose the same peer do not starve the broker.

A link asks before each attempt. While few ask, each connects at once. While many wait, they connect one after
the other, users in turn, and after each the loop is free for others for as long as the attempt took; links
whose last attempt failed come last. A turn is not held: a peer that does not answer delays no other link.
"""
import time
from weakref import WeakKeyDictionary

import gevent

# Pause between two turns: 500 per second are more than accepting connections takes.
PACE_S = 0.002
# Longest pause after a turn, so that links start even on a busy machine.
REST_MOST_S = 0.05

_of_hubs: WeakKeyDictionary = WeakKeyDictionary()


class Turns:
    """Turns of the links in one hub."""

    def __init__(self, hub):
        self._spawn = hub.spawn
        # account: {callback: None}, oldest first; accounts ordered by their last turn, oldest first
        self._waiting = {}
        self._waiting_after_failure = {}
        self._greenlet = None

    def ask(self, granted, has_failed=False, account=None):
        """Call ``granted()``, which must not switch, at this link's turn. ``account``: the link's."""
        if self._greenlet is None:
            granted()
            self._greenlet = self._spawn(self._run)
            self._greenlet.name = "turns of links"
        else:
            rows = self._waiting_after_failure if has_failed else self._waiting
            rows.setdefault(account, {})[granted] = None

    def wait(self, wakened, is_over, has_failed=False, account=None):
        """Return at this link's turn, or when ``is_over()`` is true after the Event ``wakened``. May switch.
        """
        has_turn = False

        def granted():
            nonlocal has_turn
            has_turn = True
            wakened.set()

        self.ask(granted, has_failed, account)
        try:
            while not (has_turn or is_over()):
                wakened.wait()
                wakened.clear()
        finally:
            self.forget(granted, account)

    def forget(self, granted, account=None):
        """Withdraw a request."""
        for rows in (self._waiting, self._waiting_after_failure):
            row = rows.get(account, {})
            row.pop(granted, None)
            if not row:
                rows.pop(account, None)

    def _run(self):
        try:
            self._pause()
            while rows := self._waiting or self._waiting_after_failure:
                account = next(iter(rows))
                row = rows.pop(account)
                granted = next(iter(row))
                del row[granted]
                if row:
                    rows[account] = row  # behind the others
                granted()
                self._pause()
        finally:
            self._greenlet = None

    @staticmethod
    def _pause():
        began_s = time.monotonic()
        gevent.sleep(PACE_S)
        late_s = time.monotonic() - began_s - PACE_S
        gevent.sleep(max(0.0, min(late_s, REST_MOST_S)))


def turns_of(hub):
    """The Turns of a hub."""
    turns = _of_hubs.get(hub)
    if turns is None:
        turns = _of_hubs[hub] = Turns(hub)
    return turns
