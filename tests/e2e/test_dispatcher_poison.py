"""Tasks that nobody thought of: one costs its sender an error or itself a place among the dead letters,
and nobody else anything.
"""

import json
import math
import subprocess
import sys
import threading
import uuid

import pytest

from gomq_py.client.backoff import Backoff
from gomq_py.client.connection import Connection
from gomq_py.content.properties import Properties
from gomq_py.dispatcher import (
    BadTask,
    Dispatcher,
    Retry,
    Server,
    ServerConfig,
    Task,
    TaskConfig,
    WorkerConfig,
    current_task,
)
from tests.support.command import ROOT
from tests.support.task_queue import server_of
from tests.support.waiting import TIMEOUT_S, in_time, wait_until

AT_ONCE = Backoff(0.0, 0.0)
# With what a dead letter is told beside them they are too large for a frame of 131072.
LARGE = {"large": "x" * 130_850}


@pytest.fixture
def connection(shared_broker):
    with Connection(shared_broker.amqp_url) as made:
        yield made


@pytest.fixture
def queue(connection):
    name = f"poison{uuid.uuid4().hex[:8]}"
    yield name
    with connection.channel() as channel:
        for each in (name, name + ".dead"):
            channel.queue_delete(each)
        for each in (".x", ".x.delayed", ".x.unique"):
            channel.exchange_delete(name + each)


@pytest.fixture
def server(shared_broker, queue):
    with server_of(shared_broker, queue) as made:
        yield made


def start(server, queue, tasks, **options):
    """A worker that runs one task at a time, so that a message that keeps its place stops it."""
    options = {"limit": 1, "unknown_backoff": AT_ONCE, **options}
    worker = server.new_worker(WorkerConfig(queue, f"worker of {queue}", **options), tasks)
    worker.start()
    return worker


def send(connection, queue, body, headers=None):
    with connection.channel() as channel:
        channel.confirm_select()
        channel.publish(queue + ".x", queue, body, Properties(headers=headers or {}))
        assert channel.wait_for_confirms()


def dead_letter(connection, queue):
    with connection.channel() as channel:
        return wait_until(lambda: channel.get(queue + ".dead", no_ack=True))


def assert_goes_on(server, worker):
    """The next task runs, over the same connection."""
    done = worker.done_count
    server.publish(Task("fine"), TIMEOUT_S)
    wait_until(lambda: worker.done_count == done + 1)
    wait_until(lambda: worker.running_count == 0)
    assert server.link.losses == 0


class Speechless(Exception):
    """Its text cannot be had."""

    def __str__(self):
        raise RuntimeError("no text")


def fail_with(error):
    def fail():
        raise error()

    return fail


@pytest.mark.parametrize(
    "error, reason",
    [
        (Speechless, "a Speechless whose text cannot be had (RuntimeError)"),
        (lambda: ValueError("x" * 1_000_000), "x" * 997 + "..."),
        (lambda: Retry(delay_s=math.inf), "delay_s is inf, and not a number of seconds from 0 to 1e+12"),
        (lambda: Retry(delay_s=math.nan), "delay_s is nan, and not a number of seconds from 0 to 1e+12"),
        (lambda: Retry(delay_s="soon"), "delay_s is 'soon', and not a number of seconds from 0 to 1e+12"),
    ],
    ids=["without a text", "of a megabyte", "after infinity", "after no number", "after a text"],
)
def test_an_error_that_cannot_be_dealt_with_is_a_dead_letter_like_any_other(
    server, queue, connection, error, reason
):
    tasks = {"fail": TaskConfig(fail_with(error), dead_letter=True), "fine": TaskConfig(lambda: None)}
    worker = start(server, queue, tasks)

    server.publish(Task("fail"))

    assert dead_letter(connection, queue).properties.headers["x-task-reason"] == reason
    assert_goes_on(server, worker)


class Renaming(type):
    """Gives its classes a name that has no form in UTF-8."""

    @property
    def __name__(cls):
        return "Half\ud800"


class Half(Exception, metaclass=Renaming):
    """With a text like that."""


def test_an_error_of_half_characters_is_a_dead_letter_like_any_other(server, queue, connection):
    tasks = {
        "fail": TaskConfig(fail_with(lambda: Half("no \udfff")), dead_letter=True),
        "fine": TaskConfig(lambda: None),
    }
    worker = start(server, queue, tasks)

    server.publish(Task("fail"))

    headers = dead_letter(connection, queue).properties.headers
    assert (headers["x-task-error"], headers["x-task-reason"]) == ("Half", "no \\udfff")
    assert headers["x-task-queue"] == queue
    assert_goes_on(server, worker)


@pytest.mark.parametrize(
    "body, error",
    [
        (b'{"name":"' + b"n" * 1_000_000 + b'"}', "UnknownTask"),
        (b'{"name":"a\\ud800b"}', "UnknownTask"),
        (b'{"name":"fine","args":[{"type":"int","value":' + b"[" * 900 + b"]" * 900 + b"}]}", "BadArgument"),
        (b'{"name":"fine","args":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "BadTask"),
        (b'{"name":"fine","args":[{"type":"int","value":' + b"9" * 5000 + b"}]}", "BadTask"),
        (b'{"name":"fine","args":[{"type":{"a":1},"value":1}]}', "BadArgument"),
        (b'{"name":"\xff"}', "BadTask"),
    ],
    ids=["long name", "half a character", "nested", "nested deeply", "many digits", "odd type", "no UTF-8"],
)
def test_a_message_that_cannot_be_read_is_a_dead_letter_with_a_short_reason(
    server, queue, connection, body, error
):
    worker = start(server, queue, {"fine": TaskConfig(lambda: None)}, unknown_retries=1)

    send(connection, queue, body)

    letter = dead_letter(connection, queue)
    assert (letter.body, letter.properties.headers["x-task-error"]) == (body, error)
    assert len(letter.properties.headers["x-task-reason"]) < 300
    assert_goes_on(server, worker)


def test_a_message_whose_headers_leave_no_room_for_a_reason_goes_without_them(server, queue, connection):
    """A copy with more headers would be a frame that the broker ends the connection for, again and again."""
    worker = start(server, queue, {"fine": TaskConfig(lambda: None)})

    send(connection, queue, b'{"name":"nobody knows"}', LARGE)

    letter = dead_letter(connection, queue)
    assert letter.body == b'{"name":"nobody knows"}' and "large" not in letter.properties.headers
    assert "'nobody knows' is not known" in letter.properties.headers["x-task-reason"]
    assert_goes_on(server, worker)


@pytest.mark.parametrize("count", [2**63 - 1, -1, True, "many"])
def test_counts_in_headers_are_taken_for_what_they_can_be(server, queue, connection, count):
    attempts = []

    def again():
        attempts.append(current_task().attempt)
        if len(attempts) == 1:
            raise Retry(delay_s=0)

    worker = start(server, queue, {"again": TaskConfig(again), "fine": TaskConfig(lambda: None)})
    send(connection, queue, b'{"name":"again"}', {"x-task-attempt": count, "x-task-unknown": count})

    wait_until(lambda: worker.done_count == 1)

    first = 2**31 if count == 2**63 - 1 else 1
    # The next attempt is counted from there, and not beyond what is counted.
    assert attempts == [first, min(first + 1, 2**31)]
    assert_goes_on(server, worker)


def test_a_time_beyond_all_clocks_is_waited_for(server, queue, connection):
    """It is put off once, for as long as a delay may be; nothing is tried again and again."""
    worker = start(server, queue, {"fine": TaskConfig(lambda: None)})

    send(connection, queue, b'{"name":"fine"}', {"x-task-due": 2**63 - 1})

    assert_goes_on(server, worker)
    assert (worker.done_count, len(worker._copies.futures)) == (1, 0)


def test_a_uuid_of_several_lines_is_one_in_the_log(server, queue, connection, caplog):
    tasks = {"fail": TaskConfig(fail_with(ValueError)), "fine": TaskConfig(lambda: None)}
    worker = start(server, queue, tasks)

    send(connection, queue, b'{"name":"fail","uuid":"a\\nERROR forged\\ud800"}')

    wait_until(lambda: worker.failed_count == 1)
    assert_goes_on(server, worker)
    said = "task 'fail' ('a\\nERROR forged\\ud800') of worker "
    assert [each for each in caplog.messages if said in each] and "\nERROR forged" not in caplog.text


@pytest.mark.parametrize("run_in", ["threads", "processes"])
def test_what_a_task_returns_is_nobodys(server, queue, run_in):
    """A lock can be neither pickled nor written as JSON."""
    worker = start(
        server, queue, {"lock": TaskConfig(threading.Lock, run_in=run_in), "fine": TaskConfig(lambda: None)}
    )

    server.publish(Task("lock"))

    wait_until(lambda: worker.done_count == 1)
    assert_goes_on(server, worker)


def test_a_hook_that_wants_to_end_the_program_ends_nothing(server, queue):
    worker = start(server, queue, {"fine": TaskConfig(lambda: None)})
    told = []

    def leave(_):
        told.append(1)
        raise SystemExit("enough")

    worker.hooks.after_task.append(leave)
    server.publish(Task("fine"))

    wait_until(lambda: worker.done_count == 1)
    assert_goes_on(server, worker)
    assert len(told) == 2


def test_a_task_with_copies_that_is_tried_again_comes_back_to_its_own_queue_alone(server, queue, connection):
    """Header CC sends it to another queue as well, once: not with each attempt, nor as a dead letter."""
    ran = []

    def fail():
        ran.append(1)
        raise ValueError("no")

    start(server, queue, {"fail": TaskConfig(fail, retries=2, backoff=AT_ONCE, dead_letter=True)})
    with connection.channel() as channel:
        other = channel.queue_declare(exclusive=True).queue
        channel.queue_bind(other, queue + ".x", other)
        server.publish(Task("fail", headers={"CC": [other]}), TIMEOUT_S)
        dead_letter(connection, queue)

        copies = channel.queue_declare(other, passive=True).message_count

    assert (len(ran), copies) == (3, 1)


CYCLE: list = []
CYCLE.append(CYCLE)
CYCLE_OF_HEADERS: dict = {}
CYCLE_OF_HEADERS["itself"] = CYCLE_OF_HEADERS


@pytest.mark.parametrize(
    "options, text",
    [
        ({"name": 5}, "name is 5, of type int"),
        ({"args": "abc"}, "args is 'abc', of type str"),
        ({"args": [10**5000]}, "a value of type int that is too large to show is not between"),
        ({"args": [CYCLE]}, "an argument has no form in JSON"),
        ({"headers": LARGE | {"more": "x" * 1000}}, "do not fit into a frame of 131072"),
        ({"headers": CYCLE_OF_HEADERS}, "recursion"),
        ({"headers": 5}, "headers is 5, of type int"),
        ({"headers": {"CC": "other"}}, "header CC is 'other', and no list of texts"),
        ({"headers": {"BCC": [5]}}, r"header BCC is \[5\], and no list of texts"),
        ({"routing_key": 5}, "routing_key is 5, of type int"),
        ({"routing_key": "k" * 256}, "a short string holds at most 255 bytes"),
        ({"priority": 256}, "a priority is from 0 to 255, not 256"),
        ({"delay_s": math.inf}, "delay_s is inf, and not a number of seconds"),
        ({"delay_s": math.nan}, "delay_s is nan, and not a number of seconds"),
        ({"delay_s": "soon"}, "delay_s is 'soon', and not a number of seconds"),
        ({"uuid": 5}, "uuid is 5, of type int"),
    ],
)
def test_a_task_that_cannot_be_sent_is_told_to_its_sender_and_to_nobody_else(server, queue, options, text):
    worker = start(server, queue, {"fine": TaskConfig(lambda: None)})

    with pytest.raises(BadTask, match=text):
        server.publish(Task(**{"name": "fine", **options}), TIMEOUT_S)

    assert_goes_on(server, worker)


def test_a_task_of_many_megabytes_arrives(server, queue):
    seen = []
    start(server, queue, {"weigh": TaskConfig(lambda text: seen.append(len(text)))})

    server.publish(Task("weigh", ["x" * 20_000_000]), TIMEOUT_S)

    wait_until(lambda: seen == [20_000_000])


def test_unique_tasks_are_told_apart_by_arguments_of_any_size(shared_broker, queue):
    """Their texts are headers, which a frame must hold: of long ones a hash goes there."""
    app = Dispatcher(shared_broker.amqp_url, queue=queue, exchange=queue + ".x", unique_s=60)
    seen = []

    @app.task(unique=True)
    def weigh(text: str):
        seen.append((text[0], len(text)))

    app.workers()
    for text in ("a" * 300_000, "b" * 300_000, "a" * 300_000, "a" * 10, "a" * 10):
        weigh.delay(text)

    wait_until(lambda: len(seen) == 3)
    assert app.close(TIMEOUT_S)
    assert sorted(seen) == [("a", 10), ("a", 300_000), ("b", 300_000)]


def test_a_wait_of_ten_thousand_years_is_one(shared_broker, queue, server):
    server.publish(Task("fine", delay_s=3e11), TIMEOUT_S)
    app = Dispatcher(shared_broker.amqp_url, queue=queue, exchange=queue + ".x", delivery_limit=None)
    late = app.task(lambda: None, name="late")

    for eta in (math.nan, 1e300, "tomorrow"):
        with pytest.raises(BadTask, match="delay_s is|is no time"):
            late.send(eta=eta)
    app.close()


@pytest.mark.parametrize(
    "options",
    [{"timeout_s": -1}, {"timeout_s": math.nan}, {"timeout_s": math.inf}, {"timeout_s": "1"}, {"retries": -1},
     {"retries": 1.5}, {"priority": 256}, {"backoff": math.nan}, {"name": 5}],
)
def test_options_of_a_task_that_are_none_are_refused_where_it_is_made(options):
    with pytest.raises(ValueError):
        Dispatcher().task(lambda: None, **{"name": "t", **options})


@pytest.mark.parametrize("options", [
    {"unique_s": 0}, {"unique_s": math.inf}, {"heartbeat_s": 65536}, {"heartbeat_s": -1}
])
def test_options_of_a_server_that_are_none_are_refused_before_it_connects(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Server(ServerConfig("amqp://127.0.0.1:1", **options))


def test_a_worker_may_take_as_many_tasks_as_the_protocol_can_say(server, queue):
    with pytest.raises(ValueError, match="both are at most 65535"):
        start(server, queue, {}, limit=65536)


FORKING = """
import os, sys
from gomq_py.dispatcher import Dispatcher
app = Dispatcher(sys.argv[1], queue=sys.argv[2], exchange=sys.argv[2] + ".x")

@app.task
def note(who: str): ...

note.delay("parent")
child = os.fork()
if not child:
    note.delay("child")
    os._exit(0)
status = os.waitpid(child, 0)[1]
note.delay("parent again")
app.close()
sys.exit(status)
"""


def test_a_forked_process_sends_over_a_connection_of_its_own(shared_broker, queue, connection):
    """As web servers fork after they have loaded the program, which may have sent a task by then."""
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, shared_broker.amqp_url, queue],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=in_time(60),
    )

    assert finished.returncode == 0, finished.stderr
    with connection.channel() as channel:
        bodies = [json.loads(channel.get(queue, no_ack=True).body) for _ in range(3)]
    assert [body["args"][0]["value"] for body in bodies] == ["parent", "child", "parent again"]
