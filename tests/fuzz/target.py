"""What a fuzz target is, and where its seeds lie.

A target takes any octets and raises nothing as long as the broker keeps its word; an AssertionError, or any
exception that the code under test does not document, is a finding. ``seeds/<target>`` keeps the inputs that
reached something no other did, one base64 line each: CI replays them compiled, interpreted and under
AddressSanitizer; the fuzzer starts from them.
"""
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

SEEDS = Path(__file__).parent / "seeds"


class Target(NamedTuple):
    """``run(data)`` checks one input; ``samples()`` are good ones to begin with;
    ``words`` are octets the fuzzer may insert.
    """

    run: Callable[[bytes], None]
    samples: Callable[[], Iterable[bytes]]
    max_octets: int = 4096
    words: tuple[bytes, ...] = ()


def read_seeds(name):
    """The kept inputs of a target."""
    path = SEEDS / name
    return [b64decode(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_seeds(name, inputs):
    """Replace the kept inputs of a target, shortest first."""
    SEEDS.mkdir(exist_ok=True)
    ordered = sorted(set(inputs), key=lambda data: (len(data), data))
    (SEEDS / name).write_text("".join(b64encode(data).decode() + "\n" for data in ordered))


class Draw:
    """Reads small values off the front of an input; zeros when it is used up."""

    def __init__(self, data):
        self.data = bytes(data)
        self.at = 0

    def __bool__(self):
        return self.at < len(self.data)

    def octet(self):
        """One octet."""
        value = self.data[self.at] if self.at < len(self.data) else 0
        self.at += 1
        return value

    def short(self):
        """Two octets, big-endian."""
        return self.octet() << 8 | self.octet()

    def choice(self, options):
        """One of a sequence."""
        return options[self.octet() % len(options)]

    def octets(self, count):
        """Up to ``count`` octets."""
        found = self.data[self.at:self.at + count]
        self.at += count
        return found

    def rest(self):
        """Everything that is left."""
        return self.octets(len(self.data))


def pieces(data, sizes):
    """``data`` cut into pieces of these sizes in turn; zeros count as one."""
    at = number = 0
    while at < len(data):
        size = max(1, sizes[number % len(sizes)])
        yield data[at:at + size]
        at += size
        number += 1


class _Errors(logging.Handler):
    def __init__(self):
        super().__init__(logging.ERROR)
        self.texts = []

    def emit(self, record):
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
        self.texts.append(text)


@contextmanager
def errors_logged():
    """Collects what the broker logs as an error meanwhile; nothing else of it is shown."""
    log = logging.getLogger("gomq_py")
    before, level, handlers = log.propagate, log.level, log.handlers
    collector = _Errors()
    log.propagate, log.handlers = False, [collector]
    log.setLevel(logging.ERROR)
    try:
        yield collector.texts
    finally:
        log.propagate, log.handlers = before, handlers
        log.setLevel(level)
