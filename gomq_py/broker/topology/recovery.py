"""Recovery: restores vhosts, exchanges, queues and bindings from the definitions log at boot.

replay() reads all records into plain descriptions; restore() then makes the entities. So a queue that was
declared and deleted a thousand times costs nothing. A definition that cannot be restored, such as a binding
to a missing queue, never stops a boot. Its record is logged and returned, so that the caller can keep it.
"""
from functools import partial

from gomq_py.broker.names import described
from gomq_py.broker.policies.parameters import decoded, encoded
from gomq_py.broker.routing.routing import discard_from
from gomq_py.broker.topology.bindings import Binding, frozen, identity_of
from gomq_py.broker.topology_log import records
from gomq_py.errors import PreconditionFailed, Refused
from gomq_py.observability.log import logger

LOG = logger("broker")

# Errors not caused by a definition: no room, no descriptors, no memory.
SURROUNDINGS = (OSError, MemoryError)


class VHostDescription:
    """Collects the log's records about a vhost: its own, and the latest of each of its entities."""

    def __init__(self):
        self.record = None
        self.exchanges = {}
        self.queues = {}
        self.bindings = {}
        self.parameters = {}
        self.notes = {}
        self.stores = {}
        self._ends = {}  # (kind, name): keys of the bindings from or to it

    def take(self, record):
        """Add a record or, if it is a deletion, remove the records of the deleted entity."""
        op = record["op"]
        if op == "bind":
            key = _binding_key(record)
            self.bindings[key] = record
            for end in _ends_of(key):
                self._ends.setdefault(end, {})[key] = None
        elif op == "unbind":
            self._forget(_binding_key(record))
        elif op in LATEST:
            kept, fields = LATEST[op]
            getattr(self, kept)[_key(record, fields)] = record
        else:
            kept, fields = LATEST[DELETED[op]]
            key = _key(record, fields)
            getattr(self, kept).pop(key, None)
            self._unbind_all(DELETED[op], key)

    def _unbind_all(self, kind, name):
        for key in list(self._ends.get((kind, name), ())):
            self._forget(key)

    def _forget(self, key):
        if self.bindings.pop(key, None) is not None:
            for end in _ends_of(key):
                discard_from(self._ends, end, key)


# Kind of record: (attribute of a VHostDescription, fields of its key there). The latest record counts.
LATEST = {
    "exchange": ("exchanges", ("name",)), "queue": ("queues", ("name",)), "store": ("stores", ("name",)),
    "parameter": ("parameters", ("component", "name")), "note": ("notes", ("room", "name")),
}
# Kind of record: the kind that it removes.
DELETED = {
    "exchange-delete": "exchange", "queue-delete": "queue", "parameter-clear": "parameter",
    "note-clear": "note",
}


def _key(record, fields):
    key = tuple(text(record[field]) for field in fields)
    return key if len(key) > 1 else key[0]


def replay(records_, is_damaged=lambda: False, leave_out=lambda record: None):
    """Read the log's records and return ({vhost name: VHostDescription}, {global parameter: JSON text}).
    Calls ``leave_out(record)`` with each record that cannot be used. ``is_damaged()``, called at the end,
    returns whether the log may have lost records.
    """
    # A compacted log may contain records about a vhost's entities before the vhost's own record. If that
    # never follows, the vhost was deleted meanwhile and is left out; but in a damaged log that record may be
    # lost, and the vhost is kept without a description.
    vhosts, parameters = {}, {}
    for record in records_:
        try:
            _take_over(record, vhosts, parameters)
        except SURROUNDINGS:
            raise
        except Exception as error:
            LOG.error("definitions: %r is left out: %s", record["op"], _reason(error))
            leave_out(record)
    for name in [name for name, description in vhosts.items() if description.record is None]:
        if is_damaged():
            LOG.error(
                "definitions: vhost %r was never declared; the log is damaged, so that it is taken to be "
                "there", name,
            )
            vhosts[name].record = {"op": "vhost", "name": name, "description": "", "tags": []}
        else:
            LOG.error("definitions: vhost %r was never declared, what is said about it is left out", name)
            del vhosts[name]
    return vhosts, parameters


def noting_deleted(records_, deleted, incarnations):
    """Yield the records unchanged, and note deletions. Collects names of vhosts that stay deleted
    as keys of ``deleted``, and all folder ids in the set ``incarnations``.
    """
    for record in records_:
        if record.get("incarnation"):
            incarnations.add(record["incarnation"])
        if record["op"] == "vhost-delete":
            deleted[text(record["name"])] = None
        elif record["op"] == "vhost":
            deleted.pop(text(record["name"]), None)
        yield record


def _take_over(record, vhosts, parameters):
    op = record["op"]
    if op == "vhost":
        vhosts.setdefault(text(record["name"]), VHostDescription()).record = record
    elif op == "vhost-delete":
        vhosts.pop(text(record["name"]), None)
    elif op == "global-parameter":
        parameters[text(record["name"])] = text(record["value"])
    elif op == "global-parameter-clear":
        parameters.pop(text(record["name"]), None)
    elif op == records.REMOVAL:
        pass  # names the folder of a deleted entity, see noting_deleted
    elif op in LATEST or op in DELETED or op in ("bind", "unbind"):
        vhosts.setdefault(text(record["vhost"]), VHostDescription()).take(record)
    else:
        raise ValueError("a record of a kind that is unknown here")


def restore(vhost, description, parameters):
    """Restore a vhost's entities from its description in a new, empty vhost. Returns the records that could
    not be used; each is logged. Blocks.
    """
    # Notes and parameters first, so that policies apply from the start; then exchanges, queues, bindings, own
    # stores.
    return [
        *_restore_all(description.notes, _restore_note, vhost),
        *_restore_all(description.parameters, _restore_parameter, vhost, parameters),
        *_restore_all(description.exchanges, _restore_exchange, vhost),
        *_restore_all(description.queues, _restore_queue, vhost),
        *_restore_all(description.bindings, _restore_binding, vhost),
        *_restore_all(vhost.kinds.stores_in_order(description.stores), _restore_store, vhost),
    ]


def restore_global_parameters(parameters, values):
    """Restore global parameters from {name: JSON text}. Returns the records that could not be used."""
    return _restore_all(
        {name: records.global_parameter_set(name, value) for name, value in values.items()},
        _restore_global_parameter, parameters,
    )


def _restore_all(definitions, restore_one, *arguments):
    left_out = []
    for key, record in definitions.items():
        try:
            restore_one(key, record, *arguments)
        except SURROUNDINGS:
            raise
        except Exception as error:
            # one faulty definition must not stop the boot
            left_out.append(record)
            where = f" in vhost {text(record['vhost'])!r}" if "vhost" in record else ""
            LOG.error("definitions: %s %r%s is left out: %s", record["op"], key, where, _reason(error))
    return left_out


def _reason(error):
    return error.text if isinstance(error, Refused) else f"{type(error).__name__}: {error}"


def _restore_global_parameter(name, record, parameters):
    parameters.restore_global(name, decoded(record["value"]))


def _restore_parameter(key, record, vhost, parameters):
    component, name = key
    by = record.get("by")
    refusal = parameters.restore(
        vhost, component, name, decoded(text(record["value"])), record.get("waits"),
        None if by is None else text(by))
    if refusal is not None:
        LOG.error("%s %r in vhost %r is without effect: %s", component, name, vhost.name, refusal)


def _restore_note(key, record, vhost):
    vhost.notes[key] = decoded(text(record["value"]))


def _restore_exchange(name, record, vhost):
    kind = vhost.kinds.exchange_type(record["type"])
    if name in vhost.exchanges:  # a client had declared it before it was predeclared
        raise PreconditionFailed(f"{described('exchange', name, vhost.name)} is predeclared")
    incarnation = record.get("incarnation") or None
    vhost.add_exchange(
        vhost.make_exchange(
            kind, name, True, record["auto_delete"], record["internal"], record["arguments"], incarnation
        )
    )


def _restore_queue(name, record, vhost):
    vhost.recover_queue(
        name, record["auto_delete"], record["arguments"], record["incarnation"], bool(record.get("paused")),
        record.get("by"))


def _restore_binding(_key, record, vhost):
    source = vhost.exchanges.get(text(record["source"]))
    ends = vhost.queues if record["to"] == "queue" else vhost.exchanges
    destination = ends.get(text(record["destination"]))
    if source is None or destination is None:
        raise LookupError("one end is missing")
    binding = Binding(source, destination, text(record["key"]), record["arguments"])
    if source.binding_of(binding.identity) is None:
        vhost.bindings.add(binding)


def _restore_store(name, record, vhost):
    vhost.stores.recover(name, record["incarnation"])


def snapshot(vhosts, parameters, being_removed=tuple):
    """Yield a function for each durable definition. The function returns the definition's present
    record, or None if the definition is gone.

    Yields None for each definition that is left out, so that the caller can pause. Definitions may change
    in pauses. ``being_removed()``, called at the end, returns the folder ids of deleted entities whose
    folders may still exist. These folders get records, too.
    """
    for values in (parameters.global_, parameters.internal):
        for name in list(values):
            yield partial(_global_parameter_record, values, name)
    for vhost in list(vhosts.values()):
        record = partial(_record_in, vhosts, vhost)
        yield partial(record, records.vhost_created)
        for key in list(vhost.parameters):
            yield partial(record, _parameter_record, key)
        for key in list(vhost.notes):
            yield partial(record, _note_record, key)
        for name in vhost.stores.names():
            yield partial(record, _store_record, name)
        for exchange in list(vhost.exchanges.values()):
            is_kept = exchange.durable and not exchange.predeclared
            yield partial(record, _exchange_record, exchange) if is_kept else None
        for queue in list(vhost.queues.values()):
            yield partial(record, _queue_record, queue) if queue.durable else None
        for exchange in list(vhost.exchanges.values()):
            yield None
            for binding in exchange.bindings():
                yield partial(record, _binding_record, binding) if binding.durable else None
    for incarnation in being_removed():
        yield partial(records.removal, incarnation)


def _record_in(vhosts, vhost, record_of, *entity):
    return record_of(vhost, *entity) if vhosts.get(vhost.name) is vhost else None


def _global_parameter_record(values, name):
    return records.global_parameter_set(name, encoded(values[name])) if name in values else None


def _parameter_record(vhost, key):
    if key not in vhost.parameters:
        return None
    value, waits, by = encoded(vhost.parameters[key]), key in vhost.waiting, vhost.set_by.get(key)
    return records.parameter_set(vhost.name, key[0], key[1], value, waits, by)


def _note_record(vhost, key):
    if key not in vhost.notes:
        return None
    return records.note_set(vhost.name, key[0], key[1], encoded(vhost.notes[key]))


def _store_record(vhost, name):
    return vhost.stores.record_of(name)


def _exchange_record(vhost, exchange):
    return vhost.exchange_record(exchange) if vhost.exchanges.get(exchange.name) is exchange else None


def _queue_record(vhost, queue):
    # A restarted queue is another object of the same name.
    now = vhost.queues.get(queue.name)
    return None if now is None or not now.durable else vhost.queue_record(now)


def _binding_record(vhost, binding):
    # Its destination may be a restarted queue, which is another object of the same name.
    source = binding.source
    if vhost.exchanges.get(source.name) is not source:
        return None
    ends = vhost.queues if binding.destination_type == "queue" else vhost.exchanges
    now = ends.get(binding.destination.name)
    identity = identity_of(now, binding.routing_key, binding.arguments)
    found = None if now is None else source.binding_of(identity)
    return None if found is None or not found.durable else records.bound(found)


def text(value):
    """Return a name from a record as str. Names that are not UTF-8 are bytes there."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _binding_key(record):
    return (
        text(record["source"]), record["to"], text(record["destination"]), text(record["key"]),
        frozen(record["arguments"])
    )


def _ends_of(key):
    source, kind, destination, _, _ = key
    return ("exchange", source), (kind, destination)
