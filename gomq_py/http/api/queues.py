"""/api/queues: lists, declares, deletes and purges queues, and gets messages from them."""
import time
from functools import partial
from itertools import islice

from flask import Blueprint, request

from gomq_py.broker.features.arguments import QUORUM, queue_type_of
from gomq_py.broker.queues.peeking import describe_groups
from gomq_py.broker.verbs import queues
from gomq_py.broker.verbs.taking import take
from gomq_py.content.properties import Properties
from gomq_py.http import curves, durability, kinds, shapes
from gomq_py.http.answers import (
    body, boolean_of, check_node, check_required, decoded_arguments, integer_of, json_answer, no_content,
    node, number_in, paced_list, sliced,
)
from gomq_py.http.api.connections import visible
from gomq_py.http.errors import BadRequest
from gomq_py.http.entities import (
    caller, find_queue, find_vhost, queue_to_take_from, vhosts_named, writable_vhost,
)
from gomq_py.http.login import ADMINISTRATOR, MANAGEMENT, access
from gomq_py.http.paging import listing
from gomq_py.hub.turns import paced

blueprint = Blueprint("queues", __name__)
# What happens to the messages got: (requeue, reject), for RabbitMQ's four modes.
ACK_MODES = {
    "ack_requeue_true": (True, False), "ack_requeue_false": (False, False),
    "reject_requeue_true": (True, False), "reject_requeue_false": (False, True),
}
MAX_GET = 10000
MAX_UNACKED = 10000
# Unacknowledged messages between two checks of the clock: some 2 us each.
UNACKED_LOOK = 10


@blueprint.get("/api/queues")
@blueprint.get("/api/queues/detailed")
@blueprint.get("/api/queues/<vhost>")
@access(MANAGEMENT)
def list_queues(vhost=None):
    """Return the queues of one vhost, or of all vhosts that the user sees. With RabbitMQ's ``disable_stats``
    they have no counts and rates, which makes long lists small and quick; with ``enable_queue_totals``, too,
    they have counts of messages.
    """
    found = []
    for one in vhosts_named(vhost):
        found += one.queues.values()
    if request.args.get("disable_stats") != "true":
        return listing(found, kinds.QUEUES)
    with_totals = request.args.get("enable_queue_totals") == "true"
    return listing(found, kinds.QUEUES_WITH_TOTALS if with_totals else kinds.QUEUES_THEMSELVES)


@blueprint.get("/api/queues/<vhost>/<name>")
@access(MANAGEMENT)
def get_queue(vhost, name):
    """Return one queue, with its consumers on connections that the user sees."""
    curves.with_history()
    queue = find_queue(vhost, name)
    connections = {
        id(channel): one for one in visible() for channel in list(one.channels.values())
    }
    consumers = [consumer for consumer in shapes.consumers_of(queue) if id(consumer.channel) in connections]
    shape = shapes.queue(queue)
    shape["consumer_details"] = [
        shapes.consumer(consumer, connections[id(consumer.channel)]) for consumer in consumers
    ]
    shape["incoming"], shape["deliveries"] = [], []
    groups = describe_groups(queue)
    if groups is not None:
        shape["message_groups"] = groups
    return json_answer(shape)


@blueprint.get("/api/queues/quorum/<vhost>/<name>/status")
@access(MANAGEMENT)
def get_quorum_status(vhost, name):
    """Return the members of a queue declared as a quorum queue: this node, which leads. RabbitMQ's figures of
    its Raft log are constants here.
    """
    type_ = queue_type_of(find_queue(vhost, name).arguments)
    if type_ != QUORUM:
        return json_answer({"status": "failed", "reason": f"{type_}_queue_not_supported"}, 503)
    return json_answer([{
        "Node Name": node().name, "Raft State": "leader", "Membership": "voter", "Last Log Index": 0,
        "Last Written": 0, "Last Applied": 0, "Commit Index": 0, "Snapshot Index": -1, "Term": 0,
        "Machine Version": 0,
    }])


@blueprint.put("/api/queues/<vhost>/<name>")
@access(MANAGEMENT)
def put_queue(vhost, name):
    """Declare the queue: 201 if it is new, 204 if an equal one exists, 400 if a different one exists."""
    writable_vhost(vhost)
    wanted = body()
    arguments = decoded_arguments(wanted)
    check_node(wanted)
    declared = queues.declare(
        caller(vhost), name, boolean_of(wanted, "durable"), auto_delete=boolean_of(wanted, "auto_delete"),
        arguments=arguments)
    return no_content(201 if declared.created else 204)


@blueprint.delete("/api/queues/<vhost>/<name>")
@access(MANAGEMENT)
def delete_queue(vhost, name):
    """Delete the queue. ``?if-unused=true``: only if without consumers. ``?if-empty=true``: only if empty."""
    find_queue(vhost, name)
    queues.delete(
        caller(vhost), name, if_unused=request.args.get("if-unused") == "true",
        if_empty=request.args.get("if-empty") == "true")
    return no_content()


@blueprint.delete("/api/queues/<vhost>/<name>/contents")
@access(MANAGEMENT)
def purge_queue(vhost, name):
    """Purge the queue: drop all ready messages, or with ``?count=`` at most that many, the oldest first."""
    find_queue(vhost, name)
    asked = request.args.get("count", "")
    if not asked:
        queue, _ = queues.purge(caller(vhost), name)
    else:
        count = number_in(asked)
        if count is None or count < 0:
            raise BadRequest("count must be a number of messages")
        queue = queues.purge_some(caller(vhost), name, count)
    # some kinds of queue need another wait, besides that of every request
    durability.wait(partial(queue.after_purge, node().broker.durability))
    return no_content()


@blueprint.post("/api/queues/<vhost>/<name>/actions")
@access(ADMINISTRATOR)
def act_on_queue(vhost, name):
    """Accept RabbitMQ's ``action`` ``sync`` or ``cancel_sync``, and do nothing: one node has no mirrors."""
    find_queue(vhost, name)
    if body(required=("action",))["action"] not in ("sync", "cancel_sync"):
        raise BadRequest("unknown action: it is sync or cancel_sync")
    return no_content()


@blueprint.post("/api/rebalance/queues")
@access(ADMINISTRATOR)
def rebalance_queues():
    """Do nothing: one node leads all queues already."""
    return no_content()


@blueprint.get("/api/queues/<vhost>/<name>/unacked")
@access(MANAGEMENT)
def list_unacked(vhost, name):
    """Return at most 10000 unacknowledged messages of the queue, on connections that the user sees."""
    queue = find_queue(vhost, name)
    return paced_list(islice(_unacked(queue), MAX_UNACKED))


def _unacked(queue):
    now_s = time.time()
    for connection in visible():
        for channel in list(connection.channels.values()):
            for tag, holder, _, since_s, _ in paced(channel.unacked.entries(MAX_UNACKED), UNACKED_LOOK):
                if holder.queue is queue:
                    yield {
                        "delivery_tag": tag,
                        "consumer_tag": holder.consumer.tag if holder.consumer is not None else "Basic get",
                        "unacked_for_seconds": max(0, int(now_s - since_s)),
                        "channel_name": shapes.channel_name(channel, connection),
                    }


@blueprint.get("/api/queues/<vhost>/<name>/bindings")
@access(MANAGEMENT)
def list_queue_bindings(vhost, name):
    """Return the bindings to the queue, the one of the default exchange first; an empty list if the queue
    does not exist, as in RabbitMQ.
    """
    there = find_vhost(vhost)
    queue = there.queues.get(name)
    bindings = (
        [] if queue is None
        else [shapes.default_binding(queue), *sliced(list(there.bindings.to(queue)), shapes.binding)]
    )
    return listing(bindings, kinds.BY_SOURCE)


@blueprint.post("/api/queues/<vhost>/<name>/get")
@access(MANAGEMENT)
def get_messages(vhost, name):
    """Get ``count`` messages from the queue and return them; a ``count`` of -1 means all, 10000 at most.
    ``ackmode`` says whether the messages are acknowledged, rejected or requeued. This changes the queue.
    """
    queue_to_take_from(vhost, name)
    wanted = body()
    if "ackmode" not in wanted and "ack_mode" in wanted:
        wanted["ackmode"] = wanted["ack_mode"]
    check_required(wanted, ("ackmode", "count", "encoding"))
    if wanted["ackmode"] not in ACK_MODES:
        raise BadRequest(f"ackmode must be one of {', '.join(ACK_MODES)}")
    if wanted["encoding"] not in ("auto", "base64"):
        raise BadRequest("encoding must be auto or base64")
    count = integer_of(wanted, "count", 1, -1, MAX_GET)
    truncate = integer_of(wanted, "truncate", 0) if "truncate" in wanted else None
    requeue, reject = ACK_MODES[wanted["ackmode"]]
    taken = take(caller(vhost), name, MAX_GET if count < 0 else count, requeue, reject)
    return paced_list(_shown(facts, wanted["encoding"], truncate) for facts in taken)


def _shown(taken, encoding, truncate):
    facts, exchange, routing_key, properties, payload, left = taken
    octets = len(payload)
    if truncate is not None:
        payload = payload[:truncate]
    text, used = shapes.encoded(payload, encoding)
    return {
        "payload_bytes": octets, "redelivered": facts["redelivered"],
        "exchange": exchange.decode("utf-8", "replace"),
        "routing_key": routing_key.decode("utf-8", "replace"), "message_count": left,
        "properties": Properties.decode(properties).as_dict(), "payload": text, "payload_encoding": used,
    }
