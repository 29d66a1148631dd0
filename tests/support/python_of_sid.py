"""CPython 3.14 of Debian's unstable release, in a folder of its own, beside the system's Pythons.

``python -m tests.support.python_of_sid`` installs it and prints its path, or says why it cannot; the system
stays as it is, and root is not needed. It runs on the unstable release's C library, which lies in the folder
too, and compiles with the system's compiler against the system's C library.
"""
import os
import shutil
import subprocess
from pathlib import Path

from tests.support import sid

VERSION = "3.14"
FOLDER = Path(os.environ.get("GOMQ_PYTHON_OF_SID", "/var/tmp/gomq-python-of-sid"))
PYTHON = FOLDER / "usr/bin" / f"python{VERSION}"
WHEELS = "/usr/share/python-wheels"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Headers of a C library that the compiler here does not link against.
HEADERS_OF_THE_SYSTEM = ("libc6-dev", "linux-libc-dev", "libc-dev-bin")


def install():
    """Install Python into FOLDER, unless it is there. Returns why it cannot be, or None."""
    return sid.install(FOLDER, "patchelf", _make)


def _make(address):
    try:
        for package in _download(address):
            subprocess.run(["dpkg-deb", "-x", package, FOLDER], check=True)
        _settle()
    except subprocess.CalledProcessError as error:
        return f"{error.cmd[0]} failed"
    return None


def _download(address):
    """The packages that Python needs; apt keeps what it knows of them in the folder."""
    apt = FOLDER / "apt"
    for name in ("lists/partial", "archives/partial"):
        (apt / name).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "sources.list").write_text(f"deb [signed-by={KEYS}] {address} sid main\n", encoding="ascii")
    (apt / "apt.conf").write_text(
        f'Dir::State::lists "{apt}/lists";\nDir::State::status "{apt}/status";\n'
        f'Dir::Cache "{apt}";\nDir::Etc::sourcelist "{apt}/sources.list";\n'
        'Dir::Etc::sourceparts "/dev/null";\nDir::Etc::preferencesparts "/dev/null";\n', encoding="ascii")
    environment = {**os.environ, "APT_CONFIG": str(apt / "apt.conf")}
    subprocess.run(["apt-get", "-q", "update"], env=environment, check=True)
    subprocess.run(
        ["apt-get", "-q", "-y", "--no-install-recommends", "--download-only", "install",
         f"python{VERSION}-venv", f"libpython{VERSION}-dev"], env=environment, check=True)
    return [
        path for path in sorted((apt / "archives").glob("*.deb"))
        if path.name.partition("_")[0] not in HEADERS_OF_THE_SYSTEM
    ]


def _settle():
    """Have Python find its libraries, headers and pip in the folder instead of the system's."""
    libraries = next((FOLDER / "usr/lib").glob("*-linux-gnu*"))
    loader = next(path for path in libraries.glob("ld-linux-*.so.*"))
    subprocess.run(
        ["patchelf", "--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, PYTHON],
        check=True)
    headers = FOLDER / "usr/include"
    shutil.copy(
        headers / libraries.name / f"python{VERSION}/pyconfig.h", headers / f"python{VERSION}/pyconfig.h")
    for path in (FOLDER / f"usr/lib/python{VERSION}").glob("_sysconfig*"):
        if not path.is_symlink():
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(WHEELS, f"{FOLDER}{WHEELS}"), encoding="utf-8")


if __name__ == "__main__":
    sid.tell("Python", install(), PYTHON)
