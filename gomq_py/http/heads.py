"""Parses the heads and chunks of HTTP requests, and accepts only unambiguous ones.

If a proxy and this server read a request differently, one client can write the beginning of another client's
request (request smuggling). So ambiguous requests are refused and their connections closed, even where RFC
9112 lets a server repair them.

    request line   METHOD SP target SP HTTP/1.0|1.1 CRLF       (RFC 9112 §3)
    field line     name ":" OWS value OWS CRLF                 (§5; no white space before the colon, no
                   folding)
    host           one Host in HTTP/1.1 (§3.2)
    length         one Content-Length of digits, or "Transfer-Encoding: chunked" in HTTP/1.1, never both (§6)
    chunk          hex digits [";" extension] CRLF octets CRLF (§7.1)
"""
import io
import re

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_TEXT = rb"[\t\x20-\x7e\x80-\xff]*"
# The router parses the target; here it must hold neither white space nor control characters.
_REQUEST_LINE = re.compile(_TOKEN + rb" [^\x00-\x20\x7f]+ HTTP/1\.[01]\r\n")
_URI = re.compile(r"https?://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_FIELD_LINE = re.compile(rb"(" + _TOKEN + rb"):(" + _TEXT + rb")\r\n")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[\t ]*;" + _TEXT + rb")?\r\n")
_LENGTH = re.compile(r"[0-9]{1,18}")
# Limits of http.client, which refuses more.
LINE_OCTETS_MAX, FIELDS_MAX = 65536, 100
CHUNK_LINE_OCTETS_MAX = 4096
# Fields that must not repeat: one server believes the first, another the last.
_ONCE = ("host", "content-length", "transfer-encoding", "content-type", "authorization")


class MalformedHead(ValueError):
    """The request line or a header field of an HTTP request is malformed."""


class MalformedChunks(OSError):
    """The chunks of an HTTP request's body are malformed."""


class BodyLost(OSError):
    """The client did not send the whole body. ``status`` and ``reason`` are those of the HTTP answer."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status
        self.reason = reason


def check_request_line(line):
    """Raise MalformedHead if the request line is malformed."""
    if _REQUEST_LINE.fullmatch(line) is None:
        raise MalformedHead("the request line is malformed")


def origin_form(target):
    """Return (host, path with query) of a request target that is a whole URI; (None, target) of others."""
    found = _URI.fullmatch(target)
    if found is None:
        return None, target
    host, path = found.groups()
    return host, path if path.startswith("/") else f"/{path}"


def read_fields(file):
    """Read and check the header lines of a request, up to the empty line. Return them as bytes, without white
    space around values. Raises MalformedHead. May switch greenlets.
    """
    # Truncated lines, and too many or too long lines, are returned unchanged: a later check refuses them.
    lines = []
    while len(lines) <= FIELDS_MAX:
        line = file.readline(LINE_OCTETS_MAX + 1)
        if line in (b"\r\n", b"") or line[-1:] != b"\n":
            lines.append(line)
            break
        found = _FIELD_LINE.fullmatch(line)
        if found is None:
            raise MalformedHead("a field line is malformed")
        lines.append(b"%s: %s\r\n" % (found[1], found[2].strip(b" \t")))
    return b"".join(lines)


def check_framing(fields, version):
    """Raise MalformedHead if two servers could disagree about the host, or about the end of the body."""
    for name in _ONCE:
        if len(fields.get_all(name, ())) > 1:
            raise MalformedHead(f"there is more than one {name}")
    if version == "HTTP/1.1" and fields.get("host") is None:
        raise MalformedHead("there is no host")
    length, coding = fields.get("content-length"), fields.get("transfer-encoding")
    if length is not None and _LENGTH.fullmatch(length) is None:
        raise MalformedHead("the content-length is no number in digits")
    if coding is None:
        return
    if length is not None:
        raise MalformedHead("there are a content-length and a transfer-encoding")
    if version != "HTTP/1.1" or coding.lower() != "chunked":
        raise MalformedHead("the transfer-encoding is none that is known")


class Chunks(io.RawIOBase):
    """Reads a chunked HTTP body from a buffered reader; calls ``before()`` before each read."""

    def __init__(self, file, before):
        self._file = file
        self._before = before
        self._left = 0
        self._ended = False

    def readable(self):
        return True

    def readinto(self, buffer):
        """Read bytes of the body into ``buffer``; return their number, 0 at the end. Raises MalformedChunks.
        May switch greenlets.
        """
        self._before()
        if self._ended:
            return 0
        if not self._left:
            self._left = self._size()
            if not self._left:
                self._pass_trailers()
                self._ended = True
                return 0
        octets = self._file.read1(min(len(buffer), self._left))
        if not octets:
            raise MalformedChunks("the body ended before it was whole")
        buffer[:len(octets)] = octets
        self._left -= len(octets)
        if not self._left and self._file.read(2) != b"\r\n":
            raise MalformedChunks("a chunk has another length than it says")
        return len(octets)

    def _size(self):
        found = _CHUNK_LINE.fullmatch(self._file.readline(CHUNK_LINE_OCTETS_MAX))
        if found is None:
            raise MalformedChunks("a chunk does not begin with its length")
        return int(found[1], 16)

    def _pass_trailers(self):
        for _ in range(FIELDS_MAX):
            line = self._file.readline(CHUNK_LINE_OCTETS_MAX)
            if line == b"\r\n":
                return
            if _FIELD_LINE.fullmatch(line) is None:
                break
        raise MalformedChunks("the fields behind the last chunk are malformed or too many")
