"""Fuzz targets of the data folder: segments, acks, framed logs, the definitions and users in them,
and the folder itself.

Everything there carries checksums, which no mutation gets past. So an input says which of them are made good
again after its edits: what a flipped bit does, and what a file written by somebody else or by a faulty
version does, are both tried. Each folder is recovered twice, and must be the same.
"""
import os
import shutil
import struct
from functools import cache
from pathlib import Path

from gomq_py import octets
from gomq_py.auth.users import Users
from gomq_py.broker.routing.route import ExchangeState
from gomq_py.broker.topology import definitions
from gomq_py.content.fields import encode_table
from gomq_py.hub.scheduler import Scheduler
from gomq_py.storage.disk.data_dir import DataDir, DataDirError
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.format import head as head_format
from gomq_py.storage.format import record
from gomq_py.storage.format.record import RecordScanner
from gomq_py.storage.logs.framed_log import HEAD, HEAD_SIZE, FramedLog, LogError, LogScan, encode_record
from gomq_py.storage.message import Message
from gomq_py.storage.segments.pool import SegmentPool
from gomq_py.storage.stores import stream_offsets
from gomq_py.storage.stores.recovery import open_store
from tests.fuzz.config_targets import folder
from tests.fuzz.target import Draw, Target, errors_logged
from tests.support.exact import exact
from tests.support.node import Node
from tests.support.passwords import has_password
from tests.support.unflushed import Unflushed

INCARNATION = b"0123456789abcdef"
SEGMENT_BYTES = 65536
MOST_RECORDS = SEGMENT_BYTES // 44
BODIES = (b"a", b"b" * 30, b"", b"d" * 300, b"eeeee", b"f" * 17)
HEADS, SEALS, RECORDS, ACKS = 1, 2, 4, 8  # what an input wants made good
STOPPED, NO_ACKS = 16, 32


class _Life:
    """One process's store."""

    def __init__(self, root, generation=None):
        files = Unflushed()
        self.committer = GroupCommit(files, enabled=False)
        self.pool = SegmentPool(root / "pool", files, self.committer, segment_bytes=SEGMENT_BYTES)
        if generation is not None:
            self.pool._generation = generation
        self.store, self.report = open_store(
            root / "queue", files, self.pool, self.committer, INCARNATION, SEGMENT_BYTES
        )
        self.message = Message()

    def publish(self, body, **fields):
        self.message.assign(b"x", b"key", b"\x10\x00\x02", body, 1_700_000_000_000, 0, 0, True, **fields)
        self.store.append(self.message)

    def take_all(self):
        """(location, content) of everything that is ready."""
        found = []
        while self.store.peek(self.message):
            assert len(found) <= 2 * MOST_RECORDS
            message = self.message
            content = (
                message.get_exchange(), message.get_routing_key(), message.get_properties(),
                message.get_body(),
            )
            found.append((message.describe()["location"], content))
            self.store.shift()
        assert self.store.ready_count == 0, self.store.ready_count
        assert self.store.unacked_count == len(found)
        return found

    def stop(self):
        self.store.close()
        self.committer.stop()
        self.pool.close()


# segments and acks, as files

@cache
def _original(stopped):
    """(msgs, acks) of a segment with acked, requeued and untouched messages,
    left by a kill or by an orderly stop.
    """
    root = folder() / "original"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    life = _Life(root, generation=7)
    for body in BODIES:
        life.publish(body)
    life.store.write_out()
    taken = life.take_all()
    life.store.delete(taken[1][0])
    life.store.delete(taken[3][0])
    for number in (0, 4, 5):
        life.store.requeue(taken[number][0])
    life.store.write_out()
    if stopped:
        life.stop()
    found = tuple((root / "queue" / f"{kind}.0000000001").read_bytes() for kind in ("msgs", "acks"))
    if not stopped:
        life.committer.kill()
    shutil.rmtree(root)
    return found


def run_store(data):
    """Whatever a segment's files hold, the store opens, and a second recovery finds what the first did.

    What is acked then stays so.
    """
    draw = Draw(data)
    flags = draw.octet()
    root = folder() / "store"
    shutil.rmtree(root, ignore_errors=True)
    (root / "queue").mkdir(parents=True)
    files = [bytearray(content) for content in _original(bool(flags & STOPPED))]
    while draw:
        _edit(files, draw)
    _make_good(*files, flags)
    (root / "queue" / "msgs.0000000001").write_bytes(files[0])
    if not flags & NO_ACKS:
        (root / "queue" / "acks.0000000001").write_bytes(files[1])
    with errors_logged():
        first = _recovered(root)
        assert _recovered(root) == first, "a second recovery finds something else"
        kept = _ack_some(root)
        assert _recovered(root) == kept, "after acks and a kill"
        _check_names(root / "queue")


def _edit(files, draw):
    """Overwrite, cut or repeat a part of one of the files."""
    what, at, count = draw.octet(), draw.short(), draw.octet()
    content = files[what & 1]
    at = min(at, len(content))
    how = what >> 1 & 7
    if how == 6:
        del content[max(at, 1):]
    elif how == 7:
        content[at:at + count * 8] = content[128:128 + count * 8][:len(content) - at]
    else:
        part = draw.octets(count)
        content[at:at + len(part)] = part
        del content[4 * SEGMENT_BYTES:]


def _make_good(msgs, acks, flags):
    if flags & HEADS:
        for content in (msgs, acks):
            if len(content) >= 64:
                content[60:64] = octets.crc32c(0, content, 0, 60).to_bytes(4, "little")
    if min(len(msgs), len(acks)) < head_format.HEAD_BYTES:
        return
    seed, acks_seed = (int.from_bytes(content[60:64], "little") for content in (msgs, acks))
    if flags & SEALS:
        for content, start, size, seeded in (
            (msgs, 64, 48, seed + 1), (msgs, 112, 8, seed + 2), (acks, 64, 8, acks_seed + 3),
            (acks, 72, 24, acks_seed + 4),
        ):
            if any(content[start:start + size]):
                content[start + size - 4:start + size] = (
                    octets.crc32c(seeded & 0xFFFFFFFF, content, start, size - 4).to_bytes(4, "little")
                )
    if flags & RECORDS:
        _make_records_good(msgs, 128, seed)
    if flags & ACKS:
        _make_entries_good(acks, acks_seed)


def _make_records_good(content, at, seed):
    while at + 44 <= len(content):
        if content[at] >= 0x80:
            key = at + (14 if content[at] & 0x10 else 10) + 1
            key += content[key - 1]
            if key >= len(content):
                return
            end = key + 1 + content[key] + content[at + 2] + content[at + 3]
            if end + 4 > len(content):
                return
            struct.pack_into("<I", content, end, octets.crc32c(seed + 5 & 0xFFFFFFFF, content, at, end - at))
            at += max(44, end - at + 7 & ~3)
            continue
        if at + 48 > len(content):
            return
        routing, properties, body = struct.unpack_from("<HII", content, at + 6)
        size = (44 + routing + properties + body + 7) & ~7
        if content[at:at + 2] != b"RM" or at + size > len(content):
            return
        header = octets.crc32c(octets.crc32c(seed, content, at, 36), content, at + 40, routing)
        struct.pack_into("<I", content, at + 36, header)
        start = at + 40 + routing
        struct.pack_into(
            "<I", content, start + properties + body, octets.crc32c(seed, content, start, properties + body)
        )
        at += size


def _make_entries_good(content, seed):
    for index in range(min(200, (len(content) - 128) // 8)):
        at = 128 + 8 * index
        if any(content[at:at + 4]):
            content[at + 4:at + 8] = (
                octets.crc32c((seed + index) & 0xFFFFFFFF, content, at, 4).to_bytes(4, "little")
            )


def _recovered(root):
    life = _Life(root)
    taken = life.take_all()
    for location, _ in taken:
        life.store.requeue(location)
    life.stop()
    return [content for _, content in taken]


def _ack_some(root):
    """Ack every other message and one run, publish one, and be killed;
    returns what must be there afterwards.
    """
    life = _Life(root)
    taken = life.take_all()
    kept = []
    for number, (location, content) in enumerate(taken):
        if number % 2 and number < 8:
            life.store.requeue(location)
            kept.append(content)
        else:
            life.store.delete(location)
    life.publish(b"new")
    kept.append((b"x", b"key", b"\x10\x00\x02", b"new"))
    life.store.write_out()
    life.committer.kill()
    return kept


def _check_names(path):
    names = os.listdir(path)
    assert len(names) < 110, "the folder grows"
    assert all(name.startswith(("msgs.", "acks.", "damaged.")) for name in names), names


def sample_store():
    for flags in (0, STOPPED, NO_ACKS, STOPPED | NO_ACKS, HEADS, 15, 15 | STOPPED):
        yield bytes((flags,))
        for at in (0, 8, 12, 16, 48, 60, 64, 112, 128, 134, 136, 140, 144, 168, 200, 300):
            yield bytes((flags, 0, at >> 8, at & 255, 1, 0x41))
            yield bytes((flags, 1, at >> 8, at & 255, 1, 0x02))
        yield bytes((flags, 12, 0, 200, 0))
        yield bytes((flags, 13, 0, 140, 0))
        yield bytes((flags, 14, 1, 200, 20))
        yield bytes((flags, 1, 0, 128, 8)) + (130).to_bytes(4, "little") + bytes(4)
        yield bytes(
            (flags, 1, 0, 152, 16)
        ) + (130).to_bytes(4, "little") + bytes(4) + (395).to_bytes(4, "little") + bytes(4)
        yield bytes(
            (flags, 1, 0, 152, 16)
        ) + (132).to_bytes(4, "little") + bytes(4) + (21).to_bytes(4, "little") + bytes(4)


# the same without files: what is compiled, over buffers of the exact size

def run_scanner(data):
    """Records and acks are found inside the buffer, in order, each once."""
    draw = Draw(data)
    flags, seed = draw.octet(), draw.short()
    content = bytearray(draw.rest())
    if flags & RECORDS:
        _make_records_good(content, 0, seed)
    if flags & ACKS:
        _make_entries_good(content, seed)
    with exact(content) as view:
        runs = _check_acks(view, seed)
        scanner = RecordScanner(view, 0, len(content), seed, 1 << 40, flags >> 4)
        behind, ordinal, count = 0, -1, 0
        while scanner.next():
            assert behind <= scanner.position and scanner.position + scanner.size <= len(content)
            assert scanner.ordinal > ordinal
            behind, ordinal, count = scanner.position + scanner.size, scanner.ordinal, count + 1
        _check_damage(scanner, len(content))
        tally = RecordScanner(view, 0, len(content), seed, 1 << 40, flags >> 4)
        tally.tally(runs)
        assert (
            tally.at == scanner.at and tally.count >= count and tally.acked <= tally.count
            and tally.acked_bytes <= tally.body_bytes
        )
        del scanner, tally


def _check_acks(view, seed):
    acks = record.load_acks(view, seed)
    runs = acks.runs
    assert list(runs) == sorted(runs) and len(runs) % 2 == 0
    assert all(runs[at] < runs[at + 1] for at in range(0, len(runs), 2))
    assert 0 <= acks.holes <= acks.entries <= max(0, (len(view) - 128) // 8)
    assert all(index < acks.entries for _, index in acks.counts.values())
    return runs


def _check_damage(scanner, end):
    behind = 0
    for start, stop, lost in scanner.damaged:
        assert behind <= start < stop <= end and lost >= 0
        behind = stop
    assert scanner.at <= end


def sample_scanner():
    msgs, acks = _original(False)
    seed = int.from_bytes(msgs[60:64], "little")
    records = bytearray(msgs[128:len(msgs.rstrip(b"\0")) + 8])
    _make_records_good(records, 0, 7)
    entries = bytearray(acks[:len(acks.rstrip(b"\0")) + 16])
    _make_entries_good(entries, 7)
    del seed
    for flags in (0, RECORDS, ACKS, RECORDS | ACKS):
        yield bytes((flags, 0, 7)) + records
        yield bytes((flags, 0, 7)) + entries
        yield bytes((flags, 0, 7)) + bytes(64) + records[:-1]
    yield bytes((RECORDS, 0, 7)) + records[:56] + b"\0" * 8 + records[56:]


# framed logs

def run_log(data):
    """A log gives the same payloads twice, and takes more behind them."""
    draw = Draw(data)
    good = draw.octet()
    content = bytearray(draw.rest())
    if good & 1:
        _make_log_good(content, bool(good & 2))
    path = folder() / "log"
    for name in (path, Path(f"{path}.damaged")):
        name.unlink(missing_ok=True)
    path.write_bytes(content)
    first = _replayed(path)
    assert _replayed(path) == first
    if first is not None:
        assert _replayed(path, b"more") == first
        assert _replayed(path) == [*first, b"more"]


def _replayed(path, more=None):
    log = FramedLog(Unflushed(), path)
    try:
        payloads = list(log.replay())
    except LogError as error:
        assert str(path) in str(error)
        return None
    finally:
        if more is None:
            log.close()
    if more is not None:
        log.append(more)
        log.close()
    assert all(damage.start < damage.end for damage in log.damage)
    return payloads


def _make_log_good(content, payloads_too):
    at = content.find(b"RL")
    while 0 <= at <= len(content) - HEAD_SIZE:
        length = int.from_bytes(content[at + 4:at + 8], "little")
        end = at + HEAD_SIZE + length
        content[at + 15] &= 0x1F  # numbers near the largest that a log takes leave none for the next record
        if payloads_too and end <= len(content):
            log_id = int.from_bytes(content[at + 24:at + 28], "little")
            content[at + 28:at + 32] = (
                octets.crc32c(log_id, content, at + HEAD_SIZE, length).to_bytes(4, "little")
            )
        content[at + 32:at + 36] = octets.crc32c(0, content, at, HEAD.size).to_bytes(4, "little")
        at = content.find(b"RL", end if end <= len(content) else at + 1)


def encode_payloads(payloads, log_id=7):
    """A log of these payloads whose octets are the same every time."""
    records = [encode_record(log_id, ordinal, 0, payload) for ordinal, payload in enumerate((b"", *payloads))]
    return b"".join(records)


def sample_log():
    content = encode_payloads((b"one", b"", b"RL" * 10, b"x" * 100))
    for good in (0, 1, 3):
        yield bytes((good,)) + content
        yield bytes((good,)) + content[:-3]
        yield bytes((good,)) + content[:40] + content[41:]
        yield bytes((good,)) + content[36:]
        yield bytes((good,)) + content.replace(b"RL\x01", b"RL\x02", 1)
    yield b"\x00"


# where the consumers of a stream go on

def run_offsets(data):
    """Whatever the file holds, a second reading finds what the first did,
    and positions can be noted and forgotten again.
    """
    draw = Draw(data)
    flags = draw.octet()
    root = folder() / "stream"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    content = bytearray(_original_offsets())
    while draw:
        _edit([content, content], draw)
    if flags & RECORDS:
        _make_slots_good(content)
    (root / stream_offsets.NAME).write_bytes(content)
    first = _offsets(root)
    assert _offsets(root) == first
    noted = _offsets(
        root, lambda offsets: [offsets.put(f"new {number}", number, number) for number in range(60)]
    )
    assert all(tag in noted for tag in first) and noted["new 59"] == 59
    assert _offsets(root) == noted
    _offsets(root, lambda offsets: [offsets.forget(tag) for tag in noted])
    assert _offsets(root) == {}


def _offsets(root, use=None):
    offsets = stream_offsets.StreamOffsets(root, Unflushed(), INCARNATION)
    offsets.load(1000)
    if use is not None:
        use(offsets)
    found = {tag: offset for tag, offset, _ in offsets.items()}
    assert all(0 <= offset <= 1000 for offset in found.values())
    offsets.close()
    return found


@cache
def _original_offsets():
    root = folder() / "offsets"
    root.mkdir()
    _offsets(
        root,
        lambda offsets: [
            offsets.put(tag, number, 5) for number, tag in enumerate(("a", "b", "b", "c" * 255))
        ],
    )
    return (root / stream_offsets.NAME).read_bytes()


def _make_slots_good(content):
    seed = int.from_bytes(content[28:32], "little")
    for slot in range(min(30, len(content) // 320 - 1)):
        at = 320 * (slot + 1)
        content[at + 256:at + 260] = (
            octets.crc32c((seed + slot) & 0xFFFFFFFF, content, at, 256).to_bytes(4, "little")
        )
        for half in (at + 264, at + 288):
            content[half + 20:half + 24] = (
                octets.crc32c((seed + slot) & 0xFFFFFFFF, content, half, 20).to_bytes(4, "little")
            )


def sample_offsets():
    for flags in (0, RECORDS):
        yield bytes((flags,))
        for at in (0, 12, 28, 31, 32, 100, 319, 320, 321, 576, 584, 608, 640, 960):
            yield bytes((flags, 0, at >> 8, at & 255, 1, 0xFF))
            yield bytes((flags, 12, at >> 8, at & 255, 0))


# what the logs say

def run_topology(data):
    """Whatever the definitions log says, the broker boots, and boots the same again."""
    _check_boots("topology", data, "definitions")


def run_users(data):
    """Whatever the users log says, it is read, and read the same again."""
    root = folder() / "users.folder"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    (root / "users").write_bytes(encode_payloads(_payloads(data)))
    with errors_logged():
        first = _read_users(root)
        assert _read_users(root) == first


def _read_users(root):
    files = Unflushed()
    committer = GroupCommit(files, enabled=False)
    users = Users(files, root / "users", committer, Scheduler(), ExchangeState).open()
    found = [
        (
            user.name, user.password_hash, user.hashing_algorithm, user.tags,
            sorted(map(repr, user.permissions)),
        )
        for user in users
    ]
    for user in users:
        has_password(users, user.name, "password")
        users.is_costly(user.name, b"password")
    users.set_user("last", password_hash="", tags=("x",))
    users.delete_user("last")
    users.close()
    committer.kill()
    return found


def _payloads(data):
    draw = Draw(data)
    while draw:
        yield draw.octets(draw.short())


def as_input(payloads):
    """The input that stands for these payloads."""
    return b"".join(len(payload).to_bytes(2, "big") + payload for payload in payloads)


def _check_boots(name, data, log):
    root = folder() / name
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    (root / "schema_version").write_bytes(b"1\n")
    # without it the folder is refused, as one that has lost its users
    (root / "users").write_bytes(encode_payloads(_recorded("users")))
    (root / log).write_bytes(encode_payloads(_payloads(data)))
    with errors_logged():
        # may make the first vhost anew, and what was said about it before counts from the next boot on
        _boot(root)
        second = _boot(root)
        assert _boot(root) == second
    shutil.rmtree(root)


def _boot(root):
    node = Node(root, Unflushed(), default_user="")
    exported = definitions.exported(node.broker)
    counts = {
        (vhost.name, queue.name): queue.store.ready_count
        for vhost in node.broker.vhosts.values() for queue in vhost.queues.values()
    }
    node.stop()
    return exported, counts


def sample_topology():
    yield b""
    for payloads in (_recorded("definitions"), *([payload] for payload in _recorded("definitions"))):
        yield as_input(payloads)
    vhost = encode_table({"op": "vhost", "name": "/", "description": "", "tags": []})
    for payload in _recorded("definitions"):
        yield as_input([vhost, payload])
    yield as_input([vhost, encode_table({"op": "unknown"}), encode_table({}), b"garbage"])


def sample_users():
    payloads = _recorded("users")
    yield as_input(payloads)
    for payload in payloads:
        yield as_input([payload])
    yield as_input([encode_table({"op": "unknown"}), encode_table({"op": "user"}), b"x"])


@cache
def _recorded(log):
    """The payloads of a log that has seen every kind of change."""
    root = folder() / "recorded"
    shutil.rmtree(root, ignore_errors=True)
    node = Node(root, Unflushed(), default_user="")
    broker, vhost = node.broker, node.vhost
    vhost.declare_queue("q", durable=True, arguments={"x-max-length": 5, "a": [1, {"b": None}]})
    vhost.declare_queue("p", durable=True, arguments={"x-max-priority": 3})
    vhost.declare_queue("gone", durable=True)
    vhost.declare_exchange("x", "topic", True)
    vhost.declare_exchange("d", "x-delayed-message", True, arguments={"x-delayed-type": "direct"})
    vhost.declare_exchange("gone", "fanout", True)
    vhost.bindings.bind_queue("q", "x", "#", {"a": 1})
    vhost.bindings.bind_exchange("d", "x", "k")
    vhost.bindings.bind_queue("gone", "x", "k")
    vhost.bindings.unbind_queue("q", "x", "#", {"a": 1})
    vhost.bindings.bind_queue("q", "x", "#", {"a": 1})
    vhost.delete_queue("gone")
    vhost.delete_exchange("gone")
    broker.create_vhost("v", "text", ("tag",))
    broker.create_vhost("gone")
    broker.delete_vhost("gone")
    broker.parameters.set(vhost, "policy", "p", {
        "pattern": "^q", "definition": {"max-length": 5}, "priority": 0, "apply-to": "queues"
    })
    broker.parameters.set(vhost, "vhost-limits", "limits", {"max-queues": 100})
    broker.parameters.clear(vhost, "vhost-limits", "limits")
    broker.parameters.set_global("name", {"a": [1]})
    broker.parameters.set_global("gone", 1)
    broker.parameters.clear_global("gone")
    users = broker.users
    users.set_user("u", password="password", tags=("administrator",), grants=("/",))
    users.set_user("w", password_hash="")
    users.set_tags("w", ("management",))
    users.set_permission("w", "/", "^a", ".*", "")
    users.delete_permission("w", "/")
    users.set_permission("w", "v", "", "", "")
    users.delete_user("w")
    node.stop()
    return list(LogScan(log, (root / log).read_bytes()))


# the folder

PLACES = ("", "queues", "pool", "transient", "set-aside", "queues/x", "queues/" + "0" * 40)
FILES = (
    "schema_version", ".lock", "definitions", "users", "definitions.next", "users.new.1", "lost+found",
    "msgs.0000000001", "acks.0000000001", "msgs.x", "other", "definitions.damaged", "policies", "parameters",
)


def run_folder(data):
    """Whatever lies in a data folder, a broker boots on it twice with the same result,
    or says in one line why not.
    """
    draw = Draw(data)
    root = folder() / "data"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    if draw.octet() & 1:
        (root / "schema_version").write_bytes(b"1\n")
    for _ in range(8):
        place, name, content = draw.choice(PLACES), draw.choice(FILES), draw.octets(draw.octet())
        if not draw:
            break
        (root / place).mkdir(parents=True, exist_ok=True)
        (root / place / name).write_bytes(content)
    with errors_logged():
        first = _try_to_boot(root)
        assert _try_to_boot(root) == first
    shutil.rmtree(root)


def _try_to_boot(root):
    try:
        return _boot(root)
    except (DataDirError, LogError) as error:
        assert len(str(error).splitlines()) == 1, str(error)
        DataDir(root).close()
        return None


def sample_folder():
    for place in range(len(PLACES)):
        for name in range(len(FILES)):
            yield bytes((1, place, name, 3)) + b"abc" + b"\x00"
    yield b"\x00\x00\x00\x021\n\x00"
    yield b"\x00\x00\x00\x022\n\x00"
    yield b"\x01\x00\x01\xff" + b"x" * 255 + b"\x00"


TARGETS = {
    "store": Target(run_store, sample_store, 200),
    "scanner": Target(run_scanner, sample_scanner, 1024, (b"RM\x01\x01", b"\x00" * 8)),
    "offsets": Target(run_offsets, sample_offsets, 200),
    "log": Target(run_log, sample_log, 1024, (b"RL\x01\x00",)),
    "topology": Target(run_topology, sample_topology, 1024, tuple(
        encode_table({"op": op})[4:]
        for op in ("queue", "exchange", "bind", "unbind", "vhost", "parameter", "queue-delete"))),
    "users": Target(run_users, sample_users, 600),
    "folder": Target(run_folder, sample_folder, 400, (b"1\n",)),
}
