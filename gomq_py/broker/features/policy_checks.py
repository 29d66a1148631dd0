"""Checks of policies: each check(feature, value) raises PolicyError with RabbitMQ's text."""
from gomq_py.broker.features.checks import milliseconds_of_age
from gomq_py.broker.names import NAME_OCTETS_MAX, fits_short_string
from gomq_py.broker.values import MAX_INTEGER, MIN_INTEGER, is_count, is_integer
from gomq_py.patterns import Pattern


class PolicyError(ValueError):
    """A policy is not acceptable. The exception's text is for the user who sets it."""


def _invalid(feature, value, needed):
    # RabbitMQ's default wording, as in "ha-mode value".
    word = feature.word or f"{feature.policy} value"
    return PolicyError(f"{value!r} is not a valid {word}: {feature.policy} needs {needed}")


def count(feature, value):
    if not is_count(value):
        raise _invalid(feature, value, f"a number from 0 to {MAX_INTEGER}")


def positive(feature, value):
    """Raise PolicyError unless the value is an integer of at least 1."""
    if not is_count(value) or value == 0:
        raise _invalid(feature, value, f"a number from 1 to {MAX_INTEGER}")


def number(feature, value):
    if not is_integer(value):
        raise _invalid(feature, value, f"a number from {MIN_INTEGER} to {MAX_INTEGER}")


def text(feature, value):
    if not isinstance(value, str):
        raise _invalid(feature, value, "a text")


def name(feature, value):
    """Raise PolicyError unless the value is a valid name of an entity."""
    text(feature, value)
    if not value or not fits_short_string(value):
        raise _invalid(feature, value[:40], f"a name of 1 to {NAME_OCTETS_MAX} bytes")


def routing_key(feature, value):
    """Raise PolicyError unless the value is a text that is short enough for a routing key."""
    text(feature, value)
    if not fits_short_string(value):
        raise _invalid(feature, value[:40], f"a routing key of at most {NAME_OCTETS_MAX} bytes")


def boolean(feature, value):
    if not isinstance(value, bool):
        raise _invalid(feature, value, "true or false")


def one_of(*words):
    """Make a check that accepts only the texts ``words``."""
    def check(feature, value):
        if value not in words:
            raise _invalid(feature, value, f"one of {', '.join(words)}")
    return check


def age(feature, value):
    """Raise PolicyError unless the value is an age such as "7D"."""
    text(feature, value)
    try:
        milliseconds_of_age(value)
    except ValueError:
        raise _invalid(feature, value, "a number above 0 and one of Y, M, D, h, m, s") from None


def pattern(feature, value):
    """Raise PolicyError unless the value is a regular expression."""
    text(feature, value)
    try:
        Pattern(value)
    except ValueError as error:
        raise PolicyError(
            f"could not compile pattern {value[:40]} to a regular expression. Error: {error}") from None


def anything(_feature, _value):
    """Accept any value, for a key of RabbitMQ that has no effect here."""
