"""An etcd of a test's own, on ports and in folders of its own: one server, or several that form a cluster."""
import base64
import contextlib
import json
import shutil
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from tests.support.ports import reserve
from tests.support.programs import find
from tests.support.waiting import in_time, wait_until

START_TIMEOUT_S = in_time(30)
# A test that reads an answer's status waits for an etcd that is slow, not for one that is gone.
CALL_TIMEOUT_S = in_time(5)


class EtcdProcess:
    """One server, started by ``with`` or ``start``. ``endpoint``: for the client's settings.

    ``tls``: files of tests.support.certificates; clients need a certificate of their authority then.
    ``options``: further flags. ``members``: {name: peer URL} of all servers of its cluster.
    """

    def __init__(self, folder, *options, tls=None, name="one", members=None):
        self.folder = folder
        self.port = reserve()
        scheme = "http" if tls is None else "https"
        self.endpoint = f"{scheme}://127.0.0.1:{self.port}"
        self._members = members or {name: peer_url()}
        files = () if tls is None else (
            "--cert-file", str(tls.certificate), "--key-file", str(tls.key), "--client-cert-auth",
            "--trusted-ca-file", str(tls.authority))
        self._context = None
        if tls is not None:
            self._context = ssl.create_default_context(cafile=str(tls.authority))
            self._context.load_cert_chain(tls.certificate, tls.key)
        self._data = folder / f"etcd-{name}"
        peer = self._members[name]
        self._command = (
            find("etcd"), "--name", name, "--data-dir", str(self._data),
            "--log-level", "error", "--logger", "zap",
            "--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", ",".join(f"{member}={url}" for member, url in self._members.items()),
            *files, *options,
        )
        self.process = None

    def __enter__(self):
        self.start()
        self.wait_until_ready()
        return self

    def __exit__(self, *_):
        self.kill()

    def start(self):
        """Start it, with what is in its folder. Does not wait: a member of several needs the others."""
        with open(self.folder / "etcd.log", "ab") as log:
            self.process = subprocess.Popen(self._command, cwd=self.folder, stdout=log, stderr=log)

    def wait_until_ready(self):
        """Wait until it answers, with a leader of its cluster."""
        wait_until(
            self._is_ready, START_TIMEOUT_S,
            lambda: f"etcd answers; its log: {(self.folder / 'etcd.log').read_text()[-2000:]}")

    def kill(self):
        """End it without warning."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(in_time(30))

    def stop(self):
        """Let it hang (SIGSTOP) until ``go_on``; its kernel still accepts connections."""
        self.process.send_signal(signal.SIGSTOP)
        state = Path(f"/proc/{self.process.pid}/stat")
        wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", what="etcd stands still")

    def go_on(self):
        """End a ``stop``."""
        self.process.send_signal(signal.SIGCONT)

    def empty(self):
        """Remove its data; it must not run."""
        shutil.rmtree(self._data)

    def call(self, path, **body):
        """The answer of its JSON gateway, as an operator asks, without our client. Octets are base64."""
        request = urllib.request.Request(f"{self.endpoint}/v3/{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=CALL_TIMEOUT_S, context=self._context) as answer:
            return json.load(answer)

    def put(self, key, value):
        """Write a key."""
        self.call("kv/put", key=text(key), value=text(value))

    def delete(self, key):
        """Delete a key."""
        self.call("kv/deleterange", key=text(key))

    def compact(self):
        """Compact up to the present revision, which is returned."""
        revision = int(self.call("kv/range", key=text(b"x"))["header"]["revision"])
        self.call("kv/compaction", revision=revision, physical=True)
        return revision

    def _is_ready(self):
        try:
            self.call("kv/range", key=text(b"x"))
        except urllib.error.HTTPError as error:
            return error.code == 400  # logins are on
        except OSError:
            assert self.process.poll() is None, (self.folder / "etcd.log").read_text()[-2000:]
            return False
        return True


@contextlib.contextmanager
def cluster(folder, count=3):
    """Servers of one cluster."""
    members = {f"server-{number}": peer_url() for number in range(count)}
    servers = [EtcdProcess(folder, name=name, members=members) for name in members]
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait_until_ready()
        yield servers
    finally:
        for server in servers:
            server.kill()


def with_logins(etcd):
    """Switch logins on: gomq, with the password pw, may use the keys below "gomq/"; root everything."""
    for user, password in (("root", "rootpw"), ("gomq", "pw")):
        etcd.call("auth/user/add", name=user, password=password)
    etcd.call("auth/role/add", name="gomq")
    permission = {"permType": "READWRITE", "key": text(b"gomq/"), "range_end": text(b"gomq0")}
    etcd.call("auth/role/grant", name="gomq", perm=permission)
    etcd.call("auth/user/grant", user="gomq", role="gomq")
    etcd.call("auth/user/grant", user="root", role="root")
    etcd.call("auth/enable")


def peer_url():
    """A URL for other servers, on a port of its own."""
    return f"http://127.0.0.1:{reserve()}"


def text(octets):
    """Octets as the gateway takes them."""
    return base64.b64encode(octets).decode()
