"""Mutants that take back what was mended: faults of the broker that the simulation has found, with the
commits that mended them. See mutants.
"""
import time

from gomq_py.amqp.server import channel, confirms, consume, settling, tx
from gomq_py.amqp.wire.methods import BasicGet, BasicRecover, ConfirmSelect
from gomq_py.broker.verbs.blocked_publish import BlockedPublish
from gomq_py.links.wire import Wire
from gomq_py.mqtt.model.qos2_records import QoS2Records
from gomq_py.mqtt.model.sent import Sent
from gomq_py.storage.flush.durability import Durability
from gomq_py.storage.stores.message_store import MessageStore


def deliveries_overtake_get_ok():
    """06926f2b: and recover-ok, and confirms select-ok, where answers before these wait for the disk."""
    channel.HANDLERS.update({
        BasicGet: consume.basic_get, BasicRecover: consume.basic_recover,
        ConfirmSelect: confirms.confirm_select})


def other_queues_deliver_before_recover_ok():
    """0064d974: to consumers that share a limit, and have room again. Seed 283 finds it."""
    settling.held_back = tx.held_back = lambda channel: channel.unacked.queues()


def refusal_told_behind_its_batch():
    """ce2523e3: a kill in between has what was refused at QoS 2 count as stored."""
    init = BlockedPublish.__init__

    def hasty(held, vhost, scheduler, publication, at, taken, done, before=None):
        init(held, vhost, scheduler, publication, at, taken, done, before and (
            lambda destinations, left, taken: (
                None if left == () and not taken else before(destinations, left, taken))))

    BlockedPublish.__init__ = hasty


def identifiers_believed_after_a_loss_of_power():
    """b83bb75a: those of QoS 2 that are free here, and that clients may have messages with."""
    Sent.doubts = property(lambda sent: False, lambda sent, value: None)


def stop_reads_on_in_a_body():
    """7b959f01: where a request is cut off by the stop, all the rest of its body is awaited."""
    from gomq_py.http import server  # here, for it brings Flask

    def taken(body, method, size):
        try:
            return method(size)
        except OSError as error:
            body._lost = True
            if isinstance(error, server.BodyLost):
                raise
            raise server.BodyLost(400, "the body is not in well-formed chunks") from None

    server._Body._taken = taken


def flush_of_nothing_is_a_sign_of_life():
    """946eb297: an idle link sends no heartbeats to a peer that sends its own. Seed 382 finds it."""
    def send_queued(wire):
        if wire._writer is None and not wire.is_closed and not wire._kept:
            wire.last_sent = time.monotonic()
        else:
            written(wire)

    written, Wire.send_queued = Wire.send_queued, send_queued


def qos_2_sent_before_followers_know():
    """28898498: PUBLISH and PUBREL to a subscriber, which goes on with a follower that sends them again."""
    QoS2Records.is_kept_elsewhere = lambda records: False


def promise_forgets_what_was_told_while_a_flush_ran():
    """67393514: PUBREL leaves before a follower has the deletion. Seed 56 finds it."""
    on_disk = Durability._on_disk

    def forget(durability, promise, error):
        promise.position = 0
        on_disk(durability, promise, error)

    Durability._on_disk = forget


def qos_2_identifier_told_behind_its_message():
    """ca04f91e: a leader that is lost in between leaves a message that its publisher sends again."""
    announce = MessageStore.announce
    MessageStore.announce = lambda store, segment=None: 0 if segment is None else announce(store, segment)
