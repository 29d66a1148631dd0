"""Mutants: faults of the nodes' runtime that the simulation must find."""
MUTANTS = {}
