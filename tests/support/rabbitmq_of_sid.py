"""A current RabbitMQ, of Debian's unstable release, with its Erlang in a folder of its own.

``python -m tests.support.rabbitmq_of_sid`` installs it, or says why it cannot. RabbitMQProcess starts it with
``root=FOLDER``; an installed RabbitMQ of the system is not touched.
"""
import glob
import os
import subprocess
from pathlib import Path

from tests.support import sid
from tests.support.programs import find

# chroot needs a folder that root alone may change, and systems empty /tmp at a restart.
FOLDER = Path(os.environ.get("GOMQ_RABBITMQ_OF_SID", "/var/tmp/gomq-rabbitmq-of-sid"))
PACKAGE = "rabbitmq-server"


def find_server(root=""):
    """The path, inside ``root``, of the newest server script without Debian's wrapper (which changes the
    user), or None.
    """
    found = sorted(glob.glob(f"{root}/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"))
    return found[-1].removeprefix(str(root)) if found else None


def reason_against():
    """Why the current RabbitMQ cannot be started here, or None."""
    if not sid.is_installed(FOLDER):
        return "needs RabbitMQ of Debian sid: python -m tests.support.rabbitmq_of_sid"
    return None if os.geteuid() == 0 else "needs root, to run RabbitMQ of Debian sid in its folder"


def install():
    """Install RabbitMQ into FOLDER, unless it is there. Returns why it cannot be, or None."""
    return sid.install(FOLDER, "debootstrap", _make)


def _make(address):
    if os.geteuid() != 0:
        return "debootstrap needs root"
    finished = subprocess.run(
        [find("debootstrap"), "--variant=minbase", f"--include={PACKAGE}", "sid", str(FOLDER), address],
        check=False)
    if finished.returncode != 0 or find_server(FOLDER) is None:
        return f"debootstrap failed: {FOLDER}/debootstrap/debootstrap.log"
    (FOLDER / "etc/hosts").write_text("127.0.0.1 localhost\n", encoding="ascii")
    return None


if __name__ == "__main__":
    REASON = install()
    sid.tell("RabbitMQ", REASON, f"{find_server(FOLDER)} in {FOLDER}")
