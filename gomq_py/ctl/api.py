"""Sends requests to a broker's management API over TCP, TLS or a unix socket. Uses only the standard library.

A failure is an APIError, whose text is one line that has the address but never the password.
"""
import base64
import http.client
import json
import os
import pwd
import socket
import ssl
import struct
from urllib.parse import quote, unquote, urlsplit

from gomq_py.config.control import owner_by_path

DEFAULT_URI = "http://127.0.0.1:15672"
TIMEOUT_S = 60
EXIT_REFUSED, EXIT_UNREACHABLE = 1, 2


class APIError(Exception):
    """The broker cannot be reached, or refuses the request. ``status``: of HTTP, 0 without an answer."""

    def __init__(self, text, status=0):
        super().__init__(text)
        self.status = status

    @property
    def exit_code(self):
        """The command's exit code: 1 if the broker refused, 2 without an answer or with status 503."""
        return EXIT_UNREACHABLE if self.status in (0, 503) else EXIT_REFUSED


class API:
    """The management API at ``uri`` (http, https) or at a unix socket, with the login of one user."""

    def __init__(
        self, uri=DEFAULT_URI, user="guest", password="guest", unix_path="", verify=True, timeout_s=TIMEOUT_S,
        authorities=None, certificate=None,
    ):
        """Keep the address and login; connects at each request. Raises APIError for a wrong ``uri``.

        ``authorities``: a PEM file of the certificate authorities to trust instead of the system's.
        ``certificate``: (PEM file of the client's certificate, PEM file of its key or None), or None.
        """
        try:
            parts = urlsplit(uri if "//" in uri else f"http://{uri}")
            port = parts.port
        except ValueError:
            raise APIError(f"{redacted(uri)} is not a URI such as {DEFAULT_URI}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise APIError(f"{redacted(uri)} is not a URI such as {DEFAULT_URI}")
        self.secure = parts.scheme == "https"
        self.host, self.port = parts.hostname, port or (15671 if self.secure else 15672)
        self.prefix = parts.path.rstrip("/").removesuffix("/api")
        self.user = unquote(parts.username) if parts.username else user
        self.password = unquote(parts.password) if parts.password else password
        self.unix_path = unix_path
        self.has_answered = False
        self.verify = verify
        self.authorities, self.certificate = authorities, certificate
        self._timeout_s = timeout_s

    @property
    def address(self):
        """The address that requests go to, for messages to the operator."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.unix_path or f"{'https' if self.secure else 'http'}://{host}:{self.port}"

    def wait_at_most(self, timeout_s):
        """Lower the time limit, in seconds, for connecting and for each read or write of a request."""
        self._timeout_s = min(self._timeout_s, timeout_s)

    def get(self, *path, **query):
        """GET /api/PATH and return the decoded JSON. Encodes ``path``, the parts of PATH. Raises APIError."""
        return self.request("GET", path, query=query)

    def put(self, *path, body=None, headers=None):
        return self.request("PUT", path, {} if body is None else body, headers=headers)

    def post(self, *path, body=None, query=None):
        return self.request("POST", path, {} if body is None else body, query)

    def delete(self, *path, headers=None, **query):
        return self.request("DELETE", path, query=query, headers=headers)

    def request(self, verb, path, body=None, query=None, headers=None):
        """Send one request to /api. Return the decoded JSON, None for an empty answer. Raises APIError."""
        if "" in path:
            # users/ is the list of all, connections/username/ the connection of that name
            raise APIError(f"a name is empty: {'/'.join(path)}")
        target = f"{self.prefix}/api/" + "/".join(
            quote(part, safe="", errors="surrogateescape") for part in path)
        if query:
            target += "?" + "&".join(
                (key.replace("_", "-") if key.startswith("if_") else key)
                + "=" + quote(str(value), safe="", errors="surrogateescape")
                for key, value in query.items())
        status, octets = self._send(
            verb, target, None if body is None else json.dumps(body).encode(), headers or {})
        if status >= 300:
            if status in (404, 405) and self._lacks(path):
                raise APIError(
                    f"{status}: the broker at {self.address} is no gomq-py, and cannot do this", status)
            raise APIError(_reason(status, octets, path), status)
        try:
            return json.loads(octets) if octets.strip() else None
        except (ValueError, RecursionError):
            raise APIError(f"what answers at {self.address} is no management API: {octets[:40]!r}") from None

    def _lacks(self, path):
        """Return True if the broker is no gomq-py and lacks this route: the 404 is not about a queue then."""
        if path[0] != "queues" or path[-1] not in _ONLY_HERE:
            return False
        try:
            return self.get("overview").get("product_name") != "gomq-py"
        except (APIError, AttributeError):
            return False

    def text(self, path):
        """GET a path outside /api, such as /metrics, and return the text. Raises APIError."""
        status, octets = self._send("GET", self.prefix + path, None, {})
        if status >= 300:
            raise APIError(_reason(status, octets), status)
        return octets.decode("utf-8", "replace")

    def _send(self, verb, target, body, headers):
        connection = self._connection()
        credentials = base64.b64encode(
            f"{self.user}:{self.password}".encode("utf-8", "surrogateescape")).decode()
        headers = {"Authorization": f"Basic {credentials}", "X-Requested-With": "gomq-py-ctl",
                   **{name: _header(value) for name, value in headers.items()}}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(verb, target, body, headers)
            answer = connection.getresponse()
            octets = answer.read()
            self.has_answered = True
            return answer.status, octets
        except ssl.SSLError as error:
            raise APIError(f"no TLS connection to {self.address}: {error.reason or error}") from None
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            if isinstance(error, http.client.BadStatusLine) and str(error).startswith("AMQP"):
                raise APIError(
                    f"{self.address} speaks AMQP: the management API has a port of its own, usually 15672"
                ) from None
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise APIError(f"no broker answers at {self.address}: {reason}") from None
        finally:
            connection.close()

    def _connection(self):
        if self.unix_path:
            return _UnixConnection(self.unix_path, self._timeout_s)
        if not self.secure:
            return http.client.HTTPConnection(self.host, self.port, timeout=self._timeout_s)
        try:
            context = ssl.create_default_context(cafile=self.authorities)
        except OSError as error:
            raise APIError(
                f"cannot use the authorities in {self.authorities}: {error.strerror or error}") from None
        if self.certificate is not None:
            certificate, key = self.certificate
            try:
                context.load_cert_chain(certificate, key, _no_passphrase)
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
                raise APIError(f"cannot use the certificate {self.certificate[0]}: {reason}") from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(self.host, self.port, timeout=self._timeout_s, context=context)


def _no_passphrase():
    """Raise ValueError, instead of a prompt for the key's passphrase."""
    raise ValueError("its key has a passphrase, which is not asked for: use a key without one")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout_s):
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        self._check_peer()

    def _check_peer(self):
        """Raise APIError unless root, the current user or the owner of the path listens at the socket."""
        # We send passwords.
        process, peer, _ = struct.unpack(
            "3i", self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if peer not in (0, os.geteuid(), owner_by_path(self._path)):
            self.close()
            raise APIError(
                f"user {_user_name(peer)} (process {process}) listens at {self._path}, which others than "
                "that user may have put there: nothing was sent to it. If it is your broker, run this as "
                "that user, or set its control_unix_path to a folder of its own")


def _user_name(number):
    try:
        return repr(pwd.getpwuid(number).pw_name)
    except KeyError:
        return str(number)


def redacted(uri):
    """Return a URI without its user and password."""
    scheme, separator, rest = uri.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _header(value):
    """Return a text as the value of an HTTP header: bytes, with spaces in place of line breaks."""
    return " ".join(value.split()).encode("utf-8", "surrogateescape")


_ONLY_HERE = ("messages", "move", "copy", "replay")
_SAYS_NOTHING = ("Not Found", "Object Not Found")
# First part of a path -> its entity.
_KINDS = {
    "users": "user", "user-limits": "user", "vhosts": "virtual host", "vhost-limits": "virtual host",
    "connections": "connection", "global-parameters": "global parameter",
}
_KINDS_OF_VHOST = {
    "queues": "queue", "exchanges": "exchange", "policies": "policy", "operator-policies": "operator policy",
    "permissions": "permissions of user",
    "topic-permissions": "topic permissions of user", "bindings": "bindings", "consumers": "consumers",
}
_COMPONENTS = {"federation-upstream": "federation upstream"}


def _missing(path):
    """Return the error text of a 404, which names what is missing: the API says only "not found"."""
    first, *rest = path
    if first == "federation-links" and len(rest) > 2:
        return f"404: no federation link '{rest[2]}' in virtual host '{rest[1]}'"
    if first in _KINDS_OF_VHOST and len(rest) > 1:
        return f"404: no {_KINDS_OF_VHOST[first]} '{rest[1]}' in virtual host '{rest[0]}'"
    if first == "parameters" and len(rest) == 3:
        return f"404: no {_COMPONENTS.get(rest[0], rest[0])} '{rest[2]}' in virtual host '{rest[1]}'"
    if first in _KINDS_OF_VHOST and rest:
        return f"404: no virtual host '{rest[0]}'"
    if first in _KINDS and rest:
        return f"404: no {_KINDS[first]} '{rest[0]}'"
    return f"404: not found: {' '.join(path)}"


def _reason(status, octets, path=()):
    try:
        answer = json.loads(octets)
        text = answer.get("reason") or answer.get("error")
    except (ValueError, AttributeError, RecursionError):
        text = ""
    if status == 404 and path and text in _SAYS_NOTHING:
        return _missing(path)
    if text == "vhost_or_user_not_found" and path:
        return f"{status}: no user '{path[-1]}' or no virtual host '{path[-2]}'"
    if isinstance(text, str):
        # RabbitMQ's answers have paragraphs
        text = (
            ": ".join(" ".join(line.split()) for line in text.splitlines() if line) if "\n" in text else text
        )
    if status == 401:
        return f"not authorised: {text or 'wrong user or password'}"
    return f"{status}: {text or http.client.responses.get(status, 'unknown status')}"
