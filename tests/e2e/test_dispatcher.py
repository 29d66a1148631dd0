"""The task queue against a real broker: what becomes of tasks, of what is none, and of those that fail."""

import asyncio
import json
import os
import threading
import time

import gevent
import pytest

from gomq_py.client.backoff import Backoff
from gomq_py.client.connection import Connection
from gomq_py.content.properties import Properties
from gomq_py.dispatcher import (
    Argument,
    BadArgument,
    BadTask,
    Dispatcher,
    DispatcherError,
    InitQueue,
    NotDelivered,
    NotSupported,
    Reject,
    Retry,
    Server,
    ServerConfig,
    ServiceDisconnected,
    Task,
    TaskConfig,
    UInt8,
    WorkerConfig,
    current_task,
)
from tests.support.broker_process import BrokerProcess
from tests.support.task_queue import server_of
from tests.support.waiting import TIMEOUT_S, wait_until

SOON = Backoff(0.01, 0.01)


@pytest.fixture(scope="module")
def tasks_broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("tasks") / "data") as process:
        yield process


@pytest.fixture
def connection(tasks_broker):
    with Connection(tasks_broker.amqp_url) as made:
        yield made


@pytest.fixture
def server(tasks_broker, queue):
    """A server whose exchange and default queue are this test's own."""
    with server_of(tasks_broker, queue) as made:
        yield made


@pytest.fixture
def app(tasks_broker, queue):
    made = Dispatcher(tasks_broker.amqp_url, queue=queue, exchange=queue + ".x", unique_s=60, priorities=9)
    yield made
    made.close(TIMEOUT_S)


def start(server, queue, tasks, **options):
    options = {"name": f"worker of {queue}", "unknown_backoff": SOON, **options}
    worker = server.new_worker(WorkerConfig(queue, **options), tasks)
    worker.start()
    return worker


def dead_letter(connection, queue):
    """The first dead letter, once there is one."""
    channel = connection.channel()
    return wait_until(lambda: channel.get(queue + ".dead", no_ack=True))


def ready(connection, queue):
    with connection.channel() as channel:
        return channel.queue_declare(queue, passive=True).message_count


# The server, after gofort/dispatcher.


def test_a_task_runs_with_its_arguments_and_its_uuid(server, queue):
    calls = []
    start(server, queue, {"add": TaskConfig(lambda *args: calls.append(args), task_uuid_as_first_arg=True)})

    sent = server.publish(Task("add", [1, "two", 3.5, True, 2**53 + 1, Argument(2**64 - 1, "uint64")]))

    wait_until(lambda: calls)
    assert calls == [(sent, 1, "two", 3.5, True, 2**53 + 1, 2**64 - 1)]


def test_a_message_of_a_go_sender_runs(server, queue, connection):
    calls = []
    start(server, queue, {"resize": TaskConfig(lambda *args: calls.append(args))})
    body = b'{"uuid":"6","name":"resize","args":[{"type":"string","value":"a\\u003cb"},{"type":"uint16","value":640}]}'

    connection.channel().publish(
        queue + ".x", queue, body, Properties(content_type="application/json", delivery_mode=2, headers={})
    )

    wait_until(lambda: calls)
    assert calls == [("a<b", 640)]


def test_a_published_task_is_the_message_that_a_go_worker_expects(server, queue, connection):
    server.publish(Task("resize", ["a"], uuid="6", headers={"tenant": 7}))

    found = connection.channel().get(queue, no_ack=True)
    assert found.body == b'{"uuid":"6","name":"resize","args":[{"type":"string","value":"a"}]}'
    properties = found.properties
    assert (properties.content_type, properties.delivery_mode, properties.headers) == (
        "application/json",
        2,
        {"tenant": 7},
    )


def test_go_may_declare_what_we_declare(server, queue, connection):
    """Durable direct exchange, durable queue, no arguments: the Go library's declarations are equivalent."""
    channel = connection.channel()

    channel.exchange_declare(queue + ".x", "direct", durable=True)
    channel.queue_declare(queue, durable=True)


@pytest.mark.parametrize(
    "body, reason",
    [
        (b"", "the message is empty"),
        (b"no json", "the message is no JSON"),
        (
            b'{"name":"add","args":[{"type":"int","value":"x"}]}',
            "task 'add' of worker '{worker}': argument 1: 'x' is not an int",
        ),
        (
            b'{"name":"add","args":[{"type":"decimal","value":1}]}',
            "task 'add' of worker '{worker}': argument 1: unknown type 'decimal'",
        ),
        (
            b'{"name":"add","args":[]}',
            "task 'add' of worker '{worker}': 0 arguments were sent, and the function takes 1",
        ),
    ],
)
def test_what_cannot_run_goes_to_the_dead_letters_and_the_worker_goes_on(
    server, queue, connection, body, reason
):
    calls = []
    worker = start(server, queue, {"add": TaskConfig(lambda number: calls.append(number))})

    connection.channel().publish(queue + ".x", queue, body)
    letter = dead_letter(connection, queue)
    server.publish(Task("add", [1]))

    wait_until(lambda: calls)
    headers = letter.properties.headers
    assert letter.body == body and headers["x-task-reason"].startswith(reason.format(worker=worker.name))
    assert (headers["x-task-queue"], headers["x-task-worker"]) == (queue, worker.name)


def test_an_unknown_task_is_put_off_and_then_a_dead_letter(server, queue, connection):
    start(server, queue, {}, unknown_retries=3)

    server.publish(Task("nobody knows", [1]))

    letter = dead_letter(connection, queue)
    assert letter.properties.headers["x-task-error"] == "UnknownTask"
    assert "task 'nobody knows' is not known to worker" in letter.properties.headers["x-task-reason"]
    assert letter.properties.headers["x-task-unknown"] == 3


def test_a_task_that_one_worker_does_not_know_reaches_the_one_that_does(server, queue):
    calls = []
    start(server, queue, {}, name="ignorant " + queue, unknown_retries=10_000)
    start(server, queue, {"add": TaskConfig(lambda: calls.append(1))}, name="knowing " + queue)

    for _ in range(5):
        server.publish(Task("add"))

    wait_until(lambda: len(calls) == 5)


def test_what_a_function_raises_is_acknowledged_and_ends_nothing(server, queue, connection):
    def fail(kind):
        raise {"error": ValueError, "exit": SystemExit, "interrupt": KeyboardInterrupt}[kind]("no")

    worker = start(server, queue, {"fail": TaskConfig(fail), "fine": TaskConfig(lambda: None)}, limit=1)
    for kind in ("error", "exit", "interrupt"):
        server.publish(Task("fail", [kind]))
    server.publish(Task("fine"))

    wait_until(lambda: worker.done_count == 1)
    assert (worker.failed_count, ready(connection, queue), ready(connection, queue + ".dead")) == (3, 0, 0)


def test_at_most_limit_tasks_run_at_once(server, queue):
    lock, go = threading.Lock(), threading.Event()
    now, most, done = [0], [0], []

    def count():
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        go.wait(TIMEOUT_S)
        with lock:
            now[0] -= 1
        done.append(1)

    start(server, queue, {"count": TaskConfig(count)}, limit=3, prefetch=10)
    for _ in range(10):
        server.publish(Task("count"))
    wait_until(lambda: now[0] == 3)
    go.set()

    wait_until(lambda: len(done) == 10)
    assert most == [3]


@pytest.mark.parametrize("run_in", ["threads", "greenlets", "asyncio", "processes"])
def test_a_task_that_takes_too_long_is_settled_and_the_next_one_runs(server, queue, run_in):
    release = threading.Event()
    frozen = {
        "threads": lambda: release.wait(TIMEOUT_S),
        "greenlets": lambda: gevent.event.Event().wait(),
        "processes": threading_wait,
        "asyncio": lambda: asyncio.get_running_loop().create_future(),
    }[run_in]
    errors = []
    worker = server.new_worker(
        WorkerConfig(queue, f"worker of {queue}", limit=1),
        {
            "freeze": TaskConfig(frozen, timeout_s=0.2, run_in=run_in),
            "fine": TaskConfig(os.getpid, run_in=run_in),
        },
    )
    worker.hooks.failed_task.append(lambda context, error: errors.append(str(error)))
    worker.start()

    uuids = [server.publish(Task("freeze")) for _ in range(2)]
    server.publish(Task("fine"))

    wait_until(lambda: worker.done_count == 1)
    release.set()
    assert errors == [
        f"task 'freeze' ({each}) of worker 'worker of {queue}' took over 0.2 s" for each in uuids
    ]


def threading_wait():
    """For a process of its own, which finds it by its name."""
    threading.Event().wait()


def die():
    """Ends the process without a word."""
    os._exit(3)


def test_a_task_that_ends_its_process_fails_and_the_next_one_has_another(server, queue):
    errors = []
    worker = server.new_worker(
        WorkerConfig(queue, f"worker of {queue}", limit=1),
        {"die": TaskConfig(die, run_in="processes"), "fine": TaskConfig(os.getpid, run_in="processes")},
    )
    worker.hooks.failed_task.append(lambda context, error: errors.append(str(error)))
    worker.start()

    server.publish(Task("die"))
    server.publish(Task("fine"))

    wait_until(lambda: worker.done_count == 1)
    assert errors == ["the process of the task ended with 3 before the task did"]


def test_closing_waits_for_what_runs_and_gives_back_the_rest(server, queue, connection):
    go, begun = threading.Event(), []

    def hold(number):
        begun.append(number)
        go.wait(TIMEOUT_S)

    worker = start(server, queue, {"hold": TaskConfig(hold)}, limit=2, prefetch=5)
    for number in range(9):
        server.publish(Task("hold", [number]))
    wait_until(lambda: len(begun) == 2)
    closing = threading.Thread(target=worker.close)
    closing.start()
    wait_until(lambda: ready(connection, queue) == 7)
    still_there = closing.is_alive()
    go.set()
    closing.join(TIMEOUT_S)

    assert (still_there, worker.done_count, sorted(begun)) == (True, 2, [0, 1])


def test_closing_does_not_wait_for_ever_where_it_is_told_so(server, queue, connection):
    begun, release = threading.Event(), threading.Event()

    def freeze():
        begun.set()
        release.wait(TIMEOUT_S)

    worker = start(server, queue, {"freeze": TaskConfig(freeze)})
    server.publish(Task("freeze"))
    assert begun.wait(TIMEOUT_S)  # one that no thread has begun is given back, and closing is done

    finished = worker.close(0.05)

    assert finished is False
    wait_until(lambda: ready(connection, queue) == 1)
    release.set()


def test_many_threads_and_greenlets_publish_at_once(server, queue, connection):
    def publish_some():
        for _ in range(20):
            server.publish(Task("add", [1]))

    threads = [threading.Thread(target=publish_some) for _ in range(8)]
    for thread in threads:
        thread.start()
    gevent.joinall([gevent.spawn(publish_some) for _ in range(8)], raise_error=True)
    for thread in threads:
        thread.join(TIMEOUT_S)

    assert ready(connection, queue) == 320


def test_a_greenlet_that_publishes_lets_the_others_run(server):
    """Without any patching: while one waits for its confirm, another has its turn. Not with each: a confirm
    may be there before anybody waits for it."""
    ran, until = [], time.monotonic() + TIMEOUT_S

    def publish():
        while not ran and time.monotonic() < until:
            server.publish(Task("add"))
        return bool(ran)

    publishing = gevent.spawn(publish)
    gevent.spawn(ran.append, "another")
    publishing.join()

    assert publishing.value


def test_what_cannot_be_sent_is_said(server, queue):
    with pytest.raises(
        NotDelivered, match=r"Failed to deliver message: task 'add' \(.*312 NO_ROUTE.*routing key 'nowhere'"
    ):
        server.publish(Task("add", routing_key="nowhere"))
    with pytest.raises(BadTask, match="Task name was not passed"):
        server.publish(Task(""))
    with pytest.raises(BadTask):
        server.publish(Task("add", headers={"x": object()}))
    with pytest.raises(NotSupported, match="made without unique_s"):
        server.publish(Task("add", unique="a"))
    assert server.publish(Task("add"))


def test_a_full_queue_refuses_and_says_so(tasks_broker, queue):
    with server_of(tasks_broker, queue, {"x-max-length": 2, "x-overflow": "reject-publish"}) as server:
        for _ in range(2):
            server.publish(Task("add"))

        with pytest.raises(NotDelivered, match="Failed to deliver message.*the broker refused the message"):
            server.publish(Task("add"))


def test_a_closed_server_is_disconnected(server):
    server.close()

    with pytest.raises(ServiceDisconnected, match="Service is disconnected"):
        server.publish(Task("add"))
    with pytest.raises(ServiceDisconnected):
        server.new_worker(WorkerConfig("q", "w"))


def test_configurations_that_are_none_are_refused(server, queue):
    with pytest.raises(ValueError, match="Empty queue name passed"):
        Server(ServerConfig(init_queues=[InitQueue("", ["a"])]))
    with pytest.raises(ValueError, match="Empty binding key passed"):
        Server(ServerConfig(init_queues=[InitQueue("a", [""])]))
    with pytest.raises(ValueError, match="Can't bind key to queue without exchange"):
        Server(ServerConfig(exchange=""))
    with pytest.raises(
        ValueError, match="tasks run in threads, processes, asyncio, greenlets, not in 'space'"
    ):
        server.new_worker(WorkerConfig(queue, "other"), {"a": TaskConfig(print, run_in="space")})
    start(server, queue, {}, name="one")
    with pytest.raises(ValueError, match="there is a worker 'one' already"):
        server.new_worker(WorkerConfig(queue, "one"))
    with pytest.raises(KeyError, match="no worker 'two': there are one"):
        server.get_worker("two")
    assert server.get_worker("one").name == "one"


def test_a_worker_whose_queue_is_declared_otherwise_is_told_and_the_others_go_on(server, queue, connection):
    connection.channel().queue_declare(queue + "2", durable=False)

    with pytest.raises(
        DispatcherError,
        match=f"worker 'w': 406 PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{queue}2'",
    ):
        server.new_worker(WorkerConfig(queue + "2", "w"))

    assert server.publish(Task("add"))


# The app.


def test_a_decorated_function_runs_by_delay_and_is_itself(app):
    calls = []

    @app.task
    def add(a: int, b: int = 2):
        calls.append(a + b)
        return a + b

    app.workers()

    assert add(1) == 3
    add.delay(1, b=5)
    wait_until(lambda: calls == [3, 6])
    with pytest.raises(BadArgument, match=r"task 'add': argument 1 \('a'\): 'x' is not an int"):
        add.delay("x")


def test_coroutines_keyword_arguments_and_json(app):
    calls = []

    @app.task
    async def gather(names: list[str], *, options: dict, level: UInt8):
        await asyncio.sleep(0)
        calls.append((names, options, level, current_task().name))

    app.workers()
    gather.delay(["a"], options={"b": [1]}, level=255)

    wait_until(lambda: calls)
    assert calls == [(["a"], {"b": [1]}, 255, "gather")]


def test_a_failing_task_is_tried_again_and_then_a_dead_letter(app, queue, connection):
    attempts = []

    @app.task(retries=2, backoff=SOON)
    def fail():
        attempts.append(current_task().attempt)
        raise OSError("no route to host")

    app.workers()
    fail.delay()

    headers = dead_letter(connection, queue).properties.headers
    assert attempts == [1, 2, 3]
    assert (headers["x-task-error"], headers["x-task-reason"], headers["x-task-attempt"]) == (
        "OSError",
        "no route to host",
        3,
    )


def test_a_task_asks_for_a_retry_or_for_none(app, queue, connection):
    attempts = []

    @app.task
    def again():
        attempts.append("again")
        if len(attempts) == 1:
            raise Retry("not yet", delay_s=0.01)

    @app.task(retries=5)
    def never():
        attempts.append("never")
        raise Reject("a bad file")

    app.workers()
    again.delay()
    wait_until(lambda: attempts == ["again", "again"])
    never.delay()

    assert dead_letter(connection, queue).properties.headers["x-task-reason"] == "a bad file"
    assert attempts == ["again", "again", "never"]


def test_a_retry_is_no_failure_and_an_error_says_whether_it_runs_again(app, caplog):
    caplog.set_level("INFO", "gomq_py.dispatcher")
    failed = []
    app.failed(lambda context, error: failed.append(str(error)))

    @app.task(retries=2, backoff=SOON)
    def later():
        attempt = current_task().attempt
        if attempt == 1:
            raise Retry("not yet", delay_s=0.5)
        if attempt < 4:
            raise OSError("no route")

    [worker] = app.workers()
    identity = later.delay()

    wait_until(lambda: worker.failed_count == 2)
    assert failed == ["no route", "no route"]
    told = [(each.levelname, each.getMessage()) for each in caplog.records]
    task = f"task 'later' ({identity}) of worker '{worker.name}'"
    assert [each for each in told if each[1].startswith(task)] == [
        ("INFO", f"{task} will run again in 0.5 s, attempt 2 of 3: Retry: not yet"),
        ("WARNING", f"{task} will run again in 0.01 s, attempt 3 of 3: OSError: no route"),
        ("ERROR", f"{task} failed: OSError: no route"),
    ]


def test_hooks_hear_of_every_task(app):
    heard = []
    app.before(lambda context: heard.append(("before", context.name)))
    app.after(lambda context: heard.append(("after", context.name)))
    app.failed(lambda context, error: heard.append(("failed", str(error))))

    @app.task
    def fine(): ...

    @app.task
    def bad():
        raise ValueError("no")

    app.workers(concurrency=1)
    fine.delay()
    bad.delay()

    wait_until(lambda: len(heard) == 4)
    assert heard == [("before", "fine"), ("after", "fine"), ("before", "bad"), ("failed", "no")]


def test_a_task_waits_for_its_time(app):
    ran = []

    @app.task
    def note(what: str):
        ran.append((what, time.time()))

    app.workers()
    began = time.time()
    note.send(("in an hour",), delay_s=3600)
    note.send(("later",), delay_s=0.5)
    note.send(("at",), eta=began + 0.25)
    note.delay("now")

    wait_until(lambda: len(ran) == 3)
    # in any order, where this machine stood still and several were due at once
    came_s = {what: at - began for what, at in ran}
    assert sorted(came_s) == ["at", "later", "now"]
    assert came_s["at"] >= 0.24 and came_s["later"] >= 0.49, came_s


def test_urgent_tasks_overtake(app):
    order = []

    @app.task
    def note(what: str):
        order.append(what)

    assert app.server
    for what, priority in (("low", 1), ("none", None), ("high", 9)):
        note.send((what,), priority=priority)
    app.workers(concurrency=1)

    wait_until(lambda: len(order) == 3)
    assert order == ["high", "low", "none"]


def test_of_unique_tasks_the_first_runs(app):
    ran = []

    @app.task(unique=True)
    def note(what: str):
        ran.append(what)

    app.workers(concurrency=1)
    for what in ("a", "a", "b", "a"):
        note.delay(what)
    note.send(("c",), unique="another")
    note.send(("d",), unique="another")

    note.send(("last",), unique="last")
    wait_until(lambda: "last" in ran)
    assert ran == ["a", "b", "c", "last"]


def test_a_task_sent_by_its_name_runs_elsewhere(app, connection, queue):
    app.send("elsewhere", 1, "two")

    body = json.loads(connection.channel().get(queue, no_ack=True).body)
    assert (body["name"], body["args"]) == (
        "elsewhere",
        [{"type": "int", "value": 1}, {"type": "string", "value": "two"}],
    )


def test_a_task_publishes_another(app):
    ran = []

    @app.task
    def first():
        second.delay("from a thread")

    @app.task(run_in="greenlets")
    def second(text: str):
        third.delay(text)

    @app.task
    async def third(text: str):
        await asyncio.wrap_future(fourth.submit(text))

    @app.task
    def fourth(text: str):
        ran.append(text)

    app.workers()
    first.delay()

    wait_until(lambda: ran == ["from a thread"])


def test_tasks_that_cannot_be_are_refused_where_they_are_made(tasks_broker, app):
    @app.task
    def add(): ...

    with pytest.raises(ValueError, match="there is a task 'add' already"):
        app.task(add.function)
    with pytest.raises(ValueError, match=r"Dispatcher\(unique_s=...\) says for how long"):
        Dispatcher(tasks_broker.amqp_url).task(add.function, unique=True)
