"""Children: pieces of work in forked children, so that each begins with the memory of the parent, and several
run at a time.
"""
import json
import os
import resource
import select
import signal
import sys

# Seconds of CPU that a child may take: a seed takes 5 at most. Who still runs then goes round in circles.
CPU_S = 120
LAST_CPU_S = 10  # more, for its traceback


class Overdue(BaseException):
    """A child has taken more than it may."""


def in_children(jobs, function, items, limit_s=CPU_S):
    """Call ``function(item)`` for each item, in ``jobs`` children at a time. A generator of (item, what the
    function returned), as they end; it returns something that JSON knows, and None is a child that died.
    """
    items, running = iter(items), {}  # descriptor -> (item, child, pipe)
    is_over = False
    try:
        while running or not is_over:
            while len(running) < jobs and not is_over:
                try:
                    item = next(items)
                except StopIteration:
                    is_over = True
                else:
                    child, pipe = _fork(function, item, limit_s)
                    running[pipe.fileno()] = item, child, pipe
            for descriptor in select.select(running, (), ())[0] if running else ():
                item, *child = running.pop(descriptor)
                yield item, _ended(*child)
    finally:
        for _, *child in running.values():
            _ended(*child)


def _fork(function, item, limit_s):
    sys.stdout.flush()
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            if limit_s:
                resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + LAST_CPU_S))
                signal.signal(signal.SIGXCPU, _is_overdue)
            answer = json.dumps(function(item))
            sys.stdout.flush()
            with os.fdopen(writes, "w") as pipe:
                pipe.write(answer)
        finally:
            os._exit(0)  # nothing of the processes that were killed may come to its end
    os.close(writes)
    return child, os.fdopen(reads)


def _is_overdue(*_):
    raise Overdue("it takes too much of the processor")


def _ended(child, pipe):
    """What it returned."""
    with pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None
