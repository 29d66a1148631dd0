"""Trial: shows an operator which way a message with given keys and headers would take, binding by binding.

A trial publishes and counts nothing. Each binding of a topic or headers exchange is tried alone in a
temporary exchange of the same type. So the reason shown comes from the exchange type itself.
"""
from typing import Any, NamedTuple

from gomq_py.broker.exchanges import schedule
from gomq_py.broker.exchanges.consistent_hash import ConsistentHashExchange
from gomq_py.broker.exchanges.delayed import DelayedExchange, delay_of, time_of
from gomq_py.broker.exchanges.direct import DirectExchange
from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.exchanges.fanout import FanoutExchange
from gomq_py.broker.exchanges.headers import X_MATCH, HeadersExchange
from gomq_py.broker.exchanges.modulus_hash import ModulusHashExchange
from gomq_py.broker.exchanges.random_choice import RandomExchange
from gomq_py.broker.exchanges.topic import TopicExchange
from gomq_py.broker.routing.routing import takes_onward
from gomq_py.content.properties import X_SCHEDULE
from gomq_py.hub.turns import paced

# Most steps shown to the operator.
STEPS_MAX = 2000
# Most bindings shown per destination: any of them is enough to lead there.
BINDINGS_MAX = 5


class Step(NamedTuple):
    """One step of a message from ``source`` to ``destination``, a queue, an exchange or another Destination.
    ``binding``: the binding followed, or None; ``why``: the reason, as text.
    """

    source: Any
    destination: Any
    binding: Any
    why: str


class Trial:
    """Result of try_out(): ``steps`` in order, and ``destinations`` that the message would reach.
    ``is_whole``: False if there were too many steps to show. ``due_ms``: {delayed exchange: Unix milliseconds
    until which the message would wait there}.
    """

    def __init__(self):
        self.steps = []
        self.destinations = []
        self.due_ms = {}
        self.is_whole = True


def try_out(routing, exchange, routing_keys, headers, now_ms):
    """Return the Trial of a message to ``exchange``. ``routing_keys``: its key, then CC's and BCC's. Raises
    PreconditionFailed. May switch greenlets.
    """
    found = Trial()
    if exchange.delayed_store is not None and headers and X_SCHEDULE in headers:
        found.due_ms[exchange] = schedule.read(headers, False, now_ms).first_ms(now_ms)
    seen = {exchange: None}
    ahead = [exchange]
    reached: dict[Any, Any] = {}
    while ahead:
        current = ahead.pop(0)
        for step in _steps_from(routing, current, routing_keys, headers, found, now_ms):
            if len(found.steps) >= STEPS_MAX:
                found.is_whole = False
                break
            found.steps.append(step)
            if not isinstance(step.destination, Exchange):
                reached[step.destination] = None
            elif step.destination not in seen:
                seen[step.destination] = None
                ahead.append(step.destination)
    for entity in [*reached, *seen] if reached else ():
        stream = routing.tee_of(entity)
        if stream is not None:
            found.steps.append(Step(entity, stream, None, "its tee gets what it gets"))
            reached[stream] = None
    found.destinations = list(reached)
    return found


def _steps_from(routing, current, keys, headers, found, now_ms):
    """Yield the Steps that lead away from the exchange ``current``. May switch greenlets."""
    matched: dict[Any, None] = {}
    judge = current
    if isinstance(current, DelayedExchange):
        due_ms = _due_ms(current, headers, now_ms)
        if due_ms:
            found.due_ms[current] = due_ms
        judge = current.inner
    for key in keys:
        judge.match(key, headers, matched)
    for destination in current.departed:
        matched.pop(destination, None)
    if (
        not matched and current.alternate in routing.exchanges and current.alternate is not None
        and not takes_onward(current, keys)
    ):
        yield Step(
            current, routing.exchanges[current.alternate], None,
            "no binding matches, so its alternate exchange is asked")
    told = dict.fromkeys(matched, 0)
    for binding in paced(current.bindings() if matched else ()):
        destination = binding.destination
        if told.get(destination, BINDINGS_MAX) >= BINDINGS_MAX:
            continue
        leads = _rule(judge, binding, headers)
        key = next((key for key in keys if leads(key)), None)
        if key is not None:
            told[destination] += 1
            yield Step(current, destination, binding, _why(judge, binding, key))
    for destination, count in told.items():
        if not count:
            yield Step(current, destination, None, _why_without(judge))
    if current.onward is not None:
        yield Step(current, current.onward, None, "is handed everything that this exchange gets")


def _due_ms(exchange, headers, now_ms):
    if exchange.delayed_store is None or not headers:
        return 0
    at_ms, delay_ms = time_of(headers), delay_of(headers)
    return max(at_ms, now_ms) if at_ms else now_ms + delay_ms if delay_ms else 0


def _rule(exchange, binding, headers):
    """Make a function(key): True if this binding alone matches a message with that key and ``headers``."""
    if isinstance(exchange, DirectExchange):
        return lambda key: binding.routing_key == key
    if not isinstance(exchange, (TopicExchange, HeadersExchange)):
        return lambda key: True  # every binding of a found destination counts
    # One exchange for all keys: CC has up to a thousand.
    alone = type(exchange)(exchange.name, exchange.vhost, arguments=exchange.arguments)
    alone.bind(binding)

    def leads(key):
        targets: dict[Any, None] = {}
        alone.match(key, headers, targets)
        return bool(targets)

    return leads


def _why(exchange, binding, key):
    if isinstance(exchange, DirectExchange):
        return f"the binding's key is the message's, '{key}'"
    if isinstance(exchange, TopicExchange):
        return f"the pattern '{binding.routing_key}' matches '{key}'"
    if isinstance(exchange, FanoutExchange):
        return "a fanout exchange gives to every binding"
    if isinstance(exchange, HeadersExchange):
        mode = binding.arguments.get(X_MATCH, "all")
        return f"the headers satisfy the binding's arguments (x-match: {mode})"
    if isinstance(exchange, ConsistentHashExchange):
        return f"the hash falls to this destination, whose weight is {binding.routing_key}"
    if isinstance(exchange, ModulusHashExchange):
        return "the hash falls to this destination"
    if isinstance(exchange, RandomExchange):
        return "was chosen by chance among its bindings, the next message may go elsewhere"
    return f"an exchange of type {exchange.type} gives it to this binding"


def _why_without(exchange):
    return "it is named by the routing key" if not exchange.name else f"the rule of {exchange.type} chose it"
