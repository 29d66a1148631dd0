"""Federation upstream exchange: sends messages of this broker to a federated broker, the downstream.

The downstream broker binds it to an exchange here and consumes from it. The type is RabbitMQ's, so that the
two brokers work together in both directions. Every binding matches, unless the message has passed the
downstream broker, or max-hops brokers in all. So in rings and meshes each broker gets a message once. A
message's headers list the brokers that it has passed.
"""
from gomq_py.broker.exchanges.fanout import FanoutExchange
from gomq_py.broker.values import is_count
from gomq_py.errors import PreconditionFailed

# Arguments that name the downstream. Old brokers send no name.
MAX_HOPS, DOWNSTREAM_NAME, DOWNSTREAM_VHOST = "x-max-hops", "x-downstream-name", "x-downstream-vhost"
# Header of a message: the brokers it came from, the last first. Argument of a binding: the brokers it was
# made for, likewise.
RECEIVED_FROM, BOUND_FROM = "x-received-from", "x-bound-from"
# Keys of an entry of these lists.
CLUSTER_NAME, VHOST = "cluster-name", "vhost"


class FederationUpstreamExchange(FanoutExchange):
    """A fanout exchange that skips messages which have passed its downstream broker or too many brokers."""

    type = "x-federation-upstream"
    needs_headers = True
    watched_list = RECEIVED_FROM

    @staticmethod
    def check_arguments(entity, arguments):
        if MAX_HOPS not in arguments:
            raise PreconditionFailed(f"Argument {MAX_HOPS} missing")
        if not is_count(arguments[MAX_HOPS]):
            raise PreconditionFailed(f"Argument {MAX_HOPS} must be of type long")

    def match(self, routing_key, headers, targets):
        arguments = self.arguments
        if should_forward(
            headers, arguments.get(MAX_HOPS, 0), arguments.get(DOWNSTREAM_NAME),
            arguments.get(DOWNSTREAM_VHOST),
        ):
            super().match(routing_key, headers, targets)


def should_forward(headers, max_hops, name, vhost):
    """True if a message with these headers (or None) may go to the vhost ``vhost`` of the broker ``name``. It
    must have passed fewer than ``max_hops`` brokers, and not that vhost.
    """
    passed = headers.get(RECEIVED_FROM) if headers else None
    if not isinstance(passed, list):
        return True
    return len(passed) < max_hops and not has_passed(passed, name, vhost)


def has_passed(passed, name, vhost):
    """True if the list ``passed`` (x-received-from) contains the vhost ``vhost`` of the broker ``name``.
    Entries without a vhost, as RabbitMQ before 3.8.9 writes them, match by the broker's name alone.
    """
    for one in passed:
        if isinstance(one, dict) and one.get(CLUSTER_NAME) == name and name is not None:
            if vhost is None or one.get(VHOST, vhost) == vhost:
                return True
    return False
