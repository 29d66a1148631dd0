"""A current RabbitMQ, of Debian's unstable release, with its Erlang in a folder of its own.

``python -m tests.support.rabbitmq_of_sid`` installs it, or says why it cannot. RabbitMQProcess starts it with
``root=FOLDER``; an installed RabbitMQ of the system is not touched.
"""
import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.programs import find

# chroot needs a folder that root alone may change, and systems empty /tmp at a restart.
FOLDER = Path(os.environ.get("GOMQ_RABBITMQ_OF_SID", "/var/tmp/gomq-rabbitmq-of-sid"))
# Written last: a folder without it is half an installation.
DONE = "gomq-installed"
PACKAGE = "rabbitmq-server"


def find_server(root=""):
    """The path, inside ``root``, of the newest server script without Debian's wrapper (which changes the
    user), or None.
    """
    found = sorted(glob.glob(f"{root}/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"))
    return found[-1].removeprefix(str(root)) if found else None


def reason_against():
    """Why the current RabbitMQ cannot be started here, or None."""
    if not (FOLDER / DONE).exists():
        return "needs RabbitMQ of Debian sid: python -m tests.support.rabbitmq_of_sid"
    return None if os.geteuid() == 0 else "needs root, to run RabbitMQ of Debian sid in its folder"


def mirror():
    """The address of the Debian mirror that apt is set up with, or None."""
    try:
        listed = subprocess.run(
            ["apt-get", "indextargets", "Label: Debian", "Created-By: Packages", "--format", "$(REPO_URI)"],
            check=True, capture_output=True, text=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return None
    return listed[0] if listed else None


def install():
    """Install RabbitMQ into FOLDER, unless it is there. Returns why it cannot be, or None."""
    if (FOLDER / DONE).exists():
        return None
    if os.geteuid() != 0:
        return "debootstrap needs root"
    if find("debootstrap") is None:
        return "debootstrap is missing: apt-get install -y debootstrap"
    address = mirror()
    if address is None:
        return "apt knows no Debian mirror: apt-get update"
    shutil.rmtree(FOLDER, ignore_errors=True)
    finished = subprocess.run(
        [find("debootstrap"), "--variant=minbase", f"--include={PACKAGE}", "sid", str(FOLDER), address],
        check=False)
    if finished.returncode != 0 or find_server(FOLDER) is None:
        return f"debootstrap failed: {FOLDER}/debootstrap/debootstrap.log"
    (FOLDER / "etc/hosts").write_text("127.0.0.1 localhost\n", encoding="ascii")
    (FOLDER / DONE).touch()
    return None


if __name__ == "__main__":
    REASON = install()
    print(f"no RabbitMQ of Debian sid: {REASON}" if REASON else f"{find_server(FOLDER)} in {FOLDER}")
    sys.exit(REASON is not None)
