"""Guessing is slow for whoever guesses; a right password comes through.

The clock stands still unless a test moves it.
"""

import gevent
import gevent.event
import pytest

from gomq_py.auth import login_throttle
from gomq_py.auth.login_throttle import FAILURES_OF_ADDRESS, FAILURES_OF_NAME, WAITING, LoginThrottle
from gomq_py.auth.errors import TooManyAttempts
from tests.support.waiting import in_time

HERE = "192.0.2.1"


class Guesser:
    """Attempts over a clock that a test moves."""

    def __init__(self):
        self.now_s = 1000.0
        self.throttle = LoginThrottle(lambda: self.now_s)
        self.checked = []

    def fail(self, name="bob", address=HERE):
        """A wrong password."""
        with self.throttle.attempt(name, address):
            self.checked.append(name)

    def succeed(self, name="bob", address=HERE):
        """A right one."""
        with self.throttle.attempt(name, address) as attempt:
            self.checked.append(name)
            attempt.succeeded()

    def come(self, verb, *arguments):
        """The same in a greenlet, which has gone as far as it can."""
        greenlet = gevent.spawn(verb, *arguments)
        polls(3)
        return greenlet


def polls(count):
    for _ in range(count):
        gevent.sleep(0)


@pytest.fixture
def guesser():
    return Guesser()


@pytest.fixture
def forgetful(monkeypatch):
    """Failures are forgotten as fast as a test can wait."""
    monkeypatch.setattr(login_throttle, "FORGOTTEN_A_SECOND_OF_NAME", 1000.0)
    monkeypatch.setattr(login_throttle, "FORGOTTEN_A_SECOND_OF_ADDRESS", 1000.0)


def waits(greenlet):
    """Whether it waits; it is over then."""
    ready = greenlet.ready()
    greenlet.kill()
    return not ready


def fail_often(guesser, count=FAILURES_OF_NAME, name="bob", address=HERE):
    for _ in range(count):
        guesser.fail(name, address)


def test_who_failed_as_often_as_allowed_waits_whether_the_next_password_is_right_or_wrong(guesser):
    fail_often(guesser)

    right, wrong = guesser.come(guesser.succeed), guesser.come(guesser.fail)

    assert waits(right) and waits(wrong) and len(guesser.checked) == FAILURES_OF_NAME


def test_others_do_not_wait_for_whoever_guesses(guesser):
    fail_often(guesser)

    guesser.succeed("alice")
    guesser.succeed("bob", "192.0.2.2")

    assert guesser.checked[-2:] == ["alice", "bob"]


def test_own_valid_logins_in_between_make_no_more_guesses(guesser):
    for _ in range(FAILURES_OF_NAME):
        guesser.succeed("mallory")
        guesser.succeed()
        guesser.fail()

    assert waits(guesser.come(guesser.fail))


def test_failures_are_forgotten_one_by_one(guesser):
    fail_often(guesser)
    guesser.now_s += 1 / login_throttle.FORGOTTEN_A_SECOND_OF_NAME

    guesser.succeed()
    guesser.fail()

    assert waits(guesser.come(guesser.fail))


def test_a_right_password_comes_through_in_the_end(forgetful):
    guessing = LoginThrottle()
    for _ in range(FAILURES_OF_NAME + 5):
        with guessing.attempt("bob", HERE):
            pass

    with guessing.attempt("bob", HERE) as attempt:
        attempt.succeeded()


def test_who_waits_is_checked_in_order(guesser):
    fail_often(guesser)
    first, second = guesser.come(guesser.succeed), guesser.come(guesser.succeed)
    guesser.now_s += 1000

    gevent.kill(first)  # its client has gone: the next one looks at the clock
    second.join(timeout=in_time(30))

    assert second.successful() and len(guesser.checked) == FAILURES_OF_NAME + 1


def test_many_at_once_are_no_more_guesses_than_one_after_the_other(guesser):
    begun, ended = [], gevent.event.Event()

    def slowly():
        with guesser.throttle.attempt("bob", HERE):
            begun.append(1)
            ended.wait()

    greenlets = [gevent.spawn(slowly) for _ in range(FAILURES_OF_NAME * 2)]
    polls(3)
    assert len(begun) == FAILURES_OF_NAME
    ended.set()
    polls(5)

    assert len(begun) == FAILURES_OF_NAME
    gevent.killall(greenlets)


def test_many_right_ones_at_once_all_come_in(guesser):
    """A fleet that reconnects, while its password is hashed for the first time."""
    hashed, within = gevent.event.Event(), []

    def slowly():
        with guesser.throttle.attempt("bob", HERE) as attempt:
            within.append(1)
            hashed.wait()
            attempt.succeeded()

    greenlets = [gevent.spawn(slowly) for _ in range(FAILURES_OF_NAME * 10)]
    polls(3)
    hashed.set()
    gevent.joinall(greenlets, timeout=in_time(30), raise_error=True)

    assert len(within) == FAILURES_OF_NAME * 10


def test_more_than_may_wait_are_refused_unchecked_and_told_when_to_come_again(guesser):
    fail_often(guesser)
    row = [gevent.spawn(guesser.fail) for _ in range(WAITING)]
    polls(3)

    with pytest.raises(TooManyAttempts) as refused:
        guesser.succeed()

    assert refused.value.retry_after_s == WAITING / login_throttle.FORGOTTEN_A_SECOND_OF_NAME
    assert len(guesser.checked) == FAILURES_OF_NAME
    gevent.killall(row)


def test_those_who_came_before_others_had_failed_are_refused_likewise(guesser):
    """They came while costly hashes were computed."""
    hashed, refused = gevent.event.Event(), []

    def slowly(number):
        try:
            with guesser.throttle.attempt("bob", HERE):
                hashed.wait()
        except TooManyAttempts as error:
            refused.append((number, error.retry_after_s))

    greenlets = [gevent.spawn(slowly, number) for number in range(FAILURES_OF_NAME + WAITING + 50)]
    polls(3)
    assert not refused
    hashed.set()
    gevent.joinall(greenlets[-50:], timeout=in_time(30), raise_error=True)

    assert sorted(number for number, _ in refused) == list(range(FAILURES_OF_NAME + WAITING, len(greenlets)))
    assert {retry_after_s for _, retry_after_s in refused} == {
        WAITING / login_throttle.FORGOTTEN_A_SECOND_OF_NAME}
    assert sum(not greenlet.ready() for greenlet in greenlets) == WAITING
    gevent.killall(greenlets)
    assert guesser.come(guesser.fail, "eve").successful()


def test_one_password_for_many_names_is_slowed_down_by_address(guesser):
    for number in range(FAILURES_OF_ADDRESS):
        guesser.fail(f"user{number}")

    assert waits(guesser.come(guesser.fail, "one more"))
    guesser.succeed("one more", "192.0.2.2")


def test_who_was_let_in_from_an_address_does_not_wait_for_its_other_guessers(guesser):
    """Everybody behind a proxy or a router has one address."""
    guesser.succeed("operator")
    for number in range(FAILURES_OF_ADDRESS):
        guesser.fail(f"user{number}")

    guesser.succeed("operator")

    fail_often(guesser, name="operator")
    assert waits(guesser.come(guesser.succeed, "operator"))


def test_a_check_that_was_broken_off_counts_as_failed(guesser):
    for _ in range(FAILURES_OF_NAME):
        with pytest.raises(RuntimeError), guesser.throttle.attempt("bob", HERE):
            raise RuntimeError

    assert waits(guesser.come(guesser.fail))


def test_what_is_remembered_is_bounded(guesser, monkeypatch):
    monkeypatch.setattr(login_throttle, "REMEMBERED", 10)

    for number in range(100):
        guesser.succeed(f"user{number}", f"192.0.2.{number}")
        guesser.fail("n" * 100_000, f"192.0.3.{number}")

    kept = (guesser.throttle._names._counters, guesser.throttle._addresses._counters, guesser.throttle._known)
    assert [len(one) for one in kept] == [10, 10, 10]
    assert max(len(name) for _, name in guesser.throttle._names._counters) == login_throttle.NAME_LENGTH


def test_forgotten_failures_are_not_kept_until_there_are_very_many(guesser):
    for number in range(1000):
        guesser.fail(f"user{number}", f"192.0.2.{number % 250}")
        guesser.now_s += 1

    kept = (guesser.throttle._names._counters, guesser.throttle._addresses._counters)
    assert max(len(one) for one in kept) < 10
    assert not waits(guesser.come(guesser.succeed))


def test_flood_of_names_that_are_refused_with_their_address_makes_no_more_guesses(guesser):
    guesser.succeed()
    fail_often(guesser)
    for number in range(FAILURES_OF_ADDRESS):
        guesser.fail(f"stranger {number}")
    waiting = [guesser.come(guesser.fail, f"waits {number}") for number in range(WAITING)]

    for number in range(login_throttle.REMEMBERED):
        with pytest.raises(TooManyAttempts):
            guesser.fail(f"refused {number}")

    assert waits(guesser.come(guesser.fail))
    gevent.killall(waiting)
