"""Programs of Debian's unstable release, each in a folder of its own."""
import shutil
import subprocess
import sys

from tests.support.programs import find

# Written last: a folder without it is half an installation.
_DONE = "gomq-installed"


def is_installed(folder):
    """Whether ``folder`` has a whole installation."""
    return (folder / _DONE).exists()


def install(folder, tool, make):
    """Have ``make(address of a Debian mirror)`` fill the folder, unless it has been. Returns why that cannot
    be, or None. ``tool``: a program that ``make`` runs; it returns why it failed, or None.
    """
    if is_installed(folder):
        return None
    if find(tool) is None:
        return f"{tool} is missing: apt-get install -y {tool}"
    address = _mirror()
    if address is None:
        return "apt knows no Debian mirror: apt-get update"
    shutil.rmtree(folder, ignore_errors=True)
    reason = make(address)
    if reason is None:
        (folder / _DONE).touch()
    return reason


def tell(what, reason, found):
    """Print what an installation has found, or why there is none; and leave."""
    print(f"no {what} of Debian sid: {reason}" if reason else found)
    sys.exit(reason is not None)


def _mirror():
    """The address of the Debian mirror that apt is set up with, or None."""
    try:
        listed = subprocess.run(
            ["apt-get", "indextargets", "Label: Debian", "Created-By: Packages", "--format", "$(REPO_URI)"],
            check=True, capture_output=True, text=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return None
    return listed[0] if listed else None
