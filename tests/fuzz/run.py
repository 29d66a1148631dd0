"""Fuzz one target with atheris: ``python -m tests.fuzz.run TARGET --seconds 600``, or
``make fuzz TARGET=... SECONDS=...``.

The interpreted twins are instrumented: they are the same source as the compiled modules, and a fault of
memory shows when ``make asan`` replays what was found here. What is found grows in ``build/fuzz/TARGET``; an
input that breaks a promise is kept there as ``crash-*`` and fails the run. With ``--keep`` the inputs that
together reach everything reached so far become the target's seeds, small ones first.
"""
import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "fuzz"
REPORT = WORK / "report.jsonl"
# An input that takes longer is a finding too.
SLOWEST_S = 20
MEMORY_MB = 1024
# What the kept seeds of one target may take in the repository.
KEPT_OCTETS = 40_000
FIGURES = re.compile(rb"cov: (\d+) ft: (\d+)")


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__.splitlines()[0])
    parser.add_argument("target", help="a target's name, or 'all'")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument(
        "--keep", action="store_true",
        help="make the smallest inputs that reach everything the seeds in the repository",
    )
    parser.add_argument("--only-keep", action="store_true", help="do that without fuzzing first")
    parser.add_argument("--child", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        return _fuzz_here(given.target, given.child)
    from tests.fuzz.targets import TARGETS
    names = list(TARGETS) if given.target == "all" else [given.target]
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    if given.only_keep:
        for name in names:
            _keep(name, TARGETS[name], _corpus(name, TARGETS[name]))
        return 0
    return max(_fuzz(name, TARGETS[name], given.seconds, given.keep) for name in names)


def _fuzz(name, target, seconds, keep):
    corpus = _corpus(name, target)
    before = time.monotonic()
    code, text = _child(name, [
        str(corpus), f"-max_total_time={seconds}", f"-max_len={target.max_octets}", f"-timeout={SLOWEST_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-artifact_prefix={WORK / name}/", "-print_final_stats=1", "-reload=0", *_dictionary(name, target),
    ])
    figures = _figures(text)
    figures = {
        "target": name, **figures, "wall_s": round(time.monotonic() - before),
        "inputs": len(list(corpus.iterdir())), "failed": code != 0,
    }
    with open(REPORT, "a", encoding="utf-8") as file:
        file.write(json.dumps(figures) + "\n")
    print(json.dumps(figures), flush=True)
    if code:
        print(text.decode(errors="replace")[-6000:], flush=True)
    elif keep:
        _keep(name, target, corpus)
    return 1 if code else 0


def _child(name, options):
    """Run libFuzzer in a process of its own, which it ends;
    returns (exit code, what it said with the CPU seconds it took).
    """
    environment = {**os.environ, "GOMQ_PURE_PYTHON": "1", "PYTHONPATH": str(ROOT)}
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as log:
        code = subprocess.call(
            [sys.executable, "-m", "tests.fuzz.run", name, "--child", *options], stdout=log, stderr=log,
            cwd=ROOT, env=environment,
        )
        log.seek(0)
        text = log.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return code, text + b"\ncpu_s: %d\n" % cpu_s


def _figures(text):
    found = FIGURES.findall(text)
    executed = re.findall(rb"stat::number_of_executed_units: (\d+)", text)
    return {
        "edges": int(found[-1][0]) if found else 0, "features": int(found[-1][1]) if found else 0,
        "executed": int(executed[-1]) if executed else 0,
        "cpu_s": int(re.findall(rb"cpu_s: (\d+)", text)[-1]),
    }


def _corpus(name, target):
    from tests.fuzz.target import read_seeds
    corpus = WORK / name / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for kind, inputs in (("seed", read_seeds(name)), ("sample", target.samples())):
        for number, data in enumerate(inputs):
            (corpus / f"{kind}.{number:04d}").write_bytes(data)
    return corpus


def _dictionary(name, target):
    if not target.words:
        return []
    path = WORK / name / "words"
    path.write_text(
        "".join('"{}"\n'.format("".join(f"\\x{octet:02x}" for octet in word)) for word in target.words)
    )
    return [f"-dict={path}"]


def _keep(name, target, corpus):
    """Make seeds of the inputs that together reach everything the corpus does, shortest first.

    libFuzzer's own merge starts itself anew, which an interpreter's process cannot: this is its inner half,
    which notes what each input reached.
    """
    from tests.fuzz.target import write_seeds
    paths = sorted(corpus.iterdir(), key=lambda path: (path.stat().st_size, path.name))
    control = WORK / name / "merge"
    control.write_text("\n".join((str(len(paths)), "0", *map(str, paths), "")))
    code, text = _child(name, [
        "-merge_inner=1", f"-merge_control_file={control}", f"-timeout={SLOWEST_S}",
        f"-max_len={target.max_octets}",
    ])
    if code:
        print(text.decode(errors="replace")[-3000:], flush=True)
        return
    seen, kept, size = set(), [], 0
    for line in control.read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word != "FT":
            continue
        number, *features = map(int, rest.split())
        data = paths[number].read_bytes()
        if seen.issuperset(features) or size + 4 * len(data) // 3 > KEPT_OCTETS:
            continue
        seen.update(features)
        size += 4 * len(data) // 3 + 5
        kept.append(data)
    write_seeds(name, kept)
    print(f"{name}: {len(kept)} of {len(paths)} inputs kept, {size} octets, {len(seen)} features", flush=True)


def _fuzz_here(name, options):
    import atheris

    import gomq_py  # puts the finder of the interpreted twins in place, behind which atheris must look

    assert gomq_py.__version__
    with atheris.instrument_imports(include=["gomq_py"]):
        from tests.fuzz.targets import TARGETS
    run = TARGETS[name].run
    atheris.Setup([sys.argv[0], *options], run, internal_libfuzzer=True)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
