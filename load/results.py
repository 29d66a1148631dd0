"""load/results.json: what ``load.bench`` measured of each version of gomq-py, so that a release shows its
figures beside those of the last one.
"""
import json
import os
import platform
import re
import subprocess
import time
from pathlib import Path

from gomq_py import __version__

FILE = Path(__file__).with_name("results.json")


def entry(found, load_before, before=()):
    """This run: where, when, of which commit, and what was ``found``. From an earlier run of this version on
    this machine among the entries ``before`` come the figures that this one does not have.
    """
    own = {"machine": machine(load_before), "version": __version__}
    for earlier in before:
        if earlier["version"] == __version__ and _is_same_machine(earlier, own):
            found = merged(earlier["found"], found)
    return {**own, "commit": _commit(), "date": time.strftime("%Y-%m-%d"), "found": found}


def machine(load_before):
    """What a figure depends on beside the brokers."""
    return {
        "processor": _processor(), "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}", "python": platform.python_version(),
        "load_before": round(load_before, 1),
    }


def last(entries, of):
    """The newest entry of another version from the same kind of machine, or None."""
    others = (each for each in reversed(entries) if each["version"] != of["version"])
    return next((each for each in others if _is_same_machine(each, of)), None)


def read():
    """The entries, the newest last."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def write(entries, newest):
    """``newest`` takes the place of its version's entry. Numbers have five digits, each row of a broker has
    a line.
    """
    others = [each for each in entries if each["version"] != newest["version"]]
    short = json.loads(json.dumps([*others, newest]), parse_float=lambda text: float(f"{float(text):.5g}"))
    text = re.sub(r"\{[^{}]*\}", lambda row: " ".join(row[0].split()), json.dumps(short, indent=1))
    FILE.write_text(text + "\n", encoding="utf-8")


def merged(before, now):
    """Figures of earlier runs with those of this one, which take their place."""
    if isinstance(before, dict) and isinstance(now, dict):
        return {key: merged(before.get(key), now.get(key)) for key in {**before, **now}}
    return before if now in (None, "") else now


def _is_same_machine(one, other):
    return all(one["machine"][key] == other["machine"][key] for key in ("processor", "cores"))


def _commit():
    """None outside a checkout."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=FILE.parent, capture_output=True,
        text=True, check=False)
    return described.stdout.strip() or None


def _processor():
    try:
        return re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())[1].strip()
    except (OSError, TypeError):
        return platform.machine()
