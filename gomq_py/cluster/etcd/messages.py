"""Messages: bodies of requests to etcd's JSON gateway, and checks of its answers. No I/O.

Answers are in the JSON form of proto3: 64-bit numbers are text, bytes are base64, and fields that are 0,
false or empty are left out. Any other form raises AnswerError; then the outcome of the request is unknown.
"""
import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

from gomq_py.cluster.core import records
from gomq_py.cluster.core.records import Kept, View
from gomq_py.cluster.core.transactions import Compare, Delete, Outcome, Put, Transaction

JSONObject = dict[str, Any]

RANGE, TRANSACT = "/v3/kv/range", "/v3/kv/txn"
GRANT, KEEP_ALIVE, REVOKE = "/v3/lease/grant", "/v3/lease/keepalive", "/v3/lease/revoke"
WATCH, AUTHENTICATE = "/v3/watch", "/v3/auth/authenticate"

# Compare.target -> field of the compared revision.
COMPARED = {"create": "create_revision", "mod": "mod_revision"}
MOST_INTEGER = (1 << 63) - 1
_DIGITS = re.compile(r"[0-9]{1,19}")
# A token is sent in a header: printable ASCII without spaces, at most as long as a large JWT.
_TOKEN = re.compile(r"[\x21-\x7e]{1,8192}")

# gRPC's codes of requests that etcd refuses before it does anything. RESOURCE_EXHAUSTED is not among them: a
# transaction that takes the last room is carried out, and answered with "database space exceeded".
REFUSING = {3: "INVALID_ARGUMENT", 5: "NOT_FOUND", 7: "PERMISSION_DENIED", 16: "UNAUTHENTICATED"}
UNAVAILABLE = 14
NO_LEASE = "etcdserver: requested lease not found"
# Answer to a request with HAS_LEADER of a server that is cut off from the others: it has done nothing.
NO_LEADER = "etcdserver: no leader"
NO_LOGINS = "etcdserver: authentication is not enabled"
WRONG_LOGIN = "etcdserver: authentication failed, invalid user ID or password"
LOGIN_NEEDED = "etcdserver: user name is empty"
NO_RIGHTS = "etcdserver: permission denied"
# Answers to a token that has ended, or that is missing since logins were switched on.
STALE_TOKEN = frozenset((
    "etcdserver: invalid auth token", LOGIN_NEEDED, "etcdserver: revision of auth store is old",
))
TEXT_SHOWN = 100


class AnswerError(Exception):
    """An answer of etcd is malformed. The text says how."""


class Refused(Exception):
    """A server has answered with an error. ``code``: a gRPC status code."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code
        self.text = text

    @property
    def is_certain(self) -> bool:
        """Whether the request was certainly not carried out, and would fail at another server, too."""
        return self.code in REFUSING

    @property
    def lacks_leader(self) -> bool:
        """Whether the server has refused because it sees no leader of etcd. Another server may see one."""
        return self.code == UNAVAILABLE and self.text == NO_LEADER

    @property
    def is_stale_token(self) -> bool:
        """Whether the request may be repeated after another login."""
        return self.is_certain and self.text in STALE_TOKEN


# requests


def range_request(prefix: bytes) -> JSONObject:
    """Return the body of a linearizable read of all keys below ``prefix``. ``prefix`` ends with a slash."""
    return {"key": _text(prefix), "range_end": _text(_end_of(prefix))}


def transaction_request(prefix: bytes, transaction: Transaction) -> JSONObject:
    """Return the body of a transaction that always ends with a read of all keys below ``prefix``."""
    view = {"request_range": range_request(prefix)}
    return {
        "compare": [_compare(prefix, compare) for compare in transaction.compares],
        "success": [*(_operation(prefix, operation) for operation in transaction.operations), view],
        "failure": [view],
    }


def watch_request(prefix: bytes) -> JSONObject:
    """Return the body of a watch of all changes below ``prefix`` from now on."""
    return {"create_request": range_request(prefix)}


def _compare(prefix: bytes, compare: Compare) -> JSONObject:
    return {
        "key": _text(prefix + compare.key.encode()), "target": compare.target.upper(), "result": "EQUAL",
        COMPARED[compare.target]: str(compare.revision),
    }


def _operation(prefix: bytes, operation: Put | Delete) -> JSONObject:
    key = _text(prefix + operation.key.encode())
    if isinstance(operation, Put):
        return {"request_put": {"key": key, "value": _text(operation.value), "lease": str(operation.lease)}}
    return {"request_delete_range": {"key": key}}


def _text(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def _end_of(prefix: bytes) -> bytes:
    return prefix[:-1] + bytes((prefix[-1] + 1,))


# answers


def parse(octets: bytes) -> JSONObject:
    """Parse an answer, which must be a JSON object. Raises AnswerError."""
    try:
        parsed = json.loads(octets)
    except (ValueError, RecursionError):
        raise AnswerError(f"the answer is no JSON: {_shown(octets)}") from None
    return _object(parsed, "the answer")


def refused_by(answer: JSONObject) -> Refused:
    """Return the error in an answer, or in a line of a stream. Raises AnswerError."""
    error = answer.get("error")
    inner = error if isinstance(error, dict) else answer  # an error of a stream is an object
    code = inner.get("code", inner.get("grpc_code"))
    text = inner.get("message", inner.get("error"))
    if not isinstance(code, int) or not isinstance(text, str):
        raise AnswerError(f"the answer is no error of etcd: {_shown(answer)}")
    return Refused(code, text[:TEXT_SHOWN])


def view_of(answer: JSONObject, prefix: bytes) -> View:
    """Return the View in the answer to a ``range_request``. Raises AnswerError."""
    return _view(answer, _revision(answer), prefix)


def size_of(answer: JSONObject) -> tuple[int, str]:
    """Return (total bytes of all values as base64, key of the largest value).

    ``answer``: the answer to a ``range_request``, checked by ``view_of``.
    """
    sizes = [(len(entry.get("value", "")), entry["key"]) for entry in answer.get("kvs", ())]
    _, largest = max(sizes, default=(0, ""))
    return sum(octets for octets, _ in sizes), base64.b64decode(largest).decode(errors="replace")


def view_from(revision: int, kept: Mapping[str, Kept]) -> View:
    """Return a View of the keys in ``kept``: {key without the prefix: Kept}."""
    begin = records.NODES
    nodes = {key.removeprefix(begin): there for key, there in kept.items() if key.startswith(begin)}
    return View(
        revision, kept.get(records.CLUSTER), kept.get(records.LEADER), kept.get(records.IN_SYNC), nodes,
        kept.get(records.SECRET))


def outcome_of(answer: JSONObject, prefix: bytes) -> Outcome:
    """Return the Outcome in the answer to a ``transaction_request``. Raises AnswerError."""
    is_done = answer.get("succeeded", False)
    if not isinstance(is_done, bool):
        raise AnswerError(f"`succeeded` is {_shown(is_done)}")
    responses = _objects(answer.get("responses"), "`responses`")
    if not responses:
        raise AnswerError("`responses` is empty")
    found = _object(responses[-1].get("response_range"), "`response_range`")
    return Outcome(is_done, _view(found, _revision(answer), prefix))


def lease_of(answer: JSONObject) -> int:
    """Return the id of a granted lease. Raises AnswerError."""
    lease = _integer(answer, "ID")
    if not lease or not _integer(answer, "TTL"):
        raise AnswerError("the answer holds no lease")
    return lease


def is_kept_alive(answer: JSONObject, lease: int) -> bool:
    """Return whether the answer to a keepalive says that the lease is alive. Raises AnswerError."""
    # etcd leaves the TTL of an unknown lease out.
    result = _result(answer)
    if _integer(result, "ID") != lease:
        raise AnswerError("the answer is about another lease")
    return _integer(result, "TTL") > 0


def check_header(answer: JSONObject) -> None:
    _revision(answer)


def token_of(answer: JSONObject) -> str:
    """Return the token in the answer to a login. Raises AnswerError."""
    token = answer.get("token")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise AnswerError("the answer to a login holds no token")  # never shown
    return token


def cancel_reason(line: JSONObject) -> str | None:
    """Return the reason if this line of a watch ends the watch, else None. Raises AnswerError, Refused."""
    if "error" in line:
        raise refused_by(line)
    result = _result(line)
    if not result.get("canceled"):
        return None
    return str(result.get("cancel_reason") or "no reason given")[:TEXT_SHOWN]


def _result(line: JSONObject) -> JSONObject:
    """Return the message in a line of a stream. Raises AnswerError."""
    return _object(line.get("result"), "`result`")


def _view(found: JSONObject, revision: int, prefix: bytes) -> View:
    if found.get("more"):
        raise AnswerError("the answer holds a part of the keys")
    entries = _objects(found.get("kvs", []), "`kvs`")
    return view_from(revision, dict(_kept(entry, revision, prefix) for entry in entries))


def _kept(entry: JSONObject, revision: int, prefix: bytes) -> tuple[str, Kept]:
    key = _octets(entry, "key")
    created, modified = _integer(entry, "create_revision"), _integer(entry, "mod_revision")
    if not key.startswith(prefix):
        raise AnswerError("the answer holds a key that was not asked for")
    if not 0 < created <= modified <= revision:
        raise AnswerError(f"revisions {created}, {modified} of a key at revision {revision}")
    # a key that is not UTF-8 is none of the cluster's, and is ignored later
    name = key[len(prefix):].decode(errors="replace")
    return name, Kept(_octets(entry, "value"), created, modified, _integer(entry, "lease"))


def _revision(answer: JSONObject) -> int:
    revision = _integer(_object(answer.get("header"), "`header`"), "revision")
    if not revision:
        raise AnswerError("the answer is without a revision")
    return revision


def _integer(fields: JSONObject, name: str) -> int:
    value = fields.get(name, 0)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_INTEGER:
        raise AnswerError(f"`{name}` is {_shown(value)}")
    return value


def _octets(fields: JSONObject, name: str) -> bytes:
    value = fields.get(name, "")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise AnswerError(f"`{name}` is no base64") from None


def _object(value: Any, name: str) -> JSONObject:
    if not isinstance(value, dict):
        raise AnswerError(f"{name} is no JSON object: {_shown(value)}")
    return value


def _objects(value: Any, name: str) -> list[JSONObject]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise AnswerError(f"{name} is no list of JSON objects: {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return repr(value)[:TEXT_SHOWN]
