"""Headers exchange: compares a binding's arguments with the message's headers.

AMQP 0-9-1 §3.1.3.4, and RabbitMQ's extensions of it. ``x-match`` is the mode: ``all`` (the default) and
``any`` ignore keys that begin with ``x-``. ``all-with-x`` and ``any-with-x`` compare these, too, except
``x-match`` itself. A binding value of None (void) matches any value of the header.
"""
from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.values import equal, type_name
from gomq_py.errors import PreconditionFailed

X_MATCH = "x-match"
MODES = ("all", "any", "all-with-x", "any-with-x")


class HeadersExchange(Exchange):
    """Compares every binding with every message: a binding may name any header."""

    type = "headers"
    needs_headers = True

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._rules = {}

    def check_binding(self, routing_key, arguments):
        mode = arguments.get(X_MATCH, "all")
        if not isinstance(mode, str):
            raise PreconditionFailed(
                f"Invalid x-match field type {type_name(mode)} (value {mode!r}); expected longstr"
            )
        if mode not in MODES:
            raise PreconditionFailed(
                f'Invalid x-match field value <<"{mode}">>; expected all, any, all-with-x, or any-with-x'
            )

    def match(self, routing_key, headers, targets):
        headers = headers or {}
        for destination, wants_all, wanted in self._rules.values():
            if destination not in targets and satisfies(headers, wants_all, wanted):
                targets[destination] = None

    def _added(self, binding):
        mode = binding.arguments.get(X_MATCH, "all")
        with_x = mode.endswith("-with-x")
        wanted = [
            (key, value)
            for key, value in binding.arguments.items()
            if key != X_MATCH and (with_x or not key.startswith("x-"))
        ]
        self._rules[binding.identity] = (binding.destination, mode.startswith("all"), wanted)

    def _removed(self, binding):
        del self._rules[binding.identity]


def satisfies(headers, wants_all, wanted):
    """True if ``headers`` have all ``wanted`` values (``wants_all``) or else at least one of them."""
    for key, value in wanted:
        found = key in headers and (value is None or equal(value, headers[key]))
        if found != wants_all:
            return found
    return wants_all
