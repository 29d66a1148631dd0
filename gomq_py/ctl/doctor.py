"""Finds the problems of a broker and of this machine, with advice.

A gomq-py finds its own problems (/api/doctor). For RabbitMQ or an older gomq-py, which lack that route, this
module finds problems in the broker's lists.
"""
import re
import resource
from itertools import chain
from typing import NamedTuple

from gomq_py.ctl.api import APIError
from gomq_py.diagnosis import checks, clusters

OK, WARNING, BAD = "ok", "warning", "BAD"
_LEVELS = {checks.OK: OK, checks.WARNING: WARNING, checks.BAD: BAD}
AGE_METRIC = "gomq_queue_oldest_unacked_age_seconds"
# Prometheus' text form.
_SAMPLE = re.compile(r"^([\w:]+)(?:\{(.*)\})? (\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r'\\[n"\\]')
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


class Finding(NamedTuple):
    """A line of the doctor's report. ``level``: OK, WARNING or BAD."""

    level: str
    subject: str
    text: str


def examine(api, version):
    """Yield Findings about a broker. ``version``: this tool's. Raises APIError if no broker answers."""
    try:
        overview = api.get("overview")
    except APIError as error:
        if error.status != 503:
            raise
        yield from _follower(api, error)
        yield from _machine()
        return
    yield Finding(OK, "broker", f"answers at {api.address}")
    theirs = overview.get("product_version") or overview.get("rabbitmq_version", "?")
    same = theirs == version
    product = overview.get("product_name", "broker")
    yield Finding(
        OK if same else WARNING, "version", f"{product} {theirs}" + ("" if same else f", this tool {version}")
    )
    try:
        judged = api.get("doctor")
    except APIError as error:
        if error.status != 404:
            raise
        yield from _optional(api, "nodes", lambda nodes: chain.from_iterable(map(checks.of_node, nodes)))
        yield from _certificates(api)
        yield from _optional(api, "queues", _queues)
        yield from _ages(api)
    else:
        for found in judged["findings"]:
            yield _line(found["level"], found["subject"], found["text"], found["remedy"])
    yield from _machine()


def _follower(api, refused):
    """Yield Findings about a follower, which answers only /api/cluster. Raise ``refused`` if it is none."""
    try:
        figures = api.get("cluster")
    except APIError:
        raise refused from None
    if figures.get("role") != "follower":
        raise refused
    yield Finding(OK, "broker", f"answers at {api.address}, and follows: the leader's doctor tells the rest")
    etcd_error = figures.get("etcd_error")
    failed = figures.get("error") and f"cannot follow: {figures['error']}"
    for text in filter(None, (figures.get("reason"), failed)):
        if not etcd_error or etcd_error not in text:  # else it is among the findings
            yield Finding(WARNING, "cluster", text)
    yield from _lines(clusters.findings(figures))


def _line(level, subject, text, remedy):
    return Finding(_LEVELS[level], subject, f"{text}; {remedy}" if remedy else text)


def _lines(found):
    return (_line(one.level, one.subject, one.text, one.remedy) for one in found if one is not None)


def _optional(api, path, judge):
    """Yield the Findings of ``judge(answer)`` for the API's answer at a path, or one about its failure."""
    try:
        answer = api.get(path)
    except APIError as error:
        yield Finding(WARNING, path, f"not examined: {error}")
        return
    yield from _lines(judge(answer))


def _certificates(api):
    for days in (0, checks.CERTIFICATE_DAYS):
        try:
            api.get("health", "checks", "certificate-expiration", str(days), "days")
        except APIError as error:
            if error.status == 503:  # the check failed
                yield from _lines([checks.of_certificate(days)])
            return


def _queues(queues):
    queue_checks = checks.QueueChecks()
    for queue in queues:
        is_stream = queue.get("type") == "stream"  # a stream keeps its messages
        queue_checks.look(
            queue["name"], queue.get("state", "running"), 0 if is_stream else queue.get("messages_ready"),
            queue.get("consumers"))
    return queue_checks.findings()


def _ages(api):
    """Yield Findings from the broker's metrics: old unacknowledged messages, damage and slow flushes."""
    try:
        samples = list(
            parsed(api.text("/metrics/detailed?family=gomq_queue_ages&family=gomq_sync&family=gomq_damage")))
    except APIError:
        return  # another broker, or a user without the tag for metrics
    queue_checks = checks.QueueChecks()
    for name, labels, value in samples:
        if name == AGE_METRIC:
            queue_checks.look_at_age(labels.get("queue"), value)
    yield from _lines(queue_checks.findings())
    sums = {name: value for name, labels, value in samples if not labels}
    damaged, kept = sums.get("gomq_damaged_messages_total", 0), sums.get("gomq_kept_files", 0)
    yield from _lines(checks.of_damage(int(damaged), int(kept)))
    count = sums.get("gomq_sync_duration_seconds_count", 0)
    if count:
        yield from _lines([checks.of_flushes(sums.get("gomq_sync_duration_seconds_sum", 0) / count)])


def _machine():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < checks.FEW_DESCRIPTORS:
        yield Finding(
            WARNING, "machine",
            f"this shell allows {soft} file descriptors (at most {hard}): a broker started from it has no "
            "more",
        )


def parsed(text):
    """Yield (name, {label: value}, value as float) of each sample in a text of Prometheus' format."""
    for name, labels, value in _SAMPLE.findall(text):
        pairs = _LABEL.findall(labels)
        found = {key: _ESCAPE.sub(lambda match: _ESCAPES[match[0]], content) for key, content in pairs}
        yield name, found, float(value)
