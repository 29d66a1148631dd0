"""Parameters: named JSON values of a component, in a vhost or for the whole broker; policies, limits, shovels
and federation upstreams are such.

Between doors (HTTP, definitions) and whoever a component belongs to, which registers a Component to check
values and to hear of changes. Kept in the log of definitions. Never yields.
"""
import json

from gomq_py.broker.policies.policy import KEYS_OF_COMPONENTS, OPERATOR_POLICY, POLICY
from gomq_py.broker.tables import STORED, check_numbers
from gomq_py.broker.topology_log import records
from gomq_py.observability.log import logger

LOG = logger("broker")
GLOBAL = "global"  # what RabbitMQ calls the component of the whole broker's
# States of a value that has no effect, and why it waits.
WAITING, FAULTY = "waiting", "error"
WAITS = "it was set while nothing acted on it: set it again, or start it with restart"
# Who set a value over the control socket, or in a file that the broker reads at boot. No user is called so.
OPERATOR = ""
# Who set a policy whose user was deleted since. No user is called so (auth.labels).
DELETED = "\0"
# Of a field's name in a refusal.
SHOWN_CHARACTERS = 100
# What a component without an owner would be for, if this broker had it.
_FEATURES = {
    "shovel": "shovels", "federation-upstream": "federation", "federation-upstream-set": "federation",
    "sharding": "sharding", "delayed-message": "policies that delay",
}
# Components that had an owner in every release. Of all others, records that do not say whether they wait are
# of releases that had none.
_ALWAYS_OWNED = (POLICY, OPERATOR_POLICY, "vhost-limits")


class ParameterError(ValueError):
    """The value cannot be accepted; the text is for whoever asked."""


class Component:
    """What one component does with its values; ``vhost`` is a VHost. Other rooms subclass it.

    ``administrators_only``: a value changes what the broker does for all users of a vhost, whatever their
    rights, so that doors let nobody without the tag administrator set or clear one.
    """

    administrators_only = False

    def check(self, vhost, name, value):
        """Refuse a value. Raises ValueError."""

    def check_set_by(self, vhost, name, value, by):
        """Refuse a value, or that ``by`` (see Parameters.set) sets it. Raises ValueError."""
        self.check(vhost, name, value)

    def fault_of(self, vhost, name, value):
        """Why a value that an earlier run has stored makes nothing, as text without passwords, or None."""

    def changed(self, vhost, name, value):
        """The value is set; at boot too."""

    def cleared(self, vhost, name):
        """The value is gone."""


class Parameters:
    """The parameters of one broker. Those of a vhost lie in ``vhost.parameters``, {(component, name): value};
    ``global_`` has {name: value}.

    ``on_change(vhost's name or None, component, name, value or None)`` is called after each change.

    A value that nobody acts on when it is set, in part or whole, waits: it is kept and exported, and whoever
    acts on such values in a later version leaves it alone until somebody sets it again. Shovels of another
    broker's definitions must not start to run with an upgrade.

    Who set a value is kept beside it, for components that act with that user's rights: ``vhost.set_by`` has
    {(component, name): a user's name, or OPERATOR}. It is no part of exports: whoever imports sets.
    """

    def __init__(self, log, tables):
        self.global_ = {}
        self._tables = tables
        self.on_change = _nothing
        self._log = log
        self._components = {}

    def register(self, component, handler, vhosts=()):
        """``handler`` (a Component) takes over the values of this component, those that are there already and
        do not wait first.
        """
        self._components[component] = handler
        for vhost in vhosts:
            for (owner, name), value in list(vhost.parameters.items()):
                if owner == component and not self.waits(vhost, component, name):
                    try:
                        handler.changed(vhost, name, value)
                    except Exception:  # no parameter keeps a broker from booting
                        LOG.exception("%s %r in vhost %r has no effect", component, name, vhost.name)

    def idle_parts(self, component, value):
        """{part: why} of what would have no effect: the component itself, or keys of a policy's definition.

        Empty where every part has an owner that acts on it.
        """
        if component not in self._components:
            return {component: _why_idle(component)}
        return {
            key: _why_idle(owner)
            for key, owner in _owners_in(component, value).items() if owner not in self._components
        }

    def is_administrators_only(self, component):
        """Whether only administrators may set and clear values of this component."""
        handler = self._components.get(component)
        return handler is not None and handler.administrators_only

    @staticmethod
    def waits(vhost, component, name):
        """Whether the value was set while nobody acted on it; of a policy: on its keys of plugins."""
        return (component, name) in vhost.waiting

    def condition(self, vhost, component, name):
        """(state, reason) of a value that is there and has no effect: WAITING or FAULTY; of others None."""
        handler = self._components.get(component)
        if handler is None:
            return WAITING, _why_idle(component)
        if component not in _ALWAYS_OWNED:
            fault = handler.fault_of(vhost, name, vhost.parameters[component, name])
            if fault is not None:
                return FAULTY, fault
            if self.waits(vhost, component, name):
                return WAITING, WAITS
        return None

    def set(self, vhost, component, name, value, by=None):
        """Set a value, checked by its component. Raises ValueError, OSError.

        ``by``: the name of the user who sets it; OPERATOR for the operator of this machine; None for somebody
        who is no user of this broker, as whoever came with a token.
        """
        if vhost.is_gone:  # its name may be another's by now, and the log knows names only
            raise ParameterError(f"vhost '{vhost.name}' was deleted")
        what = f"{component} {name!r} in vhost {vhost.name!r}"
        _check_each(self._tables.check_json, what, value)
        handler = self._components.get(component)
        if handler is not None:
            handler.check_set_by(vhost, name, value, by)
        _check_each(check_numbers, what, value)
        waits = bool(self.idle_parts(component, value))
        self._log.append(records.parameter_set(vhost.name, component, name, encoded(value), waits, by))
        self._keep(vhost, component, name, value, waits, by)
        if handler is not None:
            handler.changed(vhost, name, value)
        self.on_change(vhost.name, component, name, value)

    def clear(self, vhost, component, name):
        """Remove a value; returns whether there was one. Raises OSError."""
        if (component, name) not in vhost.parameters or vhost.is_gone:
            return False
        self._log.append(records.parameter_cleared(vhost.name, component, name))
        del vhost.parameters[component, name]
        vhost.waiting.discard((component, name))
        vhost.set_by.pop((component, name), None)
        handler = self._components.get(component)
        if handler is not None:
            handler.cleared(vhost, name)
        self.on_change(vhost.name, component, name, None)
        return True

    def disown(self, vhosts, by):
        """The user ``by`` is gone: what he has set was set by nobody from now on, so that whoever is called
        so next does not work with it; a policy of that user hands no messages on. Raises OSError where that
        is not kept: it holds for this run.
        """
        changed = []
        for vhost in vhosts:
            for component, name in [key for key, who in vhost.set_by.items() if who == by]:
                now = DELETED if component == POLICY else None
                value, waits = vhost.parameters[component, name], (component, name) in vhost.waiting
                self._keep(vhost, component, name, value, waits, now)
                changed.append(records.parameter_set(
                    vhost.name, component, name, encoded(value), waits, now))
        for record in changed:
            self._log.append(record)

    def set_global(self, name, value):
        """Set a value of the whole broker. Raises ValueError, OSError."""
        self._tables.check_json(f"global parameter {name!r}", value)
        check_numbers(f"global parameter {name!r}", value)
        self._log.append(records.global_parameter_set(name, encoded(value)))
        self.global_[name] = value
        self.on_change(None, GLOBAL, name, value)

    def clear_global(self, name):
        """Remove a value of the whole broker; returns whether there was one. Raises OSError."""
        if name not in self.global_:
            return False
        self._log.append(records.global_parameter_cleared(name))
        del self.global_[name]
        self.on_change(None, GLOBAL, name, None)
        return True

    def restore(self, vhost, component, name, value, waits=None, by=None):
        """Put a value of an earlier run back; one that its component refuses by now stays without effect.
        Returns the refusal's text or None.

        ``waits``, ``by``: what its record says of that; None where it says nothing.
        """
        if waits is None:
            waits = component not in _ALWAYS_OWNED or bool(_owners_in(component, value))
        self._keep(vhost, component, name, value, waits, by)
        handler = self._components.get(component)
        if handler is None or (waits and component not in _ALWAYS_OWNED):
            return None
        try:
            handler.check(vhost, name, value)
            handler.changed(vhost, name, value)
        except ValueError as error:
            return str(error)
        except Exception as error:  # no parameter keeps a broker from booting
            return f"{type(error).__name__}: {error}"
        return None

    @staticmethod
    def _keep(vhost, component, name, value, waits, by):
        vhost.parameters[component, name] = value
        if by is None:
            vhost.set_by.pop((component, name), None)
        else:
            vhost.set_by[component, name] = by
        if waits:
            vhost.waiting.add((component, name))
        else:
            vhost.waiting.discard((component, name))


def _check_each(check, what, value):
    """``check(what, value)``, whose ValueError names the field that is at fault, where it is one."""
    try:
        check(what, value)
    except ValueError:
        for key, item in value.items() if isinstance(value, dict) else ():
            check(f"{key[:SHOWN_CHARACTERS]!r} of {what}", item)
        raise


def _owners_in(component, value):
    """{key: component whose owner acts on it} of a policy; of other values nothing."""
    definition = (
        value.get("definition") if component in (POLICY, OPERATOR_POLICY) and isinstance(value, dict)
        else None
    )
    return (
        {key: KEYS_OF_COMPONENTS[key] for key in definition if key in KEYS_OF_COMPONENTS}
        if isinstance(definition, dict) else {}
    )


def _why_idle(component):
    feature = _FEATURES.get(component)
    return f"this broker has no {feature}" if feature else "nothing in this broker acts on it"


def encoded(value):
    """A value as the log keeps it. Raises ParameterError for what is not JSON."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"not a JSON value: {error}") from None


def decoded(text):
    """A value from the log. Raises ValueError for what no answer could show; RecursionError where it is
    nested deeper still.
    """
    value = json.loads(text, parse_constant=_refuse_constant)
    fault = STORED.fault_of(value)
    if fault is not None:
        raise ParameterError(f"JSON {fault}")
    return value


def _refuse_constant(name):
    raise ValueError(f"{name} is no JSON")


def _nothing(_vhost, _component, _name, _value):
    """Does nothing: the default of ``on_change``."""
