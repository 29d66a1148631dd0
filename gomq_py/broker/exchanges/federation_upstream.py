"""Federation upstream exchange: what a broker downstream binds to one of ours, to have its messages sent on;
and what messages and bindings say of the brokers that they have passed.

The type is RabbitMQ's, so that its links and ours understand each other. Every binding matches, unless the
message has been at the broker that asks for it, or has passed as many brokers as that one takes messages
over: in rings and meshes each broker gets a message once.
"""
from gomq_py.broker.exchanges.fanout import FanoutExchange
from gomq_py.broker.values import is_count
from gomq_py.errors import PreconditionFailed

# Arguments: whom the exchange is for. The broker's name is missing where it is old.
MAX_HOPS, DOWNSTREAM_NAME, DOWNSTREAM_VHOST = "x-max-hops", "x-downstream-name", "x-downstream-vhost"
# Header of a message: the brokers that it came from, the last one first. Argument of a binding: the brokers
# that it was made for, likewise.
RECEIVED_FROM, BOUND_FROM = "x-received-from", "x-bound-from"
# What one of them says of itself.
CLUSTER_NAME, VHOST = "cluster-name", "vhost"


class FederationUpstreamExchange(FanoutExchange):
    """A fanout exchange that leaves out what its broker downstream would not want."""

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
    """Whether a message with these headers (or None) goes on to the vhost of the broker of this name, which
    takes messages that have passed fewer than ``max_hops`` brokers.
    """
    passed = headers.get(RECEIVED_FROM) if headers else None
    if not isinstance(passed, list):
        return True
    return len(passed) < max_hops and not has_passed(passed, name, vhost)


def has_passed(passed, name, vhost):
    """Whether the vhost of the broker of this name is among those that a message or binding tells of.

    RabbitMQ says nothing of vhosts before 3.8.9: then the broker counts.
    """
    for one in passed:
        if isinstance(one, dict) and one.get(CLUSTER_NAME) == name and name is not None:
            if vhost is None or one.get(VHOST, vhost) == vhost:
                return True
    return False
