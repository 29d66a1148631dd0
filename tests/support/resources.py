"""What this process holds: descriptors, mappings, threads, objects. For tests that nothing is left behind."""
import gc
import os
import sys
from collections import Counter
from typing import NamedTuple

# Modules whose objects count as ours: a broker's, and of greenlets and loops it made.
OURS = ("gomq_py.", "gevent", "greenlet", "flask", "werkzeug")


class Held(NamedTuple):
    """Names of descriptors with how many there are, how many files are mapped and threads run, how many
    objects there are of each of our types.
    """

    descriptors: Counter
    mapped: int
    threads: int
    objects: Counter

    def more_than(self, before):
        """What there is now and was not before, in words; empty: nothing."""
        grown = [f"{count} {name}" for counter in ("descriptors", "objects")
                 for name, count in (getattr(self, counter) - getattr(before, counter)).items()]
        return grown + [
            f"{getattr(self, name) - getattr(before, name)} {name}"
            for name in ("mapped", "threads") if getattr(self, name) > getattr(before, name)
        ]


def held():
    """What is held after everything that nobody can reach is gone."""
    while gc.collect():
        pass
    return Held(descriptors(), mapped_count(), thread_count(), _objects())


def descriptors():
    """What this process has open, by name; sockets, pipes and loops by their kind."""
    names = Counter()
    for number in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the one the list was read from
            continue
        names[name.split(":")[0] if name.startswith(("socket:", "pipe:")) else name] += 1
    return names


def descriptor_count():
    """How many there are, without asking what they are."""
    return len(os.listdir("/proc/self/fd")) - 1  # the one it is read from


def thread_count():
    """Threads of the operating system."""
    return len(os.listdir("/proc/self/task"))


def mapped_count():
    """Mappings of files that may be written and are shared: a store's.

    The interpreter's own memory comes and goes as it likes.
    """
    with open("/proc/self/maps", encoding="utf-8") as lines:
        return sum(line.split()[1] == "rw-s" for line in lines)


def _objects():
    """How many objects of each of our types the collector knows.

    Not type objects themselves, nor what an import brings.
    """
    names = Counter()
    for each in gc.get_objects():
        kind = type(each)
        module = kind.__module__ if isinstance(kind.__module__, str) else ""
        if module.startswith(OURS) and not isinstance(each, (type, type(sys))):
            names[f"{module}.{kind.__qualname__}"] += 1
    return names
