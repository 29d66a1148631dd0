"""Errors: codes, names, which frame carries them, and the text that goes on the wire."""
import pytest

from gomq_py.amqp.wire import errors
from gomq_py.amqp.wire.errors import (
    ERRORS, AMQPError, NotFound, NotImplemented_, PreconditionFailed, cut_utf8,
)

# Name, code and class of every reply code in the specification's table, with RabbitMQ's 312.
REPLY_CODES = [
    ("CONTENT_TOO_LARGE", 311, "soft"), ("NO_ROUTE", 312, "soft"), ("NO_CONSUMERS", 313, "soft"),
    ("CONNECTION_FORCED", 320, "hard"),
    ("INVALID_PATH", 402, "hard"), ("ACCESS_REFUSED", 403, "soft"), ("NOT_FOUND", 404, "soft"),
    ("RESOURCE_LOCKED", 405, "soft"),
    ("PRECONDITION_FAILED", 406, "soft"), ("FRAME_ERROR", 501, "hard"), ("SYNTAX_ERROR", 502, "hard"),
    ("COMMAND_INVALID", 503, "hard"),
    ("CHANNEL_ERROR", 504, "hard"), ("UNEXPECTED_FRAME", 505, "hard"), ("RESOURCE_ERROR", 506, "hard"),
    ("NOT_ALLOWED", 530, "hard"),
    ("NOT_IMPLEMENTED", 540, "hard"), ("INTERNAL_ERROR", 541, "hard"),
]


@pytest.mark.parametrize(("name", "code", "level"), REPLY_CODES)
def test_every_reply_code_of_the_specification_has_its_class(name, code, level):
    error = ERRORS[code]("text")

    assert (error.name, error.reply_code) == (name, code)
    assert error.closes_connection is (level == "hard")
    assert isinstance(error, errors.HardError if level == "hard" else errors.SoftError)


def test_there_is_no_reply_code_besides_those_of_the_specification():
    assert sorted(ERRORS) == sorted(code for _, code, _ in REPLY_CODES)


def test_the_reply_text_begins_with_the_name_of_the_code():
    assert NotFound("no queue 'jobs' in vhost '/'").reply_text == "NOT_FOUND - no queue 'jobs' in vhost '/'"


def test_an_error_names_the_method_that_failed():
    error = PreconditionFailed("unequal", 50, 10)

    assert (error.class_id, error.method_id) == (50, 10)


def test_a_soft_error_may_be_sent_on_the_connection():
    assert NotFound("x").hard().closes_connection is True


def test_a_hard_error_may_be_sent_on_the_channel():
    assert NotImplemented_("x").soft().closes_connection is False


def test_overriding_the_level_of_one_error_leaves_its_class_alone():
    NotFound("x").hard()

    assert NotFound("y").closes_connection is False


def test_a_long_text_is_cut_to_a_short_string():
    assert NotFound("n" * 243).reply_text == "NOT_FOUND - " + "n" * 243
    assert NotFound("n" * 244).reply_text == "NOT_FOUND - " + "n" * 240 + "..."


def test_a_long_text_is_not_cut_inside_a_character():
    octets = NotFound("é" * 200).reply_text.encode()

    assert len(octets) == 255  # 12 octets of prefix, 120 whole characters and the dots
    assert octets.decode().endswith("é...")


@pytest.mark.parametrize("limit", range(8))
def test_cutting_always_leaves_whole_characters(limit):
    cut_utf8("aé€😀".encode(), limit).decode()


def test_a_text_of_undecodable_octets_still_fits_the_wire():
    text = b"\xff\xfe".decode("utf-8", "surrogateescape") * 300

    assert len(NotFound(text).reply_text.encode("utf-8", "surrogateescape")) <= 255


def test_an_error_prints_its_code_and_text():
    assert str(NotFound("no exchange 'x'")) == "404 NOT_FOUND - no exchange 'x'"


def test_all_errors_are_caught_as_one():
    assert all(issubclass(error, AMQPError) for error in ERRORS.values())
