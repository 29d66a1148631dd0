"""Orphans: removes folders of queues or stores that no longer exist, or moves them to quarantine.

The queue factory calls settle_orphans() at boot, after all queues are opened. Blocks.
"""
import os

from gomq_py.observability.log import logger

LOG = logger("broker")
_WAY_BACK = "'gomq-py-ctl recover' gives its messages to a queue"


def settle_orphans(data_dir, files, listed, known, named, log_is_damaged):
    """Remove folders of deleted queues and folders without segments; move other unknown ones to quarantine.

        known     folders of existing queues and other stores, which stay
        named     folder ids in the log. A folder with such an id, if not ``known``, was a deleted queue's
        listed    contents of each folder at the last orderly stop

    Also quarantined: folders that had messages at the last orderly stop and, if the log has lost records, all
    folders with files.
    """
    # A folder that the log does not name may be newer than the log, or put there by the operator.
    root = data_dir.queues_folder
    counts = _sums_by_folder(root, listed)
    deleted = {incarnation[:8].hex() for incarnation in named}
    for entry in sorted(os.listdir(root)):
        path = os.path.join(root, entry)
        if path in known:
            continue
        if not os.path.isdir(path):
            LOG.error(
                "%s is no folder of a queue; it is kept as %s", path, data_dir.set_aside(path)
            )
        elif log_is_damaged and os.listdir(path):
            LOG.error(
                "the definitions are damaged and name no queue for %s; it is kept as %s. %s", path,
                data_dir.set_aside(path), _WAY_BACK,
            )
            counts.pop(path, None)
        elif counts.get(path):
            LOG.error(
                "the definitions name no queue for %s, and did when the last run stopped; its %d "
                "message(s) are kept as %s. %s", path, counts.pop(path), data_dir.set_aside(path),
                _WAY_BACK,
            )
        elif entry.partition(".")[2] in deleted or not _has_segments(path):
            LOG.info("removing %s: no queue of the definitions owns it", path)
            files.remove_tree(path)
        else:
            LOG.error(
                "the definitions name no queue for %s, and do not say that it was deleted; it is kept as "
                "%s. %s", path, data_dir.set_aside(path), _WAY_BACK,
            )
    for path, count in counts.items():
        if path not in known and count and not os.path.isdir(path):
            LOG.error("%s is gone since the last run stopped, and its queue: %d message(s) are lost",
                      path, count)
    files.sync_folder(root)  # the last run may have been killed before it did this


def _sums_by_folder(root, listed):
    sums = {}
    for folder, entry in listed.items():
        path = os.path.join(root, os.path.relpath(folder, root).partition(os.sep)[0])
        sums[path] = sums.get(path, 0) + sum(entry.counts.values())
    return sums


def _has_segments(folder):
    return any(name.startswith("msgs.") for _, _, names in os.walk(folder) for name in names)
