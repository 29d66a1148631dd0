"""HTTP clients: an operator at the management door, who defines and deletes, grants and withdraws, logs in as
others, publishes and gets; and sees in an export of the definitions whether all is as it was answered.

One request at a time, on a connection that is kept, sometimes cut in the middle of a request. Its names are
its own. The framing of answers is read by hand: conformance is checked elsewhere.
"""
import json
from base64 import b64encode

from tests.simulation.client import Client
from tests.simulation.definitions_ledger import KINDS
from tests.simulation.network import HTTP_PORT

CUT_SHARE = 0.03
# The shares of clients that send some bodies in two parts, and of these; and how long it takes them.
SLOW_SHARE = 0.3
PARTS_SHARE = 0.3
PAUSES_S = (0.1, 1.0, 3.0)
# The shares of clients that may_purge() and often fill their inbox and purge it, and of their acts that do.
PURGERS_SHARE = 0.7
PURGES_SHARE = 0.3
MOST_DEFINED = 30
# What other answers say: a disk that fails or is full, whose traceback in the log is judged by itself, and an
# orderly stop in the middle of a request.
EXPECTED = (
    "No space left", "Input/output error", "could not be flushed", "is closed after a fault of its store",
    "is closed or a stream", "see the broker's log", "see its log", "Internal Server Error")


class HTTPClient(Client):
    """``ledger``: a DefinitionsLedger. Its inbox is declared first, and never deleted."""

    def __init__(self, world, network, name, ledger):
        super().__init__(world, network, name, HTTP_PORT)
        self.ledger = ledger
        self._inbox = ("queue", f"{name}-inbox")
        self._names = 0
        self._asked = None  # (what, ok, then, changes) of the request under way
        self._is_taking = False  # it takes messages out of the inbox
        self._buffer = bytearray()
        self._slow = world.random(f"{name} slow")
        self._is_slow = self._slow.random() < SLOW_SHARE
        self._purges = world.random(f"{name} purges")
        self._is_purger = False

    def may_purge(self):
        """More often than other clients, for a fault that shows best behind a purge."""
        self._is_purger = self._purges.random() < PURGERS_SHARE

    def begin(self):
        self._buffer.clear()
        self.is_answered(True)
        self.opened()

    def gone(self):
        if self._asked is not None:
            self._unanswered()

    def awaits(self):
        """As "DELETE queues" or "DELETE queues contents"."""
        verb, path = self._asked[0].split()[:2] if self._asked is not None else ("GET", "")
        if verb == "GET":
            return ()
        parts = path.split("/")
        return [" ".join([verb, parts[2], *parts[5:6] * (parts[2] == "queues")])]

    # requests

    def ask(self, what, body=None, then=None, ok=(200,), changes=None, user="guest", password="guest"):
        """Send a request. Where the answer is one of ``ok``, the ``changes`` are true, and ``then(its JSON)``
        is called.
        """
        if changes is not None:
            self.ledger.ask(changes)
        octets = b"" if body is None else json.dumps(body).encode()
        login = b64encode(f"{user}:{password}".encode()).decode()
        request = (
            f"{what} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(octets)}\r\n\r\n").encode() + octets
        self.say(f"asks {what} {octets.decode()}")
        self._asked = what, ok, then, changes
        self.waits()
        if self.is_calm or self.random.random() >= CUT_SHARE:
            self._send_request(request, len(octets))
        else:
            self.send(request[:self.random.randrange(len(request))])
            self.leave("hangs up in the middle of it")

    def _send_request(self, request, body_octets):
        """At once, or some of its body later."""
        end = len(request)
        if body_octets and self._is_slow and not self.is_calm and self._slow.random() < PARTS_SHARE:
            end -= 1 + self._slow.randrange(body_octets)
            self.say(f"sends {end} of {len(request)}")
            self.world.after(self._slow.choice(PAUSES_S), self._send_rest, self._end, request[end:])
        self.send(request[:end])

    def _send_rest(self, end, octets):
        if self.is_connected_by(end):
            self.send(octets)

    def take(self, octets):
        self._buffer += octets
        while self._end is not None and (answer := _answer_in(self._buffer)) is not None:
            if self._asked is None:
                self.ledger.find(f"an answer that nobody asked for: {answer}")
                return
            self._answered(*answer)

    def _answered(self, status, body):
        what, ok, then, changes = self._asked
        self.is_answered(True)
        self.say(f"is answered {status}")
        told = json.loads(body) if status in ok and body else {}
        if status in ok and not (changes and told.get("refused")):  # as an import says
            self._asked, self._is_taking = None, False
            if changes is not None:
                self.ledger.answer(changes)
            if then is not None:
                then(told)
            return
        self._unanswered()
        text = body.decode()
        if not any(expected in text for expected in EXPECTED):
            self.ledger.find(f"{what} was answered {status} {text}")

    def _unanswered(self):
        """The broker may do it at any time, or never."""
        self._asked = None
        self.ledger.is_unanswered()
        if self._is_taking:
            self._is_taking = False
            self.ledger.accepted.clear()
            self._inbox = self._new("queue")

    # what it does

    def act(self):
        ledger = self.ledger
        if self._asked is not None:
            return
        if self.is_calm:
            if ledger.missing() or self._may_show_more():
                self.get()
            elif not ledger.is_checked:
                self.export()
        elif self._is_purger and self._may_show_more():
            self.get()
        elif self._is_purger and ledger.is_there(self._inbox) and self._purges.random() < PURGES_SHARE:
            (self.purge if ledger.accepted else self.publish)()
        elif ledger.is_there(self._inbox):
            self.random.choices(list(ACTIONS), ACTIONS.values())[0](self)
        elif ledger.is_known(self._inbox):
            self._put(self._inbox, 0)
        else:  # nobody knows whether it is there
            self._inbox = self._new("queue")

    def _may_show_more(self):
        """Whether something was purged, and the inbox was not found empty since the broker came back."""
        return self.ledger.purged and not self.ledger.is_empty and self.ledger.is_there(self._inbox)

    def _new(self, kind):
        self._names += 1
        return kind, f"{self.name}-{kind[0]}{self._names}"

    def _any(self, *kinds):
        """A thing of these kinds that is there, or None."""
        there = [key for key in self.ledger.there() if key[0] in kinds and key != self._inbox]
        return self.random.choice(there) if there else None

    def _put(self, key, value):
        """Ask for a thing, which is there or is not."""
        name, *names = key
        verb = "POST" if name == "binding" else "PUT"
        is_new = verb == "POST" or name != "limit" and not self.ledger.is_there(key)
        self.ask(f"{verb} {KINDS[name].path(*names)}", KINDS[name].body(value, *names), changes={key: value},
                 ok=(201,) if is_new else (204,))

    def _part(self):
        """(key, value) of something new of things that are there, or None."""
        kind = self.random.choice(list(KINDS))
        if kind == "binding":
            exchange, queue = self._any("exchange"), self._any("queue")
            if exchange is None or queue is None:
                return None
            key = kind, exchange[1], queue[1], self.random.choice("ab")
        elif kind in ("permission", "limit"):
            user = self._any("user")
            if user is None:
                return None
            key = kind, user[1]
        else:
            key = self._new(kind)
        return (key, self._value(key)) if self.ledger.is_known(key) else None

    def _value(self, key):
        self._names += 1
        return KINDS[key[0]].value(self._names)

    def define(self):
        """Something new."""
        part = self._part()
        if part is not None and len(self.ledger.there()) < MOST_DEFINED:
            self._put(*part)
        else:
            self.delete()

    def redefine(self):
        """Another value of a thing that is there."""
        key = self._any("policy", "user", "permission", "limit")
        if key is not None:
            self._put(key, self._value(key))

    def delete(self):
        """A thing and all that hangs on it."""
        key = self._any(*KINDS)
        if key is not None:
            gone = self.ledger.hang_on(key)
            where = KINDS[key[0]].path(*key[1:])
            if key[0] == "binding":
                where += "/" + key[3]
            self.ask(f"DELETE {where}", changes=dict.fromkeys([key, *gone]), ok=(204,))

    def import_(self):
        """Several new things at once."""
        keys = [self._new(kind) for kind in ("queue", "exchange", "policy", "user")]
        keys += [("binding", keys[1][1], keys[0][1], "a"), ("permission", keys[3][1])]
        changes = {key: self._value(key) for key in keys}
        body = {}
        for key, value in changes.items():
            kind, names = KINDS[key[0]], key[1:]
            body.setdefault(kind.list, []).append({**kind.fields(*names), **kind.body(value, *names)})
        self.ask("POST /api/definitions", body, changes=changes)  # tags without a meaning are told of

    def export(self):
        """See whether all is as it was answered."""
        self.ask("GET /api/definitions", then=self.ledger.check)

    def log_in(self):
        """As somebody who may or may not, with the password of now or an earlier one."""
        users = [key for key in self.ledger.known() if key[0] == "user"]
        if not users:
            return
        key = self.random.choice(users)
        value, is_right = self.ledger.value(key), self.random.random() < 0.8
        tried = value if is_right and value is not None else self.random.randrange(self._names + 1)
        may = value is not None and tried == value
        self.ledger.exercised["logins"] += 1
        self.ask("GET /api/whoami", ok=(200,) if may else (401,), user=key[1], password=f"v{tried}")

    def read_as(self):
        """Look into the inbox as somebody whose right to read is known."""
        key = self._any("user")
        right = ("permission", key[1]) if key is not None else None
        if right is None or not self.ledger.is_known(right):
            return
        may = self.ledger.value(right)
        self.ledger.exercised["rights"] += 1
        self.ask(f"POST {KINDS['queue'].path(self._inbox[1])}/get", _getting(1, "ack_requeue_true"),
                 ok=(200,) if may is not None and may % 2 else (401, 403),
                 user=key[1], password=f"v{self.ledger.value(key)}")

    def publish(self):
        """To the inbox."""
        number, body = self.ledger.publish()
        self.ask("POST /api/exchanges/%2F/amq.default/publish", {
            "routing_key": self._inbox[1], "properties": {"delivery_mode": 2},
            "payload": b64encode(body).decode(), "payload_encoding": "base64",
        }, then=lambda told: told["routed"] and self.ledger.accept(number))  # it may be closed by its disk

    def get(self):
        """What is in the inbox."""
        self._is_taking = True
        self.ask(f"POST {KINDS['queue'].path(self._inbox[1])}/get",
                 _getting(self.random.choice((1, 10, 100)), "ack_requeue_false"),
                 then=self.ledger.take)

    def purge(self):
        """The inbox."""
        self._is_taking = True
        self.ask(f"DELETE {KINDS['queue'].path(self._inbox[1])}/contents", ok=(204,),
                 then=lambda _: self.ledger.purge())

    def look(self):
        """At the health of the broker, which a closed queue and an alarm make 503."""
        self.ask(f"GET /api/health/checks/{self.random.choice(('alarms', 'virtual-hosts'))}", ok=(200, 503))


def _getting(count, mode):
    return {"count": count, "ackmode": mode, "encoding": "base64"}


def _answer_in(buffer):
    """(status, body) of a whole answer, which is taken out of the buffer; None where it is not whole."""
    head, blank, rest = bytes(buffer).partition(b"\r\n\r\n")
    if not blank:
        return None
    first, *lines = head.decode("latin-1").lower().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines)
    if fields.get("transfer-encoding") == "chunked":
        body, size = b"", -1
        while size:
            line, end, rest = rest.partition(b"\r\n")
            size = int(line, 16) if end else 0
            if not end or len(rest) < size + 2:
                return None
            body, rest = body + rest[:size], rest[size + 2:]
    else:
        size = int(fields.get("content-length", 0))
        if len(rest) < size:
            return None
        body, rest = rest[:size], rest[size:]
    buffer[:] = rest
    return int(first.split()[1]), body


ACTIONS = {
    HTTPClient.define: 8, HTTPClient.redefine: 4, HTTPClient.delete: 4, HTTPClient.import_: 1,
    HTTPClient.export: 1, HTTPClient.log_in: 3, HTTPClient.read_as: 3, HTTPClient.publish: 4,
    HTTPClient.get: 2, HTTPClient.purge: 1, HTTPClient.look: 1,
}
