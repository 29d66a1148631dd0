"""Source: checks and names the exchange of a vhost that MQTT clients publish and subscribe to.

The source is the vhost's ``topic_exchange``. The parameter ``exchange`` of the component ``mqtt`` names it.
"""
from gomq_py.broker.names import described, fits_short_string
from gomq_py.broker.policies.parameters import Component, ParameterError
from gomq_py.errors import NotFound, Refused
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.observability.log import logger

LOG = logger("mqtt")
COMPONENT, NAME = "mqtt", "exchange"
TYPE = "topic"


def fault_of(exchange):
    """Return an error text if MQTT clients cannot publish to and subscribe through an exchange; else ""."""
    if exchange.type != TYPE:
        return f"it is of type '{exchange.type}', and MQTT needs a topic exchange"
    return "it is internal, and clients could not publish to it" if exchange.internal else ""


def find(vhost):
    """Return the exchange a vhost's MQTT clients publish to. Raises NotFound if missing or unsuitable."""
    exchange = vhost.exchange(vhost.topic_exchange)
    fault = fault_of(exchange)
    if fault:
        raise NotFound(f"{described('exchange', exchange.name, vhost.name)} is not for MQTT: {fault}")
    return exchange


class SourceComponent(Component):
    """The runtime parameter that names the exchange for a vhost's MQTT clients. Only administrators may set
    it. ``default``: the name if the parameter is not set.
    """

    administrators_only = True

    # It decides which topic permissions count, and what all MQTT clients of the vhost publish.
    def __init__(self, default):
        self._default = default

    def check(self, vhost, name, value):
        """Raise ParameterError for a bad value. The exchange may be missing: imports create it later."""
        if name != NAME:
            raise ParameterError(f"'{name}' is no parameter of {COMPONENT}: there is '{NAME}'")
        if not isinstance(value, str) or not value or not fits_short_string(value):
            raise ParameterError(f"the {NAME} of {COMPONENT} should be the name of an exchange")
        exchange = vhost.exchanges.get(value)
        fault = "" if exchange is None else fault_of(exchange)
        if fault:
            raise ParameterError(f"{described('exchange', value, vhost.name)} is not for MQTT: {fault}")

    def changed(self, vhost, name, value):
        if name == NAME and isinstance(value, str):
            self._use(vhost, value)

    def cleared(self, vhost, name):
        if name == NAME:
            self._use(vhost, self._default)

    @staticmethod
    def _use(vhost, name):
        vhost.extras[EXTRA].take_from(name)
        say_fault(vhost)


def say_fault(vhost):
    """Log a warning if a vhost has no suitable exchange for MQTT clients; one may be declared later."""
    try:
        find(vhost)
    except Refused as error:
        LOG.warning("MQTT clients of vhost %r cannot publish or subscribe: %s", vhost.name, error.text)
