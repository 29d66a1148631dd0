"""A wire for ``load.bench --veth``: the brokers run in one network namespace, the generator in another one,
and a veth pair with Ethernet's MTU joins the two. Loopback has an MTU of 64 KiB, so that it carries a full
socket buffer as one packet.
"""
import contextlib
import os
import shutil
import signal
import subprocess
import sys

MTU = 1500
BROKER, GENERATOR = "198.18.0.1", "198.18.0.2"  # of the range for benchmarks (RFC 2544)
_NAMESPACE = "LOAD_NAMESPACE"
NAMESPACE = os.environ.get(_NAMESPACE)
HOST = BROKER if NAMESPACE else "127.0.0.1"


def inside(command):
    """The command of a broker, which enters its namespace if there is one; ``ip`` keeps the process."""
    return ["ip", "netns", "exec", NAMESPACE, *command] if NAMESPACE else command


def run(module, arguments, segments):
    """Run a module in the generator's namespace; its exit code. The namespaces, and all processes in them,
    end with it.
    """
    if os.geteuid() or not shutil.which("ip"):
        sys.exit("--veth needs root, and the command ip of iproute2")
    ends = {f"gomq-{os.getpid()}-{host}": host for host in (BROKER, GENERATOR)}
    broker, generator = ends
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with contextlib.ExitStack() as made:
        for command in laying(ends, segments):
            subprocess.run(command, check=True)
            if command[1:3] == ["netns", "add"]:
                made.callback(_remove, command[3])
        child = subprocess.Popen(
            ["ip", "netns", "exec", generator, sys.executable, "-m", module, *arguments],
            env={**os.environ, _NAMESPACE: broker})
        try:
            return child.wait()
        except KeyboardInterrupt:
            return child.wait()  # it was interrupted, too, and stops its brokers


def laying(ends, segments):
    """The commands that make two namespaces, {name: address}, and join them; so many segments cross as one
    packet, as a network card would take them.
    """
    first, second = ends
    device = ["name", "veth0", "mtu", str(MTU), "gso_max_segs", str(segments), "netns"]
    return [
        *(["ip", "netns", "add", name] for name in ends),
        ["ip", "link", "add", *device, first, "type", "veth", "peer", *device, second],
        *(
            ["ip", "-n", name, *words.split()] for name, address in ends.items() for words in (
                f"address add {address}/30 dev veth0", "link set veth0 up", "link set lo up")
        ),
    ]


def _remove(namespace):
    """With the processes in it, which an interrupted run may have left."""
    found = subprocess.run(["ip", "netns", "pids", namespace], stdout=subprocess.PIPE, check=False)
    for pid in found.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "delete", namespace], check=False)
