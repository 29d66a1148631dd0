"""The default transport: reads streams over the management API. It needs only the standard library.

The broker serves only flushed messages, so data that was read never changes. If a connection breaks or an
answer is cut short, the transport reconnects and continues after the received bytes. After ``retrySeconds``
without a byte it raises Unreachable. It does not repeat a request that the broker refuses.
"""
import base64
import http.client
import json
import ssl
import time
from urllib.parse import quote, urlencode, urlsplit

from gomq_py.spark.errors import NoStream, OptionError, Refused, Unreachable
from gomq_py.spark.options import CREDENTIALS_ADVICE
from gomq_py.spark.transport import Segment, SegmentGone, SegmentTransport, Shape

# Pause between two attempts; the broker may be starting.
PAUSE_S = 0.2
# Reasons of a 401 that mean a failed login; missing permissions are answered by 401, too.
LOGIN_REFUSALS = ("Login failed", "User can only log in via localhost", "Unauthorized", "UNAUTHORIZED")
LONGEST_REASON = 300
QUEUES_AT_ONCE = 500


class HttpTransport(SegmentTransport):
    """Reads the streams of one vhost over one HTTP connection. A pickled copy opens its own connection."""

    def __init__(self, options, credentials):
        self.url = options["url"]
        self.vhost = options["vhost"]
        self._timeout_s = options["timeoutSeconds"]
        self._retry_s = options["retrySeconds"]
        self._ca_file = options["caFile"]
        self._credentials = credentials
        self._connection = None

    def __getstate__(self):
        return {**self.__dict__, "_connection": None}

    def close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # queries

    def names(self):
        """Return the names of the vhost's streams that this user may read. Raises Refused, Unreachable."""
        return [
            stream["name"]
            for stream in self._json(
                f"/api/streams/{_part(self.vhost)}", f"the streams of vhost '{self.vhost}'")["streams"]
        ]

    def describe(self, name):
        """Return the Shape (offsets and segments) of a stream. Raises NoStream, Refused, Unreachable."""
        given = self._json(f"{self._path(name)}/segments", self._called(name))
        try:
            parts = tuple(
                Segment(
                    part["number"], part["first_offset"], part["next_offset"], part["bytes"],
                    part["first_timestamp_ms"], part["last_timestamp_ms"],
                )
                for part in given["segments"])
            return Shape(given["epoch"], given["first_offset"], given["synced_offset"], parts)
        except (KeyError, TypeError):
            raise Unreachable(f"{self.url} does not answer as a gomq-py does") from None

    def offset_for_timestamp(self, name, timestamp_ms):
        """Return the offset of the first message at or after a Unix time in ms.

        Returns the stream's next offset if there is no such message. Raises GomqError.
        """
        return self._json(
            f"{self._path(name)}/offset?{urlencode({'timestamp': timestamp_ms})}", self._called(name)
        )["offset"]

    def arguments(self, kind, name):
        """Return the arguments of a queue or exchange as a dict. ``kind``: "queues" or "exchanges". Raises
        NoStream, Refused, Unreachable.
        """
        what = f"{kind[:-1]} '{name}' in vhost '{self.vhost}'"
        return self._json(f"/api/{kind}/{_part(self.vhost)}/{_part(name)}", what)["arguments"]

    def queues(self):
        """Yield a dict per queue of the vhost, with the keys of the management API. The user needs the tag
        monitoring. Raises Refused, Unreachable.
        """
        page = pages = 1
        while page <= pages:
            query = urlencode({"page": page, "page_size": QUEUES_AT_ONCE})
            given = self._json(
                f"/api/queues/{_part(self.vhost)}?{query}", f"the queues of vhost '{self.vhost}'")
            yield from given["items"]
            page, pages = page + 1, given["page_count"]

    def octets_into(self, room, name, epoch, number, at, count):
        deadline = time.monotonic() + self._retry_s
        end = at + count
        while at < end:
            query = urlencode({"offset": at, "length": end - at, "epoch": epoch})
            before = at
            try:
                response = self._request(f"{self._path(name)}/segments/{number}?{query}")
                if response.status == 404:
                    raise SegmentGone(_reason(response))
                self._raise_refusal(response, self._called(name))
                while at < end:
                    came = response.readinto(room()[:end - at])
                    if not came:
                        break
                    at += came
                    yield came
                if at < end:
                    self.close()  # the rest of a short answer would look like the next
            except (OSError, http.client.HTTPException) as error:
                self.close()
                failure = str(error) or type(error).__name__
            except GeneratorExit:
                if at < end:
                    self.close()  # the caller stopped in the middle of the answer
                raise
            else:
                failure = f"answers end early, {end - at} bytes before their time"
            if at > before:
                deadline = time.monotonic() + self._retry_s
            elif at < end:
                self._pause(
                    deadline, f"{failure} (reading {self._called(name)}, segment {number}, position {at})")

    # requests

    def _path(self, name):
        return f"/api/streams/{_part(self.vhost)}/{_part(name)}"

    def _called(self, name):
        return f"stream '{name}' in vhost '{self.vhost}'"

    def _json(self, target, what):
        deadline = time.monotonic() + self._retry_s
        while True:
            try:
                response = self._request(target)
                body = response.read()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                self._pause(deadline, str(error) or type(error).__name__)
                continue
            if response.status == 404:
                raise NoStream(f"there is no {what} at {self.url}")
            try:
                self._raise_refusal(response, what, body)
            except http.client.HTTPException as error:
                self._pause(deadline, str(error))
                continue
            try:
                return json.loads(body)
            except ValueError:
                raise Unreachable(f"{self.url} does not answer as a gomq-py does") from None

    def _request(self, target):
        if self._connection is None:
            self._connection = self._connect()
        path = urlsplit(self.url).path + target
        token = self._credentials.token
        login = f"{self._credentials.user}:{self._credentials.password}".encode()
        header = f"Bearer {token}" if token else "Basic " + base64.b64encode(login).decode()
        try:
            self._connection.request("GET", path, headers={"Authorization": header})
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise Unreachable(
                f"the certificate of {self.url} is not trusted ({error.verify_message}): "
                "name its authority with option caFile") from None
        return self._connection.getresponse()

    def _connect(self):
        parts = urlsplit(self.url)
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port or 15672, timeout=self._timeout_s)
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except (OSError, ssl.SSLError) as error:
            raise OptionError(f"option caFile: {self._ca_file} holds no certificate: {error}") from None
        return http.client.HTTPSConnection(
            parts.hostname, parts.port or 15671, timeout=self._timeout_s, context=context)

    def _raise_refusal(self, response, what, body=None):
        """Do nothing for a status below 300. For 401 and 403 raise Refused. For overload and errors of the
        server raise HTTPException, after which the caller tries again. Otherwise raise Unreachable. ``what``:
        the requested object, for the error's text.
        """
        status = response.status
        if status < 300:
            return
        reason = _reason(response, body)
        self.close()
        user = "the token" if self._credentials.token else f"user '{self._credentials.user}'"
        if status == 401 and reason in LOGIN_REFUSALS:
            raise Refused(f"{self.url} does not let {user} in ({reason}): {CREDENTIALS_ADVICE}")
        if status in (401, 403):
            raise Refused(
                f"{user} may not read {what} at {self.url} ({reason}): give it read permission there")
        if status in (429, 500, 502, 503, 504):
            raise http.client.HTTPException(f"{status} {reason}")
        raise Unreachable(f"{self.url} answers {status} when asked for {what}: {reason}")

    def _pause(self, deadline, failure):
        """Wait before the next attempt. Raises Unreachable if the deadline has passed."""
        if time.monotonic() >= deadline:
            raise Unreachable(
                f"{self.url} cannot be reached, tried for {self._retry_s:g} s (option retrySeconds): "
                f"{failure}. Is the broker running, and its management API there (option url)?")
        time.sleep(PAUSE_S)


def _part(text):
    return quote(text, safe="")


def _reason(response, body=None):
    """Return the reason in the broker's answer or, if it has none, the text of the HTTP status."""
    try:
        given = json.loads(response.read() if body is None else body)
        text = given.get("reason") or given.get("error")
    except (ValueError, AttributeError, OSError, http.client.HTTPException):
        text = None
    return str(text)[:LONGEST_REASON] if text else response.reason or str(response.status)
