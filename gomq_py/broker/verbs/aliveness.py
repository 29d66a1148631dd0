"""Aliveness: tests a vhost as RabbitMQ does, by declaring, publishing to and getting from a queue."""
from functools import partial

from gomq_py.broker.envelope import envelope_of
from gomq_py.broker.verbs import queues
from gomq_py.broker.verbs.access import QUEUE
from gomq_py.broker.verbs.publishing import checked, store_and_wait
from gomq_py.broker.verbs.taking import take

NAME = "aliveness-test"
NO_PROPERTIES = b"\0\0"


def is_alive(caller, scheduler):
    """Run the aliveness test. Returns True if the published message comes back. Needs configure, write and
    read on the test's queue. Raises Refused. May switch greenlets.
    """
    caller.access.check_configure(QUEUE, NAME)
    caller.access.check_write(QUEUE, NAME)
    caller.access.check_read(QUEUE, NAME)
    queues.declare(caller, NAME)
    publication = checked(
        caller, caller.vhost.default_exchange, NAME, partial(envelope_of, NO_PROPERTIES), b"test_message",
        scheduler.now_ms)
    store_and_wait(caller, publication, scheduler)
    return bool(take(caller, NAME, 1, requeue=False, reject=False))
