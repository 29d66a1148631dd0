"""The child process of ChildBroker: runs a broker with Chaos, and carries out commands.

It reads commands from standard input, one JSON object per line, and writes answers to standard output. Its
arguments are DATA_DIR OPTIONS FOLDER; OPTIONS is a JSON object of Broker's keywords. The command ``stop``
ends it. When its parent ends without that command, or standard input closes, it ends and deletes FOLDER
(unless ""), so that a killed test run leaves nothing behind.
"""
import json
import os
import select
import shutil
import sys
from functools import partial

from gomq_py.embedded import Broker
from gomq_py.observability import log
from gomq_py.testing.chaos import Chaos

VERBS = (
    "drop_connections", "close_connections", "refuse_logins", "delay_confirms", "nack_confirms", "trip_alarm",
    "calm",
)
_READ_BYTES = 65536


def main(arguments):
    """Run the broker and carry out commands until ``stop`` or the parent's end. Returns the exit code."""
    data_dir, options, folder = arguments
    options = json.loads(options)
    log.configure(options.get("log_level", "info"))
    try:
        broker = Broker(data_dir, **options).start()
    except Exception as error:  # the parent raises it in the test
        answer({"error": str(error)})
        return 2
    chaos = broker.call(Chaos)
    verbs = {"create_vhost": create_vhost, "delete_vhost": delete_vhost} | {
        verb: partial(call_chaos, getattr(chaos, verb)) for verb in VERBS
    }
    answer({"addresses": broker.addresses})
    is_orphan = not carry_out(broker, verbs)
    broker.close()
    if is_orphan and folder:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def carry_out(broker, verbs):
    """Carry out the parent's commands. Returns True after ``stop``, False if the parent ends first.
    ``verbs``: {command: function(launcher, *arguments)}.
    """
    for line in lines_of_parent():
        request = json.loads(line)
        if request["verb"] == "stop":
            return True
        try:
            value = broker.call(verbs[request["verb"]], *request["arguments"])
        except Exception as error:
            answer({"error": str(error), "is_value": isinstance(error, (ValueError, TypeError))})
        else:
            answer({"value": value})
    return False


def lines_of_parent():
    """Yield the lines of standard input, until it closes or the parent ends."""
    # A process that the parent has forked may hold the other end of the pipe open.
    poll = select.poll()
    poll.register(sys.stdin.fileno(), select.POLLIN)
    try:
        poll.register(os.pidfd_open(os.getppid()), select.POLLIN)
    except OSError:
        pass  # an old kernel, or one without pidfd
    rest = b""
    while any(number == sys.stdin.fileno() for number, _ in poll.poll()):
        octets = os.read(sys.stdin.fileno(), _READ_BYTES)
        if not octets:
            return
        *lines, rest = (rest + octets).split(b"\n")
        yield from lines


def call_chaos(method, _launcher, *arguments):
    return method(*arguments)


def create_vhost(launcher, name):
    """Create a vhost in which guest has all rights; an existing one is not changed. If a deleted vhost of
    this name still has contents, waits until they are removed. May switch greenlets.
    """
    launcher.broker.wait_until_gone(name)
    launcher.broker.create_vhost(name, creator="guest")


def delete_vhost(launcher, name):
    """Delete the vhost and close its connections. A job of the broker deletes its contents afterwards."""
    connections = launcher.hub.clients.in_vhost(launcher.broker.vhosts.get(name))
    launcher.broker.delete_vhost(name, connections)


def answer(value):
    print(json.dumps(value), flush=True)
