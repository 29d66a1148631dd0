"""VHost: declaring, deleting, binding, and what is refused with which words."""
import pytest

from gomq_py.broker.topology import steps as steps_module
from gomq_py.errors import (
    AccessRefused, NotFound, OutOfResources, PreconditionFailed, Refused, ResourceLocked, UnknownType,
)
from gomq_py.hub.scheduler import SliceClock
from tests.support.clocks import StepClock
from tests.support.model import make_vhost, routed

LOCKED = (
    "cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be originally declared on "
    "another connection or the exclusive property value does not match that of the original declaration."
)


@pytest.fixture
def vhost():
    return make_vhost()[0]


def refusal(call, *args, **options):
    """(class, text) of the error a call raises."""
    with pytest.raises(Refused) as refused:
        call(*args, **options)
    return type(refused.value), refused.value.text


# exchanges

def test_predeclared_exchanges_are_there(vhost):
    kinds = {
        name: (exchange.type, exchange.durable, exchange.internal)
        for name, exchange in vhost.exchanges.items()
    }

    assert kinds == {
        "": ("direct", True, False), "amq.direct": ("direct", True, False),
        "amq.fanout": ("fanout", True, False),
        "amq.headers": ("headers", True, False), "amq.match": ("headers", True, False),
        "amq.rabbitmq.trace": ("topic", True, True),
        "amq.topic": ("topic", True, False),
    }


def test_declaring_an_exchange_again_gives_the_same(vhost):
    first = vhost.declare_exchange(
        "x", "topic", durable=True, arguments={"alternate-exchange": "other", "ignored": 1}
    )
    again = vhost.declare_exchange("x", "topic", durable=1, arguments={"alternate-exchange": "other"})

    assert again is first


@pytest.mark.parametrize("properties, text", [
    (
        {"type_": "fanout"},
        "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'topic'",
    ),
    (
        {"durable": True},
        "inequivalent arg 'durable' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
    ),
    (
        {"auto_delete": True},
        (
            "inequivalent arg 'auto_delete' for exchange 'x' in vhost '/': "
            "received 'true' but current is 'false'"
        ),
    ),
    (
        {"internal": True},
        "inequivalent arg 'internal' for exchange 'x' in vhost '/': received 'true' but current is 'false'",
    ),
    (
        {"arguments": {"alternate-exchange": "foo"}},
        (
            "inequivalent arg 'alternate-exchange' for exchange 'x' in vhost '/': received the value 'foo' "
            "of type 'longstr' but current is none"
        ),
    ),
])
def test_declaring_an_exchange_differently_is_refused(vhost, properties, text):
    vhost.declare_exchange("x", "topic")

    assert refusal(vhost.declare_exchange, **{"name": "x", "type_": "topic", **properties}) == (
        PreconditionFailed, text
    )


def test_unknown_exchange_type_is_refused(vhost):
    kind, text = refusal(vhost.declare_exchange, "x", "nope")

    assert (kind, text) == (UnknownType, "unknown exchange type 'nope'")


@pytest.mark.parametrize("call", [
    lambda vhost: vhost.declare_exchange("", "direct"), lambda vhost: vhost.delete_exchange(""),
    lambda vhost: vhost.bindings.bind_queue("q", "", "k"),
    lambda vhost: vhost.bindings.unbind_queue("q", "", "k"),
    lambda vhost: vhost.bindings.bind_exchange("", "amq.topic", "k"),
    lambda vhost: vhost.bindings.bind_exchange("amq.topic", "", "k"),
    lambda vhost: vhost.bindings.unbind_exchange("", "amq.topic", "k"),
])
def test_default_exchange_takes_no_topology(vhost, call):
    vhost.declare_queue("q")

    assert refusal(call, vhost) == (AccessRefused, "operation not permitted on the default exchange")


def test_reserved_names_are_refused(vhost):
    assert refusal(vhost.declare_exchange, "amq.x", "topic") == (
        AccessRefused, "exchange name 'amq.x' contains reserved prefix 'amq.*'"
    )
    assert refusal(vhost.declare_queue, "amq.q") == (
        AccessRefused, "queue name 'amq.q' contains reserved prefix 'amq.*'"
    )
    assert refusal(vhost.delete_exchange, "amq.topic") == (
        AccessRefused, "deletion of system exchange 'amq.topic' in vhost '/' not allowed"
    )


def test_existing_reserved_exchange_may_be_declared_again(vhost):
    assert vhost.declare_exchange("amq.topic", "topic", durable=True) is vhost.exchanges["amq.topic"]


def test_line_breaks_are_dropped_from_names(vhost):
    vhost.declare_exchange("a\nb\r", "topic")
    vhost.declare_queue("n\r\nq")

    assert vhost.exchange("ab").name == "ab"
    assert vhost.bindings.bind_queue("nq\n", "\nab", "k")


def test_alternate_exchange_must_be_a_name(vhost):
    text = "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"

    assert refusal(vhost.declare_exchange, "x", "topic", arguments={"alternate-exchange": 5}) == (
        PreconditionFailed, text
    )


def test_deleting_an_exchange_in_use_can_be_refused(vhost):
    vhost.declare_exchange("x", "fanout")
    vhost.declare_queue("q")
    vhost.bindings.bind_queue("q", "x", "")

    assert refusal(vhost.delete_exchange, "x", if_unused=True) == (
        PreconditionFailed, "exchange 'x' in vhost '/' in use"
    )
    assert vhost.delete_exchange("x").name == "x"
    assert vhost.delete_exchange("x") is None


def test_auto_delete_exchange_goes_with_its_last_binding(vhost):
    vhost.declare_exchange("x", "fanout", auto_delete=True)
    vhost.declare_queue("q")
    vhost.bindings.bind_queue("q", "x", "1")
    vhost.bindings.bind_queue("q", "x", "2")

    vhost.bindings.unbind_queue("q", "x", "1")
    assert "x" in vhost.exchanges

    vhost.bindings.unbind_queue("q", "x", "2")
    assert "x" not in vhost.exchanges


def test_auto_delete_goes_up_a_chain_of_exchanges(vhost):
    vhost.declare_queue("q")
    for name in ("a", "b", "c"):
        vhost.declare_exchange(name, "fanout", auto_delete=True)
    vhost.bindings.bind_exchange("b", "a", "")
    vhost.bindings.bind_exchange("c", "b", "")
    vhost.bindings.bind_queue("q", "c", "")

    vhost.delete_queue("q")

    assert not {"a", "b", "c"} & set(vhost.exchanges)


def test_auto_delete_cycle_of_exchanges_ends(vhost):
    vhost.declare_exchange("a", "fanout", auto_delete=True)
    vhost.declare_exchange("b", "fanout", auto_delete=True)
    vhost.bindings.bind_exchange("b", "a", "")
    vhost.bindings.bind_exchange("a", "b", "")

    vhost.delete_exchange("a")

    assert not {"a", "b"} & set(vhost.exchanges)


def test_exchange_bound_to_itself_can_be_deleted(vhost):
    vhost.declare_exchange("a", "fanout", auto_delete=True)
    vhost.bindings.bind_exchange("a", "a", "")
    vhost.declare_queue("q")
    vhost.bindings.bind_queue("q", "a", "")

    assert routed(vhost, "a", "k") == ["q"]
    vhost.delete_exchange("a")

    assert vhost.bindings.to(vhost.queues["q"]) == []


# queues

def test_missing_entities_are_named(vhost):
    assert refusal(vhost.queue, "q") == (NotFound, "no queue 'q' in vhost '/'")
    assert refusal(vhost.exchange, "x") == (NotFound, "no exchange 'x' in vhost '/'")
    bindings, no_exchange = vhost.bindings, (NotFound, "no exchange 'x' in vhost '/'")
    assert refusal(bindings.bind_queue, "q", "x", "k") == no_exchange
    assert refusal(bindings.bind_queue, "q", "amq.topic", "k") == (NotFound, "no queue 'q' in vhost '/'")
    assert refusal(bindings.bind_exchange, "x", "amq.topic", "k") == no_exchange


def test_unbinding_and_deleting_what_is_not_there_is_fine(vhost):
    vhost.declare_queue("q")

    assert vhost.bindings.unbind_queue("nope", "amq.topic", "k") is False
    assert vhost.bindings.unbind_queue("q", "nope", "k") is False
    assert vhost.bindings.unbind_queue("q", "amq.topic", "k") is False
    assert vhost.bindings.unbind_exchange("nope", "amq.topic", "k") is False
    assert vhost.delete_queue("nope") == 0


@pytest.mark.parametrize("properties, key, text", [
    ({"durable": True}, "durable", "received 'true' but current is 'false'"),
    ({"auto_delete": True}, "auto_delete", "received 'true' but current is 'false'"),
    ({"arguments": {"x-message-ttl": 6}}, "x-message-ttl", "received '6' but current is '5'"),
    ({"arguments": {}}, "x-message-ttl", "received none but current is the value '5' of type 'signedint'"),
    ({"arguments": {"x-message-ttl": 5, "x-max-length": 1 << 40}}, "x-max-length",
     "received the value '1099511627776' of type 'long' but current is none"),
])
def test_declaring_a_queue_differently_is_refused(vhost, properties, key, text):
    vhost.declare_queue("q", arguments={"x-message-ttl": 5})

    error = refusal(vhost.declare_queue, **{"name": "q", "arguments": {"x-message-ttl": 5}, **properties})

    assert error == (PreconditionFailed, f"inequivalent arg '{key}' for queue 'q' in vhost '/': {text}")


def test_declaring_a_shared_queue_as_exclusive_is_refused(vhost):
    vhost.declare_queue("q", durable=True)

    assert refusal(vhost.declare_queue, "q", durable=True, exclusive=True, owner=object()) == (
        ResourceLocked, LOCKED
    )


@pytest.mark.parametrize("first, again", [
    ({}, {"x-unknown": 1}), ({"x-unknown": 1}, {}), ({"x-queue-type": "classic"}, {}),
    ({}, {"x-queue-type": "classic"}),
])
def test_declaring_a_queue_again_with_equal_arguments_gives_the_same(vhost, first, again):
    queue, created = vhost.declare_queue("q", arguments=first)
    same, created_again = vhost.declare_queue("q", arguments=again)

    assert created and not created_again
    assert same is queue


def test_queue_without_a_name_gets_one(vhost):
    first, _ = vhost.declare_queue("")
    second, _ = vhost.declare_queue("")

    assert first.name.startswith("amq.gen-")
    assert first.name != second.name


def test_queue_type_other_than_classic_needs_a_name(vhost):
    error = refusal(vhost.declare_queue, "", durable=True, arguments={"x-queue-type": "quorum"})

    assert error == (PreconditionFailed, "Cannot declare a server-named queue for type rabbit_quorum_queue")


def test_exclusive_queue_belongs_to_its_owner(vhost):
    owner, other = object(), object()
    vhost.declare_queue("q", exclusive=True, owner=owner)

    assert vhost.queue("q", owner).name == "q"
    for call in (
        lambda: vhost.queue("q", other), lambda: vhost.declare_queue("q", owner=other),
        lambda: vhost.declare_queue("q", exclusive=True, owner=other),
        lambda: vhost.declare_queue("q", owner=owner), lambda: vhost.delete_queue("q", owner=other),
        lambda: vhost.bindings.bind_queue("q", "amq.topic", "k", owner=other),
    ):
        assert refusal(call) == (ResourceLocked, LOCKED)


def test_binding_of_an_exclusive_queue_is_only_unbound_by_its_owner(vhost):
    owner, other = object(), object()
    vhost.declare_queue("q", exclusive=True, owner=owner)
    vhost.bindings.bind_queue("q", "amq.topic", "k", owner=owner)

    unbind_queue = vhost.bindings.unbind_queue
    assert refusal(unbind_queue, "q", "amq.topic", "k", owner=other) == (ResourceLocked, LOCKED)
    assert unbind_queue("q", "amq.topic", "no such", owner=other) is False
    assert vhost.bindings.unbind_queue("q", "amq.topic", "k", owner=owner) is True


def test_exclusive_queue_is_never_durable(vhost):
    owner = object()

    queue, _ = vhost.declare_queue("q", durable=True, exclusive=True, owner=owner)

    assert not queue.durable
    assert vhost.declare_queue("q", durable=False, exclusive=True, owner=owner) == (queue, False)


def test_exclusive_queues_go_with_their_owner():
    vhost, factory, _ = make_vhost()
    owner, other = object(), object()
    queue, _ = vhost.declare_queue("q", exclusive=True, owner=owner)
    vhost.declare_queue("r", exclusive=True, owner=other)
    vhost.bindings.bind_queue("q", "amq.fanout", "", owner=owner)

    assert vhost.release_owner(owner) == 1

    assert set(vhost.queues) == {"r"}
    assert factory.removed == [queue]
    assert owner not in vhost._exclusive


def cut_after(monkeypatch, steps):
    """Let a slice of what a vhost does end after so many steps."""
    monkeypatch.setattr(steps_module, "SliceClock", lambda clock: SliceClock(steps, clock=StepClock(1)))


def test_exclusive_queues_of_a_connection_that_is_gone_go_in_slices_and_are_locked_until_then(monkeypatch):
    cut_after(monkeypatch, 10)
    vhost, factory, _ = make_vhost()
    owner = object()
    for number in range(35):
        vhost.declare_queue(f"q{number}", exclusive=True, owner=owner)

    count = vhost.release_owner(owner)
    left = len(vhost.queues)
    with pytest.raises(ResourceLocked):
        vhost.declare_queue("q34", exclusive=True, owner=object())
    vhost.declare_queue("q0", exclusive=True, owner=object())
    factory.run_all()

    assert (count, left) == (35, 25)
    assert list(vhost.queues) == ["q0"] and owner not in vhost._exclusive


def test_bindings_of_a_deleted_exchange_go_in_slices(monkeypatch):
    cut_after(monkeypatch, 10)
    vhost, factory, _ = make_vhost()
    queue, _ = vhost.declare_queue("q")
    vhost.declare_queue("gone")
    vhost.declare_exchange("x", "topic")
    for number in range(35):
        vhost.bindings.bind_queue("gone" if number % 5 == 0 else "q", "x", f"k.{number}")

    vhost.delete_exchange("x")
    left = len(vhost.bindings.to(queue))
    vhost.delete_queue("gone")
    vhost.declare_exchange("x", "topic")
    vhost.bindings.bind_queue("q", "x", "k.30")
    factory.run_all()

    assert left == 20
    assert [binding.routing_key for binding in vhost.bindings.to(queue)] == ["k.30"]
    assert routed(vhost, "x", "k.30") == ["q"] and routed(vhost, "x", "k.1") == []
    assert vhost.exchanges["amq.fanout"].binding_count == 0


@pytest.mark.parametrize(("type_", "arguments"), [
    ("direct", {}), ("fanout", {}), ("topic", {}), ("headers", {}), ("x-random", {}),
    ("x-consistent-hash", {"x-algorithm": "ring"}),
    ("x-consistent-hash", {"x-algorithm": "jump"}), ("x-delayed-message", {"x-delayed-type": "direct"}),
])
def test_bindings_of_a_deleted_queue_count_no_more_and_go_in_slices(monkeypatch, type_, arguments):
    cut_after(monkeypatch, 10)
    vhost, factory, _ = make_vhost()
    exchange = vhost.declare_exchange("x", type_, arguments=arguments)
    doomed, _ = vhost.declare_queue("doomed")
    vhost.declare_queue("stays")
    for number in range(35):
        vhost.bindings.bind_queue("doomed", "x", "7", {"number": number, "x-match": "any"})
    vhost.bindings.bind_queue("stays", "x", "7", {"number": 30})
    keys_and_headers = [("7", {"number": number}) for number in range(35)]

    vhost.delete_queue("doomed")
    left = sum(exchange.departed.values())
    told = [routed(vhost, "x", key, headers) for key, headers in keys_and_headers]
    vhost.declare_queue("doomed")
    vhost.bindings.bind_queue("doomed", "x", "7", {"number": 34})
    shown = [(binding.destination.name, binding.arguments["number"]) for binding in exchange.bindings()]
    count = exchange.binding_count
    factory.run_all()

    assert left == 25
    assert told == [routed_to(type_, number) for number in range(35)]
    assert shown == [("stays", 30), ("doomed", 34)] and count == 2
    assert exchange.departed == {} and exchange.binding_count == 2 and exchange.bindings() == [
        *vhost.bindings.to(vhost.queue("stays")), *vhost.bindings.to(vhost.queue("doomed"))]
    assert {name for key, headers in keys_and_headers for name in routed(vhost, "x", key, headers)} <= {
        "stays", "doomed"
    }
    assert doomed not in vhost.route(exchange, "7", {"number": 1})


def routed_to(type_, number):
    """Where messages go when "stays" alone is left, which headers exchanges give one of them."""
    return ["stays"] if type_ != "headers" or number == 30 else []


def test_exchange_of_a_deleted_queue_with_very_many_bindings_is_as_without_them(monkeypatch):
    cut_after(monkeypatch, 10)
    vhost, factory, _ = make_vhost()
    for name in ("gone", "elsewhere"):
        vhost.declare_queue(name)
    vhost.declare_exchange("used", "topic", auto_delete=True)
    vhost.declare_exchange("asks", "topic", arguments={"alternate-exchange": "amq.fanout"})
    vhost.bindings.bind_queue("elsewhere", "amq.fanout", "")
    for number in range(30):
        vhost.bindings.bind_queue("gone", "used", f"k.{number}")
        vhost.bindings.bind_queue("gone", "asks", f"k.{number}")

    vhost.delete_queue("gone")
    told = routed(vhost, "asks", "k.29")
    names = set(vhost.exchanges)
    vhost.delete_exchange("asks", if_unused=True)
    factory.run_all()

    assert told == ["elsewhere"]
    assert "used" not in names
    assert "asks" not in vhost.exchanges


def test_delete_can_be_conditional(vhost):
    queue, _ = vhost.declare_queue("q")
    queue.ready_count, queue.consumer_count = 3, 1

    assert refusal(vhost.delete_queue, "q", if_unused=True) == (
        PreconditionFailed, "queue 'q' in vhost '/' in use"
    )
    assert refusal(vhost.delete_queue, "q", if_empty=True) == (
        PreconditionFailed, "queue 'q' in vhost '/' not empty"
    )
    assert vhost.delete_queue("q") == 3


def test_auto_delete_queue_goes_with_its_last_consumer(vhost):
    doomed, _ = vhost.declare_queue("q", auto_delete=True)
    staying, _ = vhost.declare_queue("r")

    doomed.lose_last_consumer()
    staying.lose_last_consumer()

    assert set(vhost.queues) == {"r"}


# bindings and the log

def test_binding_twice_is_one_binding(vhost):
    vhost.declare_queue("q")

    assert vhost.bindings.bind_queue("q", "amq.topic", "k", {"a": 1}) is True
    assert vhost.bindings.bind_queue("q", "amq.topic", "k", {"a": 1}) is False
    assert vhost.bindings.bind_queue("q", "amq.topic", "k", {"a": True}) is True
    assert vhost.bindings.unbind_queue("q", "amq.topic", "k", {"a": 1}) is True
    assert routed(vhost, "amq.topic", "k") == ["q"]


def test_only_what_is_durable_is_recorded():
    vhost, _, log = make_vhost()
    vhost.declare_exchange("x", "topic", durable=True)
    vhost.declare_exchange("transient", "topic")
    vhost.declare_queue("q", durable=True)
    vhost.declare_queue("transient")
    for queue in ("q", "transient"):
        for exchange in ("x", "transient"):
            vhost.bindings.bind_queue(queue, exchange, "k")
    vhost.bindings.unbind_queue("q", "transient", "k")
    vhost.bindings.unbind_queue("q", "x", "k")
    vhost.delete_queue("transient")
    vhost.delete_exchange("transient")

    assert [(record["op"], record.get("name", record.get("source"))) for record in log.records] == [
        ("exchange", "x"), ("queue", "q"), ("bind", "x"), ("unbind", "x"),
    ]


def test_declare_that_cannot_be_recorded_changes_nothing():
    vhost, factory, log = make_vhost()
    log.error = OSError(28, "No space left on device")

    kind, text = refusal(vhost.declare_queue, "q", durable=True)

    assert (kind, text) == (
        OutOfResources, "cannot write the definitions of vhost '/': No space left on device"
    )
    assert "q" not in vhost.queues
    assert [queue.name for queue in factory.removed] == ["q"]
    assert refusal(vhost.declare_exchange, "x", "topic", durable=True)[0] is OutOfResources
    assert "x" not in vhost.exchanges


def test_deleting_a_queue_removes_its_bindings(vhost):
    vhost.declare_queue("q")
    vhost.bindings.bind_queue("q", "amq.topic", "k")

    vhost.delete_queue("q")
    vhost.declare_queue("q")

    assert routed(vhost, "amq.topic", "k") == []


def test_route_by_key_gives_up_where_an_exchange_on_the_way_looks_at_headers(vhost):
    vhost.declare_exchange("first", "topic")
    vhost.declare_exchange("second", "headers")
    vhost.declare_queue("q")
    vhost.bindings.bind_queue("q", "first", "plain")
    vhost.bindings.bind_exchange("second", "first", "deep")

    assert [queue.name for queue in vhost.route_by_key(vhost.exchange("first"), "plain")] == ["q"]
    assert vhost.route_by_key(vhost.exchange("first"), "deep") is None
    assert vhost.route_by_key(vhost.exchange("second"), "any") is None


@pytest.mark.parametrize(("arguments", "text"), [
    (
        {"x-message-deduplication": "yes"},
        "invalid arg 'x-message-deduplication' for exchange 'x' in vhost '/': {unacceptable_type,longstr}",
    ),
    ({"x-cache-size": -1}, "invalid arg 'x-cache-size' for exchange 'x' in vhost '/': {value_negative,-1}"),
    (
        {"x-cache-ttl": "1"},
        "invalid arg 'x-cache-ttl' for exchange 'x' in vhost '/': \"expected integer, got longstr\"",
    ),
    (
        {"x-deduplication-header": 1},
        "invalid arg 'x-deduplication-header' for exchange 'x' in vhost '/': {unacceptable_type,signedint}",
    ),
    (
        {"alternate-exchange": 1},
        "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'",
    ),
    (
        {"x-alternate-exchange": []},
        "invalid type 'array' for arg 'x-alternate-exchange' in exchange 'x' in vhost '/'",
    ),
])
def test_bad_argument_of_an_exchange_is_refused(vhost, arguments, text):
    with pytest.raises(PreconditionFailed) as refused:
        vhost.declare_exchange("x", "direct", arguments=arguments)
    assert refused.value.text == text


@pytest.mark.parametrize("arguments", [
    {}, {"x-delayed-type": "no-such-type"}, {"x-delayed-type": 5}, {"x-delayed-type": "x-delayed-message"}
])
def test_delayed_exchange_needs_a_type_that_routes(vhost, arguments):
    with pytest.raises(PreconditionFailed) as refused:
        vhost.declare_exchange("x", "x-delayed-message", arguments=arguments)
    assert refused.value.text == "Invalid argument, 'x-delayed-type' must be an existing exchange type"
