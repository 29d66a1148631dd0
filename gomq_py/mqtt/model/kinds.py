"""What MQTT adds to a broker's kinds of queues and exchanges.

For whoever builds a broker or reads its folder, whether or not MQTT's ports are open: what an earlier run has
kept is there all the same.
"""
from gomq_py.mqtt.model.exchange import MQTTExchange
from gomq_py.mqtt.model.session_queue import EXTRA, KIND, PREFIX
from gomq_py.mqtt.model.sessions import Sessions

EXCHANGE = "mqtt.default"


def register(kinds):
    """Add them to broker.topology.kinds.Kinds."""
    kinds.add_queue_kind(KIND)
    kinds.add_exchange_type(MQTTExchange)
    kinds.reserve(PREFIX)
    kinds.predeclare(EXCHANGE, MQTTExchange.type, internal=True)
    kinds.on_vhost(_vhost_made)


def _vhost_made(vhost):
    exchange = vhost.exchange(EXCHANGE)
    vhost.extras[EXTRA] = Sessions(vhost, exchange)
    vhost.set_onward(vhost.exchange("amq.topic"), exchange)
