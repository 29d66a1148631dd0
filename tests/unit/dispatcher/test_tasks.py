"""The wire format of tasks, in literal octets: what a sender in Go writes, and what a worker in Go reads."""

import re

import pytest

from gomq_py.dispatcher.errors import BadArgument, BadTask
from gomq_py.dispatcher.tasks import Argument, Task, decode

# As encoding/json of Go writes it, in the order of the fields of its structs, with <, > and & escaped.
FROM_GO = (
    b'{"uuid":"0d8d2c4c-1d4c-4b47-9c9b-6f6c4f4f3a52","name":"resize","args":['
    b'{"type":"string","value":"a\\u003cb\\u0026c.png"},{"type":"uint16","value":640},{"type":"bool","value":true},'
    b'{"type":"float32","value":0.5},{"type":"int64","value":-9223372036854775808}]}'
)
FROM_US = (
    b'{"uuid":"0d8d2c4c-1d4c-4b47-9c9b-6f6c4f4f3a52","name":"resize","args":['
    b'{"type":"string","value":"k\xc3\xa4se.png"},{"type":"uint16","value":640},{"type":"int","value":9007199254740993},'
    b'{"type":"uint64","value":18446744073709551615},{"type":"float64","value":0.25}]}'
)


def test_task_of_a_go_sender_is_read():
    task = decode(FROM_GO)

    assert (task.uuid, task.name) == ("0d8d2c4c-1d4c-4b47-9c9b-6f6c4f4f3a52", "resize")
    assert task.args == [
        ("string", "a<b&c.png"),
        ("uint16", 640),
        ("bool", True),
        ("float32", 0.5),
        ("int64", -(2**63)),
    ]


def test_task_is_written_in_the_octets_that_a_go_worker_reads():
    task = Task(
        "resize",
        ["käse.png", Argument(640, "uint16"), 2**53 + 1, 2**64 - 1, 0.25],
        uuid="0d8d2c4c-1d4c-4b47-9c9b-6f6c4f4f3a52",
    )

    assert task.encode() == FROM_US


def test_properties_are_those_of_the_go_library():
    assert Task("resize", headers={"tenant": "a"}).properties().encode() == (
        b"\xb0\x00" b"\x10application/json" b"\x00\x00\x00\x0d\x06tenantS\x00\x00\x00\x01a" b"\x02"
    )


def test_integers_beyond_two_to_the_53rd_are_exact_both_ways():
    values = [2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**64 - 1]

    assert [value for _, value in decode(Task("count", values).encode()).args] == values


def test_a_uuid_is_made_up_where_there_is_none():
    task = Task("resize")

    task.encode()

    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", task.uuid)
    assert decode(task.encode()).uuid == task.uuid


def test_null_for_no_arguments_is_an_empty_list():
    assert decode(b'{"uuid":"","name":"tick","args":null}').args == []


@pytest.mark.parametrize(
    "body, text",
    [
        (b"", "the message is empty"),
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[1]", "[1]"),
        (b"{}", "has no name"),
        (b'{"name": 3}', "has no name"),
        (b'{"name":"a","args":{}}', "args is {}"),
        (b'{"name":"a","args":[1]}', "args is [1]"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_what_is_no_task_is_refused_with_what_it_is(body, text):
    with pytest.raises(BadTask, match=re.escape(text)):
        decode(body)


def test_sender_is_told_which_argument_of_which_task_cannot_be_sent():
    with pytest.raises(
        BadArgument, match=r"task 'resize': argument 2: 300 is not between 0 and 255, the bounds of uint8"
    ):
        Task("resize", ["a.png", Argument(300, "uint8")]).encode()
    with pytest.raises(BadTask, match="Task name was not passed"):
        Task("").encode()
    with pytest.raises(BadTask, match="task 'a': an argument has no form in JSON"):
        Task("a", [object()]).encode()
