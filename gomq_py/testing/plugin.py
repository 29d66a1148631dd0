"""The pytest plugin. The fixture ``gomq`` is one broker for the whole session; ``gomq_fresh`` is a new broker
for each test that uses the fixture.

pytest loads the plugin wherever gomq-py is installed.
"""
import pytest

# Lines of the broker's log in a failed test's report.
LOG_LINES = 100


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the end of the broker's log to the report of a failed test."""
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
    """A broker that all tests of the session share: each test must use its own names of queues.

    A test that makes the broker misbehave must call ``gomq.calm()`` at its end.
    """
    # here: every pytest run of this installation loads the plugin
    from gomq_py.testing.brokers import ChildBroker
    with ChildBroker() as broker:
        yield broker


@pytest.fixture
def gomq_fresh(tmp_path):
    """A new, empty broker for this test alone, which may kill it."""
    from gomq_py.testing.brokers import ChildBroker
    with ChildBroker(tmp_path / "gomq") as broker:
        yield broker
