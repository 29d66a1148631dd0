"""Exchange types: finds the class for a type in exchange.declare, and checks a new exchange's arguments.

Every broker has these types; broker.topology.kinds can register more.
"""
from gomq_py.broker.exchanges import consistent_hash, delayed
from gomq_py.broker.exchanges.consistent_hash import ALGORITHM, HASH_HEADER, HASH_ON, ConsistentHashExchange
from gomq_py.broker.exchanges.delayed import INNER_TYPE, DelayedExchange
from gomq_py.broker.exchanges.direct import DirectExchange
from gomq_py.broker.exchanges.fanout import FanoutExchange
from gomq_py.broker.exchanges.federation_upstream import FederationUpstreamExchange
from gomq_py.broker.exchanges.headers import HeadersExchange
from gomq_py.broker.exchanges.modulus_hash import ModulusHashExchange
from gomq_py.broker.exchanges.random_choice import LocalRandomExchange, RandomExchange
from gomq_py.broker.exchanges.topic import TopicExchange
from gomq_py.broker.features import alternate_exchange, deduplication
from gomq_py.broker.features.alternate_exchange import ARGUMENTS as ALTERNATE_ARGUMENTS
from gomq_py.broker.features.arguments import check_values
from gomq_py.broker.features.deduplication import ARGUMENTS as DEDUPLICATION
from gomq_py.broker.values import type_name
from gomq_py.errors import PreconditionFailed

EXCHANGE_TYPES = {
    kind.type: kind for kind in (
        DirectExchange, FanoutExchange, HeadersExchange, TopicExchange, ConsistentHashExchange,
        ModulusHashExchange, RandomExchange, LocalRandomExchange, DelayedExchange,
        FederationUpstreamExchange,
    )
}

# Descriptions of the arguments of exchanges.
DESCRIBED = (
    *alternate_exchange.EXCHANGE_ROWS, *deduplication.EXCHANGE_ROWS, *consistent_hash.DESCRIBED,
    *delayed.DESCRIBED,
)

# The exchange of the firehose (broker.signals.tracing).
TRACE = "amq.rabbitmq.trace"
# (name, type, internal) of each vhost's durable exchanges. Clients can neither delete them nor create other
# names in amq.
PREDECLARED = (
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    (TRACE, "topic", True),
    ("amq.topic", "topic", False),
)

# Arguments that a redeclare must repeat; RabbitMQ ignores the others.
COMPARED_ARGUMENTS = (
    *ALTERNATE_ARGUMENTS, ALGORITHM, HASH_ON, HASH_HEADER, INNER_TYPE, *DEDUPLICATION,
)


def check_exchange_arguments(kind, entity, arguments):
    """Check a new exchange's arguments. ``entity``: its name in error texts. Raises PreconditionFailed."""
    for key in ALTERNATE_ARGUMENTS:
        if key in arguments and not isinstance(arguments[key], str):
            raise PreconditionFailed(
                f"invalid type '{type_name(arguments[key])}' for arg '{key}' in {entity}"
            )
    check_values(entity, arguments, DEDUPLICATION)
    kind.check_arguments(entity, arguments)
