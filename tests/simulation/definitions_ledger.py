"""Definitions ledger: what an HTTP client was answered about its queues, exchanges, bindings, policies,
users, their permissions and limits, and what messages its inbox took.

A thing is a key: its kind and names. Its values are those that it may have: one where the last change was
answered, and both where one was not, for the broker may carry that out at any time; such a thing is changed
no more. None is that it is not there.
"""
from base64 import b64decode
from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.ledger import Ledger


class Kind(NamedTuple):
    """How a thing is put and seen. ``path(*names)``: where it is put, with ``body(value, *names)``. ``list``:
    of the definitions, whose entries ``read`` takes apart: (names, value). ``fields(*names)``: what an entry
    has beside the body. ``value(number)``: another one for each number.
    """

    list: str
    path: Callable
    body: Callable
    fields: Callable
    read: Callable
    value: Callable = int


def _named(name):
    return {"vhost": "/", "name": name}


def _queue(value, _):
    return {"durable": True, "auto_delete": False, "arguments": {"x-max-length": 1000 + value}}


def _exchange(value, _):
    return {"type": value, "durable": True, "auto_delete": False, "internal": False, "arguments": {}}


def _policy(value, _):
    return {"pattern": "^http", "definition": {"max-length": 1000}, "apply-to": "queues", "priority": value}


def _user(value, _):
    """A tag tells which password it has."""
    return {"password": f"v{value}", "tags": f"management,v{value}"}


def _right(value, _):
    """Odd values may read."""
    return {"configure": f"^{value}$", "write": "", "read": ".*" if value % 2 else ""}


KINDS = {
    "queue": Kind(
        "queues", "/api/queues/%2F/{}".format, _queue, _named,
        lambda entry: ((entry["name"],), entry["arguments"].get("x-max-length", 0) - 1000)),
    "exchange": Kind(
        "exchanges", "/api/exchanges/%2F/{}".format, _exchange, _named,
        lambda entry: ((entry["name"],), entry["type"]),
        lambda number: ("direct", "topic", "fanout")[number % 3]),
    "binding": Kind(
        "bindings", "/api/bindings/%2F/e/{}/q/{}".format,
        lambda value, source, queue, key: {"routing_key": key, "arguments": {}},
        lambda source, queue, key: {
            "vhost": "/", "source": source, "destination": queue, "destination_type": "queue"},
        lambda entry: ((entry["source"], entry["destination"], entry["routing_key"]), True),
        lambda number: True),
    "policy": Kind(
        "policies", "/api/policies/%2F/{}".format, _policy, _named,
        lambda entry: ((entry["name"],), entry["priority"])),
    "user": Kind(
        "users", "/api/users/{}".format, _user, lambda name: {"name": name},
        lambda entry: ((entry["name"],), int(next(tag for tag in entry["tags"] if tag[1:].isdigit())[1:]))),
    "permission": Kind(
        "permissions", "/api/permissions/%2F/{}".format, _right, lambda user: {"vhost": "/", "user": user},
        lambda entry: ((entry["user"],), int(entry["configure"][1:-1]))),
    "limit": Kind(
        "users", "/api/user-limits/{}/max-channels".format, lambda value, _: {"value": value},
        lambda name: {"name": name},
        lambda entry: ((entry["name"],), entry["limits"].get("max-channels"))),
}


def parents_of(key):
    """The things without which this one cannot be."""
    if key[0] == "binding":
        return ("exchange", key[1]), ("queue", key[2])
    return (("user", key[1]),) if key[0] in ("permission", "limit") else ()


class DefinitionsLedger(Ledger):
    """Of an HTTP client: all names that begin with ``name`` are its own. ``is_checked``: an export has been
    compared since the broker came back; ``is_empty``: so has its inbox been found.
    """

    def __init__(self, world, name):
        super().__init__(world, name)
        self.is_checked = self.is_empty = False
        self.purged = set()  # numbers
        self._values = {}  # key -> the values that it may have
        self._under_way = {}
        self._given_up = set()

    # what the client asks

    def ask(self, changes):
        """It asks for these: key -> value."""
        self._under_way = changes
        for key, value in changes.items():
            self._values.setdefault(key, {None}).add(value)

    def answer(self, changes):
        """They are there, or gone."""
        self._under_way = {}
        for key, value in changes.items():
            if key in self._given_up:
                self._values[key].add(value)
            else:
                self._values[key] = {value}
            self.exercised["deleted" if value is None else "defined"] += 1

    def is_unanswered(self):
        """Nobody knows whether they are."""
        self._given_up.update(self._under_way)
        self._under_way = {}

    def is_known(self, key):
        """Whether it has one value, and all that it needs has, too."""
        return key not in self._given_up and all(map(self.is_known, parents_of(key)))

    def is_there(self, key):
        """Whether it is there for certain."""
        return self.is_known(key) and self.value(key) is not None

    def hang_on(self, key):
        """The things that are gone with this one."""
        return [other for other in self._values if key in parents_of(other)]

    def known(self):
        """The things of which the value is known."""
        return [key for key in self._values if self.is_known(key)]

    def there(self):
        """The things that are there for certain."""
        return [key for key in self._values if self.is_there(key)]

    def value(self, key):
        """The value of a thing that is known."""
        value, = self._values.get(key, (None,))
        return value

    # what it is shown

    def check(self, definitions):
        """Compare an export."""
        self.is_checked = True
        shown = {}
        for name, kind in KINDS.items():
            for entry in definitions[kind.list]:
                if any(str(entry.get(end, "")).startswith(self.name) for end in ("name", "user", "source")):
                    names, value = kind.read(entry)
                    shown[(name, *names)] = value
        for key in sorted({*shown, *self._values}):
            allowed = self._values.get(key, {None})
            if shown.get(key) not in allowed:
                self.find(f"{' '.join(key)} is {shown.get(key)} and was answered {sorted(map(str, allowed))}")

    def purge(self):
        """Of the inbox nothing is left: docs/promises.md, "what the management API answered, too"."""
        self.exercised["purged"] += len(self.accepted - self.came)
        self.purged |= self.accepted
        self.accepted.clear()

    def take(self, messages):
        """A get from the inbox has shown these."""
        self.is_empty = not messages
        for message in messages:
            number = self.number_of(b64decode(message["payload"]))
            if number in self.purged:
                self.find(f"{number} came, and was purged before")
            self.came.add(number)

    def process_ended(self):
        self.is_checked = self.is_empty = False

    def is_complete(self):
        return self.is_checked and super().is_complete()

    def check_complete(self):
        super().check_complete()
        if not self.is_checked:
            self.find("its definitions were not shown")
