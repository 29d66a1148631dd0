"""Finds present problems of a broker, and those to come, each with a remedy.

Judges figures that its callers pass; sends no request to a broker.
"""
from typing import NamedTuple

OK, WARNING, BAD = "ok", "warning", "bad"
# Used part of descriptors, memory and disk above which a warning is due.
NEARLY_FULL = 0.8
FEW_DESCRIPTORS = 4096
LITTLE_DISK = 1024 * 1024 * 1024
# A message that is unacknowledged for so long is usually forgotten.
OLD_UNACKED_S = 1800
SLOW_SYNC_S = 0.1
# Seconds above which people notice late heartbeats and deliveries.
SLOW_LOOP_S = 0.25
# ample for renewal by hand, and shorter than ACME clients' renewal (30 days before the end)
CERTIFICATE_DAYS = 14
# Most findings of one kind in one virtual host; one more gives the number of the rest.
MANY = 5
# A queue grows if it gained more messages than this, and more than this part of its length.
GROWN_MESSAGES, GROWN_PART = 1000, 0.05


class Finding(NamedTuple):
    """A problem that was found. ``level``: WARNING or BAD. ``kind``, ``vhost`` and ``name`` identify the
    object. ``subject``, the object in words, and ``text`` together make a sentence. ``remedy`` says what to
    do.
    """

    level: str
    kind: str
    subject: str
    text: str
    remedy: str = ""
    vhost: str | None = None
    name: str | None = None


def of_node(node):
    """Yield the Findings about a node. ``node`` is a dict from /api/nodes."""
    name = node.get("name", "node")

    def found(level, text, remedy=""):
        return Finding(level, "node", name, text, remedy, None, name)

    if node.get("mem_alarm"):
        yield found(
            BAD, "memory alarm: publishers are held until memory is free again",
            "let consumers catch up, or raise memory_high_watermark")
    if node.get("disk_free_alarm"):
        yield found(
            BAD, "disk alarm: publishers are held until there is room",
            "remove messages or make the disk larger")
    free = node.get("disk_free")
    if isinstance(free, int) and free < max(LITTLE_DISK, 2 * (node.get("disk_free_limit") or 0)):
        yield found(
            WARNING, f"{free // 1048576} MiB of disk are free", "make room before publishers are held")
    for used, total, what in (
        ("fd_used", "fd_total", "file descriptors"), ("mem_used", "mem_limit", "bytes of memory")
    ):
        have, most = node.get(used), node.get(total)
        if have and most and have > NEARLY_FULL * most:
            yield found(WARNING, f"{have} of {most} {what} are used", "raise the limit or use less")
    if 0 < (node.get("fd_total") or FEW_DESCRIPTORS) < FEW_DESCRIPTORS:
        yield found(
            WARNING, f"only {node['fd_total']} file descriptors: each connection takes one",
            "raise nofile (ulimit -n, LimitNOFILE=)")
    failed = sum((node.get("failed_jobs") or {}).values())
    if failed:
        yield found(
            WARNING, f"{failed} slices of background work ended with an error",
            "see the log, and report it: this is a fault of the broker")


def of_certificate(days):
    """Return a Finding if a certificate ends in few ``days`` or has ended (0 days), otherwise None."""
    if days > CERTIFICATE_DAYS:
        return None
    level, text = (WARNING, f"ends within {CERTIFICATE_DAYS} days") if days > 0 else (
        BAD, "has ended: clients refuse it")
    return Finding(
        level, "certificate", "certificate", f"a TLS port's certificate {text}",
        "put the new one in its place and reload (SIGHUP)")


def of_flushes(mean_s):
    """Return a Finding if flushes are slow, otherwise None. ``mean_s``: mean seconds per flush."""
    if mean_s <= SLOW_SYNC_S:
        return None
    return Finding(
        WARNING, "disk", "disk", f"a flush takes {mean_s:.2f} s on average: confirms wait for it",
        "look at what else writes to this disk, or take a faster one")


def of_loop(lag_s):
    """Return a Finding if the event loop is late, otherwise None. ``lag_s``: its latency in seconds."""
    if lag_s <= SLOW_LOOP_S:
        return None
    return Finding(
        WARNING, "node", "event loop", f"the event loop is {lag_s * 1000:.0f} ms late: everybody waits",
        "give the broker a core of its own; see the log for what takes long")


def of_store(vhost, name):
    """Return the Finding for a store of a vhost, not of a queue. A fault has closed the store."""
    return Finding(
        BAD, "disk", f"store {name}",
        f"closed after a fault, in vhost '{vhost}': what is to be kept there is refused or waits",
        "check the disk; it opens by itself when the disk takes writes", vhost)


def of_damage(damaged, kept, paths=()):
    """Yield Findings about damage. ``damaged``: number of damaged messages. ``kept``: number of files that
    are kept for an operator. 0: no Finding. ``paths``: the kept files, if the caller knows them.
    """
    if damaged:
        yield Finding(
            BAD, "disk", "disk",
            f"{damaged} flushed message(s) were found damaged, or gone with their files, since the start",
            "see 'damaged' and 'lost' in the log; check the disk")
    if kept:
        yield Finding(
            WARNING, "disk", "data folder",
            f"{kept} file(s) are kept of damage or from wrong places" + (
                f": {', '.join(paths[:MANY])}" if paths else "") + (" and others" if paths[MANY:] else ""),
            "recover_queue brings the messages of a folder in set-aside/ back; delete what you do not need")


def of_blocked(count):
    """Return a Finding if an alarm blocks ``count`` connections, None if it blocks none."""
    if not count:
        return None
    return Finding(
        WARNING, "connections", "publishers", f"{count} connection(s) are held because of an alarm",
        "free what the alarm of the node says is short; they go on by themselves then")


def of_link(kind, vhost, name, state, error):
    """Return a Finding if the link ``name`` does not run, otherwise None. ``kind``: such as "shovel"."""
    if state not in ("error", "terminated", "stopped"):
        return None
    return Finding(
        WARNING, kind, f"{kind} {name}", f"is not running ({state}{': ' + error if error else ''})",
        "mend what the error names, then restart it", vhost, name)


class QueueChecks:
    """Checks of the queues of one virtual host, or of a whole broker if ``vhost`` is None. Call the ``look``
    methods for each queue, then ``findings``.
    """

    def __init__(self, vhost=None):
        self._vhost = vhost
        self._by_kind = {}
        self._idle_count = 0
        self._idle = None  # (ready messages, name) of the longest queue without a consumer

    def look(self, name, state, ready_count, has_consumers):
        """Judge one queue by its state, its number of ready messages and whether it has consumers."""
        if state != "running":
            self._not_running(name, state)
        if ready_count and not has_consumers:
            self._idle_count += 1
            if self._idle is None or ready_count > self._idle[0]:
                self._idle = ready_count, name

    def look_at_growth(self, name, ready_count, before, seconds):
        grown = ready_count - before
        if grown > max(GROWN_MESSAGES, GROWN_PART * before):
            self._add(
                "growing", WARNING, name,
                f"grows by {grown / seconds:.0f} messages a second, to {ready_count}",
                "add consumers, or find out why the consumers are slow")

    def look_at_age(self, name, unacked_s):
        if unacked_s > OLD_UNACKED_S:
            self._add(
                "old", WARNING, name, f"a message is unacknowledged since {int(unacked_s)} s",
                "its consumer may hang: give the message back or close the channel")

    def look_at_aside(self, name, count, reasons):
        """Judge a queue with ``count`` messages set aside, as they could not be moved. ``reasons``: why."""
        if count:
            why = ", ".join(sorted(map(str, reasons))[:MANY])
            self._add(
                "aside", WARNING, name, f"{count} messages are set aside: {why}",
                "mend the reason: they are tried again at the next start")

    def findings(self):
        """Yield the Findings: at most MANY of each kind, then one with the number of the others."""
        for rows in self._by_kind.values():
            yield from rows[:MANY]
            if len(rows) > MANY:
                yield self._finding(
                    rows[0].level, "queues", f"{len(rows) - MANY} more {rows[0].text.partition(':')[0]}",
                    rows[0].remedy, None)
        if self._idle is not None:
            ready_count, name = self._idle
            yield self._finding(
                WARNING, "queues",
                f"{self._idle_count} hold messages and have no consumer, most of all {name}: {ready_count}",
                "start consumers, or give these queues a limit or an expiry", name)

    def _not_running(self, name, state):
        if state == "paused":
            self._add(state, WARNING, name, "paused", "resume_queue delivers again")
        elif state in ("stopped", "closed"):
            self._add(
                state, BAD, name, "closed after a fault of its store", "see the log, then restart_queue")

    def _add(self, kind, level, name, text, remedy):
        rows = self._by_kind.setdefault(kind, [])
        rows.append(self._finding(level, f"queue {name}", text, remedy, name))

    def _finding(self, level, subject, text, remedy, name):
        return Finding(level, "queue" if name else "queues", subject, text, remedy, self._vhost, name)
