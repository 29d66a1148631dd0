"""Turns: how fast the links of one broker may connect, so that ten thousand of them, that begin when it boots
or lose the same peer, hold up nobody else.

A link asks before each attempt. While few ask, each has its turn at once. While many wait they have it one
after the other, those whom different users set in turn, and as long as the loop took for one, others get as
well; those whose last attempt failed come behind those that have not failed yet. No turn is held: a peer that
does not answer costs those who wait behind it nothing.
"""
import time
from weakref import WeakKeyDictionary

import gevent

# Between two turns: 500 a second are more than connections that are accepted take.
PACE_S = 0.002
# The most that others get after one turn, so that links begin at all on a machine that is busy with others.
REST_MOST_S = 0.05

_of_hubs: WeakKeyDictionary = WeakKeyDictionary()


class Turns:
    """Of the links in one hub."""

    def __init__(self, hub):
        self._spawn = hub.spawn
        # account: {callback: None}, in order; first the account that had its turn longest ago
        self._waiting = {}
        self._waiting_after_failure = {}
        self._greenlet = None

    def ask(self, granted, has_failed=False, account=None):
        """Have ``granted()`` called, now or later. It must not switch. ``account``: whose turn it is."""
        if self._greenlet is None:
            granted()
            self._greenlet = self._spawn(self._run)
            self._greenlet.name = "turns of links"
        else:
            rows = self._waiting_after_failure if has_failed else self._waiting
            rows.setdefault(account, {})[granted] = None

    def wait(self, wakened, is_over, has_failed=False, account=None):
        """Return when it is one's turn, or when ``is_over()`` after the Event ``wakened``. May switch."""
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
        """It is not wanted any more."""
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
