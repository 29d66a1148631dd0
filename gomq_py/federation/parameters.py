"""Parameters of federation: checks upstreams and sets of upstreams, and finds the upstreams that policies
select.

Does no I/O. Values are checked as in RabbitMQ. A set is a list of upstream names, each with keys that
override the upstream's own; the set `all` need not be defined. A policy that names an undefined upstream has
no effect until the upstream is defined.
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
# A 16-bit field of basic.qos.
MOST_PREFETCH = 65535
# Same limit as for shovels.
URIS_MAX = 100
# Most unknown keys named in a refusal.
UNKNOWN_SHOWN = 10
# Argument of queues that were made for another broker's link.
PURPOSE = "x-internal-purpose"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The source of one link: an upstream's definition, with the overrides for this exchange or queue. A link
    is replaced when its upstream changes to an unequal one.

        exchange, queue                names at the upstream's broker
        expires_ms, message_ttl_ms     limits of the queue that an exchange's link makes upstream; None:
                                       no limit
        cleans_up                      whether a link at its end removes what it made upstream
        chosen_by                      (name as text, user who set it) of the policy that selects the
                                       upstream, and of the set if the policy names one
        ignored                        keys of the definition that have no effect
        fault                          why there can be no link, as text, or None
        waiting                        (component, name) of each value that was set while the broker had no
                                       federation, if this is the ``fault``
    """

    name: str
    uris: tuple[str, ...]
    exchange: str
    queue: str
    consumer_tag: str
    prefetch_count: int | None = None  # None: default of the kind of link
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
    ignored: tuple[str, ...] = field(default=(), compare=False)  # given keys without effect
    fault: str | None = None
    waiting: tuple[tuple[str, str], ...] = ()

    def is_at_the_place_of(self, other):
        """True if ``other`` names the same broker and exchange: its link may use the same objects there."""
        return self.exchange == other.exchange and bool(_places(self.uris) & _places(other.uris))


def _places(uris):
    return {(parts.hostname, parts.port, parts.path) for parts in map(urlsplit, uris)}


# checks of new values

def _shown(value):
    """Return ``value`` as short text for refusals and the log; *** for a URI, which may hold a password."""
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
        raise ParameterError(f"{key} should have at most {NAME_OCTETS_MAX} bytes")


def _boolean(key, value):
    if not isinstance(value, bool):
        raise ParameterError(f"{key} should be a boolean, actually was {_shown(value)}")


def _one_of(*words):
    def check(key, value):
        if value not in words:
            raise ParameterError(f"{key} should be one of {', '.join(words)}, actually was {_shown(value)}")
    return check


# Keys of an upstream that an entry of a set may override.
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
# Accepted, kept and shown; they have no effect here.
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
    """Raise ParameterError for an invalid upstream ``value``. ``check_uri(uri)`` raises ValueError if bad."""
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
    """Raise ParameterError unless ``value`` lists objects with an upstream's name and overriding keys."""
    if not isinstance(value, list):
        raise ParameterError(f"{name} should be a list, actually was {_shown(value)}")
    for entry in value:
        _check_keys(name, entry, {"upstream": _text, **_SHARED}, "upstream")


class UpstreamComponent(Component):
    """Handler of the parameters that define upstreams, or of those that define sets of upstreams."""

    def __init__(self, component, check, on_change, check_setter=None):
        """``check(name, value)`` raises ParameterError for an invalid value. ``on_change(vhost)`` is called
        after a change. ``check_setter(vhost, name, value, by)`` raises ValueError if user ``by`` may not set
        this valid value.
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
        return _fault_in(self._component, name, value)

    def changed(self, vhost, name, value):
        self._on_change(vhost)

    def cleared(self, vhost, name):
        self._on_change(vhost)


# upstreams selected by a policy

def upstreams_for(vhost, entity):
    """Return a list of the Upstreams that the policy in force selects for an exchange or queue."""
    # An Upstream with a ``fault`` can have no link: its stored value is invalid, or this value or the policy
    # was set while the broker had no federation (Parameters.waits).
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


def fault_of(vhost, component, name):
    """Return why the stored value of an upstream or set is invalid; None if it is valid or missing."""
    if (component, name) not in vhost.parameters:
        return None
    return _fault_in(component, name, vhost.parameters[component, name])


def _fault_in(component, name, value):
    try:
        if component == UPSTREAM:
            check_upstream(name, value, parse)
        else:
            check_set(name, value)
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
    """Return the URI, with ``vhost`` added if it names another broker and no vhost, as in RabbitMQ."""
    parts = urlsplit(uri)
    if not parts.netloc or parts.path not in ("", "/"):
        return uri
    place, mark, query = uri.partition("?")
    return f"{place.rstrip('/')}/{quote(vhost, safe='')}{mark}{query}"


def uris_of(value, vhost):
    """Return a tuple of an upstream's URIs. Those of other brokers get ``vhost`` if they name no vhost."""
    uris = value["uri"] if isinstance(value["uri"], list) else [value["uri"]]
    return tuple(_with_vhost(uri, vhost) for uri in uris)


def _upstream(entry, value, name, vhost, chosen_by):
    said = {**value, **entry}
    prefetch_count, tag = said.get("prefetch-count"), f"federation-link-{entry['upstream']}"
    return Upstream(
        name=entry["upstream"], uris=uris_of(value, vhost), chosen_by=chosen_by,
        exchange=said.get("exchange") or name, queue=said.get("queue") or name,
        consumer_tag=said.get("consumer-tag") or (tag if fits_short_string(tag) else "federation-link"),
        # 0, which means no limit to a broker, becomes the greatest
        prefetch_count=MOST_PREFETCH if prefetch_count == 0 else prefetch_count,
        reconnect_delay_s=said.get("reconnect-delay", 1), ack_mode=said.get("ack-mode", ON_CONFIRM),
        refusal_limit=said.get("refusal-limit", 0),
        max_hops=said.get("max-hops", 1), expires_ms=said.get(EXPIRES_KEY),
        message_ttl_ms=said.get(MESSAGE_TTL_KEY), trust_user_id=said.get("trust-user-id", False),
        bind_nowait=said.get("bind-nowait", False), queue_type=said.get("queue-type"),
        cleans_up=said.get("resource-cleanup-mode", DEFAULT_CLEANUP) != NEVER,
        ignored=tuple(key for key in WITHOUT_EFFECT if key in said),
    )
