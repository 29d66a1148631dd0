"""Parameters: named JSON values of a component, such as policies, limits, shovels and federation upstreams.

A parameter belongs to a vhost or to the whole broker. Parameters are set by the HTTP API and by imports of
definitions, and are stored in the definitions log. Each component registers a handler (a Component), which
checks values and applies changes. Never switches greenlets.
"""
import json

from gomq_py.broker.policies.policy import KEYS_OF_COMPONENTS, OPERATOR_POLICY, POLICY
from gomq_py.broker.tables import STORED, check_numbers
from gomq_py.broker.topology_log import records
from gomq_py.global_names import INTERNAL
from gomq_py.observability.log import logger

LOG = logger("broker")
GLOBAL = "global"  # RabbitMQ's component name for values of the whole broker
# States of a value without effect; WAITS is the text for WAITING.
WAITING, FAULTY = "waiting", "error"
WAITS = "it was set while nothing acted on it: set it again, or start it with restart"
# Setter of values from the control socket or a file read at boot. No user has this name.
OPERATOR = ""
# Setter of a policy whose user was deleted since. No user has this name (auth.labels).
DELETED = "\0"
# Most characters of a field's name in a refusal.
SHOWN_CHARACTERS = 100
# {component: its feature}, of components that this broker may lack.
_FEATURES = {
    "shovel": "shovels", "federation-upstream": "federation", "federation-upstream-set": "federation",
    "sharding": "sharding", "delayed-message": "policies that delay",
}
# Components that every release had an owner for. For other components, older records do not say whether a
# value waits, because the releases that wrote them had no owner.
_ALWAYS_OWNED = (POLICY, OPERATOR_POLICY, "vhost-limits")


class ParameterError(ValueError):
    """A parameter's value is not acceptable. The exception's text is for the user who sets it."""


class Component:
    """Handler of one component's parameters: checks and applies their values. Other packages subclass it.
    ``administrators_only``: True if the values affect all users of a vhost regardless of their rights. Then
    the HTTP API lets only administrators set and clear values.
    """

    administrators_only = False

    def check(self, vhost, name, value):
        """Raise ValueError if the value of parameter ``name`` is invalid."""

    def check_set_by(self, vhost, name, value, by):
        """Raise ValueError if the value is invalid, or if ``by`` (see Parameters.set) may not set it."""
        self.check(vhost, name, value)

    def fault_of(self, vhost, name, value):
        """Return why a stored value has no effect, as a text without passwords; None if it is in effect."""

    def changed(self, vhost, name, value):
        """Apply a value that was set, or loaded at boot."""

    def cleared(self, vhost, name):
        """Undo the effect of a value that was removed."""


class Parameters:
    """The parameters of one broker.

        global_               {name: value} of the whole broker
        internal              {name: value}: notes about the data folder, which are never listed or exported
        vhost.parameters      {(component, name): value}
        vhost.set_by          {(component, name): the user who set the value, or OPERATOR}, for components
                              that act with that user's rights; not exported
        on_change(vhost's name or None, component, name, value or None)
                              called after each change; without a value for a removed parameter

    A value is *waiting* if its component had no handler when the value was set. A policy is waiting if one of
    its keys belongs to such a component; the other keys have effect. A waiting value is stored and exported,
    but has no effect until it is set again, even in a later version with the handler. Otherwise shovels
    imported from another broker would start to run with an upgrade.
    """

    def __init__(self, log, tables):
        self.global_ = {}
        self.internal = {}
        self._tables = tables
        self.on_change = _nothing
        self._log = log
        self._components = {}

    def register(self, component, handler, vhosts=()):
        """Register a component's ``handler``, and apply the values in ``vhosts``, except waiting ones."""
        self._components[component] = handler
        for vhost in vhosts:
            for (owner, name), value in list(vhost.parameters.items()):
                if owner == component and not self.waits(vhost, component, name):
                    try:
                        handler.changed(vhost, name, value)
                    except Exception:  # no parameter may keep a broker from booting
                        LOG.exception("%s %r in vhost %r has no effect", component, name, vhost.name)

    def idle_parts(self, component, value):
        """Return {component or policy key: reason} for the parts of a value that have no handler."""
        if component not in self._components:
            return {component: _why_idle(component)}
        return {
            key: _why_idle(owner)
            for key, owner in _owners_in(component, value).items() if owner not in self._components
        }

    def is_administrators_only(self, component):
        """Return True if only administrators may set and clear values of this component."""
        handler = self._components.get(component)
        return handler is not None and handler.administrators_only

    @staticmethod
    def waits(vhost, component, name):
        """Return True if the value is *waiting* (see Parameters): without effect until set again."""
        return (component, name) in vhost.waiting

    def condition(self, vhost, component, name):
        """Return (WAITING or FAULTY, reason) if a stored value has no effect; None if it is in effect."""
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
        """Check, store and apply a value. Raises ValueError, OSError. ``by``: the name of the user who sets
        it; OPERATOR for this machine's operator; None for a user unknown to this broker, such as a token's
        user.
        """
        if vhost.is_gone:  # another vhost may have the name by now, and the log has names only
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
        """Remove a value. Returns False if there was none. Raises OSError."""
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
        """Remove the deleted user ``by`` as the setter of values in ``vhosts``. That user's policies no
        longer forward messages. Raises OSError if the log cannot be written; the change then holds for this
        run only.
        """
        # A later user of that name must not count as the setter.
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
        """Set a value of the whole broker. Raises OSError, ValueError for an invalid or internal one."""
        if name in INTERNAL:
            raise ParameterError(f"global parameter {name!r} is the broker's own: nobody else sets it")
        self._tables.check_json(f"global parameter {name!r}", value)
        check_numbers(f"global parameter {name!r}", value)
        self._log.append(records.global_parameter_set(name, encoded(value)))
        self.global_[name] = value
        self.on_change(None, GLOBAL, name, value)

    def clear_global(self, name):
        """Remove a value of the whole broker. Returns False if there was none. Raises OSError."""
        if name not in self.global_:
            return False
        self._log.append(records.global_parameter_cleared(name))
        del self.global_[name]
        self.on_change(None, GLOBAL, name, None)
        return True

    def set_internal(self, name, value):
        """Set an internal value, a note of the broker about its data folder. Raises OSError."""
        assert name in INTERNAL, name
        self._log.append(records.global_parameter_set(name, encoded(value)))
        self.internal[name] = value

    def restore_global(self, name, value):
        (self.internal if name in INTERNAL else self.global_)[name] = value

    def restore(self, vhost, component, name, value, waits=None, by=None):
        """Load a stored value at boot. If the component refuses the value, keep it without effect and
        return the reason as text, otherwise None. ``waits``, ``by``: from the log's record; None if an old
        record lacks them.
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
        except Exception as error:  # no parameter may keep a broker from booting
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


class Notes:
    """Small state of other packages, such as that a shovel is paused, stored in the definitions log.

    ``vhost.notes``: {(room, name): JSON value}; a room is the name of a package. Notes are deleted with their
    vhost, and are neither listed nor exported.
    """

    def __init__(self, log):
        self._log = log

    def set(self, vhost, room, name, value):
        """Store a note, unless the vhost is deleted or has it with this value. Raises OSError."""
        if vhost.is_gone or vhost.notes.get((room, name)) == value:
            return
        self._log.append(records.note_set(vhost.name, room, name, encoded(value)))
        vhost.notes[room, name] = value

    def clear(self, vhost, room, name):
        """Delete the note ``name`` of the package ``room``, if there is one. Raises OSError."""
        if vhost.is_gone or (room, name) not in vhost.notes:
            return
        self._log.append(records.note_cleared(vhost.name, room, name))
        del vhost.notes[room, name]


def _check_each(check, what, value):
    try:
        check(what, value)
    except ValueError:
        for key, item in value.items() if isinstance(value, dict) else ():
            check(f"{key[:SHOWN_CHARACTERS]!r} of {what}", item)
        raise


def _owners_in(component, value):
    """Return {key: component} for the keys of a policy that components act on; {} for other parameters."""
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
    """Return a value as JSON text for the log. Raises ParameterError if it has no JSON form."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"not a JSON value: {error}") from None


def decoded(text):
    """Return the value of a JSON text from the log. Raises ValueError if the text is invalid or exceeds
    limits, RecursionError if it is nested too deeply to be parsed.
    """
    value = json.loads(text, parse_constant=_refuse_constant)
    fault = STORED.fault_of(value)
    if fault is not None:
        raise ParameterError(f"JSON {fault}")
    return value


def _refuse_constant(name):
    raise ValueError(f"{name} is no JSON")


def _nothing(_vhost, _component, _name, _value):
    """Do nothing: the default of ``on_change``."""
