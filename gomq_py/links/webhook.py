"""Webhook: a link's destination that posts each message to an HTTP server.

    POST <path of the URI, or the message's header uri_path>     body: the message's
    User-Agent, X-Shovel, Content-Type, X-Message-Id, X-<header> for each header, Authorization,
    X-Signature: sha256=<HMAC of the body, in hex>

Messages are posted one at a time, so that they arrive in order. After a temporary failure a message is posted
again, after a back-off or Retry-After. The table has the effects of answers. A temporary failure has its
effect only when no retry is left:

    2xx                         the message is settled at its source
    408, 425, 429, 503, 507,    temporary failure of the server: the session ends, and the link opens
    no connection,              another
    a port that expects TLS
    other 5xx, no answer in     temporary failure that the message may have caused: the message is refused,
    time, a broken connection   which counts towards the link's limit
    any other answer            the message is refused at once; redirects are not followed, because only
                                the original host was checked

Header names and values, and perhaps the path, come from the publisher: all are checked before use.
"""
import hmac
import re
import time
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from gevent.event import Event

from gomq_py import __version__
from gomq_py.client.backoff import Backoff
from gomq_py.content.properties import Properties
from gomq_py.errors import Malformed
from gomq_py.links import troubles, uris
from gomq_py.links.ends import RefusedByTarget
from gomq_py.links.http_client import HTTPConnection, NoRequest, SpeaksTLS
from gomq_py.links.remote_hosts import HostRefused
from gomq_py.links.target_writer import TargetWriter
from gomq_py.observability.log import logger

LOG = logger("links")

USER_AGENT = f"gomq-py/{__version__}".encode()
PATH_HEADER = "uri_path"
CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 30.0
# Retries before the session ends, about half a minute; the link then reconnects, by another URI if it has
# several.
BACKOFF = Backoff(1.0, 15.0, retries=5)
RETRY_AFTER_MOST_S = 300.0
# Temporary statuses that say nothing about the message.
PASSING = frozenset((408, 425, 429, 503, 507))
# Servers' default limit for all headers (nginx 32 KiB, Node.js 16 KiB); further headers are left out.
HEADERS_OCTETS_MAX = 12 * 1024
HEADERS_MAX = 64
VALUE_OCTETS_MAX = 4096
PATH_OCTETS_MAX = 2048
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")  # RFC 9110 §5.6.2
# Our own fields, and fields that tell proxies and frameworks who asks: publishers may not set them.
_NOT_PUBLISHERS = re.compile(
    "x-(shovel|message-id|signature|forwarded.*|real-ip|client-ip|original-.*|rewrite-.*|accel-.*"
    "|remote-.*|auth-.*"
    "|(http-)?method(-override)?)", re.IGNORECASE)
# Characters of a path that are not percent-encoded; line breaks are.
_PATH_SAFE = "/%?&=+:;,@!$'()*~.-_"


class Webhook:
    """The target of a link that posts to a web server. It takes the place of a TargetEnd.

        destination  a URI or a list of URIs
        name         the link's name
        connector    a links.local.Connector, whose ``connect_http`` is used
        secret       key to sign bodies with, or empty
        edit         as in TargetEnd
        timeout_s    time limit for an answer
        backoff      waits between the retries of a message
        tls          options to verify servers, named as in an AMQP URI
        account      (user who set the link, virtual host), as in Connector.connect
    """

    has_lane = False

    def __init__(
        self, destination: Any, name: str, connector: Any, *, secret: str | bytes = b"", edit: Any = None,
        timeout_s: float = ANSWER_TIMEOUT_S, backoff: Backoff | None = None,
        tls: dict[str, Any] | None = None, account: Any = None,
    ):
        self.uris = [destination] if isinstance(destination, str) else list(destination)
        self.edit = edit
        self.name = name
        self.secret = secret.encode() if isinstance(secret, str) else secret
        self.timeout_s = timeout_s
        self.backoff = BACKOFF if backoff is None else backoff
        self.tls = {} if tls is None else tls
        self.account = account
        self._connector = connector

    def open(self, uri: str) -> "Poster":
        """Return a connected Poster, whose first URI is ``uri``. Raises URIError, OSError. May switch
        greenlets.
        """
        first = self.uris.index(uri)
        poster = Poster(self, [uris.parse(one, uris.HTTP) for one in self.uris[first:] + self.uris[:first]])
        poster.open()
        return poster

    def open_writer(self, uri: str, hub: Any) -> "WebhookTargetWriter":
        """Return a WebhookTargetWriter, whose first URI is ``uri``. Raises URIError, OSError. May switch
        greenlets.
        """
        return WebhookTargetWriter(self.open(uri), hub)

    def connection(self, link_uri: uris.LinkURI) -> HTTPConnection:
        """Return a new HTTPConnection to this URI, not connected."""
        return HTTPConnection(
            lambda: self._connector.connect_http(link_uri, CONNECT_TIMEOUT_S, self.tls, self.account),
            self.timeout_s)


class Poster:
    """Posts messages to a web server. After a failed attempt it goes on to the next of its URIs.

    ``trouble``: why a message is being retried, as text, or None. ``on_trouble(text)`` is called before each
    retry. ``until_open()`` is called before each attempt, and may switch greenlets.
    """

    def __init__(self, webhook: Webhook, link_uris: list[uris.LinkURI]):
        self.trouble: str | None = None
        self.on_trouble: Callable[[str], None] | None = None
        self.until_open: Callable[[], None] | None = None
        self._webhook = webhook
        self._uris = link_uris
        self._closed = Event()
        self._tls_expected: dict[int, bool] = {}  # {number of a URI: answer of expects_tls()}
        self._use(0)

    def _use(self, number: int) -> None:
        self._number = number
        self._uri = self._uris[number]
        self._has_answered = False
        self._connection = self._webhook.connection(self._uri)
        self._fixed = _fixed_headers(self._webhook.name, self._uri)

    def open(self) -> None:
        """Connect to the web server. Raises OSError. May switch greenlets."""
        self._connection.open()

    def close(self) -> None:
        """Close the connection. A ``send`` in another greenlet then raises OSError."""
        self._closed.set()
        self._connection.close()

    def send(self, message: Any) -> None:
        """Post a message (a _Posted), with retries. Returns once the server has accepted the message. Raises
        RefusedByTarget, or OSError if the server is at fault. May switch greenlets, for minutes.
        """
        attempt = 0
        try:
            while True:
                attempt += 1
                failure = self._attempt(message)
                if failure is None:
                    return
                self._wait_or_give_up(failure, attempt)
        finally:
            self.trouble = None

    def _attempt(self, message: Any) -> "_Failure | None":
        """Post a message once. Returns None on success, or a _Failure if a retry may help. Raises
        RefusedByTarget, OSError. May switch greenlets.
        """
        if self.until_open is not None:
            self.until_open()
        self._check_open()
        target, headers = self._target(message), self._headers(message)
        try:
            answer = self._connection.post(target, headers, message.body)
        except NoRequest as error:
            raise RefusedByTarget(f"the message makes no request: {error}") from None
        except OSError as error:  # includes refused certificates, which are ValueErrors too
            self._check_open()
            return self._failure(error)
        if answer.asks_for_tls and self._expects_tls():
            return self._failure(SpeaksTLS())
        self._has_answered = True
        if 200 <= answer.status < 300:
            return None
        text = troubles.without_secrets_of(self._uri, f"{self._uri.place} answers {answer}")
        if answer.status < 500 and answer.status not in PASSING:
            redirects = ", and redirects are not followed" if answer.status < 400 else ""
            raise RefusedByTarget(text + redirects)
        return _Failure(
            text, answer.status not in PASSING, retry_after_s(answer.headers.get("retry-after", "")))

    def _failure(self, error: OSError) -> "_Failure":
        """Return a _Failure for the ``error`` of a request without an answer. Raises OSError if the only URI
        cannot be used. May switch greenlets.
        """
        if isinstance(error, ConnectionError) and self._connection.has_asked and self._expects_tls():
            error = SpeaksTLS()
        if isinstance(error, (HostRefused, SpeaksTLS)) and len(self._uris) == 1:
            raise error if isinstance(error, HostRefused) else OSError(self._told(error))
        is_doubt = self._connection.has_asked and not isinstance(error, SpeaksTLS)
        return _Failure(self._told(error), is_doubt)

    def _expects_tls(self) -> bool:
        """True if the server answers a ClientHello with TLS; tested once per URI. May switch greenlets."""
        # Called if a plain request got no answer or a 400, as from a port for TLS.
        if self._has_answered or self._uri.tls:
            return False
        if self._number not in self._tls_expected:
            self._tls_expected[self._number] = self._connection.expects_tls()
        return self._tls_expected[self._number]

    def _told(self, error: OSError) -> str:
        text = troubles.explained(error)
        return f"{self._uri.place}: {troubles.without_secrets_of(self._uri, text)}"

    def _wait_or_give_up(self, failure: "_Failure", attempt: int) -> None:
        """Go on to the next URI, after a pause if all URIs have failed. Raises RefusedByTarget or OSError if
        no retry is left. May switch greenlets.
        """
        rounds, rest = divmod(attempt, len(self._uris))
        wait_s = self._webhook.backoff.wait_s(rounds) if not rest else 0.0
        if wait_s is None:
            error = RefusedByTarget if failure.is_doubt else OSError
            raise error(f"{failure.text}, {attempt} times in a row")
        if len(self._uris) > 1:
            self._connection.close()
            self._use((self._number + 1) % len(self._uris))
        else:
            wait_s = max(wait_s, failure.retry_after_s)
        self.trouble = f"{failure.text}, once more in {wait_s:.0f} s"
        if self.on_trouble is not None:
            self.on_trouble(self.trouble)
        self._closed.wait(wait_s)
        self._check_open()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise OSError("the link was stopped")

    def _target(self, message: Any) -> str:
        """Return the request target (path and query) for a message. Raises RefusedByTarget."""
        if self._uri.path.startswith("/"):
            return self._uri.path
        path = _headers_of(message).get(PATH_HEADER, "/")
        if not isinstance(path, str):
            raise RefusedByTarget(f"the message's header {PATH_HEADER} is no text")
        path = quote(path if path.startswith("/") else f"/{path}", safe=_PATH_SAFE, errors="replace")
        if len(path) > PATH_OCTETS_MAX:
            raise RefusedByTarget(
                f"the message's header {PATH_HEADER} is longer than {PATH_OCTETS_MAX} bytes")
        return path + self._uri.path

    def _headers(self, message: Any) -> list[tuple[str, bytes]]:
        """Return (name, value) header fields for a message's request. Raises RefusedByTarget."""
        table = _headers_of(message)
        headers = [*self._fixed, ("Content-Length", b"%d" % len(message.body))]
        properties = message.properties
        for name, value in (
            ("Content-Type", properties.content_type), ("X-Message-Id", properties.message_id),
        ):
            field = field_value(value)
            if field:
                headers.append((name, field))
        if self._webhook.secret:
            digest = hmac.new(self._webhook.secret, message.body, "sha256").hexdigest()
            headers.append(("X-Signature", f"sha256={digest}".encode()))
        return headers + _publishers_headers(table)


class _Posted:
    """A message to post, decoded from the frames that a Relay wrote."""

    __slots__ = ("_raw_properties", "_properties", "body")

    def __init__(self, octets):
        view, at, parts = memoryview(octets), 0, []
        while at < len(view):
            end = at + 7 + int.from_bytes(view[at + 3:at + 7], "big")
            parts.append(view[at + 7:end])
            at = end + 1
        # parts: the publish, the header (class, weight, size, properties), the body
        self._raw_properties = bytes(parts[1][12:])
        self._properties = None
        self.body = bytes(parts[2]) if len(parts) == 3 else b"".join(parts[2:])

    @property
    def properties(self):
        """The message's decoded Properties. Raises Malformed."""
        if self._properties is None:
            self._properties = Properties.decode(self._raw_properties)
        return self._properties


class WebhookTargetWriter(TargetWriter):
    """Posts messages one by one through ``poster``, a Poster that it closes at its end.

    A message that the server accepts counts as confirmed. RefusedByTarget counts as a refusal; an OSError
    ends the session. A post runs in its own greenlet, all other work in callbacks. Each batch from the
    transfer is one message or a piece of one.
    """

    def __init__(self, poster, hub):
        super().__init__()
        self._poster = poster
        self._hub = hub
        self._pieces = []
        self._posting = None
        self._why = None
        poster.on_trouble = self._troubled
        poster.until_open = hub.gate.wait

    def start(self, session):
        self._session = session

    def can_take(self):
        """True unless a message is being posted."""
        return self._posting is None

    def send(self, item, message):
        """Collect ``item`` (a LinkBatch: one message or a piece of one). Post the message once complete."""
        item.first_number = self.confirms.following
        keep = self._session.reader.keep_octets
        if not item.is_sent:
            keep(-sum(map(len, self._pieces)))
            self._pieces.clear()
            return None
        self._pieces.append(item.octets)
        if not item.is_whole:
            keep(len(item.octets))
        if not item.count:
            item.octets = None
            return None
        octets = b"".join(self._pieces) if len(self._pieces) > 1 else item.octets
        self._pieces.clear()
        if not item.is_whole:
            # Kept whole, so that it keeps its place if it is sent again.
            item.octets, item.size, item.is_whole = octets, len(octets), True
        self.confirms.published(1)
        self._posting = self._hub.spawn(self._post, item.first_number, octets)
        self._posting.name = "webhook"
        return None

    def part(self):
        self.abort()

    def abort(self):
        """Close at once. A message that is being posted may still arrive, and will be delivered again."""
        super().abort()
        self._pieces.clear()
        self._poster.on_trouble = None
        self._poster.close()
        if self._posting is not None:
            self._posting.kill(block=False)
            self._posting = None

    def refusal(self, number):
        return self._why or TargetWriter.refusal(self, number)

    # private from here on

    def _post(self, number, octets):
        is_taken, failure = True, None
        try:
            self._poster.send(_Posted(octets))
        except RefusedByTarget as refused:
            is_taken, self._why = False, RefusedByTarget(*refused.args)  # a copy without a traceback
        except OSError as error:
            failure = error
        except Exception as error:  # a fault in handling this message counts towards the refusal limit
            LOG.exception("a message cannot be posted: a fault of ours")
            is_taken, self._why = False, RefusedByTarget(f"a fault of ours: {error}")
        self._posting = None
        if failure is not None:
            self._session.fail("destination", failure)
            failure = None  # breaks the cycle of error and frame
        else:
            self._session.target_turn(lambda: self._answered(number, is_taken))

    def _answered(self, number, is_taken):
        self.confirms.answered(number, not is_taken)
        self.answer_waiting()

    def _troubled(self, text):
        self._session.refused(0, text)


class _Failure(NamedTuple):
    """A failed attempt that may be retried. ``is_doubt``: the message may have caused it."""

    text: str
    is_doubt: bool = False
    retry_after_s: float = 0.0


def field_value(value: Any) -> bytes | None:
    """Return a header's value as bytes for HTTP; None if HTTP cannot carry it: tables, lists, text with line
    breaks, and more than VALUE_OCTETS_MAX bytes.
    """
    if isinstance(value, bool):
        value = "true" if value else "false"
    elif isinstance(value, datetime):
        value = value.isoformat()
    elif isinstance(value, (int, float, Decimal)):
        value = str(value)
    elif isinstance(value, (bytes, bytearray)):
        value = value.decode("utf-8", "surrogateescape")
    if not isinstance(value, str) or len(value) > VALUE_OCTETS_MAX:
        return None
    octets = value.strip(" \t").encode("utf-8", "surrogateescape")
    if len(octets) > VALUE_OCTETS_MAX or any(octet < 32 and octet != 9 or octet == 127 for octet in octets):
        return None
    return octets


def retry_after_s(text: str) -> float:
    """Return the seconds of a Retry-After (RFC 9110 §10.2.3), at most RETRY_AFTER_MOST_S; 0 if invalid."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:10]), RETRY_AFTER_MOST_S)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0.0
    return min(max(seconds, 0.0), RETRY_AFTER_MOST_S)


def _fixed_headers(name: str, link_uri: uris.LinkURI) -> list[tuple[str, bytes]]:
    host = f"[{link_uri.host.partition('%')[0]}]" if ":" in link_uri.host else link_uri.host
    if link_uri.port != uris.PORTS[link_uri.scheme]:
        host = f"{host}:{link_uri.port}"
    shown = field_value(name)
    headers = [
        ("Host", host.encode() if host.isascii() else host.encode("idna")), ("User-Agent", USER_AGENT),
        ("X-Shovel", quote(name[:256]).encode() if shown is None else shown),
    ]
    if link_uri.user is not None:
        login = f"{link_uri.user}:{link_uri.password or ''}".encode("utf-8", "surrogateescape")
        headers.append(("Authorization", b"Basic " + b64encode(login)))
    return headers


def _headers_of(message: Any) -> dict[str, Any]:
    """Return the message's headers table, {} if it has none. Raises RefusedByTarget."""
    try:
        return message.properties.headers or {}
    except Malformed as error:
        raise RefusedByTarget(f"the message's properties cannot be read: {error}") from None


def _publishers_headers(table: dict[str, Any]) -> list[tuple[str, bytes]]:
    """Return header fields for the publisher's headers, except what HTTP forbids or only this module sets."""
    fields: list[tuple[str, bytes]] = []
    room = HEADERS_OCTETS_MAX
    for name, value in table.items():
        field_name = f"X-{name}"
        field = field_value(value)
        if field is None or not _TOKEN.fullmatch(field_name):
            continue
        if _NOT_PUBLISHERS.fullmatch(re.sub("[_.]", "-", field_name)):
            continue
        room -= len(field_name) + len(field) + 4
        if room < 0 or len(fields) == HEADERS_MAX:
            break
        fields.append((field_name, field))
    return fields
