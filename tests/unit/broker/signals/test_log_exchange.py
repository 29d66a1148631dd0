"""Log exchange: lines as messages, and no line about a line."""
import pytest

from gomq_py.broker.signals import log_exchange
from gomq_py.broker.topology.vhost import VHost
from gomq_py.hub.scheduler import SliceClock
from gomq_py.observability.log import logger
from tests.support.clocks import StepClock
from tests.support.no_switch import no_switch
from tests.support.node import Node

LOG = logger("somewhere")


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path / "data", log_exchange=True)
    node.vhost.declare_queue("lines", durable=True)
    yield node
    node.stop()


def bind(node, key):
    node.vhost.bindings.bind_queue("lines", "amq.rabbitmq.log", key)


def test_line_is_a_message_whose_key_is_its_severity(node):
    bind(node, "warning")

    with no_switch():
        LOG.warning("the %s is\nnearly full", "disk")
        LOG.info("nothing special")
    node.wait(lambda: node.vhost.queue("lines").ready_count)

    assert node.take("lines")[0] == b"somewhere: the disk is\\nnearly full"
    assert node.take("lines") is None


def test_binding_to_the_log_survives(node, tmp_path):
    bind(node, "#")
    node.stop()

    again = Node(tmp_path / "data", log_exchange=True)

    assert [binding.routing_key for binding in again.vhost.exchange("amq.rabbitmq.log").bindings()] == ["#"]
    again.stop()
    node.stop = lambda: None


def test_flood_of_lines_keeps_the_latest(node, monkeypatch):
    bind(node, "error")

    for number in range(log_exchange.WAITING_LINES + 10):
        LOG.error("%d", number)
    node.wait(lambda: node.vhost.queue("lines").ready_count == log_exchange.WAITING_LINES)

    assert node.take("lines")[0] == b"somewhere: 10"


def test_lines_are_published_in_slices_of_time_and_in_order(node, monkeypatch):
    """A slice ends with its third line."""
    slices = []

    def clock():
        slices.append(None)
        return SliceClock(2.5, clock=StepClock(1))

    monkeypatch.setattr(log_exchange, "SliceClock", clock)
    bind(node, "error")

    for number in range(30):
        LOG.error("%d", number)
    node.wait(lambda: node.vhost.queue("lines").ready_count == 30)

    assert [node.take("lines")[0] for _ in range(30)] == [b"somewhere: %d" % number for number in range(30)]
    assert len(slices) == 10


def test_there_is_no_such_exchange_unless_it_is_asked_for(tmp_path):
    node = Node(tmp_path / "other")

    assert "amq.rabbitmq.log" not in node.vhost.exchanges
    node.stop()


def test_line_that_cannot_be_published_keeps_no_other_from_it(node, monkeypatch):
    bind(node, "error")
    route, failed = VHost.route, []

    def fail_once(vhost, *arguments):
        if not failed:
            failed.append(arguments)
            raise LookupError("it cannot be found")
        return route(vhost, *arguments)

    monkeypatch.setattr(VHost, "route", fail_once)

    LOG.error("first")
    LOG.error("second")
    node.wait(lambda: node.vhost.queue("lines").ready_count >= 1)

    assert failed and node.take("lines")[0] == b"somewhere: second"
