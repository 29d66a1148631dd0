"""Faults of ours: each job and each timer of a running broker is made to raise,
and the work of others goes on.
"""
