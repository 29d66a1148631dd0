"""Values that a number, or anything, may be given as: the bounds of every width, what is no number, what is
too long, what is nested.
"""
import os
from decimal import Decimal

from gomq_py.content.fields import Float32, Int8, Int64, Seconds, UInt32

FULL = os.environ.get("GOMQ_HARNESS") == "full"

DIGITS = "9" * 5000
NESTED = {"a": [{"b": [1, {"c": None}]}]}
_BOUNDS = [
    -(1 << 63) - 1, -1 << 63, -(1 << 31) - 1, -1, 0, 1, 255, 256, 1 << 31, 1 << 32, 1 << 53, 315_360_000_001,
    (1 << 63) - 1, 1 << 63, 1 << 64,
]
_OTHERS = [
    0.5, 1e18, 1e308, -1e308, "", "0", "-1", "x", "inf", "nan", "9223372036854775808", DIGITS, True, False,
    None, [], {}, [1], NESTED,
]

# What `make test` runs: those that have brought something down once, and one of each kind.
_CHOSEN_BOUNDS = [-1, (1 << 63) - 1, 1 << 63]
_CHOSEN_OTHERS = [1e308, DIGITS, NESTED]

# Over HTTP and in files of definitions.
JSON = _BOUNDS + _OTHERS if FULL else _CHOSEN_BOUNDS + _CHOSEN_OTHERS

_ONLY_AMQP = [
    float("inf"), float("-inf"), float("nan"), Float32("inf"), Decimal("0.5"), Decimal(2**31 - 1), Seconds(0),
    Seconds((1 << 64) - 1), Seconds(1 << 63), Int8(-1), UInt32((1 << 32) - 1), Int64(5), b"\xff\xfe",
    [[[[]]]],
]
_CHOSEN_ONLY_AMQP = [float("inf"), float("nan"), Seconds((1 << 64) - 1), b"\xff\xfe"]
# In field tables: what 64 bits hold, and their types.
TABLE = [value for value in JSON if not isinstance(value, int) or -1 << 63 <= value < 1 << 63] + (
    _ONLY_AMQP if FULL else _CHOSEN_ONLY_AMQP
)

# Over HTTP a value stands in text of JSON, where more can be written than any library writes.
RAW_JSON = ["1" * 5000, '"\\ud800"']
if FULL:
    RAW_JSON += ["1e400", "-1e400", "NaN", "Infinity", "0.1e-400", "[" * 300 + "]" * 300]

# Places between two looks at the bystander.
CHECK_EVERY = 1 if FULL else 8

DEPTHS = (
    [1, 2, 16, 30, 31, 32, 33, 34, 36, 64, 100, 254, 255, 300, 500, 1000] if FULL else [32, 33, 300, 1000]
)
