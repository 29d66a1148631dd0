r"""Swap: replaces the content of a data folder by that of its folder ``.sync``, all of it or nothing.

Used by cluster.staging, which fills ``.sync``, and by data_dir, which finishes an interrupted swap at boot.
Each step is a rename within one folder, because a power failure may lose a rename between two folders. First
the new files and folders are renamed to stand beside the old. A flushed manifest then makes the swap valid.
From there on every rename can be repeated.

    .sync/             being filled
    .sync.new.NAME     NAME of the next content
    .sync.manifest     SHA-256 in hex, "\n", and a JSON list of the names of the next content
    .sync.old.NAME     NAME of the former content
    .sync.copy         a file being copied

Without a manifest, each of these is removed at boot.
"""
import json
import os

from gomq_py.digests import sha256
from gomq_py.storage.disk import atomic_file
from gomq_py.storage.errors import DataDirError

SYNC = ".sync"
COPY = f"{SYNC}.copy"
_MANIFEST = f"{SYNC}.manifest"
_NEW, _OLD = f"{SYNC}.new.", f"{SYNC}.old."


def swap(files, root, stays):
    """Replace the content of ``root`` by the content of ``root``/.sync, which was flushed. Blocks.

    ``files`` has no replicators. ``stays``: names directly in ``root`` that are kept if .sync does not have
    them. Raises OSError; then ``finish`` makes the folder whole, with the old or the new content.
    """
    names = sorted(os.listdir(os.path.join(root, SYNC)))
    for name in names:
        files.rename(os.path.join(root, SYNC, name), os.path.join(root, _NEW + name))
    files.sync_folder(os.path.join(root, SYNC))
    files.sync_folder(root)
    atomic_file.replace(files, os.path.join(root, _MANIFEST), _encoded(names))
    finish(files, root, stays)


def has_begun(root):
    """Return whether a swap is valid but unfinished, so that some files may still be the old ones."""
    return os.path.lexists(os.path.join(root, _MANIFEST))


def finish(files, root, stays):
    """Finish a swap that has its manifest, and remove files left by an unfinished sync or an earlier swap.
    Blocks; for boot, before anything else. Raises OSError and DataDirError.
    """
    if not any(_is_ours(name) for name in os.listdir(root)):
        return
    manifest = os.path.join(root, _MANIFEST)
    if has_begun(root):
        names = _read(manifest)
        _remove_former(files, root, {*names, *stays})
        for name in names:
            _take_over(files, root, name)
        files.sync_folder(root)
        files.unlink(manifest)
        files.sync_folder(root)
    _remove_ours(files, root)


def _is_ours(name):
    return name == SYNC or name.startswith(f"{SYNC}.")


def _remove_ours(files, root):
    for name in filter(_is_ours, os.listdir(root)):
        path = os.path.join(root, name)
        if os.path.isdir(path) and not os.path.islink(path):
            files.remove_tree(path)
        else:
            files.unlink(path)


def _remove_former(files, root, kept):
    for name in os.listdir(root):
        if name not in kept and not _is_ours(name):
            _put_away(files, root, name)


def _take_over(files, root, name):
    """Give the new file or folder its final name, ``name``, unless that was done already."""
    new = os.path.join(root, _NEW + name)
    if not os.path.lexists(new):
        return
    if os.path.lexists(os.path.join(root, name)):
        _put_away(files, root, name)
    files.rename(new, os.path.join(root, name))


def _put_away(files, root, name):
    files.rename(os.path.join(root, name), os.path.join(root, _OLD + name))


def _encoded(names):
    content = json.dumps(names).encode()  # names that are not UTF-8 as escaped surrogates
    return sha256(content).hexdigest().encode() + b"\n" + content


def _read(path):
    with open(path, "rb") as file:
        digest, _, content = file.read().partition(b"\n")
    if sha256(content).hexdigest().encode() != digest:
        raise DataDirError(
            f"{path} is damaged: this folder holds parts of two states. Remove all of it but .cluster, and "
            "a follower fetches it again; or restore a backup")
    return json.loads(content)
