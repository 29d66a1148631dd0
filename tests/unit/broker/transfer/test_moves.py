"""Moving, copying and replaying messages: which go, where they land, and what stays as it was."""
from functools import partial
from types import SimpleNamespace

import pytest

from gomq_py.broker.policies.vhost_policies import PolicyComponent
from gomq_py.broker.routing.route import Destination
from gomq_py.broker.routing.routing import with_properties
from gomq_py.broker.transfer import engine, moves
from gomq_py.broker.transfer.moves import Filter, Move, Origin, origin_of, to_origin, to_queue
from gomq_py.content.fields import encode_table
from gomq_py.content.properties import Properties
from gomq_py.hub.scheduler import SliceClock
from gomq_py.storage.message import Message
from gomq_py.storage.stores import browser
from gomq_py.storage.stores.browser import browse
from tests.support.clocks import StepClock
from tests.support.node import Node


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path / "data")
    yield node
    node.stop()


def declare(node, name, durable=True, **arguments):
    queue, _ = node.vhost.declare_queue(
        name, durable=durable,
        arguments={f"x-{key.replace('_', '-')}": value for key, value in arguments.items()},
    )
    return queue


def shown(queue):
    """(body, delivery count) of what is ready."""
    browser, message, found = browse(queue.store), Message(), []
    while browser.next(message):
        found.append((message.get_body(), message.describe()["delivery_count"]))
    return found


def bodies(queue):
    return [body for body, _ in shown(queue)]


def run(node, queue, route, **options):
    """Move to the end; returns the Result."""
    ended = []
    Move(
        queue, route, node.broker.durability, node.broker.scheduler, lambda *end: ended.append(end), **options
    ).start()
    node.wait(lambda: ended)
    assert ended[0][1] is None
    return ended[0][0]


def fill(node, name, count=6, **options):
    for number in range(count):
        node.publish("", name, b"%d" % number, persistent=True, **options)


def test_slice_of_a_move_ends_with_its_time(node, monkeypatch):
    """Every look at the clock finds that a millisecond has passed, and a slice has five."""
    monkeypatch.setattr(engine, "CLOCK", partial(SliceClock, clock=StepClock()))
    source, target = declare(node, "from"), declare(node, "to")
    fill(node, "from", 20)
    ended, jobs, after_each = [], [], []
    scheduler = SimpleNamespace(start=jobs.append, write_out=node.hub.scheduler.write_out)
    move = Move(source, to_queue(target), node.broker.durability, scheduler, lambda *end: ended.append(end))

    move.start()
    while jobs[-1].step():
        after_each.append(move.result.examined)
    node.wait(lambda: ended)

    assert len(after_each) >= 3 and after_each[0] <= 6
    assert bodies(target) == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("durable", [True, False])
def test_everything_moves_in_its_order(node, durable):
    source, target = declare(node, "from", durable), declare(node, "to", durable)
    fill(node, "from", 450)

    result = run(node, source, to_queue(target))

    assert (result.examined, result.matched, result.done, result.targets, result.stayed) == (
        450, 450, 450, {"to": 450}, {}
    )
    assert bodies(target) == [b"%d" % number for number in range(450)]
    assert (source.ready_count, source.unacked_count) == (0, 0)


def test_what_does_not_match_stays_untouched_and_in_order(node):
    source, target = declare(node, "from"), declare(node, "to")
    for number in range(6):
        node.publish(
            "", "from", b"%d" % number, Properties(headers={"odd": number % 2}).encode(), persistent=True
        )

    result = run(node, source, to_queue(target), wanted=Filter(headers={"odd": 1}), count=2)

    assert (result.done, bodies(target)) == (2, [b"1", b"3"])
    assert shown(source) == [(b"0", 0), (b"2", 0), (b"4", 0), (b"5", 0)]
    taken = [node.take("from")[0] for _ in range(4)]
    assert taken == [b"0", b"2", b"4", b"5"]


def test_dry_run_counts_and_changes_nothing(node):
    source, target = declare(node, "from"), declare(node, "to")
    fill(node, "from")

    result = run(node, source, to_queue(target), dry_run=True, count=4)

    assert (result.done, result.targets) == (4, {"to": 4})
    assert (len(bodies(source)), bodies(target), source.unacked_count) == (6, [], 0)


def test_copies_leave_the_originals(node):
    source, target = declare(node, "from"), declare(node, "to")
    fill(node, "from")

    run(node, source, to_queue(target), keep=True)

    assert bodies(source) == bodies(target) == [b"%d" % number for number in range(6)]


def test_what_the_target_refuses_stays_in_its_place(node):
    source, target = declare(node, "from"), declare(node, "to", max_length=2, overflow="reject-publish")
    fill(node, "from")

    result = run(node, source, to_queue(target))

    assert (result.done, result.stayed) == (2, {"refused by the target": 4})
    assert (bodies(target), shown(source)) == ([b"0", b"1"], [(b"2", 0), (b"3", 0), (b"4", 0), (b"5", 0)])


@pytest.mark.parametrize("arguments", [{}, {"max_priority": 3}])
def test_messages_that_came_back_move_too(node, arguments):
    source, target = declare(node, "from", **arguments), declare(node, "to")
    fill(node, "from", 3)
    message = Message()
    source.get(message, False)
    source.requeue(message.describe()["location"])
    assert shown(source) == [(b"0", 1), (b"1", 0), (b"2", 0)]

    run(node, source, to_queue(target))

    assert (bodies(target), source.ready_count) == ([b"0", b"1", b"2"], 0)


def test_messages_of_an_earlier_run_move_and_stay_gone(tmp_path):
    node = Node(tmp_path / "data")
    declare(node, "from")
    fill(node, "from", 5)
    node.take("from")
    node.stop()
    node = Node(tmp_path / "data")
    target = declare(node, "to")

    run(node, node.vhost.queue("from"), to_queue(target), wanted=Filter(routing_key="fr*"), count=2)
    node.stop()
    node = Node(tmp_path / "data")

    assert (bodies(node.vhost.queue("from")), bodies(node.vhost.queue("to"))) == ([b"3", b"4"], [b"1", b"2"])
    node.stop()


def test_a_move_ends_though_its_messages_come_round(node):
    """Replayed to an exchange, a letter may come back to the queue it is read from."""
    source = declare(node, "from")
    fill(node, "from", 5)

    result = run(node, source, lambda message: ("from", (source,), owned(message)))

    assert (result.done, source.ready_count) == (5, 5)


def owned(message):
    copy = Message()
    copy.assign(
        message.get_exchange(), message.get_routing_key(), message.get_properties(), message.get_body(), 1
    )
    return copy


def test_a_consumer_is_served_while_messages_are_moved_from_the_middle(node):
    source, target = declare(node, "from"), declare(node, "to")
    for number in range(6):
        node.publish(
            "", "from", b"%d" % number, Properties(headers={"odd": number % 2}).encode(), persistent=True
        )
    first = node.take("from")[0]

    run(node, source, to_queue(target), wanted=Filter(headers={"odd": 1}))

    assert [first, *(node.take("from")[0] for _ in range(2))] == [b"0", b"2", b"4"]
    assert node.take("from") is None


# replay

@pytest.fixture
def letters(node):
    """Three dead letters of the queue ``work``, published to the exchange ``x`` with the keys k.0 to k.2,
    in the queue ``dead``.
    """
    node.vhost.declare_exchange("x", "topic")
    dead = declare(node, "dead")
    work = declare(node, "work", dead_letter_exchange="", dead_letter_routing_key="dead")
    node.vhost.bindings.bind_queue("work", "x", "k.#")
    for number in range(3):
        node.publish(
            "x", f"k.{number}", b"%d" % number, Properties(headers={"mine": number}).encode(), persistent=True
        )
    message = Message()
    for _ in range(3):
        work.get(message, False)
        work.reject(message.describe()["location"], False)
    node.wait(lambda: dead.ready_count == 3 and work.unacked_count == 0)
    return dead


def allow(*_):
    return True


def refuse(*_):
    return False


def test_letters_go_back_to_the_queue_they_died_in(node, letters):
    result = run(node, letters, to_origin(node.vhost, letters, allow, allow))

    assert (result.done, result.targets) == (3, {"queue 'work'": 3})
    message = Message()
    work = node.vhost.queue("work")
    work.get(message, True)
    assert (message.get_exchange(), message.get_routing_key(), message.get_body()) == (b"x", b"k.0", b"0")
    assert Properties.decode(message.get_properties()).headers["x-death"][0]["queue"] == "work"
    assert (work.ready_count, letters.ready_count) == (2, 0)


def test_letters_go_back_to_their_exchange_clean(node, letters):
    other = declare(node, "other")
    node.vhost.bindings.bind_queue("other", "x", "k.1")

    run(node, letters, to_origin(node.vhost, letters, allow, allow, to="exchange", clean=True))

    assert (bodies(node.vhost.queue("work")), bodies(other)) == ([b"0", b"1", b"2"], [b"1"])
    assert Properties.decode(node.take("other")[1]).headers == {"mine": 1}


def test_letters_that_would_go_back_to_their_own_queue_stay_there_though_it_has_a_tee(node, letters):
    """The stream alone would not do: whoever consumes the queue would never see them again."""
    node.vhost.delete_queue("work")
    node.vhost.bindings.bind_queue("dead", "x", "k.#")
    log = declare(node, "log", queue_type="stream")
    PolicyComponent().changed(node.vhost, "tee", {"pattern": ".*", "definition": {"tee-to-stream": "log"}})

    result = run(node, letters, to_origin(node.vhost, letters, allow, allow, to="exchange"))

    assert result.stayed == {"no queue is bound for it": 3}
    assert (letters.ready_count, log.ready_count) == (3, 0)


def test_a_tee_takes_no_letter_that_the_queues_of_its_origin_refuse(node, letters):
    node.vhost.delete_queue("work")
    full = declare(node, "full", max_length=0, overflow="reject-publish")
    node.vhost.bindings.bind_queue(full.name, "x", "k.#")
    log = declare(node, "log", queue_type="stream")
    PolicyComponent().changed(node.vhost, "tee", {"pattern": ".*", "definition": {"tee-to-stream": "log"}})

    run(node, letters, to_origin(node.vhost, letters, allow, allow, to="exchange"))

    assert (letters.ready_count, log.ready_count) == (3, 0)


@pytest.fixture
def dead_task(node):
    """Queue tasks.dead with a task that a worker has given up at its third attempt."""
    declare(node, "tasks")
    queue = declare(node, "tasks.dead")
    node.publish("", "tasks.dead", b"{}", Properties(headers={
        "x-task-queue": "tasks", "x-task-attempt": 3, "x-task-unknown": 1, "x-task-reason": "no route",
        "x-task-error": "OSError", "x-task-worker": "w", "x-task-key": "acme", "mine": 1}).encode())
    return queue


def test_a_dead_task_goes_back_to_its_queue_with_all_attempts_left(node, dead_task):
    result = run(node, dead_task, to_origin(node.vhost, dead_task, allow, allow))

    assert (result.targets, dead_task.ready_count) == ({"queue 'tasks'": 1}, 0)
    body, properties, *_ = node.take("tasks")
    assert (body, Properties.decode(properties).headers) == (b"{}", {"x-task-key": "acme", "mine": 1})


def test_a_dead_task_has_no_exchange_to_go_back_to(node, dead_task):
    result = run(node, dead_task, to_origin(node.vhost, dead_task, allow, allow, to="exchange"))

    assert result.stayed == {"a task, of which only the queue is recorded": 1}


@pytest.mark.parametrize("queue", ["elsewhere", 5, None])
def test_a_dead_task_whose_queue_is_none_stays(node, dead_task, queue):
    node.take("tasks.dead")
    node.publish("", "tasks.dead", b"{}", Properties(headers={"x-task-queue": queue}).encode())

    result = run(node, dead_task, to_origin(node.vhost, dead_task, allow, allow))

    assert (result.done, dead_task.ready_count) == (0, 1)


def test_a_task_that_the_broker_dead_lettered_has_all_attempts_left(node):
    work, letters = declare(
        node, "work", dead_letter_exchange="", dead_letter_routing_key="dead"), declare(node, "dead")
    node.publish("", "work", b"{}", Properties(headers={"x-task-attempt": 2}).encode())
    message = Message()
    work.get(message, False)
    work.reject(message.describe()["location"], False)
    node.wait(lambda: letters.ready_count == 1)

    run(node, letters, to_origin(node.vhost, letters, allow, allow))

    headers = Properties.decode(node.take("work")[1]).headers
    assert "x-task-attempt" not in headers and headers["x-first-death-queue"] == "work"


def test_letters_that_have_nowhere_to_go_stay_and_say_why(node, letters):
    node.publish("", "dead", b"no letter")
    node.vhost.delete_queue("work")

    result = run(node, letters, to_origin(node.vhost, letters, allow, allow))

    assert result.stayed == {"no queue 'work'": 3, "no origin recorded": 1}
    assert letters.ready_count == 4


def test_letters_stay_where_the_operator_may_not_write(node, letters):
    result = run(node, letters, to_origin(node.vhost, letters, refuse, refuse), dry_run=True)

    assert result.stayed == {"no permission to write to queue 'work'": 3}


def test_letter_that_cannot_go_back_stays_with_its_reason_and_the_others_go(node, letters):
    """Its x-death, which a publisher has written, names a routing key of 300 octets."""
    deaths = [
        {"queue": "work", "reason": "rejected", "count": 1, "exchange": "", "routing-keys": ["k" * 300]}
    ]
    node.publish("", "dead", b"evil", Properties(headers={"x-death": deaths}).encode(), persistent=True)
    node.publish("", "dead", b"no letter")

    result = run(node, letters, to_origin(node.vhost, letters, allow, allow))

    assert (result.examined, result.done, result.fault) == (5, 3, None)
    assert result.stayed == {
        "exchange and routing key are short strings: at most 255 bytes": 1, "no origin recorded": 1}
    assert bodies(letters) == [b"evil", b"no letter"] and letters.unacked_count == 0


class IllDestination(Destination):
    """Takes messages, but fails over one body."""

    def __init__(self, ill):
        super().__init__("ill")
        self.ill = ill
        self.taken = []

    def publish(self, message):
        if message.get_body() == self.ill:
            raise LookupError("it cannot be found")
        self.taken.append(message.get_body())
        return 1


@pytest.mark.parametrize("keep", [False, True])
def test_message_that_its_target_fails_over_stays_in_its_place(node, keep):
    source, target = declare(node, "from"), IllDestination(b"2")
    fill(node, "from", 5)

    result = run(node, source, to_queue(target), keep=keep)

    assert result.stayed == {"LookupError: it cannot be found": 1} and result.done == 4
    assert target.taken == [b"0", b"1", b"3", b"4"]
    assert (
        bodies(source) == ([b"%d" % number for number in range(5)] if keep else [b"2"])
        and source.unacked_count == 0
    )


def test_move_that_fails_half_way_is_answered_and_what_has_moved_has_moved(node, monkeypatch):
    monkeypatch.setattr(engine, "SLICE", 3)
    monkeypatch.setattr(engine, "SLICE_S", 60)  # by number alone, on a busy machine too
    source, target = declare(node, "from"), declare(node, "to")
    fill(node, "from", 5)
    browsers = []

    class IllBrowser:
        """Fails over the fifth message."""

        def __init__(self, store):
            self.inner, self.left, self.closed = browse(store), 4, False
            browsers.append(self)

        def next(self, message):
            self.left -= 1
            if self.left < 0:
                raise LookupError("it cannot be found")
            return self.inner.next(message)

        def close(self):
            self.closed = True
            self.inner.close()

    monkeypatch.setattr(browser, "browse", IllBrowser)

    result = run(node, source, to_queue(target))
    monkeypatch.undo()

    assert (result.done, result.fault) == (4, "LookupError: it cannot be found")
    assert browsers[0].closed and (bodies(source), source.unacked_count) == ([b"4"], 0)


def test_reasons_to_stay_are_counted_by_their_number_when_there_are_very_many(node):
    source = declare(node, "from")
    fill(node, "from", moves.REASONS + 50)

    result = run(node, source, lambda message: (None, f"because of {message.get_body()}", None))

    assert len(result.stayed) == moves.REASONS + 1 and result.stayed["other reasons"] == 50


def test_letters_go_back_to_an_exchange_that_hashes_a_property_as_they_came(node):
    node.vhost.declare_exchange("x", "x-consistent-hash", arguments={"hash-property": "message_id"})
    letters = declare(node, "dead")
    queues = [
        declare(node, name, dead_letter_exchange="", dead_letter_routing_key="dead", max_length=0)
        for name in "abc"
    ]
    for queue in queues:
        node.vhost.bindings.bind_queue(queue.name, "x", "10")
    for number in range(30):
        properties = Properties(message_id=str(number))
        made = Message()
        made.assign(b"x", b"k", properties.encode(), b"", 1)
        for destination in node.vhost.route(node.vhost.exchange("x"), "k", with_properties(None, properties)):
            destination.publish(made)
    node.wait(lambda: letters.ready_count == 30)

    result = run(node, letters, to_origin(node.vhost, letters, allow, allow, to="exchange"), dry_run=True)
    found = routes_of(node, letters)

    assert result.done == 30 and len(set(found)) > 1


def routes_of(node, letters):
    """The names of the queues that each letter would go back to."""
    route = to_origin(node.vhost, letters, allow, allow, to="exchange")
    browser, message, found = browse(letters.store), Message(), []
    while browser.next(message):
        found.append(tuple(destination.name for destination in route(message)[1]))
    return found


def test_a_move_that_is_under_way_when_the_broker_stops_leaves_no_message_in_two_places(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(engine, "SLICE", 5)
    monkeypatch.setattr(engine, "SLICE_S", 60)  # by number alone, on a busy machine too
    node = Node(tmp_path / "data")
    source, target = declare(node, "from"), declare(node, "to")
    fill(node, "from", 20)
    ended, jobs = [], []
    scheduler = SimpleNamespace(start=jobs.append, write_out=node.hub.scheduler.write_out)
    move = Move(source, to_queue(target), node.broker.durability, scheduler, lambda *end: ended.append(end))
    node.broker.moves.add(move)
    move.start()
    jobs[0].step()
    assert move.result.done == 5
    node.stop()

    node = Node(tmp_path / "data")
    left, moved = bodies(node.vhost.queues["from"]), bodies(node.vhost.queues["to"])
    node.stop()

    assert (moved, left) == (
        [b"%d" % number for number in range(5)], [b"%d" % number for number in range(5, 20)]
    )
    assert [(result.done, error) for result, error in ended] == [(5, None)]


# where a dead letter came from

def death(queue, reason="rejected", exchange="x", keys=("k",)):
    return {"queue": queue, "reason": reason, "exchange": exchange, "routing-keys": list(keys), "count": 1}


def origin(**headers):
    found = origin_of(encode_table({key.replace("_", "-"): value for key, value in headers.items()}))
    return None if found is None else (found.queue, found.exchange, found.routing_keys)


def test_the_first_death_is_the_last_in_the_list():
    assert origin(x_death=[death("retry", "expired"), death("work", keys=("a", "cc"))]) == (
        "work", "x", ["a", "cc"]
    )


def test_the_first_death_is_where_the_headers_say():
    """The list is ordered by the latest death, so that a message that died twice in its
    first queue has that in front.
    """
    deaths = [death("work"), death("retry", "expired", "dlx")]

    assert origin(x_death=deaths, x_first_death_queue="work", x_first_death_reason="rejected") == (
        "work", "x", ["k"]
    )


@pytest.mark.parametrize("rubbish", [
    5, "text", [], [1], [{}], [{"queue": 1, "exchange": "", "routing-keys": ["k"]}], [death("q", keys=())]
])
def test_rubbish_is_no_origin(rubbish):
    assert origin(x_death=rubbish) is None


def test_no_headers_are_no_origin():
    assert origin_of(None) is None and origin() is None


def test_cleaning_takes_only_what_dead_lettering_wrote():
    properties = Properties(content_type="t", headers={
        "x-death": [death("q")], "x-first-death-queue": "q", "x-last-death-reason": "rejected",
        "x-mine": 1}).encode()

    assert Properties.decode(Origin.cleaned(properties)).as_dict() == {
        "content_type": "t", "headers": {"x-mine": 1}
    }
