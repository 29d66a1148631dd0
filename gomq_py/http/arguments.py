"""Fields of a request's body: checks their types, and converts arguments to the form of AMQP declares."""
from gomq_py.http.errors import BadRequest


def boolean_of(wanted, key, default=False):
    """A boolean field; the words true and false are accepted, as in RabbitMQ. Raises BadRequest."""
    value = wanted.get(key, default)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise BadRequest(f"{key} must be a boolean")
    return value


def text_of(wanted, key, default=None):
    """A string field. Raises BadRequest for any other type."""
    value = wanted.get(key, default)
    if not isinstance(value, str):
        raise BadRequest(f"{key} must be a string")
    return value


def number_in(text):
    """The whole number in a text of plain digits; None if it has other characters or 20 digits and more."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def integer_of(wanted, key, default, lowest=0, highest=2**31 - 1):
    """An integer field, also as text. Raises BadRequest."""
    value = wanted.get(key, default)
    if isinstance(value, str):
        value = number_in(value)
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise BadRequest(f"{key} must be an integer between {lowest} and {highest}")
    return value


def decoded_arguments(wanted):
    """The ``arguments`` field, an object whose content the caller checks. Raises BadRequest."""
    arguments = wanted.get("arguments", {})
    if arguments == []:
        return {}  # PHP clients send this for an empty object
    if not isinstance(arguments, dict):
        raise BadRequest("arguments must be an object")
    return arguments
