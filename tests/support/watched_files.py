"""WatchedFiles: a Files that calls ``about_to(call, subject)`` before every change of a file or folder,
and before every flush.

Base of the files that misbehave (``faulty_files``, ``power_cut``): the N-th seam call means the same in both.
Announcements of mapped writes (``appended``, ``overwritten``) are moments too, though nothing can fail there:
the mapping has already changed. So is the moment in which a log accepts what a thread is to write.
"""
from gomq_py.storage.disk.plain_files import PlainFiles

# Calls that ask the system for something, and so can fail.
# Composed ones (remove_tree) are made of these; closing is not a change.
CALLS = (
    "create", "create_unnamed", "open", "read_through", "allocate", "open_log", "append", "reserve",
    "write_accepted", "write", "put", "write_again", "truncate", "extend", "sync", "sync_folder", "make",
    "make_unnamed", "make_log", "unmake", "open_plain", "set_size", "sync_all",
)
# Changes of names, of which the half is watched that asks the system:
# whoever makes them, at once in the hub or later in a thread.
NAME_CALLS = ("rename", "unlink", "make_folder", "remove_folder", "link")
ANNOUNCEMENTS = ("appended", "overwritten", "accept")
FLUSHES = frozenset({"sync", "sync_folder", "sync_all"})
# These come from another thread while a broker serves, as changes of names do.
POOL_CALLS = FLUSHES | {"make", "make_unnamed", "make_log", "unmake", "reserve", "write_accepted"}


class WatchedFiles(PlainFiles):
    """Does what Files does; subclasses look in through ``about_to``."""

    def about_to(self, call, subject):
        """Called before ``call`` on ``subject`` (a path); what it raises is what the caller sees."""


def _watched(name, method):
    inherited = getattr(PlainFiles, method)

    def call(self, subject, *arguments):
        self.about_to(name, getattr(subject, "path", subject))
        return inherited(self, subject, *arguments)

    call.__name__ = method
    call.__doc__ = inherited.__doc__
    return call


for _name in CALLS + ANNOUNCEMENTS:
    setattr(WatchedFiles, _name, _watched(_name, _name))
for _name in NAME_CALLS:
    setattr(WatchedFiles, f"_{_name}", _watched(_name, f"_{_name}"))
