"""The etcd of a cluster: a process that a round may also empty, and what the nodes keep in it."""
import base64
import json
import shutil

from tests.support.etcd_process import EtcdProcess, text

PREFIX = "rounds"


class Coordinator(EtcdProcess):
    """One server. What it keeps need not outlive the machine."""

    def __init__(self, folder):
        super().__init__(folder, "--unsafe-no-fsync")

    def begin(self):
        """Start it, and wait until it answers."""
        self.start()
        self.wait_until_ready()

    def lose_everything(self):
        """Killed, emptied and started."""
        self.kill()
        shutil.rmtree(self.folder / "etcd-one")
        self.begin()

    def record(self, key):
        """The JSON in a key below the prefix; None without it, and without an answer."""
        try:
            found = self.call("kv/range", key=text(f"{PREFIX}/{key}".encode())).get("kvs")
        except OSError:
            return None
        return json.loads(base64.b64decode(found[0]["value"])) if found else None
