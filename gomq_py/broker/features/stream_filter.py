"""Stream filter: arguments by which a stream's consumer selects messages. Applied by queues.stream_reader.

    x-stream-filter             values (a text, split at commas), conditions (a table), or an array of both
    x-stream-match-unfiltered   true: messages without a value also match the wanted values
    x-filter-match-type         "all" or "any"

Values are compared with a message's header ``x-stream-filter-value``, which is also split at commas. A
condition is a header's name and the text of its value, or one of ``geo-within-radius``, ``geo-bbox``,
``geo-polygon`` (stream_geo). "all": all values must match and all conditions hold. "any": one matching value
or one condition is enough. Without a match type one matching value is enough, as in RabbitMQ, and all
conditions must hold, as in LavinMQ.
"""
from gomq_py.broker.features.checks import WrongValue
from gomq_py.broker.features.feature import STREAM_ONLY, ConsumerArgument
from gomq_py.broker.features.stream_geo import GEO_CONDITIONS
from gomq_py.content.fields import is_decimal

FILTER, MATCH_UNFILTERED, MATCH_TYPE = "x-stream-filter", "x-stream-match-unfiltered", "x-filter-match-type"
ALL, ANY = "all", "any"


def filter_of(arguments):
    """Parse a consumer's filter arguments. Returns None without a filter, else (values as bytes, conditions,
    "all" or "any" or None, True if messages without a value match). A condition is a function of a message's
    headers. Raises ValueError with the reason.
    """
    match_type = _match_type(arguments.get(MATCH_TYPE))
    match_unfiltered = arguments.get(MATCH_UNFILTERED, False)
    if not isinstance(match_unfiltered, bool):
        raise ValueError(f"{MATCH_UNFILTERED} must be a boolean")
    if FILTER not in arguments:
        return None
    values, conditions = [], []
    given = arguments[FILTER]
    for part in given if isinstance(given, list) else [given]:
        if isinstance(part, str):
            values += [value.strip().encode() for value in part.split(",")]
        elif isinstance(part, dict):
            conditions += [_condition(key, value) for key, value in part.items()]
        else:
            raise ValueError(f"{FILTER} must be a text, a table, or an array of these")
    if not values and not conditions:
        raise ValueError(f"{FILTER} is empty")
    return values, conditions, match_type, match_unfiltered


def _match_type(value):
    match_type = value.lower() if isinstance(value, str) else value
    if match_type not in (None, ALL, ANY):
        raise ValueError(f"{MATCH_TYPE} must be 'all' or 'any'")
    return match_type


def _condition(key, value):
    if key in GEO_CONDITIONS:
        return GEO_CONDITIONS[key](value)
    wanted = text_of(value)
    if wanted is None:
        raise ValueError(f"the condition on header '{key}' must be a text, a number or a boolean")
    return lambda headers: key in headers and text_of(headers[key]) == wanted


def text_of(value):
    """Convert a header's value to the text that a condition compares; None for tables, arrays and bytes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (int, float)) or is_decimal(value):
        return str(value)
    return None


def _check(_value, arguments):
    try:
        filter_of(arguments)
    except ValueError as reason:
        raise WrongValue(str(reason)) from None


CONSUMER_ROWS = tuple(
    ConsumerArgument(
        argument=argument, kinds=STREAM_ONLY, check=_check,
        refusal="failed consuming from stream {entity}: {reason}", effect=effect, value=value,
        default=default, others="RabbitMQ: by chunk; the client filters again.",
    ) for argument, value, default, effect in (
        (MATCH_TYPE, "`all`: `all` or `any`", "One value must match, and every condition.",
         "`all`: every value must match, and every condition hold. `any`: one value or one condition is "
         "enough."),
        (MATCH_UNFILTERED, "`true`: boolean", "`false`", "Messages without a value match, too."),
        (FILTER, "`invoices`: see [streams.md](streams.md#filters)", "All messages.",
         "Values and conditions that select the consumer's messages."),
    )
)
