"""Makes the golden data folder of the present format: ``python -m tests.golden.make``, once for each schema
version, never again for an old one.

``vN.tar.gz`` holds two folders of the same content, one left by an orderly stop and one by a kill;
``vN.KIND.json`` is the account that every later version must find. Everything a data folder can hold is in
it.
"""
import gzip
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from gomq_py.auth import passwords
from gomq_py.broker.queues.stream_queue import StreamQueue
from gomq_py.broker.topology import definitions
from gomq_py.content.properties import Properties
from gomq_py.mqtt.model.kinds import all_kinds
from gomq_py.storage.disk import data_dir
from gomq_py.storage.format import head, log
from gomq_py.storage.message import Message
from gomq_py.storage.stores.stream_cursor import StreamCursor
from tests.support.node import Node
from tests.support.passwords import has_password
from tests.support.reading import get

HERE = Path(__file__).parent
PASSWORD = "correct horse"
# 2100: a delayed message that no test run will see on its way.
FAR_MS = 4_102_444_800_000
SEGMENT_BYTES = 65536
FORMATS = {"data folder": data_dir.SCHEMA_VERSION, "segment": head.SCHEMA_VERSION, "framed log": log.VERSION}


def open_node(root):
    """A broker over a folder, with small segments, so that there are several."""
    return Node(root, kinds=all_kinds(), segment_size=SEGMENT_BYTES)


def fill(node):
    """Everything that lasts, and messages in every state that lasts."""
    _define(node)
    _make_users(node.broker.users)
    vhost = node.vhost
    for number in range(12):
        node.publish("", "ready", b"ready %d" % number, _properties(number), persistent=True)
    for number in range(40):
        node.publish("", "large", b"%d" % number + b"x" * 9000, _properties(number), persistent=True)
    _settle(node, "large", 30, lambda number: "ack")
    for number in range(10):
        node.publish("", "past", b"past %d" % number, _properties(number), persistent=True)
    _settle(node, "past", 8, lambda number: ("ack", "requeue", "requeue", "keep")[number % 4])
    _settle(node, "past", 1, lambda number: "requeue")
    for number in range(12):
        node.publish(
            "", "priority", b"priority %d" % number, _properties(number), persistent=True, priority=number % 4
        )
    _settle(node, "priority", 3, lambda number: ("ack", "requeue", "keep")[number])
    for number in range(4):
        node.publish("", "bounded", b"letter %d" % number, _properties(number), persistent=True)
    for number in range(3):
        node.publish("", "ready", b"transient %d" % number, b"\x10\x00\x01")
    node.publish("topic", "a.b", b"routed", _properties(1), persistent=True)
    delayed = Properties(delivery_mode=2, headers={"x-deliver-at": FAR_MS})
    message = Message()
    for number in range(2):
        message.assign(b"later", b"k", delayed.encode(), b"delayed %d" % number, FAR_MS, persistent=True)
        for destination in vhost.route(vhost.exchange("later"), "k", delayed.headers):
            destination.publish(message)
    for number in range(30):
        node.publish("", "stream", b"%d" % number + b"s" * 5000, _properties(number), persistent=True)
    vhost.queue("stream").store.put_offset("reader", 12, FAR_MS)
    node.wait(lambda: vhost.queue("dead").ready_count == 3 and vhost.queue("bounded").ready_count == 1)
    node.committer.wait()
    for queue in vhost.queues.values():
        queue.write_out()  # the acks of what was moved, too: a kill loses nothing of a finished batch


def _properties(number):
    return Properties(
        delivery_mode=2, message_id=str(number), headers={"n": number, "deep": [{"a": None}]}
    ).encode()


def _define(node):
    vhost, parameters = node.vhost, node.broker.parameters
    for name, arguments in (
        ("ready", {}), ("large", {}), ("past", {"x-delivery-limit": 20}), ("priority", {"x-max-priority": 3}),
        ("empty", {"x-message-ttl": 1000}),
        ("bounded", {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}),
        ("dead", {"x-queue-mode": "lazy"}),
        ("stream", {"x-queue-type": "stream"}),
        ("n\u00e4me \u2603", {"any": [1, 2.5, True, None, {"k": "v"}]}),
    ):
        vhost.declare_queue(name, durable=True, arguments=arguments)
    for type_ in ("direct", "topic", "fanout", "headers", "x-consistent-hash", "x-random"):
        vhost.declare_exchange(
            type_ if type_ != "x-random" else "random", type_, True,
            arguments={"alternate-exchange": "amq.fanout"},
        )
    vhost.declare_exchange("later", "x-delayed-message", True, arguments={"x-delayed-type": "direct"})
    vhost.declare_exchange("inner", "direct", True, internal=True)
    vhost.bindings.bind_queue("ready", "topic", "#.b", {})
    vhost.bindings.bind_queue("ready", "headers", "", {"x-match": "any", "a": 1})
    vhost.bindings.bind_queue("ready", "x-consistent-hash", "10", {})
    vhost.bindings.bind_queue("ready", "later", "k", {})
    vhost.bindings.bind_exchange("inner", "topic", "in", {})
    vhost.declare_queue("deleted", durable=True)
    vhost.delete_queue("deleted")
    node.broker.create_vhost("other", "another one", ("tag",)).declare_queue("there", durable=True)
    parameters.set(vhost, "policy", "p", {
        "pattern": "^empty", "definition": {"max-length": 7}, "priority": 3, "apply-to": "queues"
    })
    parameters.set(vhost, "vhost-limits", "limits", {"max-queues": 100})
    parameters.set_global("cluster", {"name": ["x", 1]})


def _make_users(users):
    users.set_user("plain", password=PASSWORD, tags=("management",), grants=("/",))
    users.set_user("long", password=PASSWORD, hashing_algorithm=passwords.SHA512)
    users.set_user("old", password=PASSWORD, hashing_algorithm=passwords.MD5)
    users.set_user("slow", password=PASSWORD, hashing_algorithm=passwords.BCRYPT)
    users.set_user("none", password_hash="")
    users.set_permission("old", "/", "^a", "", ".*")
    users.set_user("gone", password=PASSWORD)
    users.delete_user("gone")


def _settle(node, name, count, how):
    """Take some, and acknowledge, give back or keep each."""
    queue, message = node.vhost.queue(name), Message()
    taken = []
    for number in range(count):
        assert queue.get(message, False)
        taken.append((how(number), message.describe()["location"]))
    for what, location in taken:
        if what == "ack":
            queue.ack(location)
        elif what == "requeue":
            queue.requeue(location)


def account(node):
    """Everything a folder holds, as JSON: messages in their order, definitions,
    users and the passwords they take.
    """
    found = {
        "formats": FORMATS, "queues": {}, "delayed": [], "definitions": definitions.exported(node.broker),
        "passwords": {},
    }
    for vhost in node.broker.vhosts.values():
        for name, queue in vhost.queues.items():
            look = _stream if isinstance(queue, StreamQueue) else _messages
            found["queues"][f"{vhost.name} {name}"] = look(queue)
    found["delayed"] = node.vhost.exchange("later").delayed_store.count
    for user in node.broker.users:
        found["passwords"][user.name] = has_password(node.broker.users, user.name, PASSWORD)
    for key, value in found["definitions"].items():
        if isinstance(value, list):
            value.sort(key=lambda entry: json.dumps(entry, sort_keys=True))
    del found["definitions"]["product_version"]
    return json.loads(json.dumps(found))


def _stream(queue):
    """The messages of a stream, with their offsets where others have how often they failed,
    and where its consumers go on.
    """
    message, cursor, found = Message(), StreamCursor(queue.store), []
    while cursor.peek(message):
        fields = message.describe()
        found.append([
            "", "stream", message.get_body()[:20].decode(), len(message.get_body()),
            message.get_properties().hex(), True, cursor.offset, fields["timestamp_ms"], 0,
        ])
        cursor.step()
    cursor.close()
    return found + [
        ["", "offset", tag, offset, "", True, 0, at_ms, 0]
        for tag, offset, at_ms in queue.store.offsets.items()
    ]


def _messages(queue):
    message, found = Message(), []
    while get(queue, message):
        fields = message.describe()
        found.append([
            message.get_exchange().decode(), message.get_routing_key().decode(),
            message.get_body()[:20].decode(), len(message.get_body()),
            message.get_properties().hex(), fields["redelivered"], fields["delivery_count"],
            fields["timestamp_ms"], fields["priority"],
        ])
    return found


def main():
    version = data_dir.SCHEMA_VERSION
    archive = HERE / f"v{version}.tar.gz"
    if archive.exists():
        sys.exit(f"{archive.name} is there; it is what every later version must open, and is not made again")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        node = open_node(root / "filled")
        fill(node)
        # mappings and files are the same pages: this is what a kill leaves
        shutil.copytree(root / "filled", root / "killed")
        node.stop()
        os.rename(root / "filled", root / "stopped")
        for kind in ("killed", "stopped"):
            shutil.copytree(root / kind, root / "look")
            node = open_node(root / "look")
            (HERE / f"v{version}.{kind}.json").write_text(
                json.dumps(account(node), indent=1, sort_keys=True) + "\n"
            )
            node.stop()
            shutil.rmtree(root / "look")
        _pack(root, archive)


def _pack(root, archive):
    octets = io.BytesIO()
    with tarfile.open(fileobj=octets, mode="w") as tar:
        for kind in ("killed", "stopped"):
            tar.add(root / kind, arcname=kind, filter=_anonymous)
    archive.write_bytes(gzip.compress(octets.getvalue(), 9, mtime=0))


def _anonymous(member):
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return None if member.name.endswith("/.lock") else member


if __name__ == "__main__":
    main()
