"""The pytest plugin: ``gomq``, one broker for the whole session, and ``gomq_fresh``, one for each test that
asks.

Installed with gomq-py.
"""
import pytest

# Lines of the broker's log in a failed test's report.
LOG_LINES = 100


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the broker's log to a failed test's report."""
    report = yield
    if report.failed:
        for name in ("gomq", "gomq_fresh"):
            broker = getattr(item, "funcargs", {}).get(name)
            if broker is not None:
                lines = broker.log_text.splitlines()[-LOG_LINES:]
                report.sections.append((f"log of the broker {name}", "\n".join(lines)))
    return report


@pytest.fixture(scope="session")
def gomq():
    """A broker for the session: tests share it, so each names its own queues.

    After a test that used its switches, call ``gomq.calm()``.
    """
    # here: every pytest run of this installation loads the plugin
    from gomq_py.testing.brokers import ChildBroker
    with ChildBroker() as broker:
        yield broker


@pytest.fixture
def gomq_fresh(tmp_path):
    """A broker of this test's own, empty, which it may kill."""
    from gomq_py.testing.brokers import ChildBroker
    with ChildBroker(tmp_path / "gomq") as broker:
        yield broker
