"""Long lists of queues are written from counters; what is written is what ``shapes.queue`` says, whatever the
queue is like.
"""
import json

import pytest
import requests

from gomq_py import Broker
from gomq_py.client.connection import Connection
from gomq_py.http import kinds, queue_lines, rates, shapes
from gomq_py.http.answers import json_octets
from gomq_py.http.queue_lines import QueueLines
from tests.support.waiting import in_time

# More than there is room for a queue whose rates are not 0.
ROOM = 16 * 1024
PLAIN = [f"plain-{number}" for number in range(60)]
QUEUES = {
    **dict.fromkeys(PLAIN, {}),
    "q\"uo\\\t\u2028": {}, "\xfcmlaut-\U0001f600": {}, "n" * 255: {},
    "prioritized": {"arguments": {"x-max-priority": 3}},
    "stream": {"arguments": {"x-queue-type": "stream"}},
    "long": {"arguments": {"note": "x" * ROOM}},
    "limited": {"arguments": {"x-max-length": 7, "x-overflow": "reject-publish"}},
    "transient": {"durable": False}, "left": {"auto_delete": True},
    "single": {"arguments": {"x-single-active-consumer": True}},
    "policed": {}, "busy": {}, "exclusively-consumed": {}, "consumed": {}, "paused": {}, "closed": {},
    "aside": {},
}


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    """A broker in this process, and a channel, with queues of all kinds."""
    with (
        Broker(tmp_path_factory.mktemp("some"), http_port=0) as broker,
        Connection(broker.amqp_url, heartbeat_s=0) as connection,
    ):
        channel, reader = connection.channel(), connection.channel()
        for name, how in QUEUES.items():
            channel.queue_declare(name, **{"durable": True, **how})
        channel.queue_declare("owned", exclusive=True)
        reader.qos(1)
        for name in ("single", "consumed", "busy", "exclusively-consumed"):
            reader.consume(name, None, f"reader-of-{name}", exclusive=name.startswith("exclusively"))
        broker.call(_make_special)
        yield broker, channel


def _make_special(launcher):
    queues = launcher.broker.vhosts["/"].queues
    queues["paused"].paused = True
    queues["closed"].close("a test")
    queues["aside"].set_aside(0, ValueError("a test"), "testing")


@pytest.fixture
def clock(some, monkeypatch):
    """Seconds by which looks are told apart, which the test moves. Nobody has looked yet."""
    class Clock:
        now = 1000.0

    kept = some[0].call(lambda launcher: launcher._node._management._rates)
    monkeypatch.setattr(kept, "_now_s", lambda: Clock.now)
    some[0].call(lambda launcher: kept.forget())
    yield Clock
    some[0].call(lambda launcher: kept.forget())


def both(broker, part_octets=1000):
    """(as they are written in a list, as each is by itself) of all queues, by their names, at one moment."""
    def read(launcher):
        rows = list(launcher.broker.vhosts["/"].queues.values())
        with in_app(launcher):
            lines = QueueLines(launcher._node._management._rates, launcher.broker.vhosts, part_octets)
            write(lines, rows)
            assert lines.count == len(rows)
            return in_octets(lines), [json_octets(shapes.queue(row)) for row in rows]

    written, alone = broker.call(read)
    return tuple(
        {one["name"]: one for one in shown} for shown in (json.loads(written), map(json.loads, alone))
    )


def write(lines, rows):
    """All of them, as ``queue_lines.lines`` does."""
    while rows:
        rows = rows[lines.write(rows):]


def in_octets(lines):
    """What was written, as a JSON array; each part is as long as it said."""
    parts = [(len(part), part.written()) for part in lines.end()]
    assert [length for length, _ in parts] == [len(octets) for _, octets in parts]
    return b"[" + b"".join(octets for _, octets in parts) + b"]"


def in_app(launcher):
    return launcher._node._management._apps["http"].app_context()


def test_queues_are_written_as_each_is_by_itself(some, clock):
    """At the first look, at the next within a second, once their counters have moved, and while they rest."""
    broker, channel = some
    shown = [both(broker)]
    names = ("busy", "stream", "prioritized", "limited", "consumed", "transient", "paused", "long")
    for name in (*PLAIN[::7], *names):
        for octets in (0, 9, 10, 12_345):
            channel.publish("", name, b"x" * octets)
    channel.queue_declare("busy", passive=True)  # what was published has come
    for ahead_s in (0.5, 3.0, 0.0, 7.5, 3600.0):
        clock.now += ahead_s
        shown.append(both(broker))

    for written, alone in shown:
        assert written == alone
        assert set(written) >= {*QUEUES, "owned"}
    busy = [written["busy"] for written, _ in shown]
    assert [one["messages"] for one in busy] == [0, 4, 4, 4, 4, 4]
    assert [one["message_stats"]["publish_details"]["rate"] > 0 for one in busy] == [
        False, False, True, True, False, False]


def test_policies_and_consumers_are_those_of_now(some, clock):
    broker, channel = some
    before, _ = both(broker)
    url, options = f"{broker.http_url.rstrip('/')}/api", {"auth": ("guest", "guest"), "timeout": in_time(30)}
    policy = {"pattern": "^policed$", "definition": {"max-length": 5}}
    requests.put(f"{url}/policies/%2F/lines", json=policy, **options).raise_for_status()
    broker.call(lambda launcher: launcher.broker.vhosts["/"].policies.step())
    tag = channel.consume("policed", None, "a-reader")
    with_both, alone = both(broker)
    channel.cancel(tag)
    requests.delete(f"{url}/policies/%2F/lines", **options).raise_for_status()
    broker.call(lambda launcher: launcher.broker.vhosts["/"].policies.step())
    after, _ = both(broker)

    seen = [(one["policed"]["policy"], one["policed"]["consumers"]) for one in (before, with_both, after)]
    assert seen == [(None, 0), ("lines", 1), (None, 0)]
    assert with_both == alone


def test_arguments_are_those_of_now(some, clock):
    """A session of MQTT that comes back with another expiry has others, under the same policies."""
    broker, _ = some

    def redefine(arguments):
        def act(launcher):
            vhost = launcher.broker.vhosts["/"]
            assert vhost.redefine_queue(vhost.queues["transient"], arguments)
        broker.call(act)
        return both(broker)

    before = both(broker)
    redefined = redefine({"x-expires": 3_600_000})
    after = redefine({})

    seen = [written["transient"]["arguments"] for written, _ in (before, redefined, after)]
    assert seen == [{}, {"x-expires": 3_600_000}, {}]
    assert redefined[0] == redefined[1]


def test_fewer_queues_are_written_at_once_where_their_arguments_are_long(some, clock):
    """At 32 KiB, or 40 of them with arguments of a megabyte would hold everybody up."""
    broker, _ = some

    def done(launcher):
        queues = launcher.broker.vhosts["/"].queues
        with in_app(launcher):
            lines = QueueLines(launcher._node._management._rates, launcher.broker.vhosts)
            write(lines, [queues[name] for name in PLAIN])
            return [
                lines.write([queues[name]] * queue_lines.QUEUES_LOOK) for name in (PLAIN[0], "long", "long")]

    assert broker.call(done) == [queue_lines.QUEUES_LOOK, 1, 2]  # the first has its head written, too


def test_what_changes_before_a_part_is_sent_is_not_in_it(some, clock):
    """Its length has been told: numbers have more digits by then, and rates are no longer 0."""
    broker, channel = some

    def begin(launcher):
        rows = list(launcher.broker.vhosts["/"].queues.values())
        with in_app(launcher):
            lines = QueueLines(launcher._node._management._rates, launcher.broker.vhosts)
            write(lines, rows)
            return lines, [json_octets(shapes.queue(row)) for row in rows]

    both(broker)
    lines, before = broker.call(begin)
    for name in (*PLAIN[:5], "prioritized"):
        for _ in range(1200):
            channel.publish("", name, b"x" * 100)
        channel.queue_declare(name, passive=True)  # what was published has come
    clock.now += 3.0
    changed, _ = both(broker)

    assert json.loads(broker.call(lambda launcher: in_octets(lines))) == [json.loads(one) for one in before]
    assert changed[PLAIN[0]]["message_stats"]["publish_details"]["rate"] > 0


@pytest.mark.parametrize("octets", [1, 1571, ROOM, 1024 * 1024])
def test_parts_of_any_size_are_one_list(some, clock, octets):
    written, alone = both(some[0], octets)

    assert written == alone


def test_queues_that_have_no_rate_because_others_have_are_written_too(some, clock, monkeypatch):
    monkeypatch.setattr(rates, "LOOKS_MAX", 10)

    written, alone = both(some[0])

    assert written == alone


def test_queues_that_go_while_a_list_is_written_are_left_out(some, clock, monkeypatch):
    """Behind each look at the clock a queue behind it goes, and one comes anew."""
    broker, _ = some

    def write(launcher):
        vhost = launcher.broker.vhosts["/"]
        rows = list(vhost.queues.values())
        with in_app(launcher):
            lines = QueueLines(launcher._node._management._rates, launcher.broker.vhosts)
            lines.write(rows[:2])
            gone = vhost.queues.pop(rows[2].name)
            lines.write(rows[2:4])
            vhost.queues[gone.name] = gone
            lines.write(rows[2:3])
        return lines.count, in_octets(lines), [row.name for row in rows[:4]]

    count, written, names = broker.call(write)

    shown = [one["name"] for one in json.loads(written)]
    assert shown == [names[0], names[1], names[3], names[2]]
    assert count == len(shown)


def test_a_queue_that_is_replaced_while_a_list_is_written_is_the_new_one(some, clock):
    """Others before it are there as they were, so that nothing was looked for until then."""
    broker, _ = some

    def write_some(launcher):
        queues = launcher.broker.vhosts["/"].queues
        rows = [queues[name] for name in PLAIN]
        with in_app(launcher):
            lines = QueueLines(launcher._node._management._rates, launcher.broker.vhosts)
            lines.write(rows[:10])
            queues[PLAIN[10]] = queues["transient"]
            lines.write(rows[10:20])
            queues[PLAIN[10]] = rows[10]
            lines.write(rows[20:])
        return [one["name"] for one in json.loads(in_octets(lines))]

    assert broker.call(write_some) == [*PLAIN[:10], "transient", *PLAIN[11:]]


def test_lists_in_any_order_are_written_as_each_queue_is_by_itself(some, clock):
    """Where the last list had a look at a queue, it is not looked for; lists may differ in all but one."""
    broker, channel = some

    def write_in(order):
        def act(launcher):
            rows = order(list(launcher.broker.vhosts["/"].queues.values()))
            with in_app(launcher):
                lines = QueueLines(launcher._node._management._rates, launcher.broker.vhosts)
                write(lines, rows)
                return (
                    [json.loads(one) for one in map(json_octets, map(shapes.queue, rows))],
                    json.loads(in_octets(lines)))
        return broker.call(act)

    for order in (
        list, lambda rows: rows[::-1], lambda rows: rows[3:], list, lambda rows: rows[:5], list,
        lambda rows: sorted(rows, key=lambda row: row.name[::-1]),
    ):
        channel.publish("", PLAIN[4], b"x")
        channel.queue_declare(PLAIN[4], passive=True)  # what was published has come
        clock.now += 2.0
        alone, written = write_in(order)

        assert written == alone
        assert [one["message_stats"]["publish_details"]["rate"] for one in written
                if one["name"] == PLAIN[4]] in ([0.0], [0.5], [])


def test_a_queue_declared_anew_has_no_rate_of_the_one_before(some, clock):
    broker, channel = some
    channel.queue_declare("again")
    both(broker)
    channel.publish("", "again", b"x")
    channel.queue_declare("again", passive=True)
    clock.now += 2.0
    before, _ = both(broker)
    channel.queue_delete("again")
    channel.queue_declare("again")
    after, alone = both(broker)
    channel.queue_delete("again")

    assert [one["again"]["message_stats"]["publish_details"]["rate"] for one in (before, after)] == [0.5, 0.0]
    assert after == alone


def test_what_is_forgotten_while_a_list_is_written_is_looked_at_anew(some, clock):
    broker, channel = some
    both(broker)
    channel.publish("", PLAIN[50], b"x")
    channel.queue_declare(PLAIN[50], passive=True)
    clock.now += 2.0

    def write_some(launcher):
        kept = launcher._node._management._rates
        queues = launcher.broker.vhosts["/"].queues
        rows = [queues[name] for name in PLAIN]
        with in_app(launcher):
            lines = QueueLines(kept, launcher.broker.vhosts)
            lines.write(rows[:30])
            kept.forget()
            lines.write(rows[30:])
            return json.loads(in_octets(lines)), [json.loads(json_octets(shapes.queue(row))) for row in rows]

    written, alone = broker.call(write_some)

    assert written == alone
    assert written[50]["message_stats"]["publish_details"]["rate"] == 0.0
    assert both(broker)[0] == both(broker)[1]


def test_long_lists_and_pages_of_them_are_written_so(some, monkeypatch):
    """And show in full what short pages show."""
    broker, _ = some
    asked = []
    monkeypatch.setattr(
        kinds.QUEUES, "lines",
        lambda rows, places: asked.append(len(places)) or queue_lines.lines(rows, places))

    def names(query):
        answer = requests.get(
            f"{broker.http_url.rstrip('/')}/api/queues{query}", auth=("guest", "guest"), timeout=in_time(30))
        found = answer.json()
        return [one["name"] for one in (found if isinstance(found, list) else found["items"])]

    everything = names("")
    page = names("?page=1&page_size=60&sort=name")
    backwards = names("?sort=name&sort_reverse=true")
    short = names("?page=1&page_size=10&sort=name")

    assert asked == [len(everything), 60, len(everything)]
    assert set(everything) == {*QUEUES, "owned"}
    assert page == sorted(everything)[:60] == backwards[::-1][:60]
    assert short == page[:10]
