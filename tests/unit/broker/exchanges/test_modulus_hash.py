"""Modulus hash exchange: equal keys go to one destination, whatever the bindings' keys."""
from tests.support.model import make_vhost, routed

KEYS = [f"key {number}" for number in range(200)]


def bound(names, times=1):
    vhost, _, _ = make_vhost()
    vhost.declare_exchange("x", "x-modulus-hash")
    for name in names:
        vhost.declare_queue(name)
        for number in range(times):
            vhost.bindings.bind_queue(name, "x", f"{number}")
    return vhost


def spread(vhost):
    return [routed(vhost, "x", key) for key in KEYS]


def test_keys_stay_where_they_are_over_a_restart_and_go_elsewhere_with_their_queue():
    """A restart makes the bindings in another order."""
    vhost = bound("abc")
    before = spread(vhost)

    assert spread(bound("cab", times=3)) == before
    assert sorted({name for (name,) in before}) == ["a", "b", "c"]
    vhost.delete_queue("b")
    assert sorted({name for (name,) in spread(vhost)}) == ["a", "c"]


def test_a_key_goes_to_the_destination_of_its_crc_32():
    """CRC-32 of "123456789" is cbf43926, the published check value: 2 modulo 4, 0 modulo 2."""
    for names, expected in (("abcd", "c"), ("ab", "a")):
        assert routed(bound(names), "x", "123456789") == [expected]


def test_destination_is_there_until_its_last_binding_goes():
    vhost = bound("a", times=2)
    vhost.bindings.unbind_queue("a", "x", "0")
    assert routed(vhost, "x", "k") == ["a"]

    vhost.bindings.unbind_queue("a", "x", "1")

    assert routed(vhost, "x", "k") == []
