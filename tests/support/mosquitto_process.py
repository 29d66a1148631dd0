"""A Mosquitto of a test's own, on a port and in a folder of its own,
as the other end of our MQTT client and of the load tool.
"""
import os
import signal
import socket
import subprocess

from tests.support.ports import reserve
from tests.support.programs import find
from tests.support.waiting import in_time, wait_until

START_TIMEOUT_S = in_time(30)


class MosquittoProcess:
    """Started by ``with``; ``settings`` are further lines of its configuration."""

    def __init__(self, folder, *settings, tls=None):
        """``tls``: files of tests.support.certificates, of the only port then."""
        self.folder = folder
        self.port = reserve()
        self.url = f"mqtt{'s' if tls else ''}://127.0.0.1:{self.port}"
        files = (f"certfile {tls.certificate}", f"keyfile {tls.key}") if tls else ()
        # What a client may have waiting is bounded by a thousand messages where nothing is said, and dropped.
        self._lines = (
            f"listener {self.port} 127.0.0.1", "allow_anonymous true", "max_queued_messages 0",
            "max_inflight_messages 0", *files, *settings,
        )
        self.process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    @property
    def pid(self):
        """Of the server itself."""
        return self.process.pid

    def start(self):
        """Start it and wait until it accepts connections. Returns itself."""
        configuration = self.folder / "mosquitto.conf"
        # As root it would become the user "mosquitto", who may not look into a folder of root's.
        user = ("user root",) if os.geteuid() == 0 else ()
        configuration.write_text("\n".join((*self._lines, *user)) + "\n", encoding="utf-8")
        with open(self.folder / "mosquitto.log", "ab") as log:
            self.process = subprocess.Popen(
                [find("mosquitto"), "-c", str(configuration)], cwd=self.folder, stdout=log, stderr=log)
        wait_until(
            lambda: self._is_listening() or self.process.poll() is not None, START_TIMEOUT_S,
            "mosquitto listening",
        )
        assert self.process.poll() is None, (self.folder / "mosquitto.log").read_text()
        return self

    def stop(self):
        """Stop in order."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(in_time(30))

    def kill(self):
        """Stop without warning."""
        self.process.kill()
        self.process.wait(in_time(30))

    def _is_listening(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True
