"""What a process costs: CPU time and memory from /proc, or nothing where there is no /proc; and what this one
may have.
"""
import os
import resource


def raise_descriptor_limit():
    """Let this process and its children have as many sockets as the machine allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def cpu_seconds(pid):
    """User and system time of a process with all its threads, to 10 ms.

    Raises OSError when there is no such process.
    """
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_octets(pid):
    """{"rss": all resident pages, "anonymous": those that no file backs, the heap} of a process.

    Raises OSError.
    """
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        values = dict(line.split(":", 1) for line in file)
    return {"rss": _kib(values["VmRSS"]), "anonymous": _kib(values["RssAnon"])}


def _kib(text):
    return int(text.split()[0]) * 1024
