"""Steering: what a node of a cluster asks of its machine beside what tests.simulation.steering has."""
import os
from types import SimpleNamespace

import gevent

from gomq_py.cluster import boot_keepalives, elected, identity, leader, link, login, refusals
from gomq_py.cluster.boot_keepalives import BootKeepalives
from gomq_py.cluster.stream import EventStream
from gomq_py.hub import loop_socket
from gomq_py.net import connecting
from gomq_py.storage.disk import data_dir
from tests.node_simulation.etcd import Coordinator
from tests.node_simulation.network import SOCKETS, Dialling, Lasting, dialled
from tests.simulation import steering
from tests.simulation.clock import CLOCK
from tests.simulation.network import Listening, WaitingSocket
from tests.simulation.threads import Pool, this_thread

_urandom = os.urandom


def steer(world):
    """For the rest of this process of the machine."""
    steering.steer(world)
    elected.PlainFiles = data_dir.Files = lambda: gevent.get_hub().process.files(())
    identity.boot_id = data_dir.boot_id
    elected._client_of_etcd = Coordinator
    for module in (elected, link, refusals):
        module.socket = SOCKETS
    loop_socket._PLAIN += Dialling, Lasting
    connecting._connected = dialled
    elected.bind_tcp = leader.bind_tcp = _bound
    _draw_nonces()
    _keep_order()
    boot_keepalives._start_thread = lambda function, arguments: Pool(1).spawn(function, *arguments)
    boot_keepalives._sleep = lambda seconds: this_thread().pause(seconds)
    boot_keepalives.gevent = SimpleNamespace(
        get_hub=lambda: SimpleNamespace(destroy=lambda destroy_loop: None))
    BootKeepalives.__init__.__defaults__ = (lambda: CLOCK.now_s,)  # it is never idle


def _bound(host, port, backlog):
    return WaitingSocket(fileno=Listening(gevent.get_hub().process, port).fileno())


def _draw_nonces():
    """Arguments that have os.urandom as their default."""
    for kind in (login.LeaderLogin, login.FollowerLogin, login.ForwarderLogin):
        kind.__init__.__defaults__ = tuple(
            os.urandom if default is _urandom else default for default in kind.__init__.__defaults__)


def _keep_order():
    """A set of functions or greenlets has the order of addresses."""
    class Stream(EventStream):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.wakes = steering._Ordered()

    class Leader(leader.Leader):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self._greenlets = steering._Ordered()

    elected.EventStream, elected.Leader = Stream, Leader
