"""The nodes of a cluster: real processes, each with relays in front of its cluster port and of etcd."""
import json
import shutil
import signal
import urllib.request
from base64 import b64encode

from gomq_py.cluster import identity
from gomq_py.errors import ClusterError
from tests.cluster_rounds.coordinator import PREFIX
from tests.support.ill_disk import IllDisk
from tests.support.ports import reserve
from tests.support.waiting import in_time

# Short, so that a round is: etcd takes no shorter one than 2 s.
LEASE_TTL_S = 3
PROGRESS_S = 2  # ack_timeout
SECRET = "a secret of the cluster in the rounds"
ANSWER_S = in_time(2)
_LOGIN = "Basic " + b64encode(b"guest:guest").decode()
_CONFIGURATION = """
[main]
default_user_only_loopback = false
segment_size = 65536
[clustering]
secret_file = {folder}/secret
bind = 127.0.0.1
port = {port}
{lines}
"""


class Node(IllDisk):
    """One node. ``history``: its log over its former lives."""

    def __init__(self, name, folder, network, coordinator, min_isr=1):
        folder.mkdir()
        self.name, self.folder = name, folder
        self.history = []
        self.cluster_port, self.relay_port = reserve(), reserve()
        (folder / "secret").write_text(SECRET)
        (folder / "secret").chmod(0o600)
        self._etcd_relay = network.to_service(name, "etcd", coordinator.port)
        self._relay = network.to_node(name, self.cluster_port, self.relay_port)
        self._relay.close()
        configuration = folder / "gomq.ini"
        configuration.write_text(_CONFIGURATION.format(
            folder=folder, port=self.cluster_port, lines="\n".join(self.lines(min_isr))))
        super().__init__(
            folder, config=configuration, faults=True, port=reserve(), mqtt_port=reserve(),
            http_port=reserve(), control_unix_path=f"{folder}/control.sock")

    def lines(self, min_isr):
        """Its lines of [clustering]."""
        yield "enabled = true"
        yield f"etcd_endpoints = 127.0.0.1:{self._etcd_relay.port}"
        yield f"etcd_prefix = {PREFIX}"
        yield f"advertised_uri = 127.0.0.1:{self.relay_port}"
        yield f"lease_ttl = {LEASE_TTL_S}"
        yield f"ack_timeout = {PROGRESS_S}"
        yield f"min_isr = {min_isr}"

    @property
    def arguments(self):
        arguments = super().arguments
        return [name.replace("tests.support.ill_child", "tests.cluster_rounds.child") for name in arguments]

    def door(self, protocol):
        """The port for this protocol, whoever listens there."""
        return self._options["port" if protocol == "amqp" else f"{protocol}_port"]

    def spawn(self):
        self.history += self.log
        super().spawn()
        self._relay.open()

    def wait(self, *arguments, **options):
        try:
            return super().wait(*arguments, **options)
        finally:
            self._relay.close()  # the machine refuses what nobody listens for

    def suspend(self):
        """SIGSTOP."""
        self.signal(signal.SIGSTOP)

    def wake(self):
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def figures(self):
        """Its answer to /api/cluster; empty without one."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.door('http')}/api/cluster", headers={"Authorization": _LOGIN})
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return {}

    @property
    def node_id(self):
        """16 octets; None before it has a readable one."""
        try:
            found = identity.read(self.data_dir)
        except (ClusterError, OSError):
            return None
        return found and found.node_id

    def copy_folder(self):
        """Keep a copy of the data folder of a node that is not running, for ``restore_folder``."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.data_dir, self._copy)

    def restore_folder(self):
        """Put the copy in the folder's place."""
        self.wipe_folder()
        shutil.copytree(self._copy, self.data_dir)

    def wipe_folder(self):
        """A new machine of this name."""
        shutil.rmtree(self.data_dir)

    def flip_bits(self, random, count=5):
        """Change bits in the files of queues, of a node that is not running. Returns where."""
        flipped = []
        files = sorted(
            path for path in self.data_dir.glob("*/**/*") if path.is_file() and path.stat().st_size)
        for _ in range(count):
            path = random.choice(files)
            with open(path, "r+b") as file:
                at = random.randrange(min(path.stat().st_size, 4096))
                file.seek(at)
                octet = file.read(1)[0]
                file.seek(at)
                file.write(bytes([octet ^ 1 << random.randrange(8)]))
            flipped.append(f"{path.relative_to(self.data_dir)}:{at}")
        return flipped

    @property
    def _copy(self):
        return self.folder / "copy"

    @property
    def whole_log(self):
        """All that it has logged."""
        return [*self.history, *self.log]
