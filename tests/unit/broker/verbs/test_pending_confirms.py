"""Answers that wait for the disk leave in their order, each once; those of a door are its own."""
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from gomq_py.broker.verbs.pending_confirms import Answer, PendingConfirms, UnsyncedQueues
from gomq_py.storage.flush.flushing import NextFlush

QUEUES = ((SimpleNamespace(failed=False),),)


class Said(Answer):
    """Answers with its name, and says when it is lost."""

    __slots__ = ("name",)

    def __init__(self, name):
        super().__init__()
        self.name = name

    def kept(self):
        return b"+" + self.name

    def lost(self):
        return b"-" + self.name


class Bench:
    """Promises over a disk that the test flushes: ``flushes`` in the order they were asked for."""

    def __init__(self):
        self.written = []
        self.flushes = []
        self.coming = None
        self.pending = PendingConfirms(self.written.append, self.when_safe)

    def when_safe(self, callback, concerns):
        self.flushes.append((callback, concerns))
        return self.coming

    def flush(self, at=0, error=None):
        self.flushes.pop(at)[0](error)


def test_an_answer_that_waits_for_nothing_is_given_at_once():
    bench = Bench()

    bench.pending.done(Said(b"a"), ())

    assert bench.written == [b"+a"] and bench.flushes == [] and not bench.pending.is_waiting()


def test_an_answer_leaves_when_its_queues_are_on_disk():
    bench = Bench()

    bench.pending.done(Said(b"a"), QUEUES)

    assert bench.written == [] and bench.pending.is_waiting()
    bench.flush()
    assert bench.written == [b"+a"] and not bench.pending.is_waiting()


def test_an_answer_that_waits_for_nothing_stays_behind_those_that_do():
    bench = Bench()
    bench.pending.done(Said(b"a"), QUEUES)
    bench.pending.done(Said(b"b"), ())
    bench.pending.done(Said(b"c"), QUEUES)

    bench.flush()

    assert bench.written == [b"+a+b"] and bench.pending.is_waiting()


def test_a_later_flush_that_ends_first_answers_nothing_early():
    bench = Bench()
    bench.pending.done(Said(b"a"), QUEUES)
    bench.pending.done(Said(b"b"), QUEUES)

    bench.flush(at=1)
    assert bench.written == []
    bench.flush()

    assert bench.written == [b"+a+b"]


def test_a_flush_that_fails_loses_what_waited_for_it_alone():
    bench = Bench()
    for name in (b"a", b"b"):
        bench.pending.done(Said(name), QUEUES)
    bench.pending.done(Said(b"c"), ())

    bench.flush(error=OSError("disk"))
    bench.flush()

    assert bench.written == [b"-a", b"+b+c"]


def test_an_answer_is_lost_with_a_queue_that_failed_in_an_earlier_flush():
    bench, queue = Bench(), SimpleNamespace(failed=False)
    bench.pending.done(Said(b"a"), (*QUEUES, (SimpleNamespace(failed=False), queue)))
    concerns = bench.flushes[0][1]
    assert not concerns()

    queue.failed = True

    assert concerns()
    bench.flush()
    assert bench.written == [b"-a"]


def test_the_answer_that_waits_last_may_be_added_to():
    bench = Bench()
    first, last = Said(b"a"), Said(b"b")
    bench.pending.done(first, QUEUES)
    bench.pending.done(last, QUEUES)

    assert bench.pending.last() is last


def test_until_its_flush_begins_the_last_answer_takes_what_is_published_to_the_same_queues():
    bench, said = Bench(), Said(b"a")
    bench.coming = NextFlush()
    bench.pending.done(said, QUEUES)

    assert bench.pending.last_for(QUEUES) is said
    assert bench.pending.last_for(((object(),),)) is None  # whose failure is its own
    assert bench.pending.last_for((*QUEUES, *QUEUES)) is None
    assert bench.pending.last_for(()) is None
    assert bench.coming.joined == 1
    bench.coming.has_begun = True
    assert bench.pending.last_for(QUEUES) is None


def test_behind_another_answer_nothing_is_added_to_the_one_before():
    bench = Bench()
    bench.coming = NextFlush()
    bench.pending.done(Said(b"a"), QUEUES)
    bench.pending.done(Said(b"b"), ())

    assert bench.pending.last_for(QUEUES) is None


def test_nothing_is_added_to_an_answer_whose_flush_was_running_already_or_that_was_given():
    bench = Bench()
    bench.pending.done(Said(b"a"), QUEUES)
    assert bench.pending.last_for(QUEUES) is None

    bench.coming = NextFlush()
    bench.pending.done(Said(b"b"), QUEUES)
    bench.flush()
    bench.flush()

    assert bench.written == [b"+a", b"+b"] and bench.pending.last_for(QUEUES) is None
    bench.pending.close()
    assert bench.pending.last_for(QUEUES) is None


def test_nothing_is_answered_after_close():
    bench = Bench()
    bench.pending.done(Said(b"a"), QUEUES)
    bench.pending.done(Said(b"b"), ())

    bench.pending.close()
    bench.flush()

    assert bench.written == [] and not bench.pending.is_waiting()


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12), st.randoms(use_true_random=False))
def test_every_answer_is_given_once_and_in_order_whatever_flush_ends_first(answers, chance):
    """Answers that wait (or not), and flushes that fail (or not), which end in any order."""
    bench, expected, outcomes = Bench(), [], {}
    for number, (waits, fails) in enumerate(answers):
        expected.append((b"-" if waits and fails else b"+") + b"%d" % number)
        if waits:
            outcomes[len(outcomes)] = OSError("disk") if fails else None
        bench.pending.done(Said(b"%d" % number), QUEUES if waits else ())
    pending = list(zip([flush[0] for flush in bench.flushes], outcomes.values(), strict=True))
    chance.shuffle(pending)

    for callback, error in pending:
        callback(error)

    assert b"".join(bench.written) == b"".join(expected)


def test_nothing_is_written_once_nobody_waits():
    bench = Bench()
    bench.pending.done(Said(b"1"), QUEUES)
    bench.pending.close()

    bench.pending.done(Said(b"2"), ())
    bench.pending.done(Said(b"3"), QUEUES)
    bench.flush()
    bench.flush()

    assert bench.written == []


def test_what_is_kept_is_said_before_something_is_lost():
    """Who is told of a loss may end the client."""
    bench = Bench()
    first, second = Said(b"1"), Said(b"2")
    bench.pending.done(first, QUEUES)
    bench.pending.done(second, QUEUES)
    bench.flush(1, OSError(5, "I/O error"))
    bench.flush()

    assert bench.written == [b"+1", b"-2"]


def test_nothing_was_added():
    assert UnsyncedQueues().take() == () and UnsyncedQueues().last is None


def test_queues_are_taken_once():
    unsynced, queues = UnsyncedQueues(), ("a", "b")
    unsynced.add(queues)

    assert unsynced.last is queues
    assert unsynced.take() == (queues,)
    assert unsynced.take() == () and unsynced.last is None


def test_queues_of_several_routes_are_each_there_once():
    unsynced, one, other, third = UnsyncedQueues(), ("a",), ("b",), ("c",)
    for queues in (one, other, one, other, third):
        unsynced.add(queues)

    taken = unsynced.take()

    assert set(taken) == {one, other, third} and taken[0] is third
    assert unsynced.take() == ()
