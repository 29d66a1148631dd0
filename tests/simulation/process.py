"""Process: a broker on a machine of the world, from its boot to its end.

It may be killed between any two events, and in front of any call of the file seam or any send: whatever
greenlet is there gives the processor to the world, and nobody gives it back. Its octets stay on their way,
its mappings are touched by nobody, and the machine keeps its page cache. When the power is cut, the machine
keeps what the model of the disk lays out.
"""
import os
from functools import partial

import gevent
from gevent._hub_local import set_hub
from greenlet import getcurrent

from gomq_py.config.settings import Settings
from gomq_py.errors import Refused
from gomq_py.node import Node
from tests.simulation import leaks
from tests.simulation.disk import ProcessFiles, Weather, is_of_disk
from tests.simulation.fairness import Share
from tests.simulation.loop import ProcessHub
from tests.simulation.network import (
    AMQP_PORT, FIRST_DESCRIPTOR, MQTT_PORT, Listening, WaitingSocket,
)
from tests.simulation.threads import Pool
from tests.simulation.world import described
from tests.support.power_cut import Disk

SEGMENT_BYTES = 65536
HUB_THREADS = 10  # as gevent's hub has
TENDS_S = 20  # an operator, behind the storm
SETTLES_S = 0.5  # until greenlets that were killed at the end have ended


class Machine:
    """What outlives a process: its disk. ``boots`` tells one boot of the machine from another. ``doors``: on
    which ports the broker listens. ``name``: of the second machine. ``follower``: a Follower of it, or None;
    ``has_followed``: it is the follower of one that was lost, and its broker has not booted yet.
    ``tells(kinds)``: called when something is sent to a client that awaits these, or None.
    """

    follower = None
    has_followed = False
    make = None  # of a process, in place of Process

    def __init__(self, world, network, folder, name=""):
        self.world = world
        self.name = name
        self.network = network
        self.weather = Weather()
        self.tells = None
        self.boots = 0
        self.doors = {"amqp": AMQP_PORT, "mqtt": MQTT_PORT}
        self.processes = []
        self._folder = folder
        self._random = world.random(f"disk{name}")
        os.mkdir(self._root())
        self.disk = Disk(self._root(), self._random)

    def start(self, ended):
        """Boot the broker; ``ended()`` is called at its end, however that comes. Returns the Process."""
        self.world.counts["boots"] += 1
        self.processes.append((self.make or Process)(self, len(self.processes) + 1, ended))
        return self.processes[-1]

    def cut_power(self):
        """The process ends, and the disk is what it may be after that."""
        self.world.counts["power cuts"] += 1
        for socket in self.processes[-1].sockets.values():
            socket.vanish()
        self.processes[-1].die("the power is cut")
        self.boots += 1
        self.disk = Disk(self.disk.cut(self._root()), self._random)

    def lose(self):
        """It is gone for good, and its follower is in its place, under the same address."""
        for socket in self.processes[-1].sockets.values():
            socket.vanish()
        self.processes[-1].die("is lost with its machine")
        self.boots += 1
        self.follower.take_over(self._root())
        self.disk = Disk(self._root(), self._random)
        self.has_followed = True

    def is_ill(self):
        """Whether its disk is full or fails, or has failed the process."""
        return self.weather.is_failing() or self.processes[-1].has_failed_disk

    def _root(self):
        return os.path.join(self._folder, f"data{self.name}{self.boots}")


class Process:
    """One run of the broker. ``is_ready``: its doors are open. ``is_alive`` until it is killed, or ended in
    order, which ``has_stopped`` says. ``has_failed_disk``: some of its queues may be closed until they are
    restarted;
    ``has_failed_folder``: a folder takes nothing more until the next one (docs/promises.md).
    """

    def __init__(self, machine, number, ended):
        self.machine = machine
        self.world = machine.world
        self.node = None
        self.is_ready = False
        self.is_alive = True
        self.has_stopped = False
        self.has_failed_disk = self.has_failed_folder = False
        self.reopened_at_s = {}  # name of a queue that an operator has restarted -> when
        self.sockets = {}  # descriptor -> End or Listening
        self.dies_at = None  # the moment in front of which it is killed
        self.moments = 0
        self.stalls_s = self._stalled_until_s = 0.0
        self._ended = ended
        self._name = f"broker{machine.name}-{number}"
        self.hub = ProcessHub(self)
        self.hub.threadpool = Pool(HUB_THREADS, self)
        if machine.follower is not None:
            machine.follower.begin(self)
        self.spawn(self._boot)

    def __str__(self):
        return self._name

    # what the world does with it

    def turn(self, at_s):
        """An event: a turn of its loop."""
        if self.is_alive and not self._is_stalled(self.turn, at_s) and self.hub.loop.is_due(at_s):
            set_hub(self.hub)
            self.hub.switch()

    def enter(self):
        """Who calls asks what it has."""
        set_hub(self.hub)

    def after(self, delay_s, function):
        """An event of it: not after its end."""
        self.world.after(delay_s, self._go_on, function)

    def _go_on(self, function):
        if self.is_alive and not self._is_stalled(self._go_on, function):
            set_hub(self.hub)
            function()

    def stall(self, for_s):
        """The system gives the processor to others for so long: no thread of it goes on."""
        self.world.say(self._name, f"has no processor for {for_s:.3f} s")
        until_s = max(self._stalled_until_s, self.world.now_s + for_s)
        self.stalls_s += until_s - max(self._stalled_until_s, self.world.now_s)
        self._stalled_until_s = until_s

    def stalled_s(self):
        """For how long it had no processor until now. ``stalls_s`` counts the rest of a stall, too."""
        return self.stalls_s - max(0.0, self._stalled_until_s - self.world.now_s)

    def _is_stalled(self, function, *arguments):
        """Whether it has no processor now. The function is called when it has one."""
        if self.world.now_s >= self._stalled_until_s:
            return False
        self.world.at(self._stalled_until_s, function, *arguments)
        return True

    def moment(self, what):
        """Something is about to happen that others will see; the process may end here."""
        self.world.say(self._name, what)
        self.moments += 1
        if self.moments == self.dies_at:
            self.die("is killed")

    def die(self, how):
        """It is killed. Where that is in the middle of its own work, this does not return."""
        if self.is_alive:
            self.world.say(self._name, how)
            self.world.counts["kills"] += how == "is killed"
            self.is_alive = self.is_ready = False
            for socket in list(self.sockets.values()):
                socket.close()
            self._ended()
        if getcurrent() is not self.world.greenlet:
            self.world.greenlet.switch()

    def stop(self):
        """Have it end in order."""
        self.is_ready = False  # before it has the processor for it
        self.spawn(self._stop)

    def spawn(self, function, *arguments):
        """Have a greenlet of it call the function."""
        set_hub(self.hub)
        gevent.spawn(function, *arguments).name = function.__name__

    def tend(self, seconds=TENDS_S):
        """Have an operator restart the queues that faults have closed, or close in the next seconds, as
        docs/operations.md says. The broker opens other stores by itself.
        """
        self.enter()
        gevent.spawn(self._tend).name = "operator"
        if seconds:
            self.after(1.0, partial(self.tend, seconds - 1))

    def compare_copy(self):
        """At rest a follower has what is in the folder, octet for octet, unless calls have failed halfway.
        Returns whether that was to be seen.
        """
        if self.machine.follower is None or self.has_failed_disk:
            return False
        for name in self.machine.follower.differences():
            self.world.find(f"{self} and its follower have two versions of {name}")
        return True

    def fault(self, where, error):
        """What was raised where nobody awaits it: a fault of the broker, or of its disk."""
        if is_of_disk(error):
            self.world.say(self._name, f"{where}: {described(error)}")
        else:
            self.world.find(f"{self._name}: {where}: {described(error)}")

    # what it asks of the world

    def descriptor_of(self, socket):
        """A number for a socket of the process."""
        descriptor = FIRST_DESCRIPTOR + len(self.sockets)
        self.sockets[descriptor] = socket
        if not isinstance(socket, Listening):
            socket.descriptor = descriptor
            served = [port for name, port in self.machine.doors.items() if name != "http"]
            if socket.address[1] in served:  # by the loop, and not by greenlets, as links and HTTP are
                socket.share = Share(self, socket.name)
        return descriptor

    def files(self, listeners):
        """In place of storage.disk.files.Files."""
        return ProcessFiles(self, listeners)

    # its greenlets

    def _boot(self):
        settings = Settings(
            data_dir=self.machine.disk.root, data_dir_lock=False, segment_size=SEGMENT_BYTES,
            amqp_port=-1, mqtt_port=-1, http_port=-1, metrics_http_port=-1, slow_sync_warning=0)
        try:
            follower = self.machine.follower
            self.node = Node(settings) if follower is None else Node(settings, (follower,))
            if self.machine.has_followed:
                self.machine.has_followed = False
                self.node.follow()
            self.node.lead()
            if follower is not None:  # before anybody is promised anything: so there is no promote()
                self.node.durability.add(follower)
            self.node.open_doors([
                (name, WaitingSocket(fileno=Listening(self, port).fileno()))
                for name, port in self.machine.doors.items()
            ])
        except Exception as error:
            self.fault("cannot boot", error)
            self.die("ends")
        self.is_ready = True
        self.world.say(self._name, "is ready")

    def _tend(self):
        for vhost in list(self.node.broker.vhosts.values()):
            for queue in [queue for queue in vhost.queues.values() if queue.closed]:
                try:
                    vhost.restart_queue(queue)
                    self.reopened_at_s[queue.name] = self.world.now_s
                    self.world.say(self._name, f"has {queue.name} open again")
                except Refused as error:
                    self.world.say(self._name, f"cannot open {queue.name}: {error}")

    def _stop(self):
        try:
            self.node.close()
        except Exception as error:
            self.fault("cannot stop", error)
        self.after(SETTLES_S, self._has_stopped)

    def _has_stopped(self):
        """After an orderly end nothing is open, and nobody waits for anything."""
        open_ = [socket.name for socket in self.sockets.values() if not socket.is_closed]
        if open_:
            self.world.find(f"{self._name} has not closed {open_}")
        if left := leaks.waiting(self):
            self.world.find(f"{self._name} has ended, and there are {left}")
        self.compare_copy()
        self.has_stopped = True
        self.die("has ended")
