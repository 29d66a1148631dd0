"""``make asan``: the compiled modules under AddressSanitizer and UndefinedBehaviorSanitizer,
run by the tests that feed them octets.

A copy of the tree in ``build/asan`` is compiled with both (gcc), so that the working copy keeps its fast
modules. Then run the unit tests of what is compiled, and the seeds of every fuzz target with whatever the
fuzzer has found on this machine besides. Octets lie in heap blocks of their exact size
(tests/support/exact.py); Python's own allocator is replaced by malloc, so that the sanitizer sees each
object. Stacks are left out, because greenlets move them, and leaks, because an interpreter never frees
everything.
"""
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "build" / "asan"
FLAGS = (
    "-fsanitize=address,undefined -fno-sanitize-recover=undefined --param asan-stack=0 "
    "-fno-omit-frame-pointer -g1"
)
# Cython reads a module's own structures through casts; what matters here is arithmetic, shifts, bounds and null.
FLAGS += " -fno-sanitize=alignment,vptr"
TESTS = (
    "tests/fuzz/test_seeds.py", "tests/unit/amqp/wire", "tests/unit/mqtt/wire",
    "tests/unit/amqp/server/test_fast_lane.py",
    "tests/unit/amqp/server/test_delivery.py", "tests/unit/storage/format",
    "tests/unit/storage/stores/test_message_store.py", "tests/unit/storage/stores/test_priority_store.py",
    "tests/unit/storage/stores/test_requeued.py", "tests/unit/storage/stores/test_segment_log.py",
    "tests/unit/storage/stores/test_stream_store.py", "tests/unit/net/test_output.py",
    "tests/unit/net/test_stream.py", "tests/unit/broker/queues",
    "tests/unit/broker/exchanges/test_topic_trie.py", "tests/unit/perf/test_walk.py",
    "tests/unit/perf/test_walk_batch.py", "tests/unit/links/test_relay.py",
)


def main():
    if shutil.which("gcc") is None:
        sys.exit("make asan needs gcc")
    copy_tree()
    environment = {**os.environ, "PYTHONPATH": str(COPY), "GOMQ_REQUIRE_COMPILED": "1"}
    environment.pop("GOMQ_PURE_PYTHON", None)
    build = {**environment, "CFLAGS": FLAGS, "LDFLAGS": "-fsanitize=address,undefined"}
    subprocess.check_call([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=COPY, env=build)
    run = {
        **environment,
        "LD_PRELOAD": " ".join(library(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")),
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=1:allocator_may_return_null=1"
                        f":log_path={COPY / 'asan.log'}",  # pytest would keep a report to itself
        "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONFAULTHANDLER": "",
        "GOMQ_FUZZ_CORPUS": str(ROOT / "build" / "fuzz"),
    }
    arguments = sys.argv[1:] or ["-q", "-n", "2", "-m", "not long", "--hypothesis-profile", "quick", *TESTS]
    arguments += ["-p", "no:faulthandler", "--timeout", "600"]
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", *arguments], cwd=COPY, env=run))


def copy_tree():
    """What is under version control, or new and not ignored, as it is now.

    What the last run compiled stays where its source did not change.
    """
    COPY.mkdir(parents=True, exist_ok=True)
    listed = subprocess.check_output(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True
    ).splitlines()
    for name in listed:
        source, target = ROOT / name, COPY / name
        if not source.is_file():
            continue
        if not target.exists() or source.stat().st_mtime_ns != target.stat().st_mtime_ns:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def library(name):
    """The path of one of gcc's libraries."""
    return subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()


if __name__ == "__main__":
    main()
