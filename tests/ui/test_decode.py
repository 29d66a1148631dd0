"""Bodies are decoded in the browser: every kind of value, and nothing that breaks, hangs or rounds."""
import base64
import gzip
import json
import zlib

import pytest

from tests.support.node_modules import copy_modules, run

pytestmark = pytest.mark.needs_program("node")
MIB = 1024 * 1024
READ = """
import {read} from "./decode/body.js";
---
const answers = [];
for (const [octetsAsBase64, options] of input) {
    const body = Uint8Array.from(Buffer.from(octetsAsBase64, "base64"));
    const {form, text, unpacked, note} = await read(body, options);
    answers.push({form, text, unpacked, note});
}
tell(answers);
"""
# Of the examples in RFC 8949, appendix A, those of each kind.
CBOR = {
    "00": "0", "17": "23", "1818": "24", "1903e8": "1000", "1a000f4240": "1000000",
    "1b000000e8d4a51000": "1000000000000", "1bffffffffffffffff": "18446744073709551615",
    "c249010000000000000000": "18446744073709551616", "3bffffffffffffffff": "-18446744073709551616",
    "c349010000000000000000": "-18446744073709551617", "20": "-1", "3903e7": "-1000", "f90000": "0",
    "f98000": "-0", "f93c00": "1", "fb3ff199999999999a": "1.1", "f93e00": "1.5", "f97bff": "65504",
    "fa47c35000": "100000", "f90001": "5.960464477539063e-8", "f9c400": "-4", "f97c00": "Infinity",
    "f97e00": "NaN", "f4": "false", "f5": "true", "f6": "null", "f7": "undefined", "f0": "simple(16)",
    "f8ff": "simple(255)", "c11a514b67b0": "tag 1(1363896240)", "d74401020304": "tag 23(h'01020304')",
    "40": "h''", "6449455446": '"IETF"', "62225c": '"\\"\\\\"', "63e6b0b4": '"\u6c34"', "80": "[]",
    "8301820203820405": "[\n  1,\n  [\n    2,\n    3\n  ],\n  [\n    4,\n    5\n  ]\n]", "a0": "{}",
    "a201020304": "{\n  1: 2,\n  3: 4\n}", "5f42010243030405ff": "h'0102030405'",
    "7f657374726561646d696e67ff": '"streaming"', "9fff": "[]", "9f01ff": "[\n  1\n]",
    "bf6346756ef563416d7421ff": '{\n  "Fun": true,\n  "Amt": -2\n}', "d9d9f701": "1",
}
# By the tables of the specification.
MSGPACK = {
    "7f": "127", "e0": "-32", "c0": "null", "c2": "false", "c3": "true", "cc80": "128", "cd0100": "256",
    "ce00010000": "65536", "cf0000000100000000": "4294967296", "cfffffffffffffffff": "18446744073709551615",
    "d080": "-128", "d18000": "-32768", "d280000000": "-2147483648",
    "d38000000000000000": "-9223372036854775808", "ca3fc00000": "1.5", "cb3ff199999999999a": "1.1",
    "a3666f6f": '"foo"', "d903666f6f": '"foo"', "da0003666f6f": '"foo"', "db00000003666f6f": '"foo"',
    "c403010203": "h'010203'", "c50001ff": "h'ff'", "c600000001ff": "h'ff'",
    "93010203": "[\n  1,\n  2,\n  3\n]",
    "dc000101": "[\n  1\n]", "dd0000000101": "[\n  1\n]", "81a16101": '{\n  "a": 1\n}',
    "de0001a16101": '{\n  "a": 1\n}', "df00000001a16101": '{\n  "a": 1\n}', "d40501": "extension 5(h'01')",
    "c7030501ff02": "extension 5(h'01ff02')", "d6ff00000000": 'timestamp("1970-01-01T00:00:00Z")',
    "d7ff0000000400000001": 'timestamp("1970-01-01T00:00:01.000000001Z")',
    "c70cff000000010000000000000002": 'timestamp("1970-01-01T00:00:02.000000001Z")',
}
BROKEN = {
    "cbor": [
        "", "18", "1900", "61", "62ff", "82", "8201", "a101", "9f01", "ff", "81ff", "5f4101", "5f6161ff",
        "bf01ff", "1c", "fc", "f801", "9bffffffffffffffff", "bbffffffffffffffff", "5bffffffffffffffff", "c2",
        "0000", "df", "1f",
    ],
    "msgpack": [
        "", "c1", "cc", "a1", "91", "81a161", "ddffffffff", "dfffffffff", "dbffffffff", "c6ffffffff", "d4",
        "d6ff00", "0000", "a1ff",
    ],
    "json": [text.encode().hex() for text in (
        "", "{", "[1,]", "{a:1}", "01", "1.", "+1", "\"\t\"", '"\\x"', '"\\u12"', "tru", "[1] 2", "NaN",
        "'a'",
    )],
}


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """The folder that holds the modules."""
    return copy_modules(tmp_path_factory.mktemp("modules"), "decode")


def read(modules, *bodies):
    """What the page makes of each (body, options)."""
    return run(modules, READ, [(base64.b64encode(body).decode(), options) for body, options in bodies])


def of_each(modules, form, samples):
    """The text of each of these bodies in hexadecimal digits."""
    answers = read(modules, *((bytes.fromhex(digits), {"form": form}) for digits in samples))
    assert [(answer["form"], answer["note"]) for answer in answers] == [(form, "")] * len(samples)
    return {digits: answer["text"] for digits, answer in zip(samples, answers)}


def test_cbor_of_every_kind(modules):
    assert of_each(modules, "cbor", CBOR) == CBOR


def test_msgpack_of_every_kind(modules):
    assert of_each(modules, "msgpack", MSGPACK) == MSGPACK


def test_json_keeps_every_digit_and_the_order_of_names(modules):
    body = b'{"b": 12345678901234567890, "a": [1.10, 1e400, -0.5, "\\u00e9\\n\\ud83d\\ude00"], "": {}}'

    (answer,) = read(modules, (body, {"form": "json"}))

    assert answer["note"] == ""
    assert answer["text"] == (
        '{\n  "b": 12345678901234567890,\n  "a": [\n    1.10,\n    1e400,\n    -0.5,\n'
        '    "\u00e9\\n\U0001f600"\n  ],\n  "": {}\n}')


@pytest.mark.parametrize("form", sorted(BROKEN))
def test_broken_bodies_are_shown_as_octets_with_the_reason(modules, form):
    answers = read(modules, *((bytes.fromhex(digits), {"form": form}) for digits in BROKEN[form]))

    for digits, answer in zip(BROKEN[form], answers):
        assert answer["note"] and answer["form"] in ("hex", "text"), (form, digits, answer)


def test_depth_ends_at_64(modules):
    deep = {
        "json": lambda depth: b"[" * depth + b"]" * depth,
        "msgpack": lambda depth: b"\x91" * (depth - 1) + b"\x90",
        "cbor": lambda depth: b"\x81" * (depth - 1) + b"\x80",
    }
    bodies = [
        (make(depth), {"form": form}) for form, make in deep.items() for depth in (64, 65, 500_000)
    ] + [(b"\xc1" * 500_000 + b"\x00", {"form": "cbor"}), (b"\x9f" * 500_000, {"form": "cbor"})]

    notes = [answer["note"] for answer in read(modules, *bodies)]

    assert notes[:9:3] == ["", "", ""]
    assert set(notes[1:9:3] + notes[2:9:3] + notes[9:]) == {"nested deeper than 64"}


def test_more_than_a_mebibyte_is_not_decoded(modules):
    body = b'"' + b"a" * MIB + b'"'

    answers = read(modules, (body, {"form": "json"}), (body, {}), (b"\xc4" * (MIB + 1), {"form": "msgpack"}))

    assert all(f"more than {MIB} are not decoded" in answer["note"] for answer in answers[::2])
    assert answers[1]["form"] in ("text", "hex")


def test_a_bomb_of_gzip_is_not_unpacked_beyond_the_limit(modules):
    bomb = gzip.compress(bytes(100 * MIB))
    assert len(bomb) < MIB

    (answer,) = read(modules, (bomb, {}))

    assert not answer["unpacked"] and f"unpacks to more than {MIB} bytes" in answer["note"]


def test_packed_bodies_are_unpacked_first(modules):
    inner = json.dumps({"a": 1}).encode()

    answers = read(
        modules, (gzip.compress(inner), {}), (zlib.compress(inner), {"contentEncoding": "deflate"}),
        (gzip.compress(inner), {"form": "text"}), (b"plain", {"contentEncoding": "gzip"}),
        (gzip.compress(inner)[:-4], {}))

    assert [answer["text"] for answer in answers[:2]] == ['{\n  "a": 1\n}'] * 2
    assert answers[2]["text"] == '{"a": 1}' and answers[2]["unpacked"]
    assert answers[3]["text"] == "plain" and answers[3]["note"] == "no gzip, or damaged"
    assert not answers[4]["unpacked"] and answers[4]["note"] == "no gzip, or damaged"


def test_the_form_that_fits_is_guessed(modules):
    samples = [
        (b'{"a": 1}', {}, "json"), (b"{not json", {}, "text"), ("h\u00e9llo\n".encode(), {}, "text"),
        (b"", {}, "text"), (b"\x82\xa1a\x01\xa1b\xc3", {}, "msgpack"), (b"\xa2aa\x01ab\xf5", {}, "cbor"),
        (b"\x00\xff\xfe", {}, "hex"), (b"\x01", {"contentType": "application/cbor"}, "cbor"),
        (b"\x01", {"contentType": "application/x-msgpack"}, "msgpack"),
        (b"[1", {"contentType": "text/csv"}, "text"),
        (b"12", {"contentType": "application/json; charset=utf-8"}, "json"),
    ]

    answers = read(modules, *((body, options) for body, options, _ in samples))

    assert [answer["form"] for answer in answers] == [form for _, _, form in samples]
    (lied,) = read(modules, (b"hello", {"contentType": "application/json"}))
    assert lied["form"] == "text"
    assert lied["note"].startswith("the content type says application/json, but: no JSON")


def test_hex_and_base64(modules):
    body = bytes(range(20)) + b"<script>"

    as_hex, as_base64 = read(modules, (body, {"form": "hex"}), (body, {"form": "base64"}))

    assert as_hex["text"].splitlines() == [
        "00000000  00 01 02 03 04 05 06 07  08 09 0a 0b 0c 0d 0e 0f  ................",
        "00000010  10 11 12 13 3c 73 63 72  69 70 74 3e              ....<script>",
    ]
    assert base64.b64decode(as_base64["text"]) == body


def test_no_octets_break_the_decoders(modules):
    """10 000 bodies made of valid ones by joining, changing and cutting; every form."""
    seeds = [*CBOR, *MSGPACK, b'{"a": [1, "b", null]}'.hex(), gzip.compress(b"[1, 2]", mtime=0).hex()]

    answer = run(modules, """
import {read, FORMS} from "./decode/body.js";
---
let state = 20261124;
const random = (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor(state / 0x100000000 * below);
};
const forms = new Set();
for (let round = 0; round < 10000; round += 1) {
    const body = [...octets(input[random(input.length)]), ...octets(input[random(input.length)])];
    for (let changes = random(4); changes > 0; changes -= 1) {
        body[random(body.length)] = random(256);
    }
    const cut = Uint8Array.from(body.slice(0, random(body.length + 1)));
    const {form, text} = await read(cut, {form: FORMS[random(FORMS.length)]});
    if (typeof text !== "string") { throw new Error(`no text of ${hex(cut)}`); }
    forms.add(form);
}
tell([...forms].sort());
""", seeds)

    assert answer == ["base64", "cbor", "hex", "json", "msgpack", "text"]


PATHS = {
    "$.order.items[0].price > 10": True, "$.order.items[1].price > 10": False, "$..price = 12": True,
    "$..price": True, "$..nothing": False, "$.order.items[-1].price <= 3": True, "$.tags[*] = urgent": True,
    "$.tags[*] ~ ^urg": True, "$.tags[*] ~ ^x": False, "$['a.b'] = null": True, '$["a.b"] != null': False,
    "$.id = 12345678901234567891": True, "$.id = 12345678901234567890": False, "$.order.* == x": True,
    '$.tags[0] = "urgent"': True, "$.order.name < y": True,
}
NO_PATHS = ["order", "$.a %", "$.a ~ (", "$" + ".a" * 33, "$[x]"]


def test_paths_find_values_in_bodies_and_bad_ones_say_so(modules):
    body = json.dumps({
        "order": {"items": [{"price": 12}, {"price": 3}], "name": "x"}, "tags": ["urgent", "eu"], "a.b": None,
        "id": 12345678901234567891,
    })

    found = run(modules, """
import {compile} from "./decode/path.js";
import {decodeJson} from "./decode/json.js";
import {DecodeError} from "./decode/values.js";
---
const value = decodeJson(input[1]);
tell(input[0].map((path) => {
    try {
        return compile(path)(value);
    } catch (error) {
        return error instanceof DecodeError ? "refused" : String(error);
    }
}));
""", [[*PATHS, *NO_PATHS], body])

    assert dict(zip([*PATHS, *NO_PATHS], found)) == {**PATHS, **dict.fromkeys(NO_PATHS, "refused")}
