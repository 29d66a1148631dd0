"""A broker whose page is looked at, and the browser that does."""
import contextlib

import pika
import pytest

from tests.support import page
from tests.support.broker_process import BrokerProcess

driver, browser_context = page.driver, page.browser_context


def pytest_collection_modifyitems(items):
    for item in items:
        if "/tests/ui/" in str(item.path):
            item.add_marker(pytest.mark.needs_program("chromium"))


@pytest.fixture(scope="session")
def managed(tmp_path_factory):
    """A broker with its page, for tests that name their own things."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "gomq.ini").write_text("[main]\nstats_interval = 500\n", encoding="utf-8")
    with BrokerProcess(folder / "data", config=folder / "gomq.ini", http_port=0) as process:
        yield process


@pytest.fixture
def base(managed):
    """Where its page is."""
    return f"http://127.0.0.1:{managed.ports['http']}"


@pytest.fixture
def api(base):
    """Its API, as guest."""
    return page.API(base)


@pytest.fixture
def ui(browser_context, base):
    """The page in a browser of this test's own."""
    return browser_context(base)


@pytest.fixture(scope="session")
def furnished(tmp_path_factory):
    """A broker with one of everything, which tests look at and leave as it is."""
    from tests.ui.furnished import Furnished
    with BrokerProcess(tmp_path_factory.mktemp("furnished") / "data", http_port=0) as process:
        one = Furnished(process)
        yield one
        one.close()


@pytest.fixture
def look(browser_context, furnished):
    """The page of the furnished broker."""
    return browser_context(furnished.base)


@pytest.fixture
def channel(managed):
    """A pika channel of a connection of its own. Its publishes return once the message is in its queues: the
    first one of a durable queue waits for its files, and pages do not see it meanwhile.
    """
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(managed.amqp_url))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@pytest.fixture
def fill(channel):
    """Publishes many messages to a queue, each (body, properties), and waits once for all of them."""
    def publish(queue, messages):
        with channel.connection.channel() as many:  # which is closed after them
            for body, properties in messages:
                many.basic_publish("", queue, body, properties)
    return publish


@pytest.fixture
def name(request):
    """A name of this test's own."""
    return request.node.name.removeprefix("test_")[:100]
