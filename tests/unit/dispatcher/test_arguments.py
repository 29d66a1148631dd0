"""Types of arguments: what each lets through, and what it says of the rest."""

import pytest

from gomq_py.dispatcher.arguments import INTEGERS, convert, trace_of, type_of
from gomq_py.dispatcher.errors import BadArgument


@pytest.mark.parametrize("type_name", INTEGERS)
def test_integers_go_up_to_their_bounds_and_no_further(type_name):
    least, most = INTEGERS[type_name]

    assert (convert(type_name, least), convert(type_name, most)) == (least, most)
    for outside in (least - 1, most + 1):
        with pytest.raises(BadArgument, match=f"{outside} is not between {least} and {most}"):
            convert(type_name, outside)


@pytest.mark.parametrize(
    "type_name, value, expected",
    [
        ("int", 3.0, 3),
        ("float64", 3, 3.0),
        ("float32", 0.1, 0.10000000149011612),
        ("string", "", ""),
        ("bool", False, False),
        ("json", {"a": [None]}, {"a": [None]}),
    ],
)
def test_values_that_mean_the_same_are_taken(type_name, value, expected):
    found = convert(type_name, value)

    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    "type_name, value",
    [
        ("int", True),
        ("int", 3.5),
        ("int", "3"),
        ("int", None),
        ("int", 1e300),
        ("bool", 1),
        ("string", 1),
        ("float64", "1"),
        ("float64", True),
        ("float32", 1e39),
        ("float64", 10**400),
        ("float64", float("nan")),
        ("float64", float("inf")),
        ("decimal", 1),
        (None, 1),
        (["int"], 1),
        ("", 1),
    ],
)
def test_values_of_other_types_are_refused(type_name, value):
    with pytest.raises(BadArgument):
        convert(type_name, value)


def test_text_of_a_refusal_is_short_whatever_the_value():
    with pytest.raises(BadArgument) as refused:
        convert("int", "x" * 100_000)

    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "value, type_name",
    [
        (True, "bool"),
        (1, "int"),
        (2**63, "uint64"),
        (0.5, "float64"),
        ("a", "string"),
        ([1], "json"),
        (None, "json"),
    ],
)
def test_type_of_a_value_whose_type_nobody_says(value, type_name):
    assert type_of(value) == type_name


def test_traceback_goes_to_the_log_as_it_is_or_in_octets_that_a_file_takes():
    plain, half = ValueError("käse"), ValueError("half a character: \ud800")

    assert trace_of(plain) == (plain, "")
    nothing, text = trace_of(half)
    assert nothing is None and text.endswith("ValueError: half a character: \\ud800\n")
    assert text.encode()
