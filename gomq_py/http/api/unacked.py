"""/api/unacked: shows which clients have unacknowledged messages, and requeues some. Specific to gomq-py."""
import time

from flask import Blueprint

from gomq_py.broker.features.arguments import STREAM, queue_type_of
from gomq_py.broker.verbs import queues
from gomq_py.http import shapes
from gomq_py.http.answers import body, integer_of, no_content, paced_list, text_of
from gomq_py.http.api.connections import check_own, find_channel, visible
from gomq_py.http.errors import NoSuchObject, Unprocessable
from gomq_py.http.entities import caller, find_queue, find_vhost
from gomq_py.http.login import MANAGEMENT, access, sees_vhost
from gomq_py.hub.turns import paced

blueprint = Blueprint("unacked", __name__)
# Consumers in one answer.
SHOWN_MAX = 10_000
# Messages of one channel that are searched for the oldest of each consumer.
LOOKED_AT = 2000


@blueprint.get("/api/unacked")
@blueprint.get("/api/unacked/<vhost>")
@blueprint.get("/api/unacked/<vhost>/<name>")
@access(MANAGEMENT)
def list_unacked(vhost=None, name=None):
    """Return who holds unacknowledged messages of one queue, one vhost or all vhosts: consumers, and channels
    that use basic.get. Each has the number of these messages and the age of the oldest.
    /api/queues/VHOST/QUEUE/unacked lists the messages of a queue one by one.
    """
    if name is not None:
        wanted = find_queue(vhost, name)
        return paced_list(_holders(lambda queue: queue is wanted))
    if vhost is not None:
        find_vhost(vhost)
        return paced_list(_holders(lambda queue: queue.vhost == vhost))
    return paced_list(_holders(lambda queue: sees_vhost(queue.vhost)))


@blueprint.post("/api/unacked/<vhost>/<name>/return")
@access(MANAGEMENT)
def return_message(vhost, name):
    """Requeue the unacknowledged message with this ``delivery_tag`` of the channel named ``channel``. A later
    ack or reject by the client is ignored.
    """
    queue = find_queue(vhost, name)
    wanted = body(required=("channel", "delivery_tag"))
    tag = integer_of(wanted, "delivery_tag", None, 1, (1 << 64) - 1)
    channel, connection = find_channel(text_of(wanted, "channel"))
    check_own(connection)
    queues.to_look_at(caller(vhost), name)
    if channel.unacked.queue_of(tag) is not queue:
        raise NoSuchObject()
    if queue_type_of(queue.arguments) == STREAM:
        raise Unprocessable("a stream keeps its messages: nothing is given back to it")
    if not channel.return_one(tag):
        raise Unprocessable("the channel is closing, in a transaction, or had too many messages given back")
    return no_content()


def _holders(is_meant):
    """Yield, as JSON, each consumer or channel with unacknowledged messages of a queue for which
    ``is_meant(queue)`` is true. At most SHOWN_MAX. May switch greenlets.
    """
    now_s, count = time.time(), 0
    for connection in paced(visible()):
        for channel in paced(list(getattr(connection, "channels", {}).values())):
            unacked = channel.unacked
            holders = unacked.holding()
            if not any(is_meant(one.queue) for one in holders):
                continue
            oldest = {}
            for tag, holder, _, since_s, _ in unacked.entries(1 if len(holders) == 1 else LOOKED_AT):
                oldest.setdefault(holder, (tag, since_s))
            for holder in holders:
                if is_meant(holder.queue):
                    yield _shape(holder, channel, connection, oldest.get(holder), now_s)
                    count += 1
                    if count == SHOWN_MAX:
                        return


def _shape(holder, channel, connection, oldest, now_s):
    consumer = holder.consumer
    tag, since_s = (None, None) if oldest is None else oldest
    return {
        "vhost": holder.queue.vhost, "queue": holder.queue.name,
        "consumer_tag": None if consumer is None else consumer.tag,
        "prefetch_count": 0 if consumer is None else getattr(consumer, "prefetch", 0),
        "channel": shapes.channel_name(channel, connection), "connection": connection.name,
        "user": connection.user.name, "count": holder.unacked_count, "oldest_delivery_tag": tag,
        "oldest_seconds": None if since_s is None else max(0, int(now_s - since_s)),
    }
