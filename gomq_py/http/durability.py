"""Answers about changes leave when the changes are safe, as the AMQP door's do: what was answered outlives a
power cut.
"""
from flask import request
from gevent.event import AsyncResult

from gomq_py.http import errors
from gomq_py.http.answers import node
from gomq_py.http.foreign_pages import READING
from gomq_py.observability.log import logger

LOG = logger("http")
# While a disk hangs, whoever has gone is looked for so often.
LOOK_S = 5.0


class NotFlushed(errors.APIError):
    """500: done, and perhaps undone by a restart."""

    def __init__(self):
        super().__init__(
            "done, but it could not be flushed to the disk, and may be undone by a restart: see the broker's "
            "log"
        )


def after_request(response):
    """Hold the answer of a request that may have changed something until all of that is safe.

    Requests that come together share a flush, and none is waited for where nothing changed. A failed flush is
    the answer instead. May switch.
    """
    if request.method in READING or response.status_code >= 400:
        return response
    try:
        wait(node().broker.durability.when_safe)
    except NotFlushed as error:
        return errors.from_api_error(error)
    return response


def wait(when_safe):
    """Return when ``when_safe(callback)`` has called ``callback(None)``. Raises NotFlushed, also where the
    client has gone: it keeps no place among the connections while a disk hangs. May switch.
    """
    done = AsyncResult()
    when_safe(done.set)
    while done.wait(LOOK_S) is None and not done.ready():
        if request.environ.get("gomq.is_gone", bool)():
            raise NotFlushed
    if done.value is not None:
        raise not_flushed(done.value)


def not_flushed(error):
    """The APIError of a request whose flush failed; it is logged."""
    LOG.error("%s %s was done, but not flushed: %s", request.method, request.path, error)
    return NotFlushed()
