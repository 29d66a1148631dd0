"""Steering: what the broker asks of its machine, and what it gets instead. The whole list.

Modules that bind a name at import are steered by that name. What cannot be steered is switched off by the
broker's own means: native flush threads (the interpreted twin has none), sendfile, the watch over slow
flushes (a thread; ``slow_sync_warning=0``), the timer of the system by which busy streams are read together,
TLS. A pattern has an hour: otherwise a busy machine would match some twice, which looks at the clock. Files
that DataDir writes around the seam (the lock's text, the note of how a run ended) are real ones, which no
power cut keeps.
"""
import errno
import logging
import os
import random
import socket
from types import SimpleNamespace

import gevent
from gevent.pool import Pool as GreenletPool

from gomq_py import node, patterns
from gomq_py.amqp.server import local as amqp_local
from gomq_py.hub import admission, coalescer, loop_socket, threads
from gomq_py.links import local as links_local
from gomq_py.mqtt.model import kinds
from gomq_py.net import connecting, listener, output
from gomq_py.net.connecting import Lookups
from gomq_py.observability import resources
from gomq_py.storage.disk import data_dir
from gomq_py.storage.flush import flushing
from tests.simulation import network
from tests.simulation.disk import is_of_disk
from tests.simulation.threads import Pool
from tests.simulation.world import described, without_places

ROOM = 1 << 40


def steer(world):
    """For the rest of this process of the machine."""
    chance = world.random("chance")
    random.seed(f"{world.seed} random")
    os.urandom = chance.randbytes
    os.getpid = lambda: 1
    socket.gethostname = lambda: "simulation"
    _steer_sockets()
    node.Files = lambda listeners: gevent.get_hub().process.files(listeners)
    flushing.ThreadPool = Pool
    threads.begin_apart = lambda *work: threads.begin(*work, pool=Pool(1))
    patterns.BUDGET_S = 3600.0
    resources.free_disk = lambda path: (ROOM, ROOM)
    resources.resident_memory = resources.used_memory = lambda *_: 1 << 26
    resources.total_memory = lambda *_: ROOM
    data_dir.boot_id = kinds.boot_id = lambda: b"boot %d\n" % gevent.get_hub().process.machine.boots
    _sort_folders()
    _listen_to_logs(world)


def _steer_sockets():
    loop_socket.LoopSocket = listener.LoopSocket = network.LoopSocket
    loop_socket._PLAIN = (network.LoopSocket, network.WaitingSocket)
    admission.shut_down = network.shut_down
    output.CAN_SEND_FILES = False
    coalescer._ticks = _refuse


def import_late():
    """What a broker imports when it comes to need it, once for all seeds, and an app of the management door,
    which would take half a second of the processor at each boot. Not links, whose module remembers what it
    has warned of: what is there before the fork is not counted by ``leaks.kept``.
    """
    import encodings.idna  # noqa: F401

    import regex  # noqa: F401

    from gomq_py.http import app, clients, door, server  # noqa: F401
    from gomq_py.mqtt.server import server as mqtt_server  # noqa: F401

    made = app.create_app(None)
    made.url_map.update()  # of routes, or each seed would sort them with its first request

    def create_app(node):
        made.extensions["gomq.node"] = node
        made.extensions["gomq.logins"] = app.LoginCounts()
        made.extensions["gomq.sessions"] = app.Sessions()
        return made

    app.MAKERS[door.HTTP] = create_app


def steer_http():
    """The management door, which few seeds open."""
    from gevent import server as gevent_server

    from gomq_py.http import clients, server

    gevent_server.GeventSocket = network.WaitingSocket
    clients.shut_down = network.shut_down
    server._has_gone = network.has_gone
    server.Pool = _Pool


class _Pool(GreenletPool):
    """Ends its greenlets in the order of their coming, and not of their addresses."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.greenlets = _Ordered()


class _Ordered(dict):
    """What gevent asks of a set."""

    add = dict.setdefault

    def discard(self, one):
        """It need not be there."""
        self.pop(one, None)


def steer_links():
    """What shovels and federation ask for, and import when they are there."""
    from gomq_py.client import connection  # noqa: F401
    from gomq_py.federation import exchange_link, queue_link  # noqa: F401
    from gomq_py.shovel import ends  # noqa: F401

    amqp_local.gevent_socket = SimpleNamespace(socketpair=network.socketpair)
    connecting._connected = network.dialled
    links_local.Lookups = lambda: Lookups(gevent.get_hub().process.machine.network.addresses)


def _refuse(*_):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def _sort_folders():
    """Folders list their names in an order of the file system's."""
    list_names, scan = os.listdir, os.scandir
    os.listdir = lambda path=".": sorted(list_names(path))

    class Scan:
        """In place of os.scandir's iterator."""

        def __init__(self, path="."):
            with scan(path) as entries:
                self._entries = iter(sorted(entries, key=lambda entry: entry.name))

        def __iter__(self):
            return self._entries

        def __next__(self):
            return next(self._entries)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def close(self):
            """Nothing is open."""

    os.scandir = Scan


class _Listener(logging.Handler):
    """Has warnings in the trace. A traceback is a finding, unless the disk is behind it."""

    def __init__(self, world):
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record):
        self._world.say("log", without_places(f"{record.levelname.lower()} {record.getMessage()}"))
        if record.exc_info and not is_of_disk(record.exc_info[1]):
            self._world.find(f"{record.getMessage()}: {described(record.exc_info[1])}")


def _listen_to_logs(world):
    logging.getLogger("gomq_py").addHandler(_Listener(world))
