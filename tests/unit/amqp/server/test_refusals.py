"""Refusals: what the core refuses, in AMQP's codes."""
import pytest

from gomq_py import errors
from gomq_py.amqp.server.refusals import as_amqp
from gomq_py.amqp.wire.errors import NotAllowed

CHANNEL, CONNECTION = False, True


@pytest.mark.parametrize("error, code, name, closes", [
    (errors.AccessRefused, 403, "ACCESS_REFUSED", CHANNEL),
    (errors.NotFound, 404, "NOT_FOUND", CHANNEL),
    (errors.ResourceLocked, 405, "RESOURCE_LOCKED", CHANNEL),
    (errors.PreconditionFailed, 406, "PRECONDITION_FAILED", CHANNEL),
    (errors.OutOfResources, 506, "RESOURCE_ERROR", CHANNEL),
    (errors.UnknownType, 406, "PRECONDITION_FAILED", CHANNEL),
    (errors.Malformed, 502, "SYNTAX_ERROR", CONNECTION),
])
def test_refusal_is_said_with_its_code_and_closes_what_rabbitmq_closes(error, code, name, closes):
    said = as_amqp(error("no queue 'q' in vhost '/'"))

    assert (said.reply_code, said.reply_text, said.closes_connection) == (
        code, f"{name} - no queue 'q' in vhost '/'", closes
    )


def test_every_refusal_of_the_core_can_be_said():
    for error in (one for one in errors.Refused.__subclasses__() if one.__module__ == errors.__name__):
        assert as_amqp(error("text")).text == "text"


def test_error_of_the_wire_is_said_as_it_is():
    error = NotAllowed("text")

    assert as_amqp(error) is error
