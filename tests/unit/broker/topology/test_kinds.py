"""Kinds: what somebody registers besides the queues and exchanges that every broker has, over restarts,
to clients and in exports.
"""
import os

import pytest

from gomq_py.broker.exchanges.fanout import FanoutExchange
from gomq_py.broker.policies.vhost_policies import PolicyComponent
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.routing.route import Destination
from gomq_py.broker.topology.definitions import Importer, exported
from gomq_py.broker.topology.kinds import Kinds, QueueKind
from gomq_py.broker.verbs import queues
from gomq_py.broker.verbs.access import Access
from gomq_py.ctl.offline import Definitions
from gomq_py.errors import AccessRefused, OutOfResources, PreconditionFailed, Refused, UnknownType
from tests.support.model import make_vhost, routed
from tests.support.node import Node

OWN = {"x-queue-type": "own"}


class OwnQueue(Queue):
    """Tells what becomes of it; only its owner takes messages from it."""

    def __init__(self, parts, told):
        super().__init__(
            parts.name, parts.vhost, parts.store, parts.scheduler, parts.durable, parts.owner,
            parts.auto_delete, parts.arguments)
        self.told = told
        told.append(("made", parts.name, parts.store.ready_count))

    def check_taking(self):
        raise AccessRefused("it is somebody's own")

    def on_deleted(self, reason):
        self.told.append(("deleted", reason))


class OwnExchange(FanoutExchange):
    """A fanout under another name."""

    type = "own"


class Sink(Destination):
    """Has no store and no name that anybody finds it by; keeps what it gets."""

    def __init__(self):
        super().__init__("")
        self.got = []

    def publish(self, message):
        self.got.append(message.get_body())
        return 1


def own_kinds(told=None):
    """A queue kind and an exchange type "own", names below "own.", and own.default,
    which gets what amq.topic gets.
    """
    kinds = Kinds()
    told = [] if told is None else told
    kinds.add_queue_kind(QueueKind(
        name="own", make=lambda parts: OwnQueue(parts, told), is_state=True,
        left_out=frozenset(("max-length",))))
    kinds.add_exchange_type(OwnExchange)
    kinds.predeclare("own.default", "own", internal=True)
    kinds.reserve("own.")
    kinds.on_vhost(lambda vhost: vhost.set_onward(vhost.exchange("amq.topic"), vhost.exchange("own.default")))
    return kinds


@pytest.fixture
def told():
    return []


@pytest.fixture
def nodes(tmp_path, told):
    """A function that boots a node over the same folder, after the one before has stopped;
    at the end the last one stops.
    """
    running = []

    def boot(kinds=None):
        if running:
            running.pop().stop()
        running.append(Node(tmp_path / "data", kinds=own_kinds(told) if kinds is None else kinds))
        return running[0]

    yield boot
    running.pop().stop()


def refusal(call, *args, **options):
    """(class, text) of the error a call raises."""
    with pytest.raises(Refused) as refused:
        call(*args, **options)
    return type(refused.value), refused.value.text


def own_vhost(kinds=None):
    """(vhost, log) with the kinds, without a disk."""
    kinds = own_kinds() if kinds is None else kinds
    vhost, _, log = make_vhost(kinds=kinds)
    return vhost, log


# over restarts

def test_registered_queue_and_its_binding_to_a_predeclared_exchange_survive_a_restart(nodes, told):
    node = nodes()
    queue = node.vhost.create_queue("own.q", True, False, OWN)
    node.vhost.bindings.attach(node.vhost.exchange("own.default"), queue, "k", {"x-number": 1})
    node.publish("amq.topic", "a.b", b"kept", persistent=True)

    again = nodes().vhost

    queue = again.queue("own.q")
    assert (type(queue), queue.arguments, queue.ready_count) == (OwnQueue, OWN, 1)
    assert [(binding.routing_key, binding.arguments) for binding in again.bindings.to(queue)] == [
        ("k", {"x-number": 1})
    ]
    assert routed(again, "amq.topic", "any") == ["own.q"]
    assert told == [("made", "own.q", 0), ("made", "own.q", 1)]


def test_registered_exchange_type_that_clients_may_declare_survives_a_restart(nodes):
    def kinds():
        found = Kinds()
        found.add_exchange_type(OwnExchange, declarable=True)
        return found

    nodes(kinds()).vhost.declare_exchange("x", "own", durable=True)

    assert type(nodes(kinds()).vhost.exchange("x")) is OwnExchange


def test_queue_of_a_kind_that_is_not_known_costs_itself_and_keeps_its_messages(nodes, tmp_path, caplog):
    """As after a step back to an earlier version."""
    node = nodes()
    node.vhost.create_queue("own.q", True, False, OWN)
    node.vhost.declare_queue("plain", durable=True)
    node.vhost.bindings.bind_queue("own.q", "amq.fanout", "")
    node.publish("amq.fanout", "", b"kept", persistent=True)

    vhost = nodes(Kinds()).vhost

    assert list(vhost.queues) == ["plain"]
    assert "queue 'own.q' in vhost '/' is left out: unknown queue type 'own'" in caplog.text
    assert len(os.listdir(tmp_path / "data" / "set-aside")) == 1 and "are lost" not in caplog.text


def test_predeclared_exchange_stands_in_no_log(nodes):
    nodes()

    assert "own.default" not in nodes(Kinds()).vhost.exchanges


def test_exchange_of_an_earlier_run_gives_way_to_a_predeclared_one_of_its_name(nodes, caplog):
    nodes(Kinds()).vhost.declare_exchange("own.default", "direct", durable=True)

    exchange = nodes().vhost.exchange("own.default")

    assert exchange.type == "own"
    assert (
        "exchange 'own.default' in vhost '/' is left out: exchange 'own.default' in vhost '/' is predeclared"
        in caplog.text
    )


def test_queue_that_had_its_name_before_the_prefix_was_reserved_goes_on(nodes):
    nodes(Kinds()).vhost.declare_queue("own.old", durable=True)
    vhost = nodes().vhost

    assert vhost.declare_queue("own.old", durable=True) == (vhost.queue("own.old"), False)


@pytest.mark.parametrize("restart", [False, True])
def test_redefined_queue_has_its_new_arguments_and_settings(nodes, restart):
    vhost = nodes().vhost
    queue = vhost.create_queue("own.q", True, False, {**OWN, "x-expires": 1000})

    vhost.redefine_queue(queue, {**OWN, "x-expires": 60_000})

    queue = (nodes().vhost if restart else vhost).queue("own.q")
    assert queue.arguments == {**OWN, "x-expires": 60_000}
    assert queue.limits.settings.expires_ms == 60_000


def test_restarted_queue_is_of_its_kind(nodes):
    node = nodes()
    queue = node.vhost.create_queue("own.q", True, False, OWN)
    queue.store.fence(OSError(5, "the disk failed"))

    node.vhost.restart_queue(queue)

    assert type(node.vhost.queue("own.q")) is OwnQueue and node.vhost.queue("own.q").is_state


# to clients

def test_state_of_clients_is_not_reached_by_its_name(nodes):
    node = nodes()
    node.vhost.create_queue("own.q", True, False, OWN)
    node.vhost.declare_queue("q")

    assert node.vhost.route(node.vhost.exchange(""), "own.q") == ()
    assert node.vhost.route(node.vhost.exchange(""), "q") == (node.vhost.queue("q"),)


def test_kinds_that_are_not_declarable_are_refused_as_if_there_were_none():
    vhost, _ = own_vhost()

    assert refusal(vhost.declare_exchange, "x", "own") == (UnknownType, "unknown exchange type 'own'")
    assert refusal(vhost.declare_queue, "q", durable=True, arguments=OWN) == (
        PreconditionFailed,
        "invalid arg 'x-queue-type' for queue 'q' in vhost '/': \"unsupported queue type 'own'\"")


def test_names_below_a_reserved_prefix_are_refused():
    vhost, _ = own_vhost()

    assert refusal(vhost.declare_queue, "own.q") == (
        AccessRefused, "queue name 'own.q' contains reserved prefix 'own.*'"
    )
    assert refusal(vhost.declare_exchange, "own.x", "fanout") == (
        AccessRefused, "exchange name 'own.x' contains reserved prefix 'own.*'"
    )


def test_predeclared_exchange_cannot_be_deleted():
    vhost, _ = own_vhost()

    assert refusal(vhost.delete_exchange, "own.default") == (
        AccessRefused, "deletion of system exchange 'own.default' in vhost '/' not allowed")


def test_queue_says_who_may_take_from_it_and_can_be_purged_all_the_same(nodes):
    node = nodes()
    node.vhost.create_queue("own.q", True, False, OWN)
    node.vhost.bindings.bind_queue("own.q", "amq.fanout", "")
    node.publish("amq.fanout", "")
    caller = Caller(node)

    assert refusal(queues.to_take_from, caller, "own.q") == (AccessRefused, "it is somebody's own")
    assert queues.purge(caller, "own.q") == (node.vhost.queue("own.q"), 1)


class Caller:
    """The first user, in the vhost /."""

    def __init__(self, node):
        self.vhost, self.owner = node.vhost, None
        self.access = Access(node.broker.users.get("guest"), "/")


def test_limit_of_a_vhost_counts_queues_of_every_kind():
    vhost, _ = own_vhost()
    vhost.limits["max-queues"] = 1
    vhost.create_queue("own.q", True, False, OWN)

    assert refusal(vhost.create_queue, "own.r", True, False, OWN)[0] is PreconditionFailed


# policies

@pytest.mark.parametrize("apply_to", ["all", "queues"])
def test_policy_for_queues_applies_to_a_registered_kind_but_for_what_it_leaves_out(apply_to):
    vhost, _ = own_vhost()
    queue = vhost.create_queue("own.q", True, False, OWN)

    definition = {"max-length": 1, "message-ttl": 5}
    PolicyComponent().changed(vhost, "p", {"pattern": "", "definition": definition, "apply-to": apply_to})

    assert queue.in_force.definition == {"message-ttl": 5}


@pytest.mark.parametrize("apply_to", ["classic_queues", "quorum_queues", "streams", "exchanges"])
def test_policy_for_other_kinds_passes_a_registered_one_by(apply_to):
    vhost, _ = own_vhost()
    queue = vhost.create_queue("own.q", True, False, OWN)

    PolicyComponent().changed(
        vhost, "p", {"pattern": "own", "definition": {"tee-to-stream": "s"}, "apply-to": apply_to}
    )

    assert queue.in_force.definition == {}


# exports

@pytest.mark.parametrize("export", [
    lambda node, path: exported(node.broker),
    lambda node, path: Definitions(path, own_kinds()).exported(),
])
def test_state_and_what_is_predeclared_are_in_no_export(nodes, tmp_path, export):
    node = nodes()
    state = node.vhost.create_queue("own.q", True, False, OWN)
    node.vhost.declare_queue("plain", durable=True)
    for queue in (state, node.vhost.queue("plain")):
        node.vhost.bindings.attach(node.vhost.exchange("own.default"), queue, "k")
    node.vhost.bindings.attach(node.vhost.exchange("own.default"), Sink(), "k")
    node.committer.wait()
    node.wait(lambda: not node.committer._is_syncing, what="the log is not written")

    definitions = export(node, tmp_path / "data")

    assert [queue["name"] for queue in definitions["queues"]] == ["plain"]
    assert definitions["exchanges"] == []
    assert [(binding["source"], binding["destination"]) for binding in definitions["bindings"]] == [
        ("own.default", "plain")
    ]


def test_import_passes_by_what_is_predeclared(nodes):
    node = nodes()

    report = Importer(node.broker).run(
        {"exchanges": [{"vhost": "/", "name": "own.default", "type": "direct"}]}
    )

    assert (report.imported, report.problems) == ({}, [])


# ends

def test_queue_hears_that_it_was_deleted(nodes, told):
    vhost = nodes().vhost
    vhost.create_queue("own.q", True, False, OWN)

    vhost.delete_queue("own.q")

    assert told[1:] == [("deleted", "queue 'own.q' in vhost '/' deleted")]


def test_queue_hears_that_its_vhost_was_deleted(nodes, told):
    node = nodes()
    node.broker.create_vhost("v").create_queue("own.q", True, False, OWN)

    node.broker.delete_vhost("v")
    node.wait(lambda: not node.broker.leaving, what="the vhost is not gone")

    assert told[1:] == [("deleted", "vhost 'v' deleted")]


def test_queue_that_only_stops_was_not_deleted(nodes, told):
    nodes().vhost.create_queue("own.q", True, False, OWN)

    nodes()

    assert [what for what, *_ in told] == ["made", "made"]


# redefining

def test_redefining_with_equal_arguments_writes_nothing():
    vhost, log = own_vhost()
    queue = vhost.create_queue("own.q", True, False, {**OWN, "x-number": 1})
    before = list(log.records)

    vhost.redefine_queue(queue, {"x-number": 1, **OWN})

    assert log.records == before


def test_number_that_becomes_a_truth_value_is_another_argument():
    vhost, log = own_vhost()
    queue = vhost.create_queue("own.q", True, False, {**OWN, "x-is": 1})

    vhost.redefine_queue(queue, {**OWN, "x-is": True})

    assert log.records[-1]["arguments"]["x-is"] is True


def test_queue_that_cannot_be_recorded_keeps_its_arguments():
    vhost, log = own_vhost()
    queue = vhost.create_queue("own.q", True, False, {**OWN, "x-number": 1})
    log.error = OSError(28, "No space left on device")

    with pytest.raises(OutOfResources):
        vhost.redefine_queue(queue, {**OWN, "x-number": 2})

    assert queue.arguments == {**OWN, "x-number": 1}


def test_transient_queue_is_redefined_without_a_record():
    vhost, log = own_vhost()
    queue = vhost.create_queue("own.q", False, False, OWN, owner=object())

    vhost.redefine_queue(queue, {**OWN, "x-number": 2})

    assert (queue.arguments["x-number"], log.records) == (2, [])


# destinations without a name

def test_sink_is_attached_and_detached_by_itself_and_leaves_no_record():
    vhost, log = own_vhost()
    one, other = Sink(), Sink()
    source = vhost.exchange("amq.direct")

    assert (
        vhost.bindings.attach(source, one, "k") and vhost.bindings.attach(source, other, "k")
        and not vhost.bindings.attach(source, one, "k")
    )
    both = vhost.route(source, "k")
    assert vhost.bindings.detach(source, one, "k") and not vhost.bindings.detach(source, one, "k")

    assert (set(both), vhost.route(source, "k"), log.records) == ({one, other}, (other,), [])


def test_sink_that_is_gone_leaves_every_exchange():
    vhost, _ = own_vhost()
    sink = Sink()
    sources = [vhost.exchange(name) for name in ("amq.direct", "amq.topic")]
    for source in sources:
        vhost.bindings.attach(source, sink, "k")
    before = [source.state.revision for source in sources]

    vhost.bindings.remove_to(sink)

    assert [vhost.route(source, "k") for source in sources] == [(), ()]
    assert vhost.bindings.to(sink) == [] and [source.binding_count for source in sources] == [0, 0]
    assert all(
        later > earlier
        for earlier, later in zip(before, [source.state.revision for source in sources], strict=True)
    )


def test_attaching_a_durable_queue_is_recorded_and_so_is_detaching_it():
    vhost, log = own_vhost()
    queue = vhost.create_queue("own.q", True, False, OWN)
    source = vhost.exchange("amq.direct")

    vhost.bindings.attach(source, queue, "k", {"x-number": 1})
    vhost.bindings.detach(source, queue, "k", {"x-number": 1})

    assert [(record["op"], record["key"]) for record in log.records[1:]] == [("bind", "k"), ("unbind", "k")]
