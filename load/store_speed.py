"""Microseconds per message of the message store alone: ``python load/store_speed.py [folder]``.

Prints processor time (user and system of this process) per message for each scenario. Compiles its loops into
a temporary folder when Cython is there; the modules of gomq_py are used as they are installed, compiled or
not.
"""
import resource
import sys
import tempfile
from array import array
from pathlib import Path

import gevent

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gomq_py.storage.disk.files import Files  # noqa: E402
from gomq_py.storage.flush.group_commit import GroupCommit  # noqa: E402
from gomq_py.storage.message import Message  # noqa: E402
from gomq_py.storage.segments.pool import SegmentPool  # noqa: E402
from gomq_py.storage.stores import message_store  # noqa: E402
from gomq_py.storage.stores.recovery import open_store  # noqa: E402


def load_loops(folder):
    """The typed loops, or their plain source where nothing is compiled."""
    if message_store.__file__.endswith(".py"):
        sys.path.insert(0, str(Path(__file__).parent))
    else:
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext
        for name in ("store_loop.py", "store_loop.pxd"):
            (folder / name).write_text((Path(__file__).parent / name).read_text())
        options = {
            "language_level": 3, "boundscheck": False, "wraparound": False, "initializedcheck": False,
            "annotation_typing": False,
        }
        loops = [Extension("store_loop", [str(folder / "store_loop.py")])]
        extensions = cythonize(loops, compiler_directives=options, include_path=[str(ROOT)], quiet=True)
        command = build_ext(Distribution({"ext_modules": extensions}))
        command.build_lib = command.build_temp = str(folder)
        command.ensure_finalized()
        command.run()
        (folder / "store_loop.py").unlink()
        sys.path.insert(0, str(folder))
    import store_loop
    return store_loop


def cpu_s():
    """Processor seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def resident_kib():
    """Anonymous memory in use, without the mapped files."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))


class Speed:
    """One store after another, timed."""

    def __init__(self, folder, loops):
        self.folder = folder
        self.loops = loops
        self.files = Files()
        self.committer = GroupCommit(self.files, enabled=False)
        self.pool = SegmentPool(folder / "pool", self.files, self.committer)
        self.shown = Message()
        self.stores = 0

    def store(self, durable=True):
        """A new, empty store."""
        self.stores += 1
        folder = self.folder / f"queue{self.stores}"
        if not durable:
            folder.mkdir()
        return open_store(folder, self.files, self.pool, self.committer, bytes(16), durable=durable)[0]

    @staticmethod
    def message(size, persistent=False):
        """A message with a body of ``size`` octets as a publisher would send it."""
        message = Message()
        message.assign(b"", b"perf-test", b"\x10\x00\x02", b"x" * size, 1700000000000, persistent=persistent)
        return message

    def pass_through(self, store, message, shown, count, batch):
        """In pieces of half a segment, as a broker's loop does:
        in between, threads give emptied segments back to the pool.
        """
        piece = max(batch, 4_000_000 // (64 + len(message.get_body())) // batch * batch)
        for begun in range(0, count, piece):
            self.loops.pass_through(store, message, shown, min(piece, count - begun), batch)
            while not (self.committer.is_idle and self.committer.background.is_idle):
                gevent.sleep(0.0005)

    def report(self, name, count, action, *arguments):
        """Run and print."""
        before = cpu_s()
        action(*arguments)
        print(f"{name:<64}{(cpu_s() - before) / count * 1e6:8.4f} us", flush=True)

    def run(self, scale):
        loops, shown = self.loops, self.shown
        for size in (16, 1024):
            count = int((4_000_000 if size == 16 else 500_000) * scale)
            count -= count % 10000
            store = self.store()
            self.report(
                f"{size} B in and out, batches of 500, auto-ack", count, self.pass_through, store,
                self.message(size), shown, count, 500,
            )
            self.report(
                f"{size} B in and out, again (recycled segments)", count, self.pass_through, store,
                self.message(size), shown, count, 500,
            )
            store.delete_files()
            store = self.store(durable=False)
            self.report(
                f"{size} B in and out, transient queue", count, self.pass_through, store, self.message(size),
                shown, count, 500,
            )
            store.delete_files()
            store = self.store()
            before = resident_kib()
            self.report(f"{size} B append only", count, loops.append, store, self.message(size), count)
            print(f"{'  heap':<64}{resident_kib() - before:8d} KiB for {count} waiting")
            half = count // 2
            self.report(f"{size} B take only", half, loops.take, store, shown, half)
            window = array("Q", bytes(8 * 1000))
            self.report(
                f"{size} B take 1000, then ack each", half, loops.take_then_ack, store, shown, half, 1000,
                window,
            )
            store.delete_files()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(
        prefix="gomq-store-speed-", dir=sys.argv[1] if len(sys.argv) > 1 else None
    ) as temporary:
        at = Path(temporary)
        (at / "loops").mkdir()
        loops = load_loops(at / "loops")
        Speed(at, loops).run(1.0 if loops.__file__.endswith(".so") else 0.02)
