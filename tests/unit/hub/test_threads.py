"""Work in threads: what the caller gets, and that nothing is printed."""
import functools
import threading

import gevent
import pytest

from gomq_py.hub import threads
from tests.support.waiting import in_time, wait_until

SECRET = "s3cret-Pa55word"


def fail(*_arguments, **_options):
    raise ValueError("cannot be done")


def test_what_a_thread_raises_reaches_the_caller_and_nobody_else(capfd):
    with pytest.raises(ValueError, match="cannot be done"):
        threads.in_thread(functools.partial(fail, password=SECRET), SECRET)

    assert capfd.readouterr() == ("", "")


def test_what_nobody_asks_for_any_more_is_not_printed_either(capfd):
    work = threads.begin(fail, SECRET)

    wait_until(work.ready, sleep=gevent.sleep)

    assert capfd.readouterr() == ("", "")


def test_work_apart_answers_as_other_work_does(capfd):
    work = threads.begin_apart(fail, SECRET)
    other = threads.begin_apart(max, 3, 4)

    wait_until(work.ready, sleep=gevent.sleep)

    assert other.get() == 4
    with pytest.raises(ValueError, match="cannot be done"):
        work.get()
    assert capfd.readouterr() == ("", "")


def test_work_apart_that_outlasts_its_hub_ends_without_a_word(capfd):
    let_go, ended, of_thread = threading.Event(), threading.Event(), threading.local()

    class End:
        def __del__(self):
            ended.set()

    def work():
        of_thread.end = End()
        let_go.wait(in_time(60))

    def run():
        threads.begin_apart(work)
        gevent.get_hub().destroy(destroy_loop=True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    let_go.set()

    assert ended.wait(in_time(60))
    assert capfd.readouterr() == ("", "")


def test_work_answers_what_the_function_returned():
    work = threads.begin(max, 3, 4)

    work.wait(in_time(60))

    assert (work.ready(), work.get(), threads.in_thread(min, 3, 4)) == (True, 3 + 1, 3)
