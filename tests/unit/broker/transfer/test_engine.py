"""The engine of all transfers: order, safety before the drop, no room, poison,
and an owner that hears of what fails.
"""
import pytest

from gomq_py.broker.transfer import engine
from gomq_py.broker.transfer.engine import (
    ALL_WAIT, LEFT_TO_SOURCE, NOTHING_TO_DROP, OTHERS_GO_ON, Source, Target, Transfer,
)
from gomq_py.hub.scheduler import Job
from gomq_py.storage.errors import StoreFull
from tests.support.queues import Bench, message


class Listed(Source):
    """A list of bodies, of which what is dropped is gone.

    ``rule``: what becomes of one for which there is no room.
    """

    def __init__(self, *bodies):
        self.waiting = list(bodies)
        self.unsafe = []
        self.dropped, self.kept, self.aside, self.failures, self.faults, self.pauses = [], [], [], [], [], []
        self.hidden = ()
        self.rule = ALL_WAIT
        self.undroppable = ()
        self.goes_on = True

    def take(self, into):
        if self.waiting[:1] == ["broken"]:
            raise LookupError(self.waiting.pop(0))
        return self.waiting.pop(0) if self.waiting else None

    def show(self, item, into):
        into.assign(b"", b"", b"\0\0", item, 1)
        return item not in self.hidden

    def drop(self, item):
        if item in self.undroppable:
            raise self.undroppable[item]
        self.dropped.append(item)

    def keep(self, items, error):
        self.kept.append((list(items), error))

    def no_room(self, item, pending):
        self.waiting.insert(0 if self.rule == ALL_WAIT else len(self.waiting), item)
        return self.rule

    def set_aside(self, item, error, was_sent):
        self.aside.append((item, str(error), bool(was_sent)))

    def fail(self, item, error):
        self.failures.append((item, error))

    def broken(self, error):
        self.faults.append(error)
        return self.goes_on

    def paused(self, unsafe):
        self.pauses.append(unsafe)


class Far(Target):
    """Takes what it has room for, and confirms when the test says so, as another broker does."""

    def __init__(self):
        self.taken, self.waiting = [], []
        self.room, self.answers = 1000, {}

    def send(self, item, message):
        answer = self.answers.get(item)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer
        if len(self.taken) >= self.room:
            return ["far"]
        self.taken.append(message.get_body())
        return None

    def when_safe(self, callback):
        self.waiting.append(callback)

    def confirm(self, error=None):
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback(error)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    # slices end with their number, and not where the machine is slow
    monkeypatch.setattr(engine, "SLICE_S", 600.0)
    return Bench(tmp_path)


@pytest.fixture
def far():
    return Far()


def transfer(bench, source, far, **options):
    return Transfer("a transfer", source, far, bench.scheduler, bench.timers, far.when_safe, **options)


def start(bench, source, far, **options):
    made = transfer(bench, source, far, **options)
    made.start()
    bench.settle()
    return made


BODIES = tuple(b"%d" % number for number in range(5))


def test_what_is_sent_is_dropped_once_it_is_safe_and_not_before(bench, far):
    source = Listed(*BODIES)

    start(bench, source, far)
    assert (far.taken, source.dropped, source.pauses) == (list(BODIES), [], [5])
    far.confirm()

    assert (source.dropped, source.pauses) == (list(BODIES), [5, 0])


def test_what_cannot_be_made_safe_stays(bench, far):
    source = Listed(*BODIES)
    error = OSError("lost")

    start(bench, source, far)
    far.confirm(error)

    assert (source.dropped, source.kept) == ([], [(list(BODIES), error)])


def test_a_slice_ends_with_its_number_and_all_go_in_order(bench, far, monkeypatch):
    monkeypatch.setattr(engine, "SLICE", 2)
    monkeypatch.setattr(engine, "SLICE_S", 60)  # by number alone, on a busy machine too
    source = Listed(*BODIES)
    made = transfer(bench, source, far)
    made.start()

    after_each = []
    while bench.loop.poll():
        after_each.append(len(far.taken))

    assert after_each == [2, 4, 5] and far.taken == list(BODIES) and len(far.waiting) == 3


@pytest.mark.parametrize("limit", [{"most": 2}, {"most_octets": 2}], ids=["messages", "octets"])
def test_no_more_is_on_its_way_than_may_be(bench, far, limit):
    source = Listed(*BODIES)

    start(bench, source, far, **limit)
    counts = []
    while far.waiting:
        counts.append(len(far.taken))
        far.confirm()
        bench.settle()

    assert counts == [2, 4, 5] and source.dropped == list(BODIES) and source.pauses[-1] == 0


def test_all_wait_in_order_for_room_and_go_on_when_there_is(bench, far):
    source = Listed(*BODIES)
    far.room = 2

    made = start(bench, source, far)
    made.start()
    bench.settle()
    assert (far.taken, source.waiting, source.pauses) == ([b"0", b"1"], [b"2", b"3", b"4"], [])
    far.room = 1000
    bench.advance(engine.TRY_AGAIN_MS)

    assert far.taken == list(BODIES) and bench.timers.pending == []


def test_others_go_on_past_one_that_waits_for_room(bench, far):
    source = Listed(*BODIES)
    source.rule = OTHERS_GO_ON
    far.answers = {b"1": ["full"]}
    asked = []
    source.try_again = lambda: asked.append(far.answers.clear())
    source.no_room = lambda item, pending: asked.append((item, pending)) or OTHERS_GO_ON

    start(bench, source, far)
    assert far.taken == [b"0", b"2", b"3", b"4"] and asked == [(b"1", ["full"])]
    bench.advance(engine.TRY_AGAIN_MS)

    assert asked == [(b"1", ["full"]), None]


def test_what_is_left_to_its_source_is_not_asked_for_again(bench, far):
    source = Listed(*BODIES)
    source.no_room = lambda item, pending: LEFT_TO_SOURCE
    far.answers = {b"1": ["full"]}

    start(bench, source, far)

    assert far.taken == [b"0", b"2", b"3", b"4"] and bench.timers.pending == []


def test_poison_is_set_aside_and_those_behind_it_go_on(bench, far):
    source = Listed(*BODIES)
    source.hidden = (b"0",)
    source.undroppable = {b"4": LookupError("cannot go"), b"2": StoreFull("q", 0, "no room")}
    far.answers = {b"1": ValueError("ill"), b"3": NOTHING_TO_DROP}

    start(bench, source, far)
    far.confirm()

    assert far.taken == [b"2", b"4"] and source.dropped == []
    assert source.aside == [(b"1", "ill", False), (b"4", "cannot go", True)]
    assert [item for item, _ in source.failures] == [b"2"]


def test_fault_of_the_store_is_the_sources(bench, far):
    source = Listed(*BODIES)
    far.answers = {b"1": StoreFull("q", 0, "no room")}

    start(bench, source, far)

    assert source.failures == [(b"1", far.answers[b"1"])] and far.taken == [b"0", b"2", b"3", b"4"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_owner_hears_of_what_is_no_single_messages_fault_and_what_was_sent_is_dropped(bench, far, goes_on):
    source = Listed(b"0", "broken", b"1")
    source.goes_on = goes_on

    start(bench, source, far)
    far.confirm()

    assert [type(fault) for fault in source.faults] == [LookupError]
    assert far.taken == source.dropped == ([b"0", b"1"] if goes_on else [b"0"])
    assert bench.scheduler.failed_jobs == {"a transfer": 1}


def test_owner_hears_of_it_where_what_was_sent_cannot_be_settled(bench, far, caplog):
    source = Listed(*BODIES)
    source.keep = lambda items, error: 1 // 0

    start(bench, source, far)
    far.confirm(OSError("lost"))

    assert [type(fault) for fault in source.faults] == [ZeroDivisionError] and source.pauses == [5, 0]
    assert "a transfer: what was sent cannot be settled" in caplog.text


def test_closed_transfer_sends_nothing_and_settles_what_it_sent(bench, far):
    source = Listed(*BODIES)
    far.room = 2
    made = start(bench, source, far)

    made.close()
    far.room = 1000
    made.start()
    bench.advance(engine.TRY_AGAIN_MS)
    far.confirm()

    assert far.taken == source.dropped == [b"0", b"1"] and bench.timers.pending == []


def test_nothing_is_sent_while_copies_cannot_be_made_safe_and_all_goes_on_when_they_can(bench, far):
    """Each that were sent would be there twice: in its source, which keeps it, and as a copy."""
    source, error = Listed(b"0"), OSError("the disk")
    made = start(bench, source, far)
    source.waiting.append(b"1")
    far.confirm(error)  # of the first
    for _ in range(3):
        made.start()
        bench.settle()
        far.confirm(error)  # of the question whether copies can be made safe
        bench.advance(engine.TRY_AGAIN_MS)
        assert far.taken == [b"0"] and len(far.waiting) == 1

    far.confirm()
    bench.settle()
    far.confirm()

    assert far.taken == [b"0", b"1"] and source.kept == [([b"0"], error)] and source.dropped == [b"1"]


def test_slices_that_are_under_way_end_where_copies_cannot_be_made_safe(bench, far, monkeypatch):
    monkeypatch.setattr(engine, "SLICE", 2)
    made = transfer(bench, Listed(*BODIES), far)
    assert made.step()
    far.confirm(OSError("the disk"))

    assert not made.step() and far.taken == [b"0", b"1"]


def test_closed_transfer_does_not_ask_again_whether_copies_are_safe(bench, far):
    source = Listed(b"0")
    made = start(bench, source, far)
    far.confirm(OSError("the disk"))
    far.confirm(OSError("the disk"))

    made.close()
    bench.advance(engine.TRY_AGAIN_MS)

    assert far.waiting == [] and bench.timers.pending == []


@pytest.mark.parametrize("call", [
    lambda: Job().step(), lambda: Job().failed(None), lambda: Source().take(message()),
    lambda: Source().show(1, message()),
    lambda: Source().drop(1), lambda: Source().keep([], None), lambda: Source().no_room(1, []),
    lambda: Source().set_aside(1, None, False),
    lambda: Source().fail(1, None), lambda: Source().broken(None), lambda: Target().send(1, message()),
])
def test_whoever_works_in_slices_or_moves_messages_has_to_say_how(call):
    """There is no default for what a fault costs."""
    with pytest.raises(NotImplementedError):
        call()
