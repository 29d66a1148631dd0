"""Rights: which permissions a verb asks for, as RabbitMQ does, where it is more than one.

Each function returns a list of (verb, kind, name) for ``Access.check``, in the order in which they are asked
for. Names are as the model keeps them: without carriage returns and line feeds.
"""
from gomq_py.auth.permissions import CONFIGURE, READ, WRITE
from gomq_py.broker.features.alternate_exchange import ARGUMENTS as ALTERNATE_ARGUMENTS
from gomq_py.broker.features.dead_lettering import EXCHANGE_ARGUMENT

QUEUE, EXCHANGE = "queue", "exchange"
DEAD_LETTER_ARGUMENTS = (EXCHANGE_ARGUMENT,)


def to_declare_queue(vhost, name, arguments):
    """Configure; for a new queue with a dead letter exchange also read on the queue and write on that
    exchange.
    """
    return [
        (CONFIGURE, QUEUE, name), *_to_send_on(QUEUE, name, vhost.queues, arguments, DEAD_LETTER_ARGUMENTS)
    ]


def to_declare_exchange(vhost, name, arguments):
    """Configure; for a new exchange with an alternate also read on the exchange and write on the alternate.
    """
    return [
        (CONFIGURE, EXCHANGE, name),
        *_to_send_on(EXCHANGE, name, vhost.exchanges, arguments, ALTERNATE_ARGUMENTS),
    ]


def to_bind(source, kind, destination):
    """To bind and to unbind: write on the ``destination``, a queue or exchange by its ``kind``, and read on
    the exchange ``source``.

    At a topic exchange ``verbs.bindings`` also asks for the routing key.
    """
    return [(WRITE, kind, destination), (READ, EXCHANGE, source)]


def _to_send_on(kind, name, existing, arguments, keys):
    """The rights to hand messages on to the exchanges that the arguments name under ``keys``.

    None for an entity that exists: such a declare only compares, and whoever made the entity had the rights.
    """
    targets = (
        [] if name in existing else [arguments[key] for key in keys if isinstance(arguments.get(key), str)]
    )
    return [right for target in targets for right in ((READ, kind, name), (WRITE, EXCHANGE, target))]
