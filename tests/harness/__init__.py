"""Harnesses: the full product of what can be wrong and where.

``make test`` runs a chosen part of each, ``make harness`` all (GOMQ_HARNESS=full).
"""
