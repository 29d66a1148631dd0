"""Doctor: reads what the management API shows and says what is wrong with it, and what to do.

Asks the API; decides nothing about output.
"""
import resource
from typing import NamedTuple

from gomq_py.ctl.api import APIError

OK, WARNING, BAD = "ok", "warning", "BAD"
# Of descriptors, memory and disk.
NEARLY_FULL = 0.8
FEW_DESCRIPTORS = 4096
LITTLE_DISK = 1024 * 1024 * 1024
# A message that nobody acks for so long is usually forgotten.
OLD_UNACKED_S = 1800
SLOW_SYNC_S = 0.1
# ample for whoever renews by hand, and less than what is left when ACME clients renew (30 days)
CERTIFICATE_DAYS = 14
HEALTH_CHECK_FAILED = 503
AGE_METRIC = "gomq_queue_oldest_unacked_age_seconds"
MANY = 5


class Finding(NamedTuple):
    """One line of the examination."""

    level: str
    subject: str
    text: str


def examine(api, version):
    """Findings about a broker, the worst not first. Raises APIError when it does not answer at all."""
    overview = api.get("overview")
    yield Finding(OK, "broker", f"answers at {api.address}")
    theirs = overview.get("product_version") or overview.get("rabbitmq_version", "?")
    same = theirs == version
    product = overview.get("product_name", "broker")
    yield Finding(
        OK if same else WARNING, "version", f"{product} {theirs}" + ("" if same else f", this tool {version}")
    )
    yield from _optional(api, ("nodes",), _nodes)
    yield from _certificates(api)
    yield from _optional(api, ("queues",), _queues)
    yield from _ages(api)
    yield from _machine()


def _optional(api, path, judge):
    """Judge an answer; a user who may not see it is told so instead."""
    try:
        answer = api.get(*path)
    except APIError as error:
        yield Finding(WARNING, path[0], f"not examined: {error}")
        return
    yield from judge(answer)


def _nodes(nodes):
    for node in nodes:
        name = node.get("name", "node")
        if node.get("mem_alarm"):
            yield Finding(
                BAD, name,
                "memory alarm: publishers are held until memory is free again; let consumers catch up or "
                "raise the limit",
            )
        if node.get("disk_free_alarm"):
            yield Finding(
                BAD, name,
                "disk alarm: publishers are held until there is room; remove messages or make the disk "
                "larger",
            )
        free = node.get("disk_free")
        if isinstance(free, int) and free < max(LITTLE_DISK, 2 * (node.get("disk_free_limit") or 0)):
            yield Finding(WARNING, name, f"{free // 1048576} MiB of disk are free")
        for used, total, what in (
            ("fd_used", "fd_total", "file descriptors"), ("mem_used", "mem_limit", "memory")
        ):
            have, most = node.get(used), node.get(total)
            if have and most and have > NEARLY_FULL * most:
                yield Finding(WARNING, name, f"{have} of {most} {what} are used")
        if 0 < (node.get("fd_total") or FEW_DESCRIPTORS) < FEW_DESCRIPTORS:
            text = (
                f"only {node['fd_total']} file descriptors: each connection takes one; raise nofile (ulimit "
                "-n, LimitNOFILE=)"
            )
            yield Finding(WARNING, name, text)


def _certificates(api):
    """Certificates that have ended or soon will, by the health check that monitoring asks."""
    for days, level, text in (
        (0, BAD, "has ended: clients refuse it"),
        (CERTIFICATE_DAYS, WARNING, f"ends within {CERTIFICATE_DAYS} days"),
    ):
        try:
            api.get("health", "checks", "certificate-expiration", str(days), "days")
        except APIError as error:
            if error.status == HEALTH_CHECK_FAILED:
                yield Finding(
                    level, "certificate",
                    f"a TLS port's certificate {text}; put the new one in its place and reload (SIGHUP)",
                )
            return


def _queues(queues):
    closed = "closed after a fault of its store: see the log, then restart_queue"
    for state, level, text in (
        ("paused", WARNING, "paused: resume_queue delivers again"), ("stopped", BAD, closed),
        ("closed", BAD, closed),
    ):
        found = [queue["name"] for queue in queues if queue.get("state") == state]
        yield from (Finding(level, f"queue {name}", text) for name in found[:MANY])
        if len(found) > MANY:
            yield Finding(level, "queues", f"{len(found) - MANY} more are {state}")
    idle = [queue for queue in queues if queue.get("messages_ready") and not queue.get("consumers")]
    if idle:
        most = max(idle, key=lambda queue: queue["messages_ready"])
        yield Finding(
            WARNING, "queues",
            f"{len(idle)} hold messages and have no consumer, most of all {most['name']}: "
            f"{most['messages_ready']}",
        )


def _ages(api):
    """Old unacknowledged messages and slow flushes, which only the metrics tell."""
    try:
        samples = list(
            parsed(api.text("/metrics/detailed?family=gomq_queue_ages&family=gomq_sync&family=gomq_damage"))
        )
    except APIError:
        return  # another broker, or a user without the tag for metrics
    for name, labels, value in samples:
        if name == AGE_METRIC and value > OLD_UNACKED_S:
            yield Finding(
                WARNING, f"queue {labels.get('queue')}",
                f"a message is unacknowledged since {int(value)} s: its consumer may hang",
            )
    yield from _kept_files({name: value for name, labels, value in samples if not labels})
    sums = {name: value for name, labels, value in samples if not labels}
    count = sums.get("gomq_sync_duration_seconds_count", 0)
    if count and sums.get("gomq_sync_duration_seconds_sum", 0) / count > SLOW_SYNC_S:
        yield Finding(
            WARNING, "disk",
            f"a flush takes {sums['gomq_sync_duration_seconds_sum'] / count:.2f} s on average: confirms wait "
            "for it",
        )


def _kept_files(sums):
    """What is left of damage until somebody has looked at it."""
    damaged, kept = sums.get("gomq_damaged_messages_total", 0), sums.get("gomq_kept_files", 0)
    if damaged:
        yield Finding(
            BAD, "disk",
            f"{int(damaged)} flushed message(s) were found damaged, or gone with their files, since the "
            "start: see 'damaged' and 'lost' in the log; check the disk",
        )
    if kept:
        yield Finding(
            WARNING, "data folder",
            f"{int(kept)} file(s) are kept of damage or from wrong places: definitions.damaged, "
            "users.damaged, "
            "set-aside/ and queues/*/damaged.*; take what you need and delete them (fsck names each)",
        )


def _machine():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FEW_DESCRIPTORS:
        yield Finding(
            WARNING, "machine",
            f"this shell allows {soft} file descriptors (at most {hard}): a broker started from it has no "
            "more",
        )


def parsed(text):
    """(name, labels, value) of each sample in Prometheus' text form."""
    for line in text.splitlines():
        if not line or line[0] == "#":
            continue
        name, brace, rest = line.partition("{")
        if not brace:
            name, _, value = line.partition(" ")
            yield name, {}, float(value.split()[0])
            continue
        labels, position = {}, 0
        while rest[position] != "}":
            key, _, after = rest[position:].partition('="')
            position += len(key) + 2
            content = []
            while after[0] != '"':
                taken = 2 if after[0] == "\\" else 1
                content.append({"\\n": "\n", '\\"': '"', "\\\\": "\\"}.get(after[:taken], after[:taken]))
                after = after[taken:]
                position += taken
            labels[key.lstrip(",")] = "".join(content)
            position += 1
        yield name, labels, float(rest[position + 1:].split()[0])
