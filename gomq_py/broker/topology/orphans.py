"""Orphans: folders under ``queues`` that no queue of the definitions owns.

Below queue_factory, which has opened all queues by then. For boot: blocks.
"""
import os

from gomq_py.observability.log import logger

LOG = logger("broker")
_WAY_BACK = "'gomq-py-ctl recover_queue' gives its messages to a queue"


def settle_orphans(data_dir, files, listed, known, named, log_is_damaged):
    """Remove the folders of queues that were deleted, and set aside those that the log does not know.

    ``known``: folders of queues that are there. ``named``: incarnations that the log names, of queues that
    are there or were deleted. ``listed``: what the last run, if it stopped in order, left in each folder.
    Whatever has messages and is not named is kept for the operator: the definitions may be older than the
    folder, or it was put here. When the log has lost records, so is everything; and so is what had messages
    when the last run stopped in order: it had a queue for each. Some may be gone.
    """
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
    files.sync_folder(root)  # the last run may have been killed before it did


def _sums_by_folder(root, listed):
    """{folder of a queue: messages it held} from what is listed of folders and of levels in them."""
    sums = {}
    for folder, entry in listed.items():
        path = os.path.join(root, os.path.relpath(folder, root).partition(os.sep)[0])
        sums[path] = sums.get(path, 0) + sum(entry.counts.values())
    return sums


def _has_segments(folder):
    """Whether a folder of a queue, or one for a level in it, has files that messages are in."""
    return any(name.startswith("msgs.") for _, _, names in os.walk(folder) for name in names)
