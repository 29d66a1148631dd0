"""What a change is checked by before it is pushed.

``python -m tests.check FILE...`` (``make check FILE...``) runs the tests of the rooms that the files lie in,
and those of the house; without files, of what differs from the upstream branch. A room is a folder of
gomq_py, whose tests are those of the same folder of tests/unit.

``python -m tests.check --subjects`` (in ``make lint``) refuses subjects of new commits that are too long.
"""
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOUSE = (
    "tests/unit/test_tidy.py", "tests/unit/test_layering.py", "tests/unit/test_where.py",
    "tests/unit/test_docs.py", "tests/unit/test_typed.py", "tests/e2e/test_promises.py",
)
SUBJECT_COLUMNS = 72


def git(*arguments):
    """Lines of what git says, or None where it fails."""
    said = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return said.stdout.splitlines() if said.returncode == 0 else None


def upstream():
    """The commit of the upstream branch, or None: in a detached clone, or in no clone at all."""
    found = git("rev-parse", "--verify", "--quiet", "@{upstream}")
    return found[0] if found else None


def changed():
    """Files that differ from where this branch has left the upstream one, new files among them."""
    begin = git("merge-base", "@{upstream}", "HEAD")
    if not begin:
        sys.exit("this branch has no upstream to compare with: name the files")
    return [*git("diff", "--name-only", begin[0]), *git("ls-files", "--others", "--exclude-standard")]


def tests_of(file):
    """Test modules of a file's room; of a test module itself."""
    path = Path(os.path.relpath(file, ROOT) if os.path.isabs(file) else file)
    if path.parts[0] == "tests":
        return [path] if path.name.startswith("test_") and (ROOT / path).exists() else []
    if path.parts[0] != "gomq_py":
        return []
    room = ROOT.joinpath("tests", "unit", *path.parts[1:-1])
    return sorted(test.relative_to(ROOT) for test in room.glob("test_*.py"))


def too_long(subjects):
    """Those over the limit."""
    return [subject for subject in subjects if len(subject) > SUBJECT_COLUMNS]


def check_subjects():
    """Say which new commits have too long a subject. Returns the exit code."""
    begin = upstream()
    if begin is None:
        print("commit subjects: not checked, for there is no upstream branch")
        return 0
    long = too_long(git("log", "--no-merges", "--format=%s", f"{begin}..HEAD"))
    for subject in long:
        print(f"commit subject of {len(subject)} columns, at most {SUBJECT_COLUMNS}: {subject}")
    return 1 if long else 0


def main(arguments):
    """Run pytest in the place of this process."""
    if arguments == ["--subjects"]:
        return check_subjects()
    files = arguments or changed()
    tests = {str(test): None for file in files for test in tests_of(file)} | dict.fromkeys(HOUSE)
    untested = [file for file in files if not tests_of(file)]
    if untested:
        print(f"tests of the house only: {' '.join(untested)}", flush=True)
    os.chdir(ROOT)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", "-q", "-n", "4", "--dist", "worksteal", *tests])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
