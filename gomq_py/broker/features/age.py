"""Age: durations as RabbitMQ writes them for streams: a number above 0 and one unit, such as "7D" or "1h"."""
import re

# Seconds; a year of 365 days and a month of 30, as in RabbitMQ.
_UNITS = {"Y": 365 * 86400, "M": 30 * 86400, "D": 86400, "h": 3600, "m": 60, "s": 1}
_AGE = re.compile(r"([0-9]{1,12})([YMDhms])")


def milliseconds_of_age(text):
    """Milliseconds. Raises ValueError."""
    match = _AGE.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise ValueError(f"no age: {text!r}")
    return int(match[1]) * _UNITS[match[2]] * 1000
