"""A RabbitMQ of our own, as the reference that conformance expectations are checked against.

For broker_under_test, the benchmark and imports of definitions. Starts Debian's rabbitmq-server with its own
node name, ports, epmd and folders, so that it neither sees nor disturbs an installed service. With a `root`
(rabbitmq_of_sid.FOLDER) it starts the one that is installed there.
"""
import os
import signal
import socket
import subprocess
import uuid

from tests.support.ports import reserve
from tests.support.rabbitmq_of_sid import find_server
from tests.support.waiting import in_time, wait_until

START_TIMEOUT_S = in_time(60)
CONFIGURATION = """
loopback_users.guest = true
disk_free_limit.absolute = 10MB
vm_memory_high_watermark.absolute = 1GB
log.console = false
"""


# In a mount namespace of its own, so that the mounts end with the process: /proc, which Erlang reads, and the
# folder of the node, at the path that it has outside.
CHROOT = """
mount --bind /proc "$0/proc" && mkdir -p "$0$1" && mount --bind "$1" "$0$1" && exec chroot "$0" "$2"
"""


class RabbitMQProcess:
    """A node in `data_dir`, started by `start` or `with`; the verbs are BrokerProcess's.

    With plugins it has its management API as well.
    """

    def __init__(self, data_dir, plugins=(), configuration="", root=""):
        """``configuration``: more lines of rabbitmq.conf; ``root``: the folder it is installed in."""
        self.root = str(root)
        self.configuration = configuration
        self.data_dir = str(data_dir)
        self.port = reserve()
        self.plugins = ("rabbitmq_management", *plugins) if plugins else ()
        self.http_port = reserve() if plugins else None
        self.epmd_port = reserve()
        self.node_name = f"witness-{uuid.uuid4().hex[:8]}@localhost"
        self.process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.is_running:
            self.stop()

    @property
    def is_running(self):
        """True while the node lives."""
        return self.process is not None and self.process.poll() is None

    @property
    def amqp_url(self):
        """Where it listens."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    def http_url(self):
        """Where its management API is."""
        return f"http://127.0.0.1:{self.http_port}"

    def environment(self):
        """Everything that could touch an installed node points elsewhere."""
        folder = self.data_dir
        return dict(
            os.environ, HOME=folder, ERL_EPMD_PORT=str(self.epmd_port), ERL_EPMD_ADDRESS="127.0.0.1",
            RABBITMQ_NODENAME=self.node_name, RABBITMQ_NODE_IP_ADDRESS="127.0.0.1",
            RABBITMQ_NODE_PORT=str(self.port),
            RABBITMQ_DIST_PORT=str(reserve()),
            RABBITMQ_MNESIA_BASE=f"{folder}/mnesia", RABBITMQ_LOG_BASE=f"{folder}/log",
            RABBITMQ_PID_FILE=f"{folder}/pid",
            RABBITMQ_ENABLED_PLUGINS_FILE=f"{folder}/enabled_plugins",
            RABBITMQ_CONF_ENV_FILE=f"{folder}/env.conf",
            RABBITMQ_CONFIG_FILE=f"{folder}/rabbitmq",
            # Idle schedulers must not spin: the machine is shared with the tests.
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+sbwt none +sbwtdcpu none +sbwtdio none",
        )

    def start(self):
        """Start the node and wait until it accepts connections. Returns itself."""
        with open(f"{self.data_dir}/rabbitmq.conf", "w", encoding="ascii") as file:
            file.write(
                CONFIGURATION + self.configuration + (
                    f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.http_port}\n"
                    if self.http_port else ""
                )
            )
        with open(f"{self.data_dir}/enabled_plugins", "w", encoding="ascii") as file:
            file.write(f"[{','.join(self.plugins)}].")
        with open(f"{self.data_dir}/console.log", "ab") as log:
            self.process = subprocess.Popen(
                self._command(), env=self.environment(), stdout=log, stderr=log, start_new_session=True
            )
        wait_until(
            lambda: self.is_listening() or not self.is_running, START_TIMEOUT_S,
            f"rabbitmq-server listening; see {self.data_dir}/console.log",
        )
        assert self.is_running, f"rabbitmq-server left; see {self.data_dir}/console.log"
        return self

    def _command(self):
        server = find_server(self.root)
        return [
            "unshare", "--mount", "sh", "-c", CHROOT, self.root, self.data_dir, server
        ] if self.root else [server]

    def is_listening(self):
        """Whether it accepts connections, at every door."""
        try:
            for port in filter(None, (self.port, self.http_port)):
                socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    def stop(self):
        """Stop in order."""
        self.signal(signal.SIGTERM)
        self.stop_epmd()

    def kill(self):
        """Stop without warning."""
        self.signal(signal.SIGKILL)
        self.stop_epmd()

    def restart(self):
        """Stop in order and start again on the same port."""
        self.signal(signal.SIGTERM)
        return self.start()

    def signal(self, number):
        """Signal the Erlang node (the server script's child does not get the script's
        signals) and wait for its end.
        """
        with open(f"{self.data_dir}/pid", encoding="ascii") as file:
            os.kill(int(file.read()), number)
        self.process.wait(in_time(30))

    def stop_epmd(self):
        """End the port mapper that the node started for itself."""
        command = ["epmd", "-port", str(self.epmd_port), "-kill"]
        subprocess.run(
            ["chroot", self.root, *command] if self.root else command, check=False, capture_output=True)
