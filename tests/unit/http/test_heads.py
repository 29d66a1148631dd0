"""Heads and chunks that two servers may read differently are no heads and chunks."""

import io
from email.message import Message

import pytest

from gomq_py.http import heads

GOOD_FIELDS = (
    b"",
    b"Host: x\r\n",
    b"Host:x\r\nX-A: b, c \t\r\n",
    b"X-Text: \xc3\xa4 \x85\r\n",
    b"!#$%&'*+-.^_`|~09AZaz: v\r\n",
)
BAD_FIELDS = {
    "no colon": b"garbage\r\n",
    "space before the colon": b"Host : x\r\n",
    "tab before the colon": b"Host\t: x\r\n",
    "space in the name": b"Ho st: x\r\n",
    "no name": b": x\r\n",
    "folded": b"Host: x\r\n folded\r\n",
    "folded first": b" Host: x\r\n",
    "bare LF": b"Host: x\n",
    "bare LF at the end": b"Host: x\r\n\n",
    "bare CR": b"Host: x\rX: y\r\n",
    "CR CR LF": b"Host: x\r\r\n",
    "NUL in a value": b"Host: x\0\r\n",
    "NUL in a name": b"Ho\0st: x\r\n",
    "control character": b"Host: x\x1f\r\n",
    "DEL": b"Host: x\x7f\r\n",
    "vertical tab": b"Host: x\x0b\r\n",
    "letters beyond ASCII in a name": b"H\xf6st: x\r\n",
    "parenthesis in a name": b"Host(): x\r\n",
}


@pytest.mark.parametrize("octets", GOOD_FIELDS)
def test_fields_come_through_without_the_white_space_around_their_values(octets):
    found = heads.read_fields(io.BytesIO(octets + b"\r\nnext"))

    assert found.split(b"\r\n")[-2:] == [b"", b""]
    assert [line.partition(b":")[2].strip(b" \t") for line in octets.split(b"\r\n")] == [
        line.partition(b": ")[2] for line in found.split(b"\r\n")[:-1]
    ]


@pytest.mark.parametrize("octets", BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_fields_that_servers_read_differently_are_refused(octets):
    with pytest.raises(heads.MalformedHead):
        heads.read_fields(io.BytesIO(octets + b"\r\n"))


@pytest.mark.parametrize(("target", "found"), [
    ("http://mq.example:15672/api/queues/%2F?page=1", ("mq.example:15672", "/api/queues/%2F?page=1")),
    ("HTTPS://mq", ("mq", "/")), ("http://mq?a=b", ("mq", "/?a=b")), ("http://a//b", ("a", "//b")),
    ("/api/http://mq/x", (None, "/api/http://mq/x")), ("*", (None, "*")),
    ("ftp://mq/x", (None, "ftp://mq/x")),
])
def test_target_that_is_a_whole_uri_is_split_into_its_host_and_its_path(target, found):
    assert heads.origin_form(target) == found


@pytest.mark.parametrize(
    "line", [b"GET / HTTP/1.1\r\n", b"PURGE * HTTP/1.0\r\n", b"GET /%2F\xc3\xa4?a=b HTTP/1.1\r\n"]
)
def test_request_lines_pass(line):
    heads.check_request_line(line)


@pytest.mark.parametrize(
    "line",
    [
        b"GET /\r\n",
        b"GET / HTTP/0.9\r\n",
        b"GET / HTTP/2.0\r\n",
        b"GET / HTTP/1.10\r\n",
        b"GET / HTTP/1.1\n",
        b"GET  / HTTP/1.1\r\n",
        b"GET / HTTP/1.1 \r\n",
        b" GET / HTTP/1.1\r\n",
        b"GET\t/\tHTTP/1.1\r\n",
        b"GET /a b HTTP/1.1\r\n",
        b"GET /\0 HTTP/1.1\r\n",
        b"GET / http/1.1\r\n",
        b"G(T / HTTP/1.1\r\n",
        b"GET /\x0b HTTP/1.1\r\n",
        b"GET /\r HTTP/1.1\r\n",
        b"\r\n",
        b"",
    ],
)
def test_request_lines_that_servers_read_differently_are_refused(line):
    with pytest.raises(heads.MalformedHead):
        heads.check_request_line(line)


def framed(*fields, host="a"):
    """A head's fields with one Host, where ``fields`` have none; None: without."""
    message = Message()
    if host is not None and "Host" not in dict(fields):
        message["Host"] = host
    for name, value in fields:
        message[name] = value
    return message


LENGTH, CODING = "Content-Length", "Transfer-Encoding"


@pytest.mark.parametrize(
    "fields",
    [(), ((LENGTH, "0"),), ((LENGTH, "0012"),), ((CODING, "chunked"),), (("transfer-ENCODING", "Chunked"),)],
)
def test_one_length_or_chunks_say_where_a_body_ends(fields):
    heads.check_framing(framed(*fields), "HTTP/1.1")


@pytest.mark.parametrize(
    "fields",
    [
        *[
            ((LENGTH, value),)
            for value in (
                "+5",
                "-5",
                "1_0",
                "5,5",
                "5, 5",
                "0x5",
                "5.0",
                "",
                "five",
                "\u0665",
                "9" * 19,
                "5 5",
            )
        ],
        ((LENGTH, "2"), (LENGTH, "3")),
        ((LENGTH, "2"), ("content-length", "2")),
        ((LENGTH, "2"), (CODING, "chunked")),
        ((CODING, "chunked"), (LENGTH, "0")),
        *[
            ((CODING, value),)
            for value in (
                "xchunked",
                "identity",
                "gzip",
                "gzip, chunked",
                "chunked, gzip",
                "chunked, chunked",
                "chunked;a=b",
                "",
                '"chunked"',
            )
        ],
        ((CODING, "chunked"), (CODING, "chunked")),
        ((CODING, "chunked"), (CODING, "identity")),
        (("Host", "a"), ("Host", "b")),
        (("Authorization", "a"), ("Authorization", "b")),
        (("Content-Type", "a"), ("Content-Type", "b")),
    ],
)
def test_bodies_that_may_end_in_two_places_are_refused(fields):
    with pytest.raises(heads.MalformedHead):
        heads.check_framing(framed(*fields), "HTTP/1.1")


def test_http_1_1_names_a_host():
    with pytest.raises(heads.MalformedHead, match="there is no host"):
        heads.check_framing(framed(host=None), "HTTP/1.1")

    heads.check_framing(framed(host=""), "HTTP/1.1")
    heads.check_framing(framed(host=None), "HTTP/1.0")


def test_http_1_0_knows_no_chunks():
    with pytest.raises(heads.MalformedHead):
        heads.check_framing(framed((CODING, "chunked")), "HTTP/1.0")


def chunks(octets, buffer=8192):
    file = io.BufferedReader(io.BytesIO(octets), buffer)
    return io.BufferedReader(heads.Chunks(file, lambda: None)), file


@pytest.mark.parametrize(
    ("octets", "body"),
    [
        (b"0\r\n\r\n", b""),
        (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b'A;x="y"\r\n0123456789\r\n1 ;a\r\n!\r\n00\r\nX-T: v\r\n\r\n', b"0123456789!"),
    ],
)
@pytest.mark.parametrize("buffer", [1, 2, 8192])
def test_chunks_are_the_body_and_what_follows_is_left(octets, body, buffer):
    reader, file = chunks(octets + b"GET", buffer)

    assert (reader.read(), reader.read(), file.read()) == (body, b"", b"GET")


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\r\n",
        b"5",
        b"5\n",
        b"5\nhello\r\n",
        b"+5\r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"5 \r\nhello\r\n",
        b"-1\r\n",
        b"1_0\r\n",
        b"5\r\nhello",
        b"5\r\nhello\n0\r\n\r\n",
        b"4\r\nhello\r\n",
        b"6\r\nhello\r\n",
        b"5;a\nb\r\nhello\r\n",
        b"5;a\rb\r\nhello\r\n",
        b"5;\0\r\nhello\r\n",
        b"5" + b";" * 5000 + b"\r\nhello\r\n",
        b"f" * 16 + b"\r\n",
        b"g\r\n",
        b"0\r\n",
        b"0\r\nX : y\r\n\r\n",
        b"0\r\nX: y\n\r\n",
        b"0\r\n\n",
        b"0\r\n" + b"X: y\r\n" * 101 + b"\r\n",
        b"5\r\nhel",
    ],
)
def test_malformed_chunks_are_refused(octets):
    reader, _ = chunks(octets + (b"0\r\n\r\n" if octets.endswith(b"lo\r\n") else b""))

    with pytest.raises(heads.MalformedChunks):
        reader.read()
