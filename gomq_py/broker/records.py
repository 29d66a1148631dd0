"""Records: the durable definitions as what the topology log keeps, one function per change. Read back by broker.recovery."""


def exchange_declared(exchange, incarnation=b""):
    """``incarnation`` (16 octets) is that of a delayed exchange's messages; other types have none."""
    return {
        "op": "exchange", "vhost": exchange.vhost, "name": exchange.name, "type": exchange.type, "auto_delete": exchange.auto_delete,
        "internal": exchange.internal, "arguments": exchange.arguments, "incarnation": incarnation,
    }


def exchange_deleted(exchange):
    return {"op": "exchange-delete", "vhost": exchange.vhost, "name": exchange.name}


def queue_declared(queue, incarnation):
    """``incarnation`` (16 octets) tells this queue's folder from an earlier one's of the same name."""
    return {
        "op": "queue", "vhost": queue.vhost, "name": queue.name, "auto_delete": bool(queue.auto_delete), "arguments": queue.arguments,
        "incarnation": incarnation,
    }


def queue_deleted(queue):
    return {"op": "queue-delete", "vhost": queue.vhost, "name": queue.name}


def bound(binding):
    return _binding("bind", binding)


def unbound(binding):
    return _binding("unbind", binding)


def _binding(op, binding):
    to_queue = not hasattr(binding.destination, "alternate")
    return {
        "op": op, "vhost": binding.source.vhost, "source": binding.source.name, "destination": binding.destination.name,
        "to": "queue" if to_queue else "exchange", "key": binding.routing_key, "arguments": binding.arguments,
    }


def vhost_created(vhost):
    return {"op": "vhost", "name": vhost.name, "description": vhost.description, "tags": vhost.tags}


def vhost_deleted(name):
    return {"op": "vhost-delete", "name": name}


def parameter_set(vhost, component, name, value):
    """``value`` is JSON text."""
    return {"op": "parameter", "vhost": vhost, "component": component, "name": name, "value": value}


def parameter_cleared(vhost, component, name):
    return {"op": "parameter-clear", "vhost": vhost, "component": component, "name": name}


def global_parameter_set(name, value):
    """``value`` is JSON text."""
    return {"op": "global-parameter", "name": name, "value": value}


def global_parameter_cleared(name):
    return {"op": "global-parameter-clear", "name": name}
