"""What the tests of auth share."""
import gevent
import pytest

from tests.support.waiting import wait_until


@pytest.fixture
def hub():
    """``hub(predicate)``: let greenlets run until it holds."""
    return lambda predicate: wait_until(predicate, sleep=gevent.sleep)
