"""Examples of request bodies, and the curl command of an operation."""
import json
import shlex
from urllib.parse import quote

from gomq_py.broker.features.expiry import MESSAGE_TTL, MESSAGE_TTL_KEY

BASE = "http://localhost:15672"
MOVE = {"count": 100, "dry_run": True}
BODIES = {
    "vhost": {"description": "orders and invoices", "tags": "production", "default_queue_type": "classic"},
    "user": {"password": "secret", "tags": "management"},
    "users": {"users": ["anna"]},
    "successor": {"node": "node-2"},
    "permission": {"configure": "^jobs", "write": ".*", "read": "^jobs"},
    "topic_permission": {"exchange": "amq.topic", "write": "^order\\.", "read": ".*"},
    "exchange": {"type": "topic", "durable": True},
    "queue": {"durable": True, "arguments": {MESSAGE_TTL: 60000}},
    "binding": {"routing_key": "order.#"},
    "publish": {
        "properties": {"delivery_mode": 2}, "routing_key": "order.new", "payload": "hello",
        "payload_encoding": "string"},
    "get": {"count": 1, "encoding": "auto", "ackmode": "ack_requeue_true"},
    "return": {"channel": "127.0.0.1:40000 -> 127.0.0.1:5672 (1)", "delivery_tag": 1},
    "route": {"routing_key": "order.new"},
    "search": {"text": "hello", "count": 10},
    "action": {"action": "sync"},
    "policy": {
        "pattern": "^jobs", "definition": {MESSAGE_TTL_KEY: 60000}, "apply-to": "queues", "priority": 1},
    "value": {"value": "info"},
    "limit": {"value": 1000},
    "suspended": {"suspended": True},
    "name": {"name": "production"},
    "password": {"password": "secret"},
    "session": {"username": "anna", "password": "secret"},
    "prefetch": {"prefetch": 100},
    "definitions": {"queues": [
        {"name": "jobs", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}]},
    "move": {"destination": "jobs", **MOVE},
    "replay": {"to": "queue", **MOVE},
}
# Bodies of routes for which the body's own example makes no sense.
BODY_OF = {
    "parameters.put_parameter": {"value": {
        "src-uri": "amqp://", "src-queue": "jobs", "dest-uri": "amqp://other.example", "dest-queue": "jobs"}},
    "parameters.put_global_parameter": {"value": "production"},
    "messages.move_messages": {"destination": "jobs.new", **MOVE},
}


def command(method, path, operation):
    """Return the curl command of an operation at ``path``, with example values."""
    given = {one["name"]: one["example"] for one in operation["parameters"] if one["in"] == "path"}
    for name, value in given.items():
        path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
    query = "&".join(
        f"{one['name']}={quote(str(one['example']), safe='')}" for one in operation["parameters"]
        if one["in"] == "query" and (one["required"] or one["name"] in ("page", "page_size")))
    words = ["curl", "-u", "guest:guest"]
    if operation.get("security") == []:
        words = ["curl"]
    if method != "GET":
        words += ["-X", method]
    words.append(f"{BASE}{path}{'?' if query else ''}{query}")
    body = operation.get("requestBody")
    if body is not None:
        example = json.dumps(body["content"]["application/json"]["example"])
        words += ["-H", "Content-Type: application/json", "-d", example]
    return shlex.join(words)
