"""Errors: defines the reply codes and texts of channel.close and connection.close (AMQP 0-9-1 §1.1, and
RabbitMQ's use of it).

A SoftError closes the channel, a HardError the connection. For a few codes RabbitMQ does not follow the
specification's table; such errors are raised as ``raise NotFound("...").hard()``. Servers look at
``closes_connection``, never at the class.
"""

_CUT = b"..."
_TEXT_MAX = 255  # octets of a short string


class AMQPError(Exception):
    """An error that is sent to the peer as channel.close or connection.close.

        text                   names the object, its vhost, the request and the present state
        reply_text             what is sent: ``NOT_FOUND - ...``, at most 255 bytes
        class_id, method_id    the failed method, 0 if unknown
    """

    reply_code = 0
    name = ""
    closes_connection = False

    def __init__(self, text="", class_id=0, method_id=0):
        super().__init__(text)
        self.text = text
        self.class_id = class_id
        self.method_id = method_id

    @property
    def reply_text(self):
        """The error's name and text. A text over 255 bytes is cut between characters and ends with "..."."""
        octets = f"{self.name} - {self.text}".encode("utf-8", "surrogateescape")
        if len(octets) > _TEXT_MAX:
            octets = cut_utf8(octets, _TEXT_MAX - len(_CUT)) + _CUT
        return octets.decode("utf-8", "surrogateescape")

    def hard(self):
        """Make this error close the connection instead of the channel. Returns the error."""
        self.closes_connection = True
        return self

    def soft(self):
        """Make this error close only the channel, not the connection. Returns the error."""
        self.closes_connection = False
        return self

    def __str__(self):
        return f"{self.reply_code} {self.reply_text}"


def cut_utf8(octets, limit):
    """Return at most the first ``limit`` bytes of UTF-8 text, without a broken character at the end."""
    if len(octets) <= limit:
        return octets
    while limit > 0 and octets[limit] & 0xC0 == 0x80:
        limit -= 1
    return octets[:limit]


class SoftError(AMQPError):
    """Base of the errors that close only the channel."""

    closes_connection = False


class HardError(AMQPError):
    """Base of the errors that close the connection."""

    closes_connection = True


class ContentTooLarge(SoftError):
    """The client sent content larger than the server accepts at present."""

    reply_code, name = 311, "CONTENT_TOO_LARGE"


class NoRoute(SoftError):
    """A mandatory message matched no queue. RabbitMQ's addition to AMQP, sent only in basic.return."""

    reply_code, name = 312, "NO_ROUTE"


class NoConsumers(SoftError):
    """No consumer could take an immediate message. Our client may get this error; this broker sends none."""

    reply_code, name = 313, "NO_CONSUMERS"


class AccessRefused(SoftError):
    """The user may not log in, or lacks the permission that a method needs."""

    reply_code, name = 403, "ACCESS_REFUSED"


class NotFound(SoftError):
    """The queue, exchange or other entity does not exist."""

    reply_code, name = 404, "NOT_FOUND"


class ResourceLocked(SoftError):
    """The entity belongs exclusively to another connection."""

    reply_code, name = 405, "RESOURCE_LOCKED"


class PreconditionFailed(SoftError):
    """A precondition of the method does not hold: unequal arguments, unknown delivery tag and the like."""

    reply_code, name = 406, "PRECONDITION_FAILED"


class ConnectionForced(HardError):
    """An operator or a shutdown closes the connection; the client may reconnect."""

    reply_code, name = 320, "CONNECTION_FORCED"


class InvalidPath(HardError):
    """The client named an unknown virtual host."""

    reply_code, name = 402, "INVALID_PATH"


class FrameError(HardError):
    """A frame cannot be decoded: too large, wrong end byte, unknown type."""

    reply_code, name = 501, "FRAME_ERROR"


class SyntaxError_(HardError):
    """A well-framed method or content header has malformed fields."""

    reply_code, name = 502, "SYNTAX_ERROR"


class CommandInvalid(HardError):
    """A method is not allowed in this state, or names an unknown exchange or queue type."""

    reply_code, name = 503, "COMMAND_INVALID"


class ChannelError(HardError):
    """A frame is for a channel that is not open, or a channel.open is for an open channel."""

    reply_code, name = 504, "CHANNEL_ERROR"


class UnexpectedFrame(HardError):
    """A frame is out of order: a body without its method, or a method between header and body."""

    reply_code, name = 505, "UNEXPECTED_FRAME"


class ResourceError(HardError):
    """The server lacks the resources to carry out the method."""

    reply_code, name = 506, "RESOURCE_ERROR"


class NotAllowed(HardError):
    """The configuration or the negotiated limits forbid the request, or it reuses a consumer tag."""

    reply_code, name = 530, "NOT_ALLOWED"


class NotImplemented_(HardError):
    """This broker does not support the method, class or option."""

    reply_code, name = 540, "NOT_IMPLEMENTED"


class InternalError(HardError):
    """An error of the broker itself."""

    reply_code, name = 541, "INTERNAL_ERROR"


ERRORS = {error.reply_code: error for base in (SoftError, HardError) for error in base.__subclasses__()}
