"""Tasks that are revoked or expire, and workers that are asked what they run, in processes of their own."""

import json
import subprocess
import threading
from urllib.request import urlopen

import gevent
import pika
import pytest

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed
from gomq_py.content.properties import Properties
from gomq_py.dispatcher import Dispatcher, Server, ServerConfig, Task, WorkerConfig
from gomq_py.dispatcher.errors import BadTask
from tests.support.ports import reserve
from tests.support.task_queue import NOTE, workers
from tests.support.waiting import TIMEOUT_S, in_time, wait_until, wait_until_async

APP = """
import os, threading
from gomq_py.dispatcher import Dispatcher
queue = os.environ["TASKS_QUEUE"]
app = Dispatcher(os.environ["TASKS_URL"], queue=queue, exchange=f"{queue}.x")
""" + NOTE + """
@app.task
def hold():
    note.function("held")
    while not os.path.exists("go"):
        threading.Event().wait(0.01)

@app.task(every_s=1, expires_s=0.001)
def late():
    note.function("late")
"""


@pytest.fixture
def run(shared_broker, queue, tmp_path):
    """A function that starts gomq-py-worker."""
    with workers(tmp_path, APP, shared_broker.amqp_url, queue) as start:
        yield start


@pytest.fixture
def asked(run):
    """A function that runs a subcommand for the app: (exit code, standard output, standard error)."""

    def ask(command, *arguments):
        child = run(command, "--app", "jobs:app", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        told = child.communicate(timeout=in_time(60))
        return child.returncode, *told

    return ask


def sent(app, name, *args, **options):
    """Send a task of the child's app, and return its uuid."""
    return app.server.publish(Task(name, list(args), routing_key=app.queue, **options))


def notes(tmp_path):
    return (tmp_path / "notes").read_text().split()


def test_a_revoked_task_does_not_run_in_a_worker_that_starts_later(app, run, asked, tmp_path):
    identifiers = [sent(app, "note", text) for text in ("one", "two", "three")]

    code, told, _ = asked("revoke", identifiers[0], identifiers[2])
    app.close()
    run("jobs:app")
    wait_until(lambda: notes(tmp_path))
    [worker] = seen(app, lambda worker: worker["done"])

    assert (code, told) == (0, "revoked, unless they have begun\n")
    assert (notes(tmp_path), worker["done"], worker["revoked"]) == (["two"], 1, 2)


def seen(app, condition):
    """The workers that answer, once one meets the condition."""
    return wait_until(lambda: [
        worker for process in app.inspect(1)["processes"] for worker in process["workers"]
        if condition(worker)])


@pytest.mark.parametrize("run_in", ["threads", "asyncio", "greenlets"])
def test_a_worker_drops_what_it_has_prefetched_and_what_comes_back_later(shared_broker, queue, run_in):
    app = Dispatcher(
        shared_broker.amqp_url, queue=queue, exchange=f"{queue}.x", concurrency=1, prefetch=5)
    go, ran, failed = threading.Event(), [], []
    app.failed(lambda context, error: failed.append(error))

    def hold(text):
        ran.append(text)
        wait_until(go.is_set, sleep=gevent.sleep) if run_in == "greenlets" else go.wait(TIMEOUT_S)

    async def hold_on(text):
        ran.append(text)

        async def is_set():
            return go.is_set()

        await wait_until_async(is_set)

    task = app.task(hold_on if run_in == "asyncio" else hold, name="hold", run_in=run_in)
    [worker] = app.workers()
    task.delay("held")
    identifiers = [task.delay("prefetched"), task.send(["delayed"], delay_s=0.3)]
    wait_until(lambda: ran and worker.running_count >= 2)

    app.revoke(*identifiers)
    wait_until(lambda: set(identifiers) <= app.server.revoked.keys())
    task.delay("last")
    go.set()
    wait_until(lambda: worker.revoked_count == 2 and worker.done_count == 2)
    app.close()

    assert (ran, failed, worker.failed_count) == (["held", "last"], [], 0)


def test_a_revocation_outlives_the_connection_of_a_worker(app, shared_broker, queue):
    ran = []

    @app.task
    def note(text: str):
        ran.append(text)

    [worker] = app.workers()
    identifier = note.send(["delayed"], delay_s=1)
    app.revoke(identifier)
    app.server.link.connection.socket.shutdown(2)
    note.delay("after")

    wait_until(lambda: ran and worker.revoked_count)
    assert ran == ["after"]


@pytest.mark.parametrize("identifiers", [[""], [5], ["x" * 256]])
def test_what_is_no_id_is_refused(app, identifiers):
    with pytest.raises(BadTask, match="an id of a task is a text"):
        app.revoke(*identifiers)


def test_more_ids_than_the_broker_keeps_are_refused(app):
    with pytest.raises(BadTask, match="25001 ids are too many: the broker keeps the last 25000"):
        app.revoke(*["x"] * 25001)


def test_a_worker_bears_what_others_write_to_its_stream(app, shared_broker, queue, monkeypatch):
    """It keeps no text that is no id, and the last ids only, whatever their time."""
    monkeypatch.setattr("gomq_py.dispatcher.remote._MOST_KEPT", 3)
    app.task(name="note")(lambda text: None)
    app.workers()
    with Connection(shared_broker.amqp_url) as connection, connection.channel() as channel:
        for body in (b"", b"[]", b"\xff", b"[" * 100_000, b'{"uuid": 5}', b'{"uuid": ""}',
                     json.dumps({"uuid": "x" * 256}).encode()):
            channel.publish("", f"{queue}.x.revoked", body, Properties())
        for each in "abcdae":
            channel.publish("", f"{queue}.x.revoked", json.dumps({"uuid": each}), Properties(
                timestamp=2**63 - 1))

    wait_until(lambda: "e" in app.server.revoked)
    assert list(app.server.revoked) == ["d", "a", "e"]
    assert max(app.server.revoked.values()) < 2**33


def test_a_worker_whose_user_may_not_listen_runs_tasks_all_the_same(shared_broker, queue, caplog):
    """Another program has declared the names otherwise."""
    with pika.BlockingConnection(pika.URLParameters(shared_broker.amqp_url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(f"{queue}.x.control", "topic")
        channel.queue_declare(f"{queue}.x.revoked")
    ran = []
    app = Dispatcher(shared_broker.amqp_url, queue=queue, exchange=f"{queue}.x")

    @app.task
    def note(text: str):
        ran.append(text)

    app.workers()
    note.delay("hello")

    wait_until(lambda: ran)
    app.close()
    told = [each.getMessage() for each in caplog.records]
    assert [each.partition(": ")[0] for each in told if "406" in each] == [
        "revoked tasks run", "workers cannot be inspected"]


def metrics_at(port):
    try:
        return urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S).read().decode()
    except OSError:
        return None  # not yet there


def test_a_task_that_does_not_begin_in_time_is_dropped_and_counted(app, run, tmp_path):
    port = reserve()
    sent(app, "note", "late", expires_s=0.001, broker_drops=False)
    sent(app, "note", "in-time", expires_s=3600, broker_drops=False)
    run("jobs:app", "--prometheus-port", str(port))

    wait_until(lambda: notes(tmp_path))
    metrics = wait_until(lambda: metrics_at(port))

    assert notes(tmp_path) == ["in-time"]
    assert f'gomq_worker_tasks_expired_total{{queue="{app.queue}"}} 1.0' in metrics
    assert f'gomq_worker_tasks_revoked_total{{queue="{app.queue}"}} 0.0' in metrics


def test_a_periodic_task_expires_from_each_of_its_times(app, run, tmp_path):
    run("jobs:app")

    seen(app, lambda worker: worker["expired"] >= 2)

    app.drop_schedule("late")
    assert notes(tmp_path) == []


def test_the_broker_drops_an_expired_task_of_a_queue_without_dead_letters(shared_broker, queue):
    app = Dispatcher(shared_broker.amqp_url, queue=queue, exchange=f"{queue}.x", delivery_limit=None)

    @app.task(expires_s=0.01)
    def note(text: str):
        pass

    note.delay("late")
    with Connection(shared_broker.amqp_url) as connection, connection.channel() as channel:
        wait_until(lambda: channel.queue_declare(queue, passive=True).message_count == 0)
        note.send(["kept"], expires_s=60)
        message = channel.get(queue, no_ack=True)
    app.close()

    assert message.properties.expiration == "60000"


def test_a_task_that_the_broker_would_bring_to_the_dead_letters_expires_in_the_worker_alone(app):
    @app.task
    def note(text: str):
        pass

    task = note.task(["late"], expires_s=60)

    assert task.properties().expiration is None and task.properties().headers["x-task-expires"] > 0
    assert note.task(["x"], delay_s=1, expires_s=60).properties().expiration is None


@pytest.mark.parametrize("expires_s", ["soon", True, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(app, expires_s):
    with pytest.raises(BadTask, match="expires_s is"):
        app.task(expires_s=expires_s)(lambda: None)


def test_inspect_shows_workers_what_they_run_and_what_waits(app, run, asked, tmp_path):
    for number in range(2):
        run("jobs:app", "--concurrency", "1", "--name", f"w{number}")
    identifiers = {sent(app, "hold") for _ in range(3)}
    wait_until(lambda: len(notes(tmp_path)) == 2)

    code, told, _ = asked("inspect", "--json", "--timeout", "20")
    found = json.loads(told)
    _, text, _ = asked("inspect", "--timeout", "20")

    workers = [worker for process in found["processes"] for worker in process["workers"]]
    running = [task for worker in workers for task in worker["running"]]
    assert (code, len(found["processes"])) == (0, 2)
    assert [process["tasks"] for process in found["processes"]] == [["hold", "late", "note"]] * 2
    assert sorted(worker["name"] for worker in workers) == [f"w0.{app.queue}", f"w1.{app.queue}"]
    assert {task["uuid"] for task in running} < identifiers
    assert [(task["name"], task["attempt"]) for task in running] == [("hold", 1)] * 2
    assert all(task["seconds"] >= 0 for task in running)
    assert found["queues"][0]["consumers"] == 2 and found["queues"][0]["waiting"] >= 1
    assert f"worker w0.{app.queue} of {app.queue}: 1 taken, 1 at once, done 0, failed" in text
    assert f"queue {app.queue}: " in text and "2 consumers" in text


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_inspect_says_where_no_worker_answers(asked, more):
    code, _, told = asked("inspect", "--timeout", "0.1", *more)

    assert (code, told.startswith("gomq-py-worker: no worker of exchange")) == (1, True)


class OtherProgram:
    """Answers the questions of ``inspect`` with these bodies, as anybody can with the right to listen."""

    def __init__(self, url, exchange, bodies):
        self._connection = Connection(url)
        self._channel = self._connection.channel()
        self._channel.exchange_declare(f"{exchange}.control", "fanout", durable=True)
        queue = self._channel.queue_declare("", exclusive=True).queue
        self._channel.queue_bind(queue, f"{exchange}.control")
        self._channel.consume(queue, no_ack=True)
        self._thread = threading.Thread(target=self._answer, args=[bodies])
        self._thread.start()

    def _answer(self, bodies):
        with self._connection:
            asker = self._channel.next_delivery(TIMEOUT_S).properties.reply_to
            for body in bodies:
                self._channel.publish("", asker, body)
            self._channel.queue_declare("amq.rabbitmq.reply-to", passive=True)  # all have arrived

    def join(self):
        self._thread.join(TIMEOUT_S)


def answer_of(queue, **fields):
    """An answer with the fields of a process; ``queue`` is its worker's."""
    counts = dict.fromkeys(("limit", "done", "failed", "revoked", "expired", "taken"), 0)
    worker = {"name": "w", "queue": queue, "consuming": True, "running": [], **counts}
    return {"host": "h", "pid": 1, "version": "1", "tasks": [], "workers": [worker], **fields}


def test_inspect_passes_over_answers_of_another_form(app, shared_broker, queue, monkeypatch):
    monkeypatch.setattr("gomq_py.dispatcher.remote._LONGEST_ANSWER", 100_000)
    others = [
        b"\xff", b"null", b"[]", b"{}", b"[" * 100_000, *(
            json.dumps(each).encode() for each in (
                answer_of(queue, host="h" * 100_000),
                answer_of(queue, host=5), answer_of(queue, tasks=[5]), answer_of(queue, workers=[{}]),
                answer_of(""), answer_of([]), answer_of("q" * 256), answer_of("\ud800"), answer_of(queue)))]
    other = OtherProgram(shared_broker.amqp_url, app.exchange, others)

    found = app.inspect(2)
    other.join()

    assert found["processes"] == [answer_of(queue)]


def test_inspect_writes_no_control_characters(asked, shared_broker, queue):
    text = "\x1b[2J\x1b]0;title\x07"
    other = OtherProgram(shared_broker.amqp_url, f"{queue}.x", [
        json.dumps(answer_of(text, host=text, version=text, tasks=[text])).encode()])

    code, told, _ = asked("inspect", "--timeout", "2")
    other.join()

    assert code == 0 and told.isascii() and told.replace("\n", "").isprintable()


def test_inspect_waits_for_its_own_workers_where_those_of_another_app_answer(app, shared_broker, queue):
    """Both apps have one exchange, and the other's worker answers first."""
    app.task(name="note")(lambda text: None)
    app.workers()
    wait_until(lambda: app.inspect(20)["processes"])
    held = threading.Event()
    app.server.link.post(held.wait, TIMEOUT_S)
    other = OtherProgram(shared_broker.amqp_url, app.exchange, [json.dumps(answer_of("others")).encode()])
    answered = threading.Timer(0, lambda: (other.join(), held.set()))
    answered.start()

    found = app.inspect(20)
    answered.join()

    assert {each["workers"][0]["queue"] for each in found["processes"]} == {"others", queue}


def test_a_question_cannot_have_a_worker_write_to_a_queue(app, shared_broker, queue):
    """It would write there with the rights of the worker's user, which the asker may lack."""
    app.workers()
    victim = f"{queue}.victim"
    with Connection(shared_broker.amqp_url) as connection, connection.channel() as channel:
        channel.queue_declare(victim)
        for reply_to in (victim, ""):
            channel.publish(f"{queue}.x.control", "", b"", Properties(reply_to=reply_to))
        assert app.inspect(20)["processes"]
        assert channel.queue_delete(victim) == 0


def test_a_server_as_in_go_declares_nothing_of_it(shared_broker, queue):
    with Server(ServerConfig(shared_broker.amqp_url, exchange=f"{queue}.x")) as server:
        server.new_worker(WorkerConfig(queue, "w", [queue]), {}).start()

        with Connection(shared_broker.amqp_url) as connection, connection.channel() as channel:
            with pytest.raises(ChannelClosed, match="NOT_FOUND"):
                channel.queue_declare(f"{queue}.x.revoked", passive=True)
