"""The judge of what an operator changes: each promise that is broken by hand is found, and what may be so is
not.
"""
import pytest

from tests.simulation.network import Network
from tests.simulation.vhost_ledger import CONNECTIONS, MAX_QUEUES, POLICIES, VHOST, History, VHostLedger
from tests.simulation.world import World

RIGHT, USER, POLICY = ("right", "u0"), ("user", "u0"), POLICIES[0]


class Ledger(VHostLedger):
    """Whose time is its own."""

    def later(self, changes=None, is_answered=True):
        """A second passes, in which an operator asks for these."""
        self.pass_s(0.5)
        if changes:
            self.ask(changes)
        self.pass_s(0.5)
        if changes and is_answered:
            self.answer(changes)

    def pass_s(self, seconds):
        """Time passes."""
        self.world.run(self.world.now_s + seconds)

    def publish_one(self, queue="g0"):
        """A message that was accepted."""
        message, _ = self.send(self.queues[queue])
        self.pass_s(0.1)
        self.accept(message)
        return message

    def found(self):
        """What was found."""
        return [finding.split(": v0: ", 1)[1] for finding in self.world.findings]


@pytest.fixture
def ledger():
    """Of a vhost that is there, with a queue."""
    ledger = Ledger(World(1), "v0")
    ledger.later({VHOST: True, USER: 1, RIGHT: frozenset({"write"})})
    declare(ledger, "g0")
    ledger.pass_s(0.1)
    return ledger


def declare(ledger, name):
    asked = ledger.declares(ledger.queues[name])
    ledger.pass_s(0.1)
    ledger.declared(*asked)


def may_write(ledger, happened, since_s):
    ledger.check(RIGHT, lambda value: value is not None and "write" in value, happened, since_s, "u0 writes")


def enter(ledger):
    end = Network(ledger.world)
    end.listening[1] = type("Listening", (), {"arrive": lambda listening, end: None})()
    presence = ledger.enters("u0", end.connect(1, bool))
    ledger.pass_s(0.1)
    return presence


def test_history_knows_what_may_have_been_since():
    history = History(1)
    history.may_be({1, 2}, 5.0)
    history.may_be({2}, 6.0)

    assert [history.since(at_s) for at_s in (4.0, 5.5, 6.5)] == [{1, 2}, {1, 2}, {2}]


def test_right_that_was_withdrawn_and_one_that_was_granted_count_from_the_answer(ledger):
    asked_s = ledger.world.now_s
    ledger.later({RIGHT: frozenset()})
    may_write(ledger, True, asked_s)
    may_write(ledger, False, asked_s)
    assert ledger.found() == []
    ledger.pass_s(0.1)

    may_write(ledger, True, ledger.world.now_s)

    assert ledger.found() == ["u0 writes, while right u0 was ['frozenset()']"]


def test_change_that_was_not_answered_may_be_made_or_not(ledger):
    ledger.later({RIGHT: frozenset()}, is_answered=False)
    ledger.is_unanswered()
    ledger.pass_s(1.0)

    may_write(ledger, True, ledger.world.now_s)
    may_write(ledger, False, ledger.world.now_s)

    assert ledger.found() == []


def test_deletion_that_was_not_flushed_is_doubted_until_the_thing_is_put_again(ledger):
    ledger.later({POLICY: (0, "short")})
    ledger.later({POLICY: None}, is_answered=False)
    ledger.is_unanswered()
    ledger.status = 404
    ledger.later({POLICY: None})
    assert ledger.is_doubted(POLICY) and ledger.things[POLICY].now == {None, (0, "short")}
    ledger.status = 201
    ledger.later({POLICY: (0, "no effect")})
    ledger.status = 404

    ledger.later({POLICY: None})

    assert not ledger.is_doubted(POLICY) and ledger.things[POLICY].now == {None}


def test_rights_go_with_their_vhost(ledger):
    ledger.later(dict.fromkeys([VHOST, *ledger.hang_on(VHOST)]) | {VHOST: False})
    ledger.pass_s(0.1)

    may_write(ledger, True, ledger.world.now_s)

    assert ledger.found() == ["u0 writes, while right u0 was ['None']"]


def test_policy_that_does_not_count_is_found(ledger):
    ledger.later({POLICY: (0, "short")})
    ledger.pass_s(0.1)

    ledger.check_length(ledger.queues["g0"], 4, ledger.world.now_s, 1)
    assert ledger.found() == []
    ledger.check_length(ledger.queues["g0"], 4, ledger.world.now_s, 0)

    assert ledger.found() == ["4 messages are in g0, which may have 3"]


def test_policy_of_the_highest_priority_counts_and_the_operators_beside(ledger):
    ledger.later({POLICIES[0]: (2, "brief, letters"), POLICIES[1]: (1, "short")})
    ledger.later({("operator", "o1"): (0, "longer")})

    (rule,) = ledger.in_force.now
    assert dict(rule) == {
        "message-ttl": 100, "max-length": 10, "dead-letter-exchange": "",
        "dead-letter-routing-key": "letters"}


def test_old_message_is_found(ledger):
    ledger.later({POLICY: (0, "brief")})
    message = ledger.publish_one()
    ledger.pass_s(1.0)

    ledger.deliver(message.number, message.queue, False, ledger.world.now_s)

    assert ledger.found() == ["0 came 1.000 s after it was accepted"]


@pytest.mark.parametrize("changes, findings", [
    ({}, ["accepted and lost, or never delivered: [0] of 1", "the operator could not restore it"]),
    ({POLICY: (0, "short")}, ["the operator could not restore it"]),
    ({("purge", "g0"): True}, ["the operator could not restore it"]),
])
def test_lost_message_is_found_unless_it_may_be_gone(ledger, changes, findings):
    ledger.publish_one()
    ledger.later(changes)

    ledger.check_complete()

    assert ledger.found() == findings


def test_message_that_a_policy_sends_to_the_letters_is_missed(ledger):
    declare(ledger, "letters")
    ledger.later({POLICY: (0, "short, letters")})
    ledger.pass_s(0.1)
    message = ledger.publish_one()

    assert ledger.missing() == {message.number}


def test_dead_letter_without_a_policy_and_one_that_comes_twice_are_found(ledger):
    first = ledger.publish_one()
    ledger.deliver(first.number, ledger.queues["letters"], False, 0.0)
    ledger.later({POLICY: (0, "short, letters")})
    second = ledger.publish_one()
    for _ in range(2):
        ledger.deliver(second.number, ledger.queues["letters"], False, 0.0)

    assert ledger.found() == ["0 is a dead letter, and no policy says so", "1 is a dead letter twice"]


@pytest.mark.parametrize("change, finding", [
    (("purge", "g0"), "0 came after the purge of g0"), (("delete", "g0"), "0 came after the delete of g0")])
def test_message_that_was_wiped_is_found(ledger, change, finding):
    message = ledger.publish_one()
    ledger.later({change: True})
    ledger.pass_s(0.1)

    ledger.deliver(message.number, message.queue, False, ledger.world.now_s)

    assert ledger.found() == [finding]


def test_purge_of_a_queue_that_is_closed_drops_nothing(ledger):
    message = ledger.publish_one()
    ledger.status = 404
    ledger.later({("purge", "g0"): True})
    ledger.pass_s(0.1)

    ledger.deliver(message.number, message.queue, False, ledger.world.now_s)

    assert ledger.found() == []


def test_message_that_was_in_hand_may_come_after_a_purge(ledger):
    message = ledger.publish_one()
    message.queue.hands.append(None)
    ledger.later({("purge", "g0"): True})

    ledger.deliver(message.number, message.queue, True, ledger.world.now_s)

    assert ledger.found() == []


def test_refusal_without_a_policy_and_queue_that_is_gone_by_itself_are_found(ledger):
    message = ledger.publish_one()

    ledger.check_refusal(message)
    ledger.check_absent(message.queue, ledger.world.now_s)

    assert ledger.found() == [
        "0 was refused, and no policy says so", "g0 was not found, and nobody has deleted it"]


def test_refusal_of_an_ill_disk_that_comes_behind_the_end_of_the_process_is_none_of_the_next_one(ledger):
    ledger.disk_is_ill(True)
    ledger.pass_s(0.1)
    message = ledger.publish_one()
    ledger.process_ended()
    ledger.check_refusal(message)
    assert ledger.found() == []
    ledger.pass_s(0.1)

    ledger.check_refusal(ledger.publish_one())

    assert ledger.found() == ["1 was refused, and no policy says so"]


@pytest.mark.parametrize("limit", [CONNECTIONS, ("user limit", "u0")])
def test_connection_over_a_limit_and_refusal_below_it_are_found(ledger, limit):
    ledger.later({limit: 1})
    ledger.pass_s(0.1)
    first = enter(ledger)
    ledger.has_entered(first)
    ledger.pass_s(0.1)
    second = enter(ledger)
    ledger.is_kept_out(second, limit)
    assert ledger.found() == []
    ledger.has_entered(second)
    ledger.is_kept_out(first, limit)

    name = " ".join(limit)
    assert ledger.found() == [f"1 connections are open, another was let in, and {name} is 1"]


def test_refusal_for_one_that_was_asked_for_later_and_has_ended_says_nothing(ledger):
    ledger.later({CONNECTIONS: 1})
    ledger.pass_s(0.1)
    first = enter(ledger)
    ledger.has_entered(enter(ledger))
    ledger.process_ended()

    ledger.is_kept_out(first, CONNECTIONS)

    assert ledger.found() == []


def test_refusal_while_nobody_is_there_is_found(ledger):
    ledger.later({CONNECTIONS: 1})
    first = enter(ledger)
    first.end.peer.close()
    ledger.leaves(first)
    ledger.pass_s(2.0)

    ledger.is_kept_out(enter(ledger), CONNECTIONS)

    assert ledger.found() == [
        "limit max-connections of 1 is reached, and there are 0 connections at the most"]


def test_queue_over_the_limit_and_refusal_below_it_are_found(ledger):
    ledger.later({MAX_QUEUES: 1})
    ledger.pass_s(0.1)
    declare(ledger, "x0")
    ledger.later({MAX_QUEUES: 5})
    ledger.pass_s(0.1)
    ledger.has_no_room(ledger.world.now_s)

    assert ledger.found() == [
        "1 queues are there, another was let in, and limit max-queues is 1",
        "limit max-queues of 5 is reached, and there are 2 queues at the most"]


@pytest.mark.parametrize("changes", [{USER: None}, {VHOST: False}])
def test_connection_that_goes_on_without_its_user_or_vhost_is_found(ledger, changes):
    presence = enter(ledger)
    ledger.later(changes)
    ledger.pass_s(0.1)

    ledger.hears(presence, ledger.world.now_s)

    (kind, *_), = changes
    assert ledger.found() == [f"connection c1 of u0 goes on without its {kind}"]


def test_connection_that_an_operator_has_closed_is_found(ledger):
    presence = enter(ledger)
    ledger.later({("connection",): presence})
    ledger.pass_s(60.0)

    assert ledger.found() == ["connection c1 of u0 was closed by the operator"]


def test_message_that_was_accepted_since_a_question_was_under_way_then(ledger):
    queue, asked_s = ledger.queues["g0"], ledger.world.now_s
    message, _ = ledger.send(queue)
    ledger.accept(message)
    message.is_under_way = False

    assert (ledger.under_way(queue, asked_s), ledger.under_way(queue, asked_s + 1)) == (1, 0)
