"""Refusals: says in AMQP's words what the core refuses (gomq_py.errors): a reply code, and whether the
channel or the connection is closed.

Between the connection, which catches the errors, and the wire's errors. RabbitMQ closes the connection
because of an unknown type or malformed content, and only the channel because of everything else.
"""
from gomq_py import errors
from gomq_py.amqp.wire import errors as wire

_ERRORS = {
    errors.AccessRefused: wire.AccessRefused,
    errors.NoPermission: wire.AccessRefused,
    errors.NotFound: wire.NotFound,
    errors.ResourceLocked: wire.ResourceLocked,
    errors.PreconditionFailed: wire.PreconditionFailed,
    errors.UnknownType: wire.CommandInvalid,
    errors.Malformed: wire.SyntaxError_,
}


def as_amqp(error):
    """The AMQPError that tells the client of an AMQPError or a Refused."""
    if isinstance(error, wire.AMQPError):
        return error
    if isinstance(error, errors.OutOfResources):
        return wire.ResourceError(error.text).soft()
    return _ERRORS[type(error)](error.text)
