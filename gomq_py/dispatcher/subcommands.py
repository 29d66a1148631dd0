"""Subcommands of gomq-py-worker that show or change a task queue, and run no tasks."""

import argparse
import importlib
import json
import os
import sys
import traceback

from gomq_py.client.errors import ClientError
from gomq_py.client.url import DEFAULT_URL
from gomq_py.dispatcher import remote
from gomq_py.dispatcher.app import Dispatcher
from gomq_py.dispatcher.arguments import name_of, on_one_line, text_of
from gomq_py.dispatcher.dead import Outcome, retry_dead
from gomq_py.dispatcher.errors import DispatcherError
from gomq_py.dispatcher.server import ServerConfig


def run_command(arguments):
    """Run the subcommand that the first argument names. Returns its exit code. 0: success; 1: the broker
    refuses or cannot be reached, or no worker answers; 2: wrong arguments.
    """
    options = _parser().parse_args(arguments)
    app = loaded(options.app) if options.app else Dispatcher(exchange=options.exchange)
    if app is None:
        return 2
    if options.url:
        app.url = options.url
    try:
        return COMMANDS[options.command](app, options)
    except (ClientError, OSError, DispatcherError, ValueError) as error:
        say(text_of(error))
        return 1


def loaded(place):
    """Import and return the Dispatcher named by ``module:name`` or, without a name, ``module:app``. If that
    fails, print the reason and return None.
    """
    module, _, name = place.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        app = getattr(importlib.import_module(module), name or "app")
        if not isinstance(app, Dispatcher):
            raise TypeError(f"{place} is of type {type(app).__name__}, and not a Dispatcher")
    except Exception as error:
        if not isinstance(error, (ImportError, AttributeError, TypeError, ValueError)):
            traceback.print_exc()  # shows the faulty line of the app's module
        say(f"{place}: {name_of(error)}: {text_of(error)}")
        return None
    return app


def say(text):
    print(f"gomq-py-worker: {text}", file=sys.stderr)


def count_of(text):
    """Parse a count for argparse. Raises ArgumentTypeError if below 1, ValueError if it is no number."""
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("is at least 1")
    return count


def _retry_dead(app, options):
    outcome, dead = Outcome(), f"{options.queue}.dead"
    try:
        with app.connect() as connection:
            retry_dead(
                connection, options.queue, outcome, name=options.task, limit=options.limit,
                dry_run=options.dry_run)
    finally:
        for (name, error), count in sorted(outcome.moved.items()):
            print(f"{count:>6}  {on_one_line(name)}  {on_one_line(error)}")
        verb = "would run again" if options.dry_run else "run again"
        print(f"{outcome.moved.total()} tasks of {dead} {verb} in {options.queue}")
        if outcome.others:
            print(f"{outcome.others} tasks of other names stay")
        if outcome.expired:
            print(f"{outcome.expired} tasks have expired, and stay")
    return 0


def _revoke(app, options):
    app.revoke(*options.id)
    print("revoked, unless they have begun")
    return 0


def _inspect(app, options):
    queues = app.queues if options.app else options.queues.split(",") if options.queues else []
    with app.connect() as connection:
        found = remote.inspect(connection, app.exchange, queues, options.timeout)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        _show(found)
    if not found["processes"]:
        say(f"no worker of exchange {app.exchange!r} has answered within {options.timeout:g} s")
    return 0 if found["processes"] else 1


def _show(found):
    """Print the result of ``remote.inspect``. Escapes control characters: any program may send them."""
    for process in found["processes"]:
        print(f"process {process['pid']} on {on_one_line(process['host'])}, "
              f"gomq-py {on_one_line(process['version'])}")
        print(f"  tasks: {', '.join(map(on_one_line, process['tasks'])) or 'none'}")
        for worker in process["workers"]:
            counts = ", ".join(f"{each} {worker[each]}" for each in ("done", "failed", "revoked", "expired"))
            name, queue = on_one_line(worker["name"]), on_one_line(worker["queue"])
            print(f"  worker {name} of {queue}: {worker['taken']} taken, "
                  f"{worker['limit']} at once, {counts}")
            for task in worker["running"]:
                since = "has not begun" if task["seconds"] is None else f"for {task['seconds']:.1f} s"
                print(f"    {on_one_line(task['name'])} {on_one_line(task['uuid'])} {since}, "
                      f"attempt {task['attempt']}")
    for counts in found["queues"]:
        print("queue {name}: {waiting} waiting, {dead} dead, {consumers} consumers".format(
            name=on_one_line(counts["queue"]), **counts))


def _parser():
    parser = argparse.ArgumentParser("gomq-py-worker", description="Commands of a task queue.")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name, text):
        made = commands.add_parser(name, help=text, description=text)
        whose = made.add_mutually_exclusive_group()
        whose.add_argument(
            "--app", metavar="MODULE[:APP]", help="whose broker is used; APP is 'app' by default")
        whose.add_argument("--exchange", default=ServerConfig.exchange, help="of the tasks (%(default)s)")
        made.add_argument("--url", help=f"of the broker; by default the app's, or {DEFAULT_URL}")
        return made.add_argument

    add = command("retry-dead", "Run the dead tasks of a queue again, with all their attempts.")
    add("queue", metavar="QUEUE", help="whose dead tasks are in QUEUE.dead")
    add("--task", metavar="NAME", help="only tasks of this name")
    add("--limit", type=count_of, metavar="N", help="at most so many")
    add("--dry-run", action="store_true", help="only count")
    add = command("revoke", "Cancel tasks that have not begun.")
    add("id", nargs="+", metavar="ID", help="what delay() and send() return")
    add = command("inspect", "Show the workers, what they run, and how many tasks wait.")
    add("--queues", metavar="A,B", help="shown even if no worker has answered; by default the app's")
    add("--timeout", type=float, default=2.0, metavar="S", help="how long to wait for answers (2)")
    add("--json", action="store_true", help="as JSON")
    return parser


COMMANDS = {"retry-dead": _retry_dead, "revoke": _revoke, "inspect": _inspect}
