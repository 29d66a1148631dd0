"""Simulation of the cluster's core by seed: nodes, folders, links and etcd are models, elections, the in-sync
set, leases and promises are gomq_py.cluster.core's.
"""
