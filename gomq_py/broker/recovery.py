"""Recovery: the topology log back into vhosts, exchanges, queues and bindings, at boot.

Replaying changes plain descriptions only; queues are opened when the last word about each is known, so that a queue that was declared and deleted
a thousand times costs nothing. What cannot be brought back (an exchange type this version lacks, a binding to nowhere) is logged and left out.
"""
from gomq_py.amqp.wire.errors import AMQPError
from gomq_py.broker import records
from gomq_py.broker.binding import Binding, frozen
from gomq_py.broker.exchange_types import PREDECLARED, exchange_type
from gomq_py.observability.log import logger

LOG = logger("broker")
_PREDECLARED_NAMES = frozenset(name for name, _, _ in PREDECLARED)


class VHostDescription:
    """What the log says about one vhost: its record, and the latest record of each exchange, queue and binding."""

    def __init__(self, record):
        self.record = record
        self.exchanges = {}
        self.queues = {}
        self.bindings = {}

    def declare_exchange(self, record):
        self.exchanges[text(record["name"])] = record

    def declare_queue(self, record):
        self.queues[text(record["name"])] = record

    def bind(self, record):
        self.bindings[_binding_key(record)] = record

    def unbind(self, record):
        self.bindings.pop(_binding_key(record), None)

    def delete_exchange(self, record):
        self.exchanges.pop(text(record["name"]), None)
        self._unbind_all(text(record["name"]), "exchange")

    def delete_queue(self, record):
        self.queues.pop(text(record["name"]), None)
        self._unbind_all(text(record["name"]), "queue")

    def _unbind_all(self, name, kind):
        gone = [key for key in self.bindings if (kind == "exchange" and key[0] == name) or key[1:3] == (kind, name)]
        for key in gone:
            del self.bindings[key]


HANDLERS = {
    "exchange": VHostDescription.declare_exchange,
    "exchange-delete": VHostDescription.delete_exchange,
    "queue": VHostDescription.declare_queue,
    "queue-delete": VHostDescription.delete_queue,
    "bind": VHostDescription.bind,
    "unbind": VHostDescription.unbind,
}


def replay(records_):
    """The log's records as {vhost name: VHostDescription}, in the order the vhosts were made."""
    vhosts = {}
    for record in records_:
        op = record["op"]
        if op == "vhost":
            name = text(record["name"])
            if name in vhosts:
                vhosts[name].record = record
            else:
                vhosts[name] = VHostDescription(record)
        elif op == "vhost-delete":
            vhosts.pop(text(record["name"]), None)
        elif op in HANDLERS:
            vhost = vhosts.get(text(record["vhost"]))
            if vhost is not None:
                HANDLERS[op](vhost, record)
        else:
            LOG.warning("definitions: a record of unknown kind %r is left out", op)
    return vhosts


def restore(vhost, description):
    """Bring a description into a new, empty vhost: exchanges, then queues, then bindings. For boot: blocks."""
    for name, record in description.exchanges.items():
        try:
            kind = exchange_type(record["type"])
        except AMQPError as error:
            LOG.error("exchange %r in vhost %r is left out: %s", name, vhost.name, error.text)
            continue
        arguments = record["arguments"]
        vhost.add_exchange(kind(name, vhost.name, True, record["auto_delete"], record["internal"], arguments))
    for name, record in description.queues.items():
        vhost.recover_queue(name, record["auto_delete"], record["arguments"], record["incarnation"])
    for record in description.bindings.values():
        source = vhost.exchanges.get(text(record["source"]))
        ends = vhost.queues if record["to"] == "queue" else vhost.exchanges
        destination = ends.get(text(record["destination"]))
        if source is None or destination is None:
            LOG.error("a binding from %r to %r in vhost %r is left out: one end is missing", record["source"], record["destination"], vhost.name)
            continue
        binding = Binding(source, destination, text(record["key"]), record["arguments"])
        if source.find(binding.identity) is None:
            vhost.add_binding(binding)


def snapshot(vhosts):
    """The records that say all that is durable in these vhosts: a compacted log."""
    for vhost in vhosts:
        yield records.vhost_created(vhost)
        for exchange in vhost.exchanges.values():
            if exchange.durable and exchange.name and exchange.name not in _PREDECLARED_NAMES:
                yield records.exchange_declared(exchange)
        for queue in vhost.queues.values():
            if queue.durable:
                yield records.queue_declared(queue, vhost.incarnation_of(queue))
        for exchange in vhost.exchanges.values():
            for binding in exchange.bindings():
                if binding.durable:
                    yield records.bound(binding)


def text(value):
    """A name from a record: tables give octets back for names that are not UTF-8."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _binding_key(record):
    return text(record["source"]), record["to"], text(record["destination"]), text(record["key"]), frozen(record["arguments"])
