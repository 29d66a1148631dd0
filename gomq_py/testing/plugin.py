"""The pytest plugin, with three fixtures that provide a broker.

``gomq`` is one broker for the whole session, ``gomq_vhost`` a new vhost of it for each test, and
``gomq_fresh`` a new broker for each test that uses the fixture. The ini option ``gomq_options`` configures
these brokers; the marker ``gomq`` of a test configures its ``gomq_fresh``, too. pytest loads the plugin
wherever gomq-py is installed.
"""
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gomq_py.testing.brokers import ChildBroker, ChildVHost

# Lines of the broker's log in a failed test's report.
LOG_LINES = 100
_NUMBERS = itertools.count(1)  # of vhosts
_BOOLEANS = {"true": True, "false": False}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "gomq_options", "options of gomq-py's brokers, a line each: heartbeat = 10", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gomq(**options): options of the broker of gomq_fresh")


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
def gomq(pytestconfig: pytest.Config) -> "Iterator[ChildBroker]":
    """A ChildBroker that all tests of the session share. Each test must use its own queue names, or
    ``gomq_vhost``.

    A test that makes the broker misbehave must call ``gomq.calm()`` at its end.
    """
    # here: every pytest run of this installation loads the plugin
    from gomq_py.testing.brokers import ChildBroker
    with ChildBroker(**_options(pytestconfig)) as broker:
        yield broker


@pytest.fixture
def gomq_vhost(gomq: "ChildBroker") -> "Iterator[ChildVHost]":
    """A new, empty ChildVHost in the session's broker, for this test alone. Has URLs as a broker has."""
    with gomq.create_vhost(f"test-{next(_NUMBERS)}") as vhost:
        yield vhost


@pytest.fixture
def gomq_fresh(
    tmp_path: Path, pytestconfig: pytest.Config, request: pytest.FixtureRequest,
) -> "Iterator[ChildBroker]":
    """A new, empty ChildBroker for this test alone, which may kill it."""
    from gomq_py.testing.brokers import ChildBroker
    options = _options(pytestconfig)
    for marker in reversed(list(request.node.iter_markers("gomq"))):  # the test's own is the last
        options |= marker.kwargs
    with ChildBroker(tmp_path / "gomq", **options) as broker:
        yield broker


def _options(config: pytest.Config) -> dict[str, Any]:
    """Return the ini option gomq_options as ChildBroker's keywords: texts and booleans. Raises UsageError."""
    options = {}
    for line in config.getini("gomq_options"):
        name, equals, text = (part.strip() for part in line.partition("="))
        if not equals:
            raise pytest.UsageError(f"gomq_options: {line!r} is not of the form name = value")
        options[name] = _BOOLEANS.get(text, text)
    return options
