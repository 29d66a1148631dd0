"""Node: a machine of the cluster, and a process on it, which lives as the launcher has it."""
import os

import gevent
from gevent.event import Event

from gomq_py.config.settings import Settings
from gomq_py.errors import ClusterError
from gomq_py.node import Node as Broker
from tests.node_simulation.network import Lasting, Shared
from tests.simulation.follower import OWN
from tests.simulation.network import ADDRESS, Listening
from tests.simulation.process import SEGMENT_BYTES, Machine, Process
from tests.support.power_cut import Disk

AMQP_PORT, CLUSTER_PORT = 5670, 5680
DEMOTION_S = 10.0  # as launcher.DEMOTION_S
# Between a process's end and the next one's boot: after an exec, a service manager, a machine.
AGAIN_S, RESTART_S, MACHINE_S = 0.05, (0.1, 1.0, 5.0), (1.0, 5.0)


class Node(Machine):
    """Number 1 to 3. It starts its next process by itself. ``elected(process)`` is called when its
    process is to lead, the Judge hears of its boots.
    """

    def __init__(self, world, network, folder, number, etcd, options, elected, judge):
        super().__init__(world, network, folder, f"node{number}")
        self.make = NodeProcess
        self.doors = {"amqp": AMQP_PORT + number}
        self.port = CLUSTER_PORT + number
        self.etcd = etcd
        self.options = options
        self.elected, self.judge = elected, judge
        self._restarts = world.random(f"restarts of {self.name}")
        network.places[self.port] = self.name

    @property
    def process(self):
        """The latest one."""
        return self.processes[-1]

    def boot(self):
        """Start a process."""
        self._note_files()
        self.judge.boots(self)
        self.start(self._ended)

    def _note_files(self):
        """Let the disk know of a file that a process has made and was killed before it noted that."""
        for folder, folders, names in os.walk(self.disk.root):
            for name in [*folders, *names]:
                path = os.path.join(folder, name)
                if not (self.disk.knows(path) or folder == self.disk.root and name in OWN):
                    (self.disk.folder_born if name in folders else self.disk.born)(path)

    def _ended(self):
        again_s = AGAIN_S if self.process.is_deposed else self._restarts.choice(RESTART_S)
        if self.process.has_lost_power:
            again_s = self._restarts.choice(MACHINE_S)
            self._cut_disk()
            self._be_off(again_s)
        self.world.after(again_s, self.boot)

    def lose_power(self):
        """The machine is off for some seconds."""
        self.process.has_lost_power = True
        if self.process.is_alive:
            self.process.die("the power is cut")
        else:
            self._cut_disk()

    def wipe(self):
        """Another machine with an empty folder takes its place."""
        if self.process.is_alive:
            self.process.die("is lost with its machine")
        self.boots += 1
        os.mkdir(self._root())
        self.disk = Disk(self._root(), self._random)

    def _cut_disk(self):
        self.world.counts["power cuts"] += 1
        self.boots += 1
        self.disk = Disk(self.disk.cut(self._root()), self._random)

    def _be_off(self, for_s):
        for other in [*self.network.places.values()]:
            if other != self.name:
                self.network.cut_way(other, self.name, for_s)
                self.network.cut_way(self.name, other, for_s)


class NodeProcess(Process):
    """``leads``: its doors are open. ``is_deposed``: it ends because it leads no more."""

    is_deposed = has_lost_power = False
    loses_power_at = None  # the moment in front of which it does

    def turn(self, at_s):
        began_s, turns = self.world.now_s, self.hub.loop.iteration
        super().turn(at_s)
        if self.hub.loop.iteration > turns:
            self.machine.judge.turned(self, began_s)

    @property
    def leadership(self):
        """The Leadership of a leader, else None."""
        coordination = self.node and self.node._membership and self.node._membership._coordination
        return coordination and coordination.leadership

    @property
    def delivers(self):
        """Whether it is at work, and its gate is open."""
        return (
            self.leads and self.node.hub.gate._is_open.is_set()
            and self.world.now_s >= self._stalled_until_s)

    def moment(self, what):
        super().moment(what)
        if self.moments == self.loses_power_at:
            self.machine.lose_power()

    def die(self, how):
        if self.is_alive and self.has_lost_power:
            for socket in self.sockets.values():
                socket.vanish()
        super().die(how)

    @property
    def leads(self):
        """Whether its doors are open."""
        return self.is_alive and self.is_ready and self.node is not None and self.node.broker is not None

    def _boot(self):
        machine, elected = self.machine, Event()
        settings = Settings(
            data_dir=machine.disk.root, data_dir_lock=False, segment_size=SEGMENT_BYTES, amqp_port=-1,
            mqtt_port=-1, http_port=-1, metrics_http_port=-1, slow_sync_warning=0,
            default_user_only_loopback=False, clustering=True, clustering_port=machine.port,
            advertised_uri=f"{ADDRESS}:{machine.port}", **machine.options)
        try:
            self.node = Broker(settings)
            self.node.follow()
            self.node.open_follower_doors(elected.set, self._deposed, [
                (name, Lasting(fileno=Shared(Listening(self, port)).fileno()))
                for name, port in machine.doors.items()])
            elected.wait()
            machine.elected(self)
            self.node.promote()
        except Exception as error:
            self.fault("cannot boot", error)
            self.die("ends")
        self.is_ready = True
        self.world.say(self._name, "is ready")
        machine.judge.opened(self)

    def end(self):
        """SIGTERM."""
        self.spawn(self._end)

    def _end(self):
        self.is_ready = False
        self.node.drain()
        self._close()
        self.die("has ended")

    def hand_over(self):
        """An operator asks for another leader."""
        self.spawn(self._hand_over)

    def _hand_over(self):
        try:
            self.node.change_cluster("transfer_leadership")
        except ClusterError as error:
            self.world.say(self._name, f"does not hand over: {error}")

    def _deposed(self, reason):
        self.world.say(self._name, f"is deposed: {reason}")
        gevent.spawn(self._begin_anew).name = "demotion"

    def _begin_anew(self):
        self.is_ready = False
        self.is_deposed = True
        stop = gevent.spawn(self._close)
        stop.name = "stop"
        stop.join(DEMOTION_S)
        self.die("begins anew")

    def _close(self):
        try:
            self.node.close()
        except Exception as error:
            self.fault("cannot stop", error)
