"""The budget for message bodies received in part."""
import pytest

from gomq_py.hub.bodies import BodyBudget


class Body:
    """A body that counts what it is told."""

    def __init__(self, name, owner=None):
        self.name = name
        self.owner = owner or self
        self.resumed = 0
        self.failures = []

    def __repr__(self):
        return self.name

    def resume_held(self):
        self.resumed += 1

    def give_up(self, why):
        self.failures.append(why)


class Later:
    """In place of a timer: ``pass_time()`` lets what is scheduled happen."""

    def __init__(self):
        self.calls = []

    def __call__(self, _seconds, function):
        self.calls.append(function)
        return self

    def pass_time(self):
        calls, self.calls = self.calls, []
        for function in calls:
            function()

    def kill(self, block=True):
        self.calls.clear()


@pytest.fixture
def first():
    return Body("first")


@pytest.fixture
def second():
    return Body("second")


def test_bodies_within_the_limit_go_on(first, second):
    budget = BodyBudget(100)

    assert budget.grow(first, 60)
    assert budget.grow(second, 40)
    assert budget.held == 100


def test_body_over_the_limit_has_to_wait(first, second):
    budget = BodyBudget(100)
    budget.grow(first, 60)

    assert not budget.grow(second, 41)
    assert second.resumed == 0
    budget.close()


def test_oldest_body_goes_on_whatever_the_limit(first, second):
    budget = BodyBudget(100)
    budget.grow(first, 60)
    budget.grow(second, 60)

    assert budget.grow(first, 1000)
    budget.close()


def test_bodies_of_one_connection_do_not_wait_for_each_other_before_they_have_all_of_the_limit(first):
    budget = BodyBudget(100)
    second, third = Body("second"), Body("third", owner=first)
    budget.grow(first, 50)
    budget.grow(second, 60)

    assert budget.grow(third, 50)
    assert not budget.grow(third, 1)
    budget.release(first)
    assert (second.resumed, third.resumed) == (1, 0)
    budget.close()


def test_body_waits_in_vain_for_an_older_one_of_its_connection_that_has_all_of_the_limit(first, second):
    budget = BodyBudget(100)
    third = Body("third", owner=second)
    budget.grow(first, 10)

    assert not budget.grow(second, 150) and not budget.waits_in_vain(second)
    assert not budget.grow(third, 1) and budget.waits_in_vain(third)
    budget.release(second)
    assert not budget.waits_in_vain(third)
    budget.close()


def test_body_goes_on_when_another_of_its_connection_is_the_oldest(first):
    budget = BodyBudget(100)
    second, third = Body("second"), Body("third")
    fourth = Body("fourth", owner=second)
    for body in (first, second, third, fourth):
        budget.grow(body, 45)

    budget.release(first)

    assert (second.resumed, third.resumed, fourth.resumed) == (0, 0, 1)
    budget.close()


def test_bodies_that_have_grown_by_nothing_go_on_with_the_oldest_of_their_connection(first, second):
    budget = BodyBudget(100)
    others = Body("third", owner=first), Body("fourth", owner=first)
    for body, octets in ((first, 0), (others[0], 0), (others[1], 60), (second, 150)):
        budget.grow(body, octets)
    budget.count_whole(90)
    assert not budget.grow(others[0], 0)
    budget.release(others[1])

    budget.count_whole(-90)

    assert (others[0].resumed, second.resumed) == (1, 0)
    budget.close()


def test_waiting_body_is_resumed_when_there_is_room(first, second):
    budget = BodyBudget(100)
    budget.grow(first, 60)
    budget.grow(second, 60)

    budget.release(first)

    assert second.resumed == 1
    assert budget.held == 60
    budget.close()


def test_only_the_new_oldest_is_resumed_while_there_is_no_room(first, second):
    budget = BodyBudget(100)
    third = Body("third")
    for body in (first, second, third):
        budget.grow(body, 90)

    budget.release(first)

    assert (second.resumed, third.resumed) == (1, 0)
    budget.close()


def test_body_given_up_while_waiting_is_not_resumed(first, second):
    budget = BodyBudget(100)
    budget.grow(first, 60)
    budget.grow(second, 60)

    budget.release(second)
    budget.release(first)

    assert second.resumed == 0
    assert budget.held == 0
    budget.close()


def test_over_the_limit_nobody_grows_while_a_whole_message_waits_to_be_stored(first, second):
    later = Later()
    budget = BodyBudget(100, call_later=later)
    budget.count_whole(90)
    assert not budget.grow(first, 60)
    assert not budget.grow(second, 60)
    later.pass_time()  # it is not the oldest that holds up the other
    assert (first.resumed, first.failures, second.resumed) == (0, [], 0)

    budget.count_whole(-90)

    assert (first.resumed, second.resumed) == (1, 0)
    budget.release(first)
    assert second.resumed == 1
    budget.close()


def test_no_body_is_read_ahead_where_what_was_read_in_vain_takes_the_room(first):
    budget = BodyBudget(100)
    budget.grow(first, 40)

    budget.count_ahead(30)
    assert budget.has_room(30) and not budget.has_room(31)
    assert budget.grow(first, 60)
    budget.count_ahead(-30)
    budget.release(first)
    assert budget.has_room(100)


def test_release_of_an_unknown_body_changes_nothing(first):
    budget = BodyBudget(100)

    budget.release(first)

    assert budget.held == 0


def test_oldest_body_that_stalls_while_others_wait_is_failed(first, second):
    later = Later()
    budget = BodyBudget(100, call_later=later)
    budget.grow(first, 60)
    budget.grow(second, 60)

    later.pass_time()

    assert len(first.failures) == 1 and "no more for 30 s while others wait for memory" in first.failures[0]
    assert (second.resumed, second.failures) == (1, [])


def test_oldest_body_that_grows_is_left_alone(first, second):
    later = Later()
    budget = BodyBudget(100, call_later=later)
    budget.grow(first, 60)
    budget.grow(second, 60)

    for _ in range(5):
        budget.grow(first, 1)
        later.pass_time()

    assert first.failures == []


def test_bodies_are_not_watched_while_nobody_waits(first):
    later = Later()
    budget = BodyBudget(100, call_later=later)

    budget.grow(first, 100)

    assert later.calls == []
