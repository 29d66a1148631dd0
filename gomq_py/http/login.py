"""Login and access: who asks, and whether this route is for them. RabbitMQ's tags, checked per route by ``@access``.

Passwords and tokens come by HTTP Basic, tokens as Bearer too; they never leave this module. Failed logins are counted per address, so that guessing
is slow for whoever guesses and nobody else.
"""
import functools
import time
from collections import OrderedDict

from flask import current_app, g, request

from gomq_py.auth.errors import LoginRefused, LoopbackOnly
from gomq_py.auth.permissions import Permission
from gomq_py.auth.users import User
from gomq_py.http.errors import LoginFailed, NotAuthorised, Throttled
from gomq_py.observability.log import logger

LOG = logger("http")
# What a tag reaches besides itself: RabbitMQ's table of management tags.
IMPLIED = {
    "administrator": frozenset({"administrator", "monitoring", "policymaker", "management"}),
    "monitoring": frozenset({"monitoring", "management"}),
    "policymaker": frozenset({"policymaker", "management"}),
    "management": frozenset({"management"}),
}
MANAGEMENT, MONITORING, POLICYMAKER, ADMINISTRATOR = "management", "monitoring", "policymaker", "administrator"

# After so many failures from one address within the window, the address waits: a person mistypes thrice, a guesser thousands of times.
FAILURES_ALLOWED = 10
FAILURE_WINDOW_S = 60
# Addresses remembered; the oldest goes first, so that a flood of addresses costs no more than this.
ADDRESSES_REMEMBERED = 4096


class FailedLogins:
    """Failures per address within a window, and how many logins there were at all. ``now_s`` is any clock that only moves forward."""

    def __init__(self, now_s=time.monotonic):
        self._now_s = now_s
        self._failures = OrderedDict()
        self.succeeded_count = self.failed_count = 0

    def check(self, address):
        """Raises Throttled while this address has failed too often."""
        entry = self._failures.get(address)
        if entry is None:
            return
        count, since = entry
        if self._now_s() - since > FAILURE_WINDOW_S:
            del self._failures[address]
        elif count >= FAILURES_ALLOWED:
            raise Throttled(f"too many failed logins from {address}: wait {FAILURE_WINDOW_S} seconds")

    def failed(self, address):
        """One more failure."""
        self.failed_count += 1
        count, since = self._failures.pop(address, (0, self._now_s()))
        self._failures[address] = (count + 1, since)
        if len(self._failures) > ADDRESSES_REMEMBERED:
            self._failures.popitem(last=False)

    def succeeded(self, address):
        """Forget the failures of an address."""
        self.succeeded_count += 1
        self._failures.pop(address, None)


class LocalOperator(User):
    """Who speaks over the control socket: may do everything, and is in no list."""

    __slots__ = ()

    def __init__(self):
        User.__init__(self, "gomq-py-ctl", "", "", (ADMINISTRATOR,), None)

    def permission(self, vhost):
        """All rights, everywhere."""
        return Permission(self.name, vhost, ".*", ".*", ".*")


def reach(user):
    """Every tag that the user's tags reach."""
    reached = set()
    for tag in user.tags:
        reached |= IMPLIED.get(tag, frozenset({tag}))
    return reached


def authenticate():
    """The user of this request. Raises NotAuthorised, LoginFailed or Throttled. May switch."""
    operator = current_app.extensions.get("gomq.operator")
    if operator is not None:
        return operator
    failures = current_app.extensions["gomq.failures"]
    address = request.remote_addr or ""
    failures.check(address)
    given = request.authorization
    try:
        user = _login(current_app.extensions["gomq.node"].broker.logins, given, address)
    except LoopbackOnly:
        raise NotAuthorised("User can only log in via localhost") from None
    except LoginRefused as error:
        failures.failed(address)
        LOG.warning("login from %s refused: %s", address, error)
        raise LoginFailed("Login failed") from None
    failures.succeeded(address)
    return user


def _login(logins, given, address):
    """The user of an Authorization header: Basic, where the password may be a token, or Bearer. Raises LoginRefused, LoginFailed. May switch."""
    if given is not None and given.type == "basic" and given.username is not None:
        return logins.login(given.username, given.password or "", address)
    if given is not None and given.type == "bearer" and given.token:
        return logins.login_with_token(given.token)
    raise LoginFailed("Login failed")


# RabbitMQ's words, by the tag that is missing.
REFUSALS = {
    MANAGEMENT: "Not management user", POLICYMAKER: "User not authorised to access object", MONITORING: "Not monitor user",
    ADMINISTRATOR: "Not administrator user",
}


def access(tag):
    """Only for users whose tags reach ``tag``. Sets ``g.user`` and ``g.tags``."""

    def decorate(view):
        @functools.wraps(view)
        def guarded(*args, **kwargs):
            g.user = authenticate()
            g.tags = reach(g.user)
            require_tag(tag)
            return view(*args, **kwargs)

        setattr(guarded, "required_tag", tag)  # for the description
        return guarded

    return decorate


def require_tag(tag):
    """The tags of this request's user reach ``tag``. Raises NotAuthorised."""
    if tag not in g.tags:
        raise NotAuthorised(REFUSALS[tag if MANAGEMENT in g.tags else MANAGEMENT])


def sees_vhost(name):
    """Whether this request's user may look into the vhost: any permission in it, or the monitoring tag."""
    return MONITORING in g.tags or g.user.permission(name) is not None


def permission(vhost_name):
    """The user's rights in the vhost. Raises NotAuthorised when there are none, whatever the tags: they do not let anybody publish or declare."""
    rights = g.user.permission(vhost_name)
    if rights is None:
        raise NotAuthorised(f"User has no access to vhost '{vhost_name}'")
    return rights
