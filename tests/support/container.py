"""An image that buildah builds of etc/Dockerfile, and containers of it: no registry, no daemon, no network.

The base image is an empty tree with the name of the Dockerfile's. What a Debian with Python has comes from
this machine, mounted read-only; apt-get has nothing to install, and pip finds what gomq-py depends on beside
the tests. Everything else is as the Dockerfile says.
"""
import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import psutil

from tests.support.broker_process import STOP_TIMEOUT_S, BrokerProcess
from tests.support.programs import find
from tests.support.waiting import in_time

BUILD_TIMEOUT_S = in_time(300)
PYTHON = Path(os.path.realpath(sys.executable))
DEPENDENCIES = "/dependencies"
BASE = f"""
FROM scratch
COPY tree /
ENV PATH=/programs:/usr/local/bin:/usr/bin:/usr/sbin PYTHONPATH={DEPENDENCIES} PIP_NO_INDEX=1 \\
    PIP_NO_BUILD_ISOLATION=0 PIP_DISABLE_PIP_VERSION_CHECK=1
"""


class Image:
    """Built in ``folder`` from the sources in ``sources``. ``user``, ``entrypoint``, ``command`` and
    ``health_check`` are what it says of itself.
    """

    def __init__(self, folder, sources):
        self._folder = folder
        file = sources / "etc" / "Dockerfile"
        self._make_base(file.read_text().partition("\nFROM ")[2].split()[0])
        self.run(
            "bud", "--format", "docker", "--pull-never", *self.options, "-t", "gomq-py", "-f", file, sources)
        said = json.loads(self.run("inspect", "--type", "image", "gomq-py"))["Docker"]["config"]
        self.user, self.entrypoint, self.command = said["User"], said["Entrypoint"], said["Cmd"]
        self.health_check = said["Healthcheck"]["Test"][1:]

    def _make_base(self, name):
        tree = self._folder / "tree"
        for path in "usr etc/alternatives tmp var/lib run root proc dev sys programs".split():
            (tree / path).mkdir(parents=True)
        (tree / "tmp").chmod(0o1777)
        for path in ("bin", "sbin", "lib", "lib64"):
            (tree / path).symlink_to(f"usr/{path}")
        (tree / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (tree / "etc" / "group").write_text("root:x:0:\n")
        (tree / "programs" / "python").symlink_to(PYTHON)
        (tree / "programs" / "apt-get").write_text("#!/bin/sh\n")
        (tree / "programs" / "apt-get").chmod(0o755)
        (self._folder / "Base").write_text(BASE)
        self.run("bud", "--isolation", "chroot", "-t", name, "-f", self._folder / "Base", self._folder)

    @property
    def options(self):
        """Options of buildah for steps of a build and for programs in a container."""
        mounted = {
            "/usr": "/usr", "/etc/alternatives": "/etc/alternatives",
            str(PYTHON.parents[1]): PYTHON.parents[1], sysconfig.get_path("purelib"): DEPENDENCIES}
        return [
            "--isolation", "chroot",
            *(word for here, there in mounted.items() for word in ("-v", f"{here}:{there}:ro"))]

    def buildah(self, *arguments):
        """A command line of buildah whose storage is the image's folder."""
        return [
            find("buildah"), "--root", str(self._folder / "storage"), "--runroot", str(self._folder / "run"),
            "--storage-driver", "vfs", *map(str, arguments)]

    def run(self, *arguments, check=True):
        """Run buildah; what it printed."""
        done = subprocess.run(
            self.buildah(*arguments), capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout


class Container(BrokerProcess):
    """The broker of an image in a container of its own. ``mounts``: {path here: path in it}."""

    def __init__(self, image, name, mounts=(), environment=(), **options):
        super().__init__("", **options)
        self._image, self.name = image, name
        self._more = [word for here, there in dict(mounts).items() for word in ("-v", f"{here}:{there}:ro")]
        # The image has one compiled module, and what is compiled needs the others to be so, too.
        for key, value in {"GOMQ_PURE_PYTHON": "1", **dict(environment)}.items():
            self._more += ["-e", f"{key}={value}"]
        image.run("from", "--pull-never", "--name", name, "gomq-py")

    def _command(self, *arguments):
        return self._image.buildah(
            "run", *self._image.options, "--hostname", self.name, *self._more, self.name, "--", *arguments)

    @property
    def arguments(self):
        flags = [
            word for key, value in self._options.items() if value != "" for word in (
                "--" + key.replace("_", "-"), str(value))]
        return self._command(*self._image.entrypoint, *self._image.command, *flags)

    def execute(self, *arguments):
        """Run a program in the container as its user: (exit code, what it printed)."""
        done = subprocess.run(
            self._command("/usr/bin/env", *arguments), capture_output=True, text=True, timeout=in_time(60))
        return done.returncode, done.stdout + done.stderr

    @property
    def broker(self):
        """The process of the broker: buildah starts others before it."""
        return psutil.Process(self.pid).children(recursive=True)[-1]

    def kill(self):
        if self.is_running:  # or buildah's death would leave what it has started
            for process in psutil.Process(self.pid).children(recursive=True):
                process.kill()
        return super().kill()

    def stop(self, timeout_s=STOP_TIMEOUT_S):
        self.broker.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)
