"""Answers about changes leave when the changes are safe, as the AMQP door's do: what was answered outlives a
power cut.
"""
from flask import request

from gomq_py.http import errors
from gomq_py.http.answers import node
from gomq_py.http.foreign_pages import READING
from gomq_py.observability.log import logger

LOG = logger("http")


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
        node().broker.durability.wait()
    except Exception as error:  # whatever the flush failed of
        return errors.from_api_error(not_flushed(error))
    return response


def not_flushed(error):
    """The APIError of a request whose flush failed; it is logged."""
    LOG.error("%s %s was done, but not flushed: %s", request.method, request.path, error)
    return NotFlushed()
