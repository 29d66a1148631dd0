"""The budget for message bodies received in part."""
import pytest

from gomq_py.hub.budget import BodyBudget
from tests.support.virtual_time import VirtualTime


class Of:
    """In place of a connection's output."""

    def __init__(self, account=("guest", "/")):
        self.account = account


class Body:
    """A body that counts what it is told."""

    def __init__(self, name, beside=None, account=("guest", "/")):
        """``beside``: another one of the same connection."""
        self.name = name
        self.output = Of(account) if beside is None else beside.output
        self.resumed = 0
        self.failures = []
        self.is_held_up = False

    def __repr__(self):
        return self.name

    def resume_held(self):
        self.resumed += 1

    def give_up(self, why):
        self.failures.append(why)


@pytest.fixture
def later():
    return VirtualTime()


@pytest.fixture
def budget(later):
    budget = BodyBudget(100, later, later.clock)
    yield budget
    budget.close()


@pytest.fixture
def first():
    return Body("first")


@pytest.fixture
def second():
    return Body("second")


def test_bodies_within_the_limit_go_on(budget, first, second):
    assert budget.grow(first, 60)
    assert budget.grow(second, 40)
    assert budget.held == 100


def test_body_over_the_limit_has_to_wait(budget, first, second):
    budget.grow(first, 60)

    assert not budget.grow(second, 41)
    assert second.resumed == 0


def test_oldest_body_goes_on_whatever_the_limit(budget, first, second):
    budget.grow(first, 60)
    budget.grow(second, 60)

    assert budget.grow(first, 1000)


def test_bodies_of_one_connection_do_not_wait_for_each_other_before_they_have_all_of_the_limit(budget, first):
    second, third = Body("second"), Body("third", beside=first)
    budget.grow(first, 50)
    budget.grow(second, 60)

    assert budget.grow(third, 50)
    assert not budget.grow(third, 1)
    budget.release(first)
    assert (second.resumed, third.resumed) == (1, 0)


def test_body_why_in_vain_for_an_older_one_of_its_connection_that_has_all_of_the_limit(budget, first, second):
    third = Body("third", beside=second)
    budget.grow(first, 10)

    assert not budget.grow(second, 150) and not budget.why_in_vain(second)
    assert not budget.grow(third, 1) and budget.why_in_vain(third)
    budget.release(second)
    assert not budget.why_in_vain(third)


def test_body_goes_on_when_another_of_its_connection_is_the_oldest(budget, first):
    second, third = Body("second"), Body("third")
    fourth = Body("fourth", beside=second)
    for body in (first, second, third, fourth):
        budget.grow(body, 45)

    budget.release(first)

    assert (second.resumed, third.resumed, fourth.resumed) == (0, 0, 1)


def test_bodies_that_have_grown_by_nothing_go_on_with_the_oldest_of_their_connection(budget, first, second):
    others = Body("third", beside=first), Body("fourth", beside=first)
    for body, octets in ((first, 0), (others[0], 0), (others[1], 60), (second, 150)):
        budget.grow(body, octets)
    budget.count_whole(90)
    assert not budget.grow(others[0], 0)
    budget.release(others[1])

    budget.count_whole(-90)

    assert (others[0].resumed, second.resumed) == (1, 1)  # the first within its share


def test_waiting_body_is_resumed_when_there_is_room(budget, first, second):
    budget.grow(first, 60)
    budget.grow(second, 60)

    budget.release(first)

    assert second.resumed == 1
    assert budget.held == 60


def test_only_the_new_oldest_is_resumed_while_there_is_no_room(budget, first, second):
    third = Body("third")
    for body in (first, second, third):
        budget.grow(body, 90)

    budget.release(first)

    assert (second.resumed, third.resumed) == (1, 0)


def test_body_given_up_while_waiting_is_not_resumed(budget, first, second):
    budget.grow(first, 60)
    budget.grow(second, 60)

    budget.release(second)
    budget.release(first)

    assert second.resumed == 0
    assert budget.held == 0


def test_over_the_limit_nobody_grows_while_a_whole_message_waits_to_be_stored(
    budget, later, first, second
):
    budget.count_whole(90)
    assert not budget.grow(first, 60)
    assert not budget.grow(second, 60)
    later.pass_time(60)  # it is not the oldest that holds up the other
    assert (first.resumed, first.failures, second.resumed) == (0, [], 0)

    budget.count_whole(-90)

    assert (first.resumed, second.resumed) == (1, 0)
    budget.release(first)
    assert second.resumed == 1


def test_release_of_an_unknown_body_changes_nothing(budget, first):
    budget.release(first)

    assert budget.held == 0


def test_first_body_that_stalls_while_others_wait_gives_way(budget, later, first, second):
    budget.grow(first, 60)
    budget.grow(second, 60)

    later.pass_time(1)  # in which it has come so far
    assert first.failures == []
    later.pass_time(1)

    assert first.failures == [
        "60 bytes of a message body, and only 0 more in a second while others wait for memory"]
    assert (second.resumed, second.failures) == (1, [])


def test_body_that_gets_on_at_the_least_speed_is_left_alone(budget, later, first, second):
    """A thirty-second of what it holds in each second."""
    budget.grow(first, 60)
    budget.grow(second, 60)

    for _ in range(50):
        budget.grow(first, 1 + budget.held // 64)
        later.pass_time(0.5)

    assert first.failures == []


def test_bodies_are_not_watched_while_nobody_waits(budget, later, first):
    budget.grow(first, 100)

    assert later.calls == []


def test_users_with_many_connections_do_not_come_one_after_the_other_before_another_user(budget):
    waiting = [Body(f"{number} of {user}", account=(user, "/")) for number in range(5) for user in ("a", "b")]
    calm = Body("calm", account=("calm", "/"))
    for body in waiting:
        budget.grow(body, 60)
    budget.grow(calm, 300)

    for _ in range(2):
        budget.release(budget._first_beyond_share())

    assert calm.resumed == 1 and sum(body.resumed for body in waiting) == 1
