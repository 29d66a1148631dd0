"""Parameters: named JSON values of a component, in a vhost or for the whole broker; policies, limits, shovels and federation upstreams are such.

Between doors (HTTP, definitions) and whoever a component belongs to, which registers a Component to check values and to hear of changes. Kept in the
topology log. Never yields.
"""
import json

from gomq_py.broker import records
from gomq_py.broker.tables import STORED, check_numbers


GLOBAL = "global"  # what RabbitMQ calls the component of the whole broker's


class ParameterError(ValueError):
    """The value cannot be accepted; the text is for whoever asked."""


class Component:
    """What one component does with its values; ``vhost`` is a VHost. Other rooms subclass it."""

    def check(self, vhost, name, value):
        """Refuse a value. Raises ValueError."""

    def changed(self, vhost, name, value):
        """The value is set; at boot too."""

    def cleared(self, vhost, name):
        """The value is gone."""


class Parameters:
    """The parameters of one broker. Those of a vhost lie in ``vhost.parameters``, {(component, name): value}; ``global_`` has {name: value}.

    ``on_change(vhost's name or None, component, name, value or None)`` is called after each change.
    """

    def __init__(self, log, tables):
        self.global_ = {}
        self._tables = tables
        self.on_change = _nothing
        self._log = log
        self._components = {}

    def register(self, component, handler, vhosts=()):
        """``handler`` (a Component) takes over the values of this component, those that are there already first."""
        self._components[component] = handler
        for vhost in vhosts:
            for (owner, name), value in list(vhost.parameters.items()):
                if owner == component:
                    handler.changed(vhost, name, value)

    def has_owner(self, component):
        """Whether somebody acts on the values of this component."""
        return component in self._components

    def set(self, vhost, component, name, value):
        """Set a value, checked by its component. Raises ValueError, OSError."""
        self._tables.check_json(f"{component} {name!r} in vhost {vhost.name!r}", value)
        handler = self._components.get(component)
        if handler is not None:
            handler.check(vhost, name, value)
        check_numbers(f"{component} {name!r} in vhost {vhost.name!r}", value)
        self._log.append(records.parameter_set(vhost.name, component, name, encoded(value)))
        vhost.parameters[component, name] = value
        if handler is not None:
            handler.changed(vhost, name, value)
        self.on_change(vhost.name, component, name, value)

    def clear(self, vhost, component, name):
        """Remove a value; returns whether there was one. Raises OSError."""
        if (component, name) not in vhost.parameters:
            return False
        self._log.append(records.parameter_cleared(vhost.name, component, name))
        del vhost.parameters[component, name]
        handler = self._components.get(component)
        if handler is not None:
            handler.cleared(vhost, name)
        self.on_change(vhost.name, component, name, None)
        return True

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

    def restore(self, vhost, component, name, value):
        """Put a value of an earlier run back; one that its component refuses by now stays without effect. Returns the refusal's text or None."""
        vhost.parameters[component, name] = value
        handler = self._components.get(component)
        if handler is None:
            return None
        try:
            handler.check(vhost, name, value)
            handler.changed(vhost, name, value)
        except ValueError as error:
            return str(error)
        except Exception as error:  # no parameter keeps a broker from booting
            return f"{type(error).__name__}: {error}"
        return None


def encoded(value):
    """A value as the log keeps it. Raises ParameterError for what is not JSON."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"not a JSON value: {error}") from None


def decoded(text):
    """A value from the log. Raises ValueError for what no answer could show; RecursionError where it is nested deeper still."""
    value = json.loads(text, parse_constant=_refuse_constant)
    fault = STORED.fault_of(value)
    if fault is not None:
        raise ParameterError(f"JSON {fault}")
    return value


def _refuse_constant(name):
    raise ValueError(f"{name} is no JSON")


def _nothing(_vhost, _component, _name, _value):
    """Nobody wants to know."""
