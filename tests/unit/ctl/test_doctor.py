"""Doctor: what the metrics of a broker tell of its disk."""
from gomq_py.ctl.api import APIError
from gomq_py.ctl.doctor import BAD, WARNING, examine
from gomq_py.http.exposition import rendered
from gomq_py.http.own_metrics import OwnFamilies
from tests.support.node import Node
from tests.support.unflushed import Unflushed


class NodeAPI:
    """Answers with a node's own metrics of damage and nothing else."""

    address = "here"

    def __init__(self, node):
        self.node = node

    def get(self, *path):
        if path == ("doctor",):
            raise APIError("Not Found", 404)
        return {"product_version": "1"} if path == ("overview",) else []

    def text(self, path):
        assert "family=gomq_damage" in path
        return b"".join(
            part if isinstance(part, bytes) else part.encode()
            for part in rendered(OwnFamilies(self.node).damage())
        ).decode()


def findings(node):
    return {
        finding.subject: finding
        for finding in examine(NodeAPI(node), "1") if finding.subject in ("disk", "data folder")
    }


def test_damage_and_what_was_kept_of_it_is_a_finding_until_the_files_are_deleted(tmp_path):
    root = tmp_path / "data"
    node = Node(root, Unflushed())
    node.vhost.declare_queue("q", durable=True)
    for number in range(5):
        node.publish("", "q", b"body-%d" % number, persistent=True)
    node.stop()
    path, = root.glob("queues/*/msgs.*")
    path.write_bytes(path.read_bytes().replace(b"body-2", b"bodY-2"))
    node = Node(root, Unflushed())

    assert findings(node) == {}
    assert [node.take("q")[0] for _ in range(4)] == [b"body-0", b"body-1", b"body-3", b"body-4"]
    found = findings(node)
    kept, = root.glob("queues/*/damaged.*")
    assert found["disk"].level == BAD and "1 flushed message(s)" in found["disk"].text
    assert found["data folder"].level == WARNING and "1 file(s)" in found["data folder"].text
    node.stop()

    node = Node(root, Unflushed())
    assert set(findings(node)) == {"data folder"}
    assert node.broker.damage() == (0, [str(kept)])
    kept.unlink()
    assert findings(node) == {}
    node.stop()


class FollowerAPI:
    """A follower's control socket, of which /api/cluster answers alone."""

    address = "here"

    def __init__(self, **figures):
        self.figures = {"role": "follower", "elects": True, **figures}

    def get(self, *path):
        if path == ("cluster",):
            return self.figures
        raise APIError("this node follows", 503)


def test_follower_tells_once_why_etcd_does_not_answer():
    why = "http://etcd:2379 refuses: authentication failed"

    found = list(examine(FollowerAPI(reason=f"etcd: {why}", etcd_error=why), "1"))

    told = [(one.level, one.subject) for one in found if why in one.text]
    assert told == [(BAD, "etcd")]
