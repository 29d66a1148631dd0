"""A connection that is kept up by a thread of its own."""

import socket
import subprocess
import sys
import threading

import pytest

from gomq_py.amqp.wire.frames import content_frames, method_frame
from gomq_py.amqp.wire.methods import BasicPublish, ConnectionClose, ConnectionCloseOk
from gomq_py.client.backoff import Backoff
from gomq_py.client.errors import ConnectionClosed, Disconnected
from gomq_py.client.link import Link
from tests.support.command import ROOT
from tests.support.scripted_broker import Peer, scripted_broker
from tests.support.waiting import TIMEOUT_S, in_time, wait_until

AT_ONCE = Backoff(0.0, 0.0)


def nothing(_):
    pass


def test_posted_calls_run_in_order_in_the_threads_own_time():
    def script(peer):
        peer.handshake()
        peer.farewell()

    with scripted_broker(script) as url:
        link, done = Link(url, on_up=nothing).start(), []
        for number in range(100):
            link.post(done.append, number)
        names = link.call(lambda: threading.current_thread().name)
        link.close()

    assert (done, names) == (list(range(100)), "gomq-py link")


class CannotBe(Exception):
    """What no other attempt mends."""


def test_an_error_that_is_final_ends_the_link_with_a_line_and_no_traceback(caplog):
    def script(peer):
        peer.handshake()
        assert peer.frame() is None

    def on_up(_):
        raise CannotBe("the broker cannot do that")

    with scripted_broker(script) as url:
        link = Link(url, on_up=on_up, final=(CannotBe,))
        with pytest.raises(CannotBe):
            link.start()

    # threads of earlier tests may still tell of their ends
    told = [each for each in caplog.records if link._place() in each.message]
    assert [each.message.partition(": ")[2] for each in told] == ["the broker cannot do that"]
    assert link.has_ended and not any(each.exc_info for each in told)


def test_timers_come_in_the_order_of_their_times():
    def script(peer):
        peer.handshake()
        peer.farewell()

    with scripted_broker(script) as url:
        link, done = Link(url, on_up=nothing).start(), []
        link.call(lambda: [link.call_later(seconds, done.append, seconds) for seconds in (0.02, 0.0, 0.01)])
        wait_until(lambda: len(done) == 3)
        link.close()

    assert done == [0.0, 0.01, 0.02]


def test_a_timer_beyond_what_poll_can_wait_for_ends_nothing():
    """A month of milliseconds is more than poll() takes. Without heartbeats nothing comes sooner."""

    def script(peer):
        peer.handshake()
        peer.farewell()

    with scripted_broker(script) as url:
        link = Link(url, on_up=nothing, heartbeat_s=0).start()
        link.call(lambda: [link.call_later(seconds, nothing, None) for seconds in (1e300, 3e6)])
        for _ in range(3):  # each time it waits anew
            assert link.call(lambda: "served", timeout_s=TIMEOUT_S) == "served"
        link.close()


def test_lost_connection_is_made_anew_and_told():
    """Two connections on one listener: the broker drops the first, and the link declares again on the
    second.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ups, downs = [], []
        url = f"amqp://127.0.0.1:{listener.getsockname()[1]}"
        link = Link(url, on_up=ups.append, on_down=downs.append, backoff=AT_ONCE)

        def serve():
            with listener.accept()[0] as sock:
                Peer(sock).handshake()
            with listener.accept()[0] as sock:
                peer = Peer(sock)
                peer.handshake()
                peer.farewell()

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        link.start()
        wait_until(lambda: len(ups) == 2 and link.is_up)
        link.close()
        server.join(TIMEOUT_S)

    assert (len(downs), link.losses, link.has_ended) == (1, 1, True)


def serve_and_drop(listener, count, started):
    """Let so many connections in, and drop each when it is up, the first once the link is ``started``."""
    for _ in range(count):
        with listener.accept()[0] as sock:
            Peer(sock).handshake()
            started.wait(TIMEOUT_S)


def test_a_broker_that_lets_everybody_in_and_out_again_is_given_up():
    """Each connection comes up, and none of them lasts as long as the wait that is next."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url, ended = f"amqp://127.0.0.1:{listener.getsockname()[1]}", []
        # Once it is up it may be lost twice more: those waits are none, what they are measured by is long.
        backoff = Backoff(3600.0, 3600.0, retries=2, jitter=1.0)
        backoff.wait_s = lambda attempt: None if attempt > 2 else 0.0
        link = Link(url, on_up=nothing, on_end=ended.append, backoff=backoff)
        started = threading.Event()
        server = threading.Thread(target=serve_and_drop, args=[listener, 3, started], daemon=True)
        server.start()
        link.start()
        started.set()

        wait_until(lambda: link.has_ended)
        server.join(TIMEOUT_S)

    assert link.losses == 3 and len(ended) == 1


def test_connections_that_did_work_are_made_anew_for_ever():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url, ups = f"amqp://127.0.0.1:{listener.getsockname()[1]}", []
        backoff = Backoff(3600.0, 3600.0, retries=2)
        backoff.wait_s = lambda attempt: None if attempt > 2 else 0.0

        def up(connection):
            ups.append(connection)
            link.worked()

        link = Link(url, on_up=up, backoff=backoff)
        started = threading.Event()
        server = threading.Thread(target=serve_and_drop, args=[listener, 5, started], daemon=True)
        server.start()
        link.start()
        started.set()

        wait_until(lambda: len(ups) == 5)
        server.join(TIMEOUT_S)
    wait_until(lambda: link.has_ended)

    assert link.losses == 5


def test_used_up_attempts_are_raised_at_the_start():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"amqp://127.0.0.1:{listener.getsockname()[1]}"

    with pytest.raises(OSError):
        Link(url, on_up=nothing, backoff=Backoff(0, 0, retries=2)).start()


def test_refused_login_is_not_tried_again_at_the_start():
    def script(peer):
        peer.read_exactly(8)
        peer.send(0, ConnectionClose(reply_code=403, reply_text="ACCESS_REFUSED"))
        peer.expect(ConnectionCloseOk)

    with scripted_broker(script) as url, pytest.raises(ConnectionClosed, match="ACCESS_REFUSED"):
        Link(url, on_up=nothing).start()


def test_fault_of_a_posted_call_costs_nobody_else():
    def script(peer):
        peer.handshake()
        peer.farewell()

    with scripted_broker(script) as url:
        link = Link(url, on_up=nothing).start()
        link.post(lambda: 1 / 0)
        answer = link.call(lambda: "here")
        with pytest.raises(ZeroDivisionError):
            link.call(lambda: 1 / 0)
        link.close()

    assert answer == "here"


def test_after_the_end_nothing_can_be_posted():
    def script(peer):
        peer.handshake()
        peer.farewell()

    with scripted_broker(script) as url:
        link = Link(url, on_up=nothing).start()
        link.close()

    with pytest.raises(Disconnected):
        link.post(nothing, 1)


def test_frames_of_one_turn_are_sent_together():
    """Two posted publishes, one write: the peer's first read has both."""
    ready = threading.Event()
    received = []

    def script(peer):
        peer.handshake()
        channel_id = peer.channel()
        ready.set()
        expected = 2 * len(
            method_frame(channel_id, BasicPublish(exchange="", routing_key="q"))
            + content_frames(channel_id, b"\0\0", b"x", 0)
        )
        received.append(len(peer.socket.recv(65536)) == expected)
        peer.farewell()

    with scripted_broker(script) as url:
        link = Link(url, on_up=lambda connection: made.append(connection.channel()))
        made = []
        link.start()
        ready.wait(TIMEOUT_S)
        link.call(lambda: [made[0].publish("", "q", b"x") for _ in range(2)])
        wait_until(lambda: received)
        link.close()

    assert received == [True]


def test_a_wake_that_comes_late_does_not_keep_the_thread_turning():
    """The poster has noted that it wakes the thread, which looks into the inbox before
    the octet is in the pipe.
    """

    def script(peer):
        peer.handshake()
        peer.farewell()

    with scripted_broker(script) as url:
        link = Link(url, on_up=nothing).start()
        turns, over = [], threading.Event()
        link.call(wake_late, link, turns, over)
        over.wait(TIMEOUT_S)
        link.close()

    assert len(turns) < 20


def wake_late(link, turns, over):
    """Note each turn of the link's thread for 0.2 s, and write the octet while
    nobody says that there is one.
    """
    receive = link.connection.take_ready
    link.connection.take_ready = lambda: (turns.append(1), receive())[1]
    link.call_later(0.2, over.set)
    link._waker.send(b"w")


def test_what_is_posted_while_the_connection_is_closed_is_done_all_the_same():
    """Somebody waits for it: a publisher's message has a Future, which ended with nobody."""

    def script(peer):
        peer.handshake()
        peer.farewell()

    with scripted_broker(script) as url:
        link, done = Link(url, on_up=nothing).start(), []
        close = link.connection.close

        def close_late():
            link.post(done.append, "posted")
            link.post(lambda: 1 / 0)
            link.post(lambda: link.connection.nothing)
            link.post(done.append, "too")
            close()

        link.connection.close = close_late
        link.close()

    assert done == ["posted", "too"]


def test_a_call_from_the_links_own_thread_waits_for_nobody():
    def script(peer):
        peer.handshake()
        peer.farewell()

    with scripted_broker(script) as url:
        link = Link(url, on_up=nothing).start()
        answer = link.call(lambda: link.call(lambda: "here"), timeout_s=TIMEOUT_S)
        link.close()

    assert answer == "here"


FORKING = """
import os, sys
from gomq_py.client.errors import Disconnected
from gomq_py.client.link import Link

link = Link(sys.argv[1], on_up=lambda _: None).start()
child = os.fork()
if not child:
    serves = link.serve(None, 1.0, print, "sent")
    link.abort()
    link.close()
    try:
        link.post(print, "posted")
    except Disconnected as error:
        print(serves, link.is_up, error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(link.call(lambda: "here"))
link.close()
"""


def test_a_forked_process_leaves_the_connection_to_its_parent():
    """It would write into the same socket: neither publishing nor cutting the connection reaches that."""
    told = []

    def script(peer):
        peer.handshake()
        peer.farewell()
        told.append("farewell")

    with scripted_broker(script) as url:
        finished = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FORKING, url], cwd=ROOT, capture_output=True, text=True,
            timeout=in_time(60),
        )

    childs = "False False the connection is that of the process which forked this one"
    assert finished.stdout.splitlines() == [childs, "here"], finished.stderr
    assert told == ["farewell"]
