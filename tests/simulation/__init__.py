"""Simulation: one seed drives a broker, its clients, clock, threads, sockets and disk, in one process.

Everything that is not deterministic comes from the seed, so a failure is a seed and a commit, and is replayed
with ``python -m tests.simulation SEED``. docs/contributing/simulation.md says how to add to it.

The parts, from below:

    clock      what the time module says
    world      what happens next, in the order of times and of the seed; and the trace
    loop       gevent's loop of one process, in the world: callbacks, timers, sockets
    threads    gevent's thread pools: greenlets that pause in front of each call of the file seam
    network    sockets as pairs in memory with windows; octets come in pieces, late, or never
    fairness   what a broker may do for one connection between two polls
    disk       the files of a process over the power cuts' model of a disk, and the faults of that disk
    steering   what the broker asks of its machine, and what it gets instead
    follower   a machine that hears what the files are told, and takes the place of one that is lost
    process    a broker: booted, killed between two events or in front of a call, and booted again
    ledger     what clients were answered, and what may not happen after that
    clients    state machines that speak AMQP and MQTT and know what they were answered
    links      a second machine, and shovels and federation links between the two
    faults     what goes wrong at a machine
    visits     at a quiet end everybody leaves, comes again and leaves, and nothing may stay or grow
    leaks      what a broker keeps while nobody is connected
    scenario   what a seed makes of all that

A process that is killed is a hub to which nobody switches any more. No ``finally`` of it runs, as after
SIGKILL.
"""
