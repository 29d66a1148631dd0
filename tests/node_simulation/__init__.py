"""Simulation of three whole nodes by seed: brokers that elect their leader, in the simulator's world, with a
model of etcd beside them.

World, clock, loops, threads, disks and sockets are those of tests.simulation, whose steering is extended by
``steering``. A node is gomq_py.node.Node as the launcher runs it: a follower at first, and a leader once it
is elected. docs/contributing/simulation.md says how to read what a seed finds.
"""
