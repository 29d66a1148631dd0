"""Dense flood: how often a stream's flood of small segments is read by the clock, at each tick or at a few.

Beside stream, which has one for as long as it knows of a flood; the clock is hub.coalescer's.
"""
import socket as system_socket
import struct
import time

IPPROTO_TCP, TCP_INFO = system_socket.IPPROTO_TCP, getattr(system_socket, "TCP_INFO", 0)
SEGMENTS = struct.Struct("=152xI")  # tcpi_data_segs_in of struct tcp_info, Linux 4.6
# A flood of so many messages a second is read at every 8th tick (2 ms) where the sender's system merges its
# writes, as long as not far fewer octets come: what is not merged waits for us with a full window.
DENSE_RATE = 120000
MERGED = 1.3  # messages in a segment
MOST_TICKS = 8
LEAST_SHARE = 0.75
# How long either is tried, and for how many such times after a failure it is read at each tick.
TRIAL_S, LONGEST_TRIAL_S = 0.02, 0.2
FIRST_PAUSE, LONGEST_PAUSE = 8, 512


class DenseFlood:
    """``ticks``: of the clock from one read to the next. What is tried longer and fails is tried again after
    longer and longer pauses.
    """

    __slots__ = (
        "ticks", "_waited", "_began", "_octets", "_segments", "_rate_before", "_pause", "_pauses_left",
    )

    def __init__(self):
        self.ticks = 1
        self._waited = self._octets = self._segments = self._pauses_left = 0
        self._began = self._rate_before = 0.0
        self._pause = FIRST_PAUSE

    def is_due(self):
        """At a tick: whether it is one to read at."""
        self._waited += 1
        if self._waited < self.ticks:
            return False
        self._waited = 0
        return True

    def ends(self):
        """It is read at each tick, and what comes is counted anew."""
        self.ticks = 1
        self._began = 0.0

    def look(self, socket, octets, smallest_octets):
        """After a read of a flood that is not answered, with all the octets that the stream has received and
        those of its smallest read: read it at every so many ticks, or at each again.
        """
        now = time.monotonic()
        elapsed_s = now - self._began
        if elapsed_s < TRIAL_S:
            return
        came, before = octets - self._octets, self._segments
        self._began = now
        self._octets = octets
        self._segments = segments_received(socket)
        if elapsed_s > LONGEST_TRIAL_S or came < 0:  # it did not flood all the while, or a login has ended
            return
        rate = came / elapsed_s
        segments = self._segments - before
        is_merged = segments > 0 and came > MERGED * smallest_octets * segments
        if self.ticks > 1 and (rate < self._rate_before * LEAST_SHARE or not is_merged):
            self.ticks = 1
            self._pauses_left = self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        elif self._pauses_left:
            self._pauses_left -= 1
        elif self.ticks < MOST_TICKS and is_merged and rate >= DENSE_RATE * smallest_octets:
            self.ticks = MOST_TICKS
            self._rate_before = rate


def segments_received(socket):
    """How many TCP segments with octets have come, the count's last 32 bits; 0 where the system does not
    say.
    """
    try:
        return SEGMENTS.unpack(socket.getsockopt(IPPROTO_TCP, TCP_INFO, SEGMENTS.size))[0]
    except (OSError, struct.error):
        return 0
