"""Runs Spark queries until they end or are stopped, and reports their progress.

On a terminal the progress is one line that is overwritten. Elsewhere each batch with rows prints a line of
JSON. ``exposition`` shows Prometheus how many rows the queries have read.
"""
import json
import re
import signal
import sys
import threading
import time

from gomq_py.pipeline import exposition
from gomq_py.pipeline.failures import told
from gomq_py.spark.errors import OptionError
from gomq_py.spark.offsets import behind, decode

LOOK_EVERY_S = 0.2
# Spark waits 10 s, not configurable, for the Python process that plans a streaming query. On a busy machine
# it may need longer: so many attempts are five minutes.
MOST_STARTS = 30


class JobFailed(Exception):
    """A query ended with an error. The text is one line with the reason."""


class Reporter:
    """Prints the progress of a run's queries.

    The numbers of read and unread rows are also written to the file ``prometheus`` and served over HTTP at
    ``address``, if these are given. The constructor raises OptionError if it cannot listen on the address.
    """

    def __init__(self, out=None, prometheus=None, address=None):
        self._out = sys.stdout if out is None else out
        self._is_terminal = self._out.isatty()
        self._prometheus = prometheus
        self._seen: dict = {}
        self._batches: dict = {}
        self.rows: dict = {}
        self.lags: dict = {}
        self.endpoint = None if address is None else exposition.Endpoint(address)

    def look(self, name, query):
        progress = query.lastProgress
        if (
            progress is None
            or self._seen.get(name) == (progress["runId"], progress["batchId"], progress["timestamp"])
        ):
            return
        self._seen[name] = (progress["runId"], progress["batchId"], progress["timestamp"])
        for one in query.recentProgress:
            if one["batchId"] > self._batches.get(name, -1):
                self._batches[name] = one["batchId"]
                self.rows[name] = self.rows.get(name, 0) + one["numInputRows"]
                self._tell(name, one)
        self._expose()

    def _tell(self, name, progress):
        lag = lag_of(progress)
        self.lags[name] = lag
        rate = progress.get("processedRowsPerSecond") or 0
        if self._is_terminal:
            behind = "" if lag is None else f", {lag} behind"
            self._out.write(
                f"\r\033[K{name}: batch {progress['batchId']}, {self.rows[name]} rows, "
                f"{rate:.0f} rows/s{behind}")
        elif progress["numInputRows"]:
            line = {
                "job": name, "batch": progress["batchId"], "rows": progress["numInputRows"],
                "rows_per_second": round(rate), "rows_total": self.rows[name], "lag": lag,
                "at": progress["timestamp"],
            }
            self._out.write(json.dumps(line) + "\n")
        self._out.flush()

    def end(self):
        if self._is_terminal:
            self._out.write("\n")
        for name in sorted(self.rows):
            line = {"job": name, "done": True, "rows_total": self.rows[name], "lag": self.lags.get(name)}
            shown = f"{name}: {self.rows[name]} rows" if self._is_terminal else json.dumps(line)
            self._out.write(shown + "\n")
        self._out.flush()
        try:
            self._expose()
        finally:
            if self.endpoint is not None:
                self.endpoint.close()

    def _expose(self):
        text = exposition.text_of(self.rows, self.lags, time.time())
        if self._prometheus is not None:
            exposition.write(self._prometheus, text)
        if self.endpoint is not None:
            self.endpoint.text = text


def lag_of(progress):
    """Return the number of unread messages in a progress report of Spark; None if a source reports no lag."""
    lag = 0
    for source in progress["sources"]:
        try:
            ends, reported = json.loads(source["endOffset"]), json.loads(source["latestOffset"])
            lag += sum(behind(decode(ends), decode(reported), reported["firsts"]).values())
        except Exception:  # another kind of source, or one without a lag
            return None
    return lag


def run(writers, every=None, reporter=None):
    """Run the queries ``writers``, {name: DataStreamWriter}. Raises JobFailed.

    Without ``every``, each query reads the present messages and ends. With ``every``, such as "10 seconds",
    each query starts a batch that often, until SIGTERM or SIGINT.
    """
    reporter = reporter or Reporter()
    stop = threading.Event()
    _on_signals(stop)
    running: dict = {}
    try:
        for name, writer in writers.items():
            writer = writer.queryName(name)
            once = every is None
            started = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
            running[name] = Running(name, started)
        while _look(running, reporter) and not stop.is_set():
            stop.wait(LOOK_EVERY_S)
    except JobFailed:
        raise
    except Exception as error:
        raise JobFailed(told(error)) from None
    finally:
        for one in running.values():
            one.query.stop()
        reporter.end()


class Running:
    """One running query. It is started again if its Python process was too slow to start."""

    def __init__(self, name, writer):
        self._name = name
        self._writer = writer
        self._starts = 1
        self.query = writer.start()

    def goes_on(self):
        """Return True if the query runs, False if it has ended without an error.

        If the query's Python process was too slow to start, starts the query again. Raises JobFailed after
        MOST_STARTS starts, and for other errors.
        """
        if self.query.isActive:
            return True
        error = self.query.exception()
        if error is None:
            return False
        if not was_slow_to_start(error) or self._starts >= MOST_STARTS:
            raise JobFailed(f"{self._name}: {told(error)}")
        self._starts += 1
        self.query = self._writer.start()
        return True


def was_slow_to_start(error):
    """Return whether the query failed because its Python process did not start in time."""
    return "Python worker failed to connect back" in str(error)


def _look(running, reporter):
    """Report the progress of all queries, and restart those whose Python process was too slow to start.

    Returns False if all have ended. Raises JobFailed.
    """
    # Before the progress is read: a query reports its last part before it ends.
    still = [one for one in running.values() if one.query.isActive]
    for name, one in running.items():
        reporter.look(name, one.query)
    return any([one.goes_on() for one in running.values()]) or bool(still)


def repeat(work, pause_s):
    """Call ``work`` every ``pause_s`` seconds until SIGTERM or SIGINT; only once if ``pause_s`` is None."""
    stop = threading.Event()
    _on_signals(stop)
    while True:
        began = time.monotonic()
        work()
        if pause_s is None or stop.wait(max(0.0, began + pause_s - time.monotonic())):
            return


def seconds_of(duration):
    """Parse a duration such as "2 minutes" into seconds. Raises OptionError."""
    found = re.fullmatch(r"(\d+) ?(second|minute|hour)s?", duration.strip())
    if found is None:
        raise OptionError(f"{duration!r} is no duration such as '10 seconds', '1 minute' or '2 hours'")
    return int(found[1]) * {"second": 1, "minute": 60, "hour": 3600}[found[2]]


def _on_signals(stop):
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
