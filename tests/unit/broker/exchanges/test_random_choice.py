"""Random exchange: one of them, any of them."""
from tests.support.model import make_vhost, routed


def test_each_message_goes_to_one_and_in_time_to_all():
    vhost, _, _ = make_vhost()
    vhost.declare_exchange("x", "x-random")
    for name in "abc":
        vhost.declare_queue(name)
        vhost.bindings.bind_queue(name, "x", "ignored")

    drawn = [routed(vhost, "x", "same key") for _ in range(200)]

    assert all(len(queues) == 1 for queues in drawn)
    assert {queues[0] for queues in drawn} == {"a", "b", "c"}
    assert vhost.exchange("x").needs_headers


def test_unbound_ones_get_nothing():
    vhost, _, _ = make_vhost()
    vhost.declare_exchange("x", "x-random")
    vhost.declare_queue("a")
    vhost.bindings.bind_queue("a", "x", "")
    vhost.bindings.unbind_queue("a", "x", "")

    assert routed(vhost, "x", "k") == []
