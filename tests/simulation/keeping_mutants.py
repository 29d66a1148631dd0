"""Mutants of what a broker keeps, and of how long it keeps others waiting: see mutants."""
from gomq_py.broker.signals.resource_watch import ResourceWatch
from gomq_py.hub.admission import Gate
from gomq_py.hub.budget import BodyBudget
from gomq_py.hub.clients import Clients
from gomq_py.net.stream import Stream
from gomq_py.storage.disk.open_file import File


def budget_not_given_back_on_reset():
    """Of every second body that is given up, or complete."""
    release, count = BodyBudget.release, iter(range(1, 1 << 40))

    def forget(budget, body):
        if next(count) % 2:
            release(budget, body)
        else:
            budget.forget(body)

    BodyBudget.release = forget


def admission_place_not_given_back():
    """Of every fifth connection."""
    leave = Gate.leave
    Gate.leave = lambda gate, admitted: leave(gate, admitted) if admitted.fileno % 5 else None


def mapping_leaked_per_segment():
    """Of every file that is closed, somebody keeps the mapping."""
    close, leaked = File.close, []

    def keep(file, *arguments):
        leaked.append(file.map)
        file.map = None
        close(file, *arguments)

    File.close = keep


def stop_leaves_a_greenlet():
    """The watch over memory and disk goes on."""
    ResourceWatch.stop = lambda watch: None


def ended_connections_remembered():
    """Somebody has a reference to each that was reset."""
    forget, remembered = Clients.forget, []

    def remember(clients, connection):
        forget(clients, connection)
        remembered.append(connection)

    Clients.forget = remember


def client_served_without_end():
    """A connection is read until it says nothing."""
    read = Stream._read

    def read_on(stream):
        total = count = read(stream)
        while count and not stream.is_over and not stream.holds:
            count = read(stream)
            total += count
        return total

    Stream._read = read_on
