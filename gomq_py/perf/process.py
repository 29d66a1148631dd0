"""Reads CPU time and memory of a process from /proc; raises the limit of open files."""
import os
import resource


def raise_descriptor_limit():
    """Raise the limit of open files for this process and its children to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def cpu_seconds(pid):
    """Return the CPU time that a process has used, in seconds, accurate to 10 ms. Raises OSError."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_octets(pid):
    """Return the memory of a process in bytes: {"rss": resident, "anonymous": of that, not from files}.

    Raises OSError.
    """
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        values = dict(line.split(":", 1) for line in file)
    return {"rss": _kib(values["VmRSS"]), "anonymous": _kib(values["RssAnon"])}


def _kib(text):
    return int(text.split()[0]) * 1024
