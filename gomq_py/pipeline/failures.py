"""What went wrong in a job, as one line: Spark wraps what a data source said in two
tracebacks and a stack of Java's.
"""
import re

_OURS = re.compile(r"^\s*gomq_py\.[\w.]+\.\w+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^\s*(?:[\w.]+\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
# py4j's first line names a call that nobody knows; Java's error is in the second.
_CALLED = re.compile(r"An error occurred while calling \S+\n: (?=\S)")
# What Linux says of a full file system, a quota that is used up, and a file that may grow no further.
_FULL_DISK = re.compile(r"No space left on device|ENOSPC|[Dd]isk quota exceeded|EDQUOT|File too large|EFBIG")
FULL_DISK = (
    "the disk (or its quota) is full where the job writes: make room; the next run repeats the batch"
)
LONGEST = 2000
DEEPEST = 10


def told(error):
    """The line that says what is wrong and what to do."""
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
    """Texts of what brought it about. pyspark keeps them apart from the text of a query's own error, which
    may say no more than that a task failed.
    """
    for _ in range(DEEPEST):
        error = getattr(error, "_cause", None)
        if error is None:
            return
        yield str(error)
