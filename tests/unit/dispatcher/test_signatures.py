"""Argument types from signatures."""

from typing import Any, Optional

import pytest

from gomq_py.dispatcher.errors import BadArgument, BadTask
from gomq_py.dispatcher.signatures import Float32, Int8, Signature, UInt64


def example(path: str, width: int, ratio: float = 1.5, *, flag: bool = False):
    return path, width, ratio, flag


def sent(function, *args, skip=0, **kwargs):
    return [(each.type, each.value) for each in Signature("t", function, skip).arguments(args, kwargs)]


def test_arguments_are_sent_in_order_with_the_types_of_the_signature_and_its_defaults():
    assert sent(example, "a", width=2, flag=True) == [
        ("string", "a"),
        ("int", 2),
        ("float64", 1.5),
        ("bool", True),
    ]


def test_what_was_sent_calls_the_function_alike():
    signature = Signature("t", example)
    values = [each.value for each in signature.arguments(("a", 2), {"flag": True})]

    assert signature.call(example, values) == example("a", 2, flag=True)


def test_widths_lists_and_what_has_no_annotation():
    def function(
        a: Int8, b: Float32, c: UInt64, d: list[int], e: dict, f: Any, g, h: Optional[int] = None, *rest: str
    ): ...

    assert sent(function, 1, 2, 3, (4, 5), {}, 6, "7", None, "8", "9") == [
        ("int8", 1),
        ("float32", 2.0),
        ("uint64", 3),
        ("json", [4, 5]),
        ("json", {}),
        ("int", 6),
        ("string", "7"),
        ("json", None),
        ("string", "8"),
        ("string", "9"),
    ]


def test_integer_that_only_uint64_holds_travels_as_one():
    assert sent(lambda a: ..., 2**64 - 1) == [("uint64", 2**64 - 1)]


@pytest.mark.parametrize(
    "args, text",
    [
        (("a",), "missing a required argument: 'width'"),
        (("a", "2"), r"argument 2 \('width'\): '2' is not an int"),
        (("a", 2, "x"), r"argument 3 \('ratio'\)"),
        ((1, 2), r"argument 1 \('path'\)"),
        (("a", 2, 1.0, True, 5), "too many positional"),
    ],
)
def test_sender_is_told_the_argument_by_number_and_name(args, text):
    with pytest.raises(BadArgument, match=f"task 't': .*{text}"):
        sent(example, *args)


@pytest.mark.parametrize(
    "values, types, text",
    [
        (["a"], ["string"], "1 arguments were sent, and the function takes 2 to 4"),
        (
            ["a", "b"],
            ["string", "string"],
            r"argument 2 \('width'\): 'b' came as string, and the function takes int",
        ),
        ([1, 2], ["int", "int"], r"argument 1 \('path'\)"),
        (["a", 0.5], ["string", "float64"], "came as float64"),
        (["a", "b"], ["string", "json"], "'b' is not an int"),
    ],
)
def test_worker_is_told_what_does_not_fit(values, types, text):
    with pytest.raises(BadArgument, match=text):
        Signature("t", example).check(values, types)


@pytest.mark.parametrize(
    "values, types",
    [
        (["a", 2], ["string", "uint8"]),
        (["a", 2**64 - 1], ["string", "uint64"]),
        (["a", 2, 3], ["string", "int", "int"]),
        (["a", 2, 0.5], ["string", "int", "float32"]),
        (["a", 2, 0.5, True], ["json", "json", "json", "json"]),
    ],
)
def test_senders_with_widths_of_their_own_are_understood(values, types):
    Signature("t", example).check(values, types)


def test_uuid_in_front_is_not_the_senders():
    def function(uuid: str, count: int): ...

    assert sent(function, 3, skip=1) == [("int", 3)]


def test_keywords_of_any_name_have_no_place_on_the_wire():
    def function(**options): ...

    with pytest.raises(BadTask, match=r"takes \*\*options"):
        Signature("t", function)
