"""gomq_py.Broker in odd surroundings: event loops, processes that fork, notebooks,
programs that are interrupted or just end.
"""
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pika
import pytest

import gomq_py
from tests.embedding.test_embedded import PROGRAM_DEADLINE_S, round_trip, run_program
from tests.support.command import ROOT
from tests.support.waiting import in_time, wait_until

TALK = """
import pika
def talk(url, body=b"x"):
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))
    got = channel.basic_get("q", auto_ack=True)[2]
    connection.close()
    return got
"""


@pytest.fixture
def program(tmp_path):
    """A function that runs a file as a program of its own, in a folder of its own.

    Returns what it printed.
    """
    def run(source, *arguments):
        (tmp_path / "program.py").write_text(TALK + source)
        done = subprocess.run(
            [sys.executable, str(tmp_path / "program.py"), *arguments], capture_output=True, text=True,
            timeout=PROGRAM_DEADLINE_S, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout.strip()

    return run


def test_an_asyncio_program_embeds_a_broker_and_speaks_to_it(program):
    """The loop is another thread's than the broker's; opening and closing take it a moment,
    as any import does.
    """
    printed = program("""
import asyncio, aio_pika, gomq_py
async def main():
    with gomq_py.Broker() as broker:
        connection = await aio_pika.connect_robust(broker.amqp_url)
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            await channel.default_exchange.publish(aio_pika.Message(b"async"), "q")
            print((await queue.get(timeout=60)).body)
asyncio.run(main())
""")

    assert printed == "b'async'"


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_children_of_multiprocessing_speak_to_the_parents_broker_and_embed_their_own(program, how):
    printed = program("""
import multiprocessing, sys, gomq_py
def child(url, answers):
    with gomq_py.Broker() as own:
        answers.put((talk(url, b"parent's"), talk(own.amqp_url, b"own")))
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with gomq_py.Broker() as broker:
        answers = context.Queue()
        process = context.Process(target=child, args=(broker.amqp_url, answers))
        process.start()
        print(answers.get(timeout=90))
        process.join(60)
        print(process.exitcode, talk(broker.amqp_url, b"still there"))
""", how)

    assert printed == """(b"parent's", b'own')\n0 b'still there'"""


def test_a_forked_child_keeps_neither_the_folder_nor_the_port_nor_clients_of_a_closed_broker(program):
    printed = program("""
import os, signal, sys, gomq_py
with gomq_py.Broker("data") as broker:
    port = broker.addresses["amqp"][1]
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    child = os.fork()
    if not child:
        assert not broker.addresses  # it is the parent's
        signal.pause()
try:
    connection.channel()
except pika.exceptions.AMQPError as error:
    print(error.reply_code)
with gomq_py.Broker("data", amqp_port=port) as broker:
    print(talk(broker.amqp_url))
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
""")

    assert printed == "320\nb'x'"


def test_a_program_that_patches_late_keeps_its_broker(program):
    """As when a library imports gevent's patches in the middle of a test session."""
    printed = program("""
import gomq_py
broker = gomq_py.Broker().start()
print(talk(broker.amqp_url))
from gevent import monkey; monkey.patch_all()
print(talk(broker.amqp_url))
broker.close()
with gomq_py.Broker() as second:
    print(talk(second.amqp_url))
""")

    assert printed.splitlines() == ["b'x'"] * 3


def test_a_patched_close_is_not_the_brokers(program):
    """gevent's os.close waits for a turn of some thread's hub, and says EBADF where another thread's
    descriptor has had the same number.
    """
    printed = program("""
from gevent import monkey; monkey.patch_all()
import os, sys
callers, close = [], os.close
def noting(fd):
    callers.append(sys._getframe(1).f_globals["__name__"])
    close(fd)
os.close = noting
import gomq_py, requests
with gomq_py.Broker("data", http_port=0) as broker:
    print(talk(broker.amqp_url))
    print(requests.get(broker.http_url + "/api/queues", auth=("guest", "guest")).status_code)
print([name for name in callers if name.startswith("gomq_py")])
""")

    assert printed.splitlines() == ["b'x'", "200", "[]"]


def test_cells_of_a_notebook_share_a_broker(program):
    """Executed text without a file, in a loop that runs already, a cell at a time;
    the kernel ends without a close.
    """
    printed = program("""
import asyncio
cells = ["import gomq_py", "broker = gomq_py.Broker().start()", "print(talk(broker.amqp_url))", "broker.close()", "broker.start()",
         "print(talk(broker.amqp_url, b'again'))"]
async def kernel():
    space = {"__name__": "__main__", "talk": talk}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"<cell {number}>", "exec"), space)
        await asyncio.sleep(0)
asyncio.run(kernel())
""")

    assert printed.splitlines() == ["b'x'", "b'again'"]


def test_an_error_in_the_block_comes_out_and_the_broker_is_closed():
    with pytest.raises(KeyError, match="mine"), gomq_py.Broker() as broker:
        folder = broker.data_dir
        raise KeyError("mine")

    assert not os.path.exists(folder)


def test_threads_open_and_close_brokers_of_their_own():
    def use(number):
        with gomq_py.Broker() as broker:
            return round_trip(broker.amqp_url, body=b"%d" % number)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(use, range(4))) == [b"0", b"1", b"2", b"3"]


def test_another_thread_may_close_what_this_one_opened():
    broker = gomq_py.Broker().start()
    address = broker.addresses["amqp"]
    assert round_trip(broker.amqp_url) == b"hello"

    with ThreadPoolExecutor(1) as pool:
        pool.submit(broker.close).result(in_time(30))

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=in_time(5))


def test_a_program_that_ends_without_a_close_ends_and_has_lost_nothing(tmp_path):
    folder = str(tmp_path / "data")
    source = f"""
import gomq_py, pika
broker = gomq_py.Broker({folder!r}).start()
channel = pika.BlockingConnection(pika.URLParameters(broker.amqp_url)).channel()
channel.queue_declare("kept", durable=True)
channel.confirm_delivery()
channel.basic_publish("", "kept", b"here", pika.BasicProperties(delivery_mode=2))
print("confirmed")
"""
    assert run_program(source) == "confirmed"

    with gomq_py.Broker(folder) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
        assert connection.channel().basic_get("kept", auto_ack=True)[2] == b"here"
        connection.close()


@pytest.mark.parametrize("body", [
    "with broker: print('up', flush=True); input()", "print('up', flush=True); broker.serve_forever()"
])
def test_an_interrupt_closes_the_broker_in_order(tmp_path, body):
    """Ctrl-C in a block, or while it serves forever: KeyboardInterrupt comes out as always,
    and the folder is free.
    """
    source = f"""
import gomq_py
broker = gomq_py.Broker({str(tmp_path / "data")!r}, pidfile={str(tmp_path / "pid")!r})
try:
    {body}
except KeyboardInterrupt:
    with broker:
        print("free")
"""
    process = subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert process.stdout.readline() == "up\n"
    wait_until((tmp_path / "pid").exists, in_time(30))
    process.send_signal(signal.SIGINT)

    assert process.communicate(timeout=in_time(60))[0].split() == ["free"]
    assert process.returncode == 0


def test_workers_of_xdist_have_a_broker_each(tmp_path):
    """The fixture of a session is one for each worker; nobody sees another's queues."""
    (tmp_path / "test_each.py").write_text(TALK + """
import pytest
@pytest.mark.parametrize("number", range(6))
def test_each(gomq, gomq_fresh, number):
    assert talk(gomq.amqp_url, b"%d" % number) == b"%d" % number
    assert talk(gomq_fresh.amqp_url) == b"x"
""")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "gomq_py.testing.plugin", "-p", "xdist", "-n", "2",
            "-p", "no:cacheprovider", str(tmp_path),
        ],
        capture_output=True, text=True, timeout=in_time(100), cwd=tmp_path, env=environment)

    assert done.returncode == 0 and "6 passed" in done.stdout, done.stdout + done.stderr
