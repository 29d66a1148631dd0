"""Lease: a leader is fenced at 0.8 of the time behind the last keepalive that it has sent in vain or not."""
from gomq_py.cluster.core.lease import NEVER_S, Lease


def test_a_lease_that_was_never_answered_is_past():
    lease = Lease(5.0)
    lease.sent(100.0)

    assert lease.deadline_s == NEVER_S
    assert lease.is_past(100.0)


def test_the_deadline_counts_from_the_sending():
    lease = Lease(5.0)
    lease.sent(100.0)

    lease.answered(100.0, True)

    assert lease.deadline_s == 104.0
    assert not lease.is_past(103.9)
    assert lease.is_past(104.0)


def test_a_late_answer_to_an_earlier_keepalive_takes_nothing_back():
    lease = Lease(5.0)
    lease.answered(102.0, True)

    lease.answered(101.0, True)

    assert lease.deadline_s == 106.0


def test_a_lease_that_has_ended_is_past_for_ever():
    lease = Lease(5.0)
    lease.answered(100.0, True)

    lease.answered(101.0, False)
    lease.answered(101.5, True)  # sent before, and overtaken

    assert lease.is_lost
    assert lease.is_past(100.0)


def test_a_keepalive_is_due_each_fifth_of_the_time():
    lease = Lease(5.0)

    assert lease.is_due(100.0)
    lease.sent(100.0)
    assert not lease.is_due(100.9)
    assert lease.is_due(101.0)


def test_a_clock_that_was_set_back_makes_a_keepalive_due():
    lease = Lease(5.0)
    lease.sent(100.0)

    assert lease.is_due(50.0)
