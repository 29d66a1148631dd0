"""Copies the data folder of a running broker to a backup, and makes a data folder from a backup.

The copying process is a follower of the broker (cluster.follower) that syncs once and disconnects. A backup
has:

    data/           the data folder, which a sync replaces as a whole or not at all
    backup.json     the manifest, written last: {"version": 1, "schema_version", "gomq_version", "begun",
                    "finished", "bytes", "folders": [path], "files": {path: [size, BLAKE2b]}}

A restore checks each file against the manifest, and so refuses an incomplete backup. If a later backup to the
same folder is interrupted, the folder has either the former backup, or files that a restore refuses.
"""
import contextlib
import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import gevent

import gomq_py
from gomq_py.cluster import identity as identities
from gomq_py.cluster.follower import STREAMING, Follower
from gomq_py.cluster.follower_link import MUST_SYNC
from gomq_py.cluster.identity import IdentityFile
from gomq_py.cluster.wire.messages import NO_ID
from gomq_py.ctl.offline import FolderError, held_folder
from gomq_py.errors import ClusterError
from gomq_py.storage.disk import atomic_file, swap
from gomq_py.storage.disk.data_dir import (
    NOT_CONTENT, SCHEMA, SCHEMA_VERSION, SCHEMA_VERSIONS, DataDir, content_of)
from gomq_py.storage.disk.plain_files import PlainFiles
from gomq_py.storage.disk.register import listing
from gomq_py.storage.errors import DataDirError

MANIFEST, DATA = "backup.json", "data"
VERSION = 1
DIGEST_OCTETS = 16
BLOCK_OCTETS = 1 << 20
_ZEROS = bytes(BLOCK_OCTETS)
# Between two looks how far the copy is, and the attempts of a copy that a busy broker leaves behind.
LOOK_S, ATTEMPTS = 0.1, 3


def prepare(folder):
    """Make a backup's folder, or check that it holds only a backup. Raises FolderError, OSError."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise FolderError(f"{folder} is not a folder")
    for parent in Path(os.path.realpath(folder)).parents:
        if os.path.lexists(parent / SCHEMA):
            raise FolderError(f"{folder} is inside {parent}, a data folder: the backup would copy itself")
    os.makedirs(folder, 0o700, exist_ok=True)
    ours = (DATA, MANIFEST, "lost+found")
    for name in sorted(os.listdir(folder)):
        if name not in ours and not name.startswith(MANIFEST):  # a temporary file of it
            raise FolderError(f"{folder} holds {name!r}, and so is no backup: name an empty or a new folder")


def copy(folder, begin, progress):
    """Copy the data folder of a running broker into the backup ``folder``; return the manifest, a dict.

    ``begin()`` sends POST /api/backup and returns the answer. ``progress(what, done, total)`` is called from
    time to time. While bytes are copied, ``done`` and ``total`` are None: only the broker knows them. Raises
    FolderError, OSError, and errors of the two callbacks. May switch greenlets.
    """
    root, begun, files = os.path.join(folder, DATA), _now(), PlainFiles()
    with _held(root, files):
        source = begin()
        identity = identities.of_follower(files, root)
        if identity.cluster_id not in (NO_ID, bytes.fromhex(source["id"])):
            raise FolderError(f"{folder} is the backup of another broker: name an empty or a new folder")
        refused = []
        follower = Follower(
            files, root, source["secret"].encode(), source["host"], source["port"], "gomq-py-ctl backup",
            IdentityFile(files, root, identity), refused=refused.append)
        try:
            _follow(follower, progress)
        except FolderError as error:
            hint = "; a backup runs on the broker's machine" if refused else ""
            raise FolderError(f"{error}{hint}") from None
        manifest = _manifest(root, begun, progress)
        atomic_file.replace(
            files, os.path.join(folder, MANIFEST), json.dumps(manifest, indent=1).encode() + b"\n")
    return manifest


def restore(folder, root, progress):
    """Make a data folder at ``root`` from a backup; return the manifest, a dict. Raises FolderError, OSError.

    ``root`` must be missing or empty. It has no content until copies of all files match the manifest.
    ``progress`` is as in ``copy``, always with numbers.
    """
    manifest, source, files = read_manifest(folder), os.path.join(folder, DATA), PlainFiles()
    _check_empty(root)
    with held_folder(source), _held(root, files):
        _check_names(source, manifest)
        target = os.path.join(root, swap.SYNC)
        files.make_folder(target)
        for path in manifest["folders"]:
            files.make_folder(os.path.join(target, path))
        done = 0
        for path, (size, digest) in manifest["files"].items():
            if _copied(files, os.path.join(source, path), os.path.join(target, path)) != [size, digest]:
                raise FolderError(_half(folder, f"{path} is not as it was when the backup ended"))
            done += size
            progress("restoring", done, manifest["bytes"])
        opened = files.open_folder(root)
        files.sync_all(opened)
        files.close(opened)
        swap.swap(files, root, NOT_CONTENT)
    return manifest


def read_manifest(folder):
    """Return the manifest of a backup, a dict. Raises FolderError if it is missing or cannot be used."""
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, "rb") as file:
            manifest = json.load(file)
        version, schema = manifest["version"], manifest["schema_version"]
        sound = all(map(_is_inside, (*manifest["folders"], *manifest["files"])))
        sound = sound and manifest["finished"] and isinstance(manifest["bytes"], int) and all(
            isinstance(size, int) and isinstance(digest, str) for size, digest in manifest["files"].values())
    except FileNotFoundError:
        raise FolderError(_half(folder, f"it has no {MANIFEST}")) from None
    except OSError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise FolderError(_half(folder, f"{path} is damaged"))
    if version != VERSION or str(schema) not in SCHEMA_VERSIONS:
        raise FolderError(
            f"{folder} is a backup of version {version} with schema version {schema}; this gomq-py-ctl knows "
            f"{VERSION} and {' or '.join(SCHEMA_VERSIONS)}")
    return manifest


def _half(folder, reason):
    return (
        f"{folder} is no whole backup: {reason}. Run gomq-py-ctl backup {folder} again. If the broker is "
        f"lost, look at {os.path.join(folder, DATA)} with gomq-py-ctl fsck: a broker can start with a copy")


def _follow(follower, progress):
    """Follow the broker until one complete copy is flushed. Raises FolderError. May switch greenlets."""
    attempts, error = 1, ""
    follower.start()
    try:
        while (status := follower.status).state != STREAMING:
            progress("copying", None, None)
            if status.error != error:
                error = status.error
                attempts += bool(error)
                if error and (MUST_SYNC not in error or attempts > ATTEMPTS):
                    raise FolderError(f"the copy was cut off: {error}")
            gevent.sleep(LOOK_S)
    finally:
        failure = follower.stop()
    if failure is not None:
        raise FolderError(f"the copy is not all on the disk: {failure}")


@contextlib.contextmanager
def _held(root, files):
    """Context manager: locks the data folder ``root``, while a copy is written into it. Raises OSError, and
    FolderError if a broker uses it or if the block raises ClusterError or DataDirError.
    """
    data_dir = DataDir(root, files)
    try:
        data_dir.follow()
    except DataDirError as error:
        raise FolderError(str(error)) from None
    try:
        yield
    except (ClusterError, DataDirError) as error:
        raise FolderError(str(error)) from None
    finally:
        data_dir.close()


def _manifest(root, begun, progress):
    found = sorted(listing(root, NOT_CONTENT))
    sizes = {path: os.path.getsize(path) for path, is_folder in found if not is_folder}
    total, done, files = sum(sizes.values()), 0, {}
    for path, size in sizes.items():
        files[os.path.relpath(path, root)] = _copied(None, path, None)
        done += size
        progress("checking", done, total)
    return {
        "version": VERSION, "schema_version": SCHEMA_VERSION, "gomq_version": gomq_py.__version__,
        "begun": begun, "finished": _now(), "bytes": total,
        "folders": [os.path.relpath(path, root) for path, is_folder in found if is_folder], "files": files}


def _copied(files, source, target):
    """Copy the file ``source`` to ``target``, unless that is None; return [size, BLAKE2b in hex] of
    ``source``. Blocks of zeros become holes in the copy.
    """
    digest, at = hashlib.blake2b(digest_size=DIGEST_OCTETS), 0
    with open(source, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        copy_of = None if target is None else files.open_plain(target, size)
        try:
            while octets := file.read(BLOCK_OCTETS):
                digest.update(octets)
                if copy_of is not None and octets != _ZEROS[:len(octets)]:
                    files.put(copy_of, at, octets)
                at += len(octets)
        finally:
            if copy_of is not None:
                files.close(copy_of)
    return [at, digest.hexdigest()]


def _check_empty(root):
    if os.path.isdir(root):
        content = [name for name in content_of(root) if not name.startswith(swap.SYNC)]
        if content and swap.has_begun(root):
            raise FolderError(
                f"{root} has a whole copy whose last renames were cut off: the start of a broker ends them")
        if content:
            raise FolderError(
                f"{root} holds {content[0]!r}: a backup is restored into an empty or a new folder")


def _check_names(source, manifest):
    """Raise FolderError unless the folder ``source`` has exactly the files and folders in the manifest."""
    found = {os.path.relpath(path, source) for path, _ in listing(source, NOT_CONTENT)}
    for name in sorted(found.symmetric_difference((*manifest["folders"], *manifest["files"]))):
        what = "is in it, but not in" if name in found else "is missing, but in"
        raise FolderError(_half(os.path.dirname(source), f"{name} {what} {MANIFEST}"))


def _is_inside(path):
    return not os.path.isabs(path) and ".." not in path.split("/") and os.path.normpath(path) == path


def _now():
    return datetime.now(UTC).isoformat(timespec="seconds")
