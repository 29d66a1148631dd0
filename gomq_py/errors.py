"""Errors: what the core refuses, whoever asks. A leaf.

Rights, topology, queues and content raise these; a door says them in its protocol's words:
amqp.server.refusals as reply codes, http.errors as statuses. ``text`` names the thing, its vhost, what was
asked and what is.
"""


class Refused(Exception):
    """Something that somebody asked for is not done, for a reason that is theirs to know."""

    def __init__(self, text=""):
        super().__init__(text)
        self.text = text


class AccessRefused(Refused):
    """The user may not do this to that."""


class NoPermission(AccessRefused):
    """A permission of the user does not reach: ``verb`` is "configure", "write" or "read", or empty where it
    is a routing key that is not granted.

    The text leaves the verb to doors that tell it.
    """

    def __init__(self, text="", verb=""):
        super().__init__(text)
        self.verb = verb


class NotFound(Refused):
    """The entity does not exist."""


class ResourceLocked(Refused):
    """The entity belongs exclusively to another connection."""


class PreconditionFailed(Refused):
    """Something else has to be so first: other arguments than it was declared with, a queue in use, a value
    out of range.
    """


class UnknownType(Refused):
    """There is no exchange of this type."""


class OutOfResources(Refused):
    """The broker has no room for it: on the disk, or in what it keeps of the thing."""


class Malformed(Refused):
    """Octets that are no field table or no properties, or nested deeper than they may be."""


class DefinitionsError(ValueError):
    """The definitions are malformed; nothing has been imported."""
