"""Delays answers to changes until the changes are flushed to disk: an acknowledged change survives a power
cut.
"""
from flask import request
from gevent.event import AsyncResult

from gomq_py.http import errors
from gomq_py.http.answers import node
from gomq_py.http.foreign_pages import READING
from gomq_py.observability.log import logger

LOG = logger("http")
# While a disk hangs, how often a request checks whether its client has gone.
LOOK_S = 5.0


class NotFlushed(errors.APIError):
    """500: the broker has made the change, but a restart may undo it."""

    def __init__(self):
        super().__init__(
            "done, but it could not be flushed to the disk, and may be undone by a restart: see the broker's "
            "log"
        )


def after_request(response):
    """Return the response. If the request may have changed something, first wait until the change is on disk.
    Concurrent requests share a flush. If the flush fails, return an error instead of the response. May switch
    greenlets.
    """
    # Changes of the cluster are in etcd or flushed already, and after some of them this node leads no more.
    if request.method in READING or request.blueprint == "cluster" or response.status_code >= 400:
        return response
    try:
        wait(node().broker.durability.when_safe)
    except NotFlushed as error:
        return errors.from_api_error(error)
    return response


def wait(when_safe):
    """Call ``when_safe(callback)``, and wait until it calls ``callback(None)``: the changes are on disk.
    Raises NotFlushed if the callback gets an error, or if the client disconnects meanwhile. May switch
    greenlets.
    """
    # A client that has gone occupies no connection while a disk hangs.
    done = AsyncResult()
    when_safe(done.set)
    while done.wait(LOOK_S) is None and not done.ready():
        if request.environ.get("gomq.is_gone", bool)():
            raise NotFlushed
    if done.value is not None:
        LOG.error("%s %s was done, but not flushed: %s", request.method, request.path, done.value)
        raise NotFlushed
