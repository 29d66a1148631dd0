"""Copies: replaces a message that a worker delays or dead-letters by a changed copy.

The worker publishes the copy, and acknowledges the original when the broker has confirmed the copy. A crash
in between leaves both messages, so that no task is lost. All code here runs in the link's thread.
"""

from typing import Any

from gomq_py.client.errors import Disconnected
from gomq_py.content.properties import Properties
from gomq_py.dispatcher import tasks as wire
from gomq_py.errors import Malformed

# Pause before a copy that the broker has refused (a full queue) is sent once more.
_ANOTHER_TRY_S = 1.0
# A pseudo-queue of the publisher's channel, which our channel does not consume from.
_DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"
# Headers of one trip of a message, which a copy must not inherit.
_OF_THE_WAY = {
    wire.DUE_HEADER, "x-delay", "x-death", "x-first-death-exchange", "x-first-death-queue",
    "x-first-death-reason", "x-last-death-exchange", "x-last-death-queue", "x-last-death-reason",
    "x-acquired-count", "x-delivery-count", "x-deduplication-header",
    # Other recipients have the message: a copy returns to this queue alone.
    "CC", "BCC",
}


class Copies:
    """Publishes copies of messages for one worker. Calls ``on_begin()`` when a copy is published, and
    ``on_end()`` when the copy is confirmed or has failed.
    """

    def __init__(self, worker_name, server, on_begin, on_end):
        self._worker_name = worker_name
        self._server = server
        self._on_begin = on_begin
        self._on_end = on_end
        self.futures: set = set()  # of copies in flight

    def cancel(self):
        """Cancel unconfirmed copies, because the connection is lost: the broker redelivers the originals."""
        for future in list(self.futures):
            future.cancel()

    def forget(self):
        self.futures.clear()

    def replace(self, delivery, headers, send, otherwise, bare=False):
        """Publish a copy with these headers added, and acknowledge the original when the copy is confirmed.

        ``send(properties)`` publishes, and returns a Future. If the broker refuses the copy, it is sent again
        a second later. ``otherwise(error)`` is called if the copy cannot be encoded, for example because its
        headers are too large for a frame. ``bare``: leave out the original's properties and headers.
        """
        if delivery.channel.closed:
            return
        future = send(properties_of(delivery, headers, bare))
        self.futures.add(future)
        self._on_begin()
        future.add_done_callback(lambda _: self._tell(future, delivery, headers, send, otherwise, bare))

    def _tell(self, *ended):
        try:
            self._server.link.post(self._ended, *ended)
        except Disconnected:
            pass  # the broker delivers the original again

    def _ended(self, future, delivery, *how):
        self.futures.discard(future)
        try:
            if not delivery.channel.closed:
                self._settle(future, delivery, *how)
        finally:
            self._on_end()  # otherwise a closing worker would wait for it

    def _settle(self, future, delivery, headers, send, otherwise, bare):
        error = None if future.cancelled() else future.exception()
        if isinstance(error, (ValueError, TypeError, OverflowError, RecursionError)):
            otherwise(error)  # retrying would fail, too
        elif error is not None or future.cancelled():
            self._server.logger.error(
                "worker %r could not put off or give up a message: %s", self._worker_name, error)
            self._server.link.call_later(
                _ANOTHER_TRY_S, self.replace, delivery, headers, send, otherwise, bare)
        else:
            delivery.ack()


def properties_of(delivery, headers=None, bare=False, without=()):
    """Return the Properties for a copy of a delivery: the delivery's own, with ``headers`` added.

    Headers that belong to this one delivery, such as x-death, and those in ``without`` are left out.
    ``bare``: leave out all properties and headers of the delivery.
    """
    properties: Any = Properties()
    if not bare:
        try:
            properties = Properties.decode(delivery.raw_properties)
        except Malformed:
            pass  # the copy leaves out unreadable headers
    left_out = _OF_THE_WAY.union(without)
    kept = {name: value for name, value in (properties.headers or {}).items() if name not in left_out}
    properties.headers = {**kept, **(headers or {})}
    properties.delivery_mode = wire.PERSISTENT
    properties.expiration = properties.user_id = None
    if properties.reply_to == _DIRECT_REPLY_TO:
        properties.reply_to = None  # the broker would close the channel each time
    return properties
