"""Replaces lost files of a data folder, and gives the messages of folders in set-aside/ to a queue.

The broker moves folders of queues that are not in its definitions to set-aside/. Writes only into the folder
of a stopped broker, and never over readable data.
"""
import contextlib
import os
import re
import shutil
from collections import Counter

from gomq_py.auth import passwords
from gomq_py.auth.labels import check_user_name
from gomq_py.auth.users import user_record
from gomq_py.broker.features.feature import STREAM
from gomq_py.broker.features.feature import QUORUM
from gomq_py.broker.features.queue_type import MAX_PRIORITY, QUEUE_TYPE
from gomq_py.content.fields import encode_table
from gomq_py.ctl.fsck import count_left
from gomq_py.ctl.offline import Definitions, FolderError, held_folder, names_in_log
from gomq_py.errors import Refused
from gomq_py.storage.disk import atomic_file
from gomq_py.storage.disk.data_dir import (
    DEFINITIONS, QUEUES, SET_ASIDE, USERS, DataDir, forget_log_left, make_place, move_aside, queue_id,
)
from gomq_py.storage.disk.files import Files
from gomq_py.storage.format import head as head_format
from gomq_py.storage.format.log import LogError, LogScan, encode_log
from gomq_py.storage.format.record import RecordScanner
from gomq_py.storage.logs.framed_log import FramedLog
from gomq_py.storage.stores import stream_offsets

DEFAULT_VHOST = "/"
RECOVERED = "recovered"
# Messages of a segment whose routing keys are looked at for the queue's name.
NAMED_MOST = 100
_SEGMENT = re.compile(r"(msgs|acks)\.\d{10}")
_LEVEL = re.compile(r"level\.(\d{3})")
_MAGIC = {"msgs": head_format.MSGS_MAGIC, "acks": head_format.ACKS_MAGIC}


def recover_users(root, name, password):
    """Write a new file ``users`` with one administrator, who has all rights in every vhost. Raises
    FolderError if the old file has readable records, the folder is no data folder, or the name is invalid.
    """
    try:
        check_user_name(name)
    except (Refused, ValueError) as error:
        raise FolderError(str(error)) from error
    with held_folder(root):
        path = _lost_log(root, USERS, "make the user while the broker runs: gomq-py-ctl add_user")
        files = Files()
        atomic_file.replace(files, path, encode_log(())[0])
        try:
            vhosts = [vhost["name"] for vhost in Definitions(root).exported()["vhosts"]]
        except FolderError:
            vhosts = []
        record = user_record(
            name, passwords.hash_password(password), passwords.SHA256, ("administrator",),
            vhosts or [DEFAULT_VHOST])
        atomic_file.replace(files, path, encode_log([encode_table(record)])[0])


def recover_definitions(root):
    """Write a new file ``definitions`` with only the vhost ``/``. The next boot moves the folders of all
    queues to set-aside/. Raises FolderError if the old file has readable records, or the folder is no data
    folder.
    """
    with held_folder(root):
        path = _lost_log(root, DEFINITIONS, "it is left as it is")
        record = {"op": "vhost", "name": DEFAULT_VHOST, "description": "", "tags": []}
        atomic_file.replace(Files(), path, encode_log([encode_table(record)])[0])


def recover_queue(root, folder, vhost, queue):
    """Move a folder from set-aside/ to queues/, and add its queue to the definitions; return the queue's
    arguments, a dict. Raises FolderError.
    """
    with held_folder(root):
        source = os.path.join(root, SET_ASIDE, folder)
        if os.path.basename(folder) != folder or not os.path.isdir(source):
            raise FolderError(f"{source} is no folder: give the name of one in {SET_ASIDE}/")
        definitions = Definitions(root).exported()
        if vhost not in [found["name"] for found in definitions["vhosts"]]:
            raise FolderError(f"there is no vhost {vhost!r} in the definitions of {root}")
        if (vhost, queue) in [(found["vhost"], found["name"]) for found in definitions["queues"]]:
            raise FolderError(
                f"there is a queue {queue!r} in vhost {vhost!r}: take another name, and move the messages "
                "then")
        arguments, incarnation = _what_was(source)
        files = Files()
        queues = os.path.join(root, QUEUES)
        make_place(files, queues)
        files.rename(source, os.path.join(queues, f"{queue_id(vhost, queue)}.{incarnation[:8].hex()}"))
        files.sync_folder(queues)
        _append(files, os.path.join(root, DEFINITIONS), {
            "op": "queue", "vhost": vhost, "name": queue, "auto_delete": False, "arguments": arguments,
            "incarnation": incarnation, "paused": False})
        return arguments


def lend(folder, root, user, password):
    """Make a new data folder ``root`` with a copy of a queue's folder of set-aside/. Return the queue's
    arguments, a dict.

    A broker started on ``root`` has this user, and the messages in the queue RECOVERED. Raises FolderError,
    OSError.
    """
    folder = os.path.abspath(folder)
    if not os.path.isdir(folder):
        raise FolderError(f"{folder} is no folder: give one in {SET_ASIDE}/")
    _what_was(folder)
    with DataDir(root):
        pass
    recover_definitions(root)
    recover_users(root, user, password)
    kept = os.path.join(root, SET_ASIDE)
    os.mkdir(kept)
    shutil.copytree(folder, os.path.join(kept, os.path.basename(folder)))
    return recover_queue(root, os.path.basename(folder), DEFAULT_VHOST, RECOVERED)


def count_in(folder):
    """Return the number of unacknowledged messages in a folder of set-aside/, including expired ones."""
    return _content_of(folder)[0]


def is_stream(arguments):
    return arguments.get(QUEUE_TYPE) == STREAM


def list_set_aside(root):
    """Return a list with a dict {folder, vhost, queue, messages} for each folder in set-aside/.

    The broker may be running. A folder's name has only a digest of the names of vhost and queue. So
    digests are made of all names in the definitions, present and set aside, and of the routing keys with
    which the default exchange got the folder's messages. If none equals the folder's, ``vhost`` and
    ``queue`` are None. ``messages`` is a number.
    """
    kept = os.path.join(root, SET_ASIDE)
    found = sorted(os.listdir(kept)) if os.path.isdir(kept) else []
    folders = [name for name in found if os.path.isdir(os.path.join(kept, name))]
    logs = [os.path.join(root, DEFINITIONS), *(
        os.path.join(place, name) for place in (root, kept) if os.path.isdir(place)
        for name in sorted(os.listdir(place)) if name.startswith(f"{DEFINITIONS}."))]
    known, vhosts = set(), {DEFAULT_VHOST}
    for path in logs:
        with contextlib.suppress(OSError, LogError):
            names, places = names_in_log(path)
            known |= names
            vhosts |= places
    ids = {queue_id(*key): key for key in known}
    return [_set_aside(os.path.join(kept, name), ids, vhosts) for name in folders]


def _set_aside(folder, ids, vhosts):
    name = os.path.basename(folder)
    wanted = name.partition(".")[0]
    count, keys = _content_of(folder)
    own = ids.get(wanted) or next(
        ((vhost, key) for key, _ in keys.most_common() for vhost in vhosts if queue_id(vhost, key) == wanted),
        (None, None))
    return {"folder": name, "vhost": own[0], "queue": own[1], "messages": count}


def _content_of(folder):
    """Return (number of unacknowledged messages, Counter of routing keys used with the default exchange)."""
    count, keys = 0, Counter()
    for inner, _, names in os.walk(folder):
        for path in (os.path.join(inner, name) for name in names if name.startswith("msgs.")):
            with open(path, "rb") as file:
                content = file.read()
            head = head_format.decode(content, head_format.MSGS_MAGIC)
            if head is None:
                continue
            count += count_left(content, head, path)
            scanner = RecordScanner(
                content, head_format.HEAD_BYTES, len(content), head.seed, head.begun_ms)
            for _ in range(NAMED_MOST):
                if not scanner.next():
                    break
                at = scanner.routing_at
                if not content[at]:  # the default exchange has the empty name
                    keys[content[at + 2:at + 2 + content[at + 1]].decode("utf-8", "surrogateescape")] += 1
    return count, keys


def _lost_log(root, name, otherwise):
    """Move the unreadable log ``name``, unless it is missing or empty, to set-aside/. Return its former path.
    Raises FolderError, with the advice ``otherwise``, if the log can be read.
    """
    path = os.path.join(root, name)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        content = b""
    try:
        if any(True for _ in LogScan(path, content)):
            raise FolderError(f"{path} can be read: {otherwise}")
    except LogError as error:
        raise FolderError(str(error)) from error
    if content:
        move_aside(Files(), root, path, name)
    forget_log_left(root, name)
    return path


def _what_was(folder):
    """Return (queue arguments that fit a folder's files, the queue's incarnation). Raises FolderError."""
    names = os.listdir(folder)
    levels = [int(match[1]) for match in map(_LEVEL.fullmatch, names) if match]
    inner = [folder, *(os.path.join(folder, f"level.{level:03d}") for level in levels)]
    segments = [os.path.join(each, name) for each in inner for name in sorted(os.listdir(each))
                if _SEGMENT.fullmatch(name)]
    incarnation = next(filter(None, map(_incarnation_in, segments)), None)
    if incarnation is None:
        raise FolderError(f"{folder} has no segment with a head that checks: no broker could read it")
    if levels and any(map(_SEGMENT.fullmatch, names)):
        return {QUEUE_TYPE: QUORUM}, incarnation  # its level 0 lies beside the others
    if levels:
        return {MAX_PRIORITY: max(1, *levels)}, incarnation
    is_stream = stream_offsets.NAME in names or not any(name.startswith("acks.") for name in names)
    return {QUEUE_TYPE: STREAM} if is_stream else {}, incarnation


def _incarnation_in(path):
    with open(path, "rb") as file:
        head = head_format.decode(file.read(head_format.HEAD_BYTES), _MAGIC[os.path.basename(path)[:4]])
    return None if head is None else head.incarnation


def _append(files, path, record):
    log = FramedLog(files, path)
    try:
        for _ in log.replay():
            pass
        log.append(encode_table(record))
        files.sync(log.file)
    except LogError as error:
        raise FolderError(str(error)) from error
    finally:
        log.close()
