"""Records of the framed logs: what cannot be used is refused whole."""
import pytest

from gomq_py.content.fields import encode_table
from gomq_py.storage.logs.log_records import (
    RecordError, is_flag, is_str, is_table, is_text, is_texts, optional, read_record,
)

SHAPES = {
    "thing": {
        "name": is_text, "kind": is_str, "on": is_flag, "arguments": is_table, "tags": optional(is_texts)
    },
}
GOOD = {"op": "thing", "name": "n", "kind": "k", "on": True, "arguments": {"a": 1}, "tags": ["x"]}


def test_a_record_of_the_right_form_is_a_dict():
    assert read_record(encode_table(GOOD), SHAPES) == GOOD


def test_an_optional_field_may_be_missing_and_a_name_be_octets():
    record = {**GOOD, "name": b"\xff"}
    del record["tags"]

    assert read_record(encode_table(record), SHAPES) == record


def test_a_kind_of_record_without_a_form_is_left_to_the_reader():
    assert read_record(encode_table({"op": "later", "x": 1}), SHAPES) == {"op": "later", "x": 1}


@pytest.mark.parametrize("payload", [
    b"", b"x", encode_table({}), encode_table({"op": 1}), encode_table(GOOD) + b"x",
    *(
        encode_table({**GOOD, field: wrong})
        for field, wrong in (
            ("name", 1), ("kind", b"\xff"), ("on", 1), ("arguments", []), ("tags", "x"), ("tags", [1]),
            ("name", None))
    ),
])
def test_anything_else_is_refused(payload):
    with pytest.raises(RecordError):
        read_record(payload, SHAPES)
