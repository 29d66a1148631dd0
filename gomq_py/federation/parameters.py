"""Upstreams and sets of upstreams: the values of the two components of parameters, as RabbitMQ checks them,
and what a policy makes of them.

Values only. A set is a list of upstreams by name, each with what it says otherwise than its upstream; the set
`all` need not be defined. What a policy names and nobody has defined is left out, until somebody does.
"""
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from gomq_py.broker.features.arguments import CLASSIC, QUORUM
from gomq_py.broker.features.expiry import EXPIRES_KEY, MESSAGE_TTL_KEY
from gomq_py.broker.features.federation import ALL, PATTERN, UPSTREAM, UPSTREAM_SET
from gomq_py.broker.names import NAME_OCTETS_MAX, fits_short_string
from gomq_py.broker.policies.parameters import SHOWN_CHARACTERS, WAITS, Component, ParameterError
from gomq_py.broker.policies.policy import POLICY
from gomq_py.broker.values import MAX_INTEGER, MAX_TIMER_MS, is_integer
from gomq_py.links.ends import NO_ACK, ON_CONFIRM, ON_PUBLISH
from gomq_py.links.uris import parse
from gomq_py.patterns import Pattern

DEFAULT_CLEANUP, NEVER = "default", "never"
# Of a basic.qos, whose count has 16 bits.
MOST_PREFETCH = 65535
# As of shovels.
URIS_MAX = 100
# Keys that there are not, in a refusal.
UNKNOWN_SHOWN = 10
# Argument of queues that are there for a link of another broker.
PURPOSE = "x-internal-purpose"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Where one link of an exchange or queue takes messages from: the definition as it counts for that one.

    ``exchange`` and ``queue``: what they are called there. ``expires_ms`` and ``message_ttl_ms`` of the queue
    that is made for an exchange there, None: no limit. Equal ones need no other link.

    ``chosen_by``: (what, who set it) of the policy and the set that lead to it (broker.policies.parameters).
    ``fault``: why there can be no link, as text, or None. ``waiting``: (component, name) of what was set
    while nothing acted on it, where that is the reason.
    """

    name: str
    uris: tuple[str, ...]
    exchange: str
    queue: str
    consumer_tag: str
    prefetch_count: int | None = None  # that of the kind of link
    reconnect_delay_s: float = 1
    ack_mode: str = ON_CONFIRM
    refusal_limit: int = 0  # 0: for ever
    max_hops: int = 1
    expires_ms: int | None = None
    message_ttl_ms: int | None = None
    trust_user_id: bool = False
    bind_nowait: bool = False
    queue_type: str | None = None
    cleans_up: bool = True
    chosen_by: tuple[tuple[str, str | None], ...] = ()
    ignored: tuple[str, ...] = field(default=(), compare=False)  # keys that were given
    fault: str | None = None
    waiting: tuple[tuple[str, str], ...] = ()

    def is_at_the_place_of(self, other):
        """Whether what this one makes upstream may be what another one has made there: the broker of one of
        its addresses and the exchange are the same.
        """
        return self.exchange == other.exchange and bool(_places(self.uris) & _places(other.uris))


def _places(uris):
    return {(parts.hostname, parts.port, parts.path) for parts in map(urlsplit, uris)}


# checking what somebody wants to set

def _shown(value):
    """A value in a refusal, which the log may repeat: nothing in which a URI's password may be."""
    if isinstance(value, (list, dict)) and value:
        return "an object" if isinstance(value, dict) else "a list"
    return "***" if isinstance(value, str) and "://" in value else f"{value!r:.100}"


def _number(least, most=MAX_INTEGER, whole=True):
    def check(key, value):
        is_number = is_integer(value) or not whole and isinstance(value, float)
        if not is_number:
            raise ParameterError(f"{key} should be a number, actually was {_shown(value)}")
        if not least <= value <= most:
            raise ParameterError(
                f"{key} should be a number from {least} to {most}, actually was {_shown(value)}")
    return check


def _text(key, value):
    if not isinstance(value, str):
        raise ParameterError(f"{key} should be a string, actually was {_shown(value)}")


def _name(key, value):
    _text(key, value)
    if not fits_short_string(value):
        raise ParameterError(f"{key} should have at most {NAME_OCTETS_MAX} octets")


def _boolean(key, value):
    if not isinstance(value, bool):
        raise ParameterError(f"{key} should be a boolean, actually was {_shown(value)}")


def _one_of(*words):
    def check(key, value):
        if value not in words:
            raise ParameterError(f"{key} should be one of {', '.join(words)}, actually was {_shown(value)}")
    return check


# What an upstream may say, and each entry of a set otherwise.
_SHARED = {
    "exchange": _name, "queue": _name, "consumer-tag": _name, "prefetch-count": _number(0, MOST_PREFETCH),
    "reconnect-delay": _number(0, MAX_TIMER_MS // 1000, whole=False), "max-hops": _number(0),
    EXPIRES_KEY: _number(1, MAX_TIMER_MS), MESSAGE_TTL_KEY: _number(0, MAX_TIMER_MS),
    "trust-user-id": _boolean,
    "refusal-limit": _number(0), "ack-mode": _one_of(NO_ACK, ON_PUBLISH, ON_CONFIRM), "ha-policy": _text,
    "bind-nowait": _boolean,
    "resource-cleanup-mode": _one_of(DEFAULT_CLEANUP, NEVER),
    "channel-use-mode": _one_of("multiple", "single"), "queue-type": _one_of(CLASSIC, QUORUM),
}
# Taken, kept and shown; there is nothing here that they could change.
WITHOUT_EFFECT = ("ha-policy", "channel-use-mode")


def _check_keys(name, value, checks, needed):
    if not isinstance(value, dict):
        raise ParameterError(f"{name} should be an object, actually was {_shown(value)}")
    if needed not in value:
        raise ParameterError(f'Key "{needed}" not found in {name}')
    unknown = sorted(key[:SHOWN_CHARACTERS] for key in value if key not in checks)[:UNKNOWN_SHOWN]
    if unknown:
        raise ParameterError(f"Unrecognised terms [{', '.join(map(repr, unknown))}] in {name}")
    for key, item in value.items():
        checks[key](key, item)


def check_upstream(name, value, check_uri):
    """Refuse a value that is no upstream. ``check_uri(uri)`` raises ValueError. Raises ParameterError."""
    def uri(key, item):
        if isinstance(item, list) and len(item) > URIS_MAX:
            raise ParameterError(f"{key} should be a list of at most {URIS_MAX}, actually was of {len(item)}")
        for each in item if isinstance(item, list) and item else [item]:
            _text(key, each)
            try:
                check_uri(each)
            except ValueError as error:
                raise ParameterError(f"{key}: {error}") from None

    _check_keys(name, value, {"uri": uri, **_SHARED}, "uri")


def check_set(name, value):
    """Refuse a value that is no set of upstreams. Raises ParameterError."""
    if not isinstance(value, list):
        raise ParameterError(f"{name} should be a list, actually was {_shown(value)}")
    for entry in value:
        _check_keys(name, entry, {"upstream": _text, **_SHARED}, "upstream")


class UpstreamComponent(Component):
    """Parameters of either component. ``on_change(vhost)`` is called after a change."""

    def __init__(self, component, check, on_change, check_setter=None):
        """``check(name, value)`` as check_upstream() and check_set(); ``check_setter`` as
        Component.check_set_by(), of a value that is sound.
        """
        self._component = component
        self._check = check
        self._on_change = on_change
        self._check_setter = check_setter

    def check(self, vhost, name, value):
        self._check(name, value)

    def check_set_by(self, vhost, name, value, by):
        _name("its name", name)
        self._check(name, value)
        if self._check_setter is not None:
            self._check_setter(vhost, name, value, by)

    def fault_of(self, vhost, name, value):
        try:
            check_stored(self._component, name, value)
        except ParameterError as error:
            return str(error)
        return None

    def changed(self, vhost, name, value):
        self._on_change(vhost)

    def cleared(self, vhost, name):
        self._on_change(vhost)


# what a policy makes of them

def upstreams_for(vhost, entity):
    """The Upstreams that an exchange or queue takes messages from, as the policy in force says.

    Of one that makes no link the ``fault`` says why: an earlier run has stored what is not sound, or it, or
    the policy, was set while nothing here acted on it (Parameters.waits).
    """
    policy, definition = entity.in_force.policy, entity.in_force.definition
    if policy is None:
        return []
    waiting = _waiting(vhost, POLICY, policy.name)
    chosen_by = _chosen_by(vhost, POLICY, policy.name)
    if UPSTREAM in definition:
        entries = [{"upstream": definition[UPSTREAM]}]
    elif UPSTREAM_SET in definition:
        name = definition[UPSTREAM_SET]
        waiting += _waiting(vhost, UPSTREAM_SET, name)
        if (UPSTREAM_SET, name) in vhost.parameters:
            chosen_by += _chosen_by(vhost, UPSTREAM_SET, name)
        fault = fault_of(vhost, UPSTREAM_SET, name)
        if fault is not None:
            return [_without_link(name, entity, fault)]
        entries = _set(vhost, name)
    elif PATTERN in definition:
        entries = _matching(vhost, Pattern(definition[PATTERN]))
    else:
        return []
    found = [
        _upstream_of(vhost, entry, entity, waiting, chosen_by) for entry in entries
        if (UPSTREAM, entry["upstream"]) in vhost.parameters
    ]
    return list(dict.fromkeys(found))


def check_stored(component, name, value):
    """Refuse what an earlier run has stored and nothing can be made of. Raises ParameterError."""
    if component == UPSTREAM:
        check_upstream(name, value, parse)
    else:
        check_set(name, value)


def fault_of(vhost, component, name):
    """Why the stored value of this name makes nothing, as text; None: it does, or is not there."""
    if (component, name) in vhost.parameters:
        try:
            check_stored(component, name, vhost.parameters[component, name])
        except ParameterError as error:
            return str(error)
    return None


def _chosen_by(vhost, component, name):
    return ((f"{component} '{name}'", vhost.set_by.get((component, name))),)


def _waiting(vhost, component, name):
    return ((component, name),) if (component, name) in vhost.waiting else ()


def _names(vhost):
    return sorted(name for component, name in vhost.parameters if component == UPSTREAM)


def _set(vhost, name):
    if (UPSTREAM_SET, name) in vhost.parameters:
        return vhost.parameters[UPSTREAM_SET, name]
    return [{"upstream": name} for name in _names(vhost)] if name == ALL else []


def _matching(vhost, pattern):
    try:
        return [{"upstream": name} for name in _names(vhost) if pattern.found_in(name)]
    except TimeoutError:
        return []


def _upstream_of(vhost, entry, entity, waiting, chosen_by):
    name = entry["upstream"]
    fault = fault_of(vhost, UPSTREAM, name)
    if fault is not None:
        return _without_link(name, entity, fault)
    waiting += _waiting(vhost, UPSTREAM, name)
    if waiting:
        named = " and ".join(f"{component} '{which}'" for component, which in waiting)
        return _without_link(name, entity, f"{named}: {WAITS}", waiting)
    return _upstream(entry, vhost.parameters[UPSTREAM, name], entity.name, vhost.name, chosen_by)


def _without_link(name, entity, fault, waiting=()):
    return Upstream(
        name=name, uris=(), exchange=entity.name, queue=entity.name, consumer_tag="", fault=fault,
        waiting=waiting)


def _with_vhost(uri, vhost):
    """The URI of another broker, which means this vhost where it names none, as in RabbitMQ."""
    parts = urlsplit(uri)
    if not parts.netloc or parts.path not in ("", "/"):
        return uri
    place, mark, query = uri.partition("?")
    return f"{place.rstrip('/')}/{quote(vhost, safe='')}{mark}{query}"


def _default_tag(upstream):
    tag = f"federation-link-{upstream}"
    return tag if fits_short_string(tag) else "federation-link"


def _prefetch(said):
    """0 is no limit, to a broker."""
    count = said.get("prefetch-count")
    return MOST_PREFETCH if count == 0 else count


def uris_of(value, vhost):
    """The URIs of an upstream's value, each with a virtual host."""
    uris = value["uri"] if isinstance(value["uri"], list) else [value["uri"]]
    return tuple(_with_vhost(uri, vhost) for uri in uris)


def _upstream(entry, value, name, vhost, chosen_by):
    said = {**value, **entry}
    return Upstream(
        name=entry["upstream"], uris=uris_of(value, vhost), chosen_by=chosen_by,
        exchange=said.get("exchange") or name, queue=said.get("queue") or name,
        consumer_tag=said.get("consumer-tag") or _default_tag(entry["upstream"]),
        prefetch_count=_prefetch(said),
        reconnect_delay_s=said.get("reconnect-delay", 1), ack_mode=said.get("ack-mode", ON_CONFIRM),
        refusal_limit=said.get("refusal-limit", 0),
        max_hops=said.get("max-hops", 1), expires_ms=said.get(EXPIRES_KEY),
        message_ttl_ms=said.get(MESSAGE_TTL_KEY), trust_user_id=said.get("trust-user-id", False),
        bind_nowait=said.get("bind-nowait", False), queue_type=said.get("queue-type"),
        cleans_up=said.get("resource-cleanup-mode", DEFAULT_CLEANUP) != NEVER,
        ignored=tuple(key for key in WITHOUT_EFFECT if key in said),
    )
