"""HookOutlet: the target of a transfer whose messages are posted one by one, each once the one before is
settled.

As many others: a confirm is a 2xx, a refusal any other answer. What is posted runs in a greenlet of its own;
everything else in callbacks, as of every outlet.
"""
from gomq_py.content.properties import Properties
from gomq_py.links.ends import Refused
from gomq_py.links.outlet import Outlet
from gomq_py.observability.log import logger

LOG = logger("links")
DESTINATION = "destination"


class Posted:
    """A message to post, of the frames in which a relay writes it."""

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


class HookOutlet(Outlet):
    """Posts through ``session`` (links.webhook.Session), which it owns. A transfer gives it runs of one
    message or of a piece of one.
    """

    def __init__(self, session, hub):
        super().__init__()
        self._session = session
        self._hub = hub
        self._pieces = []
        self._posting = None
        self._why = None
        session.on_trouble = self._troubled

    def start(self, passage):
        self._passage = passage

    def can_take(self):
        """Not while one is on its way."""
        return self._posting is None

    def send(self, item, message):
        """Post the message, once all of it is there."""
        item.first_number = self.confirms.following
        keep = self._passage.inlet.keep_octets
        if not item.is_sent:
            keep(-sum(map(len, self._pieces)))
            self._pieces.clear()
            return None
        self._pieces.append(item.octets)
        if not item.is_whole:
            keep(len(item.octets))
        if not item.count:
            item.octets = None
            return None
        octets = b"".join(self._pieces) if len(self._pieces) > 1 else item.octets
        self._pieces.clear()
        if not item.is_whole:
            # It is kept as a whole: sent again from here it keeps its place.
            item.octets, item.size, item.is_whole = octets, len(octets), True
        self.confirms.published(1)
        self._posting = self._hub.spawn(self._post, item.first_number, octets)
        self._posting.name = "webhook"
        return None

    def part(self):
        self.abort()

    def abort(self):
        """A message that is on its way may arrive, and comes again."""
        super().abort()
        self._pieces.clear()
        self._session.on_trouble = None
        self._session.close()
        if self._posting is not None:
            self._posting.kill(block=False)
            self._posting = None

    def refusal(self, number):
        return self._why or Outlet.refusal(self, number)

    # The rest is private.

    def _post(self, number, octets):
        """In a greenlet: post a message, then say what became of it."""
        is_taken, failure = True, None
        try:
            self._session.send(Posted(octets))
        except Refused as refused:
            is_taken, self._why = False, Refused(*refused.args)  # without its frames, which have us
        except OSError as error:
            failure = error
        except Exception as error:  # of this message: it counts towards the limit of refusals
            LOG.exception("a message cannot be posted: a fault of ours")
            is_taken, self._why = False, Refused(f"a fault of ours: {error}")
        self._posting = None
        if failure is not None:
            self._passage.fail(DESTINATION, failure)
            failure = None  # or it and this frame would hold each other
        else:
            self._passage.target_turn(lambda: self._answered(number, is_taken))

    def _answered(self, number, is_taken):
        self.confirms.answered(number, not is_taken)
        self.settle()

    def _troubled(self, text):
        self._passage.refused(0, text)
