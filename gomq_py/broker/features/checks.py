"""Checks of arguments: each check(value, arguments) raises WrongValue with RabbitMQ's Erlang text."""
import re

from gomq_py.broker.values import MAX_TIMER_MS, is_integer, type_name
from gomq_py.content.fields import Seconds

# Seconds; a year of 365 days and a month of 30, as in RabbitMQ.
_UNITS = {"Y": 365 * 86400, "M": 30 * 86400, "D": 86400, "h": 3600, "m": 60, "s": 1}
_AGE = re.compile(r"([0-9]{1,12})([YMDhms])")


class WrongValue(Exception):
    """An argument's value is not acceptable. The exception's text is RabbitMQ's reason."""


def integer(value, _arguments):
    """Raise WrongValue unless the value is an integer of 64 bits."""
    if is_integer(value):
        return
    if not isinstance(value, int) or isinstance(value, (bool, Seconds)):
        raise WrongValue(f'"expected integer, got {type_name(value)}"')
    size = "large" if value > 0 else "small"  # JSON has longer integers than AMQP
    raise WrongValue(f"{{value_too_{size},{value}}}")


def not_negative(value, arguments):
    """Raise WrongValue unless the value is an integer of 64 bits, and at least 0."""
    integer(value, arguments)
    if value < 0:
        raise WrongValue(f"{{value_negative,{value}}}")


def milliseconds(value, arguments):
    """Raise WrongValue unless the value is an integer from 0 to ten years in ms, RabbitMQ's longest timer."""
    not_negative(value, arguments)
    if value > MAX_TIMER_MS:
        raise WrongValue(f"{{value_too_large,{value}}}")


def positive_milliseconds(value, arguments):
    """Raise WrongValue unless the value is an integer from 1 to ten years in ms."""
    milliseconds(value, arguments)
    if value == 0:
        raise WrongValue("{value_zero,0}")


def up_to(most):
    """Make a check that accepts only integers from 0 to ``most``."""
    def check(value, arguments):
        not_negative(value, arguments)
        if value > most:
            raise WrongValue(f"{{max_value_exceeded,{value}}}")
    return check


def text(value, _arguments):
    if not isinstance(value, str):
        raise WrongValue(f"{{unacceptable_type,{type_name(value)}}}")


def boolean(value, _arguments):
    if not isinstance(value, bool):
        raise WrongValue(f"{{unacceptable_type,{type_name(value)}}}")


def age(value, arguments):
    """Raise WrongValue unless the value is an age such as "7D"."""
    text(value, arguments)
    try:
        milliseconds_of_age(value)
    except ValueError:
        raise WrongValue("invalid_max_age") from None


def one_of(reason, *allowed):
    """Make a check that accepts only ``allowed`` texts. In the error text ``reason``, ``{}`` is the value."""
    def check(value, arguments):
        text(value, arguments)
        if value not in allowed:
            raise WrongValue(reason.format(value))
    return check


def milliseconds_of_age(text):
    """Convert an age in RabbitMQ's form, a number above 0 and a unit ("7D"), to ms. Raises ValueError."""
    match = _AGE.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise ValueError(f"no age: {text!r}")
    return int(match[1]) * _UNITS[match[2]] * 1000
