"""Greenlets and callbacks that die: one entry of the log, and nothing is printed."""
import functools
import logging

import gevent
import pytest

from gomq_py.hub import faults
from tests.support.waiting import wait_until

SECRET = "s3cret-Pa55word"


def fail(*_arguments, **_options):
    raise ValueError("cannot be done")


@pytest.fixture
def own_hub():
    """This thread's hub with the broker's ways, until the test is over."""
    here = gevent.get_hub()
    faults.log_faults()
    yield here
    del here.print_exception


@pytest.mark.parametrize("name", ["", "the watch"])
def test_a_greenlet_that_dies_is_one_entry_of_the_log_without_its_arguments(own_hub, capfd, caplog, name):
    caplog.set_level(logging.ERROR)
    greenlet = gevent.Greenlet(functools.partial(fail, SECRET), SECRET, password=SECRET)
    if name:
        greenlet.name = name

    greenlet.start()
    greenlet.join()

    (record,) = caplog.records
    assert (
        record.getMessage()
        == f"{'greenlet ' + repr(name) if name else 'a greenlet of fail'} died of a fault of the broker"
    )
    assert record.exc_info[0] is ValueError
    assert SECRET not in caplog.text
    assert capfd.readouterr() == ("", "")


def test_a_callback_that_raises_is_logged(own_hub, capfd, caplog):
    own_hub.loop.run_callback(fail, SECRET)

    wait_until(lambda: caplog.records, sleep=gevent.sleep)

    assert "died of a fault of the broker" in caplog.text
    assert SECRET not in caplog.text
    assert capfd.readouterr() == ("", "")


def test_a_kill_is_no_fault(own_hub, caplog):
    greenlet = gevent.spawn(gevent.sleep, 60)
    gevent.sleep(0)

    greenlet.kill()

    assert caplog.records == []


def test_what_a_library_asks_a_thread_reaches_the_library_alone(own_hub, capfd, caplog):
    """As gevent's resolver does: with a name that is none it got the exception, and the log a traceback."""
    with pytest.raises(ValueError, match="cannot be done"):
        own_hub.threadpool.apply(fail, (SECRET,))

    assert caplog.records == []
    assert capfd.readouterr() == ("", "")
