"""A scheduler and timers whose work raises when a test says so,
and where the sources start jobs and timers.
"""
import ast

from gomq_py.hub.scheduler import Scheduler
from gomq_py.hub.timers import HubTimers
from tests.unit.source_tree import module_name, sources, tree

# What starts a job by a name that it is given: which of its arguments that is.
STARTERS = {"in_slices": 1, "Transfer": 0}
# Classes of jobs that are given their names, or whose subclasses have one.
GENERAL = {"Transfer", "Steps", "RetryJob"}
# What jobs are made of.
BASES = {"Job", "RetryJob", "Steps"}


class Sabotage(Exception):
    """The fault."""


class SabotagedScheduler(Scheduler):
    """``aim(name, when, step)``: the job of this name raises ``before`` or ``after`` its
    step-th slice from now on.
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.target = None
        self.steps = 0
        self.hit = False

    def aim(self, name, when, step):
        self.target, self.when, self.step = name, when, step
        self.steps = 0
        self.hit = False

    def _step(self, job):
        if job.name == self.target and not self.hit:
            self.steps += 1
            if self.steps == self.step:
                self.hit = True
                if self.when == "after":
                    job.step()
                raise Sabotage(job.name)
        return job.step()


class SabotagedTimers(HubTimers):
    """Every callback raises once it has done its work, while ``armed``.

    ``fired``: the names of those that did.
    """

    armed = False
    fired = set()

    def start(self, after_ms, callback):
        def sabotaged():
            callback()
            if SabotagedTimers.armed:
                SabotagedTimers.fired.add(callback.__qualname__)
                raise Sabotage(callback.__qualname__)

        return super().start(after_ms, sabotaged)


def job_names():
    """{name of a job, or None where it has none: modules that start it}."""
    found = {}
    for path in sources():
        for call in _calls(path, ".in_slices(", "Transfer("):
            if _name_of(call.func) in STARTERS:
                found.setdefault(ast.unparse(call.args[STARTERS[_name_of(call.func)]]), set()).add(
                    module_name(path)
                )
        for name in _names_of_jobs(path):
            found.setdefault(name, set()).add(module_name(path))
    return found


def _names_of_jobs(path):
    """The name of each class of jobs in a module, as the source has it; None of one without."""
    text = path.read_text(encoding="utf-8")
    if any(f"({base})" in text for base in BASES):
        for made in ast.walk(tree(path)):
            if (
                isinstance(made, ast.ClassDef) and any(_name_of(base) in BASES for base in made.bases)
                and made.name not in GENERAL
            ):
                yield next((ast.unparse(line.value) for line in made.body
                            if isinstance(line, ast.Assign) and _name_of(line.targets[0]) == "name"), None)


def timer_sites():
    """{module of a broker: how many calls of it start a timer}.

    A task queue's process has timers of its own kind, in threads.
    """
    found = {}
    for path in sources():
        if module_name(path).startswith("gomq_py.dispatcher"):
            continue
        count = sum(map(_starts_timer, _calls(path, "timer", "_later(")))
        if count:
            found[module_name(path)] = count
    return found


def _starts_timer(call):
    name, of = _name_of(call.func), _name_of(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return name in ("timer", "spawn_later", "call_later", "_call_later", "start_timer", "_start_timer") \
        or name in ("start", "start_at") and of.lstrip("_") == "timers"


def _calls(path, *words):
    if not any(word in path.read_text(encoding="utf-8") for word in words):
        return []
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]


def _name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
