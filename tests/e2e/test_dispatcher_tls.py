"""The task queue over TLS: a context of one's own, or what the URL says;
and a certificate that is not to be trusted.
"""

import ssl

import pytest

from gomq_py.dispatcher import Dispatcher, Server, ServerConfig
from tests.support import certificates
from tests.support.waiting import TIMEOUT_S, wait_until


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificates.make(tmp_path_factory.mktemp("tls") / "server")


@pytest.fixture
def broker(broker_process, files):
    return broker_process(amqps_port=0, tls_cert=files.certificate, tls_key=files.key).start()


def address(broker, query=""):
    return f"amqps://guest:guest@localhost:{broker.ports['amqps']}/%2f{query}"


@pytest.mark.parametrize("by", ["context", "url"])
def test_tasks_run_over_tls(broker, files, by):
    """Large and small, with one that waits: octets that TLS holds back are seen by no poll."""
    if by == "context":
        context = ssl.create_default_context(cafile=files.authority)
        app = Dispatcher(address(broker), tls_context=context)
    else:
        app = Dispatcher(address(broker, f"?cacertfile={files.authority}"))
    seen = []

    @app.task
    def weigh(text: str):
        seen.append(len(text))

    app.workers()
    for size in (1, 1_000_000, 2, 70_000):
        weigh.delay("x" * size)
    weigh.send(("xxx",), delay_s=0.05)

    wait_until(lambda: sorted(seen) == [1, 2, 3, 70_000, 1_000_000])
    assert app.server.link.losses == 0
    assert app.close(TIMEOUT_S)


def test_a_connection_over_tls_is_made_anew(broker, files):
    app = Dispatcher(
        address(broker),
        tls_context=ssl.create_default_context(cafile=files.authority),
        reconnection_interval_s=0.02,
        reconnection_retries=None,
    )
    seen = []

    @app.task
    def note(number: int):
        seen.append(number)

    app.workers()
    note.delay(1)
    wait_until(lambda: seen == [1])
    app.server.link.post(app.server.link.connection.abort)
    wait_until(lambda: app.server.link.losses == 1)
    note.delay(2)

    wait_until(lambda: 2 in seen)
    app.close(TIMEOUT_S)


def test_a_certificate_that_is_not_trusted_is_said_at_once(broker, tmp_path):
    """No waiting mends it, so that the retries, which are for ever here, are not begun."""
    other = certificates.make(tmp_path / "other")
    context = ssl.create_default_context(cafile=other.authority)

    with pytest.raises(ssl.SSLCertVerificationError):
        Server(ServerConfig(address(broker), tls_context=context, reconnection_retries=None))
