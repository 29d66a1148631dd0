"""Governor: an operator over HTTP who changes what the clients of a vhost work with: users and their rights,
policies, limits, queues, their connections, and the vhost itself. Mostly it grants; where it is calm it
restores everything, so that what was promised can be judged. Some operators then take a right from each user
that needs it, for a moment: in the storm few users have all the rights that a consumer takes.
"""
from urllib.parse import quote

from tests.simulation.governed_clients import GovernedClient
from tests.simulation.http_clients import HTTPClient
from tests.simulation.vhost_ledger import (
    CONNECTIONS, DEFINITIONS, LETTERS, MAX_QUEUES, OPERATOR, OPERATOR_DEFINITIONS, OPERATOR_POLICIES,
    POLICIES, QUEUES, USERS, VHOST, VHostLedger)

SHARE = 0.15  # of seeds
# Of things that are not as clients need them the next one is put right, with this probability.
MENDS_SHARE = 0.5
# Of operators that withdraw what is restored; and for how long.
WITHDRAWS_SHARE = 0.4
WITHDRAWN_S = (0.3, 1.0)
VERBS = ("configure", "write", "read")
# What keeps nobody from anything.
HARMLESS = {"policy": "no effect", "operator": "no effect", "limit": 100, "user limit": 100}
ALL = frozenset(VERBS)


class Governor(HTTPClient):
    """``ledger``: a VHostLedger. ``governed``: the clients of its vhost."""

    def __init__(self, world, network, name, ledger, governed):
        super().__init__(world, network, name, ledger)
        self._governed = governed
        self._passwords = 0
        self._withdrawals = world.random(f"{name} withdraws")
        self._mends_at_s = 0.0

    def _be_rude(self):
        """What it asks it hears the answer of, unless the broker ends."""

    def _answered(self, status, body):
        self.ledger.status = status
        super()._answered(status, body)
        self.ledger.status = None

    def act(self):
        if self._asked is not None:
            return
        missing = self._missing()
        if self.is_calm:
            self.ledger.is_restored = not missing
            if not missing:
                self._withdraw()
            elif self.world.now_s >= self._mends_at_s:
                self.ledger.is_withdrawn = False
                self._put(*missing[0])
        elif missing and self.random.random() < MENDS_SHARE:
            self._put(*missing[0])
        elif self.ledger.is_there(("right", OPERATOR)):
            self.random.choices(list(ACTIONS), ACTIONS.values())[0](self)

    def _missing(self):
        """(key, value) of each thing that is not as clients need it, or that nobody knows."""
        things, missing = self.ledger.things, []
        if things[VHOST].now != {True}:
            return [(VHOST, True)]
        if things["right", OPERATOR].now != {ALL}:
            return [(("right", OPERATOR), ALL)]
        for user in USERS:
            if len(things["user", user].now) != 1 or None in things["user", user].now:
                missing.append((("user", user), self._password()))
            elif not self.is_calm and None in things["right", user].now or (
                    self.is_calm and things["right", user].now != {ALL}):
                missing.append((("right", user), ALL))
        for key, history in things.items():
            if key[0] in HARMLESS and (
                    len(history.now) > 1 or self.is_calm and history.now != {None}) and (
                    key[0] != "user limit" or things["user", key[1]].now != {None}):
                value = HARMLESS[key[0]]
                if key[0] in ("policy", "operator"):
                    value = _priority(key, 0), value
                missing.append((key, value if self.ledger.is_doubted(key) else None))
        return missing

    def _password(self):
        self._passwords += 1
        return self._passwords

    # requests

    def _put(self, key, value):
        """Ask for a thing to be so; None and False: not to be."""
        gone = [key, *self.ledger.hang_on(key)] if value in (None, False) else []
        changes = dict.fromkeys(gone) | {key: value}
        kind, *names = key
        place = self._place(kind, *names)
        if gone:
            self.ask(f"DELETE {place}", changes=changes, ok=(204, 404))
        else:
            self.ask(f"PUT {place}", _body(kind, value), changes=changes, ok=(201, 204))

    def _place(self, kind, name=""):
        vhost = self.ledger.name
        return {
            "vhost": f"/api/vhosts/{vhost}", "user": f"/api/users/{name}",
            "right": f"/api/permissions/{vhost}/{name}", "policy": f"/api/policies/{vhost}/{name}",
            "operator": f"/api/operator-policies/{vhost}/{name}",
            "limit": f"/api/vhost-limits/{vhost}/{name}",
            "user limit": f"/api/user-limits/{name}/max-connections",
        }[kind]

    # what it does

    def _any_user(self):
        """One that is there for certain, or None."""
        there = [user for user in USERS if self.ledger.is_there(("user", user))]
        return self.random.choice(there) if there else None

    def set_policy(self):
        """Or change it, or take it away."""
        key = self.random.choice(POLICIES + OPERATOR_POLICIES)
        names = DEFINITIONS if key[0] == "policy" else OPERATOR_DEFINITIONS
        priority = _priority(key, self.random.randrange(3)) if key in POLICIES else 0
        value = (priority, self.random.choice(list(names)))
        self._put(key, None if self.random.random() < 0.3 else value)

    def set_right(self):
        """Grant, or withdraw some of it."""
        user = self._any_user()
        if user is not None:
            value = frozenset(verb for verb in VERBS if self.random.random() < 0.6)
            self._put(("right", user), None if self.random.random() < 0.1 else value)

    def _withdraw(self):
        """The next right that is in use."""
        ledger = self.ledger
        used = {(client.user, verb) for client in self._governed for verb in client.used_rights()}
        right = next((right for right in ledger.to_withdraw if right in used), None)
        if right is not None:
            ledger.to_withdraw.remove(right)
            ledger.is_restored, ledger.is_withdrawn = False, True
            self._mends_at_s = self.world.now_s + self._withdrawals.uniform(*WITHDRAWN_S)
            self._put(("right", right[0]), ALL - {right[1]})

    def set_password(self):
        """Another one."""
        user = self._any_user()
        if user is not None:
            self._put(("user", user), self._password())

    def delete_user(self):
        """With its rights, and its connections."""
        user = self._any_user()
        if user is not None:
            self._put(("user", user), None)

    def set_limit(self):
        """Of the vhost, or of a user."""
        user = self._any_user()
        key = self.random.choice((CONNECTIONS, CONNECTIONS, MAX_QUEUES, ("user limit", user)))
        if key[1] is not None:
            value = self.random.choice((2, 3, 4) if key == MAX_QUEUES else (1, 1, 2, 3))
            self._put(key, None if self.random.random() < 0.4 else value)

    def delete_vhost(self):
        """With all that is in it."""
        self._put(VHOST, False)

    def import_(self):
        """Other policies and rights, at once."""
        user = self._any_user()
        if user is not None:
            key, value = POLICIES[0], (2 * self.random.randrange(3), self.random.choice(list(DEFINITIONS)))
            right, verbs = ("right", user), self.random.choice((ALL, ALL - {"write"}, ALL - {"read"}))
            vhost = self.ledger.name
            self.ask("POST /api/definitions", {
                "policies": [{"vhost": vhost, "name": key[1], **_body("policy", value)}],
                "permissions": [{"vhost": vhost, "user": user, **_body("right", verbs)}],
            }, changes={key: value, right: verbs}, ok=(200, 204))

    def _queue(self):
        name = self.random.choice(QUEUES)
        return name, f"/api/queues/{self.ledger.name}/{name}"

    def purge(self):
        """What is ready goes."""
        name, place = self._queue()
        self.ask(f"DELETE {place}/contents", changes={("purge", name): True}, ok=(204, 404))

    def delete_queue(self):
        """With what clients have in hand."""
        name, place = self._queue()
        self.ask(f"DELETE {place}", changes={("delete", name): True}, ok=(204, 404))

    def move(self):
        """From the first to the second."""
        self.ask(f"POST /api/queues/{self.ledger.name}/{QUEUES[0]}/move", {"destination": QUEUES[1]},
                 changes={("move", QUEUES[0]): True}, ok=(200, 404))

    def close_connection(self):
        """Of some client."""
        there = [presence for presence in self.ledger.presences if presence.counts()]
        if there:
            presence = self.random.choice(there)
            name = f"127.0.0.1:{presence.end.address[1]} -> 127.0.0.1:5672"
            self.ask(f"DELETE /api/connections/{quote(name)}", changes={("connection",): presence},
                     ok=(204, 404))


def _priority(key, level):
    """No two policies have the same: which one is in force then is nobody's promise."""
    return 2 * level + (POLICIES.index(key) if key in POLICIES else 0)


def _body(kind, value):
    if kind == "user":
        return {"password": f"v{value}", "tags": ""}
    if kind == "right":
        return {verb: ".*" if verb in value else "" for verb in VERBS}
    if kind in ("policy", "operator"):
        priority, name = value
        definition = (DEFINITIONS if kind == "policy" else OPERATOR_DEFINITIONS)[name]
        return {"pattern": "^g", "definition": definition, "apply-to": "queues", "priority": priority}
    return {"value": value} if kind in ("limit", "user limit") else {}


def governed_clients(world, network, left):
    """(clients, ledgers) of a vhost with an operator, in a few seeds. ``left``: of parts, those that are not
    left out.
    """
    clients, ledgers = [], left([VHostLedger(world, "v0")], world.random("governed").random() < SHARE)
    for ledger in ledgers:
        random = world.random(f"clients of {ledger.name}")
        roles = [(QUEUES[0], None), (None, QUEUES[0]), (None, LETTERS)]
        roles += random.choice(([], [(None, QUEUES[1])], [(QUEUES[1], None), (None, QUEUES[1])]))
        governed = [
            GovernedClient(
                world, network, f"{ledger.name}-client-{number}", ledger, random.choice(USERS), *role)
            for number, role in enumerate(roles)]
        is_drawn = world.random(f"withdrawals of {ledger.name}").random() < WITHDRAWS_SHARE
        if left([f"{ledger.name}-withdrawals"], is_drawn):
            ledger.to_withdraw = sorted({
                (client.user, "read" if consumes else "write")
                for client, (_, consumes) in zip(governed, roles, strict=True) if consumes != LETTERS})
        clients += [*governed, Governor(world, network, f"{ledger.name}-operator", ledger, governed)]
    return clients, ledgers


ACTIONS = {
    Governor.set_policy: 8, Governor.set_right: 6, Governor.set_password: 1, Governor.delete_user: 1,
    Governor.set_limit: 3, Governor.delete_vhost: 0.5, Governor.import_: 1, Governor.purge: 2,
    Governor.delete_queue: 1, Governor.move: 1, Governor.close_connection: 2,
}
