"""Errors: defines the errors by which the core refuses requests of the doors. A leaf.

Rights, topology, queues and content raise them; a door translates them into its protocol's words:
amqp.server.refusals into reply codes, http.errors into statuses. ``text`` names the entity, its vhost, the
request and the actual state.
"""


class Refused(Exception):
    """The broker refuses a request, and tells the client the reason."""

    def __init__(self, text=""):
        super().__init__(text)
        self.text = text


class AccessRefused(Refused):
    """The user may not do what the request asks of the entity."""


class NoPermission(AccessRefused):
    """The user lacks a permission: ``verb`` is "configure", "write" or "read", or empty for a routing key.
    The text leaves out the verb; doors that tell the verb add it.
    """

    def __init__(self, text="", verb=""):
        super().__init__(text)
        self.verb = verb


class NotFound(Refused):
    """The entity does not exist."""


class ResourceLocked(Refused):
    """The entity belongs exclusively to another connection."""


class PreconditionFailed(Refused):
    """The state of an entity does not allow the request: other arguments than at its declaration, a queue in
    use, a value out of range.
    """


class UnknownType(Refused):
    """The exchange type does not exist."""


class OutOfResources(Refused):
    """The disk is full, a limit is reached, or the system lacks something that the request needs."""


class Malformed(Refused):
    """A request has octets that are no valid field table or properties, or are nested too deeply."""


class DefinitionsError(ValueError):
    """The definitions are malformed; nothing has been imported."""
