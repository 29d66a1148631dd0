"""Policies: settings for many queues and exchanges, selected by a regular expression over their names.

Of the policies that match an entity, the one with the highest priority applies, merged with the operator
policy chosen in the same way. Vhosts keep and apply PolicySets; broker.policies.parameters stores policies.
"""
from gomq_py.broker.features.policy_checks import PolicyError
from gomq_py.broker.features.queue_type import QUEUE_MODE_KEY
from gomq_py.broker.features.table import POLICY_KEYS
from gomq_py.broker.values import is_integer
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog
from gomq_py.patterns import Pattern

# Rate-limited log for slow patterns: one line per policy in some seconds.
QUIET = QuietLog(logger("broker"))

# Slow patterns tried per name: more would make every declare cost milliseconds.
COSTLY_TRIES = 8

ALL, QUEUES, EXCHANGES = "all", "queues", "exchanges"
EXCHANGE = "exchange"
POLICY, OPERATOR_POLICY = "policy", "operator_policy"  # component names of parameters

# Rows by key of policies and operator policies: RabbitMQ's keys, as far as this broker has the setting.
KEYS = POLICY_KEYS
OPERATOR_KEYS = {key: row for key, row in KEYS.items() if row.operator}
# key: the only component that acts on it.
KEYS_OF_COMPONENTS = {key: row.component for key, row in KEYS.items() if row.component is not None}

# apply-to: a test whether it includes a kind of entity. Queues may be of kinds unknown here.
_APPLIES = {
    ALL: lambda kind: True,
    QUEUES: EXCHANGE.__ne__,
    EXCHANGES: EXCHANGE.__eq__,
    "classic_queues": "classic".__eq__,
    "quorum_queues": "quorum".__eq__,
    "streams": "stream".__eq__,
}


class Policy:
    """A policy or operator policy. Immutable, but for ``rights``: SetterRights, or None for no limit."""

    __slots__ = ("rights", "name", "pattern", "apply_to", "priority", "definition", "_pattern", "_means")

    def __init__(self, name, pattern, definition, priority=0, apply_to=ALL, operator=False):
        """Check the values; raises PolicyError. ``operator``: True for an operator policy."""
        self.rights = None
        self.name = name
        self.pattern = pattern
        self.apply_to = _apply_to(apply_to)
        self.priority = _priority(priority)
        self.definition = _checked(definition, OPERATOR_KEYS if operator else KEYS)
        self._means = _APPLIES[self.apply_to]
        if not isinstance(pattern, str):
            raise PolicyError(f"pattern should be a string but was {pattern!r}")
        try:
            self._pattern = Pattern(pattern)
        except ValueError as error:
            raise PolicyError(f"pattern should be regular expression but is invalid: {error}") from None

    def __repr__(self):
        return f"<Policy {self.name!r} for {self.apply_to} {self.pattern!r}>"

    def applies(self, kind, name):
        """Return True if the policy matches the entity of this name; ``kind`` is EXCHANGE or a queue type. If
        matching takes too long, log that and return False.
        """
        if not self._means(kind):
            return False
        try:
            return self._pattern.found_in(name)
        except TimeoutError:
            QUIET.error(
                ("policy", self.name, self.pattern),
                "policy %r is not in force for %s %r: its pattern %r takes too long for that name; "
                "write it without nested repeats", self.name, kind, name, self.pattern,
            )
            return False

    @property
    def is_costly(self):
        """True if matching the pattern has ever exceeded the time limit for one name."""
        return self._pattern.is_costly

    def say_untried(self, kind, name):
        """Log that this policy was skipped for an entity, after COSTLY_TRIES slow patterns."""
        QUIET.error(
            ("untried", self.name, self.pattern),
            "policy %r is not in force for %s %r: %d policies before it have patterns that take too "
            "long; write them without nested repeats", self.name, kind, name, COSTLY_TRIES,
        )

    def as_value(self):
        """Return the policy as a dict, in the form of parameters and definitions files."""
        return {
            "pattern": self.pattern, "apply-to": self.apply_to, "priority": self.priority,
            "definition": self.definition,
        }


def policy_of(name, value, operator=False):
    """Make a Policy from a dict in the form of parameters and definitions files. Raises PolicyError."""
    if not isinstance(value, dict) or "pattern" not in value or "definition" not in value:
        raise PolicyError("a policy needs a pattern and a definition")
    return Policy(
        name, value["pattern"], value["definition"], value.get("priority", 0), value.get("apply-to", ALL),
        operator,
    )


class PolicySet:
    """The policies, or the operator policies, of one vhost. ``by_name``: {name: Policy}."""

    __slots__ = ("by_name", "_ranked")

    def __init__(self):
        self.by_name = {}
        self._ranked = []

    def put(self, policy):
        self.by_name[policy.name] = policy
        self._rank()

    def remove(self, name):
        found = self.by_name.pop(name, None) is not None
        self._rank()
        return found

    def best(self, kind, name):
        """Return the matching policy of the highest priority, or None. Among equals the first by name wins.
        Only the first COSTLY_TRIES policies with slow patterns are tried.
        """
        tries_left = COSTLY_TRIES
        for policy in self._ranked:
            if policy.is_costly:
                if not tries_left:
                    policy.say_untried(kind, name)
                    continue
                tries_left -= 1
            if policy.applies(kind, name):
                return policy
        return None

    def _rank(self):
        self._ranked = sorted(self.by_name.values(), key=lambda policy: (-policy.priority, policy.name))


class InForce:
    """The policy and the operator policy that apply to an entity, each of which may be None, and their merged
    ``definition``. For a key in both: the smaller value if both are numbers, otherwise the operator policy's
    value. Immutable; entities share it.
    """

    __slots__ = ("policy", "operator_policy", "definition")

    def __init__(self, policy=None, operator_policy=None, without=frozenset()):
        """Merge both policies. ``without``: omits keys useless to the entity or forbidden to the setter."""
        self.policy = policy
        self.operator_policy = operator_policy
        definition = dict(policy.definition) if policy is not None else {}
        for key, value in (operator_policy.definition if operator_policy is not None else {}).items():
            own = definition.get(key)
            definition[key] = min(own, value) if _is_number(own) and _is_number(value) else value
        self.definition = {key: value for key, value in definition.items() if key not in without}


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


UNDER_NONE = InForce()


# checks of new policies

def _apply_to(value):
    name = str(value).replace("-", "_")
    if name not in _APPLIES:
        raise PolicyError(f"apply-to {value!r} unrecognised; should be one of {', '.join(_APPLIES)}")
    return name


def _priority(value):
    if not is_integer(value):
        raise PolicyError(f"priority should be a number, actually was {value!r}")
    return value


def _checked(definition, keys):
    if not isinstance(definition, dict):
        raise PolicyError("definition should be an object")
    if not definition:
        raise PolicyError("no policy provided")
    for key, value in definition.items():
        if key not in keys:
            raise PolicyError(f"{key} is not a recognised policy setting")
        keys[key].check_policy(keys[key], value)
    for key in definition:
        if keys[key].check_beside is not None:
            keys[key].check_beside(keys[key], definition)
    return dict(definition)


def usable_definition(definition):
    """Split another broker's policy definition: return (dict of known keys, sorted list of unknown keys)."""
    unknown = sorted(key for key in definition if key not in KEYS)
    return {key: value for key, value in definition.items() if key in KEYS}, unknown


def without_effect(definition):
    """Return the set of keys that are accepted but have no effect here: mirrors, queue modes."""
    return {key for key in definition if key.startswith("ha-") or key == QUEUE_MODE_KEY}
