"""Run: a batch of messages that a link takes, sends and drops as one item."""


class LinkBatch:
    """``count`` messages with delivery tags from ``first_tag`` on; a piece of a large message counts 0, its
    last piece 1.

    ``octets``: the frames for the target, or None if they are not kept until confirmed. ``first_number``:
    number of the first publish, once sent. ``is_sent``: False if the messages are only settled at their
    source; ``is_rejected``: settled by a reject. ``offset``: stream offset of the last message, or -1.
    ``refusals``: how often the target has refused the batch. ``checksum``: recognizes a large message when it
    is delivered again.
    """

    __slots__ = (
        "octets", "first_tag", "count", "first_number", "is_sent", "is_rejected", "offset", "refusals",
        "size", "is_whole", "checksum",
    )

    def __init__(self, octets, first_tag, count, is_sent=True, offset=-1, refusals=0, is_whole=True):
        self.octets = octets
        self.size = len(octets)
        self.first_tag = first_tag
        self.count = count
        self.first_number = 0
        self.is_sent = is_sent
        self.is_rejected = False
        self.is_whole = is_whole
        self.offset = offset
        self.refusals = refusals
        self.checksum = 0

    def publishes(self):
        """The frames of each message, as separate buffers."""
        view, starts, at = memoryview(self.octets), [], 0
        while at < len(view):
            if view[at] == 1:
                starts.append(at)
            at += 8 + int.from_bytes(view[at + 3:at + 7], "big")
        return [bytes(view[start:end]) for start, end in zip(starts, [*starts[1:], at], strict=True)]
