"""Session outlet: the target of a transfer that takes messages one by one and says of each whether it is
safe: a webhook.

A message is sent when the one before is settled, so that none overtakes one that was refused. What sends it
is a greenlet of its own, which may wait as long as it likes; nothing else here does.
"""
from gomq_py.content.properties import Properties
from gomq_py.links.ends import Refused
from gomq_py.links.outlet import Outlet


class Posted:
    """A message put together of the frames in which a relay writes it."""

    __slots__ = ("_raw_properties", "_properties", "body")

    def __init__(self, octets):
        view, at, parts = memoryview(octets), 0, []
        while at < len(view):
            end = at + 7 + int.from_bytes(view[at + 3:at + 7], "big")
            parts.append(view[at + 7:end])
            at = end + 1
        # the publish, the header (class, weight, size, properties), the body
        self._raw_properties = bytes(parts[1][12:])
        self._properties = None
        self.body = bytes(parts[2]) if len(parts) == 3 else b"".join(parts[2:])

    @property
    def properties(self):
        """Raises Malformed."""
        if self._properties is None:
            self._properties = Properties.decode(self._raw_properties)
        return self._properties


class SessionOutlet(Outlet):
    """``session.send(message)`` returns once the message is safe, or raises Refused, which counts for this
    message, or OSError, which ends the passage. ``session.close()`` ends a ``send`` under way.

    A transfer gives it runs of one message, or of a piece of one.
    """

    def __init__(self, session, hub):
        super().__init__()
        self._session = session
        self._hub = hub
        self._passage = None
        self._pieces = []
        self._sending = None
        self._refused_with = "the destination refuses messages"

    def start(self, passage):
        self._passage = passage

    def can_take(self):
        """Not while one is on its way."""
        return self._sending is None

    def trouble(self):
        """Why a message is tried again, while it is; else an empty text."""
        return self._session.trouble or ""

    def send(self, item, message):
        """Have the message sent, once all of it is there."""
        item.first_number = self.confirms.following
        if not item.is_sent:
            self._pieces.clear()
            return None
        self._pieces.append(item.octets)
        if not item.count:
            item.octets = None
            return None
        octets = b"".join(self._pieces) if len(self._pieces) > 1 else item.octets
        self._pieces.clear()
        if not item.is_whole:
            # Sent again from here it keeps its place. Not counted among what is kept, so not taken off there.
            item.octets, item.size, item.is_whole = octets, 0, True
        self.confirms.published(1)
        self._sending = self._hub.spawn(self._send, item.first_number, octets)
        self._sending.name = "webhook"
        return None

    def slice_over(self):
        """Tell those for whom it is decided."""
        self.settle()

    def refusal(self):
        """What the session says."""
        return Refused(self._refused_with)

    def unwatch(self):
        """Send nothing any more: what is on its way may arrive, and comes again."""
        self._passage = None
        self._session.close()

    def part(self):
        """There is nobody to take leave of."""
        self.abort()

    def abort(self):
        """End the session, and what sends by it."""
        self.unwatch()
        if self._sending is not None:
            self._sending.kill(block=False)

    # The rest is private.

    def _send(self, number, octets):
        """In the greenlet: send a message, then say what became of it."""
        is_refused, failure = False, None
        try:
            self._session.send(Posted(octets))
        except Refused as refused:
            is_refused, self._refused_with = True, str(refused)
        except OSError as error:
            failure = error
        self._sending = None
        if self._passage is None:
            return
        if failure is not None:
            self._passage.fail("destination", failure)
        else:
            self._passage.target_turn(lambda: self._settled(number, is_refused))

    def _settled(self, number, is_refused):
        self.confirms.answered(number, is_refused)
        self.settle()
