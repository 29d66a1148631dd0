"""Fixtures and reports of the whole suite: a broker process, missing programs, and which twin of the hot modules is tested."""
import logging
import os

import hypothesis
import pytest

from gomq_py import build_info
from gomq_py.observability import log
from tests.support import programs
from tests.support.broker_process import BrokerProcess

# A slow machine is no fault of a property.
hypothesis.settings.register_profile("suite", deadline=None)
# For runs that are slow by themselves (make asan): --hypothesis-profile=quick.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=10)
hypothesis.settings.load_profile("suite")


def pytest_report_header():
    return f"gomq-py hot modules: {build_info.speed()}"


def pytest_sessionstart(session):
    wants_compiled = os.environ.get("GOMQ_REQUIRE_COMPILED") and not os.environ.get("GOMQ_PURE_PYTHON")
    if wants_compiled and build_info.interpreted_modules():
        raise pytest.UsageError(f"GOMQ_REQUIRE_COMPILED is set, but these are interpreted: {', '.join(build_info.interpreted_modules())}")


def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs_program"):
        name = mark.args[0]
        if not programs.find(name):
            if programs.skips_are_forbidden():
                pytest.fail(f"{name} is missing: {programs.install_command([name])}", pytrace=False)
            pytest.skip(programs.skip_reason(name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """A test that leaves the log silent would make others fail, and which ones depends on the order."""
    result = yield
    package = logging.getLogger(log.ROOT)
    assert package.level == logging.NOTSET and package.propagate, f"{item.nodeid} left the log at level {package.level}: use kept_logging"
    return result


def pytest_terminal_summary(terminalreporter):
    """The programs that tests were skipped for, from the reports: the tests may have run in other processes."""
    skipped = [programs.missing_from(str(report.longrepr)) for report in terminalreporter.stats.get("skipped", ())]
    missing = sorted({name for name in skipped if name})
    if missing:
        terminalreporter.section("skipped for want of server programs")
        for name in missing:
            terminalreporter.line(f"{name}: {skipped.count(name)} tests")
        terminalreporter.line(f"install: {programs.install_command(missing)}")


@pytest.fixture
def kept_logging():
    """For a test that configures the log: the test run's own handlers and levels come back, and what it opened is closed."""
    root, package = logging.getLogger(), logging.getLogger(log.ROOT)
    handlers, levels = list(root.handlers), (root.level, package.level)
    for handler in handlers:
        root.removeHandler(handler)  # or a reload would close them
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
        if handler not in handlers:
            handler.close()
    root.setLevel(levels[0])
    package.setLevel(levels[1])
    for handler in handlers:
        root.addHandler(handler)


@pytest.fixture
def broker_process(tmp_path):
    """A function that makes broker processes on this test's folder: ``broker_process(log_level="debug").start()``; all are killed at the end."""
    made = []

    def make(**options):
        folder = options.pop("data_dir", tmp_path / "data")
        made.append(BrokerProcess(folder, **options))
        return made[-1]

    yield make
    for process in made:
        if process.is_running:
            process.kill()


@pytest.fixture
def broker(broker_process):
    """A running broker process of this test's own."""
    return broker_process().start()


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory):
    """A running broker process for tests that name their own queues and leave nothing behind."""
    with BrokerProcess(tmp_path_factory.mktemp("shared-broker") / "data") as process:
        yield process
