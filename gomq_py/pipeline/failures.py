"""Turns a job's error into one line. Spark wraps a GomqError in two tracebacks and a Java stack trace."""
import re

_OURS = re.compile(r"^\s*gomq_py\.[\w.]+\.\w+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^\s*(?:[\w.]+\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
# py4j's first line names an internal call; Java's error is in the second.
_CALLED = re.compile(r"An error occurred while calling \S+\n: (?=\S)")
# Linux's texts for a full file system, an exhausted quota, and a file at its size limit.
_FULL_DISK = re.compile(r"No space left on device|ENOSPC|[Dd]isk quota exceeded|EDQUOT|File too large|EFBIG")
FULL_DISK = (
    "the disk (or its quota) is full where the job writes: make room; the next run repeats the batch"
)
LONGEST = 2000
DEEPEST = 10


def told(error):
    """Return one line that says why a job failed; for a GomqError or a full disk, also the remedy."""
    text = _CALLED.sub("", str(error), 1)
    if any(map(_FULL_DISK.search, [text, *_causes(error)])):
        return FULL_DISK
    ours = _OURS.findall(text)
    if ours:
        return ours[-1][:LONGEST]
    pythons = _PYTHON.findall(text)
    if pythons:
        return ": ".join(pythons[-1])[:LONGEST]
    return (text.strip().partition("\n")[0] or type(error).__name__)[:LONGEST]


def _causes(error):
    """Yield the texts of the error's causes, because pyspark's error may only say that a task failed."""
    for _ in range(DEEPEST):
        error = getattr(error, "_cause", None)
        if error is None:
            return
        yield str(error)
