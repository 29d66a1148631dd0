"""Two brokers that are processes of their own, and a link between them in the test's process."""
import signal
import threading

import gevent
import pytest

from gomq_py.config.settings import Settings
from gomq_py.hub.context import Hub
from gomq_py.links import poison_detection
from gomq_py.links.ends import SourceEnd, TargetEnd
from gomq_py.links.link import Link
from tests.support.broker_process import BrokerProcess
from tests.support.hostile_broker import HostileBroker
from tests.support.links import QUICK, connect, until
from tests.support.ports import reserve

# The largest message that the second broker takes.
LARGEST = 1024 * 1024


@pytest.fixture(scope="package")
def pair(tmp_path_factory):
    """Two brokers that keep their ports."""
    folder = tmp_path_factory.mktemp("pair")
    config = folder / "two.ini"
    config.write_text(f"[amqp]\nmax_message_size = {LARGEST}\n")
    with (
        BrokerProcess(folder / "one", port=reserve()) as one,
        BrokerProcess(folder / "two", config=config, port=reserve()) as two,
    ):
        yield one, two


@pytest.fixture(autouse=True)
def quick_to_give_up(monkeypatch):
    """Messages that are refused are given up soon; tests of destinations without room say otherwise."""
    monkeypatch.setattr(poison_detection, "NACKED_S", 1.0)


@pytest.fixture
def hub():
    hub = Hub(Settings())
    yield hub
    hub.close()
    gevent.sleep(0)


@pytest.fixture
def name(request):
    """What queues are called: as the test."""
    return request.node.name.replace("[", "-").rstrip("]")


@pytest.fixture
def make_link(hub, pair, name):
    """A link from a queue of the first broker to one of the second, both named after the test."""
    links = []

    def make(source=None, target=None, edit=None, **options):
        one, two = pair
        options = {"connect": connect, "backoff": QUICK, **options}
        link = Link(
            hub, name, source or SourceEnd(one.amqp_url, name),
            target or TargetEnd(two.amqp_url, "", name, edit=edit), **options,
        )
        links.append(link)
        return link
    yield make
    for link in links:
        link.stop()
    until(lambda: all(link.has_ended for link in links))


@pytest.fixture
def queues(pair, name):
    """The name of the test's queue, and a channel at each broker, where it is declared."""
    channels = []
    for broker in pair:
        if not broker.is_running:
            broker.start()
        connection = connect(broker.amqp_url, heartbeat_s=0)
        channels.append(connection.channel())
        channels[-1].queue_declare(name, durable=True)
    yield name, *channels
    for channel in channels:
        channel.connection.abort()


@pytest.fixture
def taking_nothing():
    """A broker that lets clients log in, and then reads nothing; ``cut()`` ends the connections."""
    end = threading.Event()

    def script(peer):
        peer.as_destination()
        end.wait()
    with HostileBroker(script) as broker:
        broker.cut = end.set
        yield broker
        end.set()


@pytest.fixture
def two_config(pair):
    """Writes the second broker's configuration anew and has it read; as it was at the end."""
    _, two = pair
    config = two.data_dir.parent / "two.ini"
    usual = config.read_text()

    def configure(text):
        config.write_text(usual + text)
        two.signal(signal.SIGHUP)

    yield configure
    configure("")
