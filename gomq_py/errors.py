"""Errors: the core's refusals, for every door. A leaf.

Rights, topology, queues and content raise these; a door translates them into its protocol's words:
amqp.server.refusals into reply codes, http.errors into statuses. ``text`` names the entity, its vhost, the
request and the actual state.
"""


class Refused(Exception):
    """A request is refused; the client is told the reason."""

    def __init__(self, text=""):
        super().__init__(text)
        self.text = text


class AccessRefused(Refused):
    """The user may not do this to the entity."""


class NoPermission(AccessRefused):
    """A permission of the user does not suffice: ``verb`` is "configure", "write" or "read", or empty for a
    routing key. The text leaves out the verb; doors that tell it add it.
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
    """The disk is full, or a limit is reached."""


class Malformed(Refused):
    """Octets that are no valid field table or properties, or are nested too deeply."""


class DefinitionsError(ValueError):
    """The definitions are malformed; nothing has been imported."""
