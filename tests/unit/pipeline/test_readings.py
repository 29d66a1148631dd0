"""Readings: what a schema file may say, and which values it lets through."""
from datetime import UTC, datetime

import pytest

from gomq_py.pipeline.payloads import Undecodable
from gomq_py.pipeline.readings import make_schema, read_schema, readings
from gomq_py.spark.errors import OptionError

CAME = datetime(2026, 1, 2, tzinfo=UTC)
FIELDS = {"t": "double", "n": "long", "on": "boolean", "name": "string"}


def taken(body, routing_key="dev.d1.up", **given):
    return readings(make_schema({"device": "topic:1", "fields": FIELDS, **given}), routing_key, body, CAME)


def test_a_message_gives_device_time_and_typed_fields():
    assert taken(b'{"t": 1, "n": 7.0, "on": true, "name": "x", "other": []}') == [
        ("d1", CAME, [1.0, 7, True, "x"])
    ]
    assert taken(b"{}") == [("d1", CAME, [None] * 4)]


def test_device_and_time_may_be_fields():
    given = {"device": "field:id", "time": "field:ts"}

    assert taken(b'{"id": 5, "ts": 1767312000000}', **given)[0][:2] == ("5", CAME)
    assert taken(b'{"id": "a", "ts": 1767312000}', time_unit="s", **given)[0][:2] == ("a", CAME)
    assert taken(b'{"id": "a", "ts": "2026-01-02T01:00:00+01:00"}', time_unit="iso", **given)[0][1] == CAME


@pytest.mark.parametrize("body, given, words", [
    (b'{"t": "warm"}', {}, "field t is no double: 'warm'"), (b'{"t": true}', {}, "field t is no double"),
    (b'{"n": 1.5}', {}, "field n is no long"),
    (b'{"n": 1e300}', {}, "field n is no long"), (b'{"on": 1}', {}, "field on is no boolean"),
    (b'{"name": 1}', {}, "field name is no string"),
    (b'{"t": NaN}', {}, "no finite number"), (b'{"t": 1' + b"0" * 400 + b"}", {}, "no finite number"),
    (b"{}", {"device": "topic:9"}, "has no word 9"), (b"{}", {"device": "field:id"}, "names no device"),
    (b'{"ts": 1e18}', {"time": "field:ts"}, "no time in ms"),
    (b"{}", {"time": "field:ts", "time_unit": "iso"}, "no time in iso"),
    (b"no json", {}, "no JSON"),
    (b'{"name": "\\ud800"}', {}, "field name is no string"),
    (b'{"id": "\\udc00x"}', {"device": "field:id"}, "names no device"),
    (b'{"ts": "0001-01-01T00:00:00+14:00"}', {"time": "field:ts", "time_unit": "iso"}, "no time in iso"),
    (b'{"ts": "9999-12-31T23:59:59-14:00"}', {"time": "field:ts", "time_unit": "iso"}, "no time in iso"),
    (b'{"t": ' + b"[" * 900 + b"]" * 900 + b"}", {}, "field t is no double"),
    (b'{"t": ' + b"9" * 5000 + b"}", {}, "no JSON"),
])
def test_what_does_not_fit_is_undecodable(body, given, words):
    with pytest.raises(Undecodable, match=words):
        taken(body, **given)


@pytest.mark.parametrize("given, words", [
    ({}, "fields is missing"), ({"fields": {}}, "fields is missing"),
    ({"fields": {"t": "decimal"}}, "field t is one of"),
    ({"fields": {"offset": "long"}}, "name of a column"),
    ({"format": "xml", "fields": FIELDS}, "format is one of json"),
    ({"device": "4", "fields": FIELDS}, "device is"), ({"device": "topic:x", "fields": FIELDS}, "device is"),
    ({"time": "topic:1", "fields": FIELDS}, "time is"),
    ({"time_unit": "h", "fields": FIELDS}, "time_unit is one of"),
    ({"colour": 1, "fields": FIELDS}, "colour is unknown"),
])
def test_a_schema_that_makes_no_sense_is_refused(given, words):
    with pytest.raises(OptionError, match=words):
        make_schema(given)


def test_a_schema_file_is_named_where_it_cannot_be_used(tmp_path):
    path = tmp_path / "schema.toml"
    for content, words in (
        (None, "cannot be read"), ("a = ", "schema.toml: "), ('format = "xml"', "schema.toml: format")
    ):
        if content is not None:
            path.write_text(content)
        with pytest.raises(OptionError, match=words):
            read_schema(str(path))
    path.write_text('device = "topic:0"\n[fields]\nt = "double"\n')
    assert read_schema(str(path)).fields == (("t", "double"),)
