"""Fixtures and reports of the whole suite: a broker process, missing programs,
and which twin of the hot modules is tested.
"""
import contextlib
import gc
import logging
import os
import shutil
import signal
import sys
import threading
import weakref

import gevent
import hypothesis
import pytest

from gomq_py import build_info
from gomq_py.observability import log
from gomq_py.storage.flush import flushing
from gomq_py.storage.flush.background import Background
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.segments.pool import SegmentPool
from gomq_py.testing.brokers import ChildBroker
from tests.support import broker_process as processes
from tests.support import built, programs, resources, telltale, typed
from tests.support.broker_process import BrokerProcess
from tests.support.federated import start_rabbitmq
from tests.support.waiting import PATIENCE, wait_until

# A slow machine is no fault of a property. The examples are the same in every run:
# what a run finds must not be a matter of luck.
TOO_SLOW = (hypothesis.HealthCheck.too_slow,)
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=TOO_SLOW)
# Others in each run, and more of them: --hypothesis-profile=search.
hypothesis.settings.register_profile(
    "search", deadline=None, derandomize=False, max_examples=1000, suppress_health_check=TOO_SLOW)
# For runs that are slow by themselves (make asan): --hypothesis-profile=quick.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=10, suppress_health_check=TOO_SLOW)
hypothesis.settings.load_profile("suite")

# Descriptors and threads a module may leave: those of fixtures of the whole run that begin in it, and of
# errors that the last test has logged.
FEW = 50
# Brokers that "died" in a test are cycles of objects; with more descriptors than this they are not left to
# the collector: select() takes 1024.
MANY_DESCRIPTORS = 250
# A test marked long may take so many times what others may.
LONG = 3
# A module of tests that leaves more blocks of memory than this has cached something.
MANY_BLOCKS = 300_000
# Whatever process a test starts has it.
os.environ[telltale.CANARY_NAME] = telltale.CANARY
# A shell's job in the background has SIGINT ignored, and so would all that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
HAS_FAILED = pytest.StashKey[bool]()


def pytest_report_header():
    return f"gomq-py hot modules: {build_info.speed()}; deadlines are {PATIENCE:g} times the usual"


def pytest_sessionstart(session):
    wants_compiled = os.environ.get("GOMQ_REQUIRE_COMPILED") and not os.environ.get("GOMQ_PURE_PYTHON")
    if wants_compiled and build_info.interpreted_modules():
        raise pytest.UsageError(
            "GOMQ_REQUIRE_COMPILED is set, but these are interpreted: "
            f"{', '.join(build_info.interpreted_modules())}"
        )
    if not hasattr(session.config, "workerinput"):  # whoever started this worker has looked
        built.refuse_stale()


def pytest_ignore_collect(collection_path, config):
    """A run of what is typed does not import the rest: each worker would."""
    if config.getoption("markexpr").split()[:1] == ["typed"] and not typed.has_types(collection_path):
        return True
    return None


@pytest.hookimpl(tryfirst=True)  # before -m chooses by markers
def pytest_collection_modifyitems(config, items):
    """Each has the marker ``typed`` where that is so, and the time that it may take here. Those that take
    long come first, so that nobody waits for one at the end.
    """
    for item in items:
        if typed.has_types(item.path):
            item.add_marker("typed")
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    usual_s = float(config.getoption("timeout", None) or config.getini("timeout"))
    for item in items:
        mark = item.get_closest_marker("timeout")
        own_s = mark.args[0] if mark is not None else usual_s
        if item.get_closest_marker("long") is not None:
            own_s = max(own_s, LONG * usual_s)
        item.add_marker(pytest.mark.timeout(own_s * PATIENCE), append=False)


def pytest_collection_finish(session):
    """What is here now stays to the end: the collector need not look at thousands of tests each time."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item):
    # The loop has the time of its last turn, maybe of many tests ago: timers would be up at once.
    gevent.get_hub().loop.update_now()
    for mark in item.iter_markers("needs_program"):
        name = mark.args[0]
        if not programs.find(name):
            if programs.skips_are_forbidden():
                pytest.fail(f"{name} is missing: {programs.install_command([name])}", pytrace=False)
            pytest.skip(programs.skip_reason(name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Note which tests fail: what they leave on the disk is kept."""
    report = yield
    item.stash[HAS_FAILED] = item.stash.get(HAS_FAILED, False) or report.failed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """A test that leaves the log silent would make others fail, and which ones depends on the order.

    What it leaves on the disk would be 3 GB in all.

    The folder itself stays: pytest would give its name to the next test of this name,
    beside whatever the last one has not ended.
    """
    result = yield
    telltale.note_passwords_of_clients()
    for process in list(processes.MADE):
        process.check_log()
    for name, broker in item.funcargs.items():
        if isinstance(broker, ChildBroker):
            told = telltale.told(broker.log_text.splitlines())
            assert not told, f"the log of {name} tells " + "\n".join(told)
    if "tmp_path" in item.funcargs and not item.stash.get(HAS_FAILED, True):
        for path in item.funcargs["tmp_path"].glob("*"):
            shutil.rmtree(
                path, ignore_errors=True
            ) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    package = logging.getLogger(log.ROOT)
    assert package.level == logging.NOTSET and package.propagate, (
        f"{item.nodeid} left the log at level {package.level}: use kept_logging"
    )
    if resources.descriptor_count() > MANY_DESCRIPTORS:
        gc.collect()
    return result


def pytest_terminal_summary(terminalreporter):
    """The programs that tests were skipped for, from the reports:
    the tests may have run in other processes.
    """
    skipped = [
        programs.missing_from(str(report.longrepr)) for report in terminalreporter.stats.get("skipped", ())
    ]
    missing = sorted({name for name in skipped if name})
    if missing:
        terminalreporter.section("skipped for want of server programs")
        for name in missing:
            terminalreporter.line(f"{name}: {skipped.count(name)} tests")
        terminalreporter.line(f"install: {programs.install_command(missing)}")


@pytest.fixture(autouse=True)
def dead_with_the_test(monkeypatch):
    """A broker of this process that a test "kills", or leaves as it is, dies with the test: its greenlets,
    threads and timers would hold all it had.

    The threads of a committer go even where nobody has the committer any more.
    """
    committers, pools, threads = weakref.WeakSet(), weakref.WeakSet(), []
    begin_background, make_threads, begin_pool = (
        Background.__init__, flushing.ThreadPool, SegmentPool.__init__
    )

    def is_ours():
        return threading.current_thread() is threading.main_thread()  # an embedded broker's is its own affair

    def note_background(background, threads_of):
        """A committer has one from its beginning; its own class may be compiled, and is left alone."""
        begin_background(background, threads_of)
        if is_ours() and isinstance(committer := threads_of.__self__, GroupCommit):
            committers.add(committer)

    def note_threads(*arguments):
        made = make_threads(*arguments)
        if is_ours():
            threads.append(made)
        return made

    def note_pool(pool, *arguments, **options):
        begin_pool(pool, *arguments, **options)
        if is_ours():
            pools.add(pool)

    monkeypatch.setattr(Background, "__init__", note_background)
    monkeypatch.setattr(flushing, "ThreadPool", note_threads)
    monkeypatch.setattr(SegmentPool, "__init__", note_pool)
    yield
    for committer in list(committers):
        committer.kill()
    for made in threads:
        made.kill()
    for pool in list(pools):
        pool.resting.stop()


@pytest.fixture(autouse=True, scope="module")
def little_left_open(request):
    """No module leaves more than a few descriptors or threads: a run is thousands of tests in one process."""
    descriptors, threads = resources.descriptors(), resources.thread_count()
    blocks = sys.getallocatedblocks()
    yield
    if sys.getallocatedblocks() > blocks + MANY_BLOCKS:  # syntax trees, a second of each collection
        gc.collect()
        gc.freeze()
    if resources.descriptor_count() > descriptors.total() + FEW or resources.thread_count() > threads + FEW:
        gc.collect()
        # those of threads that end go with them
        wait_until(
            lambda: (resources.descriptors() - descriptors).total() <= FEW,
            what=lambda: f"{request.node.nodeid} left descriptors open: "
            f"{(resources.descriptors() - descriptors).most_common(20)}", sleep=gevent.sleep,
        )
        wait_until(
            lambda: resources.thread_count() <= threads + FEW,
            what=f"{request.node.nodeid} left threads running", sleep=gevent.sleep,
        )


@pytest.fixture
def kept_logging():
    """For a test that configures the log: the test run's own handlers and levels come back,
    and what it opened is closed.
    """
    root, package = logging.getLogger(), logging.getLogger(log.ROOT)
    handlers, levels = list(root.handlers), (root.level, package.level)
    names = ("logThreads", "logProcesses", "logMultiprocessing", "_srcfile", "_logRecordFactory")
    asked = {name: getattr(logging, name) for name in names}
    for handler in handlers:
        root.removeHandler(handler)  # or a reload would close them
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
        if handler not in handlers:
            handler.close()
    root.setLevel(levels[0])
    package.setLevel(levels[1])
    for name, value in asked.items():
        setattr(logging, name, value)
    for handler in handlers:
        root.addHandler(handler)


@pytest.fixture
def broker_process(tmp_path):
    """A function that makes broker processes on this test's folder:
    ``broker_process(log_level="debug").start()``; all are killed at the end.
    """
    made = []

    def make(**options):
        folder = options.pop("data_dir", tmp_path / "data")
        made.append(BrokerProcess(folder, **options))
        return made[-1]

    yield make
    with contextlib.ExitStack() as killing:  # all of them, whatever the log of the first tells
        for process in made:
            if process.is_running:
                killing.callback(process.kill)


@pytest.fixture
def broker(broker_process):
    """A running broker process of this test's own."""
    return broker_process().start()


@pytest.fixture(scope="session")
def shared_rabbitmq(tmp_path_factory):
    """A RabbitMQ with its plugins for shovels and federation (a Peer), for tests that have a virtual host of
    their own: it starts in 5 to 8 s. With a port of TLS, ``tls_port``; ``certificates`` are also for others.
    """
    peer = start_rabbitmq(tmp_path_factory.mktemp("shared-rabbitmq"))
    yield peer
    peer.hang_up()
    peer.process.kill()  # which is quicker


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory):
    """A running broker process for tests that name their own queues and leave nothing behind."""
    with BrokerProcess(tmp_path_factory.mktemp("shared-broker") / "data") as process:
        yield process
