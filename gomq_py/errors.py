"""The errors with which the broker's core refuses requests.

Rights, topology, queues and content raise them. Each protocol translates them: amqp.server.refusals into
reply codes, http.errors into statuses. ``text`` names the entity, its vhost, the request and the actual
state. Imports no other module.
"""


class Refused(Exception):
    """Base of the errors with which the broker refuses a request. The client gets the text."""

    def __init__(self, text=""):
        super().__init__(text)
        self.text = text


class AccessRefused(Refused):
    """The user may not do this to the entity."""


class NoPermission(AccessRefused):
    """The user lacks a permission. ``verb``: the missing right; empty for a refused routing key or vhost."""

    def __init__(self, text="", verb=""):
        super().__init__(text)
        self.verb = verb


class NotFound(Refused):
    """The queue, exchange or other entity does not exist."""


class ResourceLocked(Refused):
    """The entity belongs exclusively to another connection."""


class PreconditionFailed(Refused):
    """The entity's state, or a value in the request, does not allow the request: in use, out of range."""


class UnknownType(Refused):
    """The exchange type does not exist."""


class OutOfResources(Refused):
    """The disk is full, a limit is reached, or the system lacks a resource that the request needs."""


class Malformed(Refused):
    """The request contains a malformed or too deeply nested field table or property list."""


class ClusterError(Exception):
    """The node cannot be in this cluster, or cannot do there what it was asked. The text is one line."""


class DefinitionsError(ValueError):
    """The definitions, or a shovel in the configuration, are malformed. Nothing has been imported."""
